"""What both sides of train_parity.py start from: 20 rows of 256 tokens of the fixed text, and a PEFT adapter.

    parity_input.py MODEL_DIR ROWS.jsonl ADAPTER_DIR

The adapter is PEFT's own for all linear modules, rank 8, alpha 16, with random B, so that A has gradients from the first step.
"""
import json
import sys

import torch
from peft import LoraConfig, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

import fixed_text

folder, rows, adapter = sys.argv[1:]
ids = AutoTokenizer.from_pretrained(folder)(fixed_text.text())["input_ids"]
with open(rows, "w") as f:
    for at in range(0, 20 * 256, 256):
        f.write(json.dumps({"input_ids": ids[at:at + 256], "labels": ids[at:at + 256]}) + "\n")
torch.manual_seed(1)
model = get_peft_model(AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32),
                       LoraConfig(r=8, lora_alpha=16, target_modules="all-linear", task_type="CAUSAL_LM"))
for name, value in model.named_parameters():
    if "lora_B" in name:
        torch.nn.init.normal_(value, std=0.01)
model.save_pretrained(adapter)
