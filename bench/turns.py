#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures CPU time and elapsed time of commands in turns, with ratios to the first one.

    python3 bench/turns.py [--first-step] ROUNDS NAME=COMMAND…

    python3 bench/turns.py 7 "before=old/trainer tiny.json --quiet" \\
        "now=./trainer tiny.json --quiet" "records=./trainer tiny.json --quiet --metrics -"

In every second round the commands run in reverse order. CPU time is user and system time of a process
and its children; other programs on the machine affect it little. --first-step: measures the time from the
start of a command, which must have `--metrics -`, to the record of its first step, and then kills
it.
"""

import argparse
import os
import shlex
import statistics
import subprocess
import sys
import time


def run(command, first_step):
    """Runs a command. Returns its elapsed time and its CPU time in seconds."""
    begin = time.monotonic()
    process = subprocess.Popen(shlex.split(command), stdout=subprocess.PIPE if first_step else subprocess.DEVNULL,
                               stderr=subprocess.DEVNULL)
    if first_step:
        for line in process.stdout:
            if b'"type":"step"' in line:
                break
        clock = time.monotonic() - begin
        process.kill()
    _, status, usage = os.wait4(process.pid, 0)
    if status and not first_step:
        sys.exit(f"{command}: status {status}")
    return clock if first_step else time.monotonic() - begin, usage.ru_utime + usage.ru_stime


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--first-step", action="store_true")
    parser.add_argument("rounds", type=int)
    parser.add_argument("command", nargs="+", metavar="NAME=COMMAND")
    args = parser.parse_args()
    commands = [named.split("=", 1) for named in args.command]
    times = {name: [] for name, _ in commands}
    for i in range(args.rounds):
        for name, command in commands[::-1] if i % 2 else commands:
            times[name].append(run(command, args.first_step))
    print("| | CPU, s | min | max | × first | by the clock, s | × first |\n|---|---:|---:|---:|---:|---:|---:|")
    first = None
    for name, _ in commands:
        clock, cpu = (list(column) for column in zip(*times[name]))
        medians = statistics.median(cpu), statistics.median(clock)
        first = first or medians
        print(f"| {name} | {medians[0]:.3f} | {min(cpu):.3f} | {max(cpu):.3f} | {medians[0] / first[0]:.2f} "
              f"| {medians[1]:.3f} | {medians[1] / first[1]:.2f} |")


if __name__ == "__main__":
    main()
