#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares Lockstep's ResNet-18 with PyTorch in float64: gradients and running statistics.

    python3 tests/parity/resnet_parity.py --program build/tests/parity/resnet_gradient

There are two states for each seed: a fresh start (Kaiming: N(0, 2 / fan-in), biases zero) and the
same after 50 steps of SGD, lr 0.1, step k on rows 32k..32k+31 of the training file. At each,
rounded to float32, both sides compute the gradient of the mean loss of rows 0..31 and the running
statistics after that step. README.md describes the checks; if one fails the script ends with status
1. 77: PyTorch or the data is missing.
"""

import argparse
import json
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

try:
    import numpy as np
    import torch
    from torch.nn import functional as F
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

from make_reference import read_idx, safetensors

BATCH = 32
STEPS = 50
LR = 0.1
LEARNABLE = 11_175_818
BLOCKS = [("b1.0", 64, 64), ("b1.1", 64, 64), ("b2", 64, 128), ("b3", 128, 128),
          ("b4", 128, 256), ("b5", 256, 256), ("b6", 256, 512), ("b7", 512, 512)]
ACTIVATIONS = {"relu": F.relu, "tanh": torch.tanh}

TANH_BOUND = 5e-5   # ‖Δ‖/‖g‖ of a parameter
RELU_FACTOR = 3     # times what PyTorch's float32 is off by itself, medians over seeds
BIAS_BOUND = 1e-6   # ‖g of a bias‖ / ‖g of its weight‖ where the former is truly zero
STATS_BOUND = 1e-5  # ‖Δ‖/‖running mean or variance‖


def start(seed):
    """Parameters and running statistics of a Kaiming start, in model order."""
    rng = np.random.RandomState(seed)  # its streams are frozen for good
    state = {}

    def layer(name, *shape):
        weight = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        state[name + ".weight"] = torch.from_numpy(weight)
        state[name + ".bias"] = torch.zeros(shape[0], dtype=torch.float64)

    def norm(name, channels):
        for part, value in (("weight", 1), ("bias", 0), ("running_mean", 0), ("running_var", 1)):
            state[f"{name}.{part}"] = torch.full((channels,), value, dtype=torch.float64)

    layer("stem", 64, 1, 3, 3)
    norm("bn", 64)
    for name, inputs, outputs in BLOCKS:
        if inputs != outputs:
            layer(name + ".conv3", outputs, inputs, 1, 1)
        layer(name + ".conv1", outputs, inputs, 3, 3)
        norm(name + ".bn1", outputs)
        layer(name + ".conv2", outputs, outputs, 3, 3)
        norm(name + ".bn2", outputs)
    layer("fc", 10, 512)
    return state


def is_statistic(name):
    return ".running_" in name


def precedes_norm(name):
    """Whether it is the bias of a convolution whose output goes to batch norm alone."""
    return name.endswith(("stem.bias", "conv1.bias", "conv2.bias"))


def logits(state, images, activation):
    """ResNet-18 for small images. Updates the running statistics in place."""
    def conv(name, x, stride=1):
        weight = state[name + ".weight"]
        return F.conv2d(x, weight, state[name + ".bias"], stride, weight.shape[2] // 2)

    def norm(name, x):
        mean, var, weight, bias = (state[f"{name}.{part}"] for part in (
            "running_mean", "running_var", "weight", "bias"))
        return F.batch_norm(x, mean, var, weight, bias, True, 0.1, 1e-5)

    h = activation(norm("bn", conv("stem", images)))
    for name, inputs, outputs in BLOCKS:
        down = inputs != outputs
        x = activation(norm(name + ".bn1", conv(name + ".conv1", h, 2 if down else 1)))
        x = norm(name + ".bn2", conv(name + ".conv2", x))
        h = activation(x + (conv(name + ".conv3", h, 2) if down else h))
    return F.linear(h.mean((2, 3)), state["fc.weight"], state["fc.bias"])


def step(state, rows, activation, dtype=torch.float64):
    """Return (mean loss, gradients and running statistics after the step, by name)."""
    images, labels = rows
    local = {k: v.detach().to(dtype).clone() for k, v in state.items()}
    for name, tensor in local.items():
        tensor.requires_grad_(not is_statistic(name))
    loss = F.cross_entropy(logits(local, images.unsqueeze(1).to(dtype) / 255, activation), labels)
    loss.backward()
    return loss.item(), {k: (v if is_statistic(k) else v.grad).double() for k, v in local.items()}


def train(state, data, activation, dtype):
    """The state after STEPS steps computed in `dtype`."""
    state = dict(state)
    for k in range(STEPS):
        rows = tuple(part[BATCH * k:BATCH * (k + 1)] for part in data)
        _, result = step(state, rows, activation, dtype)
        for name, value in result.items():
            state[name] = value if is_statistic(name) else state[name] - LR * value
    return state


def read_tensors(raw):
    """The F32 tensors of a safetensors file by name, in float64."""
    size, = struct.unpack("<Q", raw[:8])
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    return {name: torch.from_numpy(np.frombuffer(
        raw[8 + size + e["data_offsets"][0]:8 + size + e["data_offsets"][1]],
        "<f4").astype("f8").reshape(e["shape"])) for name, e in header.items()}


def ours(args, folder, config, state):
    """Lockstep's (mean loss, gradients and running statistics)."""
    weights, out = folder / "weights.safetensors", folder / "out.safetensors"
    weights.write_bytes(safetensors({k: v.float().numpy() for k, v in state.items()}))
    answer = subprocess.run([args.program, args.device, config, args.data, weights, out],
                            check=True, stdout=subprocess.PIPE, text=True).stdout.split()
    if int(answer[1]) != LEARNABLE:
        sys.exit(f"the model has {answer[1]} learnable numbers, expected {LEARNABLE}")
    tensors = read_tensors(out.read_bytes())
    return float(answer[0]), {name: tensors[name] for name in state}


def errors(result, reference):
    """For each tensor ‖Δ‖/‖reference‖; of a gradient that is truly zero, its norm against that
    of its convolution's weight."""
    def error(name):
        scale = reference[name]
        if precedes_norm(name):
            scale = reference[name[:-len("bias")] + "weight"]
        return ((result[name] - reference[name]).norm() / scale.norm()).item()
    return {name: error(name) for name in reference}


def measure(args, folder, name, state, data, activation):
    """(our errors, PyTorch's float32 errors) at one state."""
    config = folder / "config.json"
    text = args.config.read_text()
    config.write_text(text.replace('"type": "relu"', f'"type": "{activation}"'))
    state = {k: v.float().double() for k, v in state.items()}
    rows = tuple(part[:BATCH] for part in data)
    function = ACTIVATIONS[activation]
    loss64, reference = step(state, rows, function)
    loss32, single = step(state, rows, function, torch.float32)
    loss, result = ours(args, folder, config, state)
    print(f"{name}: loss {loss64:.6f}, off by {loss / loss64 - 1:+.1e};"
          f" PyTorch fp32 {loss32 / loss64 - 1:+.1e}", flush=True)
    return errors(result, reference), errors(single, reference)


def collect(args, folder, data, activation, seeds):
    """{state: [(our errors, PyTorch's)] for each seed}."""
    found = {"fresh": [], "50 steps": []}
    for seed in seeds:
        state = start(seed)
        for name in found:
            begin = time.monotonic()
            if name != "fresh":
                kept = args.states / f"{activation}_{seed}.pt" if args.states else None
                if kept and kept.exists():
                    state = torch.load(kept)
                else:
                    state = train(state, data, ACTIVATIONS[activation],
                                  getattr(torch, args.train_dtype))
                    if kept:
                        torch.save(state, kept)
            title = f"{activation}, seed {seed}, {name}"
            found[name].append(measure(args, folder, title, state, data, activation))
            print(f"    {time.monotonic() - begin:.0f} s", file=sys.stderr, flush=True)
    return found


def kind(name):
    if is_statistic(name):
        return "running statistics"
    return "zero bias" if precedes_norm(name) else "gradient"


def bound(name, activation, torch_error):
    if kind(name) == "running statistics":
        return STATS_BOUND
    if kind(name) == "zero bias":
        return BIAS_BOUND
    return TANH_BOUND if activation == "tanh" else RELU_FACTOR * torch_error


def judge(activation, state, pairs, verbose):
    """Print the worst of each kind and what is beyond its bound; count the latter. Judged is the
    largest of all seeds, but of gradients with relu, where a flip is luck, the median."""
    failed, worst = 0, {}
    print(f"\n{activation}, {state}, {len(pairs)} seed(s): error, PyTorch fp32's, bound")
    for name in pairs[0][0]:
        flips = activation == "relu" and kind(name) == "gradient"
        error, torch_error = (float((np.median if flips else np.max)([p[side][name] for p in pairs]))
                              for side in (0, 1))
        limit = bound(name, activation, torch_error)
        fits = error <= limit
        failed += not fits
        if verbose or not fits:
            print(f"  {name:22} {error:8.1e} {torch_error:8.1e} {limit:8.1e}"
                  f"{'' if fits else '   TOO LARGE'}")
        use = error / limit if limit else 0.0
        if use >= worst.get(kind(name), (-1,))[0]:
            worst[kind(name)] = use, name, error, torch_error, limit
    for group, (use, name, error, torch_error, limit) in worst.items():
        print(f"  nearest its bound, {group}: {name} {error:.1e}, PyTorch fp32 {torch_error:.1e},"
              f" bound {limit:.1e} ({100 * use:.0f} %)")
    return failed


def main():
    here = Path(__file__).resolve().parent
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", type=lambda name: Path(name).absolute(), required=True, help="resnet_gradient, built")
    parser.add_argument("--device", default="cpu", help="ref64, ref, cpu"
                        " (default: %(default)s)")
    parser.add_argument("--config", type=Path, default=here / "../../examples/resnet18.json")
    parser.add_argument("--data", type=Path, default="/usr/share/datasets/fashion-mnist",
                        help="folder of the gzipped IDX files (default: %(default)s)")
    parser.add_argument("--activation", choices=ACTIVATIONS, action="append",
                        help="one only (default: both)")
    parser.add_argument("--seeds", type=int, default=5, help="(default: %(default)s)")
    parser.add_argument("--states", type=Path, help="folder to keep the trained states in, and to"
                        " take them from")
    parser.add_argument("--train-dtype", choices=("float32", "float64"), default="float32",
                        help="of the 50 steps (default: %(default)s, ten times as fast)")
    parser.add_argument("--threads", type=int, default=2, help="PyTorch's (default: %(default)s)")
    parser.add_argument("--verbose", action="store_true", help="a line for every tensor")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    if not (args.data / "train-images-idx3-ubyte.gz").exists():
        print(f"skipped: no Fashion-MNIST in {args.data}")
        sys.exit(77)
    rows = BATCH * STEPS
    data = tuple(torch.from_numpy(read_idx(args.data / f"train-{part}-ubyte.gz")[0][:rows]
                                  .astype(dtype))
                 for part, dtype in (("images-idx3", "u1"), ("labels-idx1", "i8")))
    print(f"PyTorch {torch.__version__}, device {args.device}")
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for activation in args.activation or ("tanh", "relu"):
            found = collect(args, Path(folder), data, activation, range(args.seeds))
            for state, pairs in found.items():
                failed += judge(activation, state, pairs, args.verbose)
    print(f"\n{failed} tensors beyond their bounds" if failed else "\nall within their bounds")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
