#!/usr/bin/env python3
"""What values that rest on disk read and write a step, by the system's own count, against the plan; and the peak against the plan.

    python3 tests/interop/disk_bytes.py SNUG MODEL WORK [--ranks N]     WORK: a folder on a disk (not tmpfs), 3 GiB free

Every job is run for 2 steps and for 5. The system counts the bytes that each process had from and sent to its disks (/proc/self/io, which
getrusage hands on in units of 512 bytes); the difference, over 3 steps, is a step's. With ranks it is that of all, against so many times
rank 0's plan. Exit status 1 where it is more than 0.5% off (what else a process reads and logs; with ranks 1%: the last shards are smaller), or a peak above its plan or more than 2% below it.
"""
import argparse
import json
import pathlib
import resource
import shutil
import subprocess
import sys
import tempfile

JOBS = {
    "states": "--offload-optimizer disk",
    "half of the states": "--offload-optimizer disk:0.5",
    "states, gradients": "--offload-optimizer disk --offload-gradients disk",
    "states, gradients, weights": "--offload-optimizer disk --offload-gradients disk --offload-param disk",
    "the same, 4 micro-batches": "--offload-optimizer disk --offload-gradients disk --offload-param disk --gradient-accumulation-steps 4",
    "activations": "--offload-activations disk",
}


def run(a, work, options, steps):
    out = work / "out"
    shutil.rmtree(out, ignore_errors=True)
    command = [a.snug, "train", a.model, "--data", str(work / "rows.jsonl"), "--train-on", "all", "--out", str(out), "--full", "--cutoff-len", "64",
               "--offload-dir", str(work / "disk"), "--max-steps", str(steps), *options.split()]
    if a.ranks > 1:
        command = ["mpirun", "--allow-run-as-root", "--oversubscribe", "-n", str(a.ranks), *command, "--zero-stage", "3", "--threads", "1"]
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=sys.stderr if a.verbose else subprocess.DEVNULL, check=True)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    summary = json.loads((out / "summary.json").read_text())
    return 512 * (after.ru_inblock - before.ru_inblock), 512 * (after.ru_oublock - before.ru_oublock), summary


def main():
    p = argparse.ArgumentParser()
    p.add_argument("snug")
    p.add_argument("model")
    p.add_argument("work")
    p.add_argument("--ranks", type=int, default=1)
    p.add_argument("--jobs", action="append", help="its name; again for more")
    p.add_argument("--verbose", action="store_true")
    a = p.parse_args()
    pathlib.Path(a.work).mkdir(parents=True, exist_ok=True)
    work = pathlib.Path(tempfile.mkdtemp(dir=a.work))
    with open(work / "rows.jsonl", "w") as rows:
        for i in range(64):
            rows.write(json.dumps({"text": " ".join(f"word{(i * 37 + k * 11) % 997}" for k in range(200))}) + "\n")
    bad = 0
    print("| on disk | ranks | planned MiB | peak MiB | read a step | planned | written a step | planned |")
    print("| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |")
    try:
        for name, options in JOBS.items():
            if a.jobs and name not in a.jobs:
                continue
            run(a, work, options, 1)  # what is read once, such as the program, is in memory after it
            few, many = run(a, work, options, 2), run(a, work, options, 5)
            read, written, s = (many[0] - few[0]) / 3, (many[1] - few[1]) / 3, many[2]
            want_read, want_written = a.ranks * s["planned_disk_read_bytes_a_step"], a.ranks * s["planned_disk_written_bytes_a_step"]
            most = 0.005 if a.ranks == 1 else 0.01
            bad += not want_written or abs(read - want_read) > most * want_read or abs(written - want_written) > most * want_written
            bad += not 0.98 * s["planned_bytes"] <= s["peak_bytes"] <= s["planned_bytes"]
            print(f"| {name} | {a.ranks} | {s['planned_bytes'] / 1048576:.1f} | {s['peak_bytes'] / 1048576:.1f} | {read:.0f} | {want_read} | {written:.0f} | {want_written} |",
                  flush=True)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    return bad > 0


if __name__ == "__main__":
    sys.exit(main())
