"""Makes tests/golden/model_files: small files from the Python packages that define the formats.

    python tests/golden/make_model_files.py

Made with torch 2.15, transformers 5.24, safetensors 0.8, gguf 0.19, numpy 2.x. Every file is deterministic.

  types.gguf          every metadata type, arrays, tensors of several types, alignment 64
  types.safetensors   tensors of several types, a scalar, an empty tensor, __metadata__
  llama/              a Hugging Face folder in two shards: 4 heads, 2 KV heads, head_dim 8, hidden 16 (not 4 x 8), tied
  llama.gguf          the same model as llama.cpp's converter lays it out: rows of q and k permuted
  gpt2/               a Hugging Face folder (Conv1D weights [in,out])
  gpt2.gguf           the same model as llama.cpp's converter lays it out: [out,in]

The script checks that transformers, reading each GGUF, gets the folder's weights back.
"""

import json
import os
import shutil

import gguf
import numpy as np
import torch
from safetensors.torch import save_file
from transformers import AutoModelForCausalLM, GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

OUT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "model_files")


def types_gguf():
    w = gguf.GGUFWriter(os.path.join(OUT, "types.gguf"), "llama")
    w.add_custom_alignment(64)
    w.add_uint8("t.u8", 200)
    w.add_int8("t.i8", -100)
    w.add_uint16("t.u16", 60000)
    w.add_int16("t.i16", -30000)
    w.add_uint32("t.u32", 4000000000)
    w.add_int32("t.i32", -2000000000)
    w.add_uint64("t.u64", 2**63 + 1)
    w.add_int64("t.i64", -(2**63))
    w.add_float32("t.f32", 1e-5)
    w.add_float64("t.f64", 0.1)
    w.add_bool("t.bool", True)
    w.add_string("t.string", "h\u00e9llo")
    w.add_array("t.strings", ["a", "", "\u20ac uro", "last"])
    w.add_array("t.i32s", [1, -2, 3])
    w.add_array("t.f32s", [0.5, -1.25])
    w.add_tensor("vector", np.arange(5, dtype=np.float32))
    w.add_tensor("matrix", np.arange(6, dtype=np.float16).reshape(2, 3))
    w.add_tensor("cube", np.arange(24, dtype=np.int32).reshape(2, 3, 4))
    quantised = gguf.quants.quantize(np.arange(64, dtype=np.float32).reshape(2, 32), gguf.GGMLQuantizationType.Q8_0)
    w.add_tensor("quantised", quantised, raw_dtype=gguf.GGMLQuantizationType.Q8_0)
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def types_safetensors():
    tensors = {
        "f32": torch.arange(6, dtype=torch.float32).reshape(2, 3),
        "f16": torch.arange(3, dtype=torch.float16),
        "bf16": torch.arange(4, dtype=torch.bfloat16).reshape(2, 2),
        "i64": torch.tensor([-1, 2**40]),
        "i32": torch.tensor([7], dtype=torch.int32),
        "u8": torch.tensor([1, 2, 255], dtype=torch.uint8),
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "n\u00e4me \"quoted\"": torch.ones(1),
    }
    save_file(tensors, os.path.join(OUT, "types.safetensors"), metadata={"format": "pt", "note": "line\nbreak"})


def fill(model):
    g = torch.Generator().manual_seed(1)
    with torch.no_grad():
        for p in model.parameters():
            p.copy_(torch.randn(p.shape, generator=g))


def permute(w, heads):
    """Within a head, row 2j+h of the GGUF is row h*head_dim/2 + j of the folder."""
    return w.reshape(heads, 2, w.shape[0] // heads // 2, *w.shape[1:]).swapaxes(1, 2).reshape(w.shape)


def tokenizer(w, n):
    w.add_tokenizer_model("gpt2")
    w.add_tokenizer_pre("gpt-2")
    w.add_token_list([f"t{i}" for i in range(n - 2)] + ["t", "1"])
    w.add_token_types([1] * n)
    w.add_token_merges(["t 1"])
    w.add_bos_token_id(1)
    w.add_eos_token_id(2)


def finish(w, tensors):
    for name, value in tensors:
        w.add_tensor(name, np.ascontiguousarray(value.detach().numpy()))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def check(path, model, **overrides):
    again = AutoModelForCausalLM.from_pretrained(os.path.dirname(path), gguf_file=os.path.basename(path), dtype=torch.float32, **overrides)
    for name, value in model.state_dict().items():
        assert torch.equal(again.state_dict()[name], value), name


def llama():
    config = LlamaConfig(vocab_size=24, hidden_size=16, intermediate_size=12, num_hidden_layers=2, num_attention_heads=4,
                         num_key_value_heads=2, head_dim=8, max_position_embeddings=64, rms_norm_eps=1e-5,
                         rope_theta=50000.0, tie_word_embeddings=True, bos_token_id=1, eos_token_id=2)
    model = LlamaForCausalLM(config)
    fill(model)
    folder = os.path.join(OUT, "llama")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder, max_shard_size="8KB")
    w = gguf.GGUFWriter(os.path.join(OUT, "llama.gguf"), "llama")
    w.add_vocab_size(24)
    w.add_context_length(64)
    w.add_embedding_length(16)
    w.add_block_count(2)
    w.add_feed_forward_length(12)
    w.add_head_count(4)
    w.add_head_count_kv(2)
    w.add_key_length(8)
    w.add_value_length(8)
    w.add_rope_dimension_count(8)
    w.add_rope_freq_base(50000.0)
    w.add_layer_norm_rms_eps(1e-5)
    tokenizer(w, 24)
    s = model.state_dict()
    tensors = [("token_embd.weight", s["model.embed_tokens.weight"])]
    for i in range(2):
        at = f"model.layers.{i}."
        tensors += [(f"blk.{i}.attn_q.weight", permute(s[at + "self_attn.q_proj.weight"], 4)),
                    (f"blk.{i}.attn_k.weight", permute(s[at + "self_attn.k_proj.weight"], 2)),
                    (f"blk.{i}.attn_v.weight", s[at + "self_attn.v_proj.weight"]),
                    (f"blk.{i}.attn_output.weight", s[at + "self_attn.o_proj.weight"]),
                    (f"blk.{i}.ffn_gate.weight", s[at + "mlp.gate_proj.weight"]),
                    (f"blk.{i}.ffn_up.weight", s[at + "mlp.up_proj.weight"]),
                    (f"blk.{i}.ffn_down.weight", s[at + "mlp.down_proj.weight"]),
                    (f"blk.{i}.attn_norm.weight", s[at + "input_layernorm.weight"]),
                    (f"blk.{i}.ffn_norm.weight", s[at + "post_attention_layernorm.weight"])]
    tensors.append(("output_norm.weight", s["model.norm.weight"]))
    finish(w, tensors)
    check(os.path.join(OUT, "llama.gguf"), model)


def gpt2():
    config = GPT2Config(vocab_size=24, n_positions=32, n_embd=16, n_layer=1, n_head=2, bos_token_id=1, eos_token_id=2)
    model = GPT2LMHeadModel(config)
    fill(model)
    folder = os.path.join(OUT, "gpt2")
    shutil.rmtree(folder, ignore_errors=True)
    model.save_pretrained(folder)
    w = gguf.GGUFWriter(os.path.join(OUT, "gpt2.gguf"), "gpt2")
    w.add_block_count(1)
    w.add_context_length(32)
    w.add_embedding_length(16)
    w.add_feed_forward_length(64)
    w.add_head_count(2)
    w.add_layer_norm_eps(1e-5)
    tokenizer(w, 24)
    s = model.state_dict()
    at, to = "transformer.h.0.", "blk.0."
    tensors = [("token_embd.weight", s["transformer.wte.weight"]), ("position_embd.weight", s["transformer.wpe.weight"])]
    for hf, name in (("attn.c_attn", "attn_qkv"), ("attn.c_proj", "attn_output"), ("mlp.c_fc", "ffn_up"), ("mlp.c_proj", "ffn_down")):
        tensors += [(f"{to}{name}.weight", s[f"{at}{hf}.weight"].T), (f"{to}{name}.bias", s[f"{at}{hf}.bias"])]
    for hf, name in (("ln_1", "attn_norm"), ("ln_2", "ffn_norm")):
        tensors += [(f"{to}{name}.weight", s[f"{at}{hf}.weight"]), (f"{to}{name}.bias", s[f"{at}{hf}.bias"])]
    tensors += [("output_norm.weight", s["transformer.ln_f.weight"]), ("output_norm.bias", s["transformer.ln_f.bias"]),
                ("output.weight", s["transformer.wte.weight"])]
    finish(w, tensors)
    check(os.path.join(OUT, "gpt2.gguf"), model, n_positions=32)  # transformers reads the context length as n_ctx only


if __name__ == "__main__":
    os.makedirs(OUT, exist_ok=True)
    types_gguf()
    types_safetensors()
    llama()
    gpt2()
    print(json.dumps(sorted(os.listdir(OUT))))
