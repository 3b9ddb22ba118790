#!/usr/bin/env bash
# Is the planner's choice the fastest? Trains one job in all 224 ways that its exact and reordered choices give on one rank (7 recomputations,
# 8 places of weights, gradients and states, micro-batches of 8, 4, 2 and 1 rows), then lets `--fit on` choose at 25, 50 and 75% of what
# the job takes without any of them, and compares what was chosen with the best that was measured and fits.
#
#   bench/planner_sweep.sh SNUG WORK [STEPS] [EVERY]   some ten minutes on a machine that does nothing else; EVERY n: each n-th way only
#
# WORK: a folder on the disk that offloading goes to, 2 GiB free. The machine is measured first (snug probe), into WORK. A row is measured by
# the fastest of its steps after the first. Prints JSON lines and a table.
set -eu
snug=$(realpath "$1") work=$2 steps=${3:-4} every=${4:-1}
mkdir -p "$work/disk"
export SNUG_HOME=$work/store
echo "# $(date -I) bench/planner_sweep.sh, $(nproc) processors: $(sed -n 's/^model name\t*: //p' /proc/cpuinfo | head -1), load $(cut -d' ' -f1 /proc/loadavg)"
echo "# flags: $(grep -m1 ^flags /proc/cpuinfo | tr ' ' '\n' | grep -E '^(avx2|fma|f16c|avx512f|avx512bw|avx512_bf16|avx512_vnni)$' | tr '\n' ' ')"
cat >"$work/config.json" <<'JSON'
{"model_type": "llama", "architectures": ["LlamaForCausalLM"], "vocab_size": 8192, "hidden_size": 576, "intermediate_size": 1536,
 "num_hidden_layers": 4, "num_attention_heads": 9, "num_key_value_heads": 3, "max_position_embeddings": 2048, "rms_norm_eps": 1e-5,
 "rope_theta": 10000, "hidden_act": "silu", "tie_word_embeddings": true}
JSON
python3 - >"$work/data.jsonl" <<'PY'
import json, random
random.seed(1)
for _ in range(64):
    ids = [random.randrange(8192) for _ in range(128)]
    print(json.dumps({"input_ids": ids, "labels": ids}))
PY
"$snug" probe --again --disk "$work/disk" | sed 's/^/# /'
job=(--full --cutoff-len 128 --offload-dir "$work/disk")
places=("" "--offload-param disk:0.5" "--offload-param disk" "--offload-optimizer disk:0.5" "--offload-optimizer disk"
  "--offload-optimizer disk --offload-gradients disk" "--offload-optimizer disk --offload-gradients disk --offload-param disk:0.5"
  "--offload-optimizer disk --offload-gradients disk --offload-param disk")
: >"$work/rows.jsonl"
n=0
for rows in 8 4 2 1; do
  for recompute in none light selective attention every:4 every:2 all; do
    for place in "${places[@]}"; do
      n=$((n + 1))
      [ $((n % every)) -eq 0 ] || [ $n -eq 1 ] || continue
      rm -rf "$work/out"
      # shellcheck disable=SC2086
      "$snug" train "$work/config.json" --data "$work/data.jsonl" --out "$work/out" "${job[@]}" --train-on all --max-steps "$steps" \
        --learning-rate 1e-5 --recompute $recompute $place --per-device-train-batch-size $rows --gradient-accumulation-steps $((8 / rows)) \
        --json 2>/dev/null | tail -1 >"$work/one.json"
      python3 - "$work" "$rows" "$recompute" "$place" <<'PY' | tee -a "$work/rows.jsonl"
import json, sys
work, rows, recompute, place = sys.argv[1:]
one = json.load(open(f"{work}/one.json"))
steps = [json.loads(line) for line in open(f"{work}/out/metrics.jsonl")]
seconds = min(8 * 128 / s["tokens_per_s"] for s in steps[1:] if "tokens_per_s" in s)
print(json.dumps({"rows": int(rows), "recompute": recompute, "place": place, "bytes": one["planned_bytes"], "peak": one["peak_bytes"],
                  "seconds": round(seconds, 4), "estimated": round(one["estimated_step_seconds"], 4)}))
PY
    done
  done
done
full=$(python3 -c "import json,sys; print(json.loads(open(sys.argv[1]).readline())['bytes'])" "$work/rows.jsonl")
for part in 25 50 75; do
  "$snug" plan "$work/config.json" "${job[@]}" --recompute none --per-device-train-batch-size 8 --fit on --memory $((full * part / 100)) --json \
    >"$work/plan.$part.json" 2>"$work/plan.$part.err" || true
done
python3 - "$work" "$full" <<'PY'
import json, shlex, sys
work, full = sys.argv[1], int(sys.argv[2])
rows = [json.loads(line) for line in open(f"{work}/rows.jsonl")]
errors = sorted(abs(r["estimated"] / r["seconds"] - 1) for r in rows)
print(f"{len(rows)} ways; estimates are off by {100 * errors[len(errors) // 2]:.0f}% in the middle, {100 * errors[int(0.9 * len(errors))]:.0f}% at nine of ten")
for part in (25, 50, 75):
    budget = full * part // 100
    fits = [r for r in rows if r["bytes"] <= budget]
    text = open(f"{work}/plan.{part}.json").read()
    if not text or not fits:
        print(f"{part}%: {len(fits)} ways fit; planner: {open(f'{work}/plan.{part}.err').read().strip()[:300]}")
        continue
    fit = json.loads(text)["fit"]
    chosen = fit["choices"][0]
    words = shlex.split(chosen["change"])
    o = dict(zip(words[::2], words[1::2]))
    place = " ".join(f"{k} {o[k]}" for k in ("--offload-optimizer", "--offload-gradients", "--offload-param") if k in o)
    key = (int(o.get("--per-device-train-batch-size", 8)), o.get("--recompute", "none"), place)
    mine = [r for r in fits if (r["rows"], r["recompute"], r["place"]) == key]
    best = min(fits, key=lambda r: r["seconds"])
    kind = [r for r in fits if (r["rows"] == 8) == (chosen["kind"] == "exact")]
    alike = min(kind, key=lambda r: r["seconds"]) if kind else best
    took = mine[0]["seconds"] if mine else float("nan")
    print(f"{part}% = {budget} bytes, {len(fits)} ways fit ({len(kind)} {chosen['kind']}): chose {chosen['change']} ({chosen['kind']}, {fit['planned']} plans): "
          f"{took} s, estimated {chosen['step_seconds']:.4f}; best {chosen['kind']} {alike['seconds']} s "
          f"({alike['recompute']}, {alike['place'] or 'memory'}, {alike['rows']} rows): {took / alike['seconds']:.3f} x; "
          f"best of all {best['seconds']} s ({best['recompute']}, {best['place'] or 'memory'}, {best['rows']} rows): {took / best['seconds']:.3f} x")
PY
