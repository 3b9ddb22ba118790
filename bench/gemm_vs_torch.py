"""sgemm and bf16 GEMM of snug and of PyTorch (oneDNN, MKL), shape by shape, in one run on one machine.

    python bench/gemm_vs_torch.py path/to/gemm_bench [threads] [rounds]

Rounds alternate between the two, and the best of all rounds counts, because the machine may be shared. Prints the ratio.
Needs torch. State the processor's flags (the first line) with every figure.
"""
import subprocess
import sys
import time

import torch

bench = sys.argv[1]
threads = int(sys.argv[2]) if len(sys.argv) > 2 else 2
rounds = int(sys.argv[3]) if len(sys.argv) > 3 else 3
torch.set_num_threads(threads)
forms = {"f32": torch.float32, "bf16": torch.bfloat16}
SECONDS = 0.15


def ours():
    lines = subprocess.run([bench, str(threads), "native", str(SECONDS)], capture_output=True, text=True, check=True).stdout.splitlines()
    out = {}
    for line in lines[1:]:
        f = line.split()
        out[(f[0], int(f[1]), int(f[2]), int(f[3]), int(f[4]), int(f[5]), f[6], f[7])] = float(f[8])
    return lines[0], out


def theirs(key):
    _, m, n, k, trans_a, trans_b, form, c_form = key
    a = torch.rand((k, m) if trans_a else (m, k)).to(forms[form])
    b = torch.rand((n, k) if trans_b else (k, n)).to(forms[form])
    a, b = (a.T if trans_a else a), (b.T if trans_b else b)
    c = torch.empty(m, n, dtype=forms[form])
    best, until = 1e9, time.perf_counter() + SECONDS
    while best == 1e9 or time.perf_counter() < until:
        t = time.perf_counter()
        torch.mm(a, b, out=c)
        best = min(best, time.perf_counter() - t)
    return 2e-9 * m * n * k / best


best_ours, best_theirs, title = {}, {}, ""
for _ in range(rounds):
    title, figures = ours()
    for key, value in figures.items():
        best_ours[key] = max(best_ours.get(key, 0), value)
        best_theirs[key] = max(best_theirs.get(key, 0), theirs(key))
print(title, "torch", torch.__version__)
print(f"{'shape':13} {'m':>6} {'n':>6} {'k':>6} ta tb form {'snug':>8} {'torch':>8} GFLOP/s  ratio")
for key in best_ours:
    name, m, n, k, ta, tb, form, _ = key
    print(f"{name:13} {m:6} {n:6} {k:6}  {ta}  {tb} {form:4} {best_ours[key]:8.1f} {best_theirs[key]:8.1f}          {best_ours[key] / best_theirs[key]:5.2f}")
