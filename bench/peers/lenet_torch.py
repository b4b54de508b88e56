#!/usr/bin/env python3
"""Training rate of LeNet in PyTorch on the CPU, measured in rounds on request.

Each line on standard input asks for one round; each round prints one JSON line,
{"images_per_s": x, "loss": y}. Between rounds the process sleeps in read(), so that several
such programs can take turns on the same cores (see run.py). End of input ends the program.

    yes | head -5 | python3 bench/peers/lenet_torch.py --data DIR

The defaults are the fastest form found; the options are there to check that. A round is a
run of SGD steps over minibatches that lie ready in memory: no loading, no shuffling, no
printing. The first line printed describes the form, after the warm-up.
"""

import argparse
import ctypes
import gzip
import json
import os
import sys
import time
from pathlib import Path

# Set before PyTorch is imported; what the caller has set wins. Idle OpenMP threads must
# sleep, not spin, between rounds. OpenBLAS knows few recent processors by name and falls
# back to narrow kernels, so the AVX-512 ones are asked for where the processor has them.
_settings = {"OMP_WAIT_POLICY": "passive"}
if "avx512bw" in Path("/proc/cpuinfo").read_text():
    _settings.update(ATEN_CPU_CAPABILITY="avx512", OPENBLAS_CORETYPE="SKYLAKEX")
for _name, _value in _settings.items():
    os.environ.setdefault(_name, _value)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


class LeNet(nn.Module):
    """The network of examples/fashion_mnist.json: 129,068 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        h = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        h = F.avg_pool2d(F.relu(self.conv2(h)), 2)
        return self.fc2(F.relu(self.fc1(h.flatten(1))))


def keep_freed_memory():
    """Have malloc keep large blocks: glibc else maps and clears them anew every step."""
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_threshold = -1, -3
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, 2**31 - 1)


def read_idx(path):
    """The payload of a gzipped IDX file of bytes."""
    raw = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def minibatches(args):
    """The first `steps` minibatches, as floats in the layout the network wants."""
    rows = args.batch * args.steps
    x = read_idx(args.data / "train-images-idx3-ubyte.gz")[:rows, None]
    y = read_idx(args.data / "train-labels-idx1-ubyte.gz")[:rows]
    x = torch.from_numpy(x.astype(np.float32) / 255)
    y = torch.from_numpy(y.astype(np.int64))
    return [(a.contiguous(memory_format=args.memory_format), b)
            for a, b in zip(x.split(args.batch), y.split(args.batch))
            if len(b) == args.batch]


def trainer(args, example):
    """A function that takes one SGD step on (images, labels) and returns the loss."""
    model = LeNet().to(memory_format=args.memory_format)
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter)
    forward = lambda x, y: F.cross_entropy(model(x), y)  # noqa: E731
    if args.compile == "jit":
        model = torch.jit.trace(model, example[0])
    elif args.compile:
        mode = None if args.compile == "default" else args.compile
        forward = torch.compile(forward, mode=mode)
    parameters = list(model.parameters())

    def step(x, y):
        loss = forward(x, y)
        loss.backward()
        with torch.no_grad():
            if args.foreach:
                torch._foreach_add_(parameters, [p.grad for p in parameters],
                                    alpha=-args.lr)
            else:
                for p in parameters:
                    p.add_(p.grad, alpha=-args.lr)
            for p in parameters:
                p.grad = None
        return loss

    return step


def parse_arguments():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True,
                        help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=60, help="steps in a round")
    parser.add_argument("--warmup", type=int, default=30, help="steps before the first")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--layout", choices=("channels_last", "contiguous"),
                        default="channels_last")
    parser.add_argument("--compile", metavar="MODE",
                        help="'jit', 'default', or a mode of torch.compile")
    parser.add_argument("--no-mkldnn", dest="mkldnn", action="store_false")
    parser.add_argument("--no-foreach", dest="foreach", action="store_false",
                        help="update parameter by parameter")
    parser.add_argument("--no-malloc", dest="malloc", action="store_false",
                        help="leave malloc's thresholds as they are")
    args = parser.parse_args()
    args.memory_format = (torch.channels_last if args.layout == "channels_last"
                          else torch.contiguous_format)
    return args


def main():
    args = parse_arguments()
    if args.malloc:
        keep_freed_memory()
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    torch.backends.mkldnn.enabled = args.mkldnn

    batches = minibatches(args)
    step = trainer(args, batches[0])
    for i in range(args.warmup):
        step(*batches[i % len(batches)])
    print(json.dumps({"ready": True, "torch": torch.__version__,
                      "threads": torch.get_num_threads(), "batch_size": args.batch,
                      "steps": len(batches)}), flush=True)

    for _ in sys.stdin:
        start = time.perf_counter()
        for x, y in batches:
            loss = step(x, y)
        seconds = time.perf_counter() - start
        print(json.dumps({"images_per_s": args.batch * len(batches) / seconds,
                          "loss": loss.item()}), flush=True)


if __name__ == "__main__":
    main()
