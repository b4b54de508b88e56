#!/usr/bin/env python3
"""Compare LeNet training rates of several programs in one interleaved run.

Every peer is a process that warms up, then trains one round for each line it reads and
answers with one JSON line that holds "images_per_s". The rounds go A B C A B C ... while
the others sleep, so that all peers see the same neighbours and clock; ratios are taken
round by round and their median is reported. Before the rounds, every peer's idle CPU time
is measured: one that spins while it waits would slow the others.

    python3 bench/peers/run.py --data DIR --rounds 7 --json out.json \\
        --python /usr/bin/python3 --python VENV/bin/python \\
        --lockstep "build/release/bench/trainer_rounds examples/fashion_mnist.json"
"""

import argparse
import json
import os
import select
import shlex
import shutil
import statistics
import subprocess
import sys
import time
from pathlib import Path

TORCH = Path(__file__).with_name("lenet_torch.py")
ANSWER_TIMEOUT_S = 600
CLOCK_TICK = os.sysconf("SC_CLK_TCK")


class Peer:
    """A process that trains one round for each line it is sent."""

    def __init__(self, name, command, environment=None):
        self.name, self.command, self.environment = name, command, environment or {}
        self.rates = []

    def start(self):
        """Start it and wait until it is warm; False, with a notice, if it cannot run."""
        if shutil.which(self.command[0]) is None:
            return self.skip(f"{self.command[0]} not found")
        self.process = subprocess.Popen(
            self.command, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            env={**os.environ, **self.environment})
        try:
            self.round()  # a warm-up of its own, not counted
        except (OSError, RuntimeError, ValueError) as error:
            self.stop()
            return self.skip(error)
        self.rates.clear()
        return True

    def skip(self, reason):
        print(f"skipped {self.name}: {reason}", file=sys.stderr)
        return False

    def read_line(self):
        """One line of its output; RuntimeError when none comes."""
        ready, _, _ = select.select([self.process.stdout], [], [], ANSWER_TIMEOUT_S)
        line = self.process.stdout.readline() if ready else b""
        if not line:
            raise RuntimeError("no answer")
        return json.loads(line)

    def round(self):
        """Ask for one round and keep its rate."""
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()
        answer = self.read_line()
        while "images_per_s" not in answer:  # what it says before it is warm
            answer = self.read_line()
        self.rates.append(answer["images_per_s"])

    def cpu_seconds(self):
        """User and system time it has used so far."""
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rsplit(")", 1)[1]
        user, system = fields.split()[11:13]
        return (int(user) + int(system)) / CLOCK_TICK

    def stop(self):
        """End its input; kill it if it does not leave."""
        try:
            self.process.stdin.close()
            self.process.wait(10)
        except (OSError, subprocess.TimeoutExpired):
            self.process.kill()
            self.process.wait()


def torch_peers(interpreters, data, options):
    """A peer for each interpreter that can import PyTorch, plain and compiled."""
    peers = []
    for python in interpreters:
        probe = subprocess.run([python, "-c", "import torch; print(torch.__version__)"],
                               capture_output=True, text=True)
        if probe.returncode:
            print(f"skipped {python}: no PyTorch in it", file=sys.stderr)
            continue
        version = probe.stdout.strip()
        command = [python, str(TORCH), "--data", data, *options]
        peers.append(Peer(f"torch {version}", command))
        if int(version.split(".")[0]) >= 2:
            peers.append(Peer(f"torch {version} compiled",
                              command + ["--compile", "default"]))
    return peers


def lockstep_peers(command, workers, data):
    """A peer for each number of workers."""
    return [Peer(f"lockstep cpu:{n}", [*shlex.split(command), "--set", f"devices=cpu:{n}",
                                       "--set", f"data.path={data}"])
            for n in workers]


def idle_use(peers, seconds):
    """CPU seconds per second that each peer uses while it waits."""
    before = [p.cpu_seconds() for p in peers]
    time.sleep(seconds)
    return {p.name: (p.cpu_seconds() - b) / seconds for p, b in zip(peers, before)}


def summarise(peers, idle):
    """One entry per peer; ratios to the PyTorch form with the best median."""
    torches = [p for p in peers if p.name.startswith("torch")]
    best = max(torches, key=lambda p: statistics.median(p.rates), default=None)
    entries = []
    for p in peers:
        entry = {"name": p.name, "command": p.command, "environment": p.environment,
                 "median": statistics.median(p.rates), "min": min(p.rates),
                 "max": max(p.rates), "rates": p.rates, "idle_cpu": idle[p.name]}
        if best:
            ratios = [a / b for a, b in zip(p.rates, best.rates)]
            entry["ratio"] = statistics.median(ratios)
            entry["ratio_min"], entry["ratio_max"] = min(ratios), max(ratios)
        entries.append(entry)
    return {"best_torch": best.name if best else None, "peers": entries,
            "scaling": scaling(peers)}


def scaling(peers):
    """Lockstep with more workers against Lockstep with the fewest, round by round."""
    ours = [p for p in peers if p.name.startswith("lockstep")]
    result = []
    for p in ours[1:]:
        ratios = [a / b for a, b in zip(p.rates, ours[0].rates)]
        result.append({"name": f"{p.name} / {ours[0].name}", "median": statistics.median(ratios),
                       "min": min(ratios), "max": max(ratios)})
    return result


def markdown(summary):
    """The summary as a table; rates in images/s."""
    lines = ["| peer | median | min | max | × best PyTorch (min–max) |",
             "|---|---:|---:|---:|---:|"]
    for e in summary["peers"]:
        ratio = (f"{e['ratio']:.2f} ({e['ratio_min']:.2f}–{e['ratio_max']:.2f})"
                 if "ratio" in e else "")
        lines.append(f"| {e['name']} | {e['median']:,.0f} | {e['min']:,.0f} "
                     f"| {e['max']:,.0f} | {ratio} |")
    for e in summary["scaling"]:
        lines.append(f"\n{e['name']}: {e['median']:.2f}× ({e['min']:.2f}–{e['max']:.2f})")
    return "\n".join(lines)


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", required=True,
                        help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--python", action="append", default=[],
                        help="an interpreter that has PyTorch; may be repeated")
    parser.add_argument("--torch-option", action="append", default=[],
                        help="passed on to lenet_torch.py, e.g. --torch-option=--steps=30")
    parser.add_argument("--lockstep", metavar="COMMAND",
                        help="bench/trainer_rounds and its configuration")
    parser.add_argument("--workers", type=int, nargs="+", default=[1, 2],
                        help="Lockstep's worker counts (default: 1 2)")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=COMMAND",
                        help="another program that follows the protocol, run by the shell")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--idle", type=float, default=2.0, metavar="SECONDS",
                        help="how long idle CPU use is watched (default: %(default)s)")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    return parser.parse_args()


def main():
    args = parse_arguments()
    peers = torch_peers(args.python, args.data, args.torch_option)
    if args.lockstep:
        peers += lockstep_peers(args.lockstep, args.workers, args.data)
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
        for name, use in idle.items():
            if use > 0.01:
                print(f"warning: {name} uses {use:.2f} of a core while it waits",
                      file=sys.stderr)
        load_before = os.getloadavg()[0]
        for number in range(1, args.rounds + 1):
            for p in started:
                p.round()
                print(f"round {number}: {p.name} {p.rates[-1]:,.0f}", file=sys.stderr)
    finally:
        for p in started:
            p.stop()

    summary = summarise(started, idle)
    summary.update(rounds=args.rounds, cpus=len(os.sched_getaffinity(0)),
                   load_before=load_before, load_after=os.getloadavg()[0])
    print(markdown(summary))
    if args.json:
        args.json.write_text(json.dumps(summary, indent=2) + "\n")


if __name__ == "__main__":
    main()
