#!/usr/bin/env python3
"""What packing and mapping of data, and a model from its file cost, each beside what it cannot be faster than.

    python3 bench/data.py --build build/release [--images 60000] [--rounds 5]

 - packing a folder of JPEGs (made from Fashion-MNIST, in colours and of three sizes) on all cores, beside the decoder
   alone: a djpeg for each of as many processes as there are CPUs would start 60,000 programs, so the decoder is
   `make_jpegs --decode`, threads that only decode with libjpeg-turbo;
 - training from the packed file's map beside the same rows in memory, in turns;
 - ls_model_open to the first prediction, and 1, 2 and 8 threads that predict (bench_model).

Measures in turns and prints the median of each. Needs NumPy, and a machine that does nothing else.
"""

import argparse
import json
import os
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
          "optimizer": {"name": "sgd", "lr": 0.05}}


def seconds(command, **options):
    begin = time.monotonic()
    subprocess.run([str(w) for w in command], check=True, stdout=subprocess.DEVNULL, **options)
    return time.monotonic() - begin


def measure_packing(args, folder):
    """Both read every file of the folder; both have read it once before."""
    images = folder / "images"
    tool = args.build / "tests/accuracy/make_jpegs"
    subprocess.run([tool, FASHION / "train-images-idx3-ubyte.gz", FASHION / "train-labels-idx1-ubyte.gz", images,
                    str(args.images), "colours"], check=True)
    pack = [args.trainer, "pack", images, "--to", folder / "x.safetensors", "--size", "28", "--quiet"]
    decode = [tool, "--decode", images, str(os.cpu_count())]
    times = {"pack": [], "decode": []}
    for _ in range(args.rounds + 1):
        times["decode"].append(seconds(decode))
        times["pack"].append(seconds(pack))
    rate = {k: args.images / statistics.median(v[1:]) for k, v in times.items()}
    print(f"packing {args.images} images: {rate['pack']:.0f}/s; the decoder alone: {rate['decode']:.0f}/s; "
          f"{rate['pack'] / rate['decode']:.3f} of it", flush=True)


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
    subprocess.run([args.build / "bench/bench_model", run / "weights.safetensors", str(args.rounds)], check=True)


def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--build", type=Path, required=True)
    p.add_argument("--trainer", type=Path, default=Path(__file__).resolve().parents[1] / "trainer")
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
