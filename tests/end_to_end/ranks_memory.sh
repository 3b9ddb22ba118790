#!/usr/bin/env bash
# Four ranks at ZeRO-3 over MPI: every rank loads and holds its own part, so that together they hold about one model; peaks and bytes sent are as
# planned. Two stages of a pipeline likewise. SNUG_TEST_GGUF: SmolLM2; without it nothing is done (77). The whole table: tests/interop/ranks_memory.py.
set -u
build=$(cd "$1" && pwd)
model=${SNUG_TEST_GGUF:-}
[ -n "$model" ] || { echo "ranks_memory: skipped, SNUG_TEST_GGUF is not set"; exit 77; }
here=$(dirname "$0")
python3 "$here/../interop/ranks_memory.py" "$build/snug" "$model" --ranks 4 --stages 3 || exit 1
exec python3 "$here/../interop/ranks_memory.py" "$build/snug" "$model" --ranks 2 --stages 0 --pipeline-parallel-size 2 --gradient-accumulation-steps 2
