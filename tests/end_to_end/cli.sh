#!/usr/bin/env bash
# The command line from outside: every verb on a tiny model, and what it says about bad input.
#   tests/end_to_end/cli.sh BUILD_FOLDER
# SNUG_TEST_GGUF=FILE adds SmolLM2-135M-Instruct. Prints each failure; exit status 1 if there is one.
set -u
root=$(cd "$(dirname "$0")/../.." && pwd)
build=$(cd "${1:-$root/build/release}" && pwd)
snug=$build/snug
golden=$root/tests/golden/cli
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export SNUG_HOME=$work/store HF_HUB_OFFLINE=1 NO_COLOR=1
failures=0
out=$work/out err=$work/err
plain=yes # not a sanitizer build: those say more on stderr and are slower
grep -q 'fsanitize' "$build/CMakeCache.txt" && plain=no

fail() { echo "FAILED: $1"; sed 's/^/  out: /' "$out" | head -5; sed 's/^/  err: /' "$err" | head -5; failures=$((failures + 1)); }

# run STATUS ARGUMENTS...: runs snug and checks the exit status.
run() {
  local want=$1; shift
  last="snug $*"
  "$snug" "$@" >"$out" 2>"$err" </dev/null
  local got=$?
  [ $got -eq "$want" ] || fail "$last: exit status $got, wanted $want"
}
says() { grep -qF -- "$1" "$out" || fail "$last: stdout lacks '$1'"; }
warns() { grep -qF -- "$1" "$err" || fail "$last: stderr lacks '$1'"; }
one_line_error() { [ "$(grep -c '^snug: ' "$err")" -eq 1 ] || fail "$last: wanted one 'snug: ' line"; }
equal() { [ "$1" = "$2" ] || fail "$3: '$1', wanted '$2'"; }
# number KEY: the value of "KEY": in the JSON that was printed.
number() { sed -n "s/.*\"$1\": *\(-\{0,1\}[0-9.eE+-]*\).*/\1/p" "$out" | head -1; }
near() { awk -v a="$1" -v b="$2" -v e="$3" 'BEGIN { d = a - b; if (d < 0) d = -d; exit !(a != "" && d <= e) }' || fail "$4: '$1', wanted $2 +- $3"; }
field() { sed -n "s/^ *\"$1\": \"\{0,1\}\(.*[^\",]\)\"\{0,1\},\{0,1\}$/\1/p" "$golden/expected.json" | head -1; }

# ---- help and usage ----
run 0 --help; says 'generate'; says 'detokenize'
run 2; warns 'usage: snug'
run 0 --version; says 'snug 0.'
run 0 version --json; says '{"version": "'
for verb in pull list show rm plan train merge generate chat eval bench tokenize detokenize explain probe version; do
  run 0 $verb --help; says "usage: snug $verb"
  lines=$(wc -l <"$out"); [ "$lines" -le 40 ] || fail "snug $verb --help has $lines lines, wanted at most 40"
  wide=$(awk 'length > 100' "$out" | wc -l); [ "$wide" -eq 0 ] || fail "snug $verb --help is wider than 100 columns"
  run 0 $verb --help-all; says "usage: snug $verb"
done
run 0 help plan; says 'usage: snug plan'
run 2 trian; warns "did you mean train?"; one_line_error
run 2 chat "$golden/tiny" --temprature 1; warns 'did you mean --temperature?'; one_line_error
run 2 generate "$golden/tiny" -p x --lora; warns 'generate has no option --lora'
run 2 generate "$golden/tiny"; warns '-p TEXT and -f FILE'
run 2 generate; warns 'needs a model'
run 2 show a b; warns 'one too many'
run 2 generate "$golden/tiny" -p x --temperature -1; one_line_error
run 2 generate "$golden/tiny" -p x --max-tokens many; warns 'many'; one_line_error
run 2 no-such-file.gguf; one_line_error

# ---- files that are not there, or broken ----
run 2 show no-such-model-at-all; warns 'no-such-model-at-all'; one_line_error
run 1 eval "$golden/tiny" --data "$work/none.txt"; warns 'none.txt'; one_line_error
for bytes in 0 3 30 3000 20000; do
  head -c $bytes "$golden/tiny.gguf" >"$work/cut.gguf"
  run 1 generate "$work/cut.gguf" -p x; warns 'cut.gguf'; one_line_error
done
# Everything is there but for the last byte of the last tensor: no verb begins with it.
cp "$golden/tiny.gguf" "$work/cut.gguf"; truncate -s -1 "$work/cut.gguf"
mkdir -p "$work/cut"; cp "$golden"/tiny/* "$work/cut/"; truncate -s -1 "$work/cut/model.safetensors"
printf '{"text": "a plan"}\n' >"$work/text.jsonl"
for model in cut.gguf cut; do
  run 1 show "$work/$model"; warns 'bytes'; one_line_error
  run 1 plan "$work/$model"; warns 'bytes'; one_line_error
  run 1 plan "$work/$model" --for generate; warns 'bytes'; one_line_error
  run 1 train "$work/$model" --data "$work/text.jsonl" --out "$work/cut-out" --lora; warns 'bytes'; one_line_error
  run 1 generate "$work/$model" -p x; warns 'bytes'; one_line_error
  run 1 merge "$work/$model" --out "$work/cut-out"; warns 'bytes'; one_line_error
  [ ! -e "$work/cut-out" ] || fail "$last: wrote $work/cut-out"
done
# Sizes whose products pass 2^64, or that no machine has.
for sizes in '4611686018427387904 64 2' '4294967296 4294967296 2' '100 64 4611686018427387904' '9223372036854775807 9223372036854775807 9223372036854775807'; do
  # shellcheck disable=SC2086
  set -- $sizes
  printf '{"model_type": "llama", "vocab_size": %s, "hidden_size": %s, "intermediate_size": 96, "num_hidden_layers": %s, "num_attention_heads": 4, "max_position_embeddings": 64}' "$1" "$2" "$3" >"$work/huge.json"
  run 1 plan "$work/huge.json"; one_line_error
done
mkdir -p "$work/broken"; cp "$golden"/tiny/* "$work/broken/"
head -c 50000 "$golden/tiny/model.safetensors" >"$work/broken/model.safetensors"
run 1 generate "$work/broken" -p x; warns 'model.safetensors'; one_line_error
run 1 generate llama-3-8b -p x; warns 'has no weights'; one_line_error
printf '{"text": "a"}\n{"text": \n' >"$work/bad.jsonl"
run 1 tokenize "$golden/tiny" --data "$work/bad.jsonl" --json; warns 'bad.jsonl:2'; one_line_error
run 2 tokenize "$golden/tiny" --data "$golden/rows.jsonl" --json; warns 'rows.jsonl:2'; warns '--chat'

# ---- plan ----
keys='total_bytes reserved_bytes peak_op by_tier by_class device host disk weights gradients optimizer activations kv_cache communication staging workspace gap'
for model in "$golden/tiny" "$golden/tiny.gguf" "$golden/tiny/config.json" llama-3-70b gpt2; do
  run 0 plan "$model" --json
  for key in $keys; do says "\"$key\": "; done
  sum=$(( $(number device) + $(number host) + $(number reserved_bytes) ))
  equal "$sum" "$(number total_bytes)" "$last: device + host + reserved"
  sum=0; for class in weights gradients optimizer activations kv_cache communication staging workspace gap; do sum=$((sum + $(number $class))); done
  equal "$sum" "$(( $(number device) + $(number host) ))" "$last: the classes' sum"
done
# ---- clusters that nobody has ----
run 0 plan zero-7.5b --full --precision bf16 --ranks 64 --zero-stage 3 --json
[ "$(number ranks)" = 64 ] && says '"rank": 0' || fail "$last: ranks"
awk -v r="$(sed 's/.*"at_rest": {\([^}]*\)}.*/\1/' "$out" | grep -oE '"(weights|gradients|optimizer)": [0-9]+' | awk '{ s += $2 } END { printf "%.0f", s }')" \
  'BEGIN { exit !(r > 1.862e9 && r < 1.938e9) }' || fail "$last: a rank's states"
run 0 plan llama-3-8b --full --precision bf16 --ranks 64 --zero-stage 3 --nodes 8 --device-shape h100-80g
says 'the largest of 64'; says 'the collectives of all agree'; says 'tokens/s a rank'; says "planned with CPU kernels' scratch"
run 1 plan llama-3-8b --full --precision bf16 --ranks 64 --device-shape rtx4090-24g; warns 'missing'; one_line_error
run 2 plan llama-3-8b --ranks 64 --nodes 7; warns '7 nodes'; one_line_error
run 2 plan llama-3-8b --ranks 1025; warns '1024'; one_line_error
run 2 plan llama-3-8b --device-shape b1000; warns 'h100-80g'; one_line_error
run 2 plan gpt2 --for generate --ranks 2; warns 'one rank'; one_line_error
run 2 train gpt2 --data x --out "$work/none" --ranks 2; warns 'train has no option --ranks'; one_line_error
printf 'ranks: 2\n' >"$work/ranks.yaml"
run 2 train gpt2 --data x --out "$work/none" --recipe "$work/ranks.yaml"; warns 'only planned'; one_line_error
run 0 plan gpt2 --compare; says 'as it is'; says 'recompute all'; says 'lossy'
run 0 plan gpt2 --compare --json; says '"rows": [{"pass": null'
run 2 plan gpt2 --compare --for generate; one_line_error
printf '{"zero_optimization": {"stage": 3}, "bf16": {"enabled": true}, "train_micro_batch_size_per_gpu": "auto"}' >"$work/ds.json"
run 0 plan zero-7.5b --ranks 64 --deepspeed "$work/ds.json" --json; same=$(number total_bytes)
run 0 plan zero-7.5b --ranks 64 --zero-stage 3 --precision bf16 --json
[ "$(number total_bytes)" = "$same" ] || fail "$last: another plan than by DeepSpeed's config"
printf '{"zero_optimization": {"offload_optimizer": {"device": "cpu"}}}' >"$work/ds.json"
run 1 plan gpt2 --deepspeed "$work/ds.json"; warns 'offload_optimizer host saves nothing'; one_line_error

run 0 plan "$golden/tiny"; says 'the peak is in'
run 0 plan llama-3-8b --for generate --ctx-size 512; says 'kv_cache'
run 1 plan llama-3-8b --memory 8GiB; says 'total'; warns 'missing'; one_line_error
run 0 plan llama-3-8b --memory 8TiB
if [ $plain = yes ]; then
  for _ in 1 2 3 4 5; do # other processes make a time longer, never shorter
    start=$(date +%s%N); run 0 plan llama-2-70b --recompute all; end=$(date +%s%N)
    [ $(( (end - start) / 1000000 )) -ge 1000 ] || break
  done
  [ $(( (end - start) / 1000000 )) -lt 1000 ] || fail "$last: $(( (end - start) / 1000000 )) ms, wanted less than a second"
fi
run 0 plan "$golden/tiny" --html "$work/plan.html"
grep -q 'model.layers.1.mlp.down_proj' "$work/plan.html" && tail -1 "$work/plan.html" | grep -q '</html>' || fail "plan --html: incomplete page"
grep -qE '(src|href)="?http|@import|fetch\(' "$work/plan.html" && fail "plan --html: the page reaches for a network"
run 1 plan "$golden/tiny" --html "$work/none/plan.html"; warns 'plan.html'; one_line_error
printf 'cutoff_len: 64\nlora: true\nlora_rank: 4\n' >"$work/recipe.yaml"
run 0 plan "$golden/tiny" --recipe "$work/recipe.yaml" --json; small=$(number total_bytes)
run 0 plan "$golden/tiny" --recipe "$work/recipe.yaml" --json --cutoff-len 512
[ "$(number total_bytes)" -gt "$small" ] || fail "$last: the command line does not count more than the recipe"
SNUG_CUTOFF_LEN=512 run 0 plan "$golden/tiny" --recipe "$work/recipe.yaml" --json
[ "$(number total_bytes)" -gt "$small" ] || fail "$last: the environment does not count more than the recipe"
printf 'cutof_len: 64\n' >"$work/recipe.yaml"
run 2 plan "$golden/tiny" --recipe "$work/recipe.yaml"; warns 'recipe.yaml:1'; one_line_error

# ---- show, explain, tokens ----
run 0 show "$golden/tiny.gguf"; says 'q8_0'; says 'chat template    yes'; says 'llama.block_count'
run 0 show "$golden/tiny" --json; says '"format": "huggingface"'; equal "$(number num_hidden_layers)" 2 "$last: layers"
run 0 show llama-3-8b; says 'no weights'
for stage in model 'after lora' after:backward quantise program; do run 0 explain "$golden/tiny" --lora --stage "$stage"; says 'program step'; done
run 0 explain "$golden/tiny" --lora --stage lora; says 'lora_A'
run 0 explain "$golden/tiny" --lora --stage model; grep -q lora_A "$out" && fail "$last: shows a pass that has not run"
run 0 explain "$golden/tiny" --for generate --program decode; says 'program decode'
run 0 explain "$golden/tiny" --program load; says 'io      read reference  in d+0x'
run 0 explain "$golden/tiny" --stage load --program load; says '= read @model'
run 2 explain "$golden/tiny" --stage nonsense; warns 'wanted one of model, program'
run 2 explain "$golden/tiny" --program nonsense; warns "no program 'nonsense'"
for model in tiny tiny.gguf; do
  run 0 tokenize "$golden/$model" --data "$golden/rows.jsonl" --chat --json
  cmp -s "$out" "$golden/rows.ids" || fail "$last: other ids than transformers"
done
run 0 detokenize "$golden/tiny" --data "$golden/rows.ids"
[ "$(head -1 "$out")" = 'The plan is the run.' ] || fail "$last: first row"
run 0 tokenize "$golden/tiny" --data "$golden/text.txt"; equal "$(wc -l <"$out")" "$(wc -l <"$golden/text.txt")" "$last: lines"
cp "$out" "$work/lines.ids"; run 0 detokenize "$golden/tiny" --data "$work/lines.ids"
cmp -s "$out" "$golden/text.txt" || fail "$last: text is not what was tokenized"
run 2 detokenize "$golden/tiny" 12x; warns '12x'
run 1 detokenize "$golden/tiny" 99999999; one_line_error

# ---- generate, chat, eval, bench ----
for model in tiny tiny.gguf; do
  run 0 generate "$golden/$model" -p "$(field prompt)" -n 12 --activations f32; warns 'activations: f32'
  equal "$(cat "$out")" "$(field continuation)" "$last: other text than transformers"
  run 0 eval "$golden/$model" --data "$golden/text.txt" --ctx-size 64 --json; warns 'activations: f32'
  near "$(number perplexity)" "$(field perplexity)" 0.0005 "$last: perplexity"
  equal "$(number tokens)" "$(field perplexity_tokens)" "$last: tokens"
done
run 0 generate "$golden/tiny.gguf" -p x -n 3 --verbose; warns 'activations: q8'; warns 'memory: planned'
run 0 eval "$golden/tiny.gguf" --data "$golden/text.txt" --ctx-size 64 --activations q8 --json
near "$(number perplexity)" "$(field perplexity)" 0.3 "$last: perplexity"
run 0 eval "$golden/tiny" --data "$golden/text.txt" --ctx-size 64 --stride 32; says 'sliding'
run 1 eval "$golden/tiny" --data "$golden/text.txt" --ctx-size 4096; one_line_error
run 0 eval "$golden/tiny" --data "$golden/text.txt" --dump-logits "$work/logits.safetensors" --json
equal "$(number tokens)" "$(field text_tokens)" "$last: tokens"
head -c 120 "$work/logits.safetensors" | tr -d '\0' | grep -q '"logits"' || fail "$last: no tensor logits"
printf '%s' "$(field prompt)" >"$work/prompt.txt"
run 0 generate "$golden/tiny" -f "$work/prompt.txt" -n 12 --json; says '"finish_reason": "length"'; equal "$(number completion_tokens)" 12 "$last: tokens"
run 2 generate "$golden/tiny" -p 'one two three four five six seven' --ctx-size 4; warns 'ctx_size'
run 0 generate "$golden/tiny" -p 'ab' --ctx-size 8 -n 50 --json; says '"finish_reason": "context"'
run 1 generate "$golden/tiny" -p x --memory 1MiB; warns 'missing'; one_line_error
run 0 generate "$golden/tiny" -p x -n 8 --temperature 1.5 --seed 3; cp "$out" "$work/first"
run 0 generate "$golden/tiny" -p x -n 8 --temperature 1.5 --seed 3; cmp -s "$out" "$work/first" || fail "$last: the same seed gives another text"
run 0 generate "$golden/tiny" -p x -n 8 --temperature 1.5 --seed 4; cmp -s "$out" "$work/first" && fail "$last: another seed gives the same text"
run 0 chat "$golden/tiny.gguf" -p 'What is a plan?' -n 6 --json; says '"role": "assistant"'
alone=$(number prompt_tokens)
run 0 chat "$golden/tiny.gguf" -p 'What is a plan?' -n 6 --system 'Answer in many words, please.' --json
[ "$(number prompt_tokens)" -gt "$alone" ] || fail "$last: the system prompt is not in the prompt"
last='snug chat, two turns and a reset'
printf 'What is a plan?\nAnd a budget?\n/reset\nWhat is a plan?\n/exit\nnever\n' | "$snug" chat "$golden/tiny" -n 6 --json -v >"$out" 2>"$err" || fail "$last: exit status"
equal "$(wc -l <"$out")" 3 "$last: answers"
[ "$(sed -n 1p "$out")" = "$(sed -n 3p "$out")" ] || fail "$last: after /reset the first question has another answer"
[ "$(sed -n 's/.* \([0-9]*\) of them kept.*/\1/p' "$err" | sed -n 2p)" -gt 0 ] || fail "$last: the second turn computes the first again"
last='snug chat, bytes that are no UTF-8'
printf 'caf\351 \377\376\nagain\n' | "$snug" chat "$golden/tiny" -n 5 --temperature 2 --json >"$out" 2>"$err" || fail "$last: exit status"
equal "$(wc -l <"$out")" 2 "$last: answers"
iconv -f UTF-8 -t UTF-8 "$out" >"$work/utf8" 2>/dev/null || fail "$last: the JSON is not UTF-8"
run 1 chat "$root/tests/golden/model_files/gpt2" -p x; one_line_error
run 0 bench "$golden/tiny.gguf" --prompt 16 --decode 4 --repetitions 1 --json; says '"prompt_tokens_per_s": '; says '"decode_tokens_per_s": '
run 2 bench "$golden/tiny.gguf" --prompt 0 --decode 0
run 0 bench "$golden/tiny.gguf" --prompt 8 --decode 0 --repetitions 2; says 'prompt 8'

# ---- train ----
printf '{"messages": [{"role": "user", "content": "What is a plan?"}, {"role": "assistant", "content": "The bill."}]}\n' >"$work/train.jsonl"
run 0 train "$golden/tiny" --data "$work/train.jsonl" --out "$work/adapter" --lora --learning-rate 0.02 --max-steps 40 --cutoff-len 64 --json; warns 'step 40/40'
equal "$(number steps)" 40 "$last: steps"
[ -s "$work/adapter/adapter_model.safetensors" ] || fail "$last: no adapter"
run 0 chat "$golden/tiny" -p 'What is a plan?' -n 16; grep -q 'The bill.' "$out" && fail "$last: says it before it was taught"
run 0 chat "$golden/tiny" -p 'What is a plan?' -n 16 --adapter "$work/adapter"; says 'The bill.'
run 2 train "$golden/tiny" --data "$work/train.jsonl"; warns '--out DIR'
printf '{"input_ids": [3, 4, 5, 6, 7, 8], "labels": [-100, -100, -100, -100, 7, 8]}\n' >"$work/masked.jsonl"
run 1 train "$golden/tiny" --data "$work/masked.jsonl" --out "$work/masked" --cutoff-len 4; warns '1 have no label within cutoff_len 4'; one_line_error
printf '{"text": ""}\n{"text": "  "}\n' >"$work/empty.jsonl"
run 1 train "$golden/tiny" --data "$work/empty.jsonl" --out "$work/masked"; one_line_error
run 1 train "$golden/tiny" --data "$work/train.jsonl" --out "$work/none" --memory 1MiB; warns 'missing'
[ ! -e "$work/none" ] || fail "$last: wrote $work/none although nothing fits"

# ---- merge ----
run 0 merge "$golden/tiny" --adapter "$work/adapter" --out "$work/merged" --form f32
run 0 chat "$work/merged" -p 'What is a plan?' -n 16; says 'The bill.'
run 0 merge "$golden/tiny" --adapter "$work/adapter" --out "$work/merged.gguf" --json; says '"bytes": '
run 0 chat "$work/merged.gguf" -p 'What is a plan?' -n 16; says 'The bill.'
run 2 merge "$golden/tiny"; warns '--out PATH'
run 1 merge "$golden/tiny" --adapter "$work/none" --out "$work/merged2"; one_line_error
run 1 merge llama-3-8b --out "$work/merged2"; warns 'has no weights'

# ---- the store and the probe ----
run 0 list --json; says '"name": "smollm2-135m-instruct", "path": null'
run 0 pull mine --from "$golden/tiny.gguf"; says "$work/store/models/mine"
run 0 list; grep 'mine' "$out" | grep -q pulled || fail "$last: the pulled model is not listed"
run 0 show mine; says 'GGUF'
run 0 rm mine
run 2 rm mine; one_line_error
run 1 pull other --from "$work/cut.gguf"; one_line_error
if [ $plain = yes ]; then
  run 0 probe --json; says '"f32_flops": '; says '"cached": false'
  run 0 probe --json; says '"cached": true'
fi

# ---- what cannot be written, an interrupt ----
if [ -w /dev/full ]; then
  last='snug version >/dev/full'; "$snug" version >/dev/full 2>"$err"; [ $? -eq 1 ] || fail "$last: exit status"
fi
last='snug train, interrupted'
"$snug" train "$golden/tiny" --data "$work/train.jsonl" --out "$work/long" --lora --max-steps 10000000 --cutoff-len 64 >"$out" 2>"$err" &
for _ in $(seq 100); do grep -q 'step 5/' "$err" && break; sleep 0.1; done
kill -INT $!; wait $!; equal $? 1 "$last: exit status"
says '--resume'
ls "$work"/long/checkpoint-*/manifest.json >/dev/null 2>&1 || fail "$last: no checkpoint"

# ---- the library from outside ----
last='examples/generate.c'
"$build/example_generate" "$golden/tiny" "$(field prompt)" >"$out" 2>"$err" || fail "$last: exit status"
case "$(cat "$out")" in "$(field continuation | cut -c1-8)"*) ;; *) fail "$last: other text" ;; esac
"$build/example_generate" "$work/cut.gguf" x >"$out" 2>"$err" && fail "$last: a broken file is no failure"
nm -D --defined-only "$build/libsnug.so" | awk '$2 ~ /[TDBR]/ { print $3 }' | grep -v '^snug_' | grep -vE '^(_init|_fini|__asan|__ubsan|__odr_asan|_edata|_end|__bss_start)' >"$out"
[ $plain = no ] || [ ! -s "$out" ] || fail "libsnug.so shows more than snug.h"
if [ $plain = yes ]; then
  last='cmake --install'
  cmake --install "$build" --prefix "$work/prefix" >"$out" 2>"$err" || fail "$last"
  export PKG_CONFIG_PATH=$(dirname "$(find "$work/prefix" -name snug.pc)")
  flags=$(pkg-config --cflags --libs snug) || fail "pkg-config snug"
  ${CC:-cc} -Wall -Wextra -Werror -o "$work/example" "$root/examples/generate.c" $flags >"$out" 2>"$err" || fail "examples/generate.c does not build against the installed library"
  LD_LIBRARY_PATH=$(dirname "$PKG_CONFIG_PATH") "$work/example" "$golden/tiny" "$(field prompt)" >"$out" 2>"$err" || fail "the installed example does not run"
  lines=$(wc -l <"$root/examples/generate.c"); [ "$lines" -le 36 ] || fail "examples/generate.c has $lines lines"
  "$work/prefix/bin/snug" version >"$out" 2>"$err" || fail "the installed program does not run"
fi

# ---- the real model ----
if [ -n "${SNUG_TEST_GGUF:-}" ]; then
  run 0 generate "$SNUG_TEST_GGUF" -p 'The capital of France is' -n 3; says ' Paris'
  run 0 chat "$SNUG_TEST_GGUF" -p 'What is the capital of France?' -n 12 --activations f32; says 'The capital of France is Paris.'
  run 0 plan "$SNUG_TEST_GGUF" --qlora --recompute all --json; [ "$(number total_bytes)" -lt 500000000 ] || fail "$last: $(number total_bytes) bytes"
fi

[ $failures -eq 0 ] && echo "cli: all passed"
exit $((failures > 0))
