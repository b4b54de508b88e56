#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Model files and a checkpoint that version 22512f17 has written predict as they did then, and go on to the same weights:
former.py TRAINER

former_models/NAME.safetensors is a model, former_models/NAME.csv what that version's `predict` wrote for new rows. former_models/run is a run
of a table of which the last checkpoint was removed; ENDED is the SHA-256 of the weights with which it had ended.
"""
import json
import os
import pathlib
import shutil
import subprocess
import sys
import tempfile

ENDED = "87eb77b1c5f025d5c4e1ca1c4a586db25dd5656d6edafd9534f6581e6f7816bf"
trainer = os.path.abspath(sys.argv[1])
former = pathlib.Path(__file__).resolve().parent / "former_models"


def run(*command):
    done = subprocess.run([trainer, *(str(c) for c in command)], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"


with tempfile.TemporaryDirectory() as place:
    shutil.copytree(former, pathlib.Path(place, "former"))
    os.chdir(pathlib.Path(place, "former"))
    for model, rows in (("classes", "n.csv"), ("value", "n.csv"), ("array", "x.npy"), ("bytes", "img.npy")):
        run("predict", f"{model}.safetensors", rows, "--to", "now.csv")
        expected, found = pathlib.Path(f"{model}.csv").read_text(), pathlib.Path("now.csv").read_text()
        if model != "array" and rows.endswith(".csv"):  # the versions that wrote the files had no column `line`
            found = "".join(line.rpartition(",")[0] + "\n" for line in found.splitlines())
        assert found == expected, f"{model}: expected\n{expected[:400]}\nfound\n{found[:400]}"
        os.remove("now.csv")
    run("--resume", "run")
    ends = [json.loads(line) for line in pathlib.Path("run", "metrics.jsonl").read_text().splitlines()]
    found = next(r["weights_sha256"] for r in reversed(ends) if r["type"] == "run_end")
    assert found == ENDED, found
print("as before")
