#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the shell lines of examples/kubernetes and examples/slurm: of runs that were killed before their first checkpoint
or after one, of a run that was stopped, and of a run that has finished.

    pods.py ROOT TRAINER

Stand-ins for mpirun, srun and sleep start the program on this machine. Skipped (77) if PyYAML is missing.
"""
import json
import os
import pathlib
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time

CONFIG = {"name": "small", "data": {"name": "synthetic", "limit": 128}, "devices": "ref:1", "batch_size": 64, "shards": 2,
          "epochs": 3, "seed": 0, "optimizer": {"name": "sgd", "lr": 0.05},
          "checkpoint": {"every_steps": 1}, "deadline_s": 600,
          "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 10}]}}
PROGRAMS = {
    "lockstep": 'exec "$TRAINER" "$@" $EXTRA',
    # as with --enable-recovery, mpirun's status says nothing of its processes
    "mpirun": 'while [ "$1" != lockstep ]; do shift; done; trap \'kill -USR1 $!\' USR1; "$@" & wait $!; wait $!; exit 0',
    "srun": 'while [ "$1" != lockstep ]; do shift; done; exec "$@"',
    "sleep": "echo rests"}
STALL = "--inject worker=0,step={},kind=stall,seconds={}"
SHIPPED = "/usr/share/doc/lockstep/examples/fashion_mnist.json"


def expect(condition, what):
    if not condition:
        sys.exit(f"FAILED: {what}")


class Place:
    """A directory with the stand-ins, and the variables of a process in it."""

    def __init__(self, root, trainer):
        self.root = pathlib.Path(root)
        (self.root / "bin").mkdir()
        for name, line in PROGRAMS.items():
            path = self.root / "bin" / name
            path.write_text(f"#!/bin/sh\n{line}\n", encoding="utf-8")
            path.chmod(0o755)
        self.config = self.root / "config.json"
        self.config.write_text(json.dumps(CONFIG), encoding="utf-8")
        self.key = self.root / "key"
        self.key.write_bytes(bytes(range(100, 132)))
        self.key.chmod(0o600)
        self.env = dict(os.environ, TRAINER=str(trainer), EXTRA="", PATH=f"{self.root}/bin:{os.environ['PATH']}")

    def start(self, script, cwd, arguments=(), **env):
        """The script as a process of its own, in a directory that plays the volume."""
        (self.root / cwd).mkdir(exist_ok=True)
        return subprocess.Popen(["sh", "-c", script, "sh", *map(str, arguments)], cwd=self.root / cwd,
                                env={**self.env, **env}, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)

    def killed(self, cwd, step):
        """Leaves in cwd/job a run that was killed while it computed this step."""
        shutil.rmtree(self.root / cwd, ignore_errors=True)
        run = self.start(f"exec lockstep {self.config} --set run_dir=job", cwd, EXTRA=STALL.format(step, 600))
        self.wait_for(cwd, f"step-{step - 1:09}" if step > 1 else None)
        run.kill()
        run.wait()
        found = list((self.root / cwd / "job/checkpoints").glob("step-*"))
        expect(bool(found) == (step > 1), f"a run that was killed in step {step} has {found}")

    def wait_for(self, cwd, checkpoint):
        """Waits until the run has begun or, if one is named, until it has the checkpoint."""
        records = self.root / cwd / "job/metrics.jsonl"
        path = self.root / cwd / f"job/checkpoints/{checkpoint}.safetensors"
        for _ in range(1200):
            if path.exists() if checkpoint else records.exists() and records.stat().st_size:
                return
            time.sleep(0.05)
        expect(False, f"{path if checkpoint else records} does not appear")

    def check_finished(self, cwd, resumed, where):
        text = (self.root / cwd / "job/metrics.jsonl").read_text(encoding="utf-8")
        records = [json.loads(line) for line in text.splitlines()]
        expect(records[-1].get("status") == "finished" and records[-1]["steps"] == 6, f"{where}: {records[-1]['type']} is last")
        expect(sum(r["type"] == "resume" for r in records) == resumed, f"{where}: resumed, or not")


def end(process, code, where):
    """The output of a process that ends by itself with this status."""
    try:
        text = process.communicate(timeout=60)[0]
    except subprocess.TimeoutExpired:
        process.kill()
        text = "it does not end"
    expect(process.returncode == code, f"{where}: expected {code}, got {process.returncode}: {text}")
    return text


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def replace(text, pairs):
    for old, new in pairs.items():
        expect(text.count(old) == 1, f"{old} is not there once")
        text = text.replace(old, str(new))
    return text


def check_pods(place, script):
    address = f"127.0.0.1:{free_port()}"
    script = replace(script, {SHIPPED: place.config, "--listen :7070": f"--listen {address}", "/secret/key": place.key,
                              '"${HOSTNAME%-*}-0.lockstep:7070"': f"{address} --listen 127.0.0.1:0"})

    def pod(number):
        return place.start(script, f"pod-{number}", HOSTNAME=f"lockstep-{number}", MEMBERS="2", RUN="job")

    for step, resumed in ((1, 0), (4, 1)):
        where = f"pods, the first one killed in step {step}"
        for number in range(2):
            shutil.rmtree(place.root / f"pod-{number}", ignore_errors=True)
        place.killed("pod-0", step)
        for process in [pod(0), pod(1)]:
            expect("rests" in end(process, 0, where), f"{where}: a pod does not rest")
        place.check_finished("pod-0", resumed, where)
    for number in range(2):  # after the end, each alone
        text = end(pod(number), 0, f"pod {number} after the end")
        expect(text == "rests\n", f"pod {number} after the end: {text}")
    (place.root / "pod-0/job.done").unlink() # killed between the end of the run and the mark
    expect(end(pod(0), 0, "pod 0 without a mark") == "rests\n", "pod 0 without a mark does not rest")


def check_job(place, what, start):
    """A job that is started again: by the launcher of the operator, or by Slurm."""
    for step, resumed in ((1, 0), (4, 1)):
        where = f"{what}, killed in step {step}"
        place.killed(what, step)
        end(start(), 0, where)
        place.check_finished(what, resumed, where)
    text = end(start(), 0, f"{what} after the end")
    expect(text == "", f"{what} after the end: {text}")


def check_launcher(place, script):
    script = replace(script, {SHIPPED: place.config})

    def start(**env):
        return place.start(script, "launcher", RUN=str(place.root / "launcher/job"), **env)

    check_job(place, "launcher", start)
    shutil.rmtree(place.root / "launcher")
    end(start(EXTRA="--inject worker=0,step=1,kind=fail"), 75, "a launcher whose run fails")
    shutil.rmtree(place.root / "launcher")
    process = start(EXTRA=STALL.format(4, 4))
    place.wait_for("launcher", "step-000000003")
    process.send_signal(signal.SIGTERM)
    expect("saved" in end(process, 75, "a launcher that is stopped"), "a launcher that is stopped saves nothing")
    end(start(), 0, "a launcher that was stopped")
    place.check_finished("launcher", 1, "a launcher that was stopped")


def main():
    root, trainer = (pathlib.Path(p).resolve() for p in sys.argv[1:])
    with tempfile.TemporaryDirectory(prefix="lockstep-pods.") as scratch:
        place = Place(scratch, trainer)
        job = (root / "examples/slurm/train.sh").read_text(encoding="utf-8")
        check_job(place, "slurm", lambda: place.start(job, "slurm", [place.config], RUN="job", SLURM_JOB_ID="7",
                                                      SLURM_CPUS_PER_TASK="1"))
        try:
            import yaml  # pylint: disable=import-outside-toplevel
        except ImportError:
            print("skipped: PyYAML is missing (python3-yaml)")
            sys.exit(77)
        examples = root / "examples/kubernetes"
        documents = [d for path in examples.glob("*.yaml") for d in yaml.safe_load_all(path.read_text(encoding="utf-8"))]
        kinds = {d["kind"]: d["spec"] for d in documents}
        launcher = kinds["MPIJob"]["mpiReplicaSpecs"]["Launcher"]
        check_launcher(place, launcher["template"]["spec"]["containers"][0]["args"][0])
        check_pods(place, kinds["StatefulSet"]["template"]["spec"]["containers"][0]["args"][0])


if __name__ == "__main__":
    main()
