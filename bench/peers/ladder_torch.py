#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains a config of examples/ladder in PyTorch on the CPU, and prints records as Lockstep does.

    python3 bench/peers/ladder_torch.py CONFIG --data DIR --seed 1 --form eager --layout channels_last

The network, the minibatch, the optimizer, the schedule, the augmentation, label smoothing and the moving
average are those of the config. The images are bytes in memory. Each step gathers, augments and
normalises its minibatch with tensor operations; the normalisation is compiled together with the
network. Two graphs, one for a whole minibatch and one for the smaller last minibatch of an epoch, are
compiled and warmed up before the first step. Then the weights are restored. The record "ready" has
the time that this took. "seconds" of the record "epoch" is training time without evaluation.

With --rate SECONDS the program trains for this time, prints the rate, and ends.
"""

import argparse
import json
import time
from pathlib import Path

import torch_rounds  # first: it sets what PyTorch reads when it is imported
import torch
from torch import nn
from torch.nn import functional as F

from net_torch import module

CLASSES = 10
EVALUATED_AT_ONCE = 1000  # rows
KEYS = {"name", "data", "model", "batch_size", "epochs", "optimizer", "schedule", "ema",
        "label_smoothing", "augment", "seed", "init"}


def expand(layers, blocks, values, prefix, source, out):
    """Appends (name, layer, name that it reads, name that it adds) of each layer to `out`, blocks written out.
    Returns the name of the last layer's output."""
    names, previous = {"input": source}, source
    for i, layer in enumerate(layers):
        layer = {k: values.get(v[1:], v) if isinstance(v, str) and v.startswith("$") else v for k, v in layer.items()}
        local = layer.get("name", str(i))
        previous = names[layer["from"]] if "from" in layer else previous
        if "block" in layer:
            for r in range(layer.get("repeat", 1)):
                previous = expand(blocks[layer["block"]], blocks, layer, f"{prefix}{local}.{r}.", previous, out)
        else:
            out.append((prefix + local, layer, previous, names.get(layer.get("with"))))
            previous = prefix + local
        names[local] = previous
    return previous


class Network(nn.Module):
    """The network of a config. Its input is bytes, which it normalises."""

    def __init__(self, config, example):
        super().__init__()
        model, self.graph, self.parts = config["model"], [], nn.ModuleList()
        expand(model["layers"], model.get("blocks", {}), {}, "", "input", self.graph)
        self.mean, self.std = config["data"].get("mean", 0), config["data"].get("std", 1)
        x = {"input": self.normalised(example)}
        for name, layer, reads, adds in self.graph:
            if layer["type"] == "dense":
                layer.setdefault("out", CLASSES)
            self.parts.append(nn.Identity() if adds else module(layer, x[reads].shape))
            x[name] = x[reads] + x[adds] if adds else self.parts[-1](x[reads])

    def normalised(self, x):
        return (x.float() / 255 - self.mean) / self.std

    def forward(self, bytes_):
        x = {"input": self.normalised(bytes_)}
        for (name, _, reads, adds), part in zip(self.graph, self.parts):
            x[name] = x[reads] + x[adds] if adds else part(x[reads])
        return x[self.graph[-1][0]]


class Rows:
    """The training images as padded bytes, and minibatches of them."""

    def __init__(self, folder, augment, generator):
        self.crop, self.flip, self.generator = augment.get("crop", 0), augment.get("flip", False), generator
        x = torch.from_numpy(torch_rounds.read_idx(folder / "train-images-idx3-ubyte.gz").copy())
        self.y = torch.from_numpy(torch_rounds.read_idx(folder / "train-labels-idx1-ubyte.gz").copy()).long()
        self.side, self.wide = x.shape[1], x.shape[1] + 2 * self.crop
        self.flat = F.pad(x, (self.crop,) * 4).flatten()
        line = torch.arange(self.side)
        self.lines = (line * self.wide).view(1, -1, 1)
        self.columns = torch.stack((line, line.flip(0)))

    def __len__(self):
        return len(self.y)

    def draw(self, most, count):
        return torch.randint(most + 1, (count,), generator=self.generator)

    def batch(self, rows):
        """The images and labels of the rows, augmented."""
        down, right = (self.draw(2 * self.crop, len(rows)) for _ in range(2))
        columns = self.columns[self.draw(int(self.flip), len(rows))]
        at = rows * self.wide**2 + down * self.wide + right
        x = self.flat[at.view(-1, 1, 1) + self.lines + columns.unsqueeze(1)]
        return x.unsqueeze(1), self.y[rows]


class Training:
    """A network, its optimizer and its moving average in one form of PyTorch."""

    def __init__(self, config, rows, form, layout):
        self.config, self.rows = config, rows
        model = Network(config, rows.batch(torch.arange(2))[0])
        layout = getattr(torch, {"contiguous": "contiguous_format"}.get(layout, layout))
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.kaiming_normal_(parameter)
        for part in model.parts:
            if getattr(part, "bias", None) is not None and not isinstance(part, nn.BatchNorm2d):
                nn.init.zeros_(part.bias)
        self.model = model.to(memory_format=layout)
        smoothing = config.get("label_smoothing", 0)
        self.loss = lambda x, y: F.cross_entropy(model(x), y, label_smoothing=smoothing)
        if form == "compiled":
            self.loss = torch.compile(self.loss, dynamic=False)
        self.warm()
        self.parameters = list(model.parameters())
        self.average = [p.detach().clone() for p in self.parameters]
        recipe = config["optimizer"]
        self.optimizer = torch.optim.SGD(self.parameters, recipe["lr"], recipe.get("momentum", 0), 0,
                                         recipe.get("weight_decay", 0), recipe.get("nesterov", False), fused=True)
        steps = -(-len(rows) // config["batch_size"]) * config["epochs"]
        cycle = config["schedule"]
        self.schedule = torch.optim.lr_scheduler.OneCycleLR(
            self.optimizer, recipe["lr"], steps, pct_start=cycle["peak"], cycle_momentum=False,
            div_factor=1 / cycle["start"], final_div_factor=cycle["start"] / cycle["minimum"])

    def warm(self):
        """Compiles, if that is asked for, and computes a few gradients, without changing anything."""
        before = {k: v.clone() for k, v in self.model.state_dict().items()}
        batch = self.config["batch_size"]
        for count in (batch, len(self.rows) % batch or batch) * 2:
            self.loss(*self.rows.batch(torch.arange(count))).backward()
        self.model.zero_grad()
        self.model.load_state_dict(before)

    def step(self, rows):
        self.loss(*self.rows.batch(rows)).backward()
        self.optimizer.step()
        self.optimizer.zero_grad()
        self.schedule.step()
        if decay := self.config.get("ema", 0):
            with torch.no_grad():
                torch._foreach_lerp_(self.average, self.parameters, 1 - decay)

    def epoch(self):
        order = torch.randperm(len(self.rows), generator=self.rows.generator)
        for rows in order.split(self.config["batch_size"]):
            self.step(rows)

    def rate(self, seconds):
        """The images per second of a part of an epoch."""
        begin, batch, first = time.perf_counter(), self.config["batch_size"], 0
        while (passed := time.perf_counter() - begin) < seconds and first + batch <= len(self.rows):
            self.step(torch.arange(first, first + batch))
            first += batch
        return first / passed

    def swap(self):
        """Exchanges the weights and their average."""
        if self.config.get("ema", 0):
            with torch.no_grad():
                for p, a in zip(self.parameters, self.average):
                    kept = p.clone()
                    p.copy_(a)
                    a.copy_(kept)

    def accuracy(self, x, y):
        self.model.eval()
        self.swap()
        with torch.no_grad():
            right = sum((self.model(a).argmax(1) == b).sum().item()
                        for a, b in zip(x.split(EVALUATED_AT_ONCE), y.split(EVALUATED_AT_ONCE)))
        self.swap()
        self.model.train()
        return right / len(y)


def say(kind, **values):
    print(json.dumps({"type": kind, **values}), flush=True)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", type=Path)
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--form", choices=("eager", "compiled"), default="eager")
    parser.add_argument("--layout", choices=("channels_last", "contiguous"), default="channels_last")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--epochs", type=int, help="end after so many epochs of the config's schedule")
    parser.add_argument("--rate", type=float, metavar="SECONDS", help="print the rate over so many seconds")
    args = parser.parse_args()
    args.recipe = json.loads(args.config.read_text(encoding="utf-8"))
    if unknown := set(args.recipe) - KEYS:
        parser.error(f"{args.config}: this program does not know {', '.join(sorted(unknown))}")
    return args


def main():
    args = parse_arguments()
    begin = time.perf_counter()
    torch_rounds.keep_freed_memory()
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    config = args.recipe
    rows = Rows(args.data, config.get("augment", {}), torch.Generator().manual_seed(args.seed))
    training = Training(config, rows, args.form, args.layout)
    x, y = (torch.from_numpy(torch_rounds.read_idx(args.data / f"t10k-{name}-ubyte.gz").copy())
            for name in ("images-idx3", "labels-idx1"))
    x = x.unsqueeze(1)
    say("ready", seconds=time.perf_counter() - begin, torch=torch.__version__,
        parameters=sum(p.numel() for p in training.parameters))
    if args.rate:
        say("rate", images_per_s=training.rate(args.rate))
        return
    for epoch in range(1, (args.epochs or config["epochs"]) + 1):
        begin = time.perf_counter()
        training.epoch()
        say("epoch", epoch=epoch, seconds=time.perf_counter() - begin)
        begin = time.perf_counter()
        accuracy = training.accuracy(x, y)
        say("eval", epoch=epoch, test_accuracy=accuracy, seconds=time.perf_counter() - begin)


if __name__ == "__main__":
    main()
