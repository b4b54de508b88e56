#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Kills a training run again and again, and resumes it: the final weights must not change.

    kill_resume.py --trainer trainer --config lenet.json [--shim fs_fault.so] [--random N]
                   [--stride N] [--seed S] [--set KEY=VALUE]... [--backend cpu] [--state FILE]

Two parts:

  * every file system call of a run that saves often is a point: the run is killed there, before
    the call, then resumed, on another number of workers (1 to 4), until it ends (--stride N: each
    Nth point only); needs --shim;
  * N runs are killed at random times, each up to four times, before they may end.

After each, the SHA-256 of the final weights and the numbers in every record must be those of an
undisturbed run, each record once, and the run directory must contain no temporary files. A run that
was killed before its first checkpoint is begun again, as a user would do. --state makes a long
campaign itself resumable: it stores the points that passed. Prints counts as JSON; exit status 1 if
a promise was broken.
"""
import argparse
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time

from record_keys import timeless

KEPT = {"config.json", "metrics.jsonl", "weights.safetensors", "checkpoints", "lock", "notes.jsonl"}


class Broken(Exception):
    pass


class Campaign:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.random = random.Random(args.seed)
        self.counts = {"campaign": "kill_resume", "seed": args.seed, "points": 0, "random": 0,
                       "kills": 0, "resumes": 0, "begun_anew": 0, "passed": True}
        self.state = {}
        if args.state and os.path.exists(args.state):
            with open(args.state, encoding="utf-8") as file:
                self.state = json.load(file)

    def command(self, run, workers, resume):
        sets = [f"run_dir={run}", *self.args.set]
        words = [self.args.trainer, self.args.config, "--quiet",
                 "--devices", f"{self.args.backend}:{workers}"]
        for assignment in sets:
            words += ["--set", assignment]
        return words + (["--resume", run] if resume else [])

    def start(self, run, workers, resume, env=None):
        return subprocess.Popen(self.command(run, workers, resume), env=env,
                                stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    def finish(self, run):
        """Resumes without faults, or begins anew what has nothing to resume, until it has ended."""
        for _ in range(3):
            resume = self.has_checkpoint(run)
            if not resume:
                shutil.rmtree(run, ignore_errors=True)
                self.counts["begun_anew"] += 1
            process = self.start(run, self.random.randint(1, 4), resume)
            _, errors = process.communicate(timeout=300)
            self.counts["resumes"] += resume
            if process.returncode == 0:
                return
        raise Broken(f"it does not end: exit code {process.returncode}: {errors.strip()}")

    @staticmethod
    def has_checkpoint(run):
        folder = os.path.join(run, "checkpoints")
        return os.path.isdir(folder) and any(not n.startswith(".") for n in os.listdir(folder))

    # ---- what must be true of a run that has ended ----

    @staticmethod
    def records(run):
        numbers, digest = [], None
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            for line in file:
                record = json.loads(line)
                if (alike := timeless(record)) is not None:
                    numbers.append(alike)
                digest = record.get("weights_sha256", digest)
        return numbers, digest

    def check(self, run):
        numbers, digest = self.records(run)
        if digest != self.digest:
            raise Broken(f"other weights: {digest}")
        if numbers != self.numbers:
            raise Broken("other records, or one twice, or one missing")
        left = set(os.listdir(run)) - KEPT
        left |= {n for n in os.listdir(os.path.join(run, "checkpoints")) if n.startswith(".")}
        if left:
            raise Broken(f"left over: {sorted(left)}")
        shutil.rmtree(run)

    def reference(self):
        run = os.path.join(self.folder, "reference")
        begun = time.monotonic()
        self.finish(run)
        self.seconds = time.monotonic() - begun
        self.numbers, self.digest = self.records(run)
        self.counts["begun_anew"] = 0

    # ---- the two parts ----

    def environment(self, run, **more):
        env = {k: v for k, v in os.environ.items() if not k.startswith("LS_FS_")}
        return dict(env, LD_PRELOAD=os.path.abspath(self.args.shim), LS_FS_ROOT=run, **more)

    def count_calls(self):
        """Of a run's whole life: the metrics file, saves, removals, the final weights."""
        run, count = os.path.join(self.folder, "counted"), os.path.join(self.folder, "count")
        env = self.environment(run, LS_FS_COUNT=count)
        process = self.start(run, 2, False, env)
        process.communicate(timeout=300)
        with open(count, encoding="utf-8") as file:
            calls = int(file.read())
        self.check(run)
        return calls

    def kill_at(self, point):
        run = os.path.join(self.folder, f"point-{point}")
        env = self.environment(run, LS_FS_AT=str(point), LS_FS_FAULT="kill-before")
        process = self.start(run, 1 + point % 4, False, env)
        process.communicate(timeout=300)
        self.counts["kills"] += process.returncode == -9
        self.finish(run)
        self.check(run)
        self.counts["points"] += 1

    def kill_sometime(self, number):
        run = os.path.join(self.folder, f"random-{number}")
        for _ in range(self.random.randint(1, 4)):
            resume = self.has_checkpoint(run)
            if not resume:
                shutil.rmtree(run, ignore_errors=True)
            process = self.start(run, self.random.randint(1, 4), resume)
            try:
                process.communicate(timeout=self.random.uniform(0.02, self.seconds))
                break  # it ended before
            except subprocess.TimeoutExpired:
                process.kill()
                process.communicate()
                self.counts["kills"] += 1
        self.finish(run)
        self.check(run)
        self.counts["random"] += 1

    def once(self, name, case, *arguments):
        if name in self.state:
            return
        before = dict(self.counts)
        try:
            case(*arguments)
        except Broken as problem:
            print(f"{name}: {problem}", file=sys.stderr)
            self.counts["passed"] = False
        self.state[name] = {k: v - before[k] for k, v in self.counts.items()
                            if isinstance(v, int) and not isinstance(v, bool) and k != "seed"}
        if self.args.state and self.counts["passed"]:
            with open(self.args.state, "w", encoding="utf-8") as file:
                json.dump(self.state, file)

    def run(self):
        self.reference()
        for kept in self.state.values():
            for key, value in kept.items():
                self.counts[key] += value
        if self.args.shim:
            calls = self.count_calls()
            self.counts["calls"] = calls
            for point in range(1, calls + 1, self.args.stride):
                self.once(f"point {point}", self.kill_at, point)
        for number in range(self.args.random):
            self.once(f"random {number}", self.kill_sometime, number)
        return self.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--shim")
    parser.add_argument("--random", type=int, default=200)
    parser.add_argument("--stride", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--backend", default="cpu")
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--state")
    args = parser.parse_args()
    args.trainer, args.config = map(os.path.abspath, (args.trainer, args.config))
    with tempfile.TemporaryDirectory(prefix="lockstep-kill-") as folder:
        counts = Campaign(args, os.path.realpath(folder)).run()
    print(json.dumps(counts))
    return 0 if counts["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
