#!/usr/bin/env bash
# Ranks as processes: the same bits as ranks that are threads, and what happens when a rank dies, is stuck, differs or is asked to
# stop.
#   tests/end_to_end/mpi.sh BUILD_FOLDER
# Prints each failure; exit status 1 if there is one. Needs mpirun (Open MPI) and a build with snug_mpi.so.
# shellcheck disable=SC2046,SC2015,SC2010,SC2154
. "$(dirname "$0")/ranks.inc.sh"
launcher=mpi
# The processes of snug below an mpirun, in order of rank.
children() { pgrep -P "$1" -x snug; }

# ---- the same bits ----
compare() { # ranks, options...
  local n=$1; shift
  last="$n ranks, $*"
  rm -rf "$work/threads" "$work/processes"
  "$snug" $(train) --out "$work/threads" --thread-ranks "$n" "$@" >"$out" 2>"$err" </dev/null || fail "$last: threads"
  ranks "$n" "$snug" $(train) --out "$work/processes" "$@" || fail "$last: processes, status $?"
  [ "$(grep -c '^done after' "$out")" = 1 ] || fail "$last: wanted one report"
  same "$work/threads" "$work/processes"
}
for n in 2 3 4; do
  for stage in 0 1 2 3; do
    compare $n --zero-stage $stage --num-train-epochs 2
  done
done
compare 4 --zero-stage 3 --gradient-accumulation-steps 4 --precision bf16 --eval-fraction 0.2 --packing --num-train-epochs 3
compare 2 --zero-stage 2 --lora --num-train-epochs 1 --save-steps 2 --gradient-accumulation-steps 2
compare 3 --zero-stage 2 --optimizer adamw_8bit --num-train-epochs 1
compare 2 --zero-stage 3 --optimizer muon --num-train-epochs 1
compare 3 --zero-stage 3 --zero-gather-dtype int8 --num-train-epochs 1
compare 4 --zero-stage 2 --gradient-sync step --gradient-accumulation-steps 3 --num-train-epochs 1
compare 4 --zero-stage 3 --nodes 2 --zero-partition node --gradient-sync step --gradient-accumulation-steps 2 --num-train-epochs 1
OMPI_MCA_btl=self,tcp compare 3 --zero-stage 3 --num-train-epochs 1
compare 3 --zero-stage 1 --precision fp16 --recompute all --num-train-epochs 1
compare 2 --context-parallel-size 2 --num-train-epochs 1 --eval-fraction 0.2
compare 4 --context-parallel-size 2 --zero-stage 3 --packing --num-train-epochs 1
for more in '' '--pipeline-schedule gpipe --recompute all' '--lora --lora-dropout 0.1'; do # a stage a process
  # shellcheck disable=SC2086
  compare 2 --pipeline-parallel-size 2 --gradient-accumulation-steps 4 --eval-fraction 0.2 --num-train-epochs 2 $more
  within_plan "$work/processes"
done
compare 4 --pipeline-parallel-size 2 --zero-stage 2 --gradient-accumulation-steps 2 --num-train-epochs 1
within_plan "$work/processes"
compare 4 --pipeline-parallel-size 2 --context-parallel-size 2 --gradient-accumulation-steps 2 --num-train-epochs 1

# ---- resume: stopped in the middle by one rank, then on to the end ----
last='a rank that is asked to stop'
"$snug" $(train) --out "$work/whole" --thread-ranks 3 --max-steps 1000 --logging-steps 50 >"$out" 2>"$err" </dev/null || fail "$last: threads"
mpirun --allow-run-as-root --oversubscribe -n 3 "$snug" $(train) --out "$work/halves" --zero-stage 3 --max-steps 1000 --logging-steps 50 >"$out" 2>"$err" </dev/null &
launcher=$!
if await "$work/halves/metrics.jsonl"; then
  kill -INT "$(children $launcher | sed -n 2p)"
  wait $launcher
  ls "$work/halves" | grep -q checkpoint- || fail "$last: no checkpoint"
  [ ! -e "$work/halves/checkpoint-1000" ] || fail "$last: it did not stop"
  ranks 3 "$snug" $(train) --out "$work/halves" --zero-stage 3 --max-steps 1000 --logging-steps 50 --resume || fail "$last: resume"
  warns 'resumed at step'
  cmp -s "$work/whole/model.safetensors" "$work/halves/model.safetensors" || fail "$last: other weights than without a stop"
fi

# ---- resume anywhere: another number of ranks, another stage, 12 rows a step all the same ----
last='saved at 4 ranks'
ranks 4 "$snug" $(train) --out "$work/four" --zero-stage 3 --gradient-accumulation-steps 3 --max-steps 6 --save-steps 4 --save-total-limit 0 || fail "$last"
for n in 1 2 3 4; do
  last="saved at 4 ranks, resumed at $n"
  rm -rf "$work/other"
  mkdir "$work/other"
  cp -r "$work/four/checkpoint-4" "$work/four/metrics.jsonl" "$work/other"
  ranks $n "$snug" $(train) --out "$work/other" --zero-stage $((n - 1)) --gradient-accumulation-steps $((12 / n)) --max-steps 6 --resume || fail "$last: status $?"
  warns 'resumed at step 4'
  paste <(losses "$work/four" | tail -2) <(losses "$work/other" | tail -2) | tr -d ',' |
    awk '{ a = $4; b = $14; d = a - b; if (d < 0) d = -d; if ($2 != $12 || !(a > 0) || d > 1e-5 * a) next; n++ } END { exit n != 2 }' || fail "$last: other losses"
  [ $n -ne 4 ] || cmp -s "$work/four/model.safetensors" "$work/other/model.safetensors" || fail "$last: other weights"
done

last='a torn checkpoint'
newest=$work/halves/checkpoint-1000/state.safetensors
printf X | dd of="$newest" bs=1 seek=$(($(stat -c %s "$newest") - 9)) conv=notrunc status=none
ranks 3 "$snug" $(train) --out "$work/halves" --zero-stage 3 --max-steps 1000 --logging-steps 1000 --resume || fail "$last: resume"
warns 'checkpoint-1000 is passed over'

# ---- a rank that dies, that is stuck, that differs ----
last='kill -9 of a rank'
mpirun --allow-run-as-root --oversubscribe -n 3 "$snug" $(train) --out "$work/killed" --max-steps 100000000 >"$out" 2>"$err" </dev/null &
launcher=$!
if await "$work/killed/metrics.jsonl"; then
  victim=$(children $launcher | sed -n 2p)
  start=$SECONDS
  kill -9 "$victim"
  wait $launcher && fail "$last: status 0"
  [ $((SECONDS - start)) -le 10 ] || fail "$last: the others went on for $((SECONDS - start)) seconds"
  grep -q 'rank 1' "$err" || fail "$last: rank 1 is not named"
fi

last='a rank that is stuck'
mpirun --allow-run-as-root --oversubscribe -n 3 "$snug" $(train) --out "$work/stuck" --max-steps 100000000 --rank-timeout 2 >"$out" 2>"$err" </dev/null &
launcher=$!
if await "$work/stuck/metrics.jsonl"; then
  victim=$(children $launcher | sed -n 3p)
  start=$SECONDS
  kill -STOP "$victim"
  wait $launcher && fail "$last: status 0"
  [ $((SECONDS - start)) -le 15 ] || fail "$last: the others went on for $((SECONDS - start)) seconds"
  warns 'no word for 2 seconds (rank_timeout)'
  grep 'no word' "$err" | grep -q 'from rank.* 2' || fail "$last: rank 2 is not named"
fi

last='a rank with other options'
timeout 60 mpirun --allow-run-as-root --oversubscribe -n 1 "$snug" $(train) --out "$work/other" : -n 1 "$snug" $(train) --out "$work/other" --seed 7 >"$out" 2>"$err" </dev/null &&
  fail "$last: status 0"
warns 'rank 1 has another seed than rank 0 (here: 42)'

last='a rank that does not see the folder'
timeout 60 mpirun --allow-run-as-root --oversubscribe -n 1 "$snug" $(train) --out "$work/here" : -n 1 "$snug" $(train) --out "$work/there" >"$out" 2>"$err" </dev/null &&
  fail "$last: status 0"
warns 'every rank has to see the same one'

# ---- launches that cannot be ----
last='thread ranks in processes'
ranks 2 "$snug" $(train) --out "$work/none" --thread-ranks 2 && fail "$last: status 0"
warns 'a rank each'
last='torchrun without MPI'
RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 MASTER_ADDR=localhost "$snug" $(train) --out "$work/none" >"$out" 2>"$err" </dev/null && fail "$last: status 0"
warns 'WORLD_SIZE says that this is rank 1 of 2 processes: MPI sees rank 0 of 1'
warns 'MASTER_ADDR and MASTER_PORT say where to join'
last='a rank that cannot be'
RANK=2 WORLD_SIZE=2 "$snug" $(train) --out "$work/none" >"$out" 2>"$err" </dev/null && fail "$last: status 0"
warns 'RANK is 2 and WORLD_SIZE is 2'
last='no module'
SNUG_MPI_MODULE=$work/absent.so RANK=0 WORLD_SIZE=2 "$snug" $(train) --out "$work/none" >"$out" 2>"$err" </dev/null && fail "$last: status 0"
warns 'this build has no MPI to join them'

ends mpi
