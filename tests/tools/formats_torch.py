#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Exchanges weights between PyTorch and Lockstep: bit for bit, and the same logits.

    python3 tests/tools/formats_torch.py TRAINER EXAMPLES [DEVICES]

The networks are LeNet, ResNet-18 and MobileNet.

1. Random weights of a torch module, including running statistics, are written to a safetensors file
with torch's names, and pass through `trainer export` and back: every bit must be the same, and the
module must load them with strict=True.

2. The module's logits of 1000 test images are compared with `trainer predict`: 1e-5 of the largest.

3. A run starts from LeNet's weights (init.weights), its steps change nothing, and the weights are
exported again.

77: PyTorch or the data is missing.
"""

import gzip
import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
    import torch
    from torch import nn
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DATA = Path("/usr/share/datasets/fashion-mnist/t10k-images-idx3-ubyte.gz")
ROWS = 1000
BOUND = 1e-5  # of the largest logit


class LeNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1 = nn.Conv2d(1, 20, 3)
        self.conv2 = nn.Conv2d(20, 50, 5)
        self.fc1 = nn.Linear(800, 128)
        self.fc2 = nn.Linear(128, 10)
        self.pool = nn.AvgPool2d(2)

    def forward(self, x):
        x = self.pool(torch.relu(self.conv1(x)))
        x = self.pool(torch.relu(self.conv2(x)))
        return self.fc2(torch.relu(self.fc1(x.flatten(1))))


class Block(nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        stride = 1 if inputs == outputs else 2
        self.conv1 = nn.Conv2d(inputs, outputs, 3, stride, 1)
        self.bn1 = nn.BatchNorm2d(outputs)
        self.conv2 = nn.Conv2d(outputs, outputs, 3, 1, 1)
        self.bn2 = nn.BatchNorm2d(outputs)
        if stride == 2:
            self.conv3 = nn.Conv2d(inputs, outputs, 1, 2)

    def forward(self, x):
        y = torch.relu(self.bn1(self.conv1(x)))
        return torch.relu(self.bn2(self.conv2(y)) +
                          (self.conv3(x) if hasattr(self, "conv3") else x))


class ResNet18(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 64, 3, 1, 1)
        self.bn = nn.BatchNorm2d(64)
        self.b1 = nn.Sequential(Block(64, 64), Block(64, 64))
        self.b2, self.b3 = Block(64, 128), Block(128, 128)
        self.b4, self.b5 = Block(128, 256), Block(256, 256)
        self.b6, self.b7 = Block(256, 512), Block(512, 512)
        self.fc = nn.Linear(512, 10)

    def forward(self, x):
        x = self.b1(torch.relu(self.bn(self.stem(x))))
        for block in (self.b2, self.b3, self.b4, self.b5, self.b6, self.b7):
            x = block(x)
        return self.fc(x.mean((2, 3)))


class Separable(nn.Module):
    def __init__(self, inputs, outputs, stride):
        super().__init__()
        self.depth = nn.Conv2d(inputs, inputs, 3, stride, 1, groups=inputs, bias=False)
        self.bn1 = nn.BatchNorm2d(inputs)
        self.point = nn.Conv2d(inputs, outputs, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(outputs)

    def forward(self, x):
        return torch.relu(self.bn2(self.point(torch.relu(self.bn1(self.depth(x))))))


class MobileNet(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(1, 32, 3, 1, 1, bias=False)
        self.bn = nn.BatchNorm2d(32)
        self.b1, self.b2 = Separable(32, 64, 2), Separable(64, 128, 1)
        self.b3, self.b4 = Separable(128, 128, 1), Separable(128, 256, 2)
        self.b5 = Separable(256, 256, 1)
        self.fc = nn.Linear(256, 10)

    def forward(self, x):
        x = torch.relu(self.bn(self.stem(x)))
        for block in (self.b1, self.b2, self.b3, self.b4, self.b5):
            x = block(x)
        return self.fc(x.mean((2, 3)))


def randomise(module):
    """Kaiming's weights, so that images make a difference, and no number that is there anyway."""
    torch.manual_seed(7)
    for name, value in module.state_dict().items():
        if value.dim() > 1:
            nn.init.kaiming_normal_(value)
        elif name.endswith("running_var") or name.endswith("weight"):
            value.uniform_(0.5, 1.5)
        elif value.is_floating_point():
            value.uniform_(-0.1, 0.1)
    return module.eval()


TYPES = {torch.float32: "F32", torch.int64: "I64"}


def write_safetensors(path, state):
    header, data = {}, b""
    for name, value in state.items():
        raw = value.contiguous().numpy().tobytes()
        header[name] = {"dtype": TYPES[value.dtype], "shape": list(value.shape),
                        "data_offsets": [len(data), len(data) + len(raw)]}
        data += raw
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)


def read_safetensors(path):
    raw = path.read_bytes()
    length, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + length])
    header.pop("__metadata__", None)
    state = {}
    for name, entry in header.items():
        begin, end = entry["data_offsets"]
        values = np.frombuffer(raw[8 + length + begin:8 + length + end], dtype="<f4")
        state[name] = torch.from_numpy(values.copy().reshape(entry["shape"]))
    return state


def same_bits(a, b):
    return a.shape == b.shape and np.array_equal(a.numpy().view(np.uint32), b.numpy().view(np.uint32))


def images():
    raw = gzip.open(DATA).read()
    x = np.frombuffer(raw, np.uint8, offset=16)[:ROWS * 784].reshape(ROWS, 1, 28, 28)
    return torch.from_numpy(x.astype(np.float32)) / 255


def check_bits(what, state, path):
    back = read_safetensors(path)
    wanted = {n: v for n, v in state.items() if v.is_floating_point()}
    assert back.keys() == wanted.keys(), (what, back.keys() ^ wanted.keys())
    differ = [n for n in wanted if not same_bits(wanted[n], back[n])]
    assert not differ, f"{what}: other bits in {differ}"
    print(f"{what}: {len(back)} tensors, bit for bit")
    return back


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True)
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return done.stdout


def check_network(trainer, config, module, place, devices):
    state = randomise(module).state_dict()
    given, out = place / "given.safetensors", place / "out.safetensors"
    write_safetensors(given, state)
    run(trainer, "export", given, "--config", config, "--to", out)
    back = check_bits(config.name, state, out)
    module.load_state_dict(back, strict=True)
    lines = run(trainer, "predict", given, "--config", config, "--rows", f"0:{ROWS}", "--json",
                "--devices", devices).splitlines()
    ours = torch.tensor([json.loads(line)["logits"] for line in lines])
    with torch.no_grad():
        theirs = torch.cat([module(x) for x in images().split(100)])
    worst = (ours - theirs).abs().max().item()
    largest = theirs.abs().max().item()
    print(f"{config.name}: largest difference {worst:.2e}, largest logit {largest:.2f}")
    assert worst <= BOUND * max(1, largest), f"{config.name}: logits differ by {worst}"
    return given, state


def check_run(trainer, config, given, state, place, devices):
    """A learning rate so small that no weight of this size changes."""
    where = place / "run"
    run(trainer, config, "--quiet", "--devices", devices, "--set", f"init.weights={given}",
        "--set", "optimizer.lr=1e-37", "--set", "epochs=1", "--set", "data.limit=512",
        "--set", f"run_dir={where}")
    check_bits("through a run", state, where / "weights.safetensors")


def main():
    if not DATA.exists():
        print(f"skipped: {DATA} is not there")
        return 77
    trainer, examples = sys.argv[1], Path(sys.argv[2])
    devices = sys.argv[3] if len(sys.argv) > 3 else "auto"
    torch.set_num_threads(2)
    with tempfile.TemporaryDirectory() as place:
        lenet = examples / "fashion_mnist.json"
        given, state = check_network(trainer, lenet, LeNet(), Path(place), devices)
        check_run(trainer, lenet, given, state, Path(place), devices)
        check_network(trainer, examples / "resnet18.json", ResNet18(), Path(place), devices)
        check_network(trainer, examples / "mobilenet.json", MobileNet(), Path(place), devices)
    return 0


if __name__ == "__main__":
    sys.exit(main())
