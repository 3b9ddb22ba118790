#!/usr/bin/env bash
# Checks that a technique stays in its room: an option of src/passes/X.c is read or set nowhere else in src but in X_*.c, its name
# is in no other file as a word of its own. PEFT's files speak of LoRA because their format does. Prints each finding; exit
# status 1 if there is one.
set -u
cd "$(dirname "$0")/.." || exit 1

# FILE:KEY that may stay, each for a reason.
known=$(sed 's/ *#.*//' <<'LIST'
src/engine/search.c:gradient_accumulation_steps  # the search divides micro-batches: a dimension of its own
src/engine/train_plan.c:gradient_accumulation_steps # how often a step runs its program
src/engine/deepspeed.c:gradient_accumulation_steps # rows of a whole step
src/engine/train.c:gradient_accumulation_steps   # how many micro-batches the loop feeds
src/engine/train_step.c:adam_beta1               # bias corrections are inputs of the update
src/engine/train_step.c:adam_beta2
src/engine/train.c:precision                     # fp16 needs the engine's dynamic loss scale
src/api/train.c:precision                        # which of the machine's peaks the share is of
src/passes/backward.c:precision                  # form of gradients at rest
src/passes/backward.c:gradient_dtype
src/passes/layerwise.c:lora                     # what it cannot be combined with
src/passes/layerwise.c:qlora
src/passes/gradient_release.c:max_grad_norm      # what it cannot be combined with
src/passes/gradient_release.c:precision
src/passes/gradient_release.c:gradient_accumulation_steps
src/passes/tensor_parallel.c:optimizer           # which updates it cannot be combined with
src/passes/tensor_parallel.c:gradient_release
src/passes/quantise.c:qlora                      # LoRA on a quantised base
LIST
)

bad=0
report() { grep -qxF "$1:$3" <<<"$known" || { echo "$1:$2: $3 belongs to $4"; bad=1; }; }
sources=$(find src -name '*.[ch]' ! -name '*_test.c' ! -path 'src/engine/peft*' ! -path 'src/cli/*' ! -path 'src/io/*' ! -path 'src/ops/*')
for own in $(grep -lE '^const sn_pass sn_pass_' src/passes/*.c); do
  for key in $(grep -o '{\.key = "[a-z0-9_]*"' "$own" | cut -d'"' -f2); do
    while IFS=: read -r file line _; do
      [ -n "$file" ] && [ "$file" != "$own" ] && [[ $file != "${own%.c}"_* ]] && report "$file" "$line" "$key" "$own"
    done < <(grep -nE "(sn_options_[a-z]+\([^\"]*|\{|,)\"$key\"|\"([a-z_]+,)*$key(,[a-z_]+)+\"|\"([a-z_]+,)+$key\"" $sources)
  done
done
for name in lora qlora recompute data_parallel; do # names that are no everyday words
  while IFS=: read -r file line _; do
    case "$file" in ""|src/passes/passes.def|src/passes/quantise.c) continue ;; esac
    grep -q "\"$name\"" "$file" && grep -q "^const sn_pass " "$file" && continue
    report "$file" "$line" "$name" "src/passes"
  done < <(grep -niwE "$name" $sources)
done
exit $bad
