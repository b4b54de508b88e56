#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""test_limits.py BENCH-GPU: steps that hang, with a child that would outlive them, are ended;
nothing of them is left, and log and summary say what was stopped. The limits are a fifth of the
real ones. On a machine so slow that a step has not begun by then there is less to end.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HANGS = """
import json, os, pathlib, subprocess, sys, time
results = pathlib.Path(os.environ["RESULTS"])
(results / "loads.json").write_text(json.dumps({"failed": [], "loads": True, "gpu": True, "gpu_text": "a GPU"}))
print("begun", flush=True)
child = subprocess.Popen(["sleep", "600"], preexec_fn=os.setpgrp)
with open(os.environ["KIT"] + "/pids", "a") as pids:
    pids.write(f"{os.getpid()} {child.pid}\\n")
time.sleep(600)
"""


def is_gone(pid):
    """Whether it has ended; one that nobody has waited for yet has."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] == "Z"
    except OSError:
        return True


def main():
    with tempfile.TemporaryDirectory() as name:
        kit = Path(name) / "kit"
        scripts = kit / "source/bench/gpu"
        scripts.mkdir(parents=True)
        (kit / "datasets/fashion-mnist").mkdir(parents=True)
        for script in ("once.py", "plan.py", "summary.py"):
            shutil.copy(Path(sys.argv[1]) / script, scripts)
        (scripts / "steps.py").write_text(HANGS)
        done = subprocess.run([sys.executable, "-B", scripts / "once.py", kit, Path(name) / "out", "--rehearse",
                               "--seconds", "40", "--again", "kernels"],
                              env=dict(os.environ, SLOWER="0.2"), capture_output=True, text=True, check=False)
        assert done.returncode == 1, f"status {done.returncode}: {done.stdout}{done.stderr}"
        begun = (kit / "pids").read_text() if (kit / "pids").exists() else ""
        pids = [int(pid) for line in begun.splitlines() for pid in line.split()]
        for pid in pids:  # killed, but perhaps not yet taken out of the list of processes
            while not is_gone(pid):
                time.sleep(0.05)
        log, text = ((Path(name) / "out" / f"again.{kind}").read_text() for kind in ("log", "md"))
        assert "loads: stopped at its limit" in log, log
        assert "stopped at its limit" in text and "once.sh again" in text, text
        assert (Path(name) / "out/again.tar.gz").stat().st_size > 0


if __name__ == "__main__":
    main()
