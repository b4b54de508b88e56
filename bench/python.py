#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures what Python adds to a step, compared with the same steps in C, and to a start.

    bench/python.py STEP_PROGRAM [--rounds 15] [--steps 300]

The package must be on PYTHONPATH, and liblockstep.so where the loader finds it; ./dev bench python
sets both.
"""
import argparse
import json
import resource
import statistics
import subprocess
import sys
import time

import numpy as np

import lockstep_trainer as lockstep

ROWS = 32
# A very short step, so that the cost of a call is a measurable part of it.
CONFIG = {"model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}, "batch_size": ROWS,
          "devices": "cpu:1", "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.01}, "run_dir": "", "data": {"name": "python"}}


def spread(values, digits=1):
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f} to {max(values):.{digits}f})"


def start_ms(statement):
    """Runs a process. Returns its elapsed time and its processor time, which other programs affect less."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.perf_counter()
    subprocess.run([sys.executable, "-B", "-c", statement], check=True)
    taken, after = time.perf_counter() - begun, resource.getrusage(resource.RUSAGE_CHILDREN)
    return 1e3 * taken, 1e3 * (after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)


def steps(args):
    x = (np.arange(ROWS * 784) * 7 % 256).astype(np.uint8).reshape(ROWS, 1, 28, 28)
    y = (np.arange(ROWS) % 10).astype(np.int32)
    peer = subprocess.Popen([args.program, json.dumps(CONFIG), str(ROWS), str(args.steps)], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    c, python = [], []
    with lockstep.Trainer(CONFIG, shape=(1, 28, 28), classes=10) as trainer:
        for _ in range(args.rounds + 1):
            peer.stdin.write("\n")
            peer.stdin.flush()
            c.append(statistics.median(json.loads(peer.stdout.readline())))
            taken = []
            for _ in range(args.steps):
                begun = time.perf_counter()
                trainer.step(x, y)
                taken.append(1e6 * (time.perf_counter() - begun))
            python.append(statistics.median(taken))
    peer.stdin.close()
    if peer.wait():
        sys.exit(1)
    return c[1:], python[1:]  # the first round warmed up


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--steps", type=int, default=300)
    args = parser.parse_args()
    c, python = steps(args)
    starts = {what: [] for what in ("pass", "import numpy", "import lockstep_trainer")}
    for _ in range(9):
        for what, taken in starts.items():
            taken.append(start_ms(what))
    print(f"""| a step of {ROWS} rows, dense layer of 10 outputs, one worker | µs: median of rounds (least to most) |
|---|---:|
| in C, `ls_trainer_step` | {spread(c)} |
| in Python, `Trainer.step` | {spread(python)} |
| what Python adds, round by round | {spread([p - q for p, q in zip(python, c)])} |

| `python3 -c` | ms: median of 9 (least to most) | of processor time |
|---|---:|---:|""")
    for what, taken in starts.items():
        print(f"| `{what}` | {spread([t[0] for t in taken], 0)} | {spread([t[1] for t in taken], 0)} |")


if __name__ == "__main__":
    main()
