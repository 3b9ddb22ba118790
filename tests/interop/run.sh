#!/usr/bin/env bash
# Other programs read what snug writes, and PyTorch trains on what snug trained on. The `python` first in PATH has the packages of
# tests/golden/requirements.txt; SNUG_TEST_GGUF is SmolLM2-135M-Instruct's GGUF file. Exit status 1 when a difference is too large.
set -u
cd "$(dirname "$0")/../.." || exit 1
build=build/release
model=${SNUG_TEST_GGUF:?set it to the GGUF file of SmolLM2-135M-Instruct}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

# run NAME COMMAND...
run() {
  echo "-- $1"
  shift
  "$@" || { echo "FAILED: $*"; status=1; }
}

run "export" python tests/interop/export_interop.py $build/export_driver "$model" "$work/export"

# 20 steps on ready-made rows of 256 tokens of a fixed text, one row a batch: full fine-tuning, and LoRA from an adapter that PEFT made.
$build/snug merge "$model" --form f32 --out "$work/hf" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
run "rows and adapter" python tests/interop/parity_input.py "$work/hf" "$work/rows.jsonl" "$work/adapter"
recipe=(--data "$work/rows.jsonl" --shuffle=off --weight-decay 0.01 --lr-scheduler-type linear --max-grad-norm 1 --max-steps 20 --cutoff-len 256)
parity=(python tests/interop/train_parity.py "$work/hf" "$work/rows.jsonl")
run "train, full" $build/snug train "$work/hf" --out "$work/full" --full --learning-rate 5e-5 "${recipe[@]}"
run "full, PyTorch in f32" "${parity[@]}" "$work/full/metrics.jsonl" --mode full
run "full, PyTorch in f64" "${parity[@]}" "$work/full/metrics.jsonl" --mode full --exact
run "train, LoRA" $build/snug train "$work/hf" --out "$work/lora" --lora --adapter "$work/adapter" --learning-rate 2e-4 "${recipe[@]}"
run "LoRA, PEFT in f32" "${parity[@]}" "$work/lora/metrics.jsonl" --mode lora --adapter "$work/adapter" --lr 2e-4
run "LoRA, PEFT in f64" "${parity[@]}" "$work/lora/metrics.jsonl" --mode lora --adapter "$work/adapter" --lr 2e-4 --exact
run "perplexity" python tests/interop/perplexity.py $build/snug "$model"
run "offload, 4 ranks" tests/interop/offload_ranks.sh "$model"
exit $status
