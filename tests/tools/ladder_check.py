#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""ladder_check.py SOURCE TRAINER: bench/ladder.py reads records and ends runs at their target; its table and its
picture show what was reached and what was not; the configs of examples/ladder train.

Lockstep and PyTorch are replaced by programs that print records, so that no clock decides.
"""

import json
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

SOURCE, TRAINER = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(SOURCE / "bench"))
sys.dont_write_bytecode = True
import ladder  # noqa: E402

ONE_STEP = [word for key in ("data.name=synthetic", "data.limit=16", "batch_size=16", "epochs=1", "eval_every=0",
                             "run_dir=null") for word in ("--set", key)]

# It goes on for minutes after its last record unless it is ended.
ENDLESS = """#!/bin/sh
cat <<'RECORDS'
%s
RECORDS
exec sleep 300
"""


def records(first, *epochs):
    """The records of a run whose epochs have (seconds, accuracy); each evaluation takes 7 seconds."""
    out = [{"type": first, "parameters": 12}]
    for i, (seconds, accuracy) in enumerate(epochs, 1):
        out += [{"type": "step", "epoch": i}, {"type": "epoch", "epoch": i, "seconds": seconds},
                {"type": "eval", "epoch": i, "test_accuracy": accuracy, "seconds": 7.0}]
    return [json.dumps(r) for r in out]


def check(what, holds):
    if not holds:
        sys.exit(f"ladder_check.py: {what}")


def reading():
    begun = []
    points, reached = ladder.read_run(iter(records("run_start", (2, 0.85), (3, 0.9), (2, 0.95))), 0.9,
                                      begun.append)
    check(f"the run ends at its target, without the evaluations' time: {points}",
          reached and points == [(2, 0.85), (5, 0.9)])
    check("the start is reported once", [record["type"] for record in begun] == ["run_start"])
    points, reached = ladder.read_run(records("ready", (2, 0.85), (3, 0.8999)), 0.9)
    check(f"0.8999 does not reach 0.9: {points}", not reached and len(points) == 2)


def run(side, seed, reached, *points):
    return {"side": side, "seed": seed, "reached": reached, "points": points, "cpu_s": 2 * points[-1][0]}


def showing(folder):
    results = [{"rung": "90", "epochs": 4, "form": "eager, contiguous", "runs": [
        run("Lockstep", 1, True, (2.0, 0.88), (4.0, 0.901)), run("PyTorch", 1, True, (6.0, 0.902)),
        run("Lockstep", 2, True, (6.0, 0.9)), run("PyTorch", 2, True, (12.0, 0.9)),
        run("Lockstep", 3, True, (5.0, 0.9)), run("PyTorch", 3, False, (9.0, 0.8))]},
        {"rung": "94", "epochs": 9, "runs": [run("Lockstep", 1, False, (900.0, 0.935))]}]
    table = ladder.markdown(results).splitlines()
    check(f"all rows have as many cells: {table}", len({line.count("|") for line in table}) == 1)
    check(f"medians, spread and the ratio of pairs: {table[2]}",
          all(cell in table[2] for cell in ("| 5.0 (4.0–6.0) |", "| 9.0 (6.0–12.0), 2 of 3 |",
                                            "| 1.75 (1.50–2.00) |")))
    check(f"a target that is not reached is not a time: {table[3]}", "| not reached |  | 900.00 |" in table[3])
    path = folder / "results.json"
    path.write_text(json.dumps(results))
    out = subprocess.run([sys.executable, "-B", SOURCE / "bench/ladder.py", "--from", path, "--picture",
                          folder / "ladder.svg"], capture_output=True, text=True, check=True)
    check("--from prints the same table", out.stdout.splitlines() == table)
    text = (folder / "ladder.svg").read_text(encoding="utf-8")
    dots = len(xml.fromstring(text).findall(".//{http://www.w3.org/2000/svg}circle"))
    check(f"a dot for each side that reached a target: {dots}", dots == 2)
    check("viewers other than browsers draw it", "var(" not in text)


def ending(folder):
    """--quick takes one seed, and the process is ended at the target."""
    stub = folder / "trainer"
    stub.write_text(ENDLESS % "\n".join(records("run_start", (2, 0.85), (3, 0.91))))
    stub.chmod(0o755)
    command = [sys.executable, "-B", SOURCE / "bench/ladder.py", "--quick", "--trainer", stub, "--json",
               folder / "out.json"]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, timeout=60)
    result, = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    made, = result["runs"]
    check(f"one run, of the first rung: {result}", result["rung"] == "90" and made["seed"] == 1)
    check(f"it reached its target: {made}", made["reached"] and made["points"][-1] == [5, 0.91])
    peer = folder / "python"  # a PyTorch whose network has another size
    peer.write_text(ENDLESS.replace("exec sleep 300", "") % "\n".join(
        [*records("ready", (2, 0.95)), json.dumps({"type": "rate", "images_per_s": 1.0})]).replace("12", "13"))
    peer.chmod(0o755)
    out = subprocess.run([*command, "--python", peer], capture_output=True, text=True, timeout=60, check=False)
    check(f"networks of different sizes are not compared: {out.stderr}",
          out.returncode == 1 and "12 and 13 parameters" in out.stderr)


def configs():
    """Each config trains, is named after its target, and has only keys that PyTorch's side heeds."""
    text = (SOURCE / "bench/peers/ladder_torch.py").read_text(encoding="utf-8")
    known = set(re.findall(r'"(\w+)"', re.search(r"^KEYS = \{(.*?)\}", text, re.S | re.M)[1]))
    paths = {path.stem: path for path in (SOURCE / "examples/ladder").glob("*.json")}
    check(f"a config for each rung: {sorted(paths)}", set(paths) == {*ladder.RUNGS, *ladder.ONCE})
    for path in paths.values():
        subprocess.run([TRAINER, path, "--quiet", *ONE_STEP], check=True, stdout=subprocess.DEVNULL)
        config = json.loads(path.read_text(encoding="utf-8"))
        check(f"{path}: keys that ladder_torch.py ignores", not set(config) - known)
        check(f"{path}: ladder_torch.py knows the schedule one_cycle alone", config["schedule"]["name"] == "one_cycle")


def main():
    reading()
    with tempfile.TemporaryDirectory() as folder:
        showing(Path(folder))
        ending(Path(folder))
    configs()


if __name__ == "__main__":
    main()
