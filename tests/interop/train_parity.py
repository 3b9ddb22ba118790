"""Training parity with PyTorch: the same batches, full f32 or LoRA, loss and gradient norm step by step.

    train_parity.py MODEL_DIR DATA.jsonl METRICS.jsonl --mode full|lora [--rows N] [--steps N] [--lr X] [--adapter DIR]

MODEL_DIR is a Hugging Face folder (f32), DATA rows of input_ids and labels, METRICS what `snug train` wrote for
`--shuffle=off --weight-decay 0.01 --lr-scheduler-type linear --max-grad-norm 1`. For LoRA, DIR is the initial PEFT adapter
that snug started from (--adapter). Prints the largest differences; exits 1 above 2e-5 (loss) or 1e-4 (norm, relative).
Reference versions: torch 2.15, transformers 5.24, peft 0.21.2.
"""
import argparse, json, sys
import torch
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("model"), p.add_argument("data"), p.add_argument("metrics")
p.add_argument("--mode", default="full"), p.add_argument("--rows", type=int, default=1), p.add_argument("--steps", type=int, default=20)
p.add_argument("--lr", type=float, default=5e-5), p.add_argument("--adapter"), p.add_argument("--weight-decay", type=float, default=0.01)
a = p.parse_args()

model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float32, attn_implementation="sdpa")
if a.mode == "lora":
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, a.adapter, is_trainable=True)
model.train()
named = [(n, q) for n, q in model.named_parameters() if q.requires_grad]
matrices, others = [q for n, q in named if q.dim() > 1], [q for n, q in named if q.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": a.weight_decay}, {"params": others, "weight_decay": 0}], lr=a.lr, betas=(0.9, 0.999), eps=1e-8)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (a.steps - step) / a.steps))
rows = [json.loads(line) for line in open(a.data)]
ours = [json.loads(line) for line in open(a.metrics)]
ours = {m["step"]: m for m in ours if "loss" in m}
worst_loss = worst_norm = 0
for step in range(a.steps):
    batch = [rows[(step * a.rows + i) % len(rows)] for i in range(a.rows)]
    ids, labels = (torch.tensor([r[k] for r in batch]) for k in ("input_ids", "labels"))
    loss = model(input_ids=ids, labels=labels).loss
    loss.backward()
    norm = torch.nn.utils.clip_grad_norm_([q for _, q in named], 1.0).item()
    optimizer.step(), schedule.step(), optimizer.zero_grad()
    mine = ours[step + 1]
    d_loss, d_norm = abs(mine["loss"] - loss.item()), abs(mine["grad_norm"] - norm) / norm
    worst_loss, worst_norm = max(worst_loss, d_loss), max(worst_norm, d_norm)
    print(f"step {step + 1}: torch {loss.item():.7f} snug {mine['loss']:.7f}  norm {norm:.6f} {mine['grad_norm']:.6f}", flush=True)
print(f"largest difference: loss {worst_loss:.2e}, norm (relative) {worst_norm:.2e}")
sys.exit(worst_loss > 2e-5 or worst_norm > 1e-4)
