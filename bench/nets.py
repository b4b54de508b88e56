#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares small networks, and batches of many sizes, with PyTorch's best form of each.

    python3 bench/nets.py nets|batches --python VENV/bin/python \\
        --rounds-program build/…/trainer_rounds

Lockstep trains with the default configuration on two CPUs. A *form* of PyTorch is eager or compiled,
channels last or not, and one process with 2 threads or two processes with 1 thread. Both programs run
with AVX-512, if the CPU has it, and limited to AVX2. A form that is far slower than the best one in
its first rounds is dropped. A round measures Lockstep and each form once. Ratios are computed round
by round, to the form with the best median.
"""

import argparse
import json
import math
import os
import random
import re
import statistics
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent / "peers"))
import svg  # noqa: E402
from run import Peer, say  # noqa: E402

ROOT = Path(__file__).parent.parent
ROUND_S = 0.4
STEPS_MOST = 400
DATA_BYTES = 48 << 20
BEHIND = 0.8  # a form with less than this share of the best form's rate is dropped

# Environments that limit Lockstep (first) and PyTorch (second) to an instruction set.
SETS = {
    "AVX-512": ({}, {}),
    "AVX2": ({"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F"},
             {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
              "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
}

# name: input, number of classes (0: one yes-or-no target), rows per step, layers. Letters of layers: c convolution
# (outputs, kernel, stride), d dense, n batch norm, r relu, t tanh, m max pool, a average pool, g global average pool,
# f flatten. Padding keeps the size.
NETS = {
    "wide MLP": ((1, 28, 28), 10, 128, "f d1024 r d1024 r d10"),
    "wide MLP, 512 rows": ((1, 28, 28), 10, 512, "f d1024 r d1024 r d10"),
    "narrow MLP": ((1, 28, 28), 10, 128, "f d64 r d64 r d10"),
    "deep MLP": ((3, 16, 16), 10, 256, "f d256 r d256 r d256 r d256 r d256 r d10"),
    "strided": ((3, 32, 32), 10, 128, "c32,3,2 r c64,3,2 r c128,3,2 r f d10"),
    "1x1 bottlenecks": ((3, 32, 32), 10, 128,
                        "c64,3,2 r c16,1 r c16,3 r c64,1 r c16,1 r c16,3 r c64,1 r g d10"),
    "large kernels": ((1, 28, 28), 10, 128, "c16,7 r m2 c32,7 r m2 f d10"),
    "batch-normed": ((3, 32, 32), 10, 128, "c32,3 n r c32,3 n r m2 c64,3 n r c64,3 n r m2 c128,3 n r g d10"),
    "1,000 classes": ((3, 32, 32), 1000, 128, "c32,3 r m2 c64,3 r m2 c128,3 r m2 f d1000"),
    "one channel": ((1, 28, 28), 10, 64, "c6,5 t a2 c16,5 t a2 f d120 t d84 t d10"),
    "64 channels": ((64, 16, 16), 10, 64, "c64,3 r c64,3 r m2 c128,3 r g d10"),
    "HIGGS": ((28,), 0, 100, "d300 t d300 t d300 t d300 t d300 t d1"),
}
BATCHES = {"LeNet": ("fashion_mnist", (16, 32, 64, 128, 256, 1024)), "ResNet-18": ("resnet18", (16, 64, 256))}


def layer(word):
    """Converts a layer of the table above to a layer of a configuration."""
    n = [int(v) for v in word[1:].split(",") if v]
    if word[0] == "c":
        return {"type": "conv2d", "out": n[0], "kernel": n[1], "stride": (n + [1])[2],
                "padding": n[1] // 2}
    if word[0] == "d":
        return {"type": "dense", "out": n[0]}
    if word[0] in "ma":
        return {"type": "max_pool" if word[0] == "m" else "avg_pool", "kernel": n[0]}
    return {"type": {"n": "batch_norm", "r": "relu", "t": "tanh", "g": "global_avg_pool", "f": "flatten"}[word[0]]}


def cases(part):
    """name, group, configuration, input and classes of each network that is trained."""
    if part == "nets":
        for name, (shape, classes, batch, words) in NETS.items():
            yield name, name, {"model": {"layers": [layer(w) for w in words.split()]},
                               "batch_size": batch}, shape, classes
        return
    for name, (example, sizes) in BATCHES.items():
        model = json.loads((ROOT / f"examples/{example}.json").read_text())["model"]
        for batch in sizes:
            yield f"{name}, {batch}", name, {"model": model, "batch_size": batch}, (1, 28, 28), 10


def write_array(path, kind, shape, data):
    """A NumPy file, without NumPy."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def prepare(folder, name, config, shape, classes):
    """Writes the data and the configuration. Returns the path of the configuration and the number of steps of the data."""
    size = math.prod(shape)
    rows = min(DATA_BYTES // size, STEPS_MOST * config["batch_size"])
    labels = [i % (classes or 2) for i in range(rows)]
    draw = random.Random(0)
    draw.shuffle(labels)
    config |= {"name": "net", "optimizer": {"name": "sgd", "lr": 1e-3}, "init": {"name": "kaiming"},
               "data": {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy")}}
    if classes:
        write_array(folder / "x.npy", "|u1", (rows, *shape), random.Random(0).randbytes(rows * size))
        write_array(folder / "y.npy", "<i4", (rows,), struct.pack(f"<{rows}i", *labels))
    else:  # rows of floats, and a yes-or-no target
        cells = [draw.gauss(0, 1) for _ in range(rows * size)]
        write_array(folder / "x.npy", "<f4", (rows, *shape), struct.pack(f"<{len(cells)}f", *cells))
        write_array(folder / "y.npy", "<f4", (rows, 1), struct.pack(f"<{rows}f", *labels))
        config["loss"] = "bce"
        config["data"]["labels"] = "values"
    path = folder / f"{re.sub('[^a-zA-Z0-9]+', '-', name)}.json"
    path.write_text(json.dumps(config))
    return path, rows // config["batch_size"]


class Form:
    """PyTorch in one form. One process serves several forms."""

    def __init__(self, peer, path, form, layout):
        self.peer, self.words = peer, f"{form} {layout}"
        self.name = f"{form}, {layout.replace('_', ' ')}, {peer.name}"
        self.path, self.steps, self.rates, self.cpu_s = path, 0, [], 0

    def ask(self, steps):
        self.peer.round(f"{self.path} {steps} {self.words}")
        return self.peer.answers.pop()["images_per_s"]

    def warm(self, batch):
        """Creates the form, and chooses the number of steps of a round. Returns the rate; 0: the form does not run."""
        try:
            rate = self.ask(2)
            self.steps = max(1, min(STEPS_MOST, round(ROUND_S * rate / batch)))
            return max(self.ask(self.steps), self.ask(self.steps))
        except (OSError, RuntimeError) as error:
            say(f"  left out: {error}")
            self.peer.stop()
            self.peer.launch()
            return 0

    def round(self):
        before = self.peer.cpu_seconds()
        self.rates.append(self.ask(self.steps))
        self.cpu_s += self.peer.cpu_seconds() - before

    def images_per_cpu_s(self, batch):
        return self.steps * batch * len(self.rates) / max(self.cpu_s, 0.01)


class Lockstep(Form):
    """Lockstep: trainer_rounds with one network."""

    def __init__(self, program, env, path, batch, steps_most):
        set_env = [f"{key}={value}" for key, value in env.items()]
        self.make = lambda steps: Peer("lockstep", ["env", *set_env, program, str(path), "--steps",
                                                    str(steps)])
        self.rates, self.cpu_s = [], 0
        self.start(min(4, steps_most))
        rate = self.ask(0)
        self.peer.stop()
        self.start(max(1, min(round(ROUND_S * rate / batch), steps_most)))

    def start(self, steps):
        self.peer, self.steps = self.make(steps), steps
        if not self.peer.start():
            sys.exit("Lockstep does not run")

    def ask(self, _):
        self.peer.round()
        return self.peer.rates[-1]


def torch_forms(torches, path, config):
    """Chooses the forms of PyTorch that are measured. Two processes are tried with the better layout only, and
    compiled only if they are about as fast as one process when not compiled."""
    images = any(l["type"] == "conv2d" for l in config["model"]["layers"])
    layouts = ["channels_last", "contiguous"] if images else ["contiguous"]
    rates = {}

    def try_out(peer, form, layout):
        made = Form(peer, path, form, layout)
        rates[made] = made.warm(config["batch_size"])
        say(f"  {made.name}: {rates[made]:,.0f}")
        return rates[made]

    eager = max(try_out(torches[0], "eager", layout) for layout in layouts)
    for layout in layouts:
        try_out(torches[0], "compiled", layout)
    better = max(rates, key=rates.get).words.split()[1]
    if try_out(torches[1], "eager", better) >= BEHIND * eager:
        try_out(torches[1], "compiled", better)
    best = max(rates.values())
    if best == 0:
        sys.exit("PyTorch runs in no form")
    return [form for form, rate in rates.items() if rate >= BEHIND * best]


def spread(mine, best):
    ratios = [a / b for a, b in zip(mine, best)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def measure(args, folder, case, instruction_set, torches):
    name, group, config, shape, classes = case
    say(f"{instruction_set}: {name}")
    batch = config["batch_size"]
    path, steps_most = prepare(folder, name, config, shape, classes)
    forms = torch_forms(torches, path, config)
    ours = Lockstep(args.rounds_program, SETS[instruction_set][0], path, batch, steps_most)
    try:
        for _ in range(args.rounds):
            for peer in (ours, *forms):
                peer.round()
    finally:
        ours.peer.stop()
    best = max(forms, key=lambda f: statistics.median(f.rates))
    out = {"name": name, "group": group, "batch": batch, "set": instruction_set, "form": best.name,
           "ours": ours.rates, "torch": best.rates, "ratio": spread(ours.rates, best.rates),
           "by_cpu": ours.images_per_cpu_s(batch) / best.images_per_cpu_s(batch)}
    say(f"  {out['ratio']['median']:.2f} times {best.name}, by CPU time {out['by_cpu']:.2f}")
    return out


def start_torch(python, processes, env):
    name = "2 threads" if processes == 1 else f"{processes} processes"
    env = env | {"TORCHINDUCTOR_CACHE_DIR": str(ROOT / f"bench/out/inductor-{len(env)}-{processes}")}
    peer = Peer(name, ["env", *(f"{key}={value}" for key, value in env.items()), python,
                       str(ROOT / "bench/peers/net_torch.py"), str(processes)])
    peer.launch()
    return peer


def measure_set(args, folder, instruction_set):
    torches = [start_torch(args.python, n, SETS[instruction_set][1]) for n in (1, 2)]
    try:
        return [measure(args, folder, case, instruction_set, torches) for case in cases(args.part)
                if not args.only or any(word in case[0] for word in args.only)]
    finally:
        for peer in torches:
            peer.stop()


def cells(result):
    r = result["ratio"]
    return (f"{statistics.median(result['ours']):,.0f} | {statistics.median(result['torch']):,.0f} | "
            f"{r['median']:.2f} ({r['min']:.2f}–{r['max']:.2f}) | {result['by_cpu']:.2f} | {result['form']}")


def markdown(results):
    for name in dict.fromkeys(r["set"] for r in results):
        rows = [r for r in results if r["set"] == name]
        ratios = [r["ratio"]["median"] for r in rows]
        print(f"{name}: lowest {min(ratios):.2f}, median {statistics.median(ratios):.2f}\n")
        print("| network | rows a step | Lockstep | PyTorch | × (min–max) | × by CPU time | PyTorch's best form |")
        print("|---|---:|---:|---:|---:|---:|---|")
        for r in rows:
            print(f"| {r['group']} | {r['batch']} | {cells(r)} |")
        print()


def picture(results):
    """The picture of rates by rows per step, with a panel for each network and instruction set."""
    groups = {}
    for r in results:
        groups.setdefault((r["group"], r["set"]), []).append(r)
    width, height = 420, 230
    parts = svg.legend(24, 20, ["Lockstep", "PyTorch, best form"], [2, 6])
    for i, ((name, instruction_set), rows) in enumerate(groups.items()):
        values = [[(min(v), statistics.median(v), max(v)) for v in (r["ours"], r["torch"])] for r in rows]
        x, y = 20 + i % 2 * (width + 20), 40 + i // 2 * (height + 26)
        parts += svg.bars(x, y, width, height, f"{name}, {instruction_set}: images/s",
                          [r["batch"] for r in rows], ("ours", "torch"), (2, 6), values)
        room = (width - 50) / len(rows)  # of a group of bars; below it the ratio
        parts += [svg.text(x + 46 + room * (k + 0.5), y + height + 8, f"{r['ratio']['median']:.1f}×",
                           "middle", "strong") for k, r in enumerate(rows)]
    return svg.picture(2 * width + 60, 44 + (len(groups) + 1) // 2 * (height + 26), parts,
                       "training rates by rows a step")


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("part", choices=("nets", "batches"))
    parser.add_argument("--python", required=True, help="an interpreter that has PyTorch")
    parser.add_argument("--rounds-program", required=True, help="bench/trainer_rounds")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--sets", nargs="+", choices=SETS, default=list(SETS))
    parser.add_argument("--only", nargs="+", help="networks with one of these words in their names")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--picture", type=Path, help="batches: write a picture to this file")
    args = parser.parse_args()
    if "avx512f" not in Path("/proc/cpuinfo").read_text():
        args.sets = ["AVX2"]
    folder = ROOT / "bench/out" / args.part
    folder.mkdir(parents=True, exist_ok=True)
    results = []
    for instruction_set in args.sets:
        results += measure_set(args, folder.resolve(), instruction_set)
    markdown(results)
    if args.json:
        args.json.write_text(json.dumps(results, indent=2) + "\n")
    if args.picture and args.part == "batches":
        args.picture.write_text(picture(results))


if __name__ == "__main__":
    main()
