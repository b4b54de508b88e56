#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures training rates of small networks in PyTorch on the CPU: see torch_rounds.py.

Each line on standard input is a round of one network in one form,

    CONFIG STEPS eager|compiled channels_last|contiguous

where CONFIG is a configuration of Lockstep in which each layer reads the one before it, or the
configuration of ResNet-18. A form is created when it is first requested, and kept until another
CONFIG is requested.
"""

import gc
import json
import os
import sys
import tempfile
import time
from pathlib import Path
from types import SimpleNamespace

import torch_rounds  # first: it sets what PyTorch reads when it is imported
import numpy as np
import torch
from torch import nn
from torch.nn import functional as F

from resnet_torch import resnet18


def pair(value):
    return tuple(value) if isinstance(value, list) else (value, value)


def module(layer, shape):
    """The module of a layer whose input is an example of `shape`."""
    kind, window = layer["type"], {}
    if "kernel" in layer:
        window = {"kernel_size": pair(layer["kernel"]), "padding": pair(layer.get("padding", 0))}
        window["stride"] = pair(layer.get("stride", 1 if kind == "conv2d" else layer["kernel"]))
    make = {"conv2d": lambda: nn.Conv2d(shape[1], layer["out"], bias=layer.get("bias", True), **window),
            "dense": lambda: nn.Linear(shape[1], layer["out"]),
            "max_pool": lambda: nn.MaxPool2d(**window), "avg_pool": lambda: nn.AvgPool2d(**window),
            "global_avg_pool": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            "batch_norm": lambda: nn.BatchNorm2d(shape[1]), "flatten": nn.Flatten,
            "relu": lambda: nn.ReLU(inplace=True), "tanh": nn.Tanh, "sigmoid": nn.Sigmoid}
    return make[kind]()


def network(config, x):
    """The network of a configuration whose layers follow one another."""
    if config["model"].get("blocks"):
        return resnet18()
    layers = []
    for layer in config["model"]["layers"]:
        layers.append(module(layer, x.shape))
        x = layers[-1](x)
    return nn.Sequential(*layers)


class Forms:
    """What one process trains: the forms of one configuration."""

    def __init__(self, rank, processes, meeting):
        self.rank, self.processes, self.meeting = rank, processes, meeting
        self.path, self.steps = None, {}

    def batches(self, config, layout):
        """This process's part of the first dozen minibatches, which are used again and again."""
        batch, rows = config["batch_size"], config["batch_size"] // self.processes
        x, y = (np.load(config["data"][name], mmap_mode="r")[:12 * batch] for name in "xy")
        x = x.astype(np.float32) / 255 if x.dtype == np.uint8 else np.array(x)
        y = np.array(y) if y.dtype == np.float32 else y.astype(np.int64)
        x, y = (torch.from_numpy(a).split(rows)[self.rank::self.processes] for a in (x, y))
        return [(a.contiguous(memory_format=layout), b) for a, b in zip(x, y)]

    def make(self, config, form, layout):
        torch.manual_seed(0)
        layout = getattr(torch, {"contiguous": "contiguous_format"}.get(layout, layout))
        batches = self.batches(config, layout)
        model = torch_rounds.initialised(network(config, batches[0][0]),
                                         SimpleNamespace(memory_format=layout))
        if self.processes > 1:
            model = torch_rounds.distributed(model, self.rank, self.processes, self.meeting)
        bits = config.get("loss") == "bce"
        args = SimpleNamespace(compile="default" if form == "compiled" else None, foreach=True, lr=1e-3,
                               loss=F.binary_cross_entropy_with_logits if bits else F.cross_entropy)
        step = torch_rounds.trainer(model, args, batches[0])
        for x, y in batches[:3]:
            step(x, y)
        return step, batches

    def round(self, line):
        """The images per second of the round that a line asks for."""
        path, steps, *form = line.split()
        config = json.loads(Path(path).read_text())
        if path != self.path:
            self.path, self.steps = path, {}
            gc.collect()
            torch._dynamo.reset()
        if (key := tuple(form)) not in self.steps:
            self.steps[key] = self.make(config, *form)
        step, batches = self.steps[key]
        start = time.perf_counter()
        for i in range(int(steps)):
            step(*batches[i % len(batches)])
        return config["batch_size"] * int(steps) / (time.perf_counter() - start)


def main():
    processes = int(sys.argv[1])
    torch_rounds.keep_freed_memory()
    meeting = tempfile.mktemp(prefix="net-torch.")  # made by PyTorch
    rank, rounds, others, pids = torch_rounds.fork_ranks(processes)
    torch.set_num_threads(2 // processes)
    forms = Forms(rank, processes, meeting)
    for line in rounds:
        for pipe in others:
            os.write(pipe, line.encode())
        rate = forms.round(line)
        if rank == 0:
            print(json.dumps({"images_per_s": rate, "other_pids": pids}), flush=True)
    for pipe in others:
        os.close(pipe)
    for pid in pids:
        os.waitpid(pid, 0)
    if rank == 0:
        Path(meeting).unlink(missing_ok=True)


if __name__ == "__main__":
    main()
