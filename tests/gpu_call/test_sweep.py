#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_sweep.py GPU_SWEEP GPU_SWEEP_DOUBLED DEVICE: the sweep over cuDNN's engines.

The program itself lists what cuDNN recommends for a device that a file describes. The one with
doubles measures four configurations, and must find which is wrong, which varies and which does not
run.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "bench/gpu"))

with tempfile.TemporaryDirectory() as _folder:
    os.environ.setdefault("RESULTS", _folder)
    import steps  # noqa: E402


def sweep(program, *words):
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "rows.jsonl"
        done = subprocess.run([program, "--small", "--json", path, *words], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        assert "0 passes left out" in done.stdout, done.stdout
        return [json.loads(line) for line in path.read_text().splitlines()]


def passes(rows):
    return {(row["precision"], row["pass"], row["c"]) for row in rows}


def test_list(program, device):
    rows = sweep(program, "--list", device)
    assert passes(rows) == {(p, of, c) for p in ("bf16", "fp32") for of in ("forward", "data", "weights")
                            for c in (1, 20) if (of, c) != ("data", 1)}, passes(rows)
    assert {row["mode"] for row in rows} == {"A", "B", "fallback", "own", "own+pool", "pool"}
    assert {row["c"] for row in rows if row["engine"] < 0} == {1}
    known = [(*(row[key] for key in ("precision", "pass", "c", "engine", "knobs")),) for row in rows]
    assert len(set(known)) == len(known), "a configuration is listed twice"
    assert any("nondeterministic" in row["notes"] for row in rows), "what the back end refuses is not listed"
    assert not any("tensor-core" in row["notes"] for row in rows if row["precision"] == "fp32")
    assert not any("us" in row for row in rows), "nothing can run on a described device"


def test_doubled(program):
    rows = sweep(program)
    assert steps.is_as_planned(rows), rows
    for engine, key, value in ((0, "same_bits", False), (1, "worst", 0.0), (2, "same_bits", True), (-1, "worst", 0.1)):
        wrong = [dict(row, **{key: value}) if row["engine"] == engine and "us" in row else row for row in rows]
        assert not steps.is_as_planned(wrong), f"engine {engine}"
    for engine in (3, -1, -2, -3):
        assert not steps.is_as_planned([row for row in rows if row["engine"] != engine]), f"without engine {engine}"


def main():
    test_list(sys.argv[1], sys.argv[3])
    test_doubled(sys.argv[2])


if __name__ == "__main__":
    main()
