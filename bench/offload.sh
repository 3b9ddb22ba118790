#!/usr/bin/env bash
# Full fine-tuning in f32 with states, gradients and weights on disk inside 700 MiB, against the same steps in memory: tokens a second of
# both, taken in turns, and their ratio. Losses must be equal. Needs a quiet machine and 6 GB of disk.
#
#     bench/offload.sh MODEL.gguf [rows=4] [length=512] [accumulation=4] [steps=2] [pairs=3]
#
#   SNUG_BENCH_RUN    before every run, as in SNUG_BENCH_RUN="chrt -f 50"
#   SNUG_BENCH_DIR    a folder on the disk to be measured, in place of the system's temporary one
set -eu
model=$1 rows=${2:-4} length=${3:-512} accumulation=${4:-4} steps=${5:-2} pairs=${6:-3}
root=$(cd "$(dirname "$0")/.." && pwd)
snug=$root/build/release/snug
work=$(mktemp -d ${SNUG_BENCH_DIR:+-p "$SNUG_BENCH_DIR"})
trap 'rm -rf "$work"' EXIT
awk -v n=$((rows * accumulation * steps)) -v length_=$length 'BEGIN { srand(1); for (r = 0; r < n; r++) { s = ""; for (i = 0; i < length_; i++) s = s (i ? "," : "") int(rand() * 40000); print "{\"input_ids\":[" s "],\"labels\":[" s "]}" } }' >"$work/data.jsonl"
recipe=(--full --precision f32 --recompute all --cutoff-len "$length" -b "$rows" --gradient-accumulation-steps "$accumulation" --max-steps "$steps"
  --logging-steps 1 --shuffle off)
away=(--memory 700MiB --offload-optimizer disk --offload-gradients disk --offload-param disk --offload-dir "$work/disk")
echo "# $(date -u +%F) bench/offload.sh $rows x $length x accumulation $accumulation, recompute all, $steps steps; snug $(git -C "$root" rev-parse --short HEAD), $(nproc) processors, load $(cut -d' ' -f1 /proc/loadavg)"
# shellcheck disable=SC2086
run() { # name, options: prints seconds of the last step, and its loss
  local name=$1
  shift
  rm -rf "$work/out"
  ${SNUG_BENCH_RUN:-} "$snug" train "$model" --data "$work/data.jsonl" --out "$work/out" "${recipe[@]}" "$@" >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  local speed loss peak planned
  speed=$(sed -n 's/.*"tokens_per_s": \([0-9.]*\).*/\1/p' "$work/out/metrics.jsonl" | sort -g | tail -n 1)
  loss=$(sed -n 's/.*"loss": \([0-9.]*\).*/\1/p' "$work/out/metrics.jsonl" | tail -n 1)
  peak=$(sed -n 's/.*"peak_bytes": \([0-9]*\).*/\1/p' "$work/out/summary.json")
  planned=$(sed -n 's/.*"planned_bytes": \([0-9]*\).*/\1/p' "$work/out/summary.json")
  echo "$speed $loss"
  echo "$name: $speed tokens/s, loss $loss, peak $peak of $planned planned" >&2
}
ratios=()
for ((pair = 0; pair < pairs; pair++)); do
  result=$(run memory)
  read -r memory loss <<<"$result"
  result=$(run disk "${away[@]}")
  read -r disk other <<<"$result"
  [ "$loss" = "$other" ] || { echo "the losses differ: $loss and $other" >&2; exit 1; }
  ratios+=("$(awk -v a="$disk" -v b="$memory" 'BEGIN { printf "%.3f", a / b }')")
done
printf '%s\n' "${ratios[@]}" | sort -g | awk '{ r[NR] = $1 } END { print "ratio disk / memory: median " r[int((NR + 1) / 2)] ", from " r[1] " to " r[NR] }'
