#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares networks, and batches of many sizes, with PyTorch's best form of each.

    python3 bench/nets.py nets|batches --python VENV/bin/python \\
        --rounds-program build/…/trainer_rounds

Lockstep trains with the default configuration on two CPUs. A *form* of PyTorch is eager or compiled,
channels last or not, and one process with 2 threads or 1, or two processes with 1 thread. Both
programs run with AVX-512, if the CPU has it, and limited to AVX2. A form that is far slower than the
best one in its first rounds is dropped. A round measures Lockstep and each form once, for about
ROUND_S. Ratios are computed round by round, to the form with the best median; by CPU time, to the form
that needs the least of it, of those that are nearly as fast as the best.
"""

import argparse
import array
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
STEPS_MOST = 4000
DATA_BYTES = 48 << 20
BEHIND = 0.8  # a form with less than this share of the best form's rate is dropped

# Environments that limit Lockstep (first) and PyTorch (second) to an instruction set.
SETS = {
    "AVX-512": ({}, {}),
    "AVX2": ({"GLIBC_TUNABLES": "glibc.cpu.hwcaps=-AVX512F"},
             {"ATEN_CPU_CAPABILITY": "avx2", "ONEDNN_MAX_CPU_ISA": "AVX2",
              "MKL_ENABLE_INSTRUCTIONS": "AVX2"}),
}

# name: input (an image of bytes, or a vector of floats), target, rows per step, model. A target is a number of classes,
# YES_OR_NO, or SAME: the input. A model is a config in examples/, or words for its layers. Letters: c convolution
# (outputs, kernel, stride), d dense, n batch norm, l layer norm, r relu, t tanh, e gelu, m max pool, a average pool,
# g global average pool, f flatten, u upsample, p add, k concat. @name: the name of a layer; <name: the layer that it
# reads; :name: the second input. Padding keeps the size.
YES_OR_NO, SAME = "yes or no", "the input"


def resnet20():
    """The words of the ResNet with 20 layers for images of 32x32, with 1x1 convolutions as projections."""
    words, before, last = ["c16,3 n r@x0"], 16, "x0"
    for i in range(9):
        width, stride = 16 << i // 3, 2 if i in (3, 6) else 1
        words.append(f"c{width},3,{stride} n r c{width},3 n@b{i}")
        words.append(f"p:{last}" if width == before else f"c{width},1,{stride}<{last} n p:b{i}")
        before, last = width, f"x{i + 1}"
        words.append(f"r@{last}")
    return " ".join(words + ["g d10"])


def twice(outputs, name=""):
    """The words of two convolutions of 3x3, each with batch norm and relu."""
    return f"c{outputs},3 n r c{outputs},3 n r{name}"


U_NET = " ".join([twice(16, "@a"), "m2", twice(32, "@b"), "m2", twice(64), "u2 k:b", twice(32), "u2 k:a", twice(16),
                  "c1,1 f"])
DENSE_1024 = "f d1024 r d1024 r d10"
SMALL_CNN = "c16,3 r m2 c32,3 r m2 c64,3 r g d10"
FOUR_STRIDED = "c32,3,2 r c64,3,2 r c128,3,2 r c256,3,2 r g d10"

NETS = {
    "wide MLP": ((1, 28, 28), 10, 128, DENSE_1024),
    "wide MLP, 512 rows": ((1, 28, 28), 10, 512, DENSE_1024),
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
    "HIGGS": ((28,), YES_OR_NO, 100, "d300 t d300 t d300 t d300 t d300 t d1"),
    "ResNet-20": ((3, 32, 32), 10, 128, resnet20()),
    "U-Net": ((1, 64, 64), SAME, 16, U_NET),
    "MobileNet": ((1, 28, 28), 10, 128, "mobilenet.json"),
    "5x5": ((1, 28, 28), 10, 128, "c32,5 r m2 c32,5 r m2 f d10"),
    "5x5 strided": ((3, 32, 32), 10, 128, "c32,5,2 r c64,5,2 r c128,3,2 r f d10"),
    "224x224": ((3, 224, 224), 10, 16, FOUR_STRIDED),
    "224x224, 32 rows": ((3, 224, 224), 10, 32, FOUR_STRIDED),
    "56x56": ((3, 56, 56), 10, 16, FOUR_STRIDED),
    "1,000 classes, 64 rows": ((3, 32, 32), 1000, 64, "c32,3 r m2 c64,3 r m2 c128,3 r m2 f d1000"),
    "dense autoencoder": ((1, 28, 28), SAME, 128, "f d256 r d32 r d256 r d784"),
    "batch-norm MLP": ((200,), 10, 256, "d256 n r d256 n r d10"),
    "layer-norm MLP": ((1, 28, 28), 10, 256, "f d256 l e d256 l e d10"),
    "64 values": ((64,), 10, 128, "d10"),
    "20 values": ((20,), 3, 32, "d64 r d64 r d3"),
    "20 values, 1,024 rows": ((20,), 3, 1024, "d64 r d64 r d3"),
    "small CNN, 1 row": ((3, 32, 32), 10, 1, SMALL_CNN),
    "small CNN, 7 rows": ((3, 32, 32), 10, 7, SMALL_CNN),
    "small CNN, 100 rows": ((3, 32, 32), 10, 100, SMALL_CNN),
}
BATCHES = {"LeNet": ("fashion_mnist", (16, 32, 64, 128, 256, 1024)), "ResNet-18": ("resnet18", (16, 64, 256))}


PLAIN = {"n": "batch_norm", "l": "layer_norm", "r": "relu", "t": "tanh", "e": "gelu", "g": "global_avg_pool",
         "f": "flatten", "p": "add", "k": "concat"}
MARKS = {"@": "name", "<": "from", ":": "with"}


def layer(word):
    """Converts a layer of the table above to a layer of a configuration."""
    word, *names = re.split("(?=[@<:])", word)
    n = [int(v) for v in word[1:].split(",") if v]
    if word[0] == "c":
        made = {"type": "conv2d", "out": n[0], "kernel": n[1], "stride": (n + [1])[2], "padding": n[1] // 2}
    elif word[0] == "d":
        made = {"type": "dense", "out": n[0]}
    elif word[0] == "u":
        made = {"type": "upsample", "scale": n[0]}
    elif word[0] in "ma":
        made = {"type": "max_pool" if word[0] == "m" else "avg_pool", "kernel": n[0]}
    else:
        made = {"type": PLAIN[word[0]]}
    return made | {MARKS[name[0]]: name[1:] for name in names}


def model_of(words):
    """The model of a configuration: that of an example, or layers."""
    if words.endswith(".json"):
        return json.loads((ROOT / "examples" / words).read_text())["model"]
    return {"layers": [layer(word) for word in words.split()]}


def cases(part):
    """name, group, configuration, input and target of each network that is trained."""
    if part == "nets":
        for name, (shape, target, batch, words) in NETS.items():
            yield name, name, {"model": model_of(words), "batch_size": batch}, shape, target
        return
    for name, (example, sizes) in BATCHES.items():
        model = model_of(f"{example}.json")
        for batch in sizes:
            yield f"{name}, {batch}", name, {"model": model, "batch_size": batch}, (1, 28, 28), 10


def write_array(path, kind, shape, data):
    """A NumPy file, without NumPy."""
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (63 - (len(head) + 10) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + data)


def floats(count):
    """Normally distributed values, which repeat after 2^18."""
    draw = random.Random(0)
    few = array.array("f", (draw.gauss(0, 1) for _ in range(min(count, 1 << 18))))
    return (few * math.ceil(count / len(few)))[:count]


def write_target(folder, config, rows, target):
    """Writes the targets of the rows, and the keys of the configuration that depend on them."""
    data = config["data"]
    if target == SAME:
        data |= {"y": data["x"], "standardize_target": False}
        config["loss"] = "mse"
        return
    labels = [i % (2 if target == YES_OR_NO else target) for i in range(rows)]
    random.Random(0).shuffle(labels)
    if target == YES_OR_NO:
        write_array(folder / "y.npy", "<f4", (rows, 1), struct.pack(f"<{rows}f", *labels))
        config["loss"] = "bce"
        data["labels"] = "values"
    else:
        write_array(folder / "y.npy", "<i4", (rows,), struct.pack(f"<{rows}i", *labels))


def prepare(folder, name, config, shape, target):
    """Writes the data and the configuration. Returns the path of the configuration and the number of steps of the data."""
    size, values = math.prod(shape), len(shape) == 1
    rows = min(DATA_BYTES // (4 * size if values else size), STEPS_MOST * config["batch_size"])
    config |= {"name": "net", "optimizer": {"name": "sgd", "lr": 1e-3}, "init": {"name": "kaiming"},
               "data": {"name": "npy", "x": str(folder / "x.npy"), "y": str(folder / "y.npy")}}
    cells = floats(rows * size).tobytes() if values else random.Random(0).randbytes(rows * size)
    write_array(folder / "x.npy", "<f4" if values else "|u1", (rows, *shape), cells)
    write_target(folder, config, rows, target)
    path = folder / f"{re.sub('[^a-zA-Z0-9]+', '-', name)}.json"
    path.write_text(json.dumps(config))
    return path, rows // config["batch_size"]


class Form:
    """PyTorch in one form. One process serves several forms."""

    def __init__(self, peer, path, form, layout):
        self.peer, self.words = peer, f"{form} {layout}"
        self.name = f"{form}, {layout.replace('_', ' ')}, {peer.name}"
        self.path, self.steps, self.rates, self.cpu_s = path, 0, [], []

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
        before = self.cpu_seconds()
        self.rates.append(self.ask(self.steps))
        self.cpu_s.append(self.cpu_seconds() - before)

    def cpu_seconds(self):
        """The CPU time of all threads of its processes so far, in seconds."""
        return sum(int((task / "schedstat").read_text().split()[0]) / 1e9 for pid in self.peer.pids()
                   for task in Path(f"/proc/{pid}/task").iterdir())

    def by_cpu(self):
        """The steps per second of CPU time in each round."""
        return [self.steps / seconds for seconds in self.cpu_s]


class Lockstep(Form):
    """Lockstep: trainer_rounds with one network."""

    def __init__(self, program, env, path, batch, steps_most):
        set_env = [f"{key}={value}" for key, value in env.items()]
        self.make = lambda steps: Peer("lockstep", ["env", *set_env, program, str(path), "--steps",
                                                    str(steps)])
        self.rates, self.cpu_s, self.epochs = [], [], 1
        self.start(min(4, steps_most))
        rate = self.ask(0)
        self.peer.stop()
        wanted = max(1, round(ROUND_S * rate / batch))
        self.start(min(wanted, steps_most))
        if wanted > steps_most:  # the data of an epoch are too few, or the first rate was too low
            wanted = round(ROUND_S * self.ask(0) / batch)
        self.epochs = max(1, round(wanted / self.steps))
        self.steps *= self.epochs

    def start(self, steps):
        self.peer, self.steps = self.make(steps), steps
        if not self.peer.start():
            sys.exit("Lockstep does not run")

    def ask(self, _):
        for _ in range(self.epochs):
            self.peer.round()
        return statistics.harmonic_mean(self.peer.rates[-self.epochs:])


def torch_forms(torches, path, config):
    """Chooses the forms of PyTorch that are measured. Two processes (for an even number of rows), and one
    thread, are tried with the better layout only, and compiled only if they are about as fast as two threads when not
    compiled."""
    two_threads, two_processes, one_thread = torches
    images = "conv2d" in json.dumps(config["model"])
    layouts = ["channels_last", "contiguous"] if images else ["contiguous"]
    rates = {}

    def try_out(peer, form, layout):
        made = Form(peer, path, form, layout)
        rates[made] = made.warm(config["batch_size"])
        say(f"  {made.name}: {rates[made]:,.0f}")
        return rates[made]

    eager = max(try_out(two_threads, "eager", layout) for layout in layouts)
    for layout in layouts:
        try_out(two_threads, "compiled", layout)
    better = max(rates, key=rates.get).words.split()[1]
    for peer in [two_processes, one_thread] if config["batch_size"] % 2 == 0 else [one_thread]:
        if try_out(peer, "eager", better) >= BEHIND * eager:
            try_out(peer, "compiled", better)
    best = max(rates.values())
    if best == 0:
        sys.exit("PyTorch runs in no form")
    return [form for form, rate in rates.items() if rate >= BEHIND * best]


def spread(mine, best):
    ratios = [a / b for a, b in zip(mine, best)]
    return {"median": statistics.median(ratios), "min": min(ratios), "max": max(ratios)}


def measure(args, folder, case, instruction_set, torches):
    name, group, config, shape, target = case
    say(f"{instruction_set}: {name}")
    batch = config["batch_size"]
    path, steps_most = prepare(folder, name, config, shape, target)
    forms = torch_forms(torches, path, config)
    ours = Lockstep(args.rounds_program, SETS[instruction_set][0], path, batch, steps_most)
    try:
        for _ in range(args.rounds):
            for peer in (ours, *forms):
                peer.round()
    finally:
        ours.peer.stop()
    best = max(forms, key=lambda f: statistics.median(f.rates))
    thrifty = max(forms, key=lambda f: statistics.median(f.by_cpu()))
    out = {"name": name, "group": group, "batch": batch, "set": instruction_set, "form": best.name,
           "ours": ours.rates, "torch": best.rates, "ratio": spread(ours.rates, best.rates),
           "by_cpu": spread(ours.by_cpu(), thrifty.by_cpu())["median"]}
    say(f"  {out['ratio']['median']:.2f} times {best.name}, by CPU time {out['by_cpu']:.2f}")
    return out


def start_torch(python, name, processes, threads, env):
    env = env | {"TORCHINDUCTOR_CACHE_DIR": str(ROOT / f"bench/out/inductor-{len(env)}-{processes}-{threads}")}
    peer = Peer(name, ["env", *(f"{key}={value}" for key, value in env.items()), python,
                       str(ROOT / "bench/peers/net_torch.py"), str(processes), str(threads)])
    peer.launch()
    return peer


def measure_set(args, folder, instruction_set):
    torches = [start_torch(args.python, *form, SETS[instruction_set][1])
               for form in (("2 threads", 1, 2), ("2 processes", 2, 1), ("1 thread", 1, 1))]
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
