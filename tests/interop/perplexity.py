"""Perplexity of one text in snug, transformers and llama.cpp, over the same windows.

    python tests/interop/perplexity.py SNUG MODEL.gguf [--windows N] [--ctx N]

SNUG is build/release/snug. The text is that of fixed_text.py, cut at N windows of ctx tokens. Compared:
  f32   `snug eval` with transformers in f32 on the same file: llama.cpp's protocol (whole windows, second halves count) and
        windows that slide by ctx / 2 (transformers' perplexity guide); within 0.1%
  q8    `snug eval --activations q8 --keep-quantised` with llama.cpp's logits (its own quantised kernels, f16 KV cache);
        llama.cpp's protocol; within 0.5%. Rounding activations to 8 bits is noise: llama.cpp with an f16 and with an f32 KV
        cache differs from itself by as much (printed), so that few windows say little
Exit status 1 when a ratio is above its bound. Reference versions: torch 2.15, transformers 5.24, llama-cpp-python 0.3.36.
"""
import argparse
import json
import math
import os
import subprocess
import sys
import tempfile

import numpy as np
import torch
from llama_cpp import Llama
from transformers import AutoModelForCausalLM

import fixed_text

p = argparse.ArgumentParser()
p.add_argument("snug"), p.add_argument("model"), p.add_argument("--windows", type=int, default=16), p.add_argument("--ctx", type=int, default=512)
a = p.parse_args()
failed = False


def windows(ids, stride):
    """(first token, last token + 1, first position whose prediction counts) of each window."""
    if not stride:
        return [(at, at + a.ctx, a.ctx // 2) for at in range(0, len(ids) - a.ctx + 1, a.ctx)]
    out, seen, at = [], 1, 0
    while seen < len(ids):
        out.append((at, min(at + a.ctx, len(ids)), seen - at - 1))
        seen, at = out[-1][1], at + stride
    return out


def perplexity(logits_of, ids, stride):
    total, count = 0.0, 0
    for start, end, first in windows(ids, stride):
        window = ids[start:end]
        logp = torch.from_numpy(logits_of(window)).double().log_softmax(-1)[first:-1]
        wanted = torch.tensor(window[first + 1:])
        total -= logp.gather(1, wanted[:, None]).sum().item()
        count += len(wanted)
    return math.exp(total / count), count


def snug(path, stride, *more):
    command = [a.snug, "eval", a.model, "--data", path, "--ctx-size", str(a.ctx), "--stride", str(stride), "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return json.loads(done.stdout)


def report(name, ours, theirs, count, bound):
    global failed
    ratio = ours["perplexity"] / theirs - 1
    bad = abs(ratio) > bound or ours["tokens"] != count
    failed |= bad
    print(f"{'FAIL' if bad else 'ok  '}  {name:48} snug {ours['perplexity']:.5f} ({ours['tokens']} tokens)  reference {theirs:.5f} ({count} tokens)  "
          f"{100 * ratio:+.4f}% (bound {100 * bound:g}%)", flush=True)


def main():
    cpp, cpp_f32 = (Llama(a.model, n_ctx=a.ctx, n_batch=a.ctx, logits_all=True, verbose=False, n_threads=os.cpu_count(), **more)
                    for more in ({}, {"type_k": 0, "type_v": 0}))

    def tokens(text):
        return cpp.tokenize(text.encode(), add_bos=False, special=True)

    lines, ids = fixed_text.text().splitlines(keepends=True), []
    text = ""
    for line in lines:  # whole lines, so that the last window may be a part for the sliding ones
        text += line
        if len(text) % 16 == 0 or len(text) > 3 * a.windows * a.ctx:
            ids = tokens(text)
            if len(ids) >= a.windows * a.ctx:
                break
    ids = tokens(text)
    print(f"{len(text.encode())} bytes, {len(ids)} tokens, {len(windows(ids, 0))} windows of {a.ctx}")

    def llama_cpp(window, m=cpp):
        m.reset()
        m.eval(window)
        return np.array(m.scores[:len(window)], dtype=np.float32)

    model = AutoModelForCausalLM.from_pretrained(os.path.dirname(a.model), gguf_file=os.path.basename(a.model), dtype=torch.float32).eval()

    def transformers(window):
        with torch.no_grad():
            return model(torch.tensor([window])).logits[0].numpy()

    with tempfile.TemporaryDirectory() as work:
        path = os.path.join(work, "text.txt")
        with open(path, "w", encoding="utf-8") as f:
            f.write(text)
        for stride, label in ((0, "llama.cpp's protocol"), (a.ctx // 2, f"sliding by {a.ctx // 2}")):
            theirs, count = perplexity(transformers, ids, stride)
            report(f"f32, transformers, {label}", snug(path, stride), theirs, count, 1e-3)
            if not stride:
                exact = theirs
        theirs, count = perplexity(llama_cpp, ids, 0)
        report("q8, llama.cpp, llama.cpp's protocol", snug(path, 0, "--activations", "q8", "--keep-quantised"), theirs, count, 5e-3)
        other = perplexity(lambda window: llama_cpp(window, cpp_f32), ids, 0)[0]
        print(f"      llama.cpp with an f16 and an f32 KV cache, against f32 in transformers: {100 * (theirs / exact - 1):+.4f}%, {100 * (other / exact - 1):+.4f}%")
    return failed


if __name__ == "__main__":
    sys.exit(main())
