#!/usr/bin/env bash
# 200 steps at 1 x 64 inside a memory cgroup whose limit, swap included, is the plan. Root; cgroup v1 or v2. Fails where the process is
# killed, its peak is above the plan, or a page has to be read again after step 1 (major faults).
#
#     tests/interop/memory_cgroup.sh MODEL [steps] -- full|lora|qlora [train options]
#
#   SNUG_CGROUP_LIMIT   bytes, in place of the plan
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
limit=${SNUG_CGROUP_LIMIT:-$plan}
[ "$plan" -le "$limit" ] || { echo "the plan of $plan bytes is above the limit" >&2; exit 1; }
group=snug-test-$$
if [ -d /sys/fs/cgroup/memory ]; then
  dir=/sys/fs/cgroup/memory/$group
  mkdir "$dir"
  echo "$limit" >"$dir/memory.limit_in_bytes"
  [ -e "$dir/memory.memsw.limit_in_bytes" ] && echo "$limit" >"$dir/memory.memsw.limit_in_bytes" || echo "# no swap accounting; swap in use: $(awk '/SwapTotal/{print $2}' /proc/meminfo) KiB"
else
  dir=/sys/fs/cgroup/$group
  mkdir "$dir"
  echo "$limit" >"$dir/memory.max"
  echo 0 >"$dir/memory.swap.max" 2>/dev/null || true
fi
: >"$work/log"
(echo $BASHPID >"$dir/cgroup.procs"; exec "$snug" train "$model" --data "$work/data.jsonl" --out "$work/out" "${options[@]}" --memory "$plan" --max-steps "$steps" --logging-steps 1 >"$work/log" 2>&1) &
pid=$!
faults() { awk '{ sub(/.*\) /, ""); print $10 }' "/proc/$pid/stat" 2>/dev/null; }
first="" last=""
while kill -0 $pid 2>/dev/null; do
  now=$(faults) || break
  [ -z "$now" ] || last=$now
  [ -n "$first" ] || ! grep -q '^step 1/' "$work/log" || first=$now
  [ "$(grep -c '^step ' "$work/log")" -lt "$steps" ] || break # saving comes after it
  sleep 0.2
done
status=0
wait $pid || status=$?
peak=$(sed -n 's/.*"peak_bytes": *\([0-9]*\).*/\1/p' "$work/out/summary.json" 2>/dev/null)
kills=$(grep -h oom_kill "$dir"/memory.oom_control "$dir/memory.events" 2>/dev/null | awk '/oom_kill /{print $2}' | head -1)
echo "limit $limit bytes, plan $plan; highest use $(cat "$dir"/memory.max_usage_in_bytes "$dir/memory.peak" 2>/dev/null | head -1); out-of-memory kills $kills; major faults after step 1: $((${last:-0} - ${first:-0})); VmHWM ${peak:-?}; exit status $status"
[ -n "$peak" ] || tail -3 "$work/log"
rmdir "$dir"
[ $status = 0 ] && [ "${peak:-$((plan + 1))}" -le "$plan" ] && [ "${last:-0}" = "${first:-none}" ]
