"""Golden values of the memory-efficient optimizers: 8-bit AdamW, Adafactor, Lion and Muon.

Writes optimizers/golden.txt: one line a tensor, "name: v v v ...", each number with nine digits, which is enough to give the
same float32 back. Inputs are simple fractions, which the C tests make again by the same formulas.

Made with torch 2.15, transformers' Adafactor and bitsandbytes 0.50.2 (the maps, block-wise quantisation, AdamW8bit and Lion), all
on CPU. Muon is computed in float64 by torch.optim.Muon's formula and held to torch.optim.Muon, whose Newton-Schulz runs in bf16.
Usage: python tests/golden/make_optimizers.py
"""
import pathlib

import bitsandbytes as bnb
import torch
from bitsandbytes import functional as F
from transformers import Adafactor

ROWS, COLUMNS = 7, 19
ELEMENTS = 600


def fractions(count, a, b, modulus, divisor, dtype=torch.float32):
    """((a i + b) mod modulus - modulus // 2) / divisor for i = 0 .. count - 1."""
    return torch.tensor([((a * i + b) % modulus - modulus // 2) / divisor for i in range(count)], dtype=dtype)


def eight_bits(lines):
    lines["map.signed"] = F.create_dynamic_map(signed=True)
    lines["map.unsigned"] = F.create_dynamic_map(signed=False)
    x = fractions(ELEMENTS, 7919, 13, 10007, 5003) ** 5
    for name, map_, values in (("signed", lines["map.signed"], x), ("unsigned", lines["map.unsigned"], x.abs())):
        codes, state = F.quantize_blockwise(values, code=map_, blocksize=256)
        lines[f"quantise.{name}.codes"] = codes.float()
        lines[f"quantise.{name}.absmax"] = state.absmax
    p = torch.nn.Parameter(fractions(ELEMENTS, 5, 0, 17, 16))
    optimizer = bnb.optim.AdamW8bit([p], lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0, min_8bit_size=1)
    for step in range(1, 11):
        p.grad = fractions(ELEMENTS, 13, 7 * step, 29, 64) ** 3
        optimizer.step()
        if step in (1, 10):
            lines[f"adamw_8bit.w.{step}"] = p.detach().clone()
    lines["adamw_8bit.exp_avg.10"] = optimizer.state[p]["state1"].float()
    lines["adamw_8bit.exp_avg_sq.10"] = optimizer.state[p]["state2"].float()


def adafactor(lines):
    for name, shape in (("matrix", (ROWS, COLUMNS)), ("vector", (ROWS * COLUMNS,))):
        n = ROWS * COLUMNS
        p = torch.nn.Parameter(fractions(n, 5, 0, 17, 16).view(shape))
        optimizer = Adafactor([p], lr=1e-2, scale_parameter=False, relative_step=False, warmup_init=False, beta1=None, weight_decay=0.1)
        for step in range(1, 101):
            p.grad = fractions(n, 13, 7 * step, 29, 64).view(shape)
            optimizer.step()
            if step in (1, 10, 100):
                lines[f"adafactor.{name}.w.{step}"] = p.detach().clone()
        for key in ("exp_avg_sq_row", "exp_avg_sq_col", "exp_avg_sq"):
            if key in optimizer.state[p]:
                lines[f"adafactor.{name}.{key}.100"] = optimizer.state[p][key].clone()


def lion(lines):
    n = ROWS * COLUMNS
    p = torch.nn.Parameter(fractions(n, 5, 0, 17, 16))
    optimizer = bnb.optim.Lion([p], lr=1e-3, betas=(0.9, 0.99), weight_decay=0.1)
    for step in range(1, 101):
        p.grad = fractions(n, 13, 7 * step, 29, 64)
        optimizer.step()
        if step in (1, 10, 100):
            lines[f"lion.w.{step}"] = p.detach().clone()
    lines["lion.exp_avg.100"] = optimizer.state[p]["state1"].clone()


def orthogonal(u):
    x = (u.T if u.size(0) > u.size(1) else u).clone()
    x /= x.norm().clamp(min=1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.7750 * a + 2.0315 * a @ a) @ x
    return x.T if u.size(0) > u.size(1) else x


def muon(lines):
    for rows, columns in ((ROWS, COLUMNS), (COLUMNS, ROWS)):
        n = rows * columns
        w = fractions(n, 5, 0, 17, 16, torch.float64).view(rows, columns)
        m = torch.zeros_like(w)
        p = torch.nn.Parameter(w.float())
        optimizer = torch.optim.Muon([p], lr=1e-2, weight_decay=0.1, momentum=0.95, nesterov=True)
        for step in range(1, 6):
            g = (fractions(n, 13, 7 * step, 29, 64, torch.float64) ** 3).view(rows, columns)
            p.grad = g.float()
            optimizer.step()
            m += 0.05 * (g - m)
            u = g + 0.95 * (m - g)
            w = w * (1 - 1e-2 * 0.1) - 1e-2 * max(1, rows / columns) ** 0.5 * orthogonal(u)
            if step in (1, 5):
                lines[f"muon.{rows}x{columns}.w.{step}"] = w
        lines[f"muon.{rows}x{columns}.m.5"] = m
        error = (p.detach() - w).abs().max() / 1e-2
        assert error < 0.15, f"torch.optim.Muon differs by {error} of a step"


def main():
    lines = {}
    eight_bits(lines)
    adafactor(lines)
    lion(lines)
    muon(lines)
    folder = pathlib.Path(__file__).parent / "optimizers"
    folder.mkdir(exist_ok=True)
    with open(folder / "golden.txt", "w") as f:
        for name, values in lines.items():
            f.write(name + ": " + " ".join(f"{float(v):.9g}" for v in values.to(torch.float32).flatten()) + "\n")


if __name__ == "__main__":
    main()
