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

# 20 steps of full fine-tuning on ready-made rows of 256 tokens of our own documentation, one row a batch.
$build/snug merge "$model" --form f32 --out "$work/hf" >"$work/log" 2>&1 || { cat "$work/log"; exit 1; }
cat docs/*.md docs/passes/*.md >"$work/text.md"
python - "$work/hf" "$work/text.md" "$work/rows.jsonl" <<'PYTHON'
import json, sys
from transformers import AutoTokenizer
ids = AutoTokenizer.from_pretrained(sys.argv[1])(open(sys.argv[2]).read())["input_ids"]
with open(sys.argv[3], "w") as f:
    for i in range(20):
        row = ids[256 * i : 256 * (i + 1)]
        assert len(row) == 256
        f.write(json.dumps({"input_ids": row, "labels": row}) + "\n")
PYTHON
run "train" $build/snug train "$work/hf" --data "$work/rows.jsonl" --out "$work/train" --full --shuffle=off --weight-decay 0.01 \
  --lr-scheduler-type linear --max-grad-norm 1 --learning-rate 5e-5 --max-steps 20 --cutoff-len 256
run "parity with PyTorch" python tests/interop/train_parity.py "$work/hf" "$work/rows.jsonl" "$work/train/metrics.jsonl" --mode full
run "offload, 4 ranks" tests/interop/offload_ranks.sh "$model"
exit $status
