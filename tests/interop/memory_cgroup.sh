#!/usr/bin/env bash
# 200 steps at 1 x 64 inside a memory cgroup whose limit, swap included, is the plan. Root; cgroup v1 or v2.
#
#     tests/interop/memory_cgroup.sh MODEL [steps] -- full|lora|qlora [train options]
set -eu
root=$(cd "$(dirname "$0")/../.." && pwd)
snug=$root/build/release/snug
model=$1 steps=200
[ "$2" = -- ] || { steps=$2; shift; }
mode=$3
shift 3
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
awk 'BEGIN { srand(1); for (r = 0; r < 64; r++) { s = ""; for (i = 0; i < 64; i++) s = s (i ? "," : "") int(rand() * 40000); print "{\"input_ids\":[" s "],\"labels\":[" s "]}" } }' >"$work/data.jsonl"
options=(--"$mode" --cutoff-len 64 "$@")
plan=$("$snug" plan "$model" "${options[@]}" --json | sed -E 's/.*"total_bytes": ([0-9]+).*/\1/')
group=snug-test-$$
if [ -d /sys/fs/cgroup/memory ]; then
  dir=/sys/fs/cgroup/memory/$group
  mkdir "$dir"
  echo "$plan" >"$dir/memory.limit_in_bytes"
  [ -e "$dir/memory.memsw.limit_in_bytes" ] && echo "$plan" >"$dir/memory.memsw.limit_in_bytes" || echo "# no swap accounting; swap in use: $(awk '/SwapTotal/{print $2}' /proc/meminfo) KiB"
else
  dir=/sys/fs/cgroup/$group
  mkdir "$dir"
  echo "$plan" >"$dir/memory.max"
  echo 0 >"$dir/memory.swap.max" 2>/dev/null || true
fi
status=0
(echo $BASHPID >"$dir/cgroup.procs"; exec "$snug" train "$model" --data "$work/data.jsonl" --out "$work/out" "${options[@]}" --memory "$plan" --max-steps "$steps" --logging-steps 50 >"$work/log" 2>&1) || status=$?
echo "limit $plan bytes; highest use $(cat "$dir"/memory.max_usage_in_bytes "$dir/memory.peak" 2>/dev/null | head -1); out-of-memory kills $(grep -h oom_kill "$dir"/memory.oom_control "$dir/memory.events" 2>/dev/null | awk '/oom_kill /{print $2}' | head -1); exit status $status"
sed -n 's/.*"peak_bytes": *\([0-9]*\).*/VmHWM \1/p' "$work/out/summary.json" 2>/dev/null || tail -3 "$work/log"
rmdir "$dir"
exit $status
