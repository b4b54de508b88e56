#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Campaign: runs that are prevented from running for a while, which must not lose a worker by that.

    pauses.py --trainer PROGRAM --config FILE [--backend ref] [--rounds N] [--seed S]
              [--only KIND]...

A run with a short deadline is stopped (SIGSTOP and SIGCONT, several times, at random points and for
random times), frozen (a cgroup, if root allows it), has one thread stopped by ptrace, is starved
(nice 19 beside programs that only use CPU), or is suspended from a terminal (Ctrl-Z, then fg). It
passes if no worker was given up and the weights have the bits of the undisturbed run. Threads that
do hang, asleep or using CPU, must be detected nevertheless: within the deadline and a second,
pauses excluded, also when a pause comes in the middle. Prints one JSON object; exit status 1 after
a violation.
"""
import argparse
import ctypes
import json
import os
import pty
import random
import re
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time

EPOCHS = 10  # of one step


class Violation(Exception):
    pass


class Skipped(Exception):
    pass


class Run:
    """A training run, its messages with the time at which they came."""

    def __init__(self, campaign, workers, deadline, *more, folder=None):
        self.deadline = deadline
        self.begun = time.monotonic()
        self.said = []
        self.process = subprocess.Popen(campaign.command(workers, deadline, *more), text=True,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=folder)
        self.listener = threading.Thread(target=self.listen)
        self.listener.start()

    def listen(self):
        for line in self.process.stderr:
            self.said.append((time.monotonic(), line.rstrip()))

    def goes_on(self):
        return self.process.poll() is None

    def signal(self, number):
        try:
            self.process.send_signal(number)
        except ProcessLookupError:
            pass

    def stop_for(self, seconds):
        self.signal(signal.SIGSTOP)
        time.sleep(seconds)
        self.signal(signal.SIGCONT)

    def when(self, text):
        """The time of the first message with this in it, or None."""
        return next((at for at, line in self.said if text in line), None)

    def tell(self, thread, name):
        try:
            with open(f"/proc/{self.process.pid}/task/{thread}/{name}", encoding="ascii") as file:
                return file.read().strip()
        except OSError:
            return ""

    def threads(self):
        """The workers' threads, {worker: number}."""
        names = {int(n): self.tell(n, "comm") for n in os.listdir(f"/proc/{self.process.pid}/task")}
        return {int(name.rsplit("/", 1)[1]): n for n, name in names.items()
                if re.search(r"/\d+$", name)}

    def queued(self, worker):
        """Seconds that a worker's thread lacked a CPU, as far as the kernel has added them up."""
        try:
            told = self.tell(self.threads()[worker], "schedstat").split()
        except (OSError, KeyError):
            return 0
        return int(told[1]) * 1e-9 if told else 0

    def end(self, lost=0):
        """The hash of the weights; checks how many workers were given up."""
        out = self.process.stdout.read()
        code = self.process.wait(timeout=240)
        self.listener.join()
        records = [json.loads(line) for line in out.splitlines()]
        faults = [r for r in records if r["type"] == "fault"]
        if code != 0 or len(faults) != lost:
            raise Violation(f"exit code {code}, {len(faults)} faults, not {lost}: "
                            + "; ".join([f["message"] for f in faults if "message" in f]
                                        + [text for _, text in self.said[-3:]]))
        return records[-1]["weights_sha256"]


class Campaign:
    def __init__(self, args):
        self.args = args
        self.random = random.Random(args.seed)
        self.counts = {"campaign": "pauses", "seed": args.seed, "runs": 0, "pauses": 0,
                       "paused s": 0.0, "hangs": 0, "latest detection s": 0.0, "lost": 0,
                       "skipped": 0}
        self.wanted = None

    def command(self, workers, deadline, *more):
        return [self.args.trainer, self.args.config, "--devices", f"{self.args.backend}:{workers}",
                "--set", f"deadline_s={deadline}", "--set", "data.limit=2048", "--set",
                "batch_size=1024", "--set", f"epochs={EPOCHS}", "--set", "run_dir=null",
                "--metrics", "-", *more]

    def draw(self):
        return self.random.randint(2, 4), self.random.choice((0.5, 0.7, 1.0))

    def paused(self, seconds):
        self.counts["pauses"] += 1
        self.counts["paused s"] = round(self.counts["paused s"] + seconds, 1)

    def same(self, found):
        if found != self.wanted:
            raise Violation(f"other bits: {found[:16]}, not {self.wanted[:16]}")

    # ---- nobody hangs ----

    def stopped(self):
        run = Run(self, *self.draw())
        for _ in range(3):
            time.sleep(self.random.uniform(0.02, 0.25))
            seconds = self.random.choice((0.1, 0.6, 1.2, 2))
            if not run.goes_on():
                break
            run.stop_for(seconds)
            self.paused(seconds)
        self.same(run.end())

    def freezer(self):
        """The directory of a group of our own, and what to write where to freeze and to thaw it."""
        for root, freeze, thaw in (("/sys/fs/cgroup", ("cgroup.freeze", "1"), ("cgroup.freeze", "0")),
                                   ("/sys/fs/cgroup/unified", ("cgroup.freeze", "1"),
                                    ("cgroup.freeze", "0")),
                                   ("/sys/fs/cgroup/freezer", ("freezer.state", "FROZEN"),
                                    ("freezer.state", "THAWED"))):
            group = os.path.join(root, f"lockstep-pauses-{os.getpid()}")
            try:
                os.mkdir(group)
            except OSError:
                continue
            if os.path.exists(os.path.join(group, freeze[0])):
                return group, freeze, thaw
            os.rmdir(group)
        raise Skipped("no cgroup can be made here")

    def frozen(self):
        group, freeze, thaw = self.freezer()

        def write(name, text):
            with open(os.path.join(group, name), "w", encoding="ascii") as file:
                file.write(text)
        run = Run(self, *self.draw())
        try:
            write("cgroup.procs", str(run.process.pid))
            for _ in range(2):
                time.sleep(self.random.uniform(0.05, 0.3))
                seconds = self.random.choice((1.2, 2))
                write(*freeze)
                time.sleep(seconds)
                write(*thaw)
                self.paused(seconds)
            self.same(run.end())
        finally:
            write(*thaw)
            run.process.kill()
            run.process.wait()
            os.rmdir(group)

    def traced(self):
        """One worker's thread is held by a debugger."""
        seize, interrupt, detach, wall = 0x4206, 0x4207, 17, 0x40000000
        libc = ctypes.CDLL(None, use_errno=True)
        libc.ptrace.argtypes = [ctypes.c_long, ctypes.c_long, ctypes.c_void_p, ctypes.c_void_p]
        run = Run(self, *self.draw())
        time.sleep(self.random.uniform(0.2, 0.4))
        while not run.threads() and run.process.poll() is None:
            time.sleep(0.01)  # a busy machine starts it later
        thread = self.random.choice(sorted(run.threads().values()))
        if libc.ptrace(seize, thread, None, None) != 0:
            run.end()
            raise Skipped(f"ptrace: {os.strerror(ctypes.get_errno())}")
        libc.ptrace(interrupt, thread, None, None)
        os.waitpid(thread, wall)
        time.sleep(2)
        libc.ptrace(detach, thread, None, None)
        self.paused(2)
        self.same(run.end())

    def starved(self):
        """All threads share one CPU with programs that leave them next to nothing of it."""
        cpu = {min(os.sched_getaffinity(0))}
        run = Run(self, self.random.randint(2, 4), 0.5)
        time.sleep(0.15)
        hogs = [subprocess.Popen(["sh", "-c", "while :; do :; done"],
                                 preexec_fn=lambda: os.sched_setaffinity(0, cpu))
                for _ in range(4)]
        try:
            for number in os.listdir(f"/proc/{run.process.pid}/task"):
                os.sched_setaffinity(int(number), cpu)
                os.setpriority(os.PRIO_PROCESS, int(number), 19)
            time.sleep(4)
        finally:
            for hog in hogs:
                hog.kill()
                hog.wait()
        self.paused(4)
        self.same(run.end())

    def suspended(self):
        """Ctrl-Z and fg, in a shell with job control on a terminal."""
        pid, terminal = pty.fork()
        if pid == 0:
            os.environ.update({"PS1": "$ ", "TERM": "xterm", "HISTFILE": "/dev/null"})
            os.execvp("bash", ["bash", "--norc", "--noprofile", "-i"])
        screen = ""

        def read_until(text, seconds):
            nonlocal screen
            limit, begin = time.monotonic() + seconds, len(screen)
            while text not in screen[begin:]:
                if not select.select([terminal], [], [], max(0, limit - time.monotonic()))[0]:
                    raise Violation(f"{text!r} did not come: {screen[-400:]!r}")
                screen += os.read(terminal, 65536).decode("utf-8", "replace")
        command = self.command(3, 0.5)
        command[command.index("--metrics"):] = ["--metrics", "/dev/null", "--set", "data.limit=8192"]
        line = " ".join(f"'{word}'" for word in command)
        try:
            begun = time.monotonic()
            os.write(terminal, f"{line}\n".encode())
            for _ in range(2):  # one may meet the coordinator at work, and is not noticed then
                read_until(" images/s", 20)
                time.sleep(0.05)
                os.write(terminal, b"\x1a")
                read_until("Stopped", 5)
                time.sleep(1.5)
                os.write(terminal, b"fg\n")
            read_until("sec/epoch", 60)
        finally:
            os.close(terminal)
            os.waitpid(pid, 0)
        took = time.monotonic() - begun
        self.paused(3)
        noticed = [float(text) for text in re.findall(r"trainer: stopped for ([0-9.]+) s", screen)]
        if "no sign of life" in screen or not noticed or min(noticed) < 1 or sum(noticed) > took:
            raise Violation(f"after Ctrl-Z and fg: {screen!r}")
        per_epoch = float(re.search(r"([0-9.]+) sec/epoch", screen).group(1))
        if per_epoch * EPOCHS > took - sum(noticed) + 0.5:  # it is printed in tenths of a second
            raise Violation(f"{per_epoch} s an epoch, {EPOCHS} of them in {took:.1f} s: the pause is in them")

    # ---- somebody does ----

    def hangs(self, kind, pause):
        """One thread does not come back from step 2; the pause begins in the first half of its deadline. What
        counts is seen from outside: since step 1 was reported, less the pause and, for a thread that
        spins, what the kernel says that it lacked a CPU."""
        workers, deadline = self.draw()
        stage = self.random.choice(("start", "shard", "merge", "apply", "report"))
        worker = self.random.randrange(workers)
        run = Run(self, workers, deadline, "--inject",
                  f"worker={worker},step=2,kind={kind},stage={stage}")
        while run.goes_on() and not run.when("epoch  1/"):
            time.sleep(0.01)
        if pause:
            time.sleep(self.random.uniform(0, deadline / 2))
            run.stop_for(pause)
            self.paused(pause)
        queued = 0
        while run.goes_on() and not run.when("no sign of life"):
            queued = run.queued(worker) or queued
            time.sleep(0.05)
        self.same(run.end(lost=1))
        late = run.when("no sign of life") - run.when("epoch  1/") - pause
        if kind == "spin":
            late -= queued
        self.counts["hangs"] += 1
        self.counts["latest detection s"] = max(self.counts["latest detection s"],
                                                round(late - deadline, 2))
        if late > deadline + 1:
            raise Violation(f"{kind} at {stage} named after {late:.2f} s, deadline {deadline}")

    def run(self):
        run = Run(self, 1, 60)
        self.wanted = run.end()
        kinds = {"stopped": self.stopped, "traced": self.traced, "frozen": self.frozen,
                 "starved": self.starved, "suspended": self.suspended,
                 "sleeps": lambda: self.hangs("stall", 0),
                 "sleeps_paused": lambda: self.hangs("stall", 2),
                 "spins": lambda: self.hangs("spin", 0),
                 "spins_paused": lambda: self.hangs("spin", 2)}
        passed = True
        for number in range(self.args.rounds):
            for name, case in kinds.items():
                if self.args.only and name not in self.args.only:
                    continue
                try:
                    case()
                    self.counts["runs"] += 1
                except Skipped as why:
                    self.counts["skipped"] += 1
                    print(f"{name}: skipped: {why}", file=sys.stderr)
                except Violation as what:
                    passed = False
                    self.counts["lost"] += 1
                    print(f"round {number} of seed {self.args.seed}, {name}: {what}",
                          file=sys.stderr)
        self.counts["passed"] = passed
        return self.counts


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trainer", required=True)
    parser.add_argument("--config", required=True)
    parser.add_argument("--backend", default="ref")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", action="append")
    args = parser.parse_args()
    args.trainer, args.config = map(os.path.abspath, (args.trainer, args.config))
    with tempfile.TemporaryDirectory(prefix="lockstep-pauses-") as folder:
        os.chdir(folder)
        counts = Campaign(args).run()
    print(json.dumps(counts))
    return 0 if counts["passed"] else 1


if __name__ == "__main__":
    sys.exit(main())
