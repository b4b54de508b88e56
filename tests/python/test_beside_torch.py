# SPDX-License-Identifier: MIT
"""Uses the package together with PyTorch in one process: weights in and out, threads, forks."""
import numpy as np
import pytest

import lockstep_trainer as lockstep

torch = pytest.importorskip("torch")

LENET = {
    "data": {"mean": 0.3, "std": 0.3}, "batch_size": 64, "epochs": 2, "devices": "cpu:2",
    "model": {"layers": [{"type": "conv2d", "name": "conv1", "out": 20, "kernel": 3}, {"type": "relu"},
                         {"type": "avg_pool", "kernel": 2},
                         {"type": "conv2d", "name": "conv2", "out": 50, "kernel": 5}, {"type": "relu"},
                         {"type": "avg_pool", "kernel": 2}, {"type": "flatten"},
                         {"type": "dense", "name": "fc1", "out": 128}, {"type": "relu"},
                         {"type": "dense", "name": "fc2", "out": 10}]},
    "init": "kaiming", "optimizer": {"name": "sgd", "lr": 0.05, "momentum": 0.9}}


class LeNet(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.conv1, self.conv2 = torch.nn.Conv2d(1, 20, 3), torch.nn.Conv2d(20, 50, 5)
        self.fc1, self.fc2 = torch.nn.Linear(800, 128), torch.nn.Linear(128, 10)

    def forward(self, x):
        x = torch.nn.functional.avg_pool2d(torch.relu(self.conv1(x)), 2)
        x = torch.nn.functional.avg_pool2d(torch.relu(self.conv2(x)), 2).flatten(1)
        return self.fc2(torch.relu(self.fc1(x)))


def bars(n, seed=0):
    """28 × 28, with a bright stripe whose place is the class."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 10, n)
    x = draw.integers(0, 120, (n, 28, 28), dtype=np.uint8)
    for i in range(n):
        x[i, :, 2 * y[i] + 4:2 * y[i] + 6] += 120
    return x, y


def as_floats(x):
    return torch.from_numpy((x[:, None].astype(np.float32) / 255 - 0.3) / 0.3)


def steps_of_torch(net, x, y, steps):
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05)
    for i in range(steps):
        rows = slice(64 * i % 1024, 64 * i % 1024 + 64)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(net(as_floats(x[rows])), torch.from_numpy(y[rows])).backward()
        optimizer.step()


def same(a, b):
    return list(a) == list(b) and all(np.asarray(a[k]).tobytes() == np.asarray(b[k]).tobytes() for k in a)


def test_a_lenet_trained_in_pytorch_is_trained_on_and_given_back(tmp_path):
    torch.manual_seed(0)
    x, y = bars(1024)
    x_test, y_test = bars(300, 1)
    net = LeNet()
    steps_of_torch(net, x, y, 16)
    theirs = {name: w.clone() for name, w in net.state_dict().items()}
    with lockstep.Trainer(LENET, data=(x, y), test=(x_test, y_test), set={"epochs": 6}) as trainer:
        trainer.load(net.state_dict())
        assert same(theirs, {name: trainer.weights()[name] for name in theirs})  # in and out, bit for bit
        with torch.no_grad():
            assert np.abs(trainer.predict(x_test, logits=True) - net(as_floats(x_test)).numpy()).max() < 1e-4
        before = trainer.evaluate()[1]
        result = trainer.fit(save=tmp_path / "model.safetensors")
        assert result.test_accuracy > max(before, 0.8)
        ours = trainer.weights()
        net.load_state_dict({name: torch.from_numpy(w) for name, w in ours.items()})
        assert same(ours, {name: net.state_dict()[name] for name in ours})  # and back
        with torch.no_grad():
            logits = net(as_floats(x_test)).numpy()
        assert np.abs(trainer.predict(x_test, logits=True) - logits).max() < 1e-4
        assert (logits.argmax(1) == y_test).mean() == result.test_accuracy
    with lockstep.Model.open(tmp_path / "model.safetensors") as model:
        assert same(ours, model.weights())


def test_pytorchs_threads_and_forked_loaders_change_no_bit():
    x, y = bars(1024)
    with lockstep.Trainer(LENET, data=(x, y), test=bars(100, 1)) as trainer:
        alone = trainer.fit().weights_sha256
    net, loaded = LeNet(), 0
    rows = torch.utils.data.TensorDataset(as_floats(x), torch.from_numpy(y))
    with lockstep.Trainer(LENET, data=(x, y), test=bars(100, 1)) as trainer:
        for record in trainer.records():  # all of it while the run goes on
            if record["type"] == "epoch":
                steps_of_torch(net, x, y, 2)
                for batch, _ in torch.utils.data.DataLoader(rows, batch_size=256, num_workers=2):
                    loaded += len(batch)
        assert trainer.result.weights_sha256 == alone
    assert loaded == 2 * 1024


def test_steps_in_turns_with_pytorch_are_the_steps_alone():
    x, y = bars(640)
    net, losses = LeNet(), []
    for beside in (False, True):
        with lockstep.Trainer(LENET, shape=(1, 28, 28), classes=10) as trainer:
            losses.append([])
            for i in range(0, 640, 64):
                losses[-1].append(trainer.step(x[i:i + 64], y[i:i + 64]))
                if beside:
                    steps_of_torch(net, x, y, 1)
    assert losses[0] == losses[1]
