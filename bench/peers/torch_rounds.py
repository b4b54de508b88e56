# SPDX-License-Identifier: MIT
"""Common parts of the PyTorch programs: settings, data, a step of SGD, and the rounds.

Each line on standard input requests one round; each round prints one JSON line, {"images_per_s": x,
"loss": y}. Between rounds the process sleeps in read(), so that several such programs can take
turns on the same cores (see run.py). End of input ends the program.

The defaults are the fastest form found; the options select other forms. A round is a number of SGD
steps over minibatches that are ready in memory: no loading, no shuffling, no printing. After the
warm-up the program prints a line that describes the form.

With --processes N the minibatch is divided among N processes, and PyTorch's DistributedDataParallel
averages their gradients over gloo.
"""

import argparse
import ctypes
import gzip
import json
import os
import sys
import tempfile
import time
from pathlib import Path

# Set before PyTorch is imported; values that the caller has set are kept. Idle OpenMP threads
# must sleep, not spin, between rounds. OpenBLAS does not know many recent processors and then uses
# kernels with short vectors, so its AVX-512 kernels are selected if the processor has AVX-512.
_settings = {"OMP_WAIT_POLICY": "passive"}
if "avx512bw" in Path("/proc/cpuinfo").read_text():
    _settings.update(ATEN_CPU_CAPABILITY="avx512", OPENBLAS_CORETYPE="SKYLAKEX")
for _name, _value in _settings.items():
    os.environ.setdefault(_name, _value)

import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch import nn  # noqa: E402
from torch.nn import functional as F  # noqa: E402


def keep_freed_memory():
    """Make malloc keep large blocks. By default glibc maps and clears them again in every step."""
    libc = ctypes.CDLL(None)
    trim_threshold, mmap_threshold = -1, -3
    libc.mallopt(mmap_threshold, 1 << 30)
    libc.mallopt(trim_threshold, 2**31 - 1)


def read_idx(path):
    """The payload of a gzipped IDX file of bytes."""
    raw = gzip.decompress(path.read_bytes())
    shape = [int.from_bytes(raw[4 + 4 * i:8 + 4 * i], "big") for i in range(raw[3])]
    return np.frombuffer(raw, np.uint8, offset=4 + 4 * raw[3]).reshape(shape)


def fork_ranks(processes):
    """Fork ranks 1 ... processes − 1. Returns in each process: its rank, the stream whose lines start
    rounds, the pipes by which it starts the rounds of the forked ranks, and the ids of these ranks."""
    pipes, pids = [], []
    for rank in range(1, processes):
        hears, tells = os.pipe()
        pid = os.fork()
        if pid == 0:
            for pipe in [*pipes, tells]:  # while a pipe is open for writing here, its reader would not see the end of its input
                os.close(pipe)
            return rank, os.fdopen(hears), [], []
        os.close(hears)
        pipes.append(tells)
        pids.append(pid)
    return 0, sys.stdin, pipes, pids


def distributed(model, rank, processes, meeting):
    """The model of one of several processes, which connect by means of the file `meeting`."""
    from torch import distributed
    if not distributed.is_initialized():
        distributed.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank,
                                       world_size=processes)
    return nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True, broadcast_buffers=False)


def minibatches(args, rank):
    """This rank's part of the first `steps` minibatches, as floats in the memory layout of the
    options."""
    rows = args.batch * args.steps
    x = read_idx(args.data / "train-images-idx3-ubyte.gz")[:rows, None]
    y = read_idx(args.data / "train-labels-idx1-ubyte.gz")[:rows]
    x = torch.from_numpy(x.astype(np.float32) / 255)
    y = torch.from_numpy(y.astype(np.int64))
    mine = args.batch // args.processes
    x, y = (t.split(mine)[rank::args.processes] for t in (x, y))
    return [(a.contiguous(memory_format=args.memory_format), b) for a, b in zip(x, y)]


def initialised(model, args):
    """The model in the memory layout of the options, with Kaiming-initialised weights."""
    for parameter in model.parameters():
        if parameter.dim() > 1:
            nn.init.kaiming_normal_(parameter)
    return model.to(memory_format=args.memory_format)


def trainer(model, args, example):
    """Returns a function that makes one SGD step on (images, labels) and returns the loss."""
    of = getattr(args, "loss", F.cross_entropy)
    forward = lambda x, y: of(model(x), y)  # noqa: E731
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


def parse_arguments(description, steps, warmup):
    parser = argparse.ArgumentParser(
        description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True,
                        help="folder of the gzipped Fashion-MNIST files")
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--threads", type=int, default=2, help="of each process")
    parser.add_argument("--batch", type=int, default=256)
    parser.add_argument("--steps", type=int, default=steps,
                        help="steps in a round (default: %(default)s)")
    parser.add_argument("--warmup", type=int, default=warmup,
                        help="steps before the first round (default: %(default)s)")
    parser.add_argument("--lr", type=float, default=0.01)
    parser.add_argument("--layout", choices=("channels_last", "contiguous"),
                        default="channels_last")
    parser.add_argument("--compile", metavar="MODE",
                        help="'jit', 'default', or a mode of torch.compile")
    parser.add_argument("--no-mkldnn", dest="mkldnn", action="store_false",
                        help="do without oneDNN")
    parser.add_argument("--no-foreach", dest="foreach", action="store_false",
                        help="update parameter by parameter")
    parser.add_argument("--no-malloc", dest="malloc", action="store_false",
                        help="leave malloc's thresholds as they are")
    args = parser.parse_args()
    if args.batch % args.processes:
        parser.error(f"{args.batch} rows cannot be divided among {args.processes} processes")
    args.meeting = tempfile.mktemp(prefix="torch-rounds.")  # made by PyTorch
    args.memory_format = (torch.channels_last if args.layout == "channels_last"
                          else torch.contiguous_format)
    return args


def main(make_model, description, steps, warmup):
    """The program: `make_model` makes the network, `steps` and `warmup` are defaults."""
    args = parse_arguments(description, steps, warmup)
    if args.malloc:
        keep_freed_memory()
    rank, rounds, others, pids = fork_ranks(args.processes)
    torch.manual_seed(0)
    torch.set_num_threads(args.threads)
    torch.backends.mkldnn.enabled = args.mkldnn

    batches = minibatches(args, rank)
    model = initialised(make_model(), args)
    if args.processes > 1:
        model = distributed(model, rank, args.processes, args.meeting)
    step = trainer(model, args, batches[0])
    for i in range(args.warmup):
        step(*batches[i % len(batches)])
    if rank == 0:
        Path(args.meeting).unlink(missing_ok=True)
        print(json.dumps({"ready": True, "torch": torch.__version__, "other_pids": pids,
                          "threads": torch.get_num_threads(), "batch_size": args.batch,
                          "steps": len(batches)}), flush=True)

    for line in rounds:
        for pipe in others:
            os.write(pipe, line.encode())
        start = time.perf_counter()
        for x, y in batches:
            loss = step(x, y)
        seconds = time.perf_counter() - start
        if rank == 0:
            print(json.dumps({"images_per_s": args.batch * len(batches) / seconds,
                              "loss": loss.item()}), flush=True)

    for pipe in others:
        os.close(pipe)
    for pid in pids:
        os.waitpid(pid, 0)
