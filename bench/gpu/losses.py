#!/usr/bin/env python3
"""Losses of 50 steps beside PyTorch's, in fp32, TF32 and bf16, on one GPU.

    losses.py --trainer PROGRAM --data FOLDER [--devices cuda:0] [--rehearse]

From the same weights (of three seeds), on the same minibatch again and again, LeNet and ResNet-18 take 50
steps of SGD: PyTorch in float64, which is the reference, and in each precision, and Lockstep in each. How far
a run is off is its mean |loss − reference| over the mean of the reference. Lockstep passes where the
median of its seeds is not farther off than the worst of PyTorch's own in that precision. Where it is, or where
it does not run, the script ends with status 1; 77: PyTorch or the data is not there.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "tests/parity"))

import resnet_parity as parity  # noqa: E402  ends with 77 where PyTorch is missing
import numpy as np  # noqa: E402
import torch  # noqa: E402
from torch.nn import functional as F  # noqa: E402

PRECISIONS = ("fp32", "tf32", "bf16")
LEAST = 1e-6  # of the reference: what is nearer is as good


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


NETWORKS = {
    "lenet": ("examples/fashion_mnist.json", start_lenet, logits_of_lenet, 0.1),
    "resnet18": ("examples/resnet18.json", parity.start, parity.logits, 0.1),
}


def torch_losses(network, state, rows, precision, steps):
    """`precision` may be float64."""
    _, _, logits, lr = NETWORKS[network]
    dtype = torch.float64 if precision == "float64" else torch.float32
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision != "fp32"
    images, labels = rows[0].to(dtype), rows[1]
    state = {name: value.to(images.device, dtype).clone() for name, value in state.items()}
    learned = [value.requires_grad_() for name, value in state.items() if not parity.is_statistic(name)]
    losses = []
    for _ in range(steps):
        with torch.autocast(images.device.type, dtype=torch.bfloat16, enabled=precision == "bf16"):
            loss = F.cross_entropy(logits(state, images, F.relu).to(dtype), labels)
        gradients = torch.autograd.grad(loss, learned)
        with torch.no_grad():
            for value, gradient in zip(learned, gradients):
                value -= lr * gradient
        losses.append(loss.item())
    return losses


def our_losses(args, network, state, precision):
    config, _, _, lr = NETWORKS[network]
    with tempfile.TemporaryDirectory() as folder:
        weights, metrics = Path(folder) / "start.safetensors", Path(folder) / "metrics.jsonl"
        weights.write_bytes(parity.safetensors({k: v.float().numpy() for k, v in state.items()}))
        settings = {"data.path": args.data, "data.limit": args.batch, "batch_size": args.batch,
                    "epochs": args.steps, "eval_every": 0, "shards": "devices", "run_dir": "null",
                    "precision": precision, "optimizer": json.dumps({"name": "sgd", "lr": lr}),
                    "init": json.dumps({"weights": str(weights)}),
                    "data.name": "fashion_mnist"}
        command = [args.trainer, ROOT / config, "--devices", args.devices, "--metrics", metrics,
                   *(word for key, value in settings.items() for word in ("--set", f"{key}={value}"))]
        done = subprocess.run([str(word) for word in command], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError((done.stderr.strip() or "no message").splitlines()[-1])
        records = [json.loads(line) for line in metrics.read_text().splitlines()]
        return [r["loss"] for r in records if r["type"] == "step"]


def off(losses, reference):
    if len(losses) != len(reference):
        raise RuntimeError(f"{len(losses)} losses, not {len(reference)}")
    return statistics.fmean(abs(a - b) for a, b in zip(losses, reference)) / statistics.fmean(reference)


def compare(args, network, rows):
    """Whether all precisions pass."""
    starts = [NETWORKS[network][1](seed) for seed in range(args.seeds)]
    starts = [{k: v.float().double() for k, v in state.items()} for state in starts]
    references = [torch_losses(network, s, rows, "float64", args.steps) for s in starts]
    passed = True
    for precision in args.precisions:
        theirs = [off(torch_losses(network, s, rows, precision, args.steps), r)
                  for s, r in zip(starts, references)]
        ours = [off(our_losses(args, network, s, precision), r) for s, r in zip(starts, references)]
        good = statistics.median(ours) <= max(*theirs, LEAST)
        passed = passed and good
        print(f"{network} {precision}: {args.steps} losses off by {statistics.median(ours):.1e} "
              f"({min(ours):.1e} … {max(ours):.1e}), PyTorch's by {min(theirs):.1e} … {max(theirs):.1e}: "
              f"{'within' if good else 'FARTHER OFF'}", flush=True)
    return passed


def parse_arguments():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--trainer", type=Path, required=True)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--devices", default="cuda:0")
    parser.add_argument("--rehearse", action="store_true", help="LeNet alone, PyTorch on the CPU, two steps")
    args = parser.parse_args()
    args.batch, args.steps, args.seeds, args.precisions = 256, 50, 3, PRECISIONS
    args.networks = tuple(NETWORKS)
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
    passed = [compare(args, network, rows) for network in args.networks]
    sys.exit(0 if all(passed) else 1)


if __name__ == "__main__":
    main()
