#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares ResNet-18 on a GPU with PyTorch in float64 on the same GPU.

    python3 tests/cuda_gpu/resnet_gpu.py --program build/…/gpu_resnet_gradient

The networks, states and measures are those of tests/parity/resnet_parity.py. Only a fresh start is
compared, with two seeds, so that the test takes seconds. With tanh the bound of a gradient's error
is the one in resnet_parity.py. With relu the bound is ten times the error of PyTorch's float32 on
this GPU, but at least 2e-4. (Rounding flips the sign of an input of a relu at random, and there are
too few seeds here for a median.) If a gradient is truly zero, so many sums cancel that the error of
PyTorch's float32 may exceed the bound; this error is then the bound. Exits with 77 if there is no
GPU, no PyTorch, or no data.
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "parity"))

import resnet_parity as parity  # noqa: E402  exits with 77 if PyTorch is missing
import torch  # noqa: E402

RELU_FACTOR = 10
RELU_LEAST = 2e-4


def measure(args, folder, state, rows, activation, device):
    """Returns (errors of Lockstep, errors of PyTorch's float32) for one state."""
    config = folder / "config.json"
    config.write_text(args.config.read_text().replace('"type": "relu"',
                                                      f'"type": "{activation}"'))
    state = {name: value.float().double() for name, value in state.items()}
    there = {name: value.to(device) for name, value in state.items()}
    on_gpu = tuple(part.to(device) for part in rows)
    function = parity.ACTIVATIONS[activation]
    loss64, reference = parity.step(there, on_gpu, function)
    loss32, single = parity.step(there, on_gpu, function, torch.float32)
    loss, result = parity.ours(args, folder, config, state)
    reference = {name: value.cpu() for name, value in reference.items()}
    single = {name: value.cpu() for name, value in single.items()}
    print(f"{activation}: loss {loss64:.6f}, off by {loss / loss64 - 1:+.1e};"
          f" PyTorch fp32 {loss32 / loss64 - 1:+.1e}", flush=True)
    return parity.errors(result, reference), parity.errors(single, reference)


def bound(name, activation, torch_error):
    if parity.kind(name) == "gradient" and activation == "relu":
        return max(RELU_LEAST, RELU_FACTOR * torch_error)
    if parity.kind(name) == "zero bias":
        return max(parity.BIAS_BOUND, torch_error)
    return parity.bound(name, activation, torch_error)


def judge(pair, activation):
    failed, worst = 0, {}
    for name, error in pair[0].items():
        limit = bound(name, activation, pair[1][name])
        group = parity.kind(name)
        if not error <= limit:
            failed += 1
            print(f"  {name:22} {error:8.1e}, PyTorch fp32 {pair[1][name]:8.1e}   TOO LARGE")
        if error / limit > worst.get(group, (-1,))[0]:
            worst[group] = error / limit, name, error, pair[1][name]
    for group, (use, name, error, torch_error) in worst.items():
        print(f"  nearest its bound, {group}: {name} {error:.1e},"
              f" PyTorch fp32 {torch_error:.1e} ({100 * use:.0f} %)")
    return failed


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=lambda name: Path(name).absolute(), required=True)
    parser.add_argument("--device", default="cuda", help="the program's")
    parser.add_argument("--torch-device", default="cuda")
    parser.add_argument("--config", type=Path, default=HERE / "../../examples/resnet18.json")
    parser.add_argument("--data", type=Path, default="/usr/share/datasets/fashion-mnist")
    parser.add_argument("--seeds", type=int, default=2)
    args = parser.parse_args()
    if not (args.data / "train-images-idx3-ubyte.gz").exists():
        print(f"skipped: no Fashion-MNIST in {args.data}")
        sys.exit(77)
    if args.torch_device == "cuda" and not torch.cuda.is_available():
        print("skipped: PyTorch sees no GPU")
        sys.exit(77)
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    rows = tuple(torch.from_numpy(parity.read_idx(args.data / f"train-{part}-ubyte.gz")[0][
        :parity.BATCH].astype(dtype)) for part, dtype in (("images-idx3", "u1"),
                                                          ("labels-idx1", "i8")))
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        for activation in ("tanh", "relu"):
            for seed in range(args.seeds):
                try:
                    pair = measure(args, Path(folder), parity.start(seed), rows, activation,
                                   args.torch_device)
                except subprocess.CalledProcessError as error:
                    sys.exit(error.returncode if error.returncode == 77 else 1)
                failed += judge(pair, activation)
    print(f"{failed} tensors beyond their bounds" if failed else "all within their bounds")
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
