#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the fuzzers of tests/fuzz, and checks that each finds the bug planted in its twin.

    fuzz.py [--seconds N] [--planted-seconds N] [--keep FOLDER] [--build FOLDER] [--only NAME]...

Long form: 300 seconds a target. FOLDER (build/fuzz unless given) keeps the corpora, the findings
and how long each target has run with which seeds: a campaign that was stopped goes on where it was,
and --fresh starts over. Without --build the fuzzers are built there, with clang.

Prints a summary as JSON, also left in FOLDER/summary.json. Exit status: 0, 1 (a finding, or a
planted bug that was not found), 69 (no clang), 70 (the build failed).
"""
import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FOUND = ROOT / "tests" / "fuzz" / "corpus"  # by fuzzers before; seeds are made by the build
# Longer inputs find nothing that shorter ones do not, and slow the search down.
LONGEST = {"cifar": 7000, "config": 6000}
USUAL_LONGEST = 4096


def say(*words):
    print("fuzz:", *words, file=sys.stderr, flush=True)


def build(folder):
    if not shutil.which("clang"):
        say("clang is not installed")
        sys.exit(69)
    commands = [
        ["cmake", "-S", str(ROOT), "-B", str(folder), "-D", "CMAKE_C_COMPILER=clang",
         "-D", "CMAKE_BUILD_TYPE=RelWithDebInfo", "-D", "CMAKE_C_FLAGS_RELWITHDEBINFO=-O1 -g",
         "-D", "LOCKSTEP_FUZZ=ON", "-D", "LOCKSTEP_CPU=OFF", "-D", "LOCKSTEP_CUDA=OFF"],
        ["cmake", "--build", str(folder), "--target", "fuzzers"],
    ]
    for command in commands:
        result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True)
        if result.returncode != 0:
            say("failed:", *command)
            sys.stderr.write(result.stdout[-4000:])
            sys.exit(70)


def numbers(log):
    """What libFuzzer said at its end: executions, edges and features covered."""
    executed = re.findall(r"stat::number_of_executed_units:\s*(\d+)", log)
    covered = re.findall(r"cov: (\d+) ft: (\d+)", log)
    return (int(executed[-1]) if executed else 0,
            int(covered[-1][0]) if covered else 0,
            int(covered[-1][1]) if covered else 0)


def promise(log):
    """What was found, in a line."""
    for pattern in (r"broken promise: .*", r"ERROR: (?:Address|Leak)Sanitizer: .*",
                    r"runtime error: .*", r"ERROR: libFuzzer: .*"):
        found = re.search(pattern, log)
        if found:
            return found.group(0)
    return "the fuzzer ended: " + log[-200:].replace("\n", " ")


class Campaign:
    def __init__(self, args):
        self.args = args
        self.keep = Path(args.keep).resolve()
        self.binaries = Path(args.build).resolve() if args.build else self.keep / "build"
        if args.fresh:
            for name in ("corpus", "findings", "logs", "state.json"):
                path = self.keep / name
                shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
        for name in ("corpus", "findings", "logs"):
            (self.keep / name).mkdir(parents=True, exist_ok=True)
        self.state_file = self.keep / "state.json"
        self.state = json.loads(self.state_file.read_text()) if self.state_file.exists() else {}

    def seeds(self, name):
        made = self.binaries / "tests" / "fuzz" / "seeds" / name
        return [folder for folder in (made, FOUND / name) if folder.is_dir()]

    def command(self, program, name, seed, seconds, folders, findings):
        words = ROOT / "tests" / "fuzz" / (name + ".dict")
        command = [str(program), f"-seed={seed}", f"-max_total_time={seconds}",
                   f"-max_len={LONGEST.get(name, USUAL_LONGEST)}", "-timeout=10",
                   "-rss_limit_mb=2048", "-print_final_stats=1", f"-artifact_prefix={findings}"]
        if words.exists():
            command.append(f"-dict={words}")
        return command + [str(f) for f in folders]

    def run(self, command, log):
        with open(log, "ab") as out:
            start = time.monotonic()
            status = subprocess.run(command, stdout=out, stderr=subprocess.STDOUT).returncode
            seconds = time.monotonic() - start
        return status, seconds

    def fuzz(self, program, name):
        """Until the target has run for as long as asked, over all calls of this script."""
        state = self.state.setdefault(
            name, {"seconds": 0, "executions": 0, "edges": 0, "features": 0, "seeds": [],
                   "findings": []})
        corpus = self.keep / "corpus" / name
        corpus.mkdir(exist_ok=True)
        while not state["findings"] and state["seconds"] < self.args.seconds:
            seed = self.args.seed + len(state["seeds"])
            left = max(1, min(self.args.slice, round(self.args.seconds - state["seconds"])))
            log = self.keep / "logs" / f"{name}-{seed}.log"
            log.unlink(missing_ok=True)
            findings = self.keep / "findings" / (name + "-")
            status, seconds = self.run(
                self.command(program, name, seed, left, [corpus, *self.seeds(name)], findings), log)
            text = log.read_text(errors="replace")
            executed, edges, features = numbers(text)
            state["seconds"] = round(state["seconds"] + seconds, 1)
            state["executions"] += executed
            state["edges"] = max(state["edges"], edges)
            state["features"] = max(state["features"], features)
            state["seeds"].append(seed)
            if status != 0:
                state["findings"].append({"seed": seed, "what": promise(text), "log": str(log)})
            self.save()
        state["corpus_files"] = len(list(corpus.iterdir()))
        return state

    def planted(self, program, name):
        """The twin with a bug, from the seeds and what was found before alone."""
        state = self.state.setdefault(name, {})
        log = self.keep / "logs" / f"{name}-planted.log"
        log.unlink(missing_ok=True)
        scratch = self.keep / "planted" / name
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        status, seconds = self.run(
            self.command(program, name, self.args.seed, self.args.planted_seconds,
                         [scratch, *self.seeds(name)], str(scratch) + "-"), log)
        text = log.read_text(errors="replace")
        state["planted_bug"] = {
            "found": status != 0 and ("broken promise" in text or bool(re.search(r"#0 .*/planted_", text))),
            "after_executions": numbers(text)[0],
            "seconds": round(seconds, 1),
            "what": promise(text) if status != 0 else "nothing",
        }
        self.save()

    def save(self):
        part = self.state_file.with_suffix(".part")
        part.write_text(json.dumps(self.state, indent=1))
        part.rename(self.state_file)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seconds", type=int, default=300, help="of each target (300)")
    parser.add_argument("--planted-seconds", type=int, default=120,
                        help="at most, for each planted bug (120)")
    parser.add_argument("--slice", type=int, default=60,
                        help="of one run of a target; what a stopped campaign may lose (60)")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--keep", default=str(ROOT / "build" / "fuzz"))
    parser.add_argument("--build", help="a build with LOCKSTEP_FUZZ=ON")
    parser.add_argument("--only", action="append", help="this target alone")
    parser.add_argument("--fresh", action="store_true", help="forget earlier runs")
    args = parser.parse_args()
    campaign = Campaign(args)
    if not args.build:
        say("building", campaign.binaries)
        build(campaign.binaries)
    programs = campaign.binaries / "tests" / "fuzz"
    targets = sorted(p.name[5:] for p in programs.glob("fuzz_*")
                     if os.access(p, os.X_OK) and p.is_file() and not p.name.endswith("_planted"))
    failures = []
    for name in targets:
        if args.only and name not in args.only:
            continue
        say(name)
        state = campaign.fuzz(programs / f"fuzz_{name}", name)
        failures += [f"{name}: {f['what']}" for f in state["findings"]]
        twin = programs / f"fuzz_{name}_planted"
        if twin.exists():
            campaign.planted(twin, name)
            if not state["planted_bug"]["found"]:
                failures.append(f"{name}: the planted bug was not found")
    summary = {
        "campaign": "fuzz",
        "seconds_each": args.seconds,
        "executions": sum(s["executions"] for s in campaign.state.values()),
        "findings": sum(len(s["findings"]) for s in campaign.state.values()),
        "planted_bugs": sum("planted_bug" in s for s in campaign.state.values()),
        "planted_bugs_found": sum(s.get("planted_bug", {}).get("found", False)
                                  for s in campaign.state.values()),
        "failures": failures,
        "targets": campaign.state,
    }
    text = json.dumps(summary, indent=1)
    (campaign.keep / "summary.json").write_text(text + "\n")
    print(text)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
