#!/usr/bin/env python3
"""Golden values for rope_table and rope, from transformers' LlamaRotaryEmbedding and apply_rotary_pos_emb.

Writes tests/golden/rope/<case>.f32: inverse frequencies [D/2], then the turned x [T, H * D], f32.
x follows the formula in `values`; src/ops/rope/rope_test.c holds the same formula, positions and cases.
Made with torch 2.x and transformers 5.x. Run from the repository root.
"""
import numpy as np
import torch
from transformers import LlamaConfig
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding, apply_rotary_pos_emb

POSITIONS = [0, 1, 2, 77, 4095, 8192, 131071]
HEADS = 2
LLAMA3 = {"rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}
#        name        D   theta     scaling
CASES = [
    ("default", 64, 10000.0, {"rope_type": "default"}),
    ("linear", 32, 10000.0, {"rope_type": "linear", "factor": 4.0}),
    ("llama3_64", 64, 500000.0, {**LLAMA3, "factor": 32.0}),
    ("llama3_128", 128, 500000.0, {**LLAMA3, "factor": 8.0}),
]


def values(n):
    return np.sin(1.7 * np.arange(n, dtype=np.float64)).astype(np.float32)


for name, D, theta, scaling in CASES:
    config = LlamaConfig(hidden_size=HEADS * D, num_attention_heads=HEADS, head_dim=D, max_position_embeddings=131072,
                         rope_parameters={**scaling, "rope_theta": theta})
    rope = LlamaRotaryEmbedding(config)
    x = torch.from_numpy(values(len(POSITIONS) * HEADS * D)).reshape(1, len(POSITIONS), HEADS, D).transpose(1, 2)
    cos, sin = rope(x, torch.tensor([POSITIONS]))
    y, _ = apply_rotary_pos_emb(x, x, cos, sin)
    y = y.transpose(1, 2).reshape(-1).float().numpy()
    np.concatenate([rope.inv_freq.float().numpy(), y]).tofile(f"tests/golden/rope/{name}.f32")
