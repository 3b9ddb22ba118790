#!/usr/bin/env bash
# Ranks as processes without MPI: started by anything that says RANK, WORLD_SIZE, MASTER_ADDR, MASTER_PORT. The same bits as ranks that are
# threads; a rank that dies, is stuck, differs; torch.distributed.run; network namespaces.
#   tests/end_to_end/tcp.sh BUILD_FOLDER
# Prints each failure; exit status 1 if there is one. SNUG_TEST_TORCH: a Python that has torch, for the launcher of that.
# shellcheck disable=SC2046,SC2015,SC2154
. "$(dirname "$0")/ranks.inc.sh"
launcher=tcp
export SNUG_MPI_MODULE=$work/absent.so # whatever joins here needs no MPI

compare() { # ranks, options...
  local n=$1; shift
  last="$n ranks, $*"
  rm -rf "$work/threads" "$work/processes"
  "$snug" $(train) --out "$work/threads" --thread-ranks "$n" "$@" >"$out" 2>"$err" </dev/null || fail "$last: threads"
  ranks "$n" "$snug" $(train) --out "$work/processes" "$@" || fail "$last: processes"
  [ "$(grep -c '^done after' "$out")" = 1 ] || fail "$last: wanted one report"
  same "$work/threads" "$work/processes"
}
compare 2 --zero-stage 0 --num-train-epochs 2
compare 3 --zero-stage 2 --num-train-epochs 1
compare 4 --zero-stage 3 --num-train-epochs 2
compare 4 --context-parallel-size 2 --packing --num-train-epochs 1
compare 4 --zero-stage 3 --gradient-accumulation-steps 4 --precision bf16 --eval-fraction 0.2 --packing --num-train-epochs 3
compare 4 --zero-stage 3 --nodes 2 --zero-partition node --gradient-accumulation-steps 2 --num-train-epochs 1
compare 2 --zero-stage 3 --zero-gather-dtype int8 --gradient-sync step --gradient-accumulation-steps 2 --num-train-epochs 1
for more in '' '--lora --lora-dropout 0.1'; do # a stage a process
  # shellcheck disable=SC2086
  compare 2 --pipeline-parallel-size 2 --gradient-accumulation-steps 4 --eval-fraction 0.2 --num-train-epochs 2 $more
  within_plan "$work/processes"
done
compare 4 --pipeline-parallel-size 2 --zero-stage 2 --gradient-accumulation-steps 2 --num-train-epochs 1
within_plan "$work/processes"
last='4 ranks as 2 x 2' # rows and columns of the mesh talk apart; every process plans its own rank
rm -rf "$work/threads" "$work/processes"
"$snug" $(train) --out "$work/threads" --thread-ranks 4 --context-parallel-size 2 --zero-stage 1 --num-train-epochs 1 >"$out" 2>"$err" </dev/null || fail "$last: threads"
ranks 4 "$snug" $(train) --out "$work/processes" --context-parallel-size 2 --zero-stage 1 --num-train-epochs 1 || fail "$last: processes"
same "$work/threads" "$work/processes"

# ---- machines by their names: ranks find out which of them share a node ----
named() { # file of hostnames by rank, options...: 4 ranks
  local hosts=$1 r; shift
  port=$((port + 1)) launched=
  : >"$out"; : >"$err"
  for r in 0 1 2 3; do
    RANK=$r WORLD_SIZE=4 MASTER_ADDR=127.0.0.1 MASTER_PORT=$port unshare --uts sh -c 'hostname "$0" && exec "$@"' "$(echo "$hosts" | cut -d' ' -f$((r + 1)))" \
      "$snug" $(train) --out "$work/processes" --num-train-epochs 1 "$@" >>"$out" 2>>"$err" </dev/null &
    launched="$launched $!"
  done
  landed
}
last='two names of two ranks each'
if unshare --uts hostname nobody 2>/dev/null; then
  rm -rf "$work/threads" "$work/processes"
  node='--zero-stage 3 --zero-partition node --eval-fraction 0.2'
  "$snug" $(train) --out "$work/threads" --num-train-epochs 1 --thread-ranks 4 --nodes 2 $node >"$out" 2>"$err" </dev/null || fail "$last: threads"
  named 'a a b b' $node || fail "$last: processes"
  same "$work/threads" "$work/processes"
  last='nodes of 3 ranks and of 1'
  named 'a a a b' $node && fail "$last: status 0"
  warns 'zero_partition is node, but the nodes do not all have the same number of ranks'
  last='nodes by turns'
  named 'a b a b' $node && fail "$last: status 0"
  warns 'zero_partition is node, but the nodes do not all have the same number of ranks'
else skip "$last: no namespaces for names"; fi

# ---- a rank that dies, that is stuck, that differs, that does not come ----
last='kill -9 of a rank'
launch 3 "$snug" $(train) --out "$work/killed" --max-steps 100000000
if await "$work/killed/metrics.jsonl"; then
  start=$SECONDS
  kill -9 "$(rank_pid 1)"
  landed && fail "$last: status 0"
  [ $((SECONDS - start)) -le 10 ] || fail "$last: the others went on for $((SECONDS - start)) seconds"
  [ "$(grep -c 'rank [02]: rank 1 is gone' "$err")" = 2 ] || fail "$last: both others have to name rank 1"
fi
last='a rank that is stuck'
launch 3 "$snug" $(train) --out "$work/stuck" --max-steps 100000000 --rank-timeout 2
if await "$work/stuck/metrics.jsonl"; then
  start=$SECONDS victim=$(rank_pid 2)
  kill -STOP "$victim"
  sleep 1
  while [ "$(jobs -r | wc -l)" -gt 1 ] && [ $((SECONDS - start)) -le 20 ]; do sleep 0.2; done
  kill -9 "$victim"
  landed && fail "$last: status 0"
  [ $((SECONDS - start)) -le 15 ] || fail "$last: the others went on for $((SECONDS - start)) seconds"
  warns 'no word for 2 seconds (rank_timeout)'
  grep 'no word' "$err" | grep -q 'from rank.* 2' || fail "$last: rank 2 is not named"
fi
last='a rank with other options'
port=$((port + 1)) launched=
for r in 0 1; do
  RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port "$snug" $(train) --out "$work/other" --learning-rate 0.0$((r + 1)) >"$out" 2>"$err.$r" </dev/null &
  launched="$launched $!"
done
landed && fail "$last: status 0"
cat "$err.0" "$err.1" >"$err"
warns 'rank 1 has another learning_rate than rank 0 (here: 0.01)'
warns 'rank 1 has another learning_rate than rank 0 (here: 0.02)'
last='a rank that does not come'
RANK=0 WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$((port + 1)) "$snug" $(train) --out "$work/none" --rank-timeout 0.5 >"$out" 2>"$err" </dev/null && fail "$last: status 0"
warns 'these of 2 ranks have not come: 1'

# ---- a machine without a table of hosts, as small containers are ----
last='localhost that nothing resolves'
if unshare --mount mount --bind /dev/null /etc/hosts 2>/dev/null; then
  port=$((port + 2)) launched=
  : >"$out"; : >"$err"
  for r in 0 1; do
    RANK=$r WORLD_SIZE=2 MASTER_ADDR=localhost MASTER_PORT=$port unshare --mount sh -c 'for f in hosts nsswitch.conf resolv.conf; do [ ! -f /etc/$f ] || mount --bind /dev/null /etc/$f; done; exec "$@"' - \
      "$snug" $(train) --out "$work/nameless" --num-train-epochs 1 --rank-timeout 10 >>"$out" 2>>"$err" </dev/null &
    launched="$launched $!"
  done
  landed || fail "$last: $(cat "$err")"
fi

# ---- torch's launcher: its agent keeps MASTER_PORT for itself ----
last='torch.distributed.run'
if "${SNUG_TEST_TORCH:-false}" -c 'import torch.distributed.run' 2>/dev/null; then
  rm -rf "$work/threads" "$work/torch"
  "$snug" $(train) --out "$work/threads" --thread-ranks 2 --zero-stage 3 --num-train-epochs 1 >"$out" 2>"$err" </dev/null || fail "$last: threads"
  timeout 120 "$SNUG_TEST_TORCH" -m torch.distributed.run --standalone --nproc-per-node 2 --no-python "$snug" $(train) --out "$work/torch" --zero-stage 3 --num-train-epochs 1 \
    >"$out" 2>"$err" </dev/null || fail "$last: status $?"
  same "$work/threads" "$work/torch"
else skip "$last: SNUG_TEST_TORCH names no Python with torch"; fi

# ---- two machines: a network namespace each, joined by a pair of virtual cards ----
last='network namespaces'
a=snug$$a b=snug$$b
if ! command -v ip >/dev/null; then skip "$last: no ip (iproute2)"
elif ! { ip netns add $a && ip netns add $b; } 2>"$err"; then skip "$last: not permitted: $(head -1 "$err")"; ip netns del $a 2>/dev/null
else
  ip link add v$a netns $a type veth peer name v$b netns $b 2>"$err" && ip -n $a addr add 10.199.0.1/24 dev v$a && ip -n $b addr add 10.199.0.2/24 dev v$b &&
    ip -n $a link set v$a up && ip -n $b link set v$b up && ip -n $a link set lo up || skip "$last: no virtual cards: $(head -1 "$err")"
  if [ -z "$(ip -n $a link show v$a 2>/dev/null)" ]; then :; else
    rm -rf "$work/threads" "$work/spaces"
    "$snug" $(train) --out "$work/threads" --thread-ranks 3 --zero-stage 3 --num-train-epochs 1 >"$out" 2>"$err" </dev/null || fail "$last: threads"
    launched=
    : >"$err"
    for r in 0 1 2; do # ranks 0 and 2 here, 1 there
      RANK=$r WORLD_SIZE=3 MASTER_ADDR=10.199.0.1 MASTER_PORT=29500 timeout 60 ip netns exec "$([ $r = 1 ] && echo $b || echo $a)" \
        "$snug" $(train) --out "$work/spaces" --zero-stage 3 --num-train-epochs 1 >>"$out" 2>>"$err" </dev/null &
      launched="$launched $!"
    done
    landed || fail "$last"
    same "$work/threads" "$work/spaces"
    last='a cable that is cut'
    launched=
    : >"$err"
    for r in 0 1; do
      RANK=$r WORLD_SIZE=2 MASTER_ADDR=10.199.0.1 MASTER_PORT=29501 timeout 60 ip netns exec "$([ $r = 1 ] && echo $b || echo $a)" \
        "$snug" $(train) --out "$work/cut" --max-steps 100000000 --rank-timeout 2 >>"$out" 2>>"$err" </dev/null &
      launched="$launched $!"
    done
    if await "$work/cut/metrics.jsonl"; then
      start=$SECONDS
      ip -n $b link set v$b down
      landed && fail "$last: status 0"
      [ $((SECONDS - start)) -le 15 ] || fail "$last: the ranks went on for $((SECONDS - start)) seconds"
      grep -q 'rank 0: no word for 2 seconds.* from rank 1' "$err" && grep -q 'rank 1: .*rank 0' "$err" || fail "$last: the ranks do not name each other"
    fi
  fi
  ip netns del $a; ip netns del $b
fi
ends tcp
