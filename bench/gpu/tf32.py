#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Emulates tf32 in LeNet's first gradient on a CPU and prints its error, as losses.py measures it on a GPU.

    tf32.py --data FOLDER

The weights of each seed, the 256 rows and the reference in float64 are those of losses.py. Each line of
output names some layers. In these layers the operands of each product, forward and backward, are
rounded to tf32 (11 significant bits, to nearest, ties away from zero). Everything else is computed in
float64. Exit status 77: PyTorch or the data is missing.
"""

import argparse
from pathlib import Path

from losses import F, off_gradient, parity, start_lenet, torch

LAYERS = ("conv1", "conv2", "fc1", "fc2")
LINES = (LAYERS, LAYERS[1:], LAYERS[:1], LAYERS[1:2], LAYERS[2:3], LAYERS[3:])


def rounded(t):
    bits = t.float().contiguous().view(torch.int32)
    return ((bits + 0x1000) & ~0x1fff).view(torch.float32).double()


class Product(torch.autograd.Function):
    """A convolution, or a dense layer, of rounded operands; so are its two gradients."""

    @staticmethod
    def forward(ctx, x, weight):
        x, weight = rounded(x), rounded(weight)
        ctx.save_for_backward(x, weight)
        return F.conv2d(x, weight) if weight.dim() == 4 else F.linear(x, weight)

    @staticmethod
    def backward(ctx, g):
        (x, weight), g = ctx.saved_tensors, rounded(g)
        if weight.dim() == 4:
            return (torch.nn.grad.conv2d_input(x.shape, weight, g),
                    torch.nn.grad.conv2d_weight(x, weight.shape, g))
        return g @ weight, g.T @ x


def gradient(state, layers, images, labels):
    state = {name: value.clone().requires_grad_() for name, value in state.items()}
    h = images
    for name in LAYERS:
        weight = state[name + ".weight"]
        h = h.flatten(1) if weight.dim() == 2 else h
        plain = F.conv2d if weight.dim() == 4 else F.linear
        h = Product.apply(h, weight) if name in layers else plain(h, weight)
        h = h + state[name + ".bias"].view(-1, *[1] * (h.dim() - 2))
        h = F.relu(h) if name != LAYERS[-1] else h
        h = F.avg_pool2d(h, 2) if weight.dim() == 4 else h
    return dict(zip(state, torch.autograd.grad(F.cross_entropy(h, labels), list(state.values()))))


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"))
    args = parser.parse_args()
    images, labels = (torch.from_numpy(parity.read_idx(args.data / f"train-{name}-ubyte.gz")[0][:256].copy())
                      for name in ("images-idx3", "labels-idx1"))
    images, labels = images.double().div(255).unsqueeze(1), labels.long()
    states = [{name: value.float().double() for name, value in start_lenet(seed).items()} for seed in range(3)]
    references = [gradient(state, (), images, labels) for state in states]
    print("| layers in tf32 | seed 0 | seed 1 | seed 2 | most of seed 0's error |\n|---|---:|---:|---:|---|")
    for layers in LINES:
        found = [off_gradient(gradient(state, layers, images, labels), reference)
                 for state, reference in zip(states, references)]
        most = sorted(found[0][1].items(), key=lambda part: -part[1])[:2]
        print(f"| {', '.join(layers)} | " + " | ".join(f"{error:.2e}" for error, _ in found) + " | " +
              ", ".join(f"`{name}` {part:.1e}" for name, part in most) + " |")


if __name__ == "__main__":
    main()
