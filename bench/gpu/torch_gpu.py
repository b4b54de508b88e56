#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures the training rate of LeNet or ResNet-18 in PyTorch on a GPU, in rounds.

    printf 'open eager\\neager\\neager\\n' | python3 bench/gpu/torch_gpu.py --network lenet --data DIR

Each line on standard input is answered with one JSON line, {"error": text} if the form does not work
here. `open FORM` creates the form and compiles it. A line with the name of an open form starts one
round, {"images_per_s": x, "loss": y}. Between rounds the process waits. The first line printed has the
versions; it is printed when the process has loaded PyTorch and the images.

    eager              op by op
    graphed            the whole step captured in a CUDA graph
    compiled           torch.compile of forward and loss, with its default mode
    compiled graphed   the same, captured in a CUDA graph

Data is fed as in Lockstep: the images are on the GPU as bytes; each step gathers and normalises the
rows that a list of indices names. The optimizer is plain fused SGD. The settings are the fastest
for PyTorch: channels_last, cudnn.benchmark, bf16 by autocast, tf32 where it is allowed.
cuDNN chooses its algorithms by timing them in a form's first round, which does not count. The choice
is not made when the form is opened, because several processes then compile at the same time and
would disturb the timing.
"""

import argparse
import gzip
import json
import sys
import time
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "peers"))

from lenet_torch import LeNet  # noqa: E402
from resnet_torch import resnet18  # noqa: E402

WARMUP = 12


def read_idx(path):
    raw = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return torch.from_numpy(np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape).copy())


class Form:
    """A model, its optimizer and a step, all of its own."""

    def __init__(self, name, args, images, labels):
        self.name, self.args, self.images, self.labels = name, args, images, labels
        self.cuda = args.device == "cuda"
        model = LeNet() if args.network == "lenet" else resnet18()
        for parameter in model.parameters():
            if parameter.dim() > 1:
                torch.nn.init.kaiming_normal_(parameter)
        self.model = model.to(args.device).to(memory_format=torch.channels_last)
        options = {"fused": True} if self.cuda else {}
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=args.lr, **options)
        self.rows = torch.zeros(args.batch, dtype=torch.int64, device=args.device)
        self.forward = torch.compile(self.plain_forward) if "compiled" in name else self.plain_forward
        self.graph, self.loss = None, None

    def plain_forward(self, rows):
        x = self.images[rows].to(torch.float32).div(255).unsqueeze(1)
        x = x.contiguous(memory_format=torch.channels_last)
        with torch.autocast(self.args.device, dtype=torch.bfloat16, cache_enabled=False,
                            enabled=self.args.precision == "bf16"):
            return F.cross_entropy(self.model(x), self.labels[rows])

    def step(self, rows):
        self.optimizer.zero_grad(set_to_none=True)
        loss = self.forward(rows)
        loss.backward()
        self.optimizer.step()
        return loss

    def compile(self):
        """What takes the processor's time and may run beside others."""
        if "compiled" in self.name:
            self.step(self.rows)

    def prepare(self):
        """Chooses convolutions, and captures the step."""
        if self.cuda:
            torch.backends.cudnn.benchmark = True
        if "graphed" not in self.name:
            for _ in range(WARMUP):
                self.step(self.rows)
            return
        if not self.cuda:
            raise RuntimeError("there are no CUDA graphs on a CPU")
        aside = torch.cuda.Stream()
        aside.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(aside):
            for _ in range(WARMUP):
                self.step(self.rows)
        torch.cuda.current_stream().wait_stream(aside)
        self.graph = torch.cuda.CUDAGraph()
        self.optimizer.zero_grad(set_to_none=True)
        with torch.cuda.graph(self.graph):
            self.loss = self.step(self.rows)

    def run(self, batches):
        """One round; returns the last loss."""
        loss = None
        for rows in batches:
            if self.graph:
                self.rows.copy_(rows)
                self.graph.replay()
                loss = self.loss
            else:
                loss = self.step(rows)
        return loss


def matrix_peak(precision):
    """FLOP/s of a large matrix product."""
    n, runs = 8192, 20
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    a, b = (torch.randn(n, n, device="cuda", dtype=dtype) for _ in range(2))
    for _ in range(3):
        a @ b
    best = 0
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(runs):
            a @ b
        torch.cuda.synchronize()
        best = max(best, 2 * n**3 * runs / (time.perf_counter() - begin))
    return best


def synchronize(args):
    if args.device == "cuda":
        torch.cuda.synchronize()


def answer(**what):
    print(json.dumps(what), flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--network", choices=("lenet", "resnet"), required=True)
    parser.add_argument("--precision", choices=("fp32", "tf32", "bf16"), default="fp32")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--lr", type=float, default=0.01)
    args = parser.parse_args()

    torch.manual_seed(0)
    tf32 = args.precision != "fp32"
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = tf32
    images = read_idx(args.data / "train-images-idx3-ubyte.gz").to(args.device)
    labels = read_idx(args.data / "train-labels-idx1-ubyte.gz").long().to(args.device)
    order = torch.randperm(len(images), device=args.device)
    batches = [order[args.batch * k:args.batch * (k + 1)] for k in range(args.steps)]
    synchronize(args)
    answer(ready=True, torch=torch.__version__, cuda=torch.version.cuda,
           cudnn=torch.backends.cudnn.version())

    forms, broken, ready = {}, {}, set()
    for line in sys.stdin:
        command, name = line.strip(), line.strip().removeprefix("open ")
        if command == "peak":
            answer(flops=matrix_peak(args.precision))
            continue
        try:
            if name in broken:
                raise RuntimeError(broken[name])
            if command != name:
                forms[name] = Form(name, args, images, labels)
                forms[name].compile()
                synchronize(args)
                answer(opened=name)
                continue
            if name not in ready:
                forms[name].prepare()
                ready.add(name)
            synchronize(args)
            begin = time.perf_counter()
            loss = forms[name].run(batches)
            synchronize(args)
            seconds = time.perf_counter() - begin
            answer(images_per_s=args.batch * len(batches) / seconds, loss=loss.item())
        except Exception as error:  # noqa: BLE001  a form that fails must not take the others along
            broken.setdefault(name, f"{type(error).__name__}: {error}".splitlines()[0][:200])
            answer(error=broken[name])


if __name__ == "__main__":
    main()
