"""Makes tests/golden/parity: what transformers, PyTorch and PEFT say about small models and SmolLM2, in f32.

    [SNUG_TEST_GGUF=SmolLM2-135M-Instruct.Q4_1.gguf] python tests/golden/make_parity.py

Made with torch 2.15, transformers 5.24, peft 0.21.2, safetensors 0.8. Deterministic; numbers that agree with the stored ones
to 1e-6 leave the stored file as it is (kernels differ in the last digits between processors).

  rows.jsonl              10 rows of ready-made ids below 24, 12 to 20 long, some labels -100
  llama/                  a Hugging Face folder: GQA 4:2, head_dim 8, hidden 16 (not 4 x 8), tied
  llama3/                 the same with hidden 24, untied, rope llama3 with frequencies in all three of its bands
                          (gpt2 is model_files/'s)
  adapter-NAME/           an initial PEFT adapter of each, A and B random
  NAME.safetensors        ids [29] of two sequences, one after the other, and their logits [29,24]; loss and norm [20] of full_ and lora_ runs
  smollm2.safetensors     of the GGUF: ids [64], columns [64] of the vocabulary, logits [64,64] there, token losses [63] (f64
                          cross-entropy of f32 logits), loss and norm [3] of a full run on rows [3,64]

A run: 20 steps of AdamW (3 for SmolLM2), 2 rows a step (1), linear schedule, weight decay 0.01 on matrices, clipping at 1.
`norm` is what torch's clip_grad_norm_ returns; `norm_f64` sums the same gradients in f64. `loss` is transformers' own,
`loss_f64` the f64 cross-entropy of the same logits. torch's f32 sums are off by 5e-5 (norm) and 6e-6 (loss) on SmolLM2.

model_files/llama is no model for runs: its weights, N(0, 1), make it so ill-conditioned that PyTorch's own f32 gradient norms
differ from those of the same run in f64 by 1.4e-4 (eager attention, full) and 4.6e-4 (SDPA, LoRA).
"""
import json
import os
import shutil

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.numpy import load_file, save_file
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
OUT, FILES = os.path.join(HERE, "parity"), os.path.join(HERE, "model_files")
SEQUENCES = (17, 12)  # lengths of the packed sequences: the first tokens of rows 0 and 1
TARGETS = {"llama": ["q_proj", "k_proj", "v_proj", "o_proj", "gate_proj", "up_proj", "down_proj"], "gpt2": ["c_attn", "c_proj", "c_fc"]}


def store(name, values):
    path = os.path.join(OUT, name)
    if os.path.exists(path):
        old = load_file(path)
        if old.keys() == values.keys() and all(old[k].shape == v.shape and np.allclose(old[k], v, rtol=1e-6, atol=1e-6) for k, v in values.items()):
            return
    save_file(values, path)


def load(path, **more):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, **more).eval()  # eval: no dropout


def make_rows():
    g = torch.Generator().manual_seed(3)
    rows = []
    for _ in range(10):
        n = int(torch.randint(12, 21, (1,), generator=g)) if rows else 20
        ids = torch.randint(3, 24, (n,), generator=g)
        labels = torch.where(torch.rand(n, generator=g) < 0.2, -100, ids)
        rows.append({"input_ids": ids.tolist(), "labels": labels.tolist()})
    with open(os.path.join(OUT, "rows.jsonl"), "w") as f:
        f.writelines(json.dumps(r) + "\n" for r in rows)
    return rows


def make_llama(name, hidden, feed_forward, tied, rope):
    config = LlamaConfig(vocab_size=24, hidden_size=hidden, intermediate_size=feed_forward, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=8, max_position_embeddings=512, rms_norm_eps=1e-5, tie_word_embeddings=tied,
                         bos_token_id=1, eos_token_id=2, rope_parameters=rope)
    model, g = LlamaForCausalLM(config), torch.Generator().manual_seed(5)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g) * 0.3 + (p.dim() == 1))
    folder = os.path.join(OUT, name)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)


def make_adapter(name, path):
    folder, g = os.path.join(OUT, f"adapter-{name}"), torch.Generator().manual_seed(7)
    model = get_peft_model(load(path), LoraConfig(r=2, lora_alpha=6, lora_dropout=0.0, use_rslora=name == "llama3", fan_in_fan_out=name == "gpt2",
                                                  target_modules=TARGETS["gpt2" if name == "gpt2" else "llama"], task_type="CAUSAL_LM"))
    with torch.no_grad():
        for n, p in model.named_parameters():
            if "lora_" in n:
                p.copy_(torch.randn(p.shape, generator=g) * 0.2)
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    os.remove(os.path.join(folder, "README.md"))
    at = os.path.join(folder, "adapter_config.json")  # without this machine's paths, and in one order
    config = json.load(open(at))
    config.update(base_model_name_or_path=None, target_modules=sorted(config["target_modules"]))
    with open(at, "w") as f:
        json.dump(config, f, indent=1, sort_keys=True)
        f.write("\n")
    return folder


def train(model, batches, rate):
    """A run: one step a batch. Returns loss, loss_f64, norm, norm_f64 of each."""
    named = [q for q in model.parameters() if q.requires_grad]
    groups = [{"params": [q for q in named if q.dim() > 1], "weight_decay": 0.01}, {"params": [q for q in named if q.dim() <= 1], "weight_decay": 0}]
    optimizer = torch.optim.AdamW(groups, lr=rate, betas=(0.9, 0.999), eps=1e-8)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: (len(batches) - step) / len(batches))
    out = {"loss": [], "loss_f64": [], "norm": [], "norm_f64": []}
    for ids, labels in batches:
        result = model(input_ids=ids, labels=labels)
        result.loss.backward()
        exact = torch.nn.functional.cross_entropy(result.logits[:, :-1].detach().double().flatten(0, 1), labels[:, 1:].flatten(), ignore_index=-100)
        out["norm_f64"].append(sum(q.grad.double().square().sum() for q in named).sqrt().item())
        out["norm"].append(torch.nn.utils.clip_grad_norm_(named, 1.0).item())
        out["loss"].append(result.loss.item())
        out["loss_f64"].append(exact.item())
        optimizer.step(), schedule.step(), optimizer.zero_grad()
    return {k: np.array(v, dtype=np.float32) for k, v in out.items()}


def batches_of(rows):
    """20 batches of 2 rows, padded at the right: causal attention never looks there."""
    out = []
    for step in range(20):
        pair = [rows[(2 * step + i) % len(rows)] for i in range(2)]
        n = max(len(r["input_ids"]) for r in pair)
        out.append(tuple(torch.tensor([r[k] + [fill] * (n - len(r[k])) for r in pair]) for k, fill in (("input_ids", 0), ("labels", -100))))
    return out


def small(name, path, rows):
    adapter = make_adapter(name, path)
    values = {"ids": np.array(sum((r["input_ids"][:n] for n, r in zip(SEQUENCES, rows)), []), dtype=np.int32)}
    with torch.no_grad():
        values["logits"] = torch.cat([load(path)(torch.tensor([r["input_ids"][:n]])).logits[0] for n, r in zip(SEQUENCES, rows)]).numpy()
    for mode, model in (("full", load(path)), ("lora", PeftModel.from_pretrained(load(path), adapter, is_trainable=True).eval())):
        values.update({f"{mode}_{k}": v for k, v in train(model, batches_of(rows), 1e-3 if mode == "full" else 5e-3).items()})
    store(f"{name}.safetensors", values)


def smollm2(path):
    g = torch.Generator().manual_seed(11)
    model = load(os.path.dirname(os.path.abspath(path)), gguf_file=os.path.basename(path))
    vocab = model.config.vocab_size
    rows = torch.randint(3, vocab, (3, 64), generator=g)
    text = torch.tensor(list(range(3, 3 + 64 * 97, 97)))
    columns = torch.randperm(vocab, generator=g)[:64].sort().values
    with torch.no_grad():
        logits = model(text[None]).logits[0]
    values = {"ids": text.numpy().astype(np.int32), "columns": columns.numpy().astype(np.int32), "logits": logits[:, columns].numpy().copy(),
              "token_losses": torch.nn.functional.cross_entropy(logits[:-1].double(), text[1:], reduction="none").float().numpy(),
              "rows": rows.numpy().astype(np.int32), **train(model, [(r[None], r[None]) for r in rows], 5e-5)}
    store("smollm2.safetensors", values)


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    all_rows = make_rows()
    make_llama("llama", 16, 12, True, {"rope_type": "default", "rope_theta": 50000.0})
    make_llama("llama3", 24, 20, False, {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "low_freq_factor": 1.0,
                                         "high_freq_factor": 4.0, "original_max_position_embeddings": 64})
    for name, path in (("llama", os.path.join(OUT, "llama")), ("llama3", os.path.join(OUT, "llama3")), ("gpt2", os.path.join(FILES, "gpt2"))):
        small(name, path, all_rows)
    if os.environ.get("SNUG_TEST_GGUF"):
        smollm2(os.environ["SNUG_TEST_GGUF"])
