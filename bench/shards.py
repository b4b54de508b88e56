#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the default number of shards with every other one, on two workers: a table of rates.

    python3 bench/shards.py --rounds-program build/…/trainer_rounds [--rounds 7]
                            [--batches 16 32 48 64 256] [--only WORD…]

Runs LeNet and the networks of nets.py, each at several batch sizes. A config without the key `shards`
takes turns with configs of 1, 2, 3, 4, 6 and 8 shards, if there are at least as many rows. Each
figure is a rate with the default number divided by the best rate with any number. There are three
kinds of rates: rows per second of elapsed time; rows per second of CPU time of the busiest thread,
which is what the first rate would be on an otherwise idle machine; and rows per second of CPU time
of both threads, which does not show whether one thread does more work than the other. The last
columns have the rates with the other numbers divided by that of the default, by the busiest thread.
The line after the table has the smallest ratio of each kind.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import nets  # noqa: E402
from run import Peer, say  # noqa: E402

COUNTS = (1, 2, 3, 4, 6, 8)
BATCHES = (16, 32, 48, 64, 256)
ROUND_S = 0.25


class Run:
    """A process of trainer_rounds with this number of shards; 0: the default number."""

    def __init__(self, program, path, shards, steps):
        self.shards, self.steps, self.busiest, self.all = shards, steps, [], []
        name = [] if shards == 0 else ["--set", f"shards={shards}"]
        self.peer = Peer("lockstep", [program, str(path), "--steps", str(steps), "--set", "devices=cpu:2", *name])
        if not self.peer.start():
            sys.exit("Lockstep does not run")

    def threads(self):
        """The CPU time of each thread in seconds."""
        tasks = Path(f"/proc/{self.peer.process.pid}/task").iterdir()
        return {task.name: int((task / "schedstat").read_text().split()[0]) / 1e9 for task in tasks}

    def round(self):
        before = self.threads()
        self.peer.round()
        spent = [seconds - before.get(thread, 0) for thread, seconds in self.threads().items()]
        self.busiest.append(max(spent))
        self.all.append(sum(spent))

    def rows_by(self, seconds, batch):
        return self.steps * batch / statistics.median(seconds)


def network_cases(batches):
    lenet = json.loads((nets.ROOT / "examples/fashion_mnist.json").read_text())["model"]
    found = [("LeNet", {"model": lenet}, (1, 28, 28), 10)]
    for name, _, config, shape, target in nets.cases("nets"):
        # Networks that are trained with fewer rows need much memory; some networks are there twice.
        if config["batch_size"] >= 64 and all(config["model"] != other["model"] for _, other, *_ in found):
            found.append((name, config, shape, target))
    for name, config, shape, target in found:
        for batch in batches:
            yield name, config | {"batch_size": batch}, shape, target


def measure(args, folder, case):
    name, config, shape, target = case
    batch = config["batch_size"]
    path, most = nets.prepare(folder, f"{name} {batch}", config, shape, target)
    probe = Run(args.rounds_program, path, 0, min(4, most))
    probe.round()
    probe.round()
    rate = probe.peer.rates[-1]
    probe.peer.stop()
    steps = max(1, min(round(ROUND_S * rate / batch), most))
    runs = [Run(args.rounds_program, path, n, steps) for n in (0, *COUNTS) if n <= batch]
    try:
        for run in runs:
            run.round()  # which warms up
            run.peer.answers.clear()
            run.busiest.clear()
            run.all.clear()
        for _ in range(args.rounds):
            for run in runs:
                run.round()
    finally:
        for run in runs:
            run.peer.stop()
    rates = {run.shards: statistics.median(run.peer.rates) for run in runs}
    busiest = {run.shards: run.rows_by(run.busiest, batch) for run in runs}
    both = {run.shards: run.rows_by(run.all, batch) for run in runs}
    out = {"name": name, "batch": batch, "rates": rates, "busiest": busiest, "both": both,
           "of_best": [figures[0] / max(figures.values()) for figures in (rates, busiest, both)]}
    say(f"{name}, {batch}: of the best by clock, busiest thread, both: " + ", ".join(f"{f:.2f}" for f in out["of_best"]))
    return out


def markdown(results):
    print("| network | rows a step | default, rows/s | × best | by the busiest thread | by both | "
          + " | ".join(f"{n}" for n in COUNTS) + " |")
    print("|---|---:|---:|---:|---:|---:|" + "---:|" * len(COUNTS))
    for r in results:
        cells = [f"{r['busiest'][n] / r['busiest'][0]:.2f}" if n in r["busiest"] else "" for n in COUNTS]
        print(f"| {r['name']} | {r['batch']} | {r['rates'][0]:,.0f} | " + " | ".join(f"{f:.2f}" for f in r["of_best"])
              + " | " + " | ".join(cells) + " |")
    least = [min(r["of_best"][i] for r in results) for i in range(3)]
    print(f"\nLeast: {least[0]:.2f} by the clock, {least[1]:.2f} by the busiest thread, {least[2]:.2f} by both.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds-program", required=True, help="bench/trainer_rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, nargs="+", default=BATCHES)
    parser.add_argument("--only", nargs="+", help="networks with one of these words in their names")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    args = parser.parse_args()
    folder = nets.ROOT / "bench/out/shards"
    folder.mkdir(parents=True, exist_ok=True)
    results = [measure(args, folder.resolve(), case) for case in network_cases(args.batches)
               if not args.only or any(word in case[0] for word in args.only)]
    markdown(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")


if __name__ == "__main__":
    main()
