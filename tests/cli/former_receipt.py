# SPDX-License-Identifier: MIT
"""Runs that an earlier version with the same kernels has made are verified by this one: former_receipt.py TRAINER

former_receipts/run is the directory of a run, the other files are receipts alone with their weights. They are never
made anew while the version of the kernels stays the same: a difference means that this version accuses honest runs.
Keys of records, members of receipts and keys of the recipe that were added since must not make a difference
(docs/verify.md, "Versions of the program"). Only when the version of the kernels is raised:

    former_receipt.py TRAINER --renew
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

FORMER = pathlib.Path(__file__).resolve().parent / "former_receipts"
SMALL = [{"type": "avg_pool", "name": "p", "kernel": 7}, {"type": "flatten", "name": "f"}]
SYNTHETIC = {"name": "synthetic", "limit": 512}
CONFIGS = {
    "run": {"data": {"name": "synthetic", "limit": 25856}, "epochs": 1, "seed": 3,
            "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9},
            "model": {"layers": [*SMALL, {"type": "dense", "name": "d", "out": 10}]}},
    "adamw": {"data": SYNTHETIC, "epochs": 6, "ema": 0.9, "eval_every": 2, "patience": 2, "freeze": "c.weight",
              "freeze_epochs": 2, "schedule": {"name": "cosine", "warmup_epochs": 1},
              "optimizer": {"name": "adamw", "lr": 0.003, "weight_decay": 0.01},
              "augment": {"crop": 2, "flip": True, "mixup": 0.2, "resized_crop": 0.5},
              "model": {"layers": [{"type": "avg_pool", "name": "p", "kernel": 4},
                                   {"type": "conv2d", "name": "c", "out": 2, "kernel": 3},
                                   {"type": "batch_norm", "name": "n"}, {"type": "flatten", "name": "f"},
                                   {"type": "dense", "name": "d", "out": 10}]}},
    "table": {"data": {"name": "csv", "path": "points.csv", "target": "y", "weight": "w", "labels": "values",
                       "validation": 0.25, "missing": "mean", "clip": 4},
              "batch_size": 16, "epochs": 4, "loss": "quantile", "quantiles": [0.1, 0.9],
              "schedule": {"name": "one_cycle"}, "optimizer": {"name": "sgd", "lr": 0.01, "clip_norm": 1},
              "model": {"layers": [{"type": "dense", "name": "a", "out": 4}, {"type": "relu", "name": "r"},
                                   {"type": "dense", "name": "b", "out": 2}]}},
    "classes": {"data": {"name": "csv", "path": "points.csv", "target": "k", "drop": ["w"], "fold": 2,
                         "validation": 0.25, "missing": "zero"},
                "batch_size": 16, "epochs": 3, "class_weights": "balanced", "label_smoothing": 0.1,
                "schedule": {"name": "step", "every_epochs": 1}, "init": "xavier",
                "optimizer": {"name": "sgd", "lr": 0.01, "momentum": 0.5, "nesterov": True},
                "model": {"layers": [{"type": "dense", "name": "a", "out": 2}]}},
}


def call(trainer, *arguments, cwd):
    return subprocess.run([trainer, *arguments], capture_output=True, text=True, cwd=cwd)


def renew(trainer):
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name)
        shutil.copy(FORMER / "points.csv", place)
        for config, keys in CONFIGS.items():
            keys = keys | {"receipt": True, "run_dir": config, "devices": "cpu:1"}
            (place / "c.json").write_text(json.dumps(keys))
            done = call(trainer, "c.json", "--quiet", cwd=place)
            assert done.returncode == 0, done.stderr
            if config == "run":
                shutil.rmtree(FORMER / "run", ignore_errors=True)
                shutil.copytree(place / "run", FORMER / "run", ignore=shutil.ignore_patterns("lock", "notes.jsonl"))
                continue
            shutil.copy(place / config / "receipt.json", FORMER / f"{config}.json")
            shutil.copy(place / config / "weights.safetensors", FORMER / f"{config}.safetensors")


def check(trainer):
    with tempfile.TemporaryDirectory() as name:
        place = pathlib.Path(name) / "former"
        shutil.copytree(FORMER, place)
        for config, keys in CONFIGS.items():
            what = ["run"] if config == "run" else [f"{config}.json", "--weights", f"{config}.safetensors"]
            if "path" in keys["data"]:
                what += ["--set", f"data.path={place / keys['data']['path']}"]
            done = call(trainer, "verify", *what, "--all", "--quiet", "--devices", "cpu:2", cwd=place)
            assert done.returncode == 0 and done.stdout.startswith("verified: the whole training"), \
                f"{config}: {done.returncode}: {done.stdout}{done.stderr}"
        check_lacking(trainer, place)


def check_lacking(trainer, place):
    """Keys that no record of a type has are those of a later version; a key that some records have must be in all."""
    path = place / "run" / "metrics.jsonl"
    honest = path.read_text()

    def verify(records):
        path.write_text("".join(json.dumps(r) + "\n" for r in records))
        return call(trainer, "verify", "run", "--all", "--quiet", "--devices", "cpu:1", cwd=place)
    records = [json.loads(line) for line in honest.splitlines()]
    done = verify([{k: v for k, v in r.items() if k != "lr"} if r["type"] == "step" else r for r in records])
    assert done.returncode == 0 and done.stdout.endswith("; its records do not have step.lr\n"), done.stdout
    done = verify([{k: v for k, v in r.items() if k != "lr"} if r.get("step") == 7 else r for r in records])
    assert done.returncode == 1 and "the record step 7 has lr nothing" in done.stdout, done.stdout
    path.write_text(honest)


if __name__ == "__main__":
    (renew if "--renew" in sys.argv[2:] else check)(os.path.abspath(sys.argv[1]))
