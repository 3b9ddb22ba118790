#!/usr/bin/env python3
"""A tiny chat model for the end-to-end test of the command line, and what the reference says about it.

Writes tests/golden/cli/: tiny/ (a Hugging Face folder), tiny.gguf (the same weights, linear ones and the embedding Q8_0), rows.jsonl and text.txt
(data), rows.ids (their token ids), expected.json: greedy continuation and perplexity of transformers in float32.

Made with torch 2.15, transformers 5.24, tokenizers 0.23.3, gguf 0.19. Run from the repository's root.
"""
import json
import os
import shutil

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import AutoModelForCausalLM, AutoTokenizer, LlamaConfig, LlamaForCausalLM

OUT = "tests/golden/cli"
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
TEMPLATE = ("{% for message in messages %}{% if loop.first and message['role'] != 'system' %}<|im_start|>system\nBe brief.<|im_end|>\n{% endif %}"
            "<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
            "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}")
TEXT = """A plan says how much memory a job needs before it starts. The plan is the run: what was planned is mapped, and
nothing else is taken. A value lives from the instruction that makes it to the last one that reads it; two values that
never live at once may share their bytes. Grüße, naïve café, 日本語 and emoji 🎉 are text like any other.

    for (int i = 0; i < 10; i++) sum += x[i];

Numbers: 12345, 3.14159, 2026-01-31. A budget is a promise; the bill names every class of value, and the gap.
"""
CHAT = ("<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nWhat is a plan?<|im_end|>\n<|im_start|>assistant\nWhat a job needs.<|im_end|>\n"
        "<|im_start|>user\nAnd a budget?<|im_end|>\n<|im_start|>assistant\nA promise.<|im_end|>\n")
ROWS = [
    {"text": "The plan is the run."},
    {"messages": [{"role": "user", "content": "What is a plan?"}, {"role": "assistant", "content": "What a job needs."}]},
    {"messages": [{"role": "system", "content": "Answer in German."}, {"role": "user", "content": "Grüße 🎉"}]},
    {"text": "  spaces,\ttabs\nand <|im_end|> inside"},
    {"text": "日本語"},
]


def make_tokenizer(folder):
    t = Tokenizer(models.BPE())
    t.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    t.decoder = decoders.ByteLevel()
    t.train_from_iterator([TEXT], trainers.BpeTrainer(vocab_size=320, special_tokens=SPECIAL, initial_alphabet=pre_tokenizers.ByteLevel.alphabet()))
    t.save(f"{folder}/tokenizer.json")
    with open(f"{folder}/tokenizer_config.json", "w") as f:
        json.dump({"tokenizer_class": "PreTrainedTokenizerFast", "eos_token": "<|im_end|>", "pad_token": "<|endoftext|>", "chat_template": TEMPLATE}, f, indent=1)
    return t


def make_model(vocab, texts):
    torch.manual_seed(5)
    config = LlamaConfig(vocab_size=vocab, hidden_size=32, intermediate_size=64, num_hidden_layers=2, num_attention_heads=2, num_key_value_heads=1,
                         head_dim=16, max_position_embeddings=512, rms_norm_eps=1e-5, rope_theta=10000.0, tie_word_embeddings=True, bos_token_id=1,
                         eos_token_id=2, pad_token_id=0)
    model = LlamaForCausalLM(config).float()
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(150):  # learns its few texts by heart, so that it has something to say
        optimizer.zero_grad()
        for ids in texts:
            batch = torch.tensor([ids])
            model(batch, labels=batch).loss.backward()
        optimizer.step()
    with torch.no_grad():
        for p in model.parameters():
            if p.ndim == 2:  # the values of Q8_0, so that both files hold the same model
                q = gguf.quants.quantize(p.numpy(), gguf.GGMLQuantizationType.Q8_0)
                p.copy_(torch.from_numpy(gguf.quants.dequantize(q, gguf.GGMLQuantizationType.Q8_0)))
    return model


def permute(w, heads):
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def write_gguf(model, path, tokenizer):
    c = model.config
    w = gguf.GGUFWriter(path, "llama")
    w.add_name("tiny")
    w.add_block_count(c.num_hidden_layers)
    w.add_context_length(c.max_position_embeddings)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_rope_dimension_count(c.head_dim)
    w.add_rope_freq_base(10000.0)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(c.vocab_size)
    spec = json.loads(tokenizer.to_str())
    tokens = [t for t, _ in sorted(spec["model"]["vocab"].items(), key=lambda x: x[1])]
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list(tokens)
    w.add_token_types([3 if t in SPECIAL else 1 for t in tokens])
    w.add_token_merges([" ".join(m) for m in spec["model"]["merges"]])
    w.add_eos_token_id(2)
    w.add_pad_token_id(0)
    w.add_add_bos_token(False)
    w.add_chat_template(TEMPLATE)
    names = {"self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v", "self_attn.o_proj": "attn_output",
             "mlp.gate_proj": "ffn_gate", "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "input_layernorm": "attn_norm",
             "post_attention_layernorm": "ffn_norm"}
    for name, p in model.named_parameters():
        value = p.detach().numpy()
        if name == "model.embed_tokens.weight":
            target = "token_embd.weight"
        elif name == "model.norm.weight":
            target = "output_norm.weight"
        else:
            _, _, layer, *rest, _ = name.split(".")
            target = f"blk.{layer}.{names['.'.join(rest)]}.weight"
            heads = {"q_proj": c.num_attention_heads, "k_proj": c.num_key_value_heads}.get(rest[-1])
            if heads:
                value = permute(value, heads)
        if value.ndim == 2:
            w.add_tensor(target, gguf.quants.quantize(np.ascontiguousarray(value), gguf.GGMLQuantizationType.Q8_0), raw_dtype=gguf.GGMLQuantizationType.Q8_0)
        else:
            w.add_tensor(target, np.ascontiguousarray(value))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def perplexity(model, ids, ctx):
    """llama.cpp's protocol: whole windows, of each the second half's predictions."""
    total, count = 0.0, 0
    for at in range(0, len(ids) - ctx + 1, ctx):
        window = torch.tensor(ids[at:at + ctx])
        with torch.no_grad():
            logp = model(window[None]).logits[0].double().log_softmax(-1)
        for t in range(ctx // 2, ctx - 1):
            total -= logp[t, window[t + 1]].item()
            count += 1
    return float(np.exp(total / count)), count


def main():
    folder = f"{OUT}/tiny"
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    tokenizer = make_tokenizer(folder)
    model = make_model(tokenizer.get_vocab_size(), [tokenizer.encode(TEXT).ids, tokenizer.encode(CHAT).ids])
    model.generation_config.eos_token_id = [2]
    model.save_pretrained(folder)
    write_gguf(model, f"{OUT}/tiny.gguf", tokenizer)
    with open(f"{OUT}/text.txt", "w") as f:
        f.write(TEXT)
    with open(f"{OUT}/rows.jsonl", "w") as f:
        f.writelines(json.dumps(r, ensure_ascii=False) + "\n" for r in ROWS)

    fast, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    rows = []
    for r in ROWS:
        rows.append(fast(r["text"])["input_ids"] if "text" in r else fast.encode(fast.apply_chat_template(r["messages"], tokenize=False), add_special_tokens=False))
    prompt = "nothing else"
    ids = fast(prompt)["input_ids"]
    with torch.no_grad():
        whole = model.generate(torch.tensor([ids]), max_new_tokens=12, do_sample=False, pad_token_id=0)[0].tolist()
        top = model(torch.tensor([whole])).logits[0].topk(2).values
    margin = (top[len(ids) - 1:-1, 0] - top[len(ids) - 1:-1, 1]).min().item()
    assert margin > 0.05, f"greedy choice is too close: {margin}"
    text_ids = fast(TEXT)["input_ids"]
    value, count = perplexity(model, text_ids, 64)
    with open(f"{OUT}/rows.ids", "w") as f:  # what snug tokenize --json prints
        f.writelines(json.dumps({"input_ids": r}) + "\n" for r in rows)
    with open(f"{OUT}/expected.json", "w") as f:
        json.dump({"prompt": prompt, "continuation": fast.decode(whole[len(ids):], skip_special_tokens=True), "continuation_ids": whole[len(ids):],
                   "perplexity": value, "perplexity_tokens": count, "text_tokens": len(text_ids)}, f, indent=1)
        f.write("\n")


if __name__ == "__main__":
    main()
