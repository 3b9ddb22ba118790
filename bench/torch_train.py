"""One training job in PyTorch/transformers on this machine's processors: prints one JSON line.

    torch_train.py MODEL_DIR ROWS LENGTH full|lora f32|bf16 eager|compile [STEPS]

Median tokens/s of the steps after the second, VmHWM at the end. bf16 is autocast over f32 weights. LoRA: PEFT, rank 8, all-linear.
"""
import contextlib, json, statistics, sys, time
import torch
from transformers import AutoModelForCausalLM

folder, rows, length, mode, precision, how = sys.argv[1], int(sys.argv[2]), int(sys.argv[3]), *sys.argv[4:7]
steps = int(sys.argv[7]) if len(sys.argv) > 7 else 6
torch.manual_seed(0)
model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, attn_implementation="sdpa")
if mode == "lora":
    from peft import LoraConfig, get_peft_model
    model = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules="all-linear"))
model.train()
trained = [p for p in model.parameters() if p.requires_grad]
optimizer = torch.optim.AdamW(trained, lr=5e-5, fused=True)
run = torch.compile(model) if how == "compile" else model
ids = torch.randint(0, model.config.vocab_size, (rows, length))
seconds = []
for _ in range(steps):
    start = time.perf_counter()
    with torch.autocast("cpu", torch.bfloat16) if precision == "bf16" else contextlib.nullcontext():
        loss = run(input_ids=ids, labels=ids).loss
    loss.backward()
    torch.nn.utils.clip_grad_norm_(trained, 1.0)
    optimizer.step(), optimizer.zero_grad()
    seconds.append(time.perf_counter() - start)
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(json.dumps({"what": f"torch {mode} {precision} {how} {rows}x{length}", "tokens_per_s": rows * length / statistics.median(seconds[2:]), "peak_mib": peak}))
