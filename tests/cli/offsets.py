#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Numbers with a large offset lose nothing: offsets.py TRAINER

Columns of epoch milliseconds, long ids and Julian dates, whose middle divides two classes, are learnt nearly without
errors, and a target near 1.7e9 as well as the same target without its offset. FLOOR is scikit-learn's accuracy
(StandardScaler and LogisticRegression) on these new rows, less 0.01.
"""
import csv
import os
import pathlib
import random
import subprocess
import sys
import tempfile

ROWS = 1000
FLOOR = {"ms": 0.989, "ids": 0.989, "days": 0.989}
trainer = os.path.abspath(sys.argv[1])


def run(*command):
    done = subprocess.run([trainer, *(str(c) for c in command)], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def write(name, rows):
    with open(name, "w", newline="") as f:
        csv.writer(f).writerows(rows)


def predicted(name, rows, labels, column):
    """Trains on the first rows, and returns the predictions of the others."""
    head = ["x", "noise", "y"]
    write(f"{name}.csv", [head, *rows[:ROWS]])
    write(f"{name}-new.csv", [head[:2], *(r[:2] for r in rows[ROWS:])])
    run("init", f"{name}.csv", "--target", "y", "--to", f"{name}.json", *labels, "--set", f"run_dir={name}", "--set",
        "devices=cpu:1", "--train")
    run("predict", name, f"{name}-new.csv", "--to", f"{name}-out.csv")
    with open(f"{name}-out.csv", newline="") as f:
        return [column(r["prediction"]) for r in csv.DictReader(f)]


def classes(kind):
    rng = random.Random(7)
    make = {"ms": lambda u: 1764364143000 + int(60000 * u), "ids": lambda u: 1234567000000 + int(1000 * u),
            "days": lambda u: f"{2460000.5 + u:.6f}"}[kind]
    draws = [rng.random() for _ in range(2 * ROWS)]
    return [(make(u), f"{rng.gauss(0, 1):.4f}", "late" if u >= .5 else "early") for u in draws]


def values(offset):
    rng = random.Random(9)
    rows = []
    for _ in range(2 * ROWS):
        x, noise = rng.gauss(0, 1), rng.gauss(0, 1)
        rows.append((f"{x:.4f}", f"{noise:.4f}", offset + round(600 * x + rng.gauss(0, 12))))
    return rows


def error(offset):
    rows = values(offset)
    found = predicted(f"target{offset}", rows, ["--set", "data.labels=values"], float)
    return (sum((p - r[2]) ** 2 for p, r in zip(found, rows[ROWS:])) / ROWS) ** .5


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        for kind, floor in FLOOR.items():
            rows = classes(kind)
            found = predicted(kind, rows, [], str)
            accuracy = sum(p == r[2] for p, r in zip(found, rows[ROWS:])) / ROWS
            print(f"{kind}: accuracy {accuracy:.3f}, expected {floor:.3f}")
            assert accuracy >= floor, kind
        near, far = error(0), error(1700000000)
        print(f"target near 1.7e9: RMSE {far:.2f}, without its offset {near:.2f}")
        assert far <= 1.05 * near
