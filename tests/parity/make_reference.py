#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Creates the reference files with which tests/parity compares Lockstep's gradients.

Stores a Kaiming start of LeNet, the float64 gradient of every parameter by PyTorch on one minibatch
of Fashion-MNIST, and the losses of ten steps from there:

    lenet_fresh.safetensors    weights and gradients
    lenet_reference.json       losses, norms, and the error of PyTorch's own float32

Weights are stored as float32, but fc1.weight, most of them, as float16; the gradients belong to the
rounded weights and are stored as float32. The minibatch is rows 0..255 of the training file. The
ten reference losses are those of ten SGD steps from the rounded Kaiming start, step k on rows
256(k+10)..256(k+10)+255, each computed before its update.

    python3 tests/parity/make_reference.py
    python3 tests/parity/make_reference.py --check    # compare with the files, write nothing

Everything that determines a stored weight or gradient is computed in float64 from fixed seeds, so
another PyTorch release or thread count differs only by rounding; --check prints the difference and
fails above 1e-6.
"""

import argparse
import gzip
import hashlib
import json
import platform
import struct
import sys
from pathlib import Path

import numpy as np
import torch
from torch.nn import functional as F

# A seed whose comparison is well posed: where some unit's input to ReLU lies within
# rounding error of zero, its sign, and with it a visible part of the gradient, is a coin
# toss in float32. "sensitivity" in the JSON shows that it is not so here; README.md says more.
SEED = 8
NOISE = 1e-7  # float32's rounding error, as a relative perturbation of the weights
BATCH = 256
LR = 0.2
STEPS = 10
FIRST_STEP = 10  # its minibatch: with the seed, chosen for its losses to hold still
STEP_DRAWS = 16  # disturbed starts of the ten steps
FILE = "lenet_fresh.safetensors"

# Name, shape and fan-in, in model order; PyTorch's layouts.
LAYERS = [
    ("conv1", (20, 1, 3, 3), 9),
    ("conv2", (50, 20, 5, 5), 500),
    ("fc1", (128, 800), 800),
    ("fc2", (10, 128), 128),
]


def read_idx(path):
    """Return the payload of a gzipped IDX file of bytes as an array, and its SHA-256."""
    raw = gzip.decompress(path.read_bytes())
    rank = raw[3]
    shape = struct.unpack(f">{rank}I", raw[4:4 + 4 * rank])
    payload = np.frombuffer(raw, np.uint8, offset=4 + 4 * rank)
    return payload.reshape(shape), hashlib.sha256(raw).hexdigest()


def kaiming(rng):
    """Draw every weight from N(0, 2 / fan-in); biases are zero."""
    parameters = {}
    for name, shape, fan_in in LAYERS:
        weight = rng.standard_normal(shape) * np.sqrt(2.0 / fan_in)
        parameters[name + ".weight"] = torch.from_numpy(weight)
        parameters[name + ".bias"] = torch.zeros(shape[0], dtype=torch.float64)
    return parameters


def logits(p, images):
    """LeNet: two rounds of convolution, ReLU and average pooling, then two dense layers."""
    h = F.avg_pool2d(F.relu(F.conv2d(images, p["conv1.weight"], p["conv1.bias"])), 2)
    h = F.avg_pool2d(F.relu(F.conv2d(h, p["conv2.weight"], p["conv2.bias"])), 2)
    h = F.relu(F.linear(h.flatten(1), p["fc1.weight"], p["fc1.bias"]))
    return F.linear(h, p["fc2.weight"], p["fc2.bias"])


def gradients(parameters, pixels, labels, dtype=torch.float64, channels_last=False):
    """Return (mean loss, correct rows, gradients of the mean loss) of one minibatch."""
    order = torch.channels_last if channels_last else torch.contiguous_format

    def convert(tensor):
        tensor = tensor.to(dtype)
        return tensor.contiguous(memory_format=order) if tensor.dim() == 4 else tensor

    p = {k: convert(v).detach().clone().requires_grad_() for k, v in parameters.items()}
    out = logits(p, convert(pixels.unsqueeze(1).to(dtype) / 255))
    loss = F.cross_entropy(out, labels)
    loss.backward()
    correct = int((out.argmax(1) == labels).sum())
    return loss.item(), correct, {k: v.grad for k, v in p.items()}


def sgd_step(parameters, pixels, labels, dtype=torch.float64):
    """Step in place on one minibatch; return its mean loss before the step."""
    loss, _, grads = gradients(parameters, pixels, labels, dtype)
    for name, grad in grads.items():
        parameters[name] -= LR * grad
    return loss


def stored_type(name):
    """fc1.weight as float16 keeps the files small; elsewhere float16's few distinct values
    make sums that cancel exactly, which is no fair question to ask of float32."""
    return torch.float16 if name == "fc1.weight" else torch.float32


def rounded(parameters):
    """The parameters as they are stored, in float64."""
    return {k: v.to(stored_type(k)).double() for k, v in parameters.items()}


def relative_errors(grads, reference):
    """‖grad − reference‖ / ‖reference‖ for each parameter."""
    return {k: ((grads[k].double() - g).norm() / g.norm()).item()
            for k, g in reference.items()}


def disturbed(parameters, count=4):
    """Copies of the parameters, each disturbed as much as float32's rounding would."""
    for seed in range(count):
        rng = np.random.RandomState(seed)
        yield {k: v * (1 + NOISE * torch.from_numpy(rng.standard_normal(v.shape)))
               for k, v in parameters.items()}


def ten_steps(start, images, labels, dtype):
    """The losses of STEPS steps from `start`, on minibatches FIRST_STEP, FIRST_STEP + 1, …"""
    p = {k: v.to(dtype).clone() for k, v in start.items()}
    batches = [slice(BATCH * k, BATCH * (k + 1)) for k in range(FIRST_STEP, FIRST_STEP + STEPS)]
    return [sgd_step(p, images[rows], labels[rows], dtype) for rows in batches]


def largest_change(losses, reference):
    """The largest relative difference of two lists of losses."""
    return max(abs(a / b - 1) for a, b in zip(losses, reference))


def safetensors(tensors):
    """Serialise named arrays: header length, JSON header, then the arrays' bytes."""
    kinds = {"float16": "F16", "float32": "F32"}
    header, at = {}, 0
    for name, array in tensors.items():
        header[name] = {"dtype": kinds[array.dtype.name], "shape": list(array.shape),
                        "data_offsets": [at, at + array.nbytes]}
        at += array.nbytes
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    return struct.pack("<Q", len(text)) + text + b"".join(
        np.ascontiguousarray(a).tobytes() for a in tensors.values())


def describe_state(parameters, images, labels):
    """Return (the state's file, its entry in the JSON)."""
    batch = images[:BATCH], labels[:BATCH]
    loss, correct, grads = gradients(parameters, *batch)
    errors, losses = {}, {}
    for form in ("contiguous", "channels_last"):
        losses[form], _, grads32 = gradients(
            parameters, *batch, torch.float32, form == "channels_last")
        errors[form] = relative_errors(grads32, grads)
    changes = [relative_errors(gradients(p, *batch)[2], grads)
               for p in disturbed(parameters)]

    tensors = {"grad." + k: g.float().numpy() for k, g in grads.items()}
    tensors.update((k, p.to(stored_type(k)).numpy()) for k, p in parameters.items())
    return safetensors(tensors), {
        "loss": loss,
        "correct": correct,
        "gradient_norm": {k: g.norm().item() for k, g in grads.items()},
        "torch_fp32_loss": losses,
        "torch_fp32_error": errors,
        "sensitivity": {k: max(c[k] for c in changes) for k in grads},
    }


def describe_steps(start, images, labels):
    """The JSON's entry about the ten steps."""
    losses = ten_steps(start, images, labels, torch.float64)
    losses32 = ten_steps(start, images, labels, torch.float32)
    return {
        "first_row": BATCH * FIRST_STEP,
        "losses": losses,
        "torch_fp32_losses": losses32,
        "torch_fp32_error": largest_change(losses32, losses),
        "sensitivity": max(largest_change(ten_steps(p, images, labels, torch.float64), losses)
                           for p in disturbed(start, STEP_DRAWS)),
    }


def make(data):
    """Return every output file's bytes by name."""
    images, images_sha256 = read_idx(data / "train-images-idx3-ubyte.gz")
    labels, labels_sha256 = read_idx(data / "train-labels-idx1-ubyte.gz")
    images, labels = torch.from_numpy(images.copy()), torch.from_numpy(labels.astype("i8"))

    rng = np.random.RandomState(SEED)  # its streams are frozen for good
    start = rounded(kaiming(rng))
    state, entry = describe_state(start, images, labels)
    print(f"loss {entry['loss']:.6f}, {entry['correct']} of {BATCH} correct", file=sys.stderr)

    reference = {
        "command": "python3 tests/parity/make_reference.py"
                   f" --threads {torch.get_num_threads()}",
        "versions": {"torch": torch.__version__, "numpy": np.__version__,
                     "python": platform.python_version()},
        "threads": torch.get_num_threads(),
        "seed": SEED,
        "batch_size": BATCH,
        "lr": LR,
        "data": {"name": "fashion-mnist", "train_images_sha256": images_sha256,
                 "train_labels_sha256": labels_sha256},
        "start": {"file": FILE, "sha256": hashlib.sha256(state).hexdigest(), **entry},
        "ten_steps": describe_steps(start, images, labels),
    }
    return {FILE: state, "lenet_reference.json": (json.dumps(reference, indent=2) + "\n").encode()}


def read_safetensors(raw):
    """The arrays of a safetensors file by name, in float64."""
    size, = struct.unpack("<Q", raw[:8])
    kinds = {"F16": "<f2", "F32": "<f4"}
    return {name: np.frombuffer(raw[8 + size + e["data_offsets"][0]:
                                    8 + size + e["data_offsets"][1]],
                                kinds[e["dtype"]]).astype("f8")
            for name, e in json.loads(raw[8:8 + size]).items()}


def check(files, folder):
    """Print how far the files in `folder` are from `files`; return the exit status."""
    worst = 0.0
    for name, raw in files.items():
        stored = (folder / name).read_bytes()
        if name.endswith(".json"):
            new, old = (json.loads(x)["ten_steps"]["losses"] for x in (raw, stored))
            difference = largest_change(new, old)
        else:
            new, old = read_safetensors(raw), read_safetensors(stored)
            difference = max(np.linalg.norm(new[k] - old[k]) / max(np.linalg.norm(old[k]),
                                                                   1e-300) for k in old)
        same = "same bytes" if raw == stored else f"largest difference {difference:.1e}"
        print(f"{name}: {same}")
        worst = max(worst, difference)
    return 0 if worst <= 1e-6 else 1


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, default="/usr/share/datasets/fashion-mnist",
                        help="folder of the gzipped IDX files (default: %(default)s)")
    parser.add_argument("--out", type=Path, default=Path(__file__).parent,
                        help="folder of the reference files (default: this script's)")
    parser.add_argument("--threads", type=int, default=1,
                        help="PyTorch's threads (default: %(default)s)")
    parser.add_argument("--check", action="store_true",
                        help="compare with the stored files and write nothing")
    args = parser.parse_args()

    torch.set_num_threads(args.threads)
    files = make(args.data)
    if args.check:
        sys.exit(check(files, args.out))
    for name, raw in files.items():
        (args.out / name).write_bytes(raw)


if __name__ == "__main__":
    main()
