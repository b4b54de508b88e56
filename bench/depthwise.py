#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares depthwise convolutions with PyTorch's, on one core, forward and backward, in turns.

    python3 bench/depthwise.py build/release/bench/bench_depthwise [ISA] [--rounds N]

Needs a Python with PyTorch. PyTorch is measured contiguous and channels_last, with and without
oneDNN; for each shape the fastest of these forms counts. Both sides are measured in processor time, so that other
programs on the machine have little effect. A round measures each side once, and the ratio for a
shape is the median over the rounds. With ISA avx2, PyTorch is also limited to AVX2
(ONEDNN_MAX_CPU_ISA, ATEN_CPU_CAPABILITY).
"""

import argparse
import os
import statistics
import subprocess
import sys
import time

# rows, channels, side, kernel, stride: as in MobileNets; 32 rows are what a worker takes at a time
SHAPES = [(32, 32, 28, 3, 1), (32, 64, 28, 3, 2), (32, 128, 14, 3, 1), (32, 128, 14, 3, 2),
          (32, 256, 7, 3, 1), (32, 96, 14, 5, 1), (32, 64, 28, 5, 2), (32, 32, 56, 3, 1)]
RUNS = 8


def torch_forms(torch, shape):
    rows, c, side, kernel, stride = shape
    forms = {}
    for form in (torch.contiguous_format, torch.channels_last):
        conv = torch.nn.Conv2d(c, c, kernel, stride, kernel // 2, groups=c, bias=False)
        conv = conv.to(memory_format=form)
        x = torch.randn(rows, c, side, side).to(memory_format=form).requires_grad_()
        dy = torch.randn_like(conv(x))
        for onednn in (True, False):
            name = ("channels_last" if form == torch.channels_last else "contiguous") + (
                "" if onednn else ", own kernels")
            forms[name] = (conv, x, dy, onednn)
    return forms


def torch_ms(torch, conv, x, dy, onednn):
    """The best of some runs, forward and backward."""
    best = 1e30
    with torch.backends.mkldnn.flags(enabled=onednn):
        for _ in range(RUNS):
            conv.weight.grad = x.grad = None
            start = time.process_time()
            conv(x).backward(dy)
            best = min(best, 1e3 * (time.process_time() - start))
    return best


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n", maxsplit=1)[0])
    parser.add_argument("program")
    parser.add_argument("isa", nargs="?", default="avx512")
    parser.add_argument("--rounds", type=int, default=7)
    args = parser.parse_args()
    if args.isa == "avx2":
        os.environ.update(ONEDNN_MAX_CPU_ISA="AVX2", ATEN_CPU_CAPABILITY="avx2")
    import torch  # pylint: disable=import-outside-toplevel  # what it may use is set by now
    torch.set_num_threads(1)
    ours = subprocess.Popen([args.program, args.isa], stdin=subprocess.PIPE,
                            stdout=subprocess.PIPE, text=True)
    print(f"{args.isa}, torch {torch.__version__}, one thread each; ms forward and backward\n")
    print("| rows × channels × side, kernel, stride | Lockstep | PyTorch | its form | ratio |")
    print("|---|---|---|---|---|")
    ratios = []
    for shape in SHAPES:
        forms = torch_forms(torch, shape)
        first = {name: torch_ms(torch, *form) for name, form in forms.items()}
        best = min(first, key=first.get)
        rounds = []
        for _ in range(args.rounds):
            theirs = torch_ms(torch, *forms[best])
            print(*shape, file=ours.stdin, flush=True)
            rounds.append((float(ours.stdout.readline().split()[1]), theirs))
        ratio = statistics.median(b / a for a, b in rounds)
        ratios.append(ratio)
        rows, c, side, kernel, stride = shape
        print(f"| {rows} × {c} × {side}², {kernel}×{kernel}, {stride} "
              f"| {min(a for a, _ in rounds):.3f} | {min(b for _, b in rounds):.3f} | {best} "
              f"| {ratio:.2f} |", flush=True)
    print(f"\nsmallest ratio {min(ratios):.2f}, geometric mean {statistics.geometric_mean(ratios):.2f}")
    ours.stdin.close()
    return ours.wait()


if __name__ == "__main__":
    sys.exit(main())
