#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One of torchrun's processes, which bench/recovery.py kills: LeNet with DistributedDataParallel.

    torchrun --standalone --nproc_per_node 3 --max_restarts 3 recovery_torch.py
        --steps N --rows N --every N --folder DIR --to FIFO

It trains over gloo on synthetic rows. The first process saves weights, optimizer and step number every N
steps: it writes a temporary file and renames it, as in torchrun's guide for fault tolerance. When
torchrun has started the processes again, all of them continue from this file. Each process writes the
line `NS pid RANK PID` to FIFO. The first process writes `NS step N` after each step and `NS end HASH`
at the end. NS is the time of CLOCK_MONOTONIC in nanoseconds.
"""

import argparse
import hashlib
import os
import pathlib
import sys
import time

import torch
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from lenet_torch import LeNet  # pylint: disable=wrong-import-position


def say(to, *words):
    os.write(to, (" ".join(map(str, (time.monotonic_ns(), *words))) + "\n").encode())  # in one piece: three processes write


def rows_of(step, rank, rows):
    """Functions of step and rank, so that a step that is repeated has the same."""
    draw = torch.Generator().manual_seed(step * 1000 + rank)
    return torch.rand(rows, 1, 28, 28, generator=draw), torch.randint(10, (rows,), generator=draw)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, required=True)
    parser.add_argument("--rows", type=int, required=True)
    parser.add_argument("--every", type=int, required=True)
    parser.add_argument("--folder", type=pathlib.Path, required=True)
    parser.add_argument("--to", type=pathlib.Path, required=True)
    args = parser.parse_args()
    to = os.open(args.to, os.O_WRONLY)
    torch.set_num_threads(1)
    torch.manual_seed(0)
    distributed.init_process_group("gloo")
    rank, size = distributed.get_rank(), distributed.get_world_size()
    say(to, "pid", rank, os.getpid())
    net = LeNet()
    optimizer = torch.optim.SGD(net.parameters(), lr=0.2)
    saved, step = args.folder / "checkpoint.pt", 0
    if saved.exists():
        state = torch.load(saved)
        net.load_state_dict(state["net"])
        optimizer.load_state_dict(state["optimizer"])
        step = state["step"]
    model, loss = DistributedDataParallel(net), nn.CrossEntropyLoss()
    while step < args.steps:
        images, labels = rows_of(step, rank, args.rows // size)
        optimizer.zero_grad()
        loss(model(images), labels).backward()
        optimizer.step()
        step += 1
        if rank == 0 and step % args.every == 0:
            torch.save({"net": net.state_dict(), "optimizer": optimizer.state_dict(), "step": step}, args.folder / "new.pt")
            os.replace(args.folder / "new.pt", saved)
        if rank == 0:
            say(to, "step", step)
    if rank == 0:
        digest = hashlib.sha256()
        for parameter in net.parameters():
            digest.update(parameter.detach().numpy().tobytes())
        say(to, "end", digest.hexdigest())


if __name__ == "__main__":
    main()
