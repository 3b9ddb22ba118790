"""Prompt and decode speed of llama.cpp (llama-cpp-python, native build) on a GGUF: prints one JSON line.

    llama_bench.py MODEL.gguf [PROMPT] [DECODE] [REPETITIONS] [THREADS]
"""
import json, os, sys, time
import llama_cpp

path = sys.argv[1]
prompt, decode, repetitions = (int(sys.argv[i]) if len(sys.argv) > i else d for i, d in ((2, 512), (3, 128), (4, 3)))
threads = int(sys.argv[5]) if len(sys.argv) > 5 else len(os.sched_getaffinity(0))
model = llama_cpp.Llama(path, n_ctx=prompt + decode + 8, n_batch=prompt, n_ubatch=prompt, n_threads=threads, n_threads_batch=threads, verbose=False)
tokens = [(i * 7919) % 40000 + 5 for i in range(prompt)]
best_prompt = best_decode = 0
for _ in range(repetitions):
    model.reset()
    start = time.perf_counter()
    model.eval(tokens)
    middle = time.perf_counter()
    for i in range(decode):
        model.eval([(i * 104729) % 40000 + 5])
    end = time.perf_counter()
    best_prompt, best_decode = max(best_prompt, prompt / (middle - start)), max(best_decode, decode / (end - middle))
peak = next(int(line.split()[1]) for line in open("/proc/self/status") if line.startswith("VmHWM")) / 1024
print(json.dumps({"what": f"llama.cpp {os.path.basename(path)}", "prompt_tokens_per_s": best_prompt, "decode_tokens_per_s": best_decode, "peak_mib": peak}))
