#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains LeNet on 1, 2, 3 and 8 workers, and on 3 of which one dies, and draws what came out.

    docs/same_bits.py [--trainer ./trainer] [--svg docs/same_bits.svg] [--check [RUNS]]

Prints one line per run; exit status 1 if the SHA-256 of the weights is not the same in all of them. With --check, draws
nothing, and compares the first RUNS runs, or all, with the picture; exit status 77 if the data is missing.
"""
import argparse
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))
import svg  # noqa: E402

STEPS, LOST_AT = 20, 9
WIDTH, SHOWN = 480, 640  # narrow: a telephone's page has some 360 pixels
RUNS = ((1, None), (2, None), (3, None), (3, 1), (8, None))  # workers, which one dies


def train(trainer, workers, dies):
    """The device, and the SHA-256 of the weights."""
    command = [trainer, ROOT / "examples" / "fashion_mnist.json", "--quiet", "--metrics", "-",
               "--devices", f"cpu:{workers}"]
    for assignment in (f"data.limit={256 * STEPS}", "epochs=1", "optimizer.momentum=0.9",
                       "optimizer.lr=0.05", "run_dir=null"):
        command += ["--set", assignment]
    if dies is not None:
        command += ["--inject", f"worker={dies},step={LOST_AT},kind=fail"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    if done.returncode == 66 and "fashion_mnist" in done.stderr:
        print(f"skipped: {done.stderr.strip()}")
        sys.exit(77)
    if done.returncode:
        sys.exit(done.stderr)
    records = [json.loads(line) for line in done.stdout.splitlines()]
    faults = [r for r in records if r["type"] == "fault"]
    if len(faults) != (dies is not None):
        sys.exit(f"{len(faults)} workers were lost in a run of {workers}")
    return records[0], records[-1]["weights_sha256"]


def lanes(y, workers, dies):
    left, right, out = 138, 272, []
    step = (right - left) / STEPS
    for w in range(workers):
        x = left + step * (LOST_AT if w == dies else STEPS)
        out.append(svg.box(left, y + 6 * w, x - left, 4, "f4" if w == dies else "f2"))
        if w == dies:
            out += [svg.text(x + 5, y + 6 * w + 6, "×", kind="strong")]
    return out


def draw(runs, machine):
    out, y = [svg.text(16, 28, "LeNet's weights after 20 steps: one SHA-256", kind="title")], 56
    for workers, dies, sha in runs:
        middle = y + 3 * workers + 2
        name = f"{workers} worker{'s' if workers > 1 else ''}"
        out += [svg.text(16, middle, name + (", one dies" if dies is not None else ""), kind="strong")]
        out += lanes(y, workers, dies) + [svg.text(284, middle, sha[:24] + "…")]
        y += 6 * workers + 16
    out.append(svg.text(16, y + 4, f"Fashion-MNIST, 256 images per step, momentum; {machine}"))
    return svg.picture(WIDTH, y + 20, out, f"One SHA-256 from {len(runs)} runs: {runs[0][2]}", SHOWN)


def is_stale(picture, runs):
    """Returns why the picture does not show these runs, or None."""
    drawn = re.findall(r">([0-9a-f]{24})…<", picture)
    for sha, (workers, dies, found) in zip(drawn, runs):
        if sha != found[:24]:
            return f"{workers} workers{', one dies' if dies is not None else ''}: the picture shows {sha}…, found {found}"
    if len(drawn) != len(RUNS) or f"One SHA-256 from {len(RUNS)} runs: {runs[0][2]}" not in picture:
        return f"the picture shows {len(drawn)} runs, and its label is another one"
    return None


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("--trainer", default=ROOT / "trainer")
    parser.add_argument("--svg", default=ROOT / "docs" / "same_bits.svg")
    parser.add_argument("--check", type=int, nargs="?", const=len(RUNS))
    args = parser.parse_args()
    runs = []
    for workers, dies in RUNS[:args.check]:
        begun, sha = train(args.trainer, workers, dies)
        print(f"{workers} workers{', one dies' if dies is not None else ''}: {sha}")
        runs.append((workers, dies, sha))
    if args.check:
        why = is_stale(pathlib.Path(args.svg).read_text(encoding="utf-8"), runs)
        if why:
            sys.exit(f"{args.svg}: {why}; draw it again with docs/same_bits.py")
        return 0
    pathlib.Path(args.svg).write_text(
        draw(runs, ", ".join(filter(None, (begun["device_model"], begun["instruction_set"])))), encoding="utf-8")
    return len({sha for _, _, sha in runs}) != 1


if __name__ == "__main__":
    sys.exit(main())
