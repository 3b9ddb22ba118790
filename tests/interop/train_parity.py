"""Training parity with PyTorch: the same batches, full f32 or LoRA, loss and gradient norm step by step.

    train_parity.py MODEL_DIR DATA.jsonl METRICS.jsonl --mode full|lora [--exact] [--rows N] [--steps N] [--lr X] [--adapter DIR]

MODEL_DIR is a Hugging Face folder (f32), DATA rows of input_ids and labels, METRICS what `snug train` wrote for
`--shuffle=off --weight-decay 0.01 --lr-scheduler-type linear --max-grad-norm 1`. For LoRA, DIR is the initial PEFT adapter
that snug started from (--adapter). Prints the largest differences; exits 1 above 2e-5 (loss) or 1e-4 (norm, relative).

--exact: PyTorch computes in f64, the loss too; bounds 5e-6 and 1e-5. Without it, most of the difference is PyTorch's: its f32
cross-entropy over 49,152 logits is 1e-5 off in the loss, and hands gradients on that are 2e-4 off in some tensors. transformers
rounds the logits to f32 before its loss whatever the model computes in, so that its f64 model alone is no reference.

The norm is judged against PyTorch's own gradients, summed in f64. clip_grad_norm_ sums the squares of up to 28 million f32
elements of a tensor in f32, which by itself is up to 1.5e-4 off the norm of the very gradients it is given: more than the bound,
and no difference between the two programs. Its figure, and how far it is from the f64 norm, are printed as information.
Reference versions: torch 2.15, transformers 5.24, peft 0.21.2.
"""
import argparse, json, sys
import torch
from transformers import AutoModelForCausalLM

p = argparse.ArgumentParser()
p.add_argument("model"), p.add_argument("data"), p.add_argument("metrics")
p.add_argument("--mode", default="full"), p.add_argument("--rows", type=int, default=1), p.add_argument("--steps", type=int, default=20)
p.add_argument("--lr", type=float, default=5e-5), p.add_argument("--adapter"), p.add_argument("--weight-decay", type=float, default=0.01)
p.add_argument("--exact", action="store_true")
a = p.parse_args()
bounds = {"loss": 5e-6, "norm": 1e-5} if a.exact else {"loss": 2e-5, "norm": 1e-4}

model = AutoModelForCausalLM.from_pretrained(a.model, dtype=torch.float64 if a.exact else torch.float32, attn_implementation="sdpa")
if a.mode == "lora":
    from peft import PeftModel
    model = PeftModel.from_pretrained(model, a.adapter, is_trainable=True).to(model.dtype)
model.train()
named = [(n, q) for n, q in model.named_parameters() if q.requires_grad]
matrices, others = [q for n, q in named if q.dim() > 1], [q for n, q in named if q.dim() <= 1]
optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": a.weight_decay}, {"params": others, "weight_decay": 0}], lr=a.lr, betas=(0.9, 0.999), eps=1e-8)
schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: max(0.0, (a.steps - step) / a.steps))
rows = [json.loads(line) for line in open(a.data)]
ours = [json.loads(line) for line in open(a.metrics)]
ours = {m["step"]: m for m in ours if "loss" in m}


def loss_of(ids, labels):
    if not a.exact:
        return model(input_ids=ids, labels=labels).loss
    return torch.nn.functional.cross_entropy(model(input_ids=ids).logits[:, :-1].flatten(0, 1), labels[:, 1:].flatten())


def exact_norm(tensors):  # of the f32 gradients as they are: every square and sum in f64
    return torch.linalg.vector_norm(torch.stack([torch.linalg.vector_norm(t, dtype=torch.float64) for t in tensors])).item()


worst = {"loss": 0, "norm": 0, "norm, clip_grad_norm_ in f32": 0, "clip_grad_norm_ itself against f64": 0}
for step in range(a.steps):
    batch = [rows[(step * a.rows + i) % len(rows)] for i in range(a.rows)]
    ids, labels = (torch.tensor([r[k] for r in batch]) for k in ("input_ids", "labels"))
    loss = loss_of(ids, labels)
    loss.backward()
    norm = exact_norm([q.grad for _, q in named])
    clip = torch.nn.utils.clip_grad_norm_([q for _, q in named], 1.0).item()
    optimizer.step(), schedule.step(), optimizer.zero_grad()
    mine = ours[step + 1]
    found = (abs(mine["loss"] - loss.item()), abs(mine["grad_norm"] - norm) / norm, abs(mine["grad_norm"] - clip) / clip, abs(clip - norm) / norm)
    for key, value in zip(worst, found):
        worst[key] = max(worst[key], value)
    print(f"step {step + 1}: loss torch {loss.item():.7f} snug {mine['loss']:.7f}  norm torch in f64 {norm:.6f} snug {mine['grad_norm']:.6f}"
          f" ({found[1]:.1e})  clip_grad_norm_ {clip:.6f} ({found[2]:.1e}, itself off by {found[3]:.1e})", flush=True)
for key, value in worst.items():
    print(f"largest difference: {key} {value:.2e} ({'absolute' if key == 'loss' else 'relative'}, {f'bound {bounds[key]:g}' if key in bounds else 'information'})")
sys.exit(any(worst[key] > bound for key, bound in bounds.items()))
