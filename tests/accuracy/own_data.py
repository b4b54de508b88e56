#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compares the accuracy on users' own data with PyTorch: the same rows, order and initial weights.

    python3 tests/accuracy/own_data.py --trainer ./trainer \\
        --jpegs build/release/tests/accuracy/make_jpegs

Creates the files of the five configs in examples/own (a folder of JPEGs from Fashion-MNIST, one in
colours and of different sizes, a table and a pair of arrays from scikit-learn's package, a
ResNet-18 that PyTorch trains and saves), trains each in both programs over the seeds, and compares
mean accuracies, or R². The program reads images for both (`trainer pack`). --same-bits instead
trains each on 1, 2 and 3 workers, with rows held out, clipping, averaged weights, augmentation and
frozen parameters, and once more with a kill on the way: the weights must be the same each time.

Exits with 0 if every run is within the tolerance or PyTorch's own spread, with 1 if one is not, and
with 77 (skipped) without PyTorch, NumPy, scikit-learn, safetensors or the data.
"""

import argparse
import csv
import importlib.util
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SKIPPED = 77
ROOT = Path(__file__).resolve().parents[2]
FASHION = "{}-images-idx3-ubyte.gz", "{}-labels-idx1-ubyte.gz"
NEEDED = "torch", "numpy", "sklearn", "safetensors"


# ---- the program's order of rows: Philox, then Fisher and Yates ------------------------------------

def random_words(seed, stream, epoch, count):
    """The first two words of ls_rng_words for the indices 0 … count − 1."""
    import numpy as np
    low, word = np.uint64(0xFFFFFFFF), np.uint64(32)
    c = [np.full(count, stream, np.uint64), np.full(count, epoch, np.uint64),
         np.arange(count, dtype=np.uint64), np.zeros(count, np.uint64)]
    k = [seed & 0xFFFFFFFF, seed >> 32]
    for _ in range(10):
        p, q = c[0] * np.uint64(0xD2511F53), c[2] * np.uint64(0xCD9E8D57)
        c = [(q >> word) ^ c[1] ^ np.uint64(k[0]), q & low,
             (p >> word) ^ c[3] ^ np.uint64(k[1]), p & low]
        k = [(k[0] + 0x9E3779B9) & 0xFFFFFFFF, (k[1] + 0xBB67AE85) & 0xFFFFFFFF]
    return c[0], c[1]


def permutation(rows, seed, epoch):
    high, low = random_words(seed, 1, epoch, rows)
    out = list(range(rows))
    for i in range(rows, 1, -1):
        j = ((int(high[i - 1]) << 32 | int(low[i - 1])) * i) >> 64
        out[i - 1], out[j] = out[j], out[i - 1]
    return out


# ---- files -------------------------------------------------------------------------------------

def split_jpegs(source, train, test, rows, classes=None):
    """Moves a folder's images to two, by their numbers; class k becomes k mod `classes`."""
    for path in sorted(source.glob("class*/*.jpg")):
        label = int(path.parent.name[5:])
        if classes:
            label %= classes
        folder = (train if int(path.stem) < rows else test) / f"class{label}"
        folder.mkdir(parents=True, exist_ok=True)
        path.rename(folder / path.name)


def make_jpegs(args, own, name, rows, test, classes=None, colours=False):
    images, labels = (str(args.data / f.format("train")) for f in FASHION)
    scratch = own / "scratch"
    subprocess.run([args.jpegs, images, labels, scratch, str(rows + test)]
                   + (["colours"] if colours else []), check=True)
    split_jpegs(scratch, own / name, own / f"{name}-test", rows, classes)
    subprocess.run(["rm", "-r", scratch], check=True)


def make_table(own):
    """Every third row is a test row; the columns have names, and the target is a text."""
    from sklearn.datasets import load_breast_cancer
    data = load_breast_cancer()
    for name, wanted in (("cancer.csv", (0, 1)), ("cancer-test.csv", (2,))):
        with open(own / name, "w", newline="", encoding="utf-8") as f:
            w = csv.writer(f)
            w.writerow([*data.feature_names, "diagnosis"])
            for i, (x, y) in enumerate(zip(data.data, data.target)):
                if i % 3 in wanted:
                    w.writerow([*(repr(float(v)) for v in x), data.target_names[y]])


def make_arrays(own):
    """Diabetes, 442 rows of 10 floats and a value; brought to mean 0 and deviation 1 by the training rows."""
    import numpy as np
    from sklearn.datasets import load_diabetes
    x, y = load_diabetes(return_X_y=True)
    test = np.arange(len(y)) % 4 == 3
    x = (x - x[~test].mean(0)) / x[~test].std(0)
    y = (y - y[~test].mean()) / y[~test].std()
    for name, rows in (("", ~test), ("test_", test)):
        np.save(own / f"{name}x.npy", x[rows].astype("float32"))
        np.save(own / f"{name}y.npy", y[rows].astype("float32"))


def make_files(args, own):
    own.mkdir(parents=True, exist_ok=True)
    for name in args.runs:
        if name in ("photos", "colours"):
            make_jpegs(args, own, name, args.rows, args.rows // 3, colours=name == "colours")
        elif name == "resnet18":
            make_jpegs(args, own, "first", args.rows, 500, colours=True)
            make_jpegs(args, own, "fine", args.rows // 2, args.rows // 3, classes=5, colours=True)
        else:
            {"table": make_table, "arrays": make_arrays}[name](own)


# ---- PyTorch ------------------------------------------------------------------------------------

def read_pixels(args, own, name, size, channels):
    """Both splits as tensors, from the file that the program packs; pixels from 0 to 1."""
    from safetensors.torch import load_file
    packed = own / f"{name}.safetensors"
    if not packed.exists():
        subprocess.run([args.trainer, "pack", own / name, "--test", own / f"{name}-test", "--to", packed, "--size",
                        str(size), "--channels", str(channels), "--quiet"], check=True)
    t = load_file(packed)
    return [t["x"].float() / 255, t["y"].long(), t["test_x"].float() / 255, t["test_y"].long()]


def read_table(own):
    import numpy as np
    import torch
    parts = []
    for name in ("cancer.csv", "cancer-test.csv"):
        with open(own / name, newline="", encoding="utf-8") as f:
            rows = list(csv.reader(f))[1:]
        parts.append((np.array([[float(v) for v in r[:-1]] for r in rows]),
                      np.array([r[-1] == "malignant" for r in rows], dtype="int64")))
    (x, y), (test_x, test_y) = parts
    mean, std = x.mean(0), x.std(0)
    return [torch.from_numpy(a) for a in
            (((x - mean) / std).astype("float32"), y, ((test_x - mean) / std).astype("float32"), test_y)]


def read_arrays(own):
    import numpy as np
    import torch
    return [torch.from_numpy(np.load(own / f"{n}.npy")) for n in ("x", "y", "test_x", "test_y")]


def resnet18(nn, classes):
    """torchvision's ResNet-18, with its names."""
    class Block(nn.Module):
        def __init__(self, channels, out, stride):
            super().__init__()
            self.conv1 = nn.Conv2d(channels, out, 3, stride, 1, bias=False)
            self.bn1 = nn.BatchNorm2d(out)
            self.conv2 = nn.Conv2d(out, out, 3, 1, 1, bias=False)
            self.bn2 = nn.BatchNorm2d(out)
            self.downsample = None
            if stride > 1:
                self.downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), nn.BatchNorm2d(out))

        def forward(self, x):
            y = self.bn2(self.conv2(self.bn1(self.conv1(x)).relu()))
            return (y + (self.downsample(x) if self.downsample else x)).relu()

    class ResNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv1 = nn.Conv2d(3, 64, 7, 2, 3, bias=False)
            self.bn1 = nn.BatchNorm2d(64)
            sizes = (64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)
            for i, (channels, out, stride) in enumerate(sizes):
                setattr(self, f"layer{i + 1}", nn.Sequential(Block(channels, out, stride), Block(out, out, 1)))
            self.fc = nn.Linear(512, classes)

        def forward(self, x):
            x = nn.functional.max_pool2d(self.bn1(self.conv1(x)).relu(), 3, 2, 1)
            x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
            return self.fc(x.mean((2, 3)))

    return ResNet()


def make_net(name, nn):
    """The config's model; the names of its parameters are the config's."""
    from collections import OrderedDict as Named
    if name == "table":
        return nn.Sequential(Named(fc1=nn.Linear(30, 32), relu=nn.ReLU(), fc2=nn.Linear(32, 2)))
    if name == "arrays":
        return nn.Sequential(Named(fc1=nn.Linear(10, 32), tanh=nn.Tanh(), fc2=nn.Linear(32, 1)))
    if name == "resnet18":
        return resnet18(nn, 5)
    return nn.Sequential(Named(
        conv1=nn.Conv2d(1 if name == "photos" else 3, 8, 5), a=nn.ReLU(), p=nn.MaxPool2d(2),
        conv2=nn.Conv2d(8, 16, 5), b=nn.ReLU(), q=nn.MaxPool2d(2), f=nn.Flatten(),
        fc1=nn.Linear(256, 64), c=nn.ReLU(), fc2=nn.Linear(64, 10)))


def read_rows(args, own, name):
    if name == "table":
        return read_table(own)
    if name == "arrays":
        return read_arrays(own)
    return read_pixels(args, own, "fine" if name == "resnet18" else name, 32 if name == "resnet18" else 28,
                       1 if name == "photos" else 3)


def pretrain(args, own):
    """A ResNet-18 that PyTorch trains on other rows, and saves: what is fine-tuned is own/resnet18.safetensors."""
    import torch
    from safetensors.torch import save_file
    from torch import nn
    if (own / "resnet18.safetensors").exists():
        return
    torch.manual_seed(0)
    x, y, _, _ = read_pixels(args, own, "first", 32, 3)
    net = resnet18(nn, 10)
    sgd = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(2):
        for rows in torch.randperm(len(y)).split(64):
            sgd.zero_grad()
            nn.functional.cross_entropy(net(x[rows]), y[rows]).backward()
            sgd.step()
    torch.save(net.state_dict(), own / "resnet18.pt")
    save_file(torch.load(own / "resnet18.pt"), own / "resnet18.safetensors")


def make_optimizer(torch, net, config):
    o = config["optimizer"]
    factors = config.get("lr_factors", {})
    groups = {}
    for key, p in net.named_parameters():
        factor = next((v for pattern, v in factors.items() if key.startswith(pattern.rstrip("*"))), 1)
        groups.setdefault(factor, []).append(p)
    rates = [{"params": p, "lr": o["lr"] * f} for f, p in groups.items()]
    if o["name"] == "adamw":
        return torch.optim.AdamW(rates, lr=o["lr"], weight_decay=0.01)
    return torch.optim.SGD(rates, lr=o["lr"], momentum=o["momentum"])


def train_torch(net, config, rows, seed, verbose):
    """Accuracy, or R², on the test rows behind the last epoch."""
    import torch
    from torch.nn import functional as F
    x, y, test_x, test_y = rows
    values = config.get("loss") == "mse"
    frozen = tuple(p.rstrip("*") for p in config.get("freeze", []))
    for key, p in net.named_parameters():
        p.requires_grad = not key.startswith(frozen) if frozen else True
    optimizer = make_optimizer(torch, net, config)
    for epoch in range(config["epochs"]):
        total = 0.0
        net.train()
        for key, module in net.named_modules():
            if frozen and f"{key}.".startswith(frozen):
                module.eval()
        for at in torch.tensor(permutation(len(y), seed, epoch)).split(config["batch_size"]):
            optimizer.zero_grad()
            out = net(x[at])
            loss = F.mse_loss(out[:, 0], y[at]) if values else F.cross_entropy(out, y[at])
            loss.backward()
            if "clip_norm" in config["optimizer"]:
                torch.nn.utils.clip_grad_norm_([p for p in net.parameters() if p.requires_grad],
                                               config["optimizer"]["clip_norm"])
            optimizer.step()
            total += float(loss.detach()) * len(at)
        if verbose:
            print(f"  torch epoch {epoch + 1}: loss {total / len(y):.4f}", flush=True)
    net.eval()
    with torch.no_grad():
        out = net(test_x)
        if values:
            return 1 - float(((out[:, 0] - test_y) ** 2).mean() / test_y.var(correction=0))
        return float((out.argmax(1) == test_y).float().mean())


# ---- the program --------------------------------------------------------------------------------

def command(args, name, own, **sets):
    """Trains a config of examples/own where the files are."""
    return [args.trainer, ROOT / f"examples/own/{name}.json",
            *(w for k, v in sets.items() for w in ("--set", f"{k.replace('__', '.')}={v}"))]


def run(args, words, own, **options):
    env = {**os.environ, "XDG_CACHE_HOME": str(own / "cache")}
    return subprocess.run([str(w) for w in words], cwd=own.parent, env=env, check=True, stdout=subprocess.PIPE,
                          stderr=None if args.verbose else subprocess.DEVNULL, text=True, **options).stdout


def train_ours(args, name, own, config, rows, seed, **sets):
    words = command(args, name, own, seed=seed, run_dir="null", eval_every=0, threads=1, **sets)
    records = [json.loads(line) for line in run(args, [*words, "--devices", "cpu:1", "--metrics", "-"], own).splitlines()]
    last = [r for r in records if r["type"] == "eval"][-1] if any(r["type"] == "eval" for r in records) else records[-1]
    if config.get("loss") == "mse":
        return 1 - last["test_loss"] / float(rows[3].var(correction=0))
    return last["test_accuracy"]


def first_weights(args, name, own, seed):
    """What the program begins with: a run whose steps change nothing; its batch norms' statistics aside."""
    from safetensors.torch import load_file
    with tempfile.TemporaryDirectory(dir=own) as scratch:
        words = command(args, name, own, seed=seed, run_dir=f"{scratch}/run", epochs=1, optimizer__lr="1e-30",
                        eval_every=0)
        run(args, words + (["--set", "optimizer.weight_decay=0"] if name == "table" else []), own)
        return load_file(Path(scratch) / "run/weights.safetensors")


def load_start(args, name, own, net, seed):
    from safetensors.torch import load_file
    start = first_weights(args, name, own, seed)
    if name == "resnet18":
        saved = load_file(own / "resnet18.safetensors")
        start = {k: v if k.startswith("fc.") else saved[k] for k, v in start.items()}
    net.load_state_dict(start, strict=False)
    assert {k for k, _ in net.named_parameters()} <= set(start), "the names of both are the same"


def compare(args, own):
    import torch
    from torch import nn
    torch.set_num_threads(args.threads)
    good = True
    for name in args.runs:
        if name == "resnet18":
            pretrain(args, own)
        config = json.loads((ROOT / f"examples/own/{name}.json").read_text())
        config["epochs"] = min(config["epochs"], args.epochs or config["epochs"])
        rows = read_rows(args, own, name)
        what = "R2" if config.get("loss") == "mse" else "accuracy"
        ours, theirs, begin = [], [], time.monotonic()
        for seed in args.seeds:
            net = make_net(name, nn)
            load_start(args, name, own, net, seed)
            theirs.append(train_torch(net, config, rows, seed, args.verbose))
            ours.append(train_ours(args, name, own, config, rows, seed, epochs=config["epochs"]))
        a, b, spread = statistics.fmean(ours), statistics.fmean(theirs), max(theirs) - min(theirs)
        same = abs(a - b) <= max(args.tolerance, spread) and min(a, b) >= args.least
        good = good and same
        print(f"{name:9} {len(rows[1]):5} rows, {config['epochs']:2} epochs: {what} lockstep {a:.4f} "
              f"({' '.join(f'{v:.4f}' for v in ours)}), torch {b:.4f} ({' '.join(f'{v:.4f}' for v in theirs)}), "
              f"difference {a - b:+.4f}, torch's spread {spread:.4f}: {'within' if same else 'NOT within'}; "
              f"{time.monotonic() - begin:.0f} s", flush=True)
    return 0 if good else 1


# ---- the same bits -------------------------------------------------------------------------------

def same_bits(args, own):
    """Each run on 1, 2 and 3 workers, and killed on the way and resumed."""
    import hashlib
    good = True
    for name in args.runs:
        if name == "resnet18":
            pretrain(args, own)
        sets = {"shards": 4, "epochs": 2, "ema": 0.9, "optimizer__clip_norm": 0.5, "data__validation": 0.2,
                "checkpoint__every_steps": 2}
        if name != "resnet18":
            sets["freeze"] = '["*.bias"]'
        if name in ("photos", "colours", "resnet18"):
            sets |= {"augment__crop": 2, "augment__flip": "true", "augment__rotate": 10, "augment__erase": 6,
                     "augment__brightness": 0.2}
        sets["augment__mixup"] = 0.5
        digests = {}
        with tempfile.TemporaryDirectory(dir=own) as scratch:
            for workers in (1, 2, 3, "killed"):
                to = Path(scratch) / str(workers)
                words = command(args, name, own, run_dir=to, **sets)
                if workers == "killed":
                    killed = run_killed(args, words, own, to)
                else:
                    run(args, [*words, "--devices", f"cpu:{workers}"], own)
                digests[workers] = hashlib.sha256((to / "weights.safetensors").read_bytes()).hexdigest()[:16]
        same = len(set(digests.values())) == 1
        good = good and same
        print(f"{name:9} weights of 1, 2, 3 workers and of a killed and resumed run: "
              f"{' '.join(digests.values())}: {'the same' if same else 'DIFFERENT'}"
              + ("" if killed else " (it was over before it could be killed)"), flush=True)
    return 0 if good else 1


def run_killed(args, words, own, to):
    """Killed as soon as a checkpoint is there, then resumed with another number of workers."""
    env = {**os.environ, "XDG_CACHE_HOME": str(own / "cache")}
    with subprocess.Popen([str(w) for w in [*words, "--devices", "cpu:3"]], cwd=own.parent, env=env,
                          stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as process:
        while process.poll() is None and not list(to.glob("checkpoints/step-*")):
            time.sleep(0.002)
        process.kill()
    killed = not (to / "weights.safetensors").exists()
    if killed:
        run(args, [args.trainer, "--resume", to, "--devices", "cpu:2"], own)
    return killed


def parse_arguments():
    names = ["photos", "colours", "table", "arrays", "resnet18"]
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument("--trainer", type=Path, required=True, help="the program")
    p.add_argument("--jpegs", type=Path, required=True, help="make_jpegs, which tests/accuracy builds")
    p.add_argument("--data", type=Path, default=Path("/usr/share/datasets/fashion-mnist"), help="Fashion-MNIST")
    p.add_argument("--own", type=Path, help="keep the files there; FOLDER/own")
    p.add_argument("--make", action="store_true", help="only make the files")
    p.add_argument("--runs", nargs="+", choices=names, default=names)
    p.add_argument("--rows", type=int, default=6000)
    p.add_argument("--epochs", type=int, default=0, help="at most; 0: the configs'")
    p.add_argument("--seeds", type=int, nargs="+", default=[1, 2, 3])
    p.add_argument("--threads", type=int, default=2)
    p.add_argument("--tolerance", type=float, default=0.01)
    p.add_argument("--least", type=float, default=0.3, help="a run that learned nothing proves nothing")
    p.add_argument("--same-bits", action="store_true")
    p.add_argument("--verbose", action="store_true")
    return p.parse_args()


def main():
    args = parse_arguments()
    args.trainer, args.jpegs = args.trainer.resolve(), args.jpegs.resolve()
    missing = [m for m in NEEDED if importlib.util.find_spec(m) is None]
    if missing or not all((args.data / f.format("train")).exists() for f in FASHION):
        print(f"skipped: {', '.join(missing) or 'Fashion-MNIST'} is missing")
        return SKIPPED
    with tempfile.TemporaryDirectory(prefix="lockstep-own.") as scratch:
        own = (args.own or Path(scratch)).resolve() / "own"
        make_files(args, own)
        if args.make:
            if "resnet18" in args.runs:
                pretrain(args, own)
            return 0
        return (same_bits if args.same_bits else compare)(args, own)


if __name__ == "__main__":
    sys.exit(main())
