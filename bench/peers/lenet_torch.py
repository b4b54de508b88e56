#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Training rate of LeNet in PyTorch on the CPU, in rounds: see torch_rounds.py.

    yes | head -5 | python3 bench/peers/lenet_torch.py --data DIR
"""

import torch_rounds  # first: it sets what PyTorch reads when it is imported
from torch import nn
from torch.nn import functional as F


class LeNet(nn.Module):
    """The network of examples/fashion_mnist.json: 129,068 parameters."""

    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)

    def forward(self, x):
        h = F.avg_pool2d(F.relu(self.conv1(x)), 2)
        h = F.avg_pool2d(F.relu(self.conv2(h)), 2)
        return self.fc2(F.relu(self.fc1(h.flatten(1))))


if __name__ == "__main__":
    torch_rounds.main(LeNet, __doc__, steps=60, warmup=30)
