#!/usr/bin/env python3
"""What ranks use and send against what was planned: SmolLM2, full fine-tuning, every ZeRO stage, over MPI (or TCP).

    python3 tests/interop/ranks_memory.py SNUG MODEL [--ranks 2,4] [--launcher mpi|tcp] [--work DIR] [OPTION of train...]

One line a run: the plan of rank 0 and its peak (VmHWM, loading, checkpoint and export included), MiB; the same summed over all ranks; and the
bytes that rank 0 sent in a step beside the plan's figure. Exit status 1 where a peak is above its plan or more than 2% below it, or bytes sent
differ.
"""
import argparse
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

STEPS = 2


def rows(path):
    with open(path, "w") as out:
        for i in range(64):
            text = " ".join(f"word{(i * 37 + k * 11) % 997}" for k in range(200))
            out.write(json.dumps({"text": text}) + "\n")


def launch(launcher, n, command):
    if launcher == "mpi":
        return subprocess.run(["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(n), *command], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    env = {**os.environ, "WORLD_SIZE": str(n), "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(20000 + os.getpid() % 20000)}
    ranks = [subprocess.Popen(command, env={**env, "RANK": str(r)}, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) for r in range(n)]
    ends = [r.communicate() for r in ranks]
    return subprocess.CompletedProcess(command, max(r.returncode for r in ranks), ends[0][0], "".join(e[1] for e in ends))


def main():
    p = argparse.ArgumentParser()
    p.add_argument("snug")
    p.add_argument("model")
    p.add_argument("--ranks", default="2,4")
    p.add_argument("--stages", default="0,1,2,3")
    p.add_argument("--launcher", default="mpi")
    p.add_argument("--work")
    a, more = p.parse_known_args()
    work = pathlib.Path(tempfile.mkdtemp(dir=a.work))
    rows(work / "rows.jsonl")
    shape = ["--full", "--cutoff-len", "64", "--threads", "1", *more]
    bad = 0
    mib = 1048576
    print("| ranks | stage | planned | peak | below | all planned | all peak | below | sent a step | planned |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    try:
        for n in map(int, a.ranks.split(",")):
            for stage in map(int, a.stages.split(",")):
                zero = ["--zero-stage", str(stage)]
                out = work / "out"
                shutil.rmtree(out, ignore_errors=True)
                run = launch(a.launcher, n, [a.snug, "train", a.model, "--data", str(work / "rows.jsonl"), "--train-on", "all", "--out", str(out), "--max-steps", str(STEPS), *shape, *zero])
                if run.returncode:
                    print(run.stderr[-2000:], file=sys.stderr)
                    return 1
                s = json.loads((out / "summary.json").read_text())
                below = 1 - s["peak_bytes"] / s["planned_bytes"]
                all_below = 1 - s["peak_bytes_of_all_ranks"] / s["planned_bytes_of_all_ranks"]
                sent, planned_sent = s["sent_bytes"] / STEPS, s["planned_sent_bytes_a_step"]
                bad += not 0 <= below <= 0.02 or not 0 <= all_below <= 0.02 or sent != planned_sent
                print(f"| {n} | {stage} | {s['planned_bytes'] / mib:.1f} | {s['peak_bytes'] / mib:.1f} | {below:.1%} | {s['planned_bytes_of_all_ranks'] / mib:.1f} "
                      f"| {s['peak_bytes_of_all_ranks'] / mib:.1f} | {all_below:.1%} | {sent:.0f} | {planned_sent:.0f} |", flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
