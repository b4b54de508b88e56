#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""same_bits_of_data.py TRAINER: for each form of data that `init` and the readers accept, training has
bit-identical weights on one, two and three workers, and on two workers after a run on one worker
was killed. Needs only Python.

A form can have a counterpart that contains the same data in another form, such as a plain table or an
array with channels first. The weights of the two must be equal, or different if the form is meant to
change them.
"""
import json
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import data_forms as forms
from data_forms import failures, trainer

LAYERS = [{"type": "dense", "out": 8}, {"type": "relu"}, {"type": "dense"}]
PICTURES = [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "out": "classes"}]


def csv(path, target, **more):
    return {"name": "csv", "path": path, "target": target, "missing": "mean", "validation": 0.2, **more}


VALUES = {"labels": "values", "drop": "class"}
# Name of the form: data, layers, and the name of the counterpart with the same weights.
FORMS = {
    "values": (csv("plain.csv", "value", **VALUES), LAYERS, None),
    "commas": (csv("commas.csv", "value", **VALUES), LAYERS, "values"),
    "gzip": (csv("packed.csv.gz", "value", **VALUES), LAYERS, "values"),
    "UTF-16": (csv("utf16.csv", "value", labels="values", drop=["class"]), LAYERS, "values"),
    "classes": (csv("commas.csv", "class", drop=["value"]), LAYERS, None),
    "letters": (csv("letters.csv", "y"), LAYERS, None),
    "codes": (csv("codes.csv", "y"), LAYERS, "letters"),
    "dates": (csv("dates_iso.csv", "y", standardize=True), LAYERS, None),
    "day first": (csv("dates_dmy.csv", "y", standardize=True), LAYERS, "dates"),
    "month first": (csv("dates_mdy.csv", "y", standardize=True), LAYERS, "dates"),
    "npz": ({"name": "npy", "path": "first.npz", "validation": 0.2}, PICTURES, None),
    "channels last": ({"name": "npy", "path": "last.npz", "layout": "channels_last", "validation": 0.2}, PICTURES, "npz"),
    "columns": ({"name": "npy", "path": "columns.npz", "labels": "classes", "standardize": True, "validation": 0.2}, LAYERS, None),
    "photos": ({"name": "folder", "path": "photos", "image_size": 8, "channels": 3, "validation": 0.2}, PICTURES, None),
}


# ---- runs -----------------------------------------------------------------------------------

def config(name, **more):
    data, layers, _ = FORMS[name]
    path = Path("config.json")
    path.write_text(json.dumps({
        "data": data, "model": {"layers": layers}, "batch_size": 16, "shards": 3, "epochs": 3, "seed": 5,
        "optimizer": {"name": "adamw", "lr": 0.01}, **({"loss": "mse"} if data.get("labels") == "values" else {}), **more}))
    return path


def sha(directory):
    records = Path(directory, "metrics.jsonl").read_text().splitlines() if Path(directory, "metrics.jsonl").exists() else []
    last = json.loads(records[-1]) if records else {}
    return last.get("weights_sha256") if last.get("status") == "finished" else None


def train(name, workers):
    shutil.rmtree("run", ignore_errors=True)
    code, text = trainer(config(name, run_dir="run"), "--quiet", "--devices", f"cpu:{workers}")
    if code:
        failures.append(f"{name} on {workers}: {text}")
    return sha("run")


def killed(name):
    """Kills a run in its fifth step, and resumes it from the checkpoint of the fourth or the third step."""
    shutil.rmtree("killed", ignore_errors=True)
    path = config(name, run_dir="killed", checkpoint={"every_steps": 1})
    with open("said.txt", "w", encoding="utf-8") as said, subprocess.Popen(
            [forms.TRAINER, path, "--quiet", "--devices", "cpu:1", "--inject", "worker=0,step=5,kind=stall,seconds=30"],
            stdout=said, stderr=said) as run:
        until = time.monotonic() + 30
        while not Path("killed/checkpoints/step-000000003.safetensors").exists() and time.monotonic() < until and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    if sha("killed"):
        failures.append(f"{name}: it ended before it was killed")
    code, text = trainer("--resume", "killed", "--quiet", "--devices", "cpu:2")
    if code:
        failures.append(f"{name}, resumed: {text} {Path('said.txt').read_text()}")
    return sha("killed")


def main():
    forms.make()
    known = {}
    for name, (_, _, twin) in FORMS.items():
        known[name] = train(name, 1)
        found = {"2 workers": train(name, 2), "3 workers": train(name, 3), "a kill": killed(name)}
        if twin:
            found[f"the form of {twin}"] = known[twin]
        for what, other in found.items():
            if not other or other != known[name]:
                failures.append(f"{name}: {known[name]}, and with {what} {other}")
    if len(set(known.values())) != sum(twin is None for _, _, twin in FORMS.values()):
        failures.append(f"forms that are other data have other weights: {known}")


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
