#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures packing and mapping of data, and opening a model's file, each with its lower bound.

    python3 bench/data.py --build build/release [--images 60000] [--rounds 5]

- Packing folders of JPEGs on all cores. There are three folders, made from Fashion-MNIST: grey images
   of 28 × 28 pixels; images in colour of three sizes; and a tenth as many images of 224 × 224. The
   last two are shrunk to 28 × 28. The lower bound is the decoder alone, `make_jpegs --decode`: as
   many threads as there are CPUs, each with one decoder of libjpeg-turbo, read and decode the same
   files and do nothing else.
- Training from the packed file, which is memory-mapped, compared with the same rows in memory.
- The time from ls_model_open to the first prediction, and the rate of 1, 2 and 8 predicting threads
   (bench_model).

The programs take turns. Prints the median of each. Needs NumPy and an otherwise idle machine.
"""

import argparse
import json
import os
import resource
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

FASHION = Path("/usr/share/datasets/fashion-mnist")
CONFIG = {"data": {"name": "npy"}, "batch_size": 256, "epochs": 3, "eval_every": 0, "run_dir": None,
          "model": {"layers": [{"type": "conv2d", "out": 6, "kernel": 5, "padding": 2}, {"type": "relu"},
                               {"type": "max_pool", "kernel": 2}, {"type": "flatten"},
                               {"type": "dense", "out": 10}]},
          "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.05}}


def seconds(command, **options):
    begin = time.monotonic()
    subprocess.run([str(w) for w in command], check=True, stdout=subprocess.DEVNULL, **options)
    return time.monotonic() - begin


def cpu_seconds(command, makes=None):
    if makes:
        makes.unlink(missing_ok=True)  # the removal of the old file is not measured
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    wall = seconds(command)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall, after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def measure_packing(args, folder):
    """Both programs read every file of the folder, after each has read the folder once."""
    tool = args.build / "tests/accuracy/make_jpegs"
    for name, kind, count in (("grey", [], args.images), ("photos", ["photos"], args.images // 10),
                              ("colours", ["colours"], args.images)):
        images = folder / name
        subprocess.run([tool, FASHION / "train-images-idx3-ubyte.gz", FASHION / "train-labels-idx1-ubyte.gz", images,
                        str(count), *kind], check=True)
        pack = [args.trainer, "pack", images, "--to", folder / "x.safetensors", "--size", "28", "--quiet"]
        if name == "grey":
            pack += ["--channels", "1"]
        decode = [tool, "--decode", images, str(os.cpu_count())]
        rounds = [(cpu_seconds(decode), cpu_seconds(pack, folder / "x.safetensors")) for _ in range(args.rounds + 1)][1:]
        wall = statistics.median(d[0] / p[0] for d, p in rounds)
        cpu = statistics.median(d[1] / p[1] for d, p in rounds)
        print(f"packing {count} images, {name}: {count / statistics.median(p[0] for _, p in rounds):.0f}/s; the decoder "
              f"alone: {count / statistics.median(d[0] for d, _ in rounds):.0f}/s; {wall:.3f} of it "
              f"({cpu:.3f} by CPU time)", flush=True)


def write_npy(packed, folder, wide):
    """The packed rows as arrays: bytes are mapped; 32-bit whole numbers would be converted, so memory takes floats
    of 8 bytes and the map floats of 4, which train the same."""
    raw = packed.read_bytes()
    length = struct.unpack("<Q", raw[:8])[0]
    header = json.loads(raw[8:8 + length])
    import numpy as np
    for name, dtype in (("x", "u1"), ("y", "<i4")):
        begin, end = header[name]["data_offsets"]
        values = np.frombuffer(raw, dtype, offset=8 + length + begin, count=(end - begin) // np.dtype(dtype).itemsize)
        values = values.reshape(header[name]["shape"])
        if name == "x":
            values = (values / np.float32(255)).astype("<f8" if wide else "<f4")
        np.save(folder / f"{name}.npy", values)


def measure_map(args, folder):
    rates = {"map": [], "memory": []}
    for kind in rates:
        (folder / kind).mkdir()
        write_npy(folder / "x.safetensors", folder / kind, kind == "memory")
        config = {**CONFIG, "data": {"name": "npy", "path": str(folder / kind), "x": "x.npy", "y": "y.npy"}}
        (folder / f"{kind}.json").write_text(json.dumps(config))
    for _ in range(args.rounds):
        for kind, into in rates.items():
            out = subprocess.run([args.trainer, folder / f"{kind}.json", "--metrics", "-", "--quiet"], check=True,
                                 stdout=subprocess.PIPE, text=True).stdout
            steps = [json.loads(line) for line in out.splitlines()]
            into.append(statistics.median(r["images_per_s"] for r in steps if r["type"] == "step"))
    ratio = statistics.median(a / b for a, b in zip(rates["map"], rates["memory"]))
    print(f"training from the map: {statistics.median(rates['map']):.0f} images/s, from memory "
          f"{statistics.median(rates['memory']):.0f}; {ratio:.3f} of it", flush=True)


def measure_model(args, folder):
    root = Path(__file__).resolve().parents[1]
    run = folder / "lenet"
    subprocess.run([args.trainer, root / "examples/fashion_mnist.json", "--set", f"run_dir={run}", "--set", "epochs=1",
                    "--set", "data.limit=2560", "--quiet"], check=True, stdout=subprocess.DEVNULL)
    bench = [args.build / "bench/bench_model", run / "weights.safetensors"]
    subprocess.run([*bench, str(args.rounds)], check=True)
    # The speed of two cores varies from second to second, so two threads and two processes of one thread take turns.
    turns = [turn(bench) for _ in range(9)]
    for name, ratios in zip(("two processes to one thread", "two threads to one", "eight threads to two",
                             "two threads to two processes"), zip(*turns)):
        print(f"{name}: {statistics.median(ratios):.2f} ({min(ratios):.2f}–{max(ratios):.2f})", flush=True)


def turn(bench):
    def start(cpus):
        return subprocess.Popen(["taskset", "-c", cpus, *bench, "1"], stdout=subprocess.PIPE, text=True)

    both = sum(json.loads(p.communicate()[0])["images_per_s_1"] for p in [start("0"), start("1")])
    rates = json.loads(start("0,1").communicate()[0])
    one, two, eight = (rates[f"images_per_s_{n}"] for n in (1, 2, 8))
    return both / one, two / one, eight / two, two / both


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=lambda name: Path(name).absolute(), required=True)
    p.add_argument("--trainer", type=lambda name: Path(name).absolute(), default=Path(__file__).resolve().parents[1] / "trainer")
    p.add_argument("--images", type=int, default=60000)
    p.add_argument("--rounds", type=int, default=5)
    args = p.parse_args()
    if not FASHION.exists():
        sys.exit(f"data.py: expected Fashion-MNIST in {FASHION}: install dataset-fashion-mnist")
    with tempfile.TemporaryDirectory(prefix="lockstep-data.") as scratch:
        for measure in (measure_packing, measure_map, measure_model):
            measure(args, Path(scratch))


if __name__ == "__main__":
    main()
