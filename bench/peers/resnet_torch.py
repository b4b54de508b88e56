#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training rate of ResNet-18 in PyTorch on the CPU, in rounds: see torch_rounds.py.

    yes | head -3 | python3 bench/peers/resnet_torch.py --data DIR
"""

import torch_rounds  # first: it sets what PyTorch reads when it is imported
from torch import nn
from torch.nn import functional as F


class Residual(nn.Module):
    """Two convolutions with batch norm; the input, projected where it shrinks, is added.

    The projection has no batch norm. Operations in place save PyTorch time and memory.
    """

    def __init__(self, channels, out, stride):
        super().__init__()
        self.conv1 = nn.Conv2d(channels, out, 3, stride, 1)
        self.conv2 = nn.Conv2d(out, out, 3, 1, 1)
        self.conv3 = nn.Conv2d(channels, out, 1, stride) if stride > 1 else None
        self.bn1 = nn.BatchNorm2d(out)
        self.bn2 = nn.BatchNorm2d(out)

    def forward(self, x):
        y = F.relu_(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return F.relu_(y.add_(self.conv3(x) if self.conv3 else x))


def resnet18():
    """The network of examples/resnet18.json: 11,175,818 parameters."""
    blocks = [(64, 64, 1), (64, 64, 1), (64, 128, 2), (128, 128, 1),
              (128, 256, 2), (256, 256, 1), (256, 512, 2), (512, 512, 1)]
    net = nn.Sequential(
        nn.Conv2d(1, 64, 3, 1, 1), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
        *(Residual(*block) for block in blocks),
        nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 10))
    count = sum(p.numel() for p in net.parameters())
    assert count == 11_175_818, count
    return net


if __name__ == "__main__":
    torch_rounds.main(resnet18, __doc__, steps=2, warmup=1)
