#!/usr/bin/env bash
# snug against its peers in one run on this machine; prints ratios, and the processor's flags. Needs a quiet machine.
#
#     bench/compare.sh train|generate MODEL.gguf HF_FOLDER PYTHON
#     bench/compare.sh start MODEL.gguf                     snug alone: from the command to its first training step
#
# HF_FOLDER: the same weights, dequantised (snug merge --to folder makes it, or transformers' gguf_file=). PYTHON: an
# interpreter with torch, transformers, peft, llama_cpp. Results with their commands are kept in bench/results/.
set -eu
what=$1 gguf=$2 folder=${3:-} python=${4:-python3}
root=$(cd "$(dirname "$0")/.." && pwd)
snug=$root/build/release/snug
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
echo "# $(date -u +%F) bench/compare.sh $what, $(nproc) processors: $(sed -n 's/^model name.*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1 /proc/loadavg)"
echo "# flags: $(grep -m1 '^flags' /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx2|fma|f16c|avx512f|avx512bw|avx512_bf16|avx512_vnni|amx_bf16|amx_int8)$' | tr '\n' ' ')"
if [ "$what" = start ]; then
  echo "# snug $(git -C "$root" rev-parse --short HEAD)"
else
  echo "# snug $(git -C "$root" rev-parse --short HEAD), $("$python" -c 'import torch, transformers, peft, llama_cpp; print("torch", torch.__version__, "transformers", transformers.__version__, "peft", peft.__version__, "llama-cpp-python", llama_cpp.__version__)' 2>/dev/null)"
fi

rows() { # length count: ready-made ids
  "$python" - "$1" "$2" <<'PY'
import json, random, sys
random.seed(0)
for _ in range(int(sys.argv[2])):
    ids = [random.randrange(49000) for _ in range(int(sys.argv[1]))]
    print(json.dumps({"input_ids": ids, "labels": ids}))
PY
}

snug_train() { # rows length mode precision
  rows "$2" $((8 * $1)) >"$work/data.jsonl"
  rm -rf "$work/out"
  local recompute=light # the default
  [ "$3" = lora ] && recompute=selective
  "$snug" train "$gguf" --data "$work/data.jsonl" --out "$work/out" "--$3" --precision "$4" --recompute $recompute --cutoff-len "$2" \
    --per-device-train-batch-size "$1" --max-steps 6 --shuffle off >/dev/null 2>"$work/err" || { cat "$work/err" >&2; exit 1; }
  "$python" - "$work/out" "$1" "$2" "$3" "$4" <<'PY'
import json, statistics, sys
out, rows, length, mode, precision = sys.argv[1:]
steps = [json.loads(line) for line in open(f"{out}/metrics.jsonl")]
summary = json.load(open(f"{out}/summary.json"))
speeds = [s["tokens_per_s"] for s in steps if "tokens_per_s" in s][2:]
print(json.dumps({"what": f"snug {mode} {precision} {rows}x{length}", "tokens_per_s": statistics.median(speeds), "peak_mib": summary["peak_bytes"] / 2**20,
                  "planned_mib": summary["planned_bytes"] / 2**20, "first_step_s": summary["start_seconds"]}))
PY
}

# Seconds from the command to the beginning and to the end of the first step, and the processor seconds taken by then. `cold`: no
# index of the data yet, no page of the model in memory; `warm`: both. The spread of the runs matters on a virtual machine: memory
# that its host has to find first comes far slower than memory that was in use a moment ago.
start_once() { # mode data state
  if [ "$3" = cold ]; then
    rm -f "$2.snug-idx"
    dd of="$gguf" oflag=nocache conv=notrunc,fdatasync count=0 2>/dev/null
  fi
  rm -rf "$work/out"
  "$python" - "$snug" "$gguf" "$work/out" "$1" "$2" "$3" <<'PY'
import json, os, subprocess, sys, time
snug, gguf, out, mode, data, state = sys.argv[1:]
begin = time.monotonic()
p = subprocess.Popen([snug, "train", gguf, f"--{mode}", "--data", data, "--out", out, "--cutoff-len", "256", "--per-device-train-batch-size", "4",
                      "--max-steps", "2"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
text = ""
for line in p.stderr:
    text += line
    if line.startswith("step 1/"):
        break
else:
    sys.exit(text)
end = time.monotonic() - begin
user, system = (int(x) / os.sysconf("SC_CLK_TCK") for x in open(f"/proc/{p.pid}/stat").read().rpartition(")")[2].split()[11:13])
p.kill()
p.wait()
step = json.loads(open(f"{out}/metrics.jsonl").readline())
print(json.dumps({"what": f"start {mode} {os.path.basename(data)} {state}", "first_step_begins_s": round(end - step["tokens"] / step["tokens_per_s"], 3),
                  "first_step_ends_s": round(end, 3), "user_s": round(user, 2), "system_s": round(system, 2)}))
PY
}

if [ "$what" = start ]; then
  rows 256 6000 >"$work/ids.jsonl"
  cp "$root/examples/support.jsonl" "$work/text.jsonl"
  for mode in full lora qlora; do
    for data in text ids; do
      for state in cold warm warm; do start_once $mode "$work/$data.jsonl" $state; done
    done
  done
  exit
fi

if [ "$what" = train ]; then
  for mode in full lora; do
    : >"$work/lines"
    for precision in f32 bf16; do
      snug_train 4 256 $mode $precision | tee -a "$work/lines"
      for how in eager compile; do
        timeout 900 "$python" "$root/bench/torch_train.py" "$folder" 4 256 $mode $precision $how 2>/dev/null | tee -a "$work/lines" || echo "# torch $mode $precision $how: not finished in 900 s"
      done
    done
    "$python" - "$work/lines" $mode <<'PY'
import json, sys
lines = [json.loads(l) for l in open(sys.argv[1])]
ours, theirs = ([l for l in lines if l["what"].startswith(w)] for w in ("snug", "torch"))
for precision in ("f32", "bf16"):
    mine = next(l for l in ours if f" {precision} " in l["what"])
    peers = [l for l in theirs if f" {precision} " in l["what"]]
    fastest, least = max(peers, key=lambda l: l["tokens_per_s"]), min(l["peak_mib"] for l in peers)
    print(f"{sys.argv[2]} {precision}: speed {mine['tokens_per_s'] / fastest['tokens_per_s']:.2f} x ({mine['tokens_per_s']:.0f}, {fastest['what']} {fastest['tokens_per_s']:.0f} tokens/s); "
          f"peak memory {mine['peak_mib'] / least:.3f} x torch's smaller ({mine['peak_mib']:.0f}, {least:.0f} MiB)")
PY
  done
else
  "$python" "$root/bench/llama_bench.py" "$gguf" 2>/dev/null | tee "$work/lines"
  "$snug" bench "$gguf" --prompt 512 --decode 128 --json 2>/dev/null | tee -a "$work/lines"
  "$python" - "$work/lines" <<'PY'
import json, sys
peer, ours = (json.loads(l) for l in open(sys.argv[1]))
for k in ("prompt", "decode"):
    a, b = ours[f"{k}_tokens_per_s"], peer[f"{k}_tokens_per_s"]
    print(f"{k}: {a / b:.2f} x llama.cpp ({a:.0f}, {b:.0f} tokens/s)")
PY
fi
