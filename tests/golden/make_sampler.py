"""Golden distributions of the sampler: what transformers' logits processors leave of some logits.

Made with transformers 5.24.0, torch 2.15. Run from the repository's root: python tests/golden/make_sampler.py
Writes tests/golden/sampler/cases.json: each case holds logits, history, parameters and the probability of every token
(0 for a token that was filtered out). The last cases have 49152 logits that both sides compute from the token's id.
"""
import json
import os

import torch
from transformers.generation.logits_process import (LogitsProcessorList, MinPLogitsWarper, RepetitionPenaltyLogitsProcessor,
                                                    TemperatureLogitsWarper, TopKLogitsWarper, TopPLogitsWarper)


def distribution(logits, history, temperature, top_k, top_p, min_p, penalty):
    steps = LogitsProcessorList()  # the order of GenerationMixin._get_logits_processor
    if penalty != 1:
        steps.append(RepetitionPenaltyLogitsProcessor(penalty=penalty))
    if temperature != 1:
        steps.append(TemperatureLogitsWarper(temperature))
    if top_k:
        steps.append(TopKLogitsWarper(top_k))
    if top_p < 1:
        steps.append(TopPLogitsWarper(top_p))
    if min_p > 0:
        steps.append(MinPLogitsWarper(min_p))
    scores = steps(torch.tensor([history], dtype=torch.long), logits[None].clone())
    return torch.softmax(scores.double(), -1)[0]


SETTINGS = [  # temperature, top_k, top_p, min_p, penalty
    (1.0, 0, 1.0, 0.0, 1.0), (0.7, 0, 1.0, 0.0, 1.0), (1.5, 5, 1.0, 0.0, 1.0), (1.0, 1, 1.0, 0.0, 1.0), (1.0, 1000, 1.0, 0.0, 1.0),
    (1.0, 0, 0.9, 0.0, 1.0), (1.0, 0, 0.3, 0.0, 1.0), (1.0, 0, 0.01, 0.0, 1.0), (2.0, 0, 0.99, 0.0, 1.0), (1.0, 0, 1.0, 0.1, 1.0),
    (1.3, 0, 1.0, 0.02, 1.0), (1.0, 0, 1.0, 0.0, 1.3), (1.0, 0, 1.0, 0.0, 0.8), (0.8, 12, 0.85, 0.05, 1.1), (1.2, 30, 0.95, 0.01, 1.5),
]


def main():
    torch.manual_seed(1)
    cases = []
    for number, setting in enumerate(SETTINGS * 2):
        logits = torch.randn(48) * 2.5
        if number >= len(SETTINGS):  # ties, also at the border of top-k; masked tokens
            logits = torch.round(logits)
            logits[7] = logits[9] = float("-inf")
            if setting[2] < 1:  # torch.sort orders equals in no set way: keep them apart where their order decides
                logits = logits + torch.arange(48) * 1e-3
        history = torch.randint(0, 48, (10,)).tolist() + [3, 3]
        p = distribution(logits, history, *setting)
        cases.append({"logits": [None if x == float("-inf") else float(x) for x in logits], "history": history, "setting": setting,
                      "p": [float(f"{x:.9g}") for x in p.tolist()]})
    ids = torch.arange(49152, dtype=torch.int64)
    logits = ((ids * 2654435761 % 2**32 >> 8).float() * 2.0**-24 * 12).float()
    large = []
    for setting in [(1.0, 50, 1.0, 0.0, 1.0), (1.0, 0, 0.9, 0.0, 1.0), (0.7, 40, 0.95, 0.05, 1.0), (1.0, 0, 1.0, 0.1, 1.0), (3.0, 0, 0.5, 0.0, 1.0)]:
        p = distribution(logits.double(), [0], *setting)  # a f32 sum of 49152 terms would decide the border
        large.append({"setting": setting, "kept": int((p > 0).sum()), "p_of_best": float(p.max()), "id_sum": int(ids[p > 0].sum())})
    with open(os.path.join("tests", "golden", "sampler", "cases.json"), "w") as f:
        json.dump({"cases": cases, "large": large}, f, separators=(",", ":"))
        f.write("\n")


main()
