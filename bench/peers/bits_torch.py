#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the LeNet of examples/fashion_mnist.json in PyTorch with deterministic algorithms, and writes its weights.

    python3 bench/peers/bits_torch.py --data DIR --first FIRST.safetensors --last LAST.safetensors

Data are the first rows of Fashion-MNIST, drawn without replacement; weights begin as in the config. Two options
choose what PyTorch says nothing about in its seeds: --threads, and the environment variable ATEN_CPU_CAPABILITY.
With --repdl the convolutions, the dense layers and the loss are RepDL's (github.com/microsoft/RepDL). Prints one
JSON line: the version, the instruction set in use, the mean loss, the images per second of CPU time.
"""

import argparse
import json
import struct
import time
from pathlib import Path

import torch_rounds  # first: it sets what PyTorch reads when it is imported
import torch
from torch import nn
from torch.nn import functional as F

from lenet_torch import LeNet


def write_weights(path, model):
    """A safetensors file of fp32, which needs no package."""
    header, data = {}, b""
    for name, tensor in model.state_dict().items():
        values = tensor.detach().contiguous().numpy().astype("<f4").tobytes()
        header[name] = {"dtype": "F32", "shape": list(tensor.shape),
                        "data_offsets": [len(data), len(data) + len(values)]}
        data += values
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def first_weights(model):
    for name, parameter in model.named_parameters():
        if name.endswith("weight"):
            nn.init.normal_(parameter, std=0.01)
        else:
            nn.init.zeros_(parameter)


def with_repdl(model):
    """The model and the loss with RepDL's operations."""
    import repdl
    return repdl.from_torch_module(model), repdl.nn.functional.cross_entropy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--first", type=Path, required=True, help="file for the weights before the first step")
    parser.add_argument("--last", type=Path, required=True, help="file for the weights after the last step")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--lr", type=float, default=0.2)
    parser.add_argument("--repdl", action="store_true")
    args = parser.parse_args()

    torch.use_deterministic_algorithms(True)
    torch.set_num_threads(args.threads)
    torch.manual_seed(args.seed)
    rows = args.batch * args.steps
    x = torch.from_numpy(torch_rounds.read_idx(args.data / "train-images-idx3-ubyte.gz")[:rows, None].copy())
    y = torch.from_numpy(torch_rounds.read_idx(args.data / "train-labels-idx1-ubyte.gz")[:rows].copy()).long()
    model, loss_of = LeNet(), F.cross_entropy
    first_weights(model)
    if args.repdl:
        model, loss_of = with_repdl(model)
    write_weights(args.first, model)
    optimizer = torch.optim.SGD(model.parameters(), args.lr)
    losses, begin = [], time.process_time()
    for batch in torch.randperm(rows).split(args.batch):
        loss = loss_of(model(x[batch].float() / 255), y[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    seconds = time.process_time() - begin
    write_weights(args.last, model)
    print(json.dumps({"version": torch.__version__, "instructions": torch.backends.cpu.get_cpu_capability(),
                      "loss": sum(losses) / len(losses), "images_per_cpu_s": rows / seconds}))


if __name__ == "__main__":
    main()
