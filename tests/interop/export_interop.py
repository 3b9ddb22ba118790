"""What snug exports, read by the programs it is meant for.

    python tests/interop/export_interop.py DRIVER MODEL.gguf [WORK_DIR]

DRIVER is build/release/export_driver. Run by hand, and by ./check --full where the packages are: torch 2.15, transformers
5.24, peft 0.21, tokenizers 0.23, llama-cpp-python 0.3.36, safetensors 0.8, numpy.

For MODEL (a llama GGUF, quantised) and for tiny random models (llama with 32 heads and 4 KV heads, untied; GPT-2):
an adapter with random non-zero B, the merged folder and the merged GGUF are loaded in PEFT, transformers and llama.cpp,
and their logits compared with snug's for base + adapter. Prints the largest absolute differences; exit status 1 when one
is above its bound.
"""

import gc
import json
import os
import random
import shutil
import subprocess
import sys
import unicodedata

os.environ["TQDM_DISABLE"] = "1"

import numpy as np
import torch
from llama_cpp import Llama
from peft import PeftModel
from safetensors.numpy import load_file
from tokenizers import Tokenizer
from transformers.utils import logging
from transformers import AutoModelForCausalLM, AutoTokenizer, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

HERE = os.path.dirname(os.path.abspath(__file__))
DRIVER, MODEL = os.path.abspath(sys.argv[1]), os.path.abspath(sys.argv[2])
WORK = sys.argv[3] if len(sys.argv) > 3 else "/tmp/export_interop"
failed = []
logging.disable_progress_bar()


def at(*names):
    return os.path.join(WORK, *names)


def driver(*args):
    done = subprocess.run([DRIVER, *args], capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"export_driver {' '.join(args)}: {done.stderr}")
    return done.stdout, done.stderr


def report(name, difference, bound):
    bad = not difference <= bound
    print(f"{'FAIL' if bad else 'ok  '}  {name:64} {difference:.3g} (bound {bound:g})", flush=True)
    if bad:
        failed.append(name)


def check(name, fact):
    report(name, 0.0 if fact else 1.0, 0.0)


def snug_logits(model, adapter, ids):
    driver("logits", model, adapter, at("logits.st"), ",".join(map(str, ids)))
    return load_file(at("logits.st"))["logits"]


def torch_logits(model, ids):
    with torch.no_grad():
        return model(torch.tensor([ids])).logits[0].float().numpy()


def llama_cpp_logits(path, ids):
    m = Llama(path, n_ctx=512, n_batch=512, logits_all=True, verbose=False, n_threads=2, type_k=0, type_v=0)  # an f32 KV cache
    m.reset()
    m.eval(ids)
    out = np.array(m.scores[: len(ids)], dtype=np.float32)
    del m
    gc.collect()
    return out


def load(path, **more):
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager", **more).eval()


def difference(a, b):
    return float(np.abs(a - b).max())


def relative(a, b):
    return float(np.sqrt(np.square(a - b).mean() / np.square(b - b.mean(1, keepdims=True)).mean()))


def adapters(name, model, folder, options, ids, bound):
    """An adapter and both merged forms of `model`, whose base PEFT finds in `folder`."""
    driver("adapter", model, at(name, "adapter"), options)
    ours = snug_logits(model, at(name, "adapter"), ids)
    base = snug_logits(model, "none", ids)
    check(f"{name}: the adapter changes the logits", difference(ours, base) > 1e-3)
    peft = PeftModel.from_pretrained(load(folder), at(name, "adapter")).eval()
    theirs = torch_logits(peft, ids)
    report(f"{name}: adapter in PEFT, snug base + adapter", difference(theirs, ours), bound)
    merged = peft.merge_and_unload()
    driver("merge", model, at(name, "adapter"), at(name, "merged"), "hf", "f32")
    again, info = AutoModelForCausalLM.from_pretrained(at(name, "merged"), dtype=torch.float32, attn_implementation="eager", output_loading_info=True)
    check(f"{name}: transformers finds every tensor of the merged folder", not info["missing_keys"] and not info["unexpected_keys"])
    report(f"{name}: merged folder, weights as PEFT's merge", max(float((a - b).abs().max()) for a, b in zip(again.state_dict().values(), merged.state_dict().values())), 1e-6)
    report(f"{name}: merged folder in transformers, snug base + adapter", difference(torch_logits(again.eval(), ids), ours), bound)
    report(f"{name}: merged folder in snug, snug base + adapter", difference(snug_logits(at(name, "merged"), "none", ids), ours), bound)
    driver("merge", model, at(name, "adapter"), at(name, "merged.gguf"), "gguf", "f32")
    report(f"{name}: merged GGUF in snug, snug base + adapter", difference(snug_logits(at(name, "merged.gguf"), "none", ids), ours), bound)
    driver("hf", model, at(name, "session"), "f32", options)
    same = load_file(at(name, "session", "model.safetensors")), load_file(at(name, "merged", "model.safetensors"))
    check(f"{name}: a run's own export is the merged folder, bit for bit", all(np.array_equal(same[0][k], same[1][k]) for k in same[1]))
    return ours, base


def tokens(name, lines, *others):
    for label, encode in others[1:]:
        wrong = [l for l in lines if encode(l) != others[0][1](l)]
        check(f"{name}: {len(lines)} lines, {others[0][0]} and {label} (e.g. {wrong[:1]!r})" if wrong else f"{name}: {len(lines)} lines, {others[0][0]} and {label}", not wrong)


def lines():
    r = random.Random(1)
    parts = json.load(open(os.path.join(HERE, "..", "golden", "tokenizer", "fragments.json")))
    parts = [p for p in (parts if isinstance(parts, list) else sum((v for v in parts.values() if isinstance(v, list)), [])) if isinstance(p, str)]
    parts = [p.replace("\n", " ").replace("\0", "") for p in parts] + ["Hello", " world", "12345", " 3.14", "\tint x;", "don't", " été", "日本語", "🙂", "  ", "<|im_end|>"]
    out = ["".join(r.choice(parts) for _ in range(r.randint(1, 12))) for _ in range(300)]
    for path in sorted(os.listdir(os.path.join(HERE, "..", "..", "src", "base"))):
        out += [l.rstrip("\n") for l in open(os.path.join(HERE, "..", "..", "src", "base", path)) if l.strip()]
    return [l for l in out if len(l.encode()) < 2000][:500]


def real():
    text = lines()
    with open(at("lines.txt"), "w") as f:
        f.write("\n".join(text) + "\n")
    driver("merge", MODEL, "none", at("base"), "hf", "f32")
    tokenizer = AutoTokenizer.from_pretrained(at("base"))
    ids = tokenizer.encode("The quick brown fox jumps over the lazy dog. In 1969, people walked on the moon; 12345 of them watched.")
    ours, base = adapters("smollm2", MODEL, at("base"), "qlora=on lora_rank=8 lora_alpha=16", ids, 2e-3)
    theirs = load(os.path.dirname(MODEL), gguf_file=os.path.basename(MODEL))
    mine = load(at("base"))
    check("smollm2: GGUF to folder, weights as transformers' own conversion", all(torch.equal(mine.state_dict()[k], v) for k, v in theirs.state_dict().items()))
    report("smollm2: merged f32 GGUF in llama.cpp, snug base + adapter", difference(llama_cpp_logits(at("smollm2", "merged.gguf"), ids), ours), 2e-3)
    report("smollm2: merged f32 GGUF in transformers, snug base + adapter", difference(torch_logits(load(at("smollm2"), gguf_file="merged.gguf"), ids), ours), 2e-3)
    noise = relative(llama_cpp_logits(MODEL, ids), base)  # of the original file: llama.cpp rounds activations, snug does not
    print(f"      the original GGUF in llama.cpp, in snug: {noise:.3g} RMS, relative")
    for form, bound in [("f16", 0.01), ("bf16", 0.05), ("q8_0", 1.5 * noise), ("source", 1.5 * noise), ("q4_0", 1.5 * noise)]:
        path = at(f"{form}.gguf")
        said = driver("merge", MODEL, at("smollm2", "adapter"), path, "gguf", form)[1].strip().splitlines()[-1]
        same = snug_logits(path, "none", ids)
        report(f"smollm2: merged {form} GGUF in llama.cpp, in snug (RMS, relative)", relative(llama_cpp_logits(path, ids), same), bound)
        if form in ("bf16", "source"):
            report(f"smollm2: merged {form} GGUF in transformers, in snug", difference(torch_logits(load(WORK, gguf_file=f"{form}.gguf"), ids), same), 2e-3)
        print(f"      {said}; against f32: {relative(same, ours):.3g} RMS, largest {difference(same, ours):.3g}")
    driver("merge", MODEL, "none", at("same.gguf"), "gguf", "source")
    report("smollm2: unchanged GGUF in llama.cpp, the original there", difference(llama_cpp_logits(at("same.gguf"), ids), llama_cpp_logits(MODEL, ids)), 0)
    driver("merge", at("base"), "none", at("back.gguf"), "gguf", "f32")
    report("smollm2: GGUF to folder to GGUF in llama.cpp, snug", difference(llama_cpp_logits(at("back.gguf"), ids), base), 2e-3)

    snug = dict(zip(text, ([int(x) for x in l.split()] for l in driver("encode", MODEL, at("lines.txt"))[0].split("\n"))))
    raw = Tokenizer.from_file(at("base", "tokenizer.json"))
    first, back = (Llama(p, vocab_only=True, verbose=False) for p in (MODEL, at("back.gguf")))
    tokens("smollm2", text, ("snug", snug.__getitem__), ("tokenizers", lambda l: raw.encode(l).ids), ("transformers", tokenizer.encode),
           ("llama.cpp", lambda l: first.tokenize(l.encode(), add_bos=False, special=True)),
           ("llama.cpp after GGUF-folder-GGUF", lambda l: back.tokenize(l.encode(), add_bos=False, special=True)))
    check("smollm2: decode(encode) in transformers", all(tokenizer.decode(tokenizer.encode(l)) == l for l in text))
    chat = [{"role": "user", "content": "Hi"}]
    check("smollm2: chat template after export", tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True).endswith("<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"))


def tiny():
    torch.manual_seed(1)
    ids = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3, 5, 8, 9, 7]
    llama = LlamaConfig(vocab_size=40, hidden_size=128, intermediate_size=172, num_hidden_layers=2, num_attention_heads=32, num_key_value_heads=4,
                        head_dim=4, max_position_embeddings=64, tie_word_embeddings=False, initializer_range=0.3)
    gpt2 = GPT2Config(vocab_size=40, n_embd=32, n_layer=2, n_head=4, n_positions=64, initializer_range=0.3)
    for name, model in [("llama-32-4", LlamaForCausalLM(llama)), ("gpt2", GPT2LMHeadModel(gpt2))]:
        model.save_pretrained(at(name, "base"))
        ours, _ = adapters(name, at(name, "base"), at(name, "base"), "lora=on lora_rank=4 use_rslora=on", ids, 1e-4)
        more = {"n_positions": 64, "vocab_size": 40} if name == "gpt2" else {}  # transformers does not read these keys of gpt2
        theirs = torch_logits(load(at(name), gguf_file="merged.gguf", **more), ids)
        report(f"{name}: merged GGUF in transformers, snug base + adapter", difference(theirs, ours), 1e-4)
        report(f"{name}: merged GGUF in llama.cpp, snug base + adapter", difference(llama_cpp_logits(at(name, "merged.gguf"), ids), ours), 1e-2 if name == "gpt2" else 1e-4)  # ggml looks GELU up in an f16 table


def tokenizers():
    """Every kind of tokenizer: tokenizer.json to GGUF (read by llama.cpp) and back to tokenizer.json (read by transformers)."""
    golden = os.path.join(HERE, "..", "golden", "tokenizer")
    for name in ["smollm", "llama3", "qwen2", "gpt2", "llama2"]:
        raw = Tokenizer.from_file(os.path.join(golden, name + ".json"))
        size = max(raw.get_vocab(with_added_tokens=True).values()) + 1
        config = LlamaConfig(vocab_size=size, hidden_size=32, intermediate_size=32, num_hidden_layers=1, num_attention_heads=2, num_key_value_heads=1,
                             max_position_embeddings=64, bos_token_id=None, eos_token_id=0)
        LlamaForCausalLM(config).save_pretrained(at("t-" + name))
        shutil.copy(os.path.join(golden, name + ".json"), at("t-" + name, "tokenizer.json"))
        driver("merge", at("t-" + name), "none", at(f"t-{name}.gguf"), "gguf", "f32")
        driver("merge", at(f"t-{name}.gguf"), "none", at(f"t-{name}-back"), "hf", "f32")
        text = lines()
        # llama.cpp has no normalizer, and its (?i:'s) knows no long s.
        text = [l for l in text if (name != "qwen2" or unicodedata.normalize("NFC", l) == l) and "'\u017f" not in l]
        again, cpp = AutoTokenizer.from_pretrained(at(f"t-{name}-back")), Llama(at(f"t-{name}.gguf"), vocab_only=True, verbose=False)
        tokens(name, text, ("tokenizers", lambda l: raw.encode(l).ids), ("transformers after tokenizer.json-GGUF-tokenizer.json", again.encode),
               ("llama.cpp", lambda l: cpp.tokenize(l.encode(), add_bos=True, special=True)))


if __name__ == "__main__":
    shutil.rmtree(WORK, ignore_errors=True)
    os.makedirs(WORK)
    tiny()
    tokenizers()
    real()
    print(f"{len(failed)} failed" if failed else "all passed")
    sys.exit(bool(failed))
