#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compare training rates of several programs on one network, in one interleaved run.

A peer is one of the compared programs: a process that warms up, and then, for each line that it
reads, trains one round and answers with one JSON line that contains "images_per_s". The rounds go
A B C A B C ..., and the peers that do not train sleep. Therefore the load and the clock rate of the
machine affect all peers alike. Ratios are computed for each round, and their median is printed.
Before the rounds, the CPU time of every waiting peer is measured, because a peer that spins while it
waits slows the others. Memory is the peak resident set (VmHWM) of each peer's process after its last
round; if a peer consists of several processes, it is their sum.

    python3 bench/peers/run.py --network lenet --data DIR --rounds 7 --json out.json \\
        --python /usr/bin/python3 --python VENV/bin/python --shards 8 devices \\
        --lockstep "build/release/bench/trainer_rounds examples/fashion_mnist.json"

All peers stay in memory until the end: with ResNet-18 that is up to 2 GB each.
"""

import argparse
import json
import os
import re
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).parent
ANSWER_TIMEOUT_S = 600
ROUNDS_LEAST = 3
CLOCK_TICK = os.sysconf("SC_CLK_TCK")


def say(text):
    print(text, file=sys.stderr, flush=True)


class Peer:
    """A process that trains one round for each line that it is sent."""

    def __init__(self, name, command, workers=None, shards=None):
        self.name, self.command = name, command
        self.workers, self.shards = workers, shards  # Lockstep's
        self.answers = []
        self.other_pids = []  # ids of further processes that belong to the peer

    @property
    def rates(self):
        return [answer["images_per_s"] for answer in self.answers]

    def start(self):
        """Start the process and wait until it has warmed up. Returns False, and prints why, if it cannot run."""
        if shutil.which(self.command[0]) is None:
            return self.skip(f"{self.command[0]} not found")
        begin = time.monotonic()
        self.launch()
        try:
            self.round()  # an additional warm-up, which does not count
        except (OSError, RuntimeError, ValueError) as error:
            self.stop()
            return self.skip(error)
        self.answers.clear()
        say(f"started {self.name}: warm after {time.monotonic() - begin:.0f} s")
        return True

    def launch(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.PIPE,
                                        stdout=subprocess.PIPE)

    def skip(self, reason):
        say(f"skipped {self.name}: {reason}")
        return False

    def read_line(self):
        """Returns one line of its output; RuntimeError if no line comes."""
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            raise RuntimeError(f"{self.name}: no answer")
        return json.loads(line)

    def round(self, words=""):
        """Ask for one round, of what `words` say, and store the answer."""
        self.ask(words)
        self.answers.append(self.hear())

    def ask(self, words=""):
        self.process.stdin.write(f"{words}\n".encode())
        self.process.stdin.flush()

    def hear(self):
        answer = self.read_line()
        while "images_per_s" not in answer:  # what it says before the first round
            self.other_pids = answer.get("other_pids", [])
            answer = self.read_line()
        self.other_pids = answer.get("other_pids", self.other_pids)
        return answer

    def pids(self):
        """The ids of its processes."""
        return [self.process.pid, *self.other_pids]

    def proc(self, name):
        """The texts of a file of /proc for each of its processes."""
        return [Path(f"/proc/{pid}/{name}").read_text() for pid in self.pids()]

    def cpu_seconds(self):
        """User and system time that its processes have used so far."""
        ticks = [stat.rsplit(")", 1)[1].split()[11:13] for stat in self.proc("stat")]
        return sum(int(user) + int(system) for user, system in ticks) / CLOCK_TICK

    def peak_mb(self):
        """The sum of the largest resident sets of its processes so far, in MB (10^6 bytes)."""
        return sum(int(re.search(r"VmHWM:\s*(\d+) kB", status)[1]) * 1024 / 1e6
                   for status in self.proc("status"))

    def stop(self):
        """Close its input; kill the process if it does not end."""
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


class Apart(Peer):
    """Lockstep as several processes of one worker each, which train at the same time without exchanging anything.
    Its rate is an upper limit for as many workers in one process. Because workers in one process wait for
    each other, its rate is the number of processes times the rate of the slowest one."""

    def __init__(self, name, command, processes, shards):
        super().__init__(name, command, None, shards)
        self.all = [self] + [Peer(name, command) for _ in range(processes - 1)]

    def launch(self):
        super().launch()
        for p in self.all[1:]:
            p.launch()
        self.other_pids = [p.process.pid for p in self.all[1:]]

    def round(self, words=""):
        for p in self.all:
            p.ask(words)
        rates = [p.hear()["images_per_s"] for p in self.all]
        self.answers.append({"images_per_s": len(rates) * min(rates)})

    def stop(self):
        super().stop()
        for p in self.all[1:]:
            p.stop()


def torch_peers(args):
    """Peers for each interpreter that can import PyTorch: not compiled, compiled, and several processes."""
    peers = []
    script = str(HERE / f"{args.network}_torch.py")
    for python in args.python:
        try:
            probe = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                                   capture_output=True, text=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            say(f"skipped {python}: no PyTorch in it")
            continue
        version = probe.stdout.strip()
        command = [python, script, "--data", args.data, *args.torch_option]
        if args.steps:
            command += ["--steps", str(args.steps)]
        peers.append(Peer(f"torch {version}", command))
        if int(version.split(".")[0]) >= 2:
            peers.append(Peer(f"torch {version} compiled",
                              command + ["--compile", "default"]))
        if args.torch_processes > 1:
            n = args.torch_processes
            peers.append(Peer(f"torch {version}, {n} processes",
                              command + ["--processes", str(n), "--threads", "1"]))
    return peers


def lockstep_peers(args):
    """A peer for each number of workers and each value of `shards`. For the first value also a peer of as many
    independent processes."""
    command = [*shlex.split(args.lockstep), "--set", f"data.path={args.data}"]
    if args.steps:
        command += ["--steps", str(args.steps)]
    def of(workers, shards):
        return [*command, "--set", f"devices=cpu:{workers}", "--set", f"shards={shards}"]

    peers = [Peer(f"lockstep cpu:{workers}, shards {shards}", of(workers, shards), workers, shards)
             for shards in args.shards for workers in args.workers]
    most, shards = max(args.workers), args.shards[0]
    if most > 1:
        peers.append(Apart(f"lockstep, {most} processes of cpu:1, shards {shards}", of(1, shards), most,
                           shards))
    return peers


def idle_use(peers, seconds):
    """CPU seconds per second that each peer uses while it waits."""
    before = [p.cpu_seconds() for p in peers]
    time.sleep(seconds)
    use = {p.name: (p.cpu_seconds() - b) / seconds for p, b in zip(peers, before)}
    for name, share in use.items():
        if share > 0.01:
            say(f"warning: {name} uses {share:.2f} of a core while it waits")
    return use


def ratios(peer, base):
    """The ratios of two rates, computed for each round: their median, minimum and maximum."""
    values = [a / b for a, b in zip(peer.rates, base.rates)]
    return {"median": statistics.median(values), "min": min(values), "max": max(values)}


def scaling(peers):
    """Ratios of several workers to one with the same value of `shards`, and of both to independent processes."""
    one = {p.shards: p for p in peers if p.workers == 1}
    pairs = [(f"cpu:{p.workers} against cpu:1, shards {p.shards}", p, one[p.shards])
             for p in peers if (p.workers or 0) > 1 and p.shards in one]
    for apart in (p for p in peers if isinstance(p, Apart)):
        n = len(apart.all)
        words = f"{n} processes of cpu:1"
        pairs += [(f"{words} against one, shards {p.shards}", apart, p) for p in [one.get(apart.shards)] if p]
        pairs += [(f"cpu:{n} against {words}, shards {p.shards}", p, apart)
                  for p in peers if p.workers == n and p.shards == apart.shards]
    return [{"name": name, **ratios(p, base)} for name, p, base in pairs]


def shares(peer):
    """The median over the rounds of each share of a step; None if the peer does not report shares."""
    told = [answer["shares"] for answer in peer.answers if "shares" in answer]
    return {part: statistics.median(t[part] for t in told) for part in told[0]} if told else None


def summarise(peers, idle):
    """All results as a dict; ratios are to the PyTorch form with the best median."""
    torches = [p for p in peers if p.name.startswith("torch")]
    best = max(torches, key=lambda p: statistics.median(p.rates), default=None)
    return {"best_torch": best.name if best else None, "scaling": scaling(peers),
            "peers": [{"name": p.name, "command": p.command, "rates": p.rates,
                       "median": statistics.median(p.rates),
                       "min": min(p.rates), "max": max(p.rates),
                       "ratio": ratios(p, best) if best else None,
                       "peak_mb": p.peak_mb(), "idle_cpu": idle[p.name], "shares": shares(p)}
                      for p in peers]}


def markdown(summary):
    """The summary as tables; rates in images/s."""
    lines = ["| peer | median | min | max | × best PyTorch (min–max) | peak memory, MB |",
             "|---|---:|---:|---:|---:|---:|"]
    for p in summary["peers"]:
        ratio = (f"{p['ratio']['median']:.2f} ({p['ratio']['min']:.2f}–{p['ratio']['max']:.2f})"
                 if p["ratio"] else "")
        digits = 0 if p["median"] >= 1000 else 1
        lines.append(f"| {p['name']} | {p['median']:,.{digits}f} | {p['min']:,.{digits}f} "
                     f"| {p['max']:,.{digits}f} | {ratio} | {p['peak_mb']:,.0f} |")
    lines.append("")
    for s in summary["scaling"]:
        lines.append(f"- {s['name']}: {s['median']:.2f}× ({s['min']:.2f}–{s['max']:.2f})")
    told = [p for p in summary["peers"] if p["shares"]]
    if told:
        parts = list(told[0]["shares"])
        lines += ["", "Where a worker's step goes, in % of it; what is left over is adding up its "
                  "own shards:", "", f"| | {' | '.join(parts)} |", "|---" + "|---:" * len(parts) + "|"]
        for p in told:
            cells = " | ".join(f"{100 * p['shares'][part]:.2f}" for part in parts)
            lines.append(f"| {p['name']} | {cells} |")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--network", choices=("lenet", "resnet"), default="lenet",
                        help="PyTorch's side: bench/peers/NETWORK_torch.py")
    parser.add_argument("--data", required=True,
                        help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--steps", type=int, help="steps in a round (default: the peers')")
    parser.add_argument("--python", action="append", default=[],
                        help="an interpreter that has PyTorch; may be repeated")
    parser.add_argument("--torch-option", action="append", default=[],
                        help="passed on to PyTorch's side, e.g. --torch-option=--layout=contiguous")
    parser.add_argument("--torch-processes", type=int, default=1, metavar="N",
                        help="PyTorch also as N processes of one thread each")
    parser.add_argument("--lockstep", metavar="COMMAND",
                        help="bench/trainer_rounds and its configuration")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2],
                        help="Lockstep's worker counts (default: 1 2)")
    parser.add_argument("--shards", nargs="+", default=["8"],
                        help="Lockstep's logical shards: numbers or 'devices' (default: 8)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND",
                        help="another program that follows the protocol, run by the shell")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--at-most", type=float, default=float("inf"), metavar="SECONDS",
                        help="begin no further round after so long, if there were 3")
    parser.add_argument("--idle", type=float, default=2.0, metavar="SECONDS",
                        help="how long idle CPU use is watched (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


def main():
    args = parse_arguments()
    peers = torch_peers(args)
    if args.lockstep:
        peers += lockstep_peers(args)
    for text in args.peer:
        name, _, command = text.partition("=")
        peers.append(Peer(name, ["sh", "-c", "exec " + command]))

    started = []
    try:
        for p in peers:
            if p.start():
                started.append(p)
        if not started:
            sys.exit("no peer could be started")
        idle = idle_use(started, args.idle)
        load_before = os.getloadavg()[0]
        begin = time.monotonic()
        for number in range(1, args.rounds + 1):
            if number > ROUNDS_LEAST and time.monotonic() - begin > args.at_most:
                say(f"no time for more than {number - 1} of {args.rounds} rounds")
                break
            for p in started:
                p.round()
                say(f"round {number}: {p.name} {p.rates[-1]:,.1f}")
        summary = summarise(started, idle)
    except (OSError, RuntimeError, ValueError) as error:
        sys.exit(f"the rounds were stopped: {error}")
    finally:
        for p in started:
            p.stop()

    summary.update(network=args.network, rounds=len(started[0].rates),
                   cpus=len(os.sched_getaffinity(0)),
                   load_before=load_before, load_after=os.getloadavg()[0])
    print(markdown(summary))
    if args.json:
        args.json.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
