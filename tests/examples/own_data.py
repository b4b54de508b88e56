#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the examples with users' own data: the same bits on one, two and three devices.

    own_data.py ROOT TRAINER table|autoencoder

77: the data is missing.
"""
import json
import pathlib
import subprocess
import sys
import tempfile

# What data.py makes, how long is long enough, and what the last evaluation must reach.
EXAMPLES = {
    "table": (["table"], ["data.path={}/cancer.csv"], "test_accuracy", lambda v: v >= 0.93),
    # A guess of the mean pixel everywhere is off by 0.12, of each pixel's mean by 0.09.
    "autoencoder": (["images", "1500"], ["data.path={}", "epochs=3"], "test_loss", lambda v: v <= 0.035),
}


def run(trainer, config, devices, settings, place):
    metrics = place / "metrics.jsonl"
    metrics.unlink(missing_ok=True)
    words = [word for s in (*settings, "run_dir=null") for word in ("--set", s)]
    subprocess.run([trainer, config, "--quiet", "--devices", f"cpu:{devices}", "--metrics", metrics, *words],
                   check=True, timeout=100)
    records = [json.loads(line) for line in metrics.read_text(encoding="utf-8").splitlines()]
    evaluations = [r for r in records if r.get("type") == "eval"]
    return records[-1]["weights_sha256"], evaluations[-1]


def main():
    root, trainer, name = pathlib.Path(sys.argv[1]), sys.argv[2], sys.argv[3]
    arguments, settings, key, good = EXAMPLES[name]
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        made = subprocess.run([sys.executable, root / "examples" / "data.py", arguments[0], place, *arguments[1:]],
                              capture_output=True, text=True, check=False)
        if made.returncode:
            print(f"skipped: {made.stderr.strip()}")
            return 77 if "is not there" in made.stderr else 1
        settings = [s.format(place) for s in settings]
        bits = {}
        for devices in (1, 2, 3):
            bits[devices], last = run(trainer, root / "examples" / f"{name}.json", devices, settings, place)
            print(f"{name} on cpu:{devices}: {bits[devices][:16]}, {key} {last[key]:.4f}")
            if not good(last[key]):
                print(f"FAILED: {key} is {last[key]}")
                return 1
    if len(set(bits.values())) != 1:
        print("FAILED: expected the same bits on any number of devices")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
