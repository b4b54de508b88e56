#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Sends every signal in every phase of a run, to a terminal, a pipe and a closed pipe.

    signals.py --trainer trainer_ref --config config.json [--backend ref] [--short]

An injected fault (a short stall) holds the run in the phase while the signal is sent. Afterwards
the exit code must be the documented one, and the resumed run must reach the weights of an
undisturbed one:

    INT, TERM, HUP     75, and the checkpoint is of that very step; the same for HUP twice, as a
                       closing terminal sends it
    INT twice          130, at once; resumes from the newest checkpoint
    PIPE, XFSZ, CHLD   no effect: 0
    QUIT, KILL         killed by the signal; resumes from the newest checkpoint

Prints counts as JSON; exit status 1 if a promise was broken.
"""
import argparse
import json
import os
import pty
import shutil
import signal
import subprocess
import sys
import tempfile
import time

# Phase: what holds the run there, and the checkpoint that says that it is about to come.
PHASES = {
    "opening": (None, None),
    "training": ("worker=0,step=4,kind=stall,stage=shard,seconds=1", 3),
    "merging": ("worker=1,step=4,kind=stall,stage=merge,seconds=1", 3),
    "evaluating": ("worker=0,step=2,kind=stall,stage=evaluate,seconds=1", 2),
    "saving": ("worker=0,step=4,kind=stall,stage=export,seconds=1", 3),
}
DEADLY = ("QUIT", "KILL")
HARMLESS = ("PIPE", "XFSZ", "CHLD")
OUTPUTS = ("tty", "pipe", "closed pipe")


def forget_signals():
    """What this script was started with (nohup, a background job) is none of the run's business."""
    for name in ("HUP", "INT", "QUIT", "TERM", "PIPE", "XFSZ"):
        signal.signal(getattr(signal, "SIG" + name), signal.SIG_DFL)


class Campaign:
    def __init__(self, args, folder):
        self.args = args
        self.folder = folder
        self.serial = 0
        self.counts = {"campaign": "signals", "cases": 0, "codes": {}, "resumed": 0,
                       "passed": True}

    def command(self, run, *more):
        return [self.args.trainer, self.args.config, "--devices", f"{self.args.backend}:2",
                "--set", f"run_dir={run}", "--set", "epochs=3",
                "--set", 'checkpoint={"every_steps":1,"keep":9}', "--set", "deadline_s=30", *more]

    def digest(self, run):
        with open(os.path.join(run, "metrics.jsonl"), encoding="utf-8") as file:
            return json.loads(file.readlines()[-1]).get("weights_sha256")

    def finish(self, run):
        folder = os.path.join(run, "checkpoints")
        resume = os.path.isdir(folder) and any(n[0] != "." for n in os.listdir(folder))
        if not resume:
            shutil.rmtree(run, ignore_errors=True)
        more = ["--resume", run] if resume else []
        done = subprocess.run(self.command(run, *more), timeout=120, capture_output=True,
                              check=False)
        self.counts["resumed"] += resume
        return done.returncode, self.digest(run) if done.returncode == 0 else done.stderr

    def start(self, output, words):
        """The process, and the descriptor to read its terminal or pipe from (None: closed)."""
        if output == "tty":
            mine, theirs = pty.openpty()
        else:
            mine, theirs = os.pipe()
        process = subprocess.Popen(words, stdin=subprocess.DEVNULL, stdout=theirs, stderr=theirs,
                                   start_new_session=True, preexec_fn=forget_signals)
        os.close(theirs)
        if output == "closed pipe":
            os.close(mine)
            return process, None
        return process, mine

    @staticmethod
    def drain(descriptor):
        try:
            while os.read(descriptor, 65536):
                pass
        except OSError:
            pass  # a terminal whose other side is gone
        os.close(descriptor)

    def wait_for(self, run, step, process):
        path = os.path.join(run, "checkpoints", f"step-{step:09d}.safetensors")
        limit = time.monotonic() + 60
        while not os.path.exists(path) and process.poll() is None and time.monotonic() < limit:
            time.sleep(0.002)
        time.sleep(0.1)

    def expected(self, names, phase):
        if names[0] in HARMLESS:
            codes = {0}
        elif names[0] in DEADLY:
            codes = {-getattr(signal, "SIG" + names[0])}
        else:
            codes = {130} if names[1:] == ["INT"] else {75}
        if phase == "opening":  # the handler may not be there yet, or no checkpoint possible
            codes |= {75, 130, -getattr(signal, "SIG" + names[0])}
        return codes

    def case(self, phase, output, names):
        self.serial += 1
        run = os.path.join(self.folder, f"run-{self.serial}")
        fault, step = PHASES[phase]
        more = ["--inject", fault] if fault else []
        process, descriptor = self.start(output, self.command(run, *more))
        if step is None:
            time.sleep(0.003 * (self.serial % 7))
        else:
            self.wait_for(run, step, process)
        for name in names:
            try:
                process.send_signal(getattr(signal, "SIG" + name))
            except ProcessLookupError:
                pass
            time.sleep(0.02)
        if descriptor is not None:
            self.drain(descriptor)
        code = process.wait(timeout=120)
        what = f"{'+'.join(names)} while {phase}, to a {output}"
        if code not in self.expected(names, phase):
            return f"{what}: exit code {code}"
        resumed_code, digest = self.finish(run)
        if resumed_code != 0 or digest != self.wanted:
            return f"{what}: resuming ended with {resumed_code}: {digest}"
        self.counts["cases"] += 1
        self.counts["codes"][str(code)] = self.counts["codes"].get(str(code), 0) + 1
        shutil.rmtree(run)
        return None

    def run(self):
        run = os.path.join(self.folder, "reference")
        code, self.wanted = self.finish(run)
        if code != 0:
            sys.exit(f"the undisturbed run failed: {self.wanted}")
        every = [(p, o, n) for p in PHASES for o in OUTPUTS
                 for n in [["INT"], ["TERM"], ["HUP"], ["HUP", "HUP"], ["INT", "INT"], *[[d] for d in DEADLY + HARMLESS]]]
        if self.args.short:
            every = [c for i, c in enumerate(every) if i % 7 == 3]
        for case in every:
            problem = self.case(*case)
            if problem:
                print(problem, file=sys.stderr)
                self.counts["passed"] = False
        return self.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--backend", default="ref")
    parser.add_argument("--short", action="store_true")
    args = parser.parse_args()
    args.trainer, args.config = map(os.path.abspath, (args.trainer, args.config))
    with tempfile.TemporaryDirectory(prefix="lockstep-signals-") as folder:
        counts = Campaign(args, folder).run()
    print(json.dumps(counts))
    return 0 if counts["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
