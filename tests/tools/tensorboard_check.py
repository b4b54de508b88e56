#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that TensorBoard itself reads what a run wrote, including a resumed run.

    python3 tests/tools/tensorboard_check.py TRAINER CONFIG

Its scalars must be those of metrics.jsonl, once each. 77: the module is missing.
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def single(number):
    return struct.unpack("<f", struct.pack("<f", number))[0]


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    if done.returncode not in (0, 71):
        sys.exit(f"{command}: {done.returncode}: {done.stderr}")


def check(where):
    records = [json.loads(line) for line in (where / "metrics.jsonl").open()]
    steps = [r for r in records if r["type"] == "step"]
    wanted = {"train/loss": [(r["step"], r["loss"]) for r in steps],
              "train/accuracy": [(r["step"], r["correct"] / r["rows"]) for r in steps],
              "train/lr": [(r["step"], r["lr"]) for r in steps],
              "train/images_per_s": [(r["step"], r["images_per_s"]) for r in steps]}
    for r in records:
        if r["type"] == "step":
            last = r["step"]
        if r["type"] == "eval":
            for key, value in r.items():
                if key.startswith("test_") and isinstance(value, (int, float)):
                    wanted.setdefault(key.replace("_", "/", 1), []).append((last, value))
    assert {"test/loss", "test/accuracy", "test/top5", "test/auc"} <= set(wanted), records
    events = EventAccumulator(str(where), size_guidance={"scalars": 0})
    events.Reload()
    assert set(events.Tags()["scalars"]) == set(wanted), events.Tags()
    for tag, pairs in wanted.items():
        found = [(e.step, e.value) for e in events.Scalars(tag)]
        assert found == [(s, single(v)) for s, v in pairs], f"{tag}: {found} instead of {pairs}"
    print(f"{len(steps)} steps, {len(wanted)} scalars")


def main():
    trainer, config = sys.argv[1:]
    with tempfile.TemporaryDirectory() as place:
        where = Path(place) / "run"
        # The only device fails in step 9; the newest checkpoint is that of step 5.
        run(trainer, config, "--quiet", "--set", f"run_dir={where}", "--set",
            "metrics.tensorboard=true", "--set", "checkpoint.every_steps=5",
            "--inject", "worker=0,step=9,kind=fail")
        run(trainer, "--resume", where, "--quiet")
        assert len(list(where.glob("*tfevents*"))) == 2
        check(where)
    return 0


if __name__ == "__main__":
    sys.exit(main())
