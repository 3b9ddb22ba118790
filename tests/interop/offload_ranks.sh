#!/usr/bin/env bash
# SmolLM2 itself, 4 ranks of 2 threads: 3 steps of full fine-tuning in memory, and with states, gradients and weights on disk under ZeRO stage 0
# and 3, give the same losses and the same model, bit for bit. Takes 10 GB of memory and 12 GB of disk.
#
#     tests/interop/offload_ranks.sh MODEL [steps=3]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
snug=$root/build/release/snug
model=$1 steps=${2:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'BEGIN { srand(1); for (r = 0; r < 32; r++) { s = ""; for (i = 0; i < 64; i++) s = s (i ? "," : "") int(rand() * 40000); print "{\"input_ids\":[" s "],\"labels\":[" s "]}" } }' >"$work/data.jsonl"
row() { # options: prints losses, norms and the digest of the model
  rm -rf "$work/out"
  "$snug" train "$model" --data "$work/data.jsonl" --out "$work/out" --full --recompute all --cutoff-len 64 --thread-ranks 4 --threads 2 --max-steps "$steps" "$@" \
    >"$work/log" 2>&1 || { cat "$work/log" >&2; exit 1; }
  sed 's/, "learning_rate.*//' "$work/out/metrics.jsonl"
  sha256sum <"$work/out/model.safetensors"
}
away=(--offload-optimizer disk --offload-gradients disk --offload-param disk --offload-dir "$work/disk")
row >"$work/memory"
for stage in 0 3; do
  row --zero-stage $stage "${away[@]}" >"$work/disk-$stage"
  diff "$work/memory" "$work/disk-$stage" || { echo "stage $stage on disk differs from stage 0 in memory" >&2; exit 1; }
done
echo "SmolLM2, 4 ranks x 2 threads, stages 0 and 3 on disk: $(wc -l <"$work/memory") lines equal to stage 0 in memory"
