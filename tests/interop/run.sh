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

run "perplexity" python tests/interop/perplexity.py $build/snug "$model" --windows 16

# 20 steps of fine-tuning on ready-made rows of our own documentation: 4 x 256 tokens a step; then LoRA from an adapter.
$build/snug merge "$model" --form f32 --out "$work/hf" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cat docs/*.md docs/passes/*.md README.md CONTRIBUTING.md >"$work/text.md"
python - "$work/hf" "$work/text.md" "$work/rows.jsonl" <<'PYTHON'
import json, sys
from transformers import AutoTokenizer
ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[2]).read())["input_ids"]
with open(sys.argv[3], "w") as f:
    for i in range(min(80, len(ids) // 256)):
        row = ids[256 * i : 256 * (i + 1)]
        f.write(json.dumps({"input_ids": row, "labels": row}) + "\n")
PYTHON
train=($build/snug train "$work/hf" --data "$work/rows.jsonl" --shuffle=off --weight-decay 0.01 --lr-scheduler-type linear --max-grad-norm 1
  --cutoff-len 256 --per-device-train-batch-size 4)
run "train" "${train[@]}" --out "$work/full" --full --learning-rate 5e-5 --max-steps 20
run "parity with PyTorch" python tests/interop/train_parity.py "$work/hf" "$work/rows.jsonl" "$work/full/metrics.jsonl" --mode full --rows 4
rm -rf "$work/full"
run "an adapter to start from" "${train[@]}" --out "$work/first" --lora --learning-rate 1e-3 --max-steps 3
run "train on" "${train[@]}" --out "$work/lora" --adapter "$work/first" --learning-rate 5e-5 --max-steps 20
run "parity with PEFT" python tests/interop/train_parity.py "$work/hf" "$work/rows.jsonl" "$work/lora/metrics.jsonl" --mode lora --rows 4 --adapter "$work/first"
exit $status
