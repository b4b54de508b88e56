#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the plan (plan.py) on a machine with a GPU. once.sh starts it, and documents its results.

    once.py KIT OUT [--rehearse] [again STEP...]

Each step runs in a session (group of processes) of its own. At the step's time limit the session is
ended. The whole call ends after CALL_S, even if something hangs. Status 1: a step failed.
"""

import argparse
import ctypes
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import plan  # noqa: E402
import summary  # noqa: E402

ARCHIVE_MOST = 15 << 20
TORCH_MOST = 24 << 20  # bytes of PyTorch's caches, not packed; larger ones stay where they are
BEGIN = time.monotonic() - float(os.environ.get("SPENT_S", "0"))


class Call:
    """A call: its folders, its log, and the step that is running."""

    def __init__(self, args):
        self.args, self.out, self.kit = args, args.out, args.kit
        self.name = "again" if args.again else "once"
        self.results = self.kit / "results" / self.name
        shutil.rmtree(self.results, ignore_errors=True)
        for folder in (self.out, self.results):
            folder.mkdir(parents=True, exist_ok=True)
        self.slower = float(os.environ.get("SLOWER", "1")) if args.rehearse else 1.0
        self.call_s = args.seconds if args.again else plan.CALL_S
        self.steps = plan.steps_of(args.again, args.seconds) if args.again else plan.STEPS
        self.scratch = scratch_folder()
        self.ended = []  # for each step that has ended: name, limit, seconds, how it ended
        self.process, self.lock = None, threading.Lock()
        (self.out / f"{self.name}.log").write_text("")
        self.env = dict(os.environ, KIT=str(self.kit), BUILD=str(self.kit / "build"), RESULTS=str(self.results),
                        PYTHONUNBUFFERED="1", PYTHONDONTWRITEBYTECODE="1",
                        DATA=str(self.kit / "datasets/fashion-mnist"),
                        LOCKSTEP_DATA=str(self.kit / "datasets"), OVERLAP_S="36",
                        SCRATCH=self.scratch,
                        XDG_CACHE_HOME=str(self.results / "cache"),
                        TORCHINDUCTOR_CACHE_DIR=str(self.results / "torch/inductor"),
                        TRITON_CACHE_DIR=str(self.results / "torch/triton"))
        self.env["LD_LIBRARY_PATH"] = ":".join(filter(None, (*library_folders(),
                                                             os.environ.get("LD_LIBRARY_PATH"))))
        if (self.kit / "paper.json").exists():
            shutil.copy(self.kit / "paper.json", self.results)
        for name in ("cache", "torch"):  # choices of kernels, and what PyTorch compiled, from an earlier call
            if (self.kit / name).exists():
                shutil.copytree(self.kit / name, self.results / name)

    def left(self):
        """Seconds of the call, as the plan counts them."""
        return self.call_s - (time.monotonic() - BEGIN) / self.slower

    def say(self, text):
        line = f"{time.monotonic() - BEGIN:4.0f} s  {text}"
        print(line, flush=True)
        with open(self.out / f"{self.name}.log", "a", encoding="utf-8") as log:
            log.write(line + "\n")

    def kill(self):
        """Ends the step and all processes of its session. A process that is started while the function searches for
        processes is found in the next search."""
        process = self.process
        for _ in range(10):
            found = end_session(process.pid) if process else 0
            if not found:
                break
            time.sleep(0.02)

    def run(self, name, limit, command):
        """Runs a command and returns its status; None if it was stopped. Processes that it leaves running are ended too."""
        begin = time.monotonic()
        self.env["STEP_S"] = str(limit * self.slower)
        with open(self.results / f"{name}.log", "ab") as log:
            self.process = subprocess.Popen([str(w) for w in command], stdin=subprocess.DEVNULL, stdout=log,
                                            stderr=log, env=self.env, cwd=HERE.parents[1],
                                            start_new_session=True)
            try:
                status = self.process.wait(max(1, limit * self.slower - 1))
            except subprocess.TimeoutExpired:
                status = None
            self.kill()
            try:
                self.process.wait(1)
            except subprocess.TimeoutExpired:
                self.say(f"{name}: cannot be ended: it hangs in the driver")
            self.process = None
        seconds = time.monotonic() - begin
        how = {0: "done", 77: "skipped", None: "stopped at its limit"}.get(status, f"FAILED ({status})")
        limit *= self.slower
        self.ended.append({"name": name, "limit": limit, "seconds": seconds, "ended": how})
        self.say(f"{name}: {how} after {seconds:.1f} s of {limit:.0f}")
        self.bring_home()
        return status

    def bring_home(self):
        """Writes the summary and the archive. Both files are complete at any time."""
        with self.lock:
            (self.results / "ended.json").write_text(json.dumps({"steps": self.ended}), encoding="utf-8")
            lines = summary.lines(self.results, self.ended, time.monotonic() - BEGIN, bool(self.args.rehearse))
            draft = self.out / f".{self.name}.md"
            draft.write_text("\n".join(lines) + "\n", encoding="utf-8")
            draft.replace(self.out / f"{self.name}.md")
            archive(self.results, self.out / f"{self.name}.tar.gz")

    def watch(self):
        """Ends the call, even if the main thread waits for something."""
        def end():
            self.say(f"{self.call_s * self.slower:.0f} s are over: the end")
            self.kill()
            shutil.rmtree(self.scratch, ignore_errors=True)
            os._exit(1)
        timer = threading.Timer(max(0, self.left() * self.slower - 1), end)
        timer.daemon = True
        timer.start()


def end_session(session):
    """Kills the processes of the session. Returns their number, without those that had already ended."""
    found = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, _, of = path.read_text().rsplit(")", 1)[1].split()[:4]
            if int(of) == session and state not in "ZX":
                os.kill(int(path.parent.name), signal.SIGKILL)
                found += 1
        except OSError:
            pass  # it has ended by itself
    return found


def scratch_folder():
    """A folder for temporary files: in memory, if there is enough."""
    shared = "/dev/shm"
    roomy = os.access(shared, os.W_OK) and shutil.disk_usage(shared).free > 2 << 30
    return tempfile.mkdtemp(prefix="lockstep-", dir=shared if roomy else None)


def archive(results, path):
    """Writes the archive, without what PyTorch compiled, then without timelines, if it would be too large."""
    compiled = sum(file.stat().st_size for file in (results / "torch").rglob("*") if file.is_file())
    skips = [("torch/",), ("torch/", "trace_"), ("torch/", "trace_", "cache", "bench", "engines.jsonl")]
    for skip in [(), *skips] if compiled <= TORCH_MOST else skips:
        draft = path.with_name(f".{path.name}")
        with gzip.open(draft, "wb", 1) as packed, tarfile.open(fileobj=packed, mode="w|") as tar:
            for file in sorted(results.rglob("*")):
                name = str(file.relative_to(results))
                if file.is_file() and not name.startswith(skip or "\0") and not name.endswith(".bin"):
                    tar.add(file, name)
        if draft.stat().st_size <= ARCHIVE_MOST:
            break
    draft.replace(path)


def library_folders():
    """The folders of the CUDA runtime, cuDNN, cuBLAS and NCCL of this Python's PyTorch, and the driver's folder, if the
    loader does not find the driver."""
    import importlib.util
    found = importlib.util.find_spec("nvidia")
    folders = []
    for root in found.submodule_search_locations or () if found else ():
        folders += sorted(str(path) for path in Path(root).glob("*/lib"))
    folders += [path for path in ("/usr/local/cuda/lib64", "/usr/local/cuda/extras/CUPTI/lib64")
                if os.path.isdir(path)]
    try:
        ctypes.CDLL("libcuda.so.1")
    except OSError:
        for path in ("/usr/local/nvidia/lib64", "/usr/local/nvidia/lib", "/usr/lib/x86_64-linux-gnu",
                     "/usr/lib64", "/usr/lib/wsl/lib", "/usr/local/cuda/compat"):
            if os.path.exists(f"{path}/libcuda.so.1"):
                folders.append(path)
                break
    return folders


def architectures_there():
    """The architectures of this machine's GPUs, for CMake. A build for these alone takes the least time."""
    try:
        said = subprocess.run(["nvidia-smi", "--query-gpu=compute_cap", "--format=csv,noheader"], capture_output=True,
                              text=True, check=False, timeout=10).stdout
    except (OSError, subprocess.TimeoutExpired):
        said = ""
    found = sorted({line.strip().replace(".", "") for line in said.splitlines() if line.strip()[:1].isdigit()})
    return "\\;".join(f"{number}-real" for number in found) or "native"


def build_there(call):
    """Builds the programs from the copied sources, because the copied programs do not load."""
    build = call.kit / "build-there"
    generator = ["-G", "Ninja"] if shutil.which("ninja") else []
    script = call.results / "build.sh"
    words = ["cmake", "-S", str(HERE.parents[1]), "-B", str(build), *generator, "-D", "CMAKE_BUILD_TYPE=Release",
             "-D", "LOCKSTEP_CPU=OFF", "-D", "LOCKSTEP_MPI=OFF", "-D", "LOCKSTEP_CUDA=ON",
             "-D", f"CMAKE_CUDA_ARCHITECTURES={architectures_there()}", "-D", f"CMAKE_PREFIX_PATH={call.kit}"]
    script.write_text(" ".join(words) + f" &&\nexec cmake --build {build} --parallel {os.cpu_count()} "
                      "--target gpu_suite\n", encoding="utf-8")
    limit = min(plan.BUILD_S, call.left() - plan.END_S)
    if call.run("build", limit, ["sh", script]) == 0:
        call.env["BUILD"] = str(build)
        return True
    return False


def rehearse(call):
    """Prepares a rehearsal with simulated CUDA libraries (tests/doubles): files of few images, and the plugin."""
    folder = call.kit / "results/data/fashion-mnist"
    folder.mkdir(parents=True, exist_ok=True)
    for file in (call.kit / "datasets/fashion-mnist").glob("*.gz"):
        raw = gzip.decompress(file.read_bytes())
        at, rows = 4 + 4 * raw[3], 512 if "train" in file.name else 8
        size = len(raw[at:]) // int.from_bytes(raw[4:8], "big")
        (folder / file.name).write_bytes(gzip.compress(
            raw[:4] + rows.to_bytes(4, "big") + raw[8:at] + raw[at:at + rows * size], 1))
    plugin = call.kit / "build/tests/cuda_gpu/doubled/liblockstep-cuda.so"
    call.env.update(REHEARSE="1", OVERLAP_S="15", DATA=str(folder), LOCKSTEP_DATA=str(folder.parent),
                    LOCKSTEP_TEST_PLUGIN=str(plugin))


def carry_out(call):
    """Returns the exit status of the call."""
    failed = False
    for step in call.steps:
        limit = plan.limit_of(step, call.steps, call.left())
        if not limit:
            call.ended.append({"name": step.name, "limit": 0, "seconds": 0, "ended": "left out, no time"})
            call.say(f"{step.name}: left out, no time")
            continue
        command = [sys.executable, HERE / "steps.py", step.name]
        status = call.run(step.name, limit, command)
        known = summary.read(call.results / f"{step.name}.json")
        if step.name == "loads" and not known.get("loads") and not call.args.rehearse:
            call.say("does not load: " + "; ".join(known.get("failed", ["see loads.log"])[:3]))
            call.say("it is built here instead")
            if not build_there(call):
                return 1
            status = call.run("loads", plan.limit_of(step, call.steps, call.left()), command)
            known = summary.read(call.results / "loads.json")
        if step.name == "loads" and not known.get("gpu"):
            call.say(f"GPU: not run: {known.get('gpu_text', 'the probe did not end')}")
            call.bring_home()
            return 0 if status == 77 and known.get("loads") and not call.args.rehearse else 1
        failed = failed or status not in (0, 77)
    return int(failed)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("kit", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    parser.add_argument("--again", nargs="+", metavar="STEP", default=[])
    parser.add_argument("--seconds", type=int, default=plan.AGAIN_S, help="how long a second call may take")
    args = parser.parse_args()
    args.kit, args.out = args.kit.resolve(), args.out.resolve()
    try:
        call = Call(args)
    except ValueError as error:
        sys.exit(f"once.sh: {error}")
    call.watch()
    call.say(f"at most {call.call_s * call.slower:.0f} s" + ("; a rehearsal" if args.rehearse else ""))
    if args.rehearse:
        rehearse(call)
    status = carry_out(call)
    call.say("the end")
    call.bring_home()
    shutil.rmtree(call.scratch, ignore_errors=True)
    sys.exit(status)


if __name__ == "__main__":
    main()
