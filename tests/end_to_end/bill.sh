#!/usr/bin/env bash
# The bill against the operating system: six ways of fine-tuning SmolLM2, each one step of 256 tokens with loading and saving; with
# SNUG_TEST_FULL=1 eighteen, of 4 x 256 and 1 x 1024 tokens. The plan is never below the measured peak and at most 2% above it.
# SNUG_TEST_GGUF: the model; without it nothing is done (77).
set -u
snug=$(cd "$1" && pwd)/snug
model=${SNUG_TEST_GGUF:-}
[ -n "$model" ] || { echo "bill: skipped, SNUG_TEST_GGUF is not set"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0 plans=0
shapes=(1x256) recomputes=(none all)
[ "${SNUG_TEST_FULL:-}" = 1 ] && shapes=(4x256 1x1024) recomputes=(none light all)
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$work/out/summary.json"; }

# bill TUNE RECOMPUTE ROWSxLENGTH
bill() {
  local rows=${3%x*} length=${3#*x}
  awk -v rows="$rows" -v n="$length" 'BEGIN { srand(1); for (r = 0; r < rows; r++) { printf "{\"input_ids\": [1"; for (i = 1; i < n; i++) printf ", %d", 3 + int(49000 * rand()); print "]}" } }' >"$work/rows.jsonl"
  rm -rf "$work/out"
  "$snug" train "$model" --data "$work/rows.jsonl" --out "$work/out" "--$1" --recompute "$2" --cutoff-len "$length" --per-device-train-batch-size "$rows" \
    --max-steps 1 >"$work/log" 2>&1 || { cat "$work/log"; return 1; }
  awk -v a="$(number planned_bytes)" -v b="$(number peak_bytes)" -v name="$1, recompute $2, $3" 'BEGIN {
    printf "%-30s planned %s, peak %s: %.4f\n", name, a, b, a / b
    exit !(a >= b && a <= 1.02 * b)
  }'
}

for tune in full lora qlora; do
  for recompute in "${recomputes[@]}"; do
    for shape in "${shapes[@]}"; do
      plans=$((plans + 1))
      bill $tune "$recompute" "$shape" || failures=$((failures + 1))
    done
  done
done
[ $failures -eq 0 ] && echo "bill: the $plans plans hold"
exit $((failures > 0))
