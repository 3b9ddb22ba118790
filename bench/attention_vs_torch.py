#!/usr/bin/env python3
"""attention_bench beside torch's scaled_dot_product_attention on the CPU, in one run, shape by shape.

    bench/attention_vs_torch.py build/release/attention_bench [threads]

torch gets causal attention of [1 or batch, heads, T, D] in f32 with enable_gqa; its flash kernel for the CPU. The best of
many calls counts on both sides: by processor time with one thread, by wall time with more.
"""
import subprocess
import sys
import time

import torch
import torch.nn.functional as F

bench, threads = sys.argv[1], int(sys.argv[2]) if len(sys.argv) > 2 else 1
torch.set_num_threads(threads)
clock = time.thread_time if threads == 1 else time.perf_counter
H, G, D = 9, 3, 64


def best(call, seconds=0.7):
    call()  # torch chooses and warms up its kernels
    least, end = float("inf"), time.perf_counter() + seconds
    while time.perf_counter() < end or least == float("inf"):
        start = clock()
        call()
        least = min(least, clock() - start)
    return least


for T, batch in ((256, 4), (1024, 1), (4096, 1)):
    q, do = (torch.randn(batch, H, T, D) for _ in range(2))
    k, v = (torch.randn(batch, G, T, D) for _ in range(2))
    flops = batch * H * D * T * (T + 1) / 2
    with torch.no_grad():
        forward = best(lambda: F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True))
    q, k, v = (x.requires_grad_(True) for x in (q, k, v))
    both = best(lambda: torch.autograd.grad(F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True), (q, k, v), do))
    backward = both - forward
    print(f"torch T={T:<5} x {batch}             forward {1e3 * forward:8.3f} ms {4e-9 * flops / forward:7.1f} GFLOP/s   "
          f"backward {1e3 * backward:8.3f} ms {10e-9 * flops / backward:7.1f} GFLOP/s", flush=True)
print(subprocess.run([bench, str(threads)], capture_output=True, text=True, check=True).stdout, end="")
