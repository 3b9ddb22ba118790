"""Golden values of the small ops: PyTorch's norms, gelu, SwiGLU and AdamW.

Writes smallops/golden.txt: one line a tensor, "name: v v v ...", each number with nine digits, which
is enough to give the same float32 back.
Inputs are simple fractions, which the C tests make again by the same formulas.

Made with torch 2.15 on CPU: functions in float64, rounded to float32 at the end; optimizers in float32.
Usage: python tests/golden/make_smallops.py
"""
import pathlib

import torch
import torch.nn.functional as F

ROWS, COLUMNS = 5, 33
PARAMETERS = 37


def fractions(count, a, b, modulus, divisor, dtype=torch.float64):
    """((a i + b) mod modulus - modulus // 2) / divisor for i = 0 .. count - 1."""
    return torch.tensor([((a * i + b) % modulus - modulus // 2) / divisor for i in range(count)], dtype=dtype)


def main():
    lines = {}
    n = ROWS * COLUMNS
    x = fractions(n, 7, 3, 101, 32).view(ROWS, COLUMNS)
    dy = fractions(n, 11, 5, 89, 64).view(ROWS, COLUMNS)
    w = fractions(COLUMNS, 5, 1, 31, 16)
    b = fractions(COLUMNS, 3, 2, 29, 32)

    def grads(name, function, **inputs):
        leaves = {k: v.clone().requires_grad_() for k, v in inputs.items()}
        y = function(**leaves)
        y.backward(dy)
        lines[name + ".y"] = y.detach()
        for k, v in leaves.items():
            lines[f"{name}.d{k}"] = v.grad

    grads("rms_norm", lambda x, w: F.rms_norm(x, (COLUMNS,), w, 1e-5), x=x, w=w)
    grads("layer_norm", lambda x, w, b: F.layer_norm(x, (COLUMNS,), w, b, 1e-5), x=x, w=w, b=b)
    grads("gelu_tanh", lambda x: F.gelu(x, approximate="tanh"), x=x)
    grads("gelu_erf", lambda x: F.gelu(x), x=x)
    up = fractions(n, 13, 4, 97, 48).view(ROWS, COLUMNS)
    grads("swiglu", lambda gate, up: F.silu(gate) * up, gate=x, up=up)

    for name, maker in {
        "adamw": lambda p: torch.optim.AdamW(p, lr=1e-2, betas=(0.9, 0.95), eps=1e-8, weight_decay=0.1, foreach=False),
        "sgd": lambda p: torch.optim.SGD(p, lr=1e-2, momentum=0.9, weight_decay=0.1, foreach=False),
    }.items():
        p = torch.nn.Parameter(fractions(PARAMETERS, 5, 0, 17, 16, torch.float32))
        optimizer = maker([p])
        for step in range(1, 101):
            p.grad = fractions(PARAMETERS, 13, 7 * step, 29, 64, torch.float32)
            optimizer.step()
            if step in (1, 10, 100):
                lines[f"{name}.w.{step}"] = p.detach().clone()
        for key in ("exp_avg", "exp_avg_sq", "momentum_buffer"):
            if key in optimizer.state[p]:
                lines[f"{name}.{key}.100"] = optimizer.state[p][key].clone()

    folder = pathlib.Path(__file__).parent / "smallops"
    folder.mkdir(exist_ok=True)
    with open(folder / "golden.txt", "w") as f:
        for name, values in lines.items():
            f.write(name + ": " + " ".join(f"{float(v):.9g}" for v in values.to(torch.float32).flatten()) + "\n")


if __name__ == "__main__":
    main()
