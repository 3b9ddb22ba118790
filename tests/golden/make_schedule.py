"""Golden learning rates from transformers' get_scheduler.

Made with transformers 5.24.0, torch 2.15. Run from the repository's root: python tests/golden/make_schedule.py
Writes tests/golden/schedule/values.json: per case the parameters and the learning rate of every update 0 .. total, as
the optimizer sees it (one scheduler.step() after each optimizer.step()).
"""
import json

import torch
from transformers import get_scheduler

CASES = [  # name in transformers, total, warm-up, special arguments
    ("constant", 6, 0, {}),
    ("constant_with_warmup", 8, 3, {}),
    ("linear", 20, 0, {}),
    ("linear", 20, 4, {}),
    ("linear", 5, 5, {}),
    ("linear", 1, 0, {}),
    ("cosine", 20, 0, {}),
    ("cosine", 20, 6, {}),
    ("cosine", 7, 1, {}),
    ("cosine_with_min_lr", 20, 3, {"min_lr_rate": 0.1}),
    ("warmup_stable_decay", 20, 4, {"num_decay_steps": 6}),
    ("warmup_stable_decay", 20, 4, {"num_decay_steps": 6, "min_lr_ratio": 0.1, "decay_type": "linear"}),
    ("warmup_stable_decay", 20, 0, {"num_decay_steps": 20, "decay_type": "1-sqrt"}),
    ("warmup_stable_decay", 12, 5, {"num_decay_steps": 7, "min_lr_ratio": 0.25}),
]


def main():
    out = []
    for name, total, warmup, special in CASES:
        optimizer = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=3e-4)
        scheduler = get_scheduler(name, optimizer, num_warmup_steps=warmup, num_training_steps=total, scheduler_specific_kwargs=dict(special))
        rates = []
        for _ in range(total + 1):
            rates.append(optimizer.param_groups[0]["lr"])
            optimizer.step()
            scheduler.step()
        out.append({"name": name, "total": total, "warmup": warmup, "decay": special.get("num_decay_steps", 0),
                    "min_ratio": special.get("min_lr_ratio", special.get("min_lr_rate", 0)), "decay_type": special.get("decay_type", "cosine"),
                    "rates": rates})
    with open("tests/golden/schedule/values.json", "w") as f:
        json.dump(out, f, separators=(",", ":"))
        f.write("\n")


main()
