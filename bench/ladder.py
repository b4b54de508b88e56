#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the seconds of training to a test accuracy on Fashion-MNIST, beside PyTorch.

    python3 bench/ladder.py --python VENV/bin/python [--trainer ./trainer] [--quick] [90 92 93]

There is one config for each target, examples/ladder/<percent>.json. A run trains with this config and
ends with the first evaluation that reaches the target accuracy. Its time is the training time before this evaluation;
for both programs the start, the compilation of the network and the evaluations, one after each epoch, do not count.
PyTorch trains the same network by the same recipe (peers/ladder_torch.py), in the fastest of four forms: eager or
compiled, channels last or not. Lockstep and PyTorch take turns: each trains with one seed, then with the next. CPU time
is counted from the end of the start and includes the evaluations.
"""

import argparse
import json
import math
import os
import statistics
import subprocess
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import svg  # noqa: E402
from run import Peer, say  # noqa: E402

ROOT = Path(__file__).parent.parent
DATA = Path("/usr/share/datasets/fashion-mnist")
RUNGS = ("90", "92", "93")
ONCE = ("94",)  # targets that are measured with the first seed only
SIDES = ("Lockstep", "PyTorch")
FORMS = tuple((form, layout) for form in ("eager", "compiled") for layout in ("channels_last", "contiguous"))
STARTED = ("run_start", "ready")  # the first record of a run


def read_run(lines, target, started=lambda record: None):
    """Reads the records of a run up to the first evaluation that reaches the target. Calls `started` with the first
    record. Returns the points (seconds of training, accuracy) and whether the target was reached."""
    seconds, points = 0.0, []
    for line in lines:
        record = json.loads(line)
        if record["type"] in STARTED:
            started(record)
        elif record["type"] == "epoch":
            seconds += record["seconds"]
        elif record["type"] == "eval":
            points.append((seconds, record["test_accuracy"]))
            if record["test_accuracy"] >= target:
                return points, True
    return points, False


def train(name, command, env, target):
    """Runs a command and returns the results of read_run and its CPU time; SystemExit if it fails."""
    peer = Peer(name, ["env", *(f"{k}={v}" for k, v in env.items()), *map(str, command)])
    peer.launch()
    peer.process.stdin.close()
    begun = []
    points, reached = read_run(peer.process.stdout, target,
                               lambda record: begun.append((peer.cpu_seconds(), record["parameters"])))
    if not points:
        peer.process.wait()
        sys.exit(f"{name} ended without an evaluation: {' '.join(peer.command)}")
    cpu_s = peer.cpu_seconds() - begun[0][0]
    peer.process.terminate()
    peer.process.wait()
    return {"side": name, "points": points, "reached": reached, "cpu_s": cpu_s,
            "parameters": begun[0][1]}


def torch_command(args, config, form, layout):
    return [args.python, ROOT / "bench/peers/ladder_torch.py", config, "--data", args.data, "--threads",
            args.threads, "--form", form, "--layout", layout]


def torch_env():
    return {"TORCHINDUCTOR_CACHE_DIR": str(ROOT / "bench/out/inductor-ladder")}


def best_form(args, config):
    """The form of PyTorch with the highest rate, and the rates of all forms that run."""
    rates = {}
    for form, layout in FORMS:
        out = subprocess.run([*map(str, torch_command(args, config, form, layout)), "--rate", str(args.rate_s)],
                             env=os.environ | torch_env(), stdout=subprocess.PIPE, text=True, check=False)
        rate = [json.loads(line).get("images_per_s") for line in out.stdout.splitlines()]
        if out.returncode == 0 and rate:
            rates[form, layout] = rate[-1]
            say(f"  PyTorch, {form}, {layout}: {rate[-1]:,.0f} images/s")
    if not rates:
        sys.exit("PyTorch runs in no form")
    return max(rates, key=rates.get), {" ".join(k): v for k, v in rates.items()}


def lockstep_command(args, config, seed):
    keys = (f"seed={seed}", f"data.path={args.data}", "run_dir=null", "checkpoint.every_epochs=0")
    return [args.trainer, config, "--quiet", "--metrics", "-", "--devices", f"cpu:{args.threads}",
            *(word for key in keys for word in ("--set", key))]


def describe(run):
    seconds, accuracy = run["points"][-1]
    best = max(a for _, a in run["points"])
    if not run["reached"]:
        return f"not reached in {seconds:.1f} s, at most {100 * best:.2f} %"
    return f"{100 * accuracy:.2f} % after {seconds:.1f} s, {len(run['points'])} epochs, {run['cpu_s']:.1f} CPU s"


def measure(args, rung):
    """The runs for one target: for each seed one of Lockstep and one of PyTorch."""
    config = args.configs / f"{rung}.json"
    target = int(rung) / 100
    result = {"rung": rung, "epochs": json.loads(config.read_text(encoding="utf-8"))["epochs"], "runs": []}
    say(f"{rung} %: {config.name}")
    if args.python:
        form, result["rates"] = best_form(args, config)
        result["form"] = f"{form[0]}, {form[1].replace('_', ' ')}"
    for seed in args.seeds[:1] if rung in ONCE else args.seeds:
        runs = [train("Lockstep", lockstep_command(args, config, seed), {}, target)]
        say(f"  Lockstep, seed {seed}: {describe(runs[-1])}")
        if args.python:
            runs.append(train("PyTorch", [*torch_command(args, config, *form), "--seed", seed], torch_env(), target))
            say(f"  PyTorch, seed {seed}: {describe(runs[-1])}")
            if runs[0]["parameters"] != runs[1]["parameters"]:
                sys.exit(f"{config.name}: {' and '.join(str(run['parameters']) for run in runs)} parameters")
        result["runs"] += [{**run, "seed": seed} for run in runs]
    return result


def times(result, side):
    """For each seed the seconds to the target, of those runs of one program that reached the target."""
    return {run["seed"]: run["points"][-1][0] for run in result["runs"] if run["side"] == side and run["reached"]}


def spread(values, digits=1):
    """Median, minimum and maximum, as a cell of the table."""
    if not values:
        return "not reached"
    if len(values) == 1:
        return f"{values[0]:.{digits}f}"
    return f"{statistics.median(values):.{digits}f} ({min(values):.{digits}f}–{max(values):.{digits}f})"


def seconds_an_epoch(result, side):
    """Cell of the table: over all epochs of all runs of one program."""
    runs = [run["points"] for run in result["runs"] if run["side"] == side]
    return f"{sum(p[-1][0] for p in runs) / sum(len(p) for p in runs):.2f}" if runs else ""


def row(result):
    """The results for one target as a row of the table."""
    cells = [f"{result['rung']} %", str(result["epochs"])]
    for side in SIDES:
        runs = [run for run in result["runs"] if run["side"] == side]
        reached = list(times(result, side).values())
        some = f", {len(reached)} of {len(runs)}" if 0 < len(reached) < len(runs) else ""
        cells += [spread(reached) + some if runs else "",
                  spread([run["cpu_s"] for run in runs if run["reached"]]) if reached else "",
                  seconds_an_epoch(result, side)]
    ours, torch = (times(result, side) for side in SIDES)
    ratios = [torch[seed] / ours[seed] for seed in ours if seed in torch]
    return "| " + " | ".join([*cells, spread(ratios, 2) if ratios else "", result.get("form", "")]) + " |"


def markdown(results):
    head = ["target", "epochs of the schedule"]
    for side in SIDES:
        head += [f"{side}, s (min–max)", "CPU s", "s an epoch"]
    head += ["× (min–max)", "PyTorch's best form"]
    return "\n".join([f"| {' | '.join(head)} |", "|---" + "|---:" * (len(head) - 2) + "|---|", *map(row, results)])


# ---- the picture -----------------------------------------------------------------------------------

WIDTH, HEIGHT = 880, 430
LEFT, RIGHT, TOP, BOTTOM = 62, 24, 52, 48
COLOURS = {"Lockstep": 2, "PyTorch": 6}
LEAST_SHOWN = 84  # percent


class Axes:
    """Seconds on a logarithmic axis, percents on a linear one."""

    def __init__(self, results):
        seconds = [s for r in results for run in r["runs"] for s, a in run["points"] if 100 * a >= LEAST_SHOWN]
        self.low, self.high = math.log10(min(seconds) / 1.15), math.log10(max(seconds) * 1.15)
        self.most = max(int(r["rung"]) for r in results) + 1

    def x(self, seconds):
        return LEFT + (math.log10(seconds) - self.low) / (self.high - self.low) * (WIDTH - LEFT - RIGHT)

    def y(self, percent):
        return HEIGHT - BOTTOM - (percent - LEAST_SHOWN) / (self.most - LEAST_SHOWN) * (HEIGHT - TOP - BOTTOM)

    def draw(self, targets):
        out = []
        for percent in range(LEAST_SHOWN, self.most + 1):
            y = self.y(percent)
            out.append(svg.line(LEFT, y, WIDTH - RIGHT, y, "axis" if percent in targets else "grid"))
            out.append(svg.text(LEFT - 8, y + 4, f"{percent} %", "end", "strong" if percent in targets else ""))
        for power in range(math.floor(self.low), math.ceil(self.high) + 1):
            for mark in (1, 2, 5):
                seconds = mark * 10.0**power
                if self.low <= math.log10(seconds) <= self.high:
                    x = self.x(seconds)
                    out.append(svg.line(x, TOP, x, HEIGHT - BOTTOM, "grid"))
                    out.append(svg.text(x, HEIGHT - BOTTOM + 18, f"{seconds:g}", "middle"))
        out.append(svg.text(WIDTH - RIGHT, HEIGHT - 10, "seconds of training", "end"))
        return out


def mark(axes, result, side):
    """The median of the seconds to the target, with minimum and maximum."""
    reached = sorted(times(result, side).values())
    if not reached:
        return []
    percent, colour = int(result["rung"]), COLOURS[side]
    y, x = axes.y(percent), axes.x(statistics.median(reached))
    below = 20 if side == "PyTorch" else -10
    low, high = axes.x(reached[0]), axes.x(reached[-1])
    return [f'<path class="s{colour}" stroke-width="4" d="M{low:.1f} {y:.1f}H{high:.1f}"/>',
            f'<circle class="f{colour}" cx="{x:.1f}" cy="{y:.1f}" r="6"/>',
            svg.text(x, y + below, f"{statistics.median(reached):.3g} s", "middle", "strong")]


def picture(results):
    """Accuracy over seconds of training: each run thin, the medians at the targets as dots."""
    axes = Axes(results)
    parts = [svg.text(LEFT, 20, "Fashion-MNIST: seconds of training to a test accuracy", kind="title"),
             *svg.legend(LEFT, 40, SIDES, COLOURS.values()), *axes.draw({int(r["rung"]) for r in results})]
    for result in results:
        for run in result["runs"]:
            shown = [(axes.x(s), axes.y(100 * a)) for s, a in run["points"] if 100 * a >= LEAST_SHOWN]
            parts += [f'<g opacity=".4">{svg.curve(shown, "s" + str(COLOURS[run["side"]]))}</g>'] if shown else []
    for result in results:
        for side in SIDES:
            parts += mark(axes, result, side)
    return svg.picture(WIDTH, HEIGHT, parts, "seconds of training to a test accuracy, Lockstep and PyTorch")


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("rungs", nargs="*", help="percents (default: 90 92 93); 94 is measured with one seed")
    parser.add_argument("--python", help="an interpreter that has PyTorch; without it only Lockstep trains")
    parser.add_argument("--trainer", default=ROOT / "trainer")
    parser.add_argument("--data", type=Path, default=DATA, help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--configs", type=Path, default=ROOT / "examples/ladder")
    parser.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    parser.add_argument("--threads", type=int, default=len(os.sched_getaffinity(0)),
                        help="workers of Lockstep and threads of PyTorch (default: the number of CPUs)")
    parser.add_argument("--rate-s", type=float, default=4, help="seconds that each form of PyTorch is tried for")
    parser.add_argument("--quick", action="store_true", help="the first rung with one seed")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--picture", type=Path, help="write a picture to this file")
    parser.add_argument("--from", dest="source", type=Path, metavar="JSON",
                        help="measure nothing: print and draw this")
    args = parser.parse_args()
    args.rungs = args.rungs or list(RUNGS)
    if args.quick:
        args.rungs, args.seeds = args.rungs[:1], args.seeds[:1]
    return args


def main():
    args = parse_arguments()
    if args.source:
        results = json.loads(args.source.read_text(encoding="utf-8"))
    else:
        results = []
        for rung in args.rungs:
            results.append(measure(args, rung))
            if args.json:  # written after each target, so that an interrupted run keeps its results
                args.json.write_text(json.dumps(results, indent=2) + "\n", encoding="utf-8")
    print(markdown(results))
    if args.picture:
        args.picture.write_text(picture(results), encoding="utf-8")


if __name__ == "__main__":
    main()
