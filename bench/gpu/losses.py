#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares gradients and 20 losses with PyTorch's, in fp32, TF32 and bf16, on one GPU.

    losses.py --trainer PROGRAM --data FOLDER [--json FILE] [--devices cuda:0] [--rehearse]

From the same weights (of three seeds), LeNet and ResNet-18 take 20 steps of SGD on one minibatch:
in PyTorch in float64, which is the reference, and in each precision; and in Lockstep in each
precision. The error of a run is its mean |loss − reference| over the mean of the reference. The
error of a gradient is ‖error‖/‖gradient‖ over all weights. Lockstep's gradient is computed from the
weights after one step with a learning rate so high that the weights before the step do not matter.
Lockstep passes if two conditions hold in each precision: the median error of the losses over its
seeds is at most the largest error of PyTorch in that precision, and the median error of its gradients
is at most FACTOR times the largest error of PyTorch's. If Lockstep does not pass, or does not run, the
script ends with status 1; 77: PyTorch or the data is missing. Everything is run with one seed first,
and results are written after each run. Runs of Lockstep and of PyTorch run at the same time, because
nothing is timed. (If algorithms of convolutions are not in the cache yet, they are chosen by times
that the other runs disturb.)
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity"))

import resnet_parity as parity  # noqa: E402  ends with 77 where PyTorch is missing
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

PRECISIONS = ("fp32", "tf32", "bf16")
LEAST = 1e-6  # relative to the reference: smaller errors count as this one
FACTOR = 1.5  # allowed factor between errors of two gradients, because sums are added in different orders


def start_lenet(seed):
    rng, state = np.random.RandomState(seed), {}
    for name, *shape in (("conv1", 20, 1, 3, 3), ("conv2", 50, 20, 5, 5), ("fc1", 128, 800), ("fc2", 10, 128)):
        weight = rng.standard_normal(shape) * np.sqrt(2 / np.prod(shape[1:]))
        state[name + ".weight"] = torch.from_numpy(weight)
        state[name + ".bias"] = torch.zeros(shape[0], dtype=torch.float64)
    return state


def logits_of_lenet(state, x, activation):
    for name in ("conv1", "conv2"):
        x = F.avg_pool2d(activation(F.conv2d(x, state[name + ".weight"], state[name + ".bias"])), 2)
    h = activation(F.linear(x.flatten(1), state["fc1.weight"], state["fc1.bias"]))
    return F.linear(h, state["fc2.weight"], state["fc2.bias"])


# For each network: configuration, first weights, forward pass, learning rate of the 20 steps, and learning rate of the
# single step from which the gradient is computed; with this rate the loss is still finite.
NETWORKS = {
    "lenet": ("examples/fashion_mnist.json", start_lenet, logits_of_lenet, 0.1, 1e4),
    "resnet18": ("examples/resnet18.json", parity.start, parity.logits, 0.1, 30),
}


def torch_run(network, state, rows, precision, steps):
    """The losses and, before the first step, the gradient. `precision` may be float64."""
    _, _, logits, lr, _ = NETWORKS[network]
    dtype = torch.float64 if precision == "float64" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    images, labels = rows[0].to(dtype), rows[1]
    state = {name: value.to(images.device, dtype).clone() for name, value in state.items()}
    names = [name for name in state if not parity.is_statistic(name)]
    learned = [state[name].requires_grad_() for name in names]
    losses, first = [], None
    for _ in range(steps):
        with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(logits(state, images, F.relu).to(dtype), labels)
        gradients = torch.autograd.grad(loss, learned)
        first = first or {name: g.double().cpu() for name, g in zip(names, gradients)}
        with torch.no_grad():
            for value, gradient in zip(learned, gradients):
                value -= lr * gradient
        losses.append(loss.item())
    return losses, first


def train_ours(args, network, state, precision, steps, lr):
    """The losses of the given number of steps, and the weights after these steps."""
    with tempfile.TemporaryDirectory() as folder:
        weights, run = Path(folder) / "start.safetensors", Path(folder) / "run"
        weights.write_bytes(parity.safetensors({k: v.float().numpy() for k, v in state.items()}))
        settings = {"data.path": args.data, "data.limit": args.batch, "batch_size": args.batch,
                    "epochs": steps, "eval_every": 0, "shards": "devices", "run_dir": run,
                    "precision": precision, "optimizer": json.dumps({"name": "sgd", "lr": lr}),
                    "init": json.dumps({"weights": str(weights)}),
                    "data.name": "fashion_mnist"}
        command = [args.trainer, ROOT / NETWORKS[network][0], "--devices", args.devices,
                   *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or "no message").splitlines()[-1])
        records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
        return ([r["loss"] for r in records if r["type"] == "step"],
                parity.read_tensors((run / "weights.safetensors").read_bytes()))


def our_run(args, network, state, precision):
    losses, _ = train_ours(args, network, state, precision, args.steps, NETWORKS[network][3])
    high_rate = NETWORKS[network][4]
    _, after = train_ours(args, network, state, precision, 1, high_rate)
    return losses, {name: (state[name] - value) / high_rate for name, value in after.items()
                    if not parity.is_statistic(name)}


def off(losses, reference):
    if len(losses) != len(reference):
        raise RuntimeError(f"{len(losses)} losses, not {len(reference)}")
    return statistics.fmean(abs(a - b) for a, b in zip(losses, reference)) / statistics.fmean(reference)


def off_gradient(gradient, reference):
    """The error of the whole gradient, and the part of each parameter. The squares of the parts add up to the square
    of the error."""
    whole = sum(g.square().sum().item() for g in reference.values())
    parts = {name: (gradient[name] - g).square().sum().item() / whole for name, g in reference.items()}
    return sum(parts.values()) ** 0.5, {name: part ** 0.5 for name, part in parts.items()}


def judge(of, known):
    """Prints the errors of the seeds that have been run, and stores them. Returns whether they are small enough."""
    ours, theirs = known["ours"], known["theirs"]
    near = {}
    for i, what in enumerate(("losses", "gradient")):
        mine, others = ([pair[i] for pair in side] for side in (ours, theirs))
        near[what] = statistics.median(mine) <= max(*others, LEAST) * (FACTOR if i else 1)
        known[what] = {"ours": statistics.median(mine), "torch": max(others), "near": near[what]}
        print(f"{of}: {what} off by {statistics.median(mine):.1e} ({min(mine):.1e} … {max(mine):.1e}), "
              f"PyTorch's by {min(others):.1e} … {max(others):.1e}: "
              f"{'within' if near[what] else 'FARTHER OFF'}", flush=True)
    if not near["gradient"]:
        for side, parts in known["parts"].items():
            most = sorted(parts[-1].items(), key=lambda part: -part[1])[:4]
            print(f"    {side}: " + ", ".join(f"{name} {part:.1e}" for name, part in most), flush=True)
    return all(near.values())


def compare(args, network, precision, state, reference, rows, found, our_future):
    known = found.setdefault(f"{network} {precision}",
                             {"ours": [], "theirs": [], "parts": {"ours": [], "theirs": []}})
    runs = {"theirs": torch_run(network, state, rows, precision, args.steps), "ours": our_future.result()}
    for side, (losses, gradient) in runs.items():
        error, parts = off_gradient(gradient, reference[1])
        known[side].append((off(losses, reference[0]), error))
        known["parts"][side].append(parts)
    known["passed"] = judge(f"{network} {precision}", known)


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", type=lambda name: Path(name).absolute(), required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--rehearse", action="store_true", help="LeNet alone, PyTorch on the CPU, two steps")
    args = parser.parse_args()
    args.batch, args.steps, args.seeds, args.precisions = 256, 20, 3, PRECISIONS
    args.networks, args.at_once = tuple(NETWORKS), 6
    if args.rehearse:
        args.batch, args.steps, args.seeds = 8, 2, 1
        args.precisions, args.networks = ("fp32",), ("lenet",)
    return args


def main():
    args = parse_arguments()
    device = "cuda" if torch.cuda.is_available() and not args.rehearse else "cpu"
    if device == "cpu" and not args.rehearse:
        print("skipped: PyTorch has no GPU")
        sys.exit(77)
    images, labels = (torch.from_numpy(parity.read_idx(args.data / f"train-{name}-ubyte.gz")[0][:args.batch].copy())
                      for name in ("images-idx3", "labels-idx1"))
    rows = (images.double().div(255).unsqueeze(1).to(device), labels.long().to(device))
    found = {}
    with ThreadPoolExecutor(args.at_once) as pool:
        for seed in range(args.seeds):
            states = {network: {k: v.float().double() for k, v in NETWORKS[network][1](seed).items()}
                      for network in args.networks}
            ours = {(network, precision): pool.submit(our_run, args, network, state, precision)
                    for network, state in states.items() for precision in args.precisions}
            for network, state in states.items():
                reference = torch_run(network, state, rows, "float64", args.steps)
                for precision in args.precisions:
                    try:
                        compare(args, network, precision, state, reference, rows, found, ours[network, precision])
                    except RuntimeError as error:
                        found.setdefault(f"{network} {precision}", {})["error"] = str(error)
                        print(f"{network} {precision}: {error}", flush=True)
                    if args.json:
                        args.json.write_text(json.dumps(found, indent=1) + "\n")
    sys.exit(0 if all(known.get("passed") and "error" not in known for known in found.values()) else 1)


if __name__ == "__main__":
    main()
