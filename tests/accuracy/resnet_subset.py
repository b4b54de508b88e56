#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the accuracy of ResNet-18 with PyTorch: the same images, the same recipe.

Both train examples/resnet18.json on the first 6,000 training images of Fashion-MNIST and are tested
on the first 2,000 test images: 5 epochs, minibatches of 256, learning rate 0.1, weights from N(0,
0.01²) (or Xavier's), biases zero, the ragged last minibatch divided by the nominal 256. There is
one shard, because PyTorch has no shards: batch norm sees the whole minibatch in both. The random
numbers differ, so the mean test accuracy over the seeds is compared.

    python3 tests/accuracy/resnet_subset.py --trainer build/release/trainer

Exits with 0 if the means are within the tolerance, with 1 if they are not, and with 77 (skipped)
without PyTorch or without the data. Runs take turns; each is a process of its own, so that its peak
memory can be measured. Takes a quarter of an hour on two cores.
"""

import argparse
import gzip
import importlib.util
import json
import os
import statistics
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = 77
FILES = ["train-images-idx3-ubyte", "train-labels-idx1-ubyte",
         "t10k-images-idx3-ubyte", "t10k-labels-idx1-ubyte"]
ROOT = Path(__file__).resolve().parents[2]


# ---- data ------------------------------------------------------------------------------------

def find_data(given):
    """The folder of the IDX files, or None."""
    folders = [given] if given else [
        *(Path(base) / name for base in [os.environ.get("LOCKSTEP_DATA")] if base
          for name in ("", "fashion-mnist", "FashionMNIST/raw")),
        Path("/usr/share/datasets/fashion-mnist")]
    for folder in folders:
        if all((folder / f).exists() or (folder / f"{f}.gz").exists() for f in FILES):
            return folder
    return None


def read_bytes(folder, name):
    """A file's bytes, decompressed where only the compressed one is there."""
    plain = folder / name
    if plain.exists():
        return plain.read_bytes()
    return gzip.decompress((folder / f"{name}.gz").read_bytes())


def write_subset(source, target, train_rows, test_rows):
    """Write the first rows of each file to the folder `target`, in the same format."""
    for name in FILES:
        raw = read_bytes(source, name)
        rank = raw[3]
        header = 4 + 4 * rank
        there, *shape = struct.unpack(f">{rank}I", raw[4:header])
        rows = min(there, train_rows if name.startswith("train") else test_rows)
        size = 1
        for side in shape:
            size *= side
        (target / name).write_bytes(raw[:4] + struct.pack(">I", rows) + raw[8:header]
                                    + raw[header:header + rows * size])


# ---- PyTorch ---------------------------------------------------------------------------------

def make_resnet18(nn):
    """The network of the config: biases everywhere, projections without batch norm."""

    class Residual(nn.Module):
        """conv, norm, relu, conv, norm; the input, projected where it shrinks, is added."""

        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1)
            self.conv3 = nn.Conv2d(channels, out, 1, stride) if stride > 1 else None
            self.bn1 = nn.BatchNorm2d(out)
            self.bn2 = nn.BatchNorm2d(out)

        def forward(self, x):
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu_()))
            return y.add_(self.conv3(x) if self.conv3 else x).relu_()

    widths = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
              (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    return nn.Sequential(
        nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        *(Residual(*w) for w in widths),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))


def initialise(net, nn, rule):
    """Weights by the rule, biases zero."""
    for layer in net.modules():
        if isinstance(layer, (nn.Conv2d, nn.Linear)):
            if rule == "xavier":
                nn.init.xavier_uniform_(layer.weight)
            else:
                nn.init.normal_(layer.weight, std=0.01)
            nn.init.zeros_(layer.bias)


def train_torch(args):
    """Train and test in this process; print one JSON line."""
    import numpy as np
    import torch
    from torch import nn
    from torch.nn import functional as F

    def tensor(name):
        raw = read_bytes(args.data, name)
        shape = struct.unpack(f">{raw[3]}I", raw[4:4 + 4 * raw[3]])
        return torch.from_numpy(
            np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape).copy())

    def pixels(rows):
        return (rows.unsqueeze(1).float() / 255).contiguous(memory_format=torch.channels_last)

    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seeds[0])
    images, labels, test_images, test_labels = (tensor(name) for name in FILES)
    labels, test_labels = labels.long(), test_labels.long()
    net = make_resnet18(nn).to(memory_format=torch.channels_last)
    assert sum(p.numel() for p in net.parameters()) == 11_175_818
    initialise(net, nn, args.init)
    sgd = torch.optim.SGD(net.parameters(), lr=args.lr)

    losses, trained_s = [], 0.0
    for _ in range(args.epochs):
        start, total = time.monotonic(), 0.0
        for rows in torch.randperm(len(labels)).split(args.batch):
            sgd.zero_grad()
            loss = F.cross_entropy(net(pixels(images[rows])), labels[rows], reduction="sum")
            (loss / args.batch).backward()
            sgd.step()
            total += loss.item()
        trained_s += time.monotonic() - start
        losses.append(total / len(labels))

    net.eval()
    with torch.inference_mode():
        correct = sum(int((net(pixels(x)).argmax(1) == y).sum()) for x, y in
                      zip(test_images.split(args.batch), test_labels.split(args.batch)))
    print(json.dumps({"accuracy": correct / len(test_labels), "losses": losses,
                      "images_per_s": args.epochs * len(labels) / trained_s,
                      "version": torch.__version__}))


# ---- the runs --------------------------------------------------------------------------------

def run(command, **options):
    """Run a command; return its standard output and its peak memory in MB. Idle OpenMP threads
    sleep in both programs: spinning ones slow whoever shares the machine."""
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True,
                               env={"OMP_WAIT_POLICY": "passive", **os.environ}, **options)
    output = process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return output, usage.ru_maxrss * 1024 / 1e6


def run_ours(args, folder, seed):
    """Train with the program; the result comes from its records."""
    sets = {"data.name": "fashion_mnist", "data.path": folder, "seed": seed,
            "batch_size": args.batch, "shards": 1, "threads": args.threads,
            "epochs": args.epochs, "eval_every": 0, "optimizer.lr": args.lr,
            "gradient_scale": "nominal", "init": args.init, "run_dir": "null"}
    output, peak = run([args.trainer, args.config, "--devices", "cpu:1", "--metrics", "-",
                        *(word for k, v in sets.items() for word in ("--set", f"{k}={v}"))],
                       stderr=subprocess.DEVNULL)
    records = [json.loads(line) for line in output.splitlines()]
    epochs = [r for r in records if r["type"] == "epoch"]
    rows = sum(r["rows"] for r in records if r["type"] == "step")
    rates = [r["images_per_s"] for r in records if r["type"] == "step"]
    return {"accuracy": records[-1]["test_accuracy"],
            "losses": [r["train_loss"] for r in epochs],
            "images_per_s": rows / sum(r["seconds"] for r in epochs),
            "median_step_rate": statistics.median(rates), "peak_mb": peak}


def run_torch(args, folder, seed):
    """Train with PyTorch in a process of its own, in the form that is fast on CPUs."""
    words = {"--data": folder, "--seeds": seed, "--epochs": args.epochs, "--batch": args.batch,
             "--threads": args.threads, "--lr": args.lr, "--init": args.init}
    output, peak = run([sys.executable, __file__, "--torch-alone",
                        *(str(word) for pair in words.items() for word in pair)])
    return {**json.loads(output), "peak_mb": peak}


def show(name, seed, result):
    losses = " ".join(f"{x:.3f}" for x in result["losses"])
    steps = result.get("median_step_rate")
    print(f"{name:8} seed {seed}: test accuracy {result['accuracy']:.4f}, train loss {losses}, "
          f"{result['images_per_s']:.0f} images/s"
          + (f" (median step {steps:.0f})" if steps else "")
          + f", peak {result['peak_mb']:.0f} MB", flush=True)


def compare(args, folder):
    """Run everything in turns; return the exit status."""
    print(f"{args.train} training and {args.test} test images, {args.epochs} epochs of "
          f"{args.batch}, lr {args.lr}, init {args.init}, {args.threads} threads", flush=True)
    accuracies = {"lockstep": [], "torch": []}
    for seed in args.seeds:
        for name, train in (("lockstep", run_ours), ("torch", run_torch)):
            result = train(args, folder, seed)
            show(name, seed, result)
            accuracies[name].append(result["accuracy"])
    ours, torch = (statistics.fmean(a) for a in accuracies.values())
    same = abs(ours - torch) <= args.tolerance
    print(f"mean lockstep {ours:.4f}, torch {torch:.4f}, difference {ours - torch:+.4f}, "
          f"{'within' if same else 'NOT within'} {args.tolerance}")
    if max(ours, torch) < args.least:
        print(f"neither reached {args.least}: nothing was compared")
    return 0 if same and min(ours, torch) >= args.least else 1


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", type=lambda name: Path(name).absolute(), help="the program")
    parser.add_argument("--config", type=Path, default=ROOT / "examples/resnet18.json")
    parser.add_argument("--data", type=Path, help="folder of the IDX files")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1])
    parser.add_argument("--train", type=int, default=6000, help="training images")
    parser.add_argument("--test", type=int, default=2000, help="test images")
    parser.add_argument("--epochs", type=int, default=5)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=0.1)
    parser.add_argument("--init", choices=["normal", "xavier"], default="normal")
    parser.add_argument("--tolerance", type=float, default=0.03)
    parser.add_argument("--least", type=float, default=0.5,
                        help="a run that learned nothing proves nothing")
    parser.add_argument("--torch-alone", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def main():
    args = parse_arguments()
    if args.torch_alone:
        return train_torch(args)
    if args.trainer is None:
        sys.exit("resnet_subset.py: expected --trainer PROGRAM, such as build/release/trainer")
    source = find_data(args.data)
    if importlib.util.find_spec("torch") is None or source is None:
        print("skipped: PyTorch is missing" if source else "skipped: Fashion-MNIST is missing")
        sys.exit(SKIPPED)
    with tempfile.TemporaryDirectory(prefix="lockstep-subset.") as folder:
        write_subset(source, Path(folder), args.train, args.test)
        sys.exit(compare(args, folder))


if __name__ == "__main__":
    main()
