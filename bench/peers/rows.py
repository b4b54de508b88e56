#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares predictions of few rows with ONNX Runtime: one thread each, in turns, the same weights.

    bench/peers/rows.py [--build build/release] [--trainer ./trainer] [--rounds 7]
                        [--rows 1 2 4 8 16] [--avx2] [--python] [NET...]

Each network is created by a short run on synthetic data and exported as ONNX. Figures are
microseconds of CPU time of the predicting thread, medians of the rounds. x is ONNX Runtime's time
divided by Lockstep's: the median of the ratios of all rounds. --avx2 also measures Lockstep limited
to AVX2; its rate is compared with that of the other form. --python also measures predictions with
the Python package and compares them with those from C; it needs the target lockstep_shared, and
LD_LIBRARY_PATH=BUILD/src.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import tempfile
import time

import numpy as np
import onnxruntime

ROOT = pathlib.Path(__file__).resolve().parents[2]
DENSE = [{"type": "flatten"}, {"type": "dense", "out": 1024}, {"type": "relu"}, {"type": "dense", "out": 1024},
         {"type": "relu"}, {"type": "dense", "out": 10}]
TABLE = [{"type": "dense", "out": 64}, {"type": "relu"}, {"type": "dense", "out": 64}, {"type": "relu"},
         {"type": "dense", "out": 1}]
AVX2 = {"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F"}
NETS = ("lenet", "mlp", "table", "resnet18", "mobilenet")


def config(net, folder):
    if net == "table":
        rng = np.random.default_rng(0)
        np.save(folder / "x.npy", rng.random((256, 13), dtype=np.float32))
        np.save(folder / "y.npy", rng.random((256, 1), dtype=np.float32))
        data, model = {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy")}, {"layers": TABLE}
    else:
        file = {"lenet": "fashion_mnist"}.get(net, net)
        data = {"name": "synthetic", "limit": 64}
        model = {"layers": DENSE} if net == "mlp" else json.loads((ROOT / f"examples/{file}.json").read_text())["model"]
    return {"name": net, "data": data, "model": model, "batch_size": 32, "shards": 1, "epochs": 1, "devices": "cpu:1",
            "init": "kaiming", "optimizer": {"name": "sgd", "lr": 0.01}, "run_dir": str(folder / "run")}


def make(net, folder, trainer):
    (folder / "config.json").write_text(json.dumps(config(net, folder)))
    quiet = {"check": True, "stdout": subprocess.DEVNULL}
    subprocess.run([trainer, folder / "config.json", "--quiet"], **quiet)
    subprocess.run([trainer, "export", folder / "run", "--to", folder / "net.onnx"], **quiet)
    return folder / "run/weights.safetensors", folder / "net.onnx"


class Onnx:
    def __init__(self, path):
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])
        self.input = self.session.get_inputs()[0]

    def median_us(self, rows):
        shape = [rows, *self.input.shape[1:]]
        values = np.random.default_rng(0).random(shape)
        x = (values * 255).astype(np.uint8) if "uint8" in self.input.type else values.astype(np.float32)
        return median_us_of(lambda: self.session.run(None, {self.input.name: x}))


def median_us_of(predict):
    taken, begun = [], time.thread_time()
    while len(taken) < 7 or time.thread_time() - begun < 0.1:
        at = time.thread_time()
        predict()
        taken.append(1e6 * (time.thread_time() - at))
    return statistics.median(taken)


class Python:
    def __init__(self, path):
        sys.path.insert(0, str(ROOT / "src/python"))
        import lockstep_trainer as lockstep
        self.model = lockstep.Model.open(path)
        self.bytes = not self.model._info().floats

    def median_us(self, rows):
        values = np.random.default_rng(0).random((rows, *self.model.shape))
        x = (values * 255).astype(np.uint8) if self.bytes else values.astype(np.float32)
        return median_us_of(lambda: self.model.predict(x))


class Lockstep:
    def __init__(self, program, path, limits=None):
        self.peer = subprocess.Popen([program, path], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
                                     env=os.environ | (limits or {}))

    def median_us(self, rows):
        self.peer.stdin.write(f"{rows}\n")
        self.peer.stdin.flush()
        return float(self.peer.stdout.readline())

    def close(self):
        self.peer.stdin.close()
        self.peer.wait()


def compare(net, args):
    with tempfile.TemporaryDirectory() as folder:
        weights, onnx = make(net, pathlib.Path(folder), args.trainer)
        program = args.build / "bench/bench_rows"
        peers = [Lockstep(program, weights), Onnx(onnx)]
        peers += [Lockstep(program, weights, AVX2)] if args.avx2 else []
        peers += [Python(weights)] if args.python else []
        for rows in args.rows:
            for peer in peers:
                peer.median_us(rows)  # warms up
            rounds = [[peer.median_us(rows) for peer in peers] for _ in range(args.rounds)]
            print(f"| {net} | {rows} | {line_of(rounds, args)}", flush=True)
        for peer in peers:
            if isinstance(peer, Lockstep):
                peer.close()


def line_of(rounds, args):
    """The cells of a line: medians, and the medians of the ratios of all rounds."""
    ours, theirs, *more = (list(column) for column in zip(*rounds))
    ratios = [b / a for a, b in zip(ours, theirs)]
    cells = [f"{statistics.median(ours):.1f}", f"{statistics.median(theirs):.1f}",
             f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"]
    for column, is_avx2 in zip(more, [True] * args.avx2 + [False]):
        ratio = statistics.median(a / b if is_avx2 else b / a for a, b in zip(ours, column))
        cells += [f"{statistics.median(column):.1f}", f"{ratio:.2f}"]
    return " | ".join(cells) + " |"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--build", type=lambda name: pathlib.Path(name).absolute(), default=ROOT / "build/release")
    parser.add_argument("--trainer", type=lambda name: pathlib.Path(name).absolute(), default=ROOT / "trainer")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 2, 4, 8, 16])
    parser.add_argument("--avx2", action="store_true", help="Lockstep limited to AVX2 as well")
    parser.add_argument("--python", action="store_true", help="through the Python package as well")
    parser.add_argument("net", nargs="*", metavar="NET", default=NETS, help=", ".join(NETS))
    args = parser.parse_args()
    if not set(args.net) <= set(NETS):
        parser.error(f"expected some of {', '.join(NETS)}")
    print(f"ONNX Runtime {onnxruntime.__version__}, load {os.getloadavg()[0]:.1f}", file=sys.stderr)
    more = " AVX2, us | rate, of the first |" * args.avx2 + " Python, us | x C's |" * args.python
    print(f"| net | rows | Lockstep, us | ONNX Runtime, us | x |{more}")
    print("|---|---:|---:|---:|---:|" + "---:|---:|" * (args.avx2 + args.python))
    for net in args.net:
        compare(net, args)


if __name__ == "__main__":
    main()
