#!/usr/bin/env bash
# SmolLM2 with states, gradients and weights on disk: the bytes that the system counts to and from its disks are the plan's.
# SNUG_TEST_GGUF: the model; without it nothing is done (77). All kinds of values: tests/interop/disk_bytes.py.
set -u
build=$(cd "$1" && pwd)
model=${SNUG_TEST_GGUF:-}
[ -n "$model" ] || { echo "disk_bytes: skipped, SNUG_TEST_GGUF is not set"; exit 77; }
exec python3 "$(dirname "$0")/../interop/disk_bytes.py" "$build/snug" "$model" "$build/disk_bytes" --jobs "states, gradients, weights"
