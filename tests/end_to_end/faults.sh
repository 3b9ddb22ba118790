#!/usr/bin/env bash
# What a job of several ranks does when something breaks: a full disk, a checkpoint that a dying rank leaves torn, data that does not divide
# by the ranks. Over MPI where mpirun is, else over TCP.
#   tests/end_to_end/faults.sh BUILD_FOLDER
# Prints each failure; exit status 1 if there is one.
# shellcheck disable=SC2046,SC2015,SC2154
. "$(dirname "$0")/ranks.inc.sh"
launcher=tcp
[ -e "$build/snug_mpi.so" ] && command -v mpirun >/dev/null && launcher=mpi

# ---- 13 rows on 4 ranks: as one rank that takes 4 rows a step ----
last='uneven rows'
for packing in --no-packing --packing; do
  rm -rf "$work/one" "$work/four"
  "$snug" $(train) --out "$work/one" --gradient-accumulation-steps 4 --num-train-epochs 2 $packing >"$out" 2>"$err" </dev/null || fail "$last: one rank"
  ranks 4 "$snug" $(train) --out "$work/four" --zero-stage 2 --num-train-epochs 2 $packing || fail "$last: four ranks"
  # step, loss, norm, tokens: of labels all count alike, wherever they are
  paste <(losses "$work/one") <(losses "$work/four") | tr -d ',{}' | awk '
    { n++; for (i = 1; i <= NF / 2; i++) if ($i ~ /"(step|tokens)":/ && $(i + 1) != $(i + 1 + NF / 2)) bad = 1
      for (i = 1; i <= NF / 2; i++) if ($i ~ /"(loss|grad_norm)":/) { d = $(i + 1) - $(i + 1 + NF / 2); if (d < 0) d = -d; if (!(d <= 1e-4 * $(i + 1))) bad = 1; seen++ } }
    END { exit bad || n < 2 || seen != 2 * n }' || { fail "$last ($packing): other steps, tokens or losses"; paste <(losses "$work/one") <(losses "$work/four"); }
done

# ---- a checkpoint is whole or passed over, whichever rank dies at whichever write ----
last='killed at a write'
if [ ! -e "$build/libkill_at_write.so" ]; then skip "$last: libkill_at_write.so is not built"; else
  last="$last (library)"
  job() { echo $(train) --zero-stage 3 --max-steps 4 --save-steps 2 --save-total-limit 1; }
  ranks 2 env LD_PRELOAD="$build/libkill_at_write.so" KILL_RANK=0 KILL_LOG="$work/calls0" "$snug" $(job) --out "$work/whole" || fail "$last: rank 0"
  rm -rf "$work/again"
  ranks 2 env LD_PRELOAD="$build/libkill_at_write.so" KILL_RANK=1 KILL_LOG="$work/calls1" "$snug" $(job) --out "$work/again" || fail "$last: rank 1"
  same "$work/whole" "$work/again"
  [ "$(wc -l <"$work/calls0")" -ge 20 ] && [ "$(wc -l <"$work/calls1")" -ge 4 ] || fail "$last: $(wc -l <"$work/calls0") and $(wc -l <"$work/calls1") writes"
  for victim in 0 1; do
    calls=$work/calls$victim
    total=$(wc -l <"$calls")
    # Every call that ends or renames something, those before them, and each n-th of the rest.
    picks=$(awk -v total="$total" -v n="${SNUG_TEST_EVERY_WRITE:-7}" '$2 != "pwrite" { p[$1] = 1; p[$1 - 1] = 1 } NR % n == 3 { p[NR] = 1 } END { for (i = 1; i <= total; i++) if (p[i]) print i }' "$calls")
    [ -n "${SNUG_TEST_EVERY_WRITE:-}" ] || picks=$(echo $picks | tr ' ' '\n' | awk '{ a[NR] = $1 } END { step = NR / 5; if (step < 1) step = 1; for (x = 1; x <= NR; x += step) print a[int(x)]; print a[NR] }' | uniq)
    for at in $picks; do
      last="rank $victim killed at write $at: $(sed -n "${at}p" "$calls" | cut -d' ' -f2- | sed "s,$work/,,")"
      rm -rf "$work/torn"
      ranks 2 env LD_PRELOAD="$build/libkill_at_write.so" KILL_RANK=$victim KILL_AT="$at" "$snug" $(job) --out "$work/torn" && fail "$last: status 0"
      ranks 2 "$snug" $(job) --out "$work/torn" --resume || fail "$last: resume"
      cmp -s "$work/whole/model.safetensors" "$work/torn/model.safetensors" || fail "$last: other weights than without it"
      [ -e "$work/torn/checkpoint-4/manifest.json" ] && [ -z "$(find "$work/torn" -name '*.partial')" ] || fail "$last: $(ls "$work/torn")"
    done
  done
fi

# ---- a full disk ----
last='a full disk'
mkdir "$work/disk"
if ! mount -t tmpfs -o size=24m tmpfs "$work/disk" 2>"$err"; then skip "$last: no tmpfs: $(head -1 "$err")"; else
  mounted=$work/disk
  last='a disk too small from the start'
  head -c $((24 * 1048576 - 300000)) /dev/zero >"$work/disk/filler"
  ranks 2 "$snug" $(train) --out "$work/disk/run" --zero-stage 3 --max-steps 4 && fail "$last: status 0"
  warns 'bytes free, checkpoints and export need'
  ranks 2 "$snug" $(train) --out "$work/elsewhere" --zero-stage 3 --max-steps 4 --offload-optimizer disk --offload-dir "$work/disk/run" && fail "$last: status 0"
  warns 'bytes free, values that rest on disk need'
  rm "$work/disk/filler"
  last='a disk that fills up'
  launch 2 "$snug" $(train) --out "$work/disk/run" --zero-stage 3 --max-steps 1000000 --save-steps 1 --logging-steps 1000000
  for _ in $(seq 200); do ls "$work/disk/run" 2>/dev/null | grep -q '^checkpoint-[0-9]*$' && break; sleep 0.1; done
  # Again and again: the run may be between two checkpoints, and the older one's room is enough for the next.
  while :; do cat /dev/zero >>"$work/disk/filler" 2>/dev/null; sleep 0.01; done &
  filling=$!
  landed && fail "$last: status 0"
  warns 'No space left on device'
  grep 'No space left' "$err" | grep -q "cannot .* $work/disk/run" || fail "$last: the file is not named: $(grep 'No space' "$err")"
  kill "$filling"; wait "$filling" 2>/dev/null
  rm "$work/disk/filler"
  saved=$(ls "$work/disk/run" | sed -n 's/^checkpoint-\([0-9]*\)$/\1/p' | sort -n | tail -1)
  ranks 2 "$snug" $(train) --out "$work/disk/run" --zero-stage 3 --max-steps $((saved + 2)) --resume || fail "$last: resume"
  warns "resumed at step $saved"
  umount -l "$work/disk"
  mounted=
fi
ends faults
