#!/usr/bin/env python3
"""Golden values of src/tensor/convert_test.c, from the `gguf` package (0.17 or later) and numpy.

Usage: python tests/golden/make_convert.py    (writes tests/golden/convert/*.bin)

<form>.bin    u32 n_blocks, the blocks (random codes; scales that include 0, -0, subnormals, the largest f16 and
              negative ones), then their values in f32 as gguf.dequantize gives them.
<form>.enc    u32 n_blocks, that many blocks of f32 (random, constant, zero, tiny, huge, ties), then the bytes that
              gguf.quantize makes of them.
"""
import os
import numpy as np
import gguf
from gguf import GGMLQuantizationType as T

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "convert")
# form: byte offsets of its f16 fields
HALVES = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0],
          "Q2_K": [80, 82], "Q3_K": [108], "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
EXTREMES = np.array([0x0000, 0x8000, 0x0001, 0x83ff, 0x7bff, 0xfbff, 0x3c00, 0x0400], dtype=np.uint16)


def decode_case(rng, name):
    block, size = gguf.GGML_QUANT_SIZES[T[name]]
    n = 24 if block == 32 else 8
    data = rng.integers(0, 256, (n, size), dtype=np.uint8)
    for k, at in enumerate(HALVES[name]):
        half = rng.normal(0, 0.05, n).astype(np.float16).view(np.uint16)
        half[: len(EXTREMES) // 2] = EXTREMES[k::2]
        data[:, at : at + 2] = half.view(np.uint8).reshape(n, 2)
    values = gguf.dequantize(data.reshape(1, -1), T[name]).astype(np.float32)
    assert np.isfinite(values).all()
    with open(os.path.join(HERE, name.lower() + ".bin"), "wb") as f:
        f.write(np.uint32(n).tobytes() + data.tobytes() + values.tobytes())


def encode_case(rng, name):
    n = 24
    x = rng.normal(0, 1, (n, 32)).astype(np.float32)
    x[0] = 0
    x[1] = 3
    x[2] = -0.25
    x[3] *= 1e-6
    x[4] *= 1e4
    x[5] = np.arange(32) - 15.5
    x[6] = np.arange(32) / 2
    x[7, :2] = [127, -127]
    x[7, 2:] = np.arange(30) - 14.5
    x[8] = np.abs(x[8])
    x[9] = -np.abs(x[9])
    data = gguf.quantize(x, T[name])
    with open(os.path.join(HERE, name.lower() + ".enc"), "wb") as f:
        f.write(np.uint32(n).tobytes() + x.tobytes() + data.tobytes())


if __name__ == "__main__":
    os.makedirs(HERE, exist_ok=True)
    rng = np.random.default_rng(20260101)
    for form in HALVES:
        decode_case(rng, form)
    for form in ["Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0"]:
        encode_case(rng, form)
