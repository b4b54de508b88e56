#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Measures training rates of networks in PyTorch on the CPU: see torch_rounds.py.

    net_torch.py PROCESSES THREADS          THREADS of each process

Each line on standard input is a round of one network in one form,

    CONFIG STEPS eager|compiled channels_last|contiguous

where CONFIG is a configuration of Lockstep. A form is created when it is first requested, and kept
until another CONFIG is requested.
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


def pair(value):
    return tuple(value) if isinstance(value, list) else (value, value)


KNOWN = {"type", "name", "from", "with", "out", "kernel", "stride", "padding", "groups", "bias", "scale"}


def module(layer, shape):
    """The module of a layer whose input has this shape, the rows included."""
    kind, window = layer["type"], {}
    if unknown := layer.keys() - KNOWN:
        raise ValueError(f"a layer has {', '.join(unknown)}, which this program does not know")
    if "kernel" in layer:
        window = {"kernel_size": pair(layer["kernel"]), "padding": pair(layer.get("padding", 0))}
        window["stride"] = pair(layer.get("stride", 1 if kind == "conv2d" else layer["kernel"]))
    norm = nn.BatchNorm2d if len(shape) == 4 else nn.BatchNorm1d
    make = {"conv2d": lambda: nn.Conv2d(shape[1], layer["out"], bias=layer.get("bias", True),
                                        groups=layer.get("groups", 1), **window),
            "dense": lambda: nn.Linear(shape[1], layer["out"], bias=layer.get("bias", True)),
            "max_pool": lambda: nn.MaxPool2d(**window), "avg_pool": lambda: nn.AvgPool2d(**window),
            "global_avg_pool": lambda: nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten()),
            "batch_norm": lambda: norm(shape[1]), "layer_norm": lambda: nn.LayerNorm(shape[1:]),
            "upsample": lambda: nn.Upsample(scale_factor=layer.get("scale", 2)), "flatten": nn.Flatten,
            "relu": lambda: nn.ReLU(inplace=True), "tanh": nn.Tanh, "sigmoid": nn.Sigmoid, "gelu": nn.GELU,
            "add": Add, "concat": Concat}
    return make[kind]()


class Add(nn.Module):
    def forward(self, first, second):
        return first + second


class Concat(nn.Module):
    def forward(self, first, second):
        return torch.cat([first, second], 1)


def substituted(layer, values):
    """The layer of a block with the values of the block's parameters."""
    return {key: values[value[1:]] if isinstance(value, str) and value.startswith("$") else value
            for key, value in layer.items()}


def in_order(model):
    """The layers of a model without blocks. Yields each layer with the numbers of the tensors that it reads; tensor 0
    is the input of the network, and tensor k the output of the k-th layer."""
    count = 0

    def unfold(layers, values, first):
        nonlocal count
        names, last = {"input": first}, first
        for layer in (substituted(layer, values) for layer in layers):
            if "block" in layer:
                for _ in range(layer.get("repeat", 1)):
                    last = yield from unfold(model["blocks"][layer["block"]], layer, last)
            else:
                count += 1
                yield layer, [names[layer["from"]] if "from" in layer else last,
                              *([names[layer["with"]]] if "with" in layer else [])]
                last = count
            names[layer.get("name")] = last
        return last

    yield from unfold(model["layers"], {}, 0)


class Network(nn.Module):
    """The network of a configuration. `x` is an example of its input."""

    def __init__(self, config, x):
        super().__init__()
        self.layers, self.reads, tensors = nn.ModuleList(), [], [x]
        for layer, reads in in_order(config["model"]):
            self.layers.append(module(layer, tensors[reads[0]].shape))
            self.reads.append(reads)
            with torch.no_grad():
                tensors.append(self.layers[-1](*(tensors[i].clone() for i in reads)))

    def forward(self, x):
        tensors = [x]
        for layer, reads in zip(self.layers, self.reads):
            tensors.append(layer(*(tensors[i] for i in reads)))
        return tensors[-1]


LOSSES = {"bce": F.binary_cross_entropy_with_logits, "mse": F.mse_loss}


class Forms:
    """What one process trains: the forms of one configuration."""

    def __init__(self, rank, processes, meeting):
        self.rank, self.processes, self.meeting = rank, processes, meeting
        self.path, self.steps = None, {}

    def batches(self, config, layout):
        """This process's part of the first dozen minibatches, which are used again and again."""
        batch, rows = config["batch_size"], config["batch_size"] // self.processes
        x, y = (np.load(config["data"][name], mmap_mode="r") for name in "xy")
        whole = min(12, len(x) // batch) * batch
        x, y = x[:whole], y[:whole]
        x, y = (a.astype(np.float32) / 255 if a.dtype == np.uint8 else np.array(a) for a in (x, y))
        y = y.astype(np.int64) if y.dtype == np.int32 else y.reshape(len(y), -1)
        x, y = (torch.from_numpy(a).split(rows)[self.rank::self.processes] for a in (x, y))
        return [(a.contiguous(memory_format=layout) if a.dim() == 4 else a, b) for a, b in zip(x, y)]

    def make(self, config, form, layout):
        torch.manual_seed(0)
        layout = getattr(torch, {"contiguous": "contiguous_format"}.get(layout, layout))
        batches = self.batches(config, layout)
        model = torch_rounds.initialised(Network(config, batches[0][0]),
                                         SimpleNamespace(memory_format=layout))
        if self.processes > 1:
            model = torch_rounds.distributed(model, self.rank, self.processes, self.meeting)
        args = SimpleNamespace(compile="default" if form == "compiled" else None, foreach=True, lr=1e-3,
                               loss=LOSSES.get(config.get("loss"), F.cross_entropy))
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
    processes, threads = (int(word) for word in sys.argv[1:])
    torch_rounds.keep_freed_memory()
    meeting = tempfile.mktemp(prefix="net-torch.")  # made by PyTorch
    rank, rounds, others, pids = torch_rounds.fork_ranks(processes)
    torch.set_num_threads(threads)
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
