#!/usr/bin/env bash
# The bill against the operating system: six ways of fine-tuning SmolLM2, each one step of 256 tokens with loading and saving.
# The plan is never below the measured peak and at most 2% above it. SNUG_TEST_GGUF: the model; without it nothing is done (77).
set -u
snug=$(cd "$1" && pwd)/snug
model=${SNUG_TEST_GGUF:-}
[ -n "$model" ] || { echo "bill: skipped, SNUG_TEST_GGUF is not set"; exit 77; }
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
failures=0
number() { sed -n "s/.*\"$1\": *\([0-9]*\).*/\1/p" "$work/out/summary.json"; }

awk 'BEGIN { srand(1); printf "{\"input_ids\": [1"; for (i = 1; i < 256; i++) printf ", %d", 3 + int(49000 * rand()); print "]}" }' >"$work/row.jsonl"
for tune in full lora qlora; do
  for recompute in none all; do
    rm -rf "$work/out"
    if ! "$snug" train "$model" --data "$work/row.jsonl" --out "$work/out" --$tune --recompute $recompute --cutoff-len 256 --max-steps 1 \
      >"$work/log" 2>&1; then
      cat "$work/log"
      failures=$((failures + 1))
      continue
    fi
    planned=$(number planned_bytes) peak=$(number peak_bytes)
    awk -v a="$planned" -v b="$peak" -v name="$tune, recompute $recompute" 'BEGIN {
      printf "%-24s planned %d, peak %d: %.4f\n", name, a, b, a / b
      exit !(a >= b && a <= 1.02 * b)
    }' || failures=$((failures + 1))
  done
done
[ $failures -eq 0 ] && echo "bill: the six plans hold"
exit $((failures > 0))
