#!/usr/bin/env bash
# Makes every golden value again with the `python` that is first in PATH (versions: requirements.txt). SNUG_TEST_GGUF names
# SmolLM2-135M-Instruct's GGUF file; without it what depends on that file is left as it is.
set -eu
cd "$(dirname "$0")/../.."
model=${SNUG_TEST_GGUF:-}
for script in tests/golden/make_*.py; do
  echo "$script"
  case "$script" in
    */make_templates.py)
      [ -z "$model" ] && continue
      python "$script" "$model" >tests/golden/templates/cases.jsonl.new
      mv tests/golden/templates/cases.jsonl.new tests/golden/templates/cases.jsonl
      ;;
    */make_tokenizer.py) python "$script" ${model:+"$model"} ;;
    *) python "$script" ;;
  esac
done
