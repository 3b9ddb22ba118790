#!/usr/bin/env python3
"""Golden values for attention and attention_grad, from torch's scaled_dot_product_attention in f64.

Writes tests/golden/attention/<case>.f32: o, dq, dk, dv after one another, each token-major [T, heads * D], f32.
Inputs follow the formula in `values`; src/ops/attention_grad/attention_grad_test.c holds the same formula and cases.
Made with torch 2.x on the CPU. Run from the repository root.
"""
import numpy as np
import torch
import torch.nn.functional as F

#        name        T   H  G   D  window  starts of the sequences
CASES = [
    ("plain", 11, 4, 4, 16, 0, [0]),
    ("gqa", 12, 6, 2, 16, 0, [0]),
    ("window", 13, 4, 1, 16, 4, [0]),
    ("packed", 14, 4, 2, 16, 0, [0, 1, 2, 7]),
    ("packed_window", 14, 2, 1, 80, 3, [0, 5, 13]),
    ("heads64", 9, 3, 1, 64, 0, [0]),
]


def values(n, seed, scale):
    i = np.arange(n, dtype=np.float64)
    return (scale * np.sin(1.7 * i + 0.37 * seed + 0.011 * i * seed)).astype(np.float32)


for name, T, H, G, D, window, starts in CASES:
    def tensor(heads, seed, scale):
        x = torch.from_numpy(values(T * heads * D, seed, scale)).double()
        return x.reshape(T, heads, D).transpose(0, 1).contiguous().requires_grad_(True)  # [heads, T, D]

    q, k, v, do = tensor(H, 1, 1.5), tensor(G, 2, 1.5), tensor(G, 3, 1.0), tensor(H, 4, 1.0)
    first = [max(s for s in starts if s <= t) for t in range(T)]
    mask = torch.tensor([[j <= t and j >= first[t] and (not window or j > t - window) for j in range(T)] for t in range(T)])
    o = F.scaled_dot_product_attention(q[None], k[None], v[None], attn_mask=mask, scale=D**-0.5, enable_gqa=True)[0]
    o.backward(do.detach())
    out = [x.detach().transpose(0, 1).reshape(-1).float().numpy() for x in (o, q.grad, k.grad, v.grad)]
    np.concatenate(out).tofile(f"tests/golden/attention/{name}.f32")
