#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One step of once.py, in a process of its own: steps.py NAME. once.py sets its environment:

    KIT      the folder that was copied, with source/, build/, lib/ and datasets/
    BUILD    the programs: KIT/build, or the folder in which this machine has built them
    RESULTS  the folder for results; a step writes each result at once
    SCRATCH  a folder for hundreds of MB of temporary files
    DATA     the folder of the Fashion-MNIST files
    REHEARSE if set: run with simulated CUDA libraries (tests/doubles), with everything small

A step prints its progress. It exits with 0, with 1 if something failed, or with 77 if nothing could
be run. NAME.json contains what summary.py shows: "failed", the first errors, and figures.
"""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from run import gpus_in, gpus_of

SOURCE = Path(__file__).resolve().parents[2]
BUILD = Path(os.environ.get("BUILD", SOURCE / "build/gpu"))
RESULTS = Path(os.environ.get("RESULTS", "."))
SCRATCH = Path(os.environ.get("SCRATCH", RESULTS))
DATA = Path(os.environ.get("DATA", "/usr/share/datasets/fashion-mnist"))
REHEARSE = bool(os.environ.get("REHEARSE"))
STEP_S = float(os.environ.get("STEP_S", "60"))  # seconds that the step may take
DOUBLED = BUILD / "tests/cuda_gpu/doubled"
TRAINER = (DOUBLED if REHEARSE else BUILD) / "trainer"
CONFIGS = {"lenet": SOURCE / "examples/fashion_mnist.json", "resnet": SOURCE / "examples/resnet18.json"}
PRECISIONS = ("fp32",) if REHEARSE else ("bf16", "tf32", "fp32")
# Kernels whose changes have not run on a GPU yet come first.
KERNEL_PARTS = ("conv", "norm", "pool", "loss", "arena", "point", "data")


class Step:
    """The results of a step, which are written to disk after every change."""

    def __init__(self, name):
        self.path = RESULTS / f"{name}.json"
        self.known = {"failed": []}
        self.save()

    def save(self):
        draft = self.path.with_suffix(".draft")
        draft.write_text(json.dumps(self.known, indent=1) + "\n")
        draft.replace(self.path)

    def tell(self, **what):
        self.known.update(what)
        self.save()

    def fail(self, text):
        print("FAILED:", text, flush=True)
        self.known["failed"].append(text[:300])
        self.save()

    def status(self):
        return 1 if self.known["failed"] else 0


# The command gets a process group of its own, so that all processes that it has started can be ended with it.
GROUP = {"process_group": 0} if sys.version_info >= (3, 11) else {"preexec_fn": os.setpgrp}


def run(command, timeout=None, env=None):
    """Runs a command. Returns (status, output); status 124: it took too long; 127: it does not exist."""
    words = [str(word) for word in command]
    try:
        process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
                                   errors="replace", env=env, **GROUP)
    except OSError as error:
        return 127, f"{words[0]}: {error.strerror}"
    try:
        said, _ = process.communicate(timeout=timeout)
        return process.returncode, said
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        said, _ = process.communicate()
        return 124, said


def last_line(text):
    lines = [line for line in text.splitlines() if line.strip()]
    return lines[-1].strip() if lines else "no output"


def first_error(text):
    """The first line that reports an error; if there is none, the last line."""
    wanted = re.compile(r"error|fail|cannot|too far|farther|not found|broken|expected", re.I)
    return next((line.strip() for line in text.splitlines() if wanted.search(line)), last_line(text))


def show(title, command, timeout, env=None):
    status, text = run(command, timeout, env)
    print(f"== {title}: status {status}\n{text}", flush=True)
    return status, text


# ---- loads ----------------------------------------------------------------------------------------


def is_elf(path):
    with open(path, "rb") as file:
        return file.read(4) == b"\x7fELF"


def programs():
    """All copied files that load libraries."""
    return [path for path in sorted(BUILD.rglob("*")) if path.is_file() and not path.is_symlink()
            and (os.access(path, os.X_OK) or path.suffix == ".so") and is_elf(path)]


def unresolved(path):
    """The libraries of a file that the loader does not find, or finds in an unsuitable version. Whether there is a
    driver is checked by the probe."""
    loader = next(Path("/lib64").glob("ld-linux-x86-64.so.2"), "/lib/ld-linux-aarch64.so.1")
    _, text = run([loader, "--list", path])
    return [line.strip() for line in text.splitlines()
            if ("not found" in line or "error while loading" in line) and "libcuda.so.1" not in line]


def loads():
    step = Step("loads")
    with ThreadPoolExecutor(8) as pool:
        found = list(zip(programs(), pool.map(unresolved, programs())))
    missing = {str(path.relative_to(BUILD)): lines for path, lines in found if lines}
    for name, lines in missing.items():
        step.fail(f"{name}: {lines[0]}")
    if not found:
        step.fail(f"{BUILD} holds no programs")
    step.tell(programs=len(found), loads=not missing and bool(found))
    print(f"{len(found)} programs and libraries, {len(missing)} do not load", flush=True)
    if not step.known["loads"]:
        return 1
    probe = DOUBLED / "../gpu_probe"
    status, text = show("GPU", [probe], None)
    step.tell(gpu=status == 0, gpu_text=last_line(text))
    if status not in (0, 77): # libraries that do not fit each other, or the driver
        step.fail(f"gpu_probe: {first_error(text)}")
        step.tell(loads=False)
        return 1
    show("trainer", [TRAINER, "--version"], None)
    _, text = show("devices", [TRAINER, "devices"], None)
    step.tell(gpus=gpus_in(text))
    show("nvidia-smi", ["nvidia-smi", "--query-gpu=name,driver_version,memory.total,clocks.max.sm,"
                        "clocks.max.memory,power.limit", "--format=csv,noheader"], 3)
    for tool in ("ncu", "compute-sanitizer", "nvcc", "cmake"):
        print(f"{tool}: {shutil.which(tool) or 'none'}")
    status, text = show("facts", [BUILD / "bench/gpu/gpu_facts"], None)
    step.tell(facts=[line for line in text.splitlines() if re.match(r"a graph|memory:|matrices", line)])
    described = text.partition("cuDNN's description of the device:\n")[2].strip()
    if described:
        (RESULTS / "device.json").write_text(described + "\n")
    if status not in (0, 77):
        step.fail(f"gpu_facts: {first_error(text)}")
    return 0 if step.known["gpu"] else 77


# ---- engines --------------------------------------------------------------------------------------


def is_as_planned(rows):
    """Whether a rehearsal found its wrong configuration, and the one whose results vary (gpu_sweep_doubled), and
    measured Lockstep's own kernels, whose engines have negative numbers. Rounding to bf16 is an error of at most 4e-3."""
    measured = [row for row in rows if "same_bits" in row]
    own = {row["mode"] for row in rows if row["engine"] < 0 and "us" in row}
    return own == {"own", "own+pool", "pool"} and all(
        row["same_bits"] == (row["engine"] != 2) and
        (row["engine"] != 1 or row["worst"] > 4e-3) and (row["engine"] not in (-1, 0) or row["worst"] < 4e-3)
        for row in measured) and any("does not run" in row.get("skipped", "") for row in rows)


def engines():
    """Times all engines that cuDNN recommends."""
    step, path = Step("engines"), RESULTS / "engines.jsonl"
    seconds = max(1, STEP_S - 6)
    status, text = show("engines", [BUILD / "bench/gpu" / ("gpu_sweep_doubled" if REHEARSE else "gpu_sweep"),
                                    "--json", path, "--seconds", f"{seconds:.0f}",
                                    *(["--small"] if REHEARSE else [])], None)
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    step.tell(rows=len(rows), measured=sum("same_bits" in row for row in rows), ended=last_line(text))
    if status:
        step.fail(f"gpu_sweep: {last_line(text)}")
    elif REHEARSE and not is_as_planned(rows):
        step.fail("the sweep did not find what is wrong with the doubles' engines")
    return step.status()


def names():
    """The kernels that PyTorch runs in fp32."""
    step = Step("names")
    if not has_torch(step):
        return 77
    status, text = show("kernels of PyTorch", [sys.executable, SOURCE / "bench/gpu/torch_kernels.py", "--data", DATA,
                                               "--json", RESULTS / "torch_kernels.json",
                                               *(["--rehearse"] if REHEARSE else [])], None)
    if status:
        step.fail(f"torch_kernels.py: {last_line(text)}")
    return step.status()


# ---- kernels --------------------------------------------------------------------------------------


def write_twins(part, folder):
    return run([BUILD / "tests/cuda_gpu/gpu_twins", "write", f"{folder}/twins_{part}.bin", part])


def compare_kernels(part, where):
    """Returns (status of the kernels, their output, status of the comparison, its lines)."""
    folder = BUILD / "tests/cuda_gpu"
    kernels, twins = Path(where, f"kernels_{part}.bin"), Path(where, f"twins_{part}.bin")
    status, text = run([folder / ("gpu_twins" if REHEARSE else "gpu_kernels"), "write", kernels, part])
    compared, lines = run([folder / "gpu_twins", "compare", kernels, twins])
    for path in (kernels, twins):
        path.unlink(missing_ok=True)
    return status, text, compared, lines


def kernels():
    """Runs each part in a process of its own, so that an error in one part does not affect the others."""
    step = Step("kernels")
    parts, folder = {}, SCRATCH
    with ThreadPoolExecutor(2 if REHEARSE else 4) as pool:
        twins = {part: pool.submit(write_twins, part, folder) for part in KERNEL_PARTS}
        for part in KERNEL_PARTS:
            twin_status, twin_text = twins[part].result()
            status, text, compared, lines = compare_kernels(part, folder)
            print(f"== {part}: status {status}\n{twin_text}{text}{lines}", flush=True)
            results = [line for line in lines.splitlines() if line.startswith("  ")]
            far = [line.strip() for line in results if "TOO FAR" in line]
            parts[part] = {"results": len(results), "far": len(far)}
            step.tell(parts=parts)
            if status or twin_status:
                step.fail(f"{part}: {last_line(text if status else twin_text)}")
            elif compared:
                step.fail(f"{part}: {far[0] if far else last_line(lines)}")
    return step.status()


# ---- beside PyTorch -------------------------------------------------------------------------------


def has_torch(step):
    status, text = run([sys.executable, "-c", "import torch; print(torch.__version__)"])
    if status:
        print(f"skipped: {sys.executable} has no PyTorch: {last_line(text)}")
        step.tell(skipped="there is no PyTorch")
    return status == 0


def parity():
    step = Step("parity")
    if not has_torch(step):
        return 77
    status = subprocess.run([sys.executable, SOURCE / "bench/gpu/losses.py", "--trainer", TRAINER, "--data", DATA,
                             "--json", RESULTS / "losses.json", *(["--rehearse"] if REHEARSE else [])],
                            check=False).returncode
    return status


def measure(*words):
    """Runs run.py, which adds its rows to the table of all steps."""
    return subprocess.run([sys.executable, SOURCE / "bench/gpu/run.py", "--build", BUILD, "--data", DATA,
                           "--python", sys.executable, "--json", RESULTS / "bench.json",
                           "--markdown", RESULTS / "bench.md", *(["--rehearse"] if REHEARSE else []), *words],
                          stdout=subprocess.DEVNULL, check=False).returncode


def beside_torch(name, *words):
    step = Step(name)
    if not has_torch(step):
        return 77
    return measure("--rounds", "3", *words, *(("lenet",) if REHEARSE else ("resnet", "lenet")))


def torch():
    """The fastest form alone. The others are known (bench/RESULTS.md)."""
    return beside_torch("torch", *(() if REHEARSE else ("--forms", "compiled graphed", "--")))


# ---- the program ----------------------------------------------------------------------------------


def train(network, devices, *words, shards=4, rows=2048, batch=256):
    """Makes a short run. Returns (status, hash of the weights, records)."""
    handle, name = tempfile.mkstemp(".jsonl", "run_", RESULTS)
    os.close(handle)
    metrics = Path(name)
    if REHEARSE:
        rows, batch = 32, 8
    status, text = run([TRAINER, CONFIGS[network], "--devices", devices, "--metrics", metrics, "--quiet",
                        "--set", "data.name=fashion_mnist", "--set", f"data.path={DATA}",
                        "--set", f"data.limit={rows}", "--set", f"batch_size={batch}", "--set", "epochs=1",
                        "--set", "eval_every=0", "--set", "run_dir=null", "--set", f"shards={shards}", *words])
    records = metrics.read_text()
    metrics.unlink()
    found = re.search(r'"weights_sha256":"([0-9a-f]{64})"', records)
    print(f"{network} {devices} {' '.join(words)}: status {status}, {found[1] if found else text}", flush=True)
    return status, found[1] if found else first_error(text), records


def bits_of(network, precision):
    """The hashes of the weights of 1, 2 and 4 workers. The first run chooses kernels, and the other runs take the
    choices from the cache."""
    words = ("--set", f"precision={precision}")
    runs = [train(network, "cuda:0", *words)]
    with ThreadPoolExecutor(2) as pool:
        runs += pool.map(lambda devices: train(network, devices, *words), ("cuda:0,0", "cuda:0,0,0,0"))
    return [(status, sha) for status, sha, _ in runs]


def same_bits(step):
    """Makes several runs at the same time, because nothing is timed."""
    bits, of = {}, [(n, p) for p in PRECISIONS for n in (("lenet",) if REHEARSE else ("resnet", "lenet"))]
    with ThreadPoolExecutor(3) as pool:
        for (network, precision), runs in zip(of, pool.map(lambda pair: bits_of(*pair), of)):
            same = not any(status for status, _ in runs) and len({sha for _, sha in runs}) == 1
            bits[f"{network} {precision}"] = same
            step.tell(bits=bits)
            if not same:
                said = next((sha for status, sha in runs if status), "1, 2 and 4 workers: other bits")
                step.fail(f"{network} {precision}: {said}")


def rates():
    step = Step("rates")
    status = measure("--ours", "--rounds", "5", *(("lenet",) if REHEARSE else ("resnet", "lenet")))
    if status:
        step.fail("run.py --ours: see rates.log")
    same_bits(step)
    return step.status()


def seeds():
    return measure("seeds")


def check_fault(step, name, wanted, devices, shards, kind, *words):
    """One of several workers fails, or hangs. With `wanted`, the weights must be these, those of a run without a
    failure."""
    status, sha, records = train("lenet", devices, "--inject", f"worker=1,step=2,kind={kind}", *words,
                                 *(("--set", "deadline_s=1") if kind == "stall" else ()), shards=shards)
    noticed = '"type":"fault"' in records
    if REHEARSE and kind == "stall" and sha == wanted:
        status = 0  # the doubles take for leaks what a thread holds that sleeps on
    step.tell(**{name: status == 0 and wanted in (None, sha) and noticed})
    if not step.known[name]:
        step.fail(f"{name}: " + (sha if status else "no fault was recorded" if not noticed else
                                 "the weights are others than without"))


def faults():
    step = Step("faults")
    _, wanted, _ = train("lenet", "cuda:0,0", shards=2)
    for kind in ("fail", "stall"):
        check_fault(step, kind, wanted, "cuda:0,0", 2, kind)
    return step.status()


# ---- several GPUs ---------------------------------------------------------------------------------


def gpus_here():
    """The number of GPUs that `loads` has found."""
    try:
        return json.loads((RESULTS / "loads.json").read_text()).get("gpus", 0)
    except (OSError, ValueError):
        return 0


def several_bits(step, counts):
    """The same eight shards on any number of GPUs. As nothing is timed, all networks run at once."""
    bits, of = {}, [(n, p) for p in PRECISIONS for n in (("lenet",) if REHEARSE else ("resnet", "lenet"))]

    def runs_of(pair):
        words = ("--set", f"precision={pair[1]}", "--set", "allreduce=ordered")
        return [train(pair[0], gpus_of(count), *words, shards=8)[:2] for count in counts]

    with ThreadPoolExecutor(len(of)) as pool:
        for (network, precision), runs in zip(of, pool.map(runs_of, of)):
            same = not any(status for status, _ in runs) and len({sha for _, sha in runs}) == 1
            bits[f"{network} {precision}"] = same
            step.tell(bits=bits)
            if not same:
                said = next((sha for status, sha in runs if status), f"{counts} GPUs: other bits")
                step.fail(f"{network} {precision}: {said}")


def several_faults(step, count):
    """A worker that is lost or hangs, each on a GPU of its own. NCCL's order depends on the number of workers, so with
    `nccl` the weights are others after a loss; the run must go on."""
    devices = gpus_of(count)
    _, wanted, _ = train("lenet", devices, "--set", "allreduce=ordered", shards=count)
    for kind in ("fail", "stall"):
        check_fault(step, f"ordered {kind}", wanted, devices, count, kind, "--set", "allreduce=ordered")
    check_fault(step, "nccl fail", None, devices, count, "fail", "--set", "allreduce=nccl")


def several_merge(step, counts):
    """The merge alone, by sizes."""
    program = BUILD / "gpu_merge"  # pack.sh puts it beside the plugin
    if not program.exists():
        program = BUILD / "bench/gpu/gpu_merge"
    if REHEARSE:  # a copy of the program lies where it finds the plugin over the doubles
        shutil.copy2(program, DOUBLED / "gpu_merge")
        program = DOUBLED / "gpu_merge"
    status, text = show("the merge alone", [program, "--json", RESULTS / "merge.json",
                                            *(["--small", "--seconds", "0.1"] if REHEARSE else ["--seconds", "5"]),
                                            *counts], None if REHEARSE else 35)
    step.tell(merge=text.splitlines())
    if status:
        step.fail(f"gpu_merge: {last_line(text)}")


def several():
    """Bits, faults, the merge alone and rates on 2, 4 and 8 GPUs."""
    step, gpus = Step("several"), gpus_here()
    step.tell(gpus=gpus)
    counts = [count for count in (1, 2, 4, 8) if count <= gpus]
    if len(counts) < 2:
        print(f"skipped: {gpus} GPU")
        step.tell(skipped=f"{gpus} GPU")
        return 77
    several_bits(step, counts)
    several_merge(step, counts[1:])
    if measure("--rounds", "5", "several"):
        step.fail("run.py several: see several.log")
    several_faults(step, counts[-1])
    return step.status()


# ---- the suite ------------------------------------------------------------------------------------


def run_test(test):
    words = [word.replace("@BUILD@", str(BUILD)).replace("@SOURCE@", str(SOURCE)) for word in test["command"]]
    if REHEARSE:
        words = [word.replace("gpu_kernels", "gpu_twins") for word in words]
    env = dict(os.environ, LOCKSTEP_TEST_DATA=str(DATA), LOCKSTEP_DATA=str(DATA.parent),
               TORCH_PYTHON=sys.executable, LOCKSTEP_TEST_PLUGIN=str(
                   (DOUBLED if REHEARSE else BUILD) / "liblockstep-cuda.so"))
    if REHEARSE:
        env.update(LOCKSTEP_TEST_TRAINER=str(TRAINER), PRECISIONS="fp32", LENET_ROWS="16", LENET_ALONE="true")
    begin = time.monotonic()
    status, text = run(words, None if REHEARSE else test["timeout"], env)
    return test["name"], status, time.monotonic() - begin, text


def suite():
    """Four at a time: the test that takes longest is first, and tests of what was seen in other steps are last. A
    rehearsal has those that do not take minutes over the doubles; the others have rehearsals of their own
    (tests/cuda_gpu)."""
    step = Step("suite")
    path = SOURCE.parent / "tests.json"
    if not path.exists():
        print("skipped: there is no list of tests")
        return 77
    order = {"gpu_ops": -1, "gpu_kernels": 1, "gpu_same_bits": 1}
    tests = sorted(json.loads(path.read_text()), key=lambda test: order.get(test["name"], 0))
    if REHEARSE:
        quick = ("gpu_plugged", "gpu_kernels")
        tests = [test for test in tests if test["name"] in quick]
    done, total = {}, len(tests)
    with ThreadPoolExecutor(2 if REHEARSE else 4) as pool:
        for name, status, seconds, text in pool.map(run_test, tests):
            ended = {0: "passed", 77: "skipped", 124: "timed out"}.get(status, "failed")
            done[name] = ended
            print(f"== {name}: {ended} after {seconds:.1f} s\n{text}", flush=True)
            step.tell(tests=done, total=total)
            if ended not in ("passed", "skipped"):
                step.fail(f"{name}: {first_error(text)}")
    return step.status()


STEPS = {"loads": loads, "engines": engines, "names": names, "kernels": kernels, "parity": parity, "rates": rates,
         "torch": torch, "forms": lambda: beside_torch("forms"), "several": several,
         "overlap": lambda: measure("overlap"), "seeds": seeds, "faults": faults, "suite": suite,
         "timeline": lambda: measure("timeline"), "ncu": lambda: measure("ncu")}

if __name__ == "__main__":
    sys.exit(STEPS[sys.argv[1]]())
