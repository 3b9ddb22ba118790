"""Golden values of GaLore: projectors by a full SVD, and five steps of AdamW behind a given projector.

Writes optimizers/galore.txt: one line a tensor, "name: v v v ...", nine digits. Inputs are simple fractions, which the C tests make again by the same
formulas; gradients are sums of a few outer products, so that the leading subspace is well defined. A projector is GaLore's: of a wide matrix the left
singular vectors (G = U S V^T, low = U[:, :r]^T G), of a tall one the right ones (low = G V[:, :r]); here both are stored a vector a row. Only the
subspace of a basis is defined (signs, and rotations within it, are not), so what is written is the projection P^T P, and the steps are taken behind the basis that
the script wrote down. AdamW is torch.optim.AdamW's arithmetic on the low-rank gradient in f64, its step taken back by the projector, times the scale;
the weight decays as a whole.

Made with torch 2.15 on CPU. Usage: python tests/golden/make_galore.py
"""
import pathlib

import torch

ROWS, COLUMNS, RANK, SCALE = 7, 19, 3, 0.25
LR, BETA1, BETA2, EPS, DECAY = 1e-2, 0.9, 0.95, 1e-8, 0.1


def fractions(count, a, b, modulus, divisor):
    """((a i + b) mod modulus - modulus // 2) / divisor for i = 0 .. count - 1."""
    return torch.tensor([((a * i + b) % modulus - modulus // 2) / divisor for i in range(count)], dtype=torch.float64)


def gradient(step, rows, columns):
    g = torch.zeros(rows, columns, dtype=torch.float64)
    for k in range(5):
        left, right = fractions(rows, 13, 7 * step + 5 * k, 29, 16), fractions(columns, 11, 3 * step + 8 * k, 31, 16)
        g += (4.0, 3.0, 2.0, 2.0 ** -9, 2.0 ** -10)[k] * torch.outer(left, right)
    return g


def projector(g):
    u, _, vh = torch.linalg.svd(g, full_matrices=False)
    return vh[:RANK] if g.shape[0] > g.shape[1] else u[:, :RANK].T


def main():
    lines = {}
    for rows, columns in ((ROWS, COLUMNS), (COLUMNS, ROWS)):
        name = f"galore.{rows}x{columns}"
        tall = rows > columns
        for step in (1, 4):
            p = projector(gradient(step, rows, columns))
            lines[f"{name}.projection.{step}"] = p.T @ p
        p = projector(gradient(1, rows, columns)).float().double()
        lines[f"{name}.p"] = p
        w = fractions(rows * columns, 5, 0, 17, 16).view(rows, columns)
        m = v = torch.zeros(RANK, max(rows, columns), dtype=torch.float64)
        for step in range(1, 6):
            g = gradient(step, rows, columns).float().double()
            low = p @ (g.T if tall else g)
            m = m + (1 - BETA1) * (low - m)
            v = v * BETA2 + (1 - BETA2) * low * low
            moved = LR / (1 - BETA1**step) * m / (v.sqrt() / (1 - BETA2**step) ** 0.5 + EPS)
            back = p.T @ moved
            w = w * (1 - LR * DECAY) - SCALE * (back.T if tall else back)
            if step in (1, 5):
                lines[f"{name}.w.{step}"] = w
        lines[f"{name}.m.5"] = m
    path = pathlib.Path(__file__).parent / "optimizers" / "galore.txt"
    path.write_text("".join(f"{k}: " + " ".join(f"{x:.9g}" for x in t.flatten().tolist()) + "\n" for k, t in lines.items()))


main()
