#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Prints the names of the kernels that PyTorch runs in a step in fp32, and their times.

    torch_kernels.py --data DIR [--json FILE] [--rehearse]

LeNet and ResNet-18, with 256 rows, eager, with cudnn.benchmark. Each runs with and without
torch.backends.cudnn.deterministic. If the deterministic step takes as long as the other one, cuDNN
has deterministic kernels that are as fast. The time of a step is measured without the profiler; the
kernels are those of STEPS steps with it. The JSON file is written after each of the four runs.
--rehearse: LeNet with four rows, on a CPU.
"""

import argparse
import json
import time
from pathlib import Path

import torch
from torch.profiler import ProfilerActivity, profile
from torch_gpu import Form, read_idx

STEPS = 4


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rehearse", action="store_true")
    args = parser.parse_args()
    args.precision, args.lr, args.device, args.batch, args.networks = "fp32", 0.01, "cuda", 256, ("resnet", "lenet")
    if args.rehearse:
        args.device, args.batch, args.networks = "cpu", 4, ("lenet",)
    return args


def synchronize(args):
    if args.device == "cuda":
        torch.cuda.synchronize()


def step_us(form, batches, args):
    """The time of a step without the profiler, after all kernels have been chosen."""
    for rows in batches:
        form.step(rows)
    synchronize(args)
    begin = time.perf_counter()
    for rows in batches:
        form.step(rows)
    synchronize(args)
    return 1e6 * (time.perf_counter() - begin) / len(batches)


def device_us(event, args):
    """The time of a kernel itself. Versions of PyTorch differ in the name."""
    names = ("self_device_time_total", "self_cuda_time_total") if args.device == "cuda" else ("self_cpu_time_total",)
    return next((float(getattr(event, name)) for name in names if hasattr(event, name)), 0.0)


def kernels_of(form, batches, args):
    """For each kernel: name, runs a step, µs a step; the longest first."""
    activities = [ProfilerActivity.CUDA] if args.device == "cuda" else [ProfilerActivity.CPU]
    with profile(activities=activities) as seen:
        for rows in batches:
            form.step(rows)
        synchronize(args)
    found = [{"name": event.key, "runs": event.count / len(batches), "us": device_us(event, args) / len(batches)}
             for event in seen.key_averages()]
    return sorted((kernel for kernel in found if kernel["us"] > 0), key=lambda kernel: -kernel["us"])


def main():
    args = parse_arguments()
    torch.manual_seed(0)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    images = read_idx(args.data / "train-images-idx3-ubyte.gz").to(args.device)
    labels = read_idx(args.data / "train-labels-idx1-ubyte.gz").long().to(args.device)
    batches = [torch.arange(args.batch * k, args.batch * (k + 1), device=args.device) for k in range(STEPS)]
    found = {"torch": torch.__version__, "cudnn": torch.backends.cudnn.version(), "runs": []}
    for args.network in args.networks:
        for deterministic in (False, True):
            torch.backends.cudnn.deterministic = deterministic
            form = Form("eager", args, images, labels)
            form.prepare()
            us = step_us(form, batches, args)
            kernels = kernels_of(form, batches, args)
            found["runs"].append({"network": args.network, "deterministic": deterministic, "step_us": us,
                                  "kernels": kernels})
            total = sum(kernel["us"] for kernel in kernels)
            print(f"\n{args.network} fp32{', deterministic' if deterministic else ''}: {us:,.0f} us a step, "
                  f"{total:,.0f} in kernels")
            for kernel in kernels:
                print(f"{kernel['us']:10.1f} us {kernel['runs']:6.1f}  {kernel['name']}")
            print(end="", flush=True)
            if args.json:
                args.json.write_text(json.dumps(found, indent=1) + "\n")


if __name__ == "__main__":
    main()
