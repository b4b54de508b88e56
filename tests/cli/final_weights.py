#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""final_weights.py TRAINER: tests the key checkpoint.final: with "best" the file of weights has those of the best
evaluation, and everything else stays with the last ones. Needs only Python.
"""
import json
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

import data_forms as forms
from data_forms import trainer

failures = forms.failures
ROWS = 120
EPOCHS = 12


def write_data():
    """Writes targets that are noise, so that the loss of the rows held out soon rises."""
    lines = [f"{i * 37 % 101},{i * 53 % 97},{i * i % 89},{'uv'[i * 7919 % 13 % 2]}" for i in range(ROWS)]
    Path("t.csv").write_text("a,b,c,y\n" + "\n".join(lines) + "\n")
    Path("c.json").write_text(json.dumps({
        "data": {"name": "csv", "path": "t.csv", "target": "y", "standardize": True, "validation": 0.25},
        "model": {"layers": [{"type": "dense", "out": 32}, {"type": "relu"}, {"type": "dense"}]},
        "batch_size": 16, "epochs": EPOCHS, "monitor": "loss", "optimizer": {"name": "adamw", "lr": 0.03}}))


def good(what, *arguments):
    code, text = trainer(*arguments)
    if code:
        failures.append(f"{what}: {code}: {text}")
    return text


def train(run, *keys):
    return good(run, "c.json", "--quiet", "--set", f"run_dir={run}", *(a for key in keys for a in ("--set", key)))


def records(run):
    return [json.loads(line) for line in (Path(run) / "metrics.jsonl").read_text().splitlines()]


def losses_of(run):
    return [r["test_loss"] for r in records(run) if r["type"] == "eval"]


def tensors(path):
    raw = Path(path).read_bytes()
    length, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__")
    return {name: raw[8 + length:][slice(*at["data_offsets"])] for name, at in header.items() if not name.startswith("optimizer/")}


def expect(what, found, wanted):
    if found != wanted:
        failures.append(f"{what}: expected {wanted}, found {found}")


def check_best(run, last):
    """Compares a run that ended after its epochs with `last`, which has the last weights."""
    end, losses = records(run)[-1], losses_of(run)
    best = losses.index(min(losses)) + 1
    if not 1 < best < EPOCHS:
        failures.append(f"{run}: the best epoch is {best}, so the test says nothing")
    expect(f"{run}: weights_epoch", end.get("weights_epoch"), best)
    expect(f"{run}: weights_sha256", end["weights_sha256"], records(last)[-1]["weights_sha256"])
    expect(f"{run}: weights", tensors(f"{run}/weights.safetensors"), tensors(end["best_checkpoint"]))
    if tensors(f"{run}/weights.safetensors") == tensors(f"{last}/weights.safetensors"):
        failures.append(f"{run}: the best weights are the last ones")
    shown = [json.loads(good("eval", "eval", *how, "--json")) for how in ([run], [run, "--best"], [last])]
    expect(f"{run}: loss of eval", shown[0]["loss"], shown[1]["loss"])
    expect(f"{run}: loss of the best epoch", round(shown[0]["loss"], 9), round(min(losses), 9))
    if shown[2]["loss"] == shown[0]["loss"]:
        failures.append(f"{last}: eval has the best loss")


def run_to_the_end():
    train("last")
    expect("last: weights_epoch", records("last")[-1].get("weights_epoch"), None)
    train("best", 'checkpoint.final="best"')
    check_best("best", "last")
    # each checkpoint at once, and on other workers
    text = good("three", "c.json", "--devices", "cpu:3", "--set", "run_dir=three", "--set", 'checkpoint={"final":"best","every_epochs":1,"keep":1}')
    check_best("three", "last")
    # the best epoch is the last one
    best = records("best")[-1]["weights_epoch"]
    train("short", 'checkpoint.final="best"', f"epochs={best}")
    expect("short: weights_epoch", records("short")[-1].get("weights_epoch"), best)
    # with early stopping
    train("early", 'checkpoint.final="best"', "patience=2")
    losses = losses_of("early")
    expect("early: weights_epoch", records("early")[-1].get("weights_epoch"), losses.index(min(losses)) + 1)
    expect("early: evaluations after the best", len(losses) - losses.index(min(losses)) - 1, 2)
    return text


def interrupt_and_resume():
    """Ctrl-C leaves the best weights so far, and the resumed run ends with the weights of one that was not stopped."""
    train("long-last", "epochs=400", "eval_every=1")
    with subprocess.Popen([forms.TRAINER, "c.json", "--quiet", "--set", "run_dir=half", "--set", 'checkpoint.final="best"', "--set", "epochs=400"],
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as run:
        seen = Path("half/metrics.jsonl")
        while run.poll() is None and not (seen.exists() and seen.read_text().count('"type":"eval"') > 3):
            time.sleep(0.002)
        run.send_signal(signal.SIGINT)
    end = records("half")[-1]
    if end["status"] == "interrupted":
        losses = losses_of("half")
        expect("half: weights_epoch", end.get("weights_epoch"), losses.index(min(losses)) + 1)
        expect("half: weights", tensors("half/weights.safetensors"), tensors(end["best_checkpoint"]))
        good("resume", "--resume", "half", "--quiet")
    end = records("half")[-1]
    expect("resumed: weights_sha256", end["weights_sha256"], records("long-last")[-1]["weights_sha256"])
    expect("resumed: weights", tensors("half/weights.safetensors"), tensors(end["best_checkpoint"]))


def refusals():
    code, text = trainer("c.json", "--set", 'checkpoint={"best":false,"final":"best"}')
    if code != 78 or "because checkpoint.best is false" not in text:
        failures.append(f"best false: {code}: {text}")
    code, text = trainer("c.json", "--set", 'checkpoint.final="best"', "--set", "data.validation=0")
    if code != 78 or "need evaluations during the run" not in text:
        failures.append(f"no evaluations: {code}: {text}")
    text = good("receipt", "c.json", "--set", 'checkpoint.final="best"', "--set", "receipt=true", "--set", "run_dir=told")
    if "this run cannot be verified: with checkpoint.final" not in text or Path("told/receipt.json").exists():
        failures.append(f"receipt: {text}")


def verifications():
    """The last weights, from the last checkpoint, can be verified, and the messages about others say so."""
    code, text = trainer("verify", "best", "--all")
    if code in (0, 1) or "export the last checkpoint, and name that file" not in text:
        failures.append(f"verify: {code}: {text}")
    end = records("best")[-1]
    code, text = trainer("verify", "best", "--all", "--weights", end["checkpoint"])
    if code in (0, 1) or "name weights.safetensors, or a file that `export` has written" not in text:
        failures.append(f"verify a checkpoint: {code}: {text}")
    good("export", "export", end["checkpoint"], "--to", "exported.safetensors")
    text = good("verify the last", "verify", "best", "--all", "--weights", "exported.safetensors")
    if "verified: the whole training was replayed" not in text:
        failures.append(f"verify the last: {text}")
    good("export", "export", end["best_checkpoint"], "--to", "exported.safetensors")
    code, text = trainer("verify", "best", "--all", "--weights", "exported.safetensors")
    if code in (0, 1) or "which were the best ones (checkpoint.final)" not in text:
        failures.append(f"verify the best: {code}: {text}")


def main():
    write_data()
    text = run_to_the_end()
    if text and "weights.safetensors has the weights after epoch" not in text:
        failures.append(f"the run does not say which weights it wrote: {text}")
    interrupt_and_resume()
    refusals()
    verifications()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
