#!/usr/bin/env python3
"""test_limits.py BENCH-GPU: a call in which every step hangs, with a child that would outlive it, ends by itself;
nothing of it is left, and its log and summary say what was stopped. Run with limits of a hundredth."""

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
child = subprocess.Popen(["sleep", "600"])
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
        done = subprocess.run([sys.executable, "-B", scripts / "once.py", kit, Path(name) / "out", "--rehearse"],
                              env=dict(os.environ, SLOWER="0.01"), capture_output=True, text=True, check=False,
                              timeout=50)
        assert done.returncode == 1, f"status {done.returncode}: {done.stdout}{done.stderr}"
        pids = [int(pid) for line in (kit / "pids").read_text().splitlines() for pid in line.split()]
        assert len(pids) >= 4, "fewer than two steps were begun"
        for _ in range(100):  # killed, but not yet taken out of the list of processes
            left = [pid for pid in pids if not is_gone(pid)]
            if not left:
                break
            time.sleep(0.05)
        assert not left, f"{left} of {pids} are still there"
        log, text = ((Path(name) / "out" / f"once.{kind}").read_text() for kind in ("log", "md"))
        assert "loads: stopped at its limit" in log, log
        assert "stopped at its limit" in text and "once.sh again" in text, text
        assert (Path(name) / "out/once.tar.gz").stat().st_size > 0


if __name__ == "__main__":
    main()
