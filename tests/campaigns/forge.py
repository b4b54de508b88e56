#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Campaign: forged runs, and whether `trainer verify` notices each as docs/verify.md says.

    forge.py --trainer PROGRAM [--directory DIR] [--short] [--only PATTERN] [--list] [--draws N]

Honest runs are made first. For each forgery, the prover gets a copy of one of them and changes it; the verifier
has an own copy of the honest data, and gets what the forgery says. What must come out is taken from docs/verify.md
alone:

    found at a place          exit status 1, and the sentence names the file, the member or the segment
    refused                   it could not be verified, with a message and an exit status of its own
    noticed                   one of the two: the file is not what the program writes
    proves nothing            not noticed, and the page says so: the sentence is looked up in the page
    found by sampling         as often as the page's formula says, over many draws

--short leaves out forgeries that differ from another one only by their key, and draws less. Prints one JSON
object, and writes DIR/outcomes.jsonl, what verify said of each; exit status 1 if a forgery was not noticed, was
placed wrongly, or verify crashed, hung or needed too much memory.
"""
import argparse
import json
import math
import os
import pathlib
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import traceback

import forged_data
import forgeries_of_files
import forgeries_of_records
import forgeries_of_training
from forged_run import Run

PAGE = pathlib.Path(__file__).resolve().parents[2] / "docs" / "verify.md"
SECONDS, BYTES = 120, 2 << 30  # limits of one verification
MEMORY = 700 << 10  # KB that a verification of such small runs may need
MODULES = (forgeries_of_training, forgeries_of_files, forgeries_of_records)


class World:
    """Programs, data and honest runs."""

    def __init__(self, trainer, directory):
        self.trainer, self.directory = trainer, directory
        self.runs, self.own = {}, {}
        self.data = directory / "prover"
        forged_data.write(self.data)
        shutil.copytree(self.data, directory / "verifier")

    def train(self, config, directory, *more):
        config_file = directory.with_suffix(".json")
        config_file.write_text(json.dumps(config), encoding="utf-8")
        done = subprocess.run([self.trainer, config_file, "--set", f"run_dir={directory}", "--devices", "cpu:1", "--quiet",
                               *more], capture_output=True, text=True, timeout=300, env=self.environment("prover"),
                              check=False)
        if done.returncode != 0:
            raise RuntimeError(f"{directory.name} was not trained: {done.stderr}")
        return Run(directory, self.trainer)

    def environment(self, who):
        return {**os.environ, "XDG_CACHE_HOME": str(self.directory / f"cache-{who}")}

    def honest(self, name):
        """The honest run of this name, trained when it is first needed."""
        if name not in self.runs:
            config, _ = forged_data.recipe(name, self)
            self.runs[name] = self.train(config, self.directory / f"honest-{name}")
        return self.runs[name]

    def own_data(self, name):
        """Options with which the verifier names its own copy of the data."""
        _, places = forged_data.recipe(name, self)
        return [part for key, path in places.items() for part in ("--set", f"{key}={self.directory / 'verifier' / path}")]

    def verify(self, arguments):
        """Runs verify with limits of time and memory; the result goes to a file of the verifier's."""
        return self.verify_in_place([*arguments, "--to", self.directory / "verified.json"])

    def verify_in_place(self, arguments):
        """The same; the result goes to its usual place, beside the receipt."""
        def limit():
            resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
        try:
            return subprocess.run([self.trainer, "verify", *map(str, arguments), "--devices", "cpu:1", "--quiet"],
                                  capture_output=True, text=True, errors="replace", timeout=SECONDS, preexec_fn=limit,
                                  env=self.environment("verifier"), stdin=subprocess.DEVNULL, check=False)
        except subprocess.TimeoutExpired:
            return None


def judge(done, expected):
    """What is wrong with the outcome of a verification; None: nothing."""
    kind, what, *more = expected
    if done is None:
        return "it hung"
    said = done.stdout + done.stderr
    if done.returncode < 0 or "Sanitizer" in said:
        return f"it crashed ({done.returncode})"
    if done.returncode == 137:
        return "it was killed"
    code = done.returncode
    if kind == "nothing":
        if code != 0:
            return "accused, but the page says that this proves nothing"
        return None if not more or re.search(more[0], said) else f"the sentence lacks /{more[0]}/"
    if code == 0:
        return "not noticed"
    if kind == "noticed":
        return None if said.strip() else "no message"
    if kind == "refused" and code == 1:
        return "called a difference, but it cannot be verified"
    if kind == "found" and code != 1:
        return f"refused with {code} instead of found"
    return None if re.search(what, said) else f"the message lacks /{what}/"


def sentence_is_on_page(sentence, page=" ".join(PAGE.read_text(encoding="utf-8").split())):
    return " ".join(sentence.split()) in page


def attempt(world, forgery, number):
    """Makes a forgery and verifies it. Returns what is wrong and what verify said."""
    folder = world.directory / f"forged-{number:03d}"
    folder.mkdir()
    run = world.honest(forgery.of).copy_to(folder / "run")
    arguments = forgery.make(world, run) or [run.dir, "--all"]
    if "data.path" not in " ".join(map(str, arguments)):
        arguments = arguments + world.own_data(forgery.of)
    if forgery.expect[0] == "sampled":
        return sampled(world, forgery, arguments)
    before = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss
    done = world.verify(arguments)
    used = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss  # of the child that needed most so far
    said = (done.stdout + done.stderr).strip() if done else ""
    wrong = judge(done, forgery.expect)
    if used > max(before, MEMORY):
        wrong = f"it needed {used >> 10} MB"
    if forgery.expect[0] == "nothing" and not sentence_is_on_page(forgery.expect[1]):
        wrong = f"the page does not say: {forgery.expect[1]}"
    if not wrong:
        shutil.rmtree(folder)
    return wrong, said, None


def sampled(world, forgery, arguments):
    """Verifies with many draws, and compares the rate with the page's formula."""
    touched, middle, drawn = forgery.expect[1]
    found = 0
    for seed in range(1, world.draws + 1):
        done = world.verify(arguments + ["--segments", drawn, "--seed", seed])
        if done is None or done.returncode not in (0, 1):
            return f"seed {seed}: {done and done.returncode}", done.stdout + done.stderr if done else "", None
        found += done.returncode == 1
    rate = 1 - math.comb(middle - touched, drawn) / math.comb(middle, drawn)
    apart = 4 * math.sqrt(rate * (1 - rate) / world.draws)
    measured = found / world.draws
    wrong = None if abs(measured - rate) <= apart else f"found in {measured:.3f} of the draws instead of {rate:.3f}"
    return wrong, "", {"touched": touched, "of": middle, "drawn": drawn, "rate": round(rate, 3), "measured": measured}


def all_forgeries(short):
    found = [f for module in MODULES for f in module.FORGERIES]
    names = [f.name for f in found]
    assert len(set(names)) == len(names), [n for n in names if names.count(n) > 1]
    return [f for f in found if not short or not f.long]


def parse():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=lambda p: str(pathlib.Path(p).resolve()))
    parser.add_argument("--directory", type=pathlib.Path)
    parser.add_argument("--short", action="store_true")
    parser.add_argument("--only", default="")
    parser.add_argument("--list", action="store_true")
    parser.add_argument("--draws", type=int)
    args = parser.parse_args()
    if not args.trainer and not args.list:
        parser.error("--trainer is required")
    return args


def run_all(world, chosen):
    failures, rates, count = [], [], {}
    for number, forgery in enumerate(chosen):
        try:
            wrong, said, rate = attempt(world, forgery, number)
        except (RuntimeError, AssertionError, OSError, LookupError, StopIteration, ValueError):
            wrong, said, rate = "the forger failed", traceback.format_exc(limit=3), None
        with open(world.directory / "outcomes.jsonl", "a", encoding="utf-8") as log:
            log.write(json.dumps({"forgery": forgery.name, "wrong": wrong, "said": said[:2000]}) + "\n")
        kind = forgery.expect[0]
        count[kind] = count.get(kind, 0) + 1
        if rate:
            rates.append({"forgery": forgery.name, **rate})
        if wrong:
            failures.append({"forgery": forgery.name, "number": number, "wrong": wrong, "said": said[:800],
                             "expected": str(forgery.expect)})
            print(f"{number:03d} {forgery.name}: {wrong}\n      {said[:400]}", file=sys.stderr, flush=True)
    return {"forgeries": len(chosen), **count, "rates": rates, "failures": failures}


def main():
    args = parse()
    chosen = [f for f in all_forgeries(args.short) if re.search(args.only, f.name)]
    if args.list:
        for f in chosen:
            print(f"{f.name}\n    prover: {f.prover}\n    verifier: {f.verifier}\n    expected: {f.expect[0]}: {f.expect[1]}")
        print(len(chosen), "forgeries")
        return 0
    with tempfile.TemporaryDirectory() as temporary:
        directory = args.directory or pathlib.Path(temporary)
        directory.mkdir(parents=True, exist_ok=True)
        world = World(args.trainer, directory.resolve())
        world.draws = args.draws or (20 if args.short else 200)
        result = run_all(world, chosen)
    print(json.dumps(result, indent=1))
    return 1 if result["failures"] else 0


if __name__ == "__main__":
    sys.exit(main())
