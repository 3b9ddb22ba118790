#!/usr/bin/env bash
# The estimate of a step beside what it took: full, LoRA and QLoRA, recompute none, light and all, 4 x 256 and 1 x 1024, states on disk.
#
#   bench/forecast.sh SNUG MODEL WORK [STEPS]    ten minutes on a machine that does nothing else
#
# WORK: a folder on the disk that offloading goes to, 4 GiB free. The machine is measured first (snug probe), into WORK.
set -eu
snug=$(realpath "$1") model=$(realpath "$2") work=$3 steps=${4:-4}
mkdir -p "$work/disk"
export SNUG_HOME=$work/store
echo "# $(date -I) bench/forecast.sh, $(nproc) processors: $(sed -n 's/^model name\t*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1 /proc/loadavg)"
echo "# flags: $(grep -m1 ^flags /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx2|fma|f16c|avx512f|avx512bw|avx512_bf16|avx512_vnni)$' | tr '\n' ' ')"
python3 - "$work" <<'PY'
import json, random, sys
random.seed(1)
for length, rows in ((256, 160), (1024, 40)):
    with open(f"{sys.argv[1]}/{length}.jsonl", "w") as f:
        for _ in range(rows):
            ids = [random.randrange(100, 49000) for _ in range(length)]
            f.write(json.dumps({"input_ids": ids, "labels": ids}) + "\n")
PY
"$snug" probe --again --disk "$work/disk" | sed 's/^/# /'
one() { # label, options
  local label=$1
  shift
  rm -rf "$work/out"
  "$snug" train "$model" --out "$work/out" --train-on all --max-steps "$steps" --learning-rate 1e-6 "$@" --json 2>"$work/err" | tail -1 >"$work/one.json" ||
    { cat "$work/err" >&2; exit 1; }
  python3 - "$work" "$label" <<'PY'
import json, sys
one = json.load(open(f"{sys.argv[1]}/one.json"))
took, said = one["step_seconds"], one["estimated_step_seconds"]
print(f"{sys.argv[2]:36s} took {took:7.3f} s, estimated {said:7.3f} s, {100 * (said / took - 1):+.1f}%")
PY
}
for shape in "4 256" "1 1024"; do
  read -r rows length <<<"$shape"
  shared=(--data "$work/$length.jsonl" --per-device-train-batch-size "$rows" --cutoff-len "$length")
  for mode in full lora qlora; do
    for recompute in none light all; do one "$mode $recompute ${rows}x$length" "--$mode" --recompute $recompute "${shared[@]}"; done
  done
  one "full light ${rows}x$length, states on disk" --full --offload-optimizer disk --offload-dir "$work/disk" "${shared[@]}"
  one "full light ${rows}x$length, bf16" --full --precision bf16 "${shared[@]}"
done
