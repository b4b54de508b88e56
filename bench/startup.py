#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the peak memory of a training run, and the time from its start until its first step is done.

    python3 bench/startup.py ./trainer examples/fashion_mnist.json --devices cpu:2

The run is one epoch. Prints a Markdown table of a few runs.
"""

import os
import statistics
import subprocess
import sys
import time

RUNS = 3


def one_run(command):
    """Seconds from the start to the first step's record, and the peak resident set in MB."""
    start = time.monotonic()
    first = None
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    for line in process.stdout:
        if first is None and b'"type":"step"' in line:
            first = time.monotonic() - start
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        sys.exit(f"{' '.join(command)}: status {status}")
    return first, usage.ru_maxrss / 1024


def main():
    command = sys.argv[1:] + ["--quiet", "--metrics", "-", "--set", "epochs=1",
                              "--set", "run_dir=null"]
    runs = [one_run(command) for _ in range(RUNS)]
    print("| | median | min | max |")
    print("|---|---:|---:|---:|")
    for name, unit, column in (("start to first step", "s", 0), ("peak memory", "MB", 1)):
        values = [r[column] for r in runs]
        print(f"| {name} | {statistics.median(values):.2f} {unit} | {min(values):.2f} "
              f"| {max(values):.2f} |")


if __name__ == "__main__":
    main()
