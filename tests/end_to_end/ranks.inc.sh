# shellcheck shell=bash disable=SC2034
# What the scripts about ranks share; sourced with the build folder as $1. Sets root, build, snug, work (removed at the end), model, out, err,
# rows.jsonl of 13 rows.
set -u
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
snug=$build/snug
work=$(mktemp -d)
export NO_COLOR=1 SNUG_HOME=$work/store HF_HUB_OFFLINE=1 OMPI_MCA_btl_base_warn_component_unused=0
export ASAN_OPTIONS=detect_leaks=0:verify_asan_link_order=0 # MPI keeps what it has
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE MASTER_ADDR MASTER_PORT
failures=0 skipped=0
last= # the case at work
model=$root/tests/golden/cli/tiny
out=$work/out err=$work/err

at_end() { [ -z "${launched:-}" ] || kill -9 $launched 2>/dev/null; [ -z "${mounted:-}" ] || umount -l "$mounted"; rm -rf "$work"; }
trap at_end EXIT
fail() { echo "FAILED: $1"; tail -5 "$err" | sed 's/^/  err: /'; failures=$((failures + 1)); }
skip() { echo "skipped: $1"; skipped=$((skipped + 1)); }
warns() { grep -qF -- "$1" "$err" || fail "$last: stderr lacks '$1'"; }
ends() { # NAME: the script's last line
  [ $failures -eq 0 ] && echo "$1: all as expected"
  exit $((failures > 0))
}
# The losses and norms of every step, without the times.
losses() { sed 's/, "tokens_per_s.*//' "$1/metrics.jsonl"; }
same() { # folder, folder: everything that was learnt
  losses "$1" >"$work/l1"; losses "$2" >"$work/l2"
  [ -s "$work/l1" ] && cmp -s "$work/l1" "$work/l2" || fail "$last: metrics differ"
  local files=0 f g
  for f in model.safetensors adapter_model.safetensors checkpoint-*/state.safetensors checkpoint-*/manifest.json; do
    for g in "$1"/$f; do
      [ -e "$g" ] || continue
      files=$((files + 1))
      cmp -s "$g" "$2/${g#"$1"/}" || fail "$last: ${g#"$1"/} differs"
    done
  done
  [ "$files" -ge 3 ] || fail "$last: $files files to compare"
}
# What a run used and what all its ranks did, within what was planned. A sanitizer's memory is not planned.
number() { sed -n 's/.*"'"$2"'": \([0-9]*\).*/\1/p' "$1/summary.json"; }
within_plan() {
  local what peak planned
  grep -q fsanitize "$build/CMakeCache.txt" && return
  for what in '' _of_all_ranks; do
    peak=$(number "$1" "peak_bytes$what") planned=$(number "$1" "planned_bytes$what")
    [ "${peak:-0}" -gt 0 ] && [ "$peak" -le "${planned:-0}" ] || fail "$last: peak_bytes$what ${peak:-?}, planned ${planned:-?}"
  done
}
await() { for _ in $(seq 200); do [ -s "$1" ] && return 0; sleep 0.1; done; fail "$last: $1 does not come"; return 1; }

# 13 rows: on 4 ranks the last step of an epoch has ranks without a row.
for i in $(seq 13); do
  echo '{"messages": [{"role": "user", "content": "What is plan '"$i"'?"}, {"role": "assistant", "content": "The bill of '$((i * i))', and what it costs."}]}'
done >"$work/rows.jsonl"
train() { echo train "$model" --data "$work/rows.jsonl" --cutoff-len 64 --learning-rate 0.01 --threads 1; }

# ---- launchers: `launcher` is mpi or tcp ----
port=$((20000 + $$ % 20000))
# launch N COMMAND...: starts N ranks; $launched: their processes by rank (mpi: filled by find_ranks), $launcher_pid
launch() {
  local n=$1 r; shift
  launched= launcher_pid=
  if [ "$launcher" = mpi ]; then
    timeout -s KILL 120 mpirun --allow-run-as-root --oversubscribe -n "$n" "$@" >"$out" 2>"$err" </dev/null &
    launcher_pid=$!
    return
  fi
  port=$((port + 1))
  : >"$out"; : >"$err"
  for ((r = 0; r < n; r++)); do
    RANK=$r WORLD_SIZE=$n LOCAL_RANK=$r MASTER_ADDR=127.0.0.1 MASTER_PORT=$port "$@" >>"$out" 2>>"$err" </dev/null &
    launched="$launched $!"
  done
}
# The process of rank $1 of those launched.
rank_pid() {
  if [ "$launcher" = mpi ]; then pgrep -P "$(pgrep -P "$launcher_pid" -x mpirun)" -x snug | sed -n "$(($1 + 1))p"
  else set -- $launched "$1"; local at=${!#}; shift "$at"; echo "$1"; fi
}
# Waits for all; the status is 0 when every rank's was.
landed() {
  local s=0 p
  for p in $launcher_pid $launched; do wait "$p" || s=1; done
  launched= launcher_pid=
  return $s
}
ranks() { launch "$@"; landed; }
