#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Makes honest runs in every way in which a run can come about, and checks that a verifier on another
kind of CPU accuses none of them.

Fourteen recipes have data of all forms and the keys that have a state or draw random numbers. Each is
trained under one kind of CPU (AVX-512, AVX2, none of them: glibc hides what the machine has) in some
of these ways:

    plain        on 1 to 8 workers
    stopped      the last device is lost, and the run is resumed on another kind of CPU
    signalled    SIGTERM at a random moment, and resumed
    longer       the run has ended, and is resumed with more epochs (if the schedule allows it)
    device lost  the others go on
    two hosts    with another kind of CPU each
    host lost    the other one goes on
    arrival      a third host is admitted

All ways must write the same receipt, byte by byte, and `trainer verify` must find no difference, under
another kind of CPU and on another number of workers. A resume that evaluates in another way, which
could not be verified, must be refused.

    honest.py TRAINER [--long] [--recipe NAME…] [--seed N] [--neon COMMAND]

Without --long each recipe is made in two ways. COMMAND starts a program for ARM64, such as "qemu-aarch64
build/arm64/trainer"; NEON is then one more kind of CPU. A recipe, way or kind of CPU that the machine or the
program does not have is named at the end.
"""
import argparse
import json
import os
import random
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from file_bytes import npy, png, safetensors  # noqa: E402
from free_port import free_port  # noqa: E402
from onnx_bytes import onnx_file, onnx_floats, onnx_node  # noqa: E402

CPUS = {"avx512": "", "avx2": "-AVX512F", "generic": "-AVX512F,-AVX2"}
WAIT_S = 300

# ---- data ----------------------------------------------------------------------------------------


def table(path, rows, draw):
    lines = ["a,b,kind,w,y,count,label"]
    for i in range(rows):
        a, b, kind = draw.uniform(-1, 1), draw.uniform(-1, 1), draw.choice("pqr")
        y = a * b + a + (kind == "q") + draw.gauss(0, 0.1)
        lines.append(f"{a:.4f},{'' if i % 50 == 7 else f'{b:.4f}'},{kind},{draw.choice([0, 1, 2.5])},{y:.4f},"
                     f"{int(4 * abs(y))},{'rare' if y > 1.6 else 'high' if y > 0 else 'low'}")
    path.write_text("\n".join(lines) + "\n")


def network(path):
    """Writes an ONNX file of a small convolutional network with ten outputs."""
    nodes = [onnx_node("Conv", ["x", "body.weight", "body.bias"], "a", kernel_shape=[3, 3]), onnx_node("Relu", ["a"], "b"),
             onnx_node("GlobalAveragePool", ["b"], "c"), onnx_node("Flatten", ["c"], "d", axis=1),
             onnx_node("Gemm", ["d", "fc.weight", "fc.bias"], "y", transB=1)]
    tensors = [onnx_floats("body.weight", 3, 1, 3, 3), onnx_floats("body.bias", 3), onnx_floats("fc.weight", 10, 3),
               onnx_floats("fc.bias", 10)]
    path.write_bytes(onnx_file(nodes, tensors, shape=("n", 1, 8, 8)))


def floats(values):
    return struct.pack(f"<{len(values)}f", *values)


def make_data(folder, draw):
    for name, rows in (("train", 512), ("test", 96)):
        table(folder / f"{name}.csv", rows, draw)
        images = draw.randbytes(rows * 64)
        (folder / f"{name}_images.npy").write_bytes(npy("|u1", (rows, 1, 8, 8), images))
        classes = struct.pack(f"<{rows}i", *(images[64 * i] // 64 for i in range(rows)))
        (folder / f"{name}_classes.npy").write_bytes(npy("<i4", (rows,), classes))
        x = [draw.gauss(3, 2) for _ in range(rows * 6)]
        (folder / f"{name}_x.npy").write_bytes(npy("<f4", (rows, 6), floats(x)))
        votes = floats([float(v > 3) for v in x[:3 * rows]])
        (folder / f"{name}_votes.npy").write_bytes(npy("<f4", (rows, 3), votes))
    tensors = []
    for name, rows in (("x", 512), ("test_x", 96)):
        x = [draw.gauss(3, 2) for _ in range(rows * 6)]
        y = [v for i in range(rows) for v in (x[6 * i] * 40 - x[6 * i + 1], x[6 * i + 2])]
        tensors += [(name, "F32", [rows, 6], floats(x)), (name.replace("x", "y"), "F32", [rows, 2], floats(y))]
    (folder / "tensors.safetensors").write_bytes(safetensors(tensors))
    network(folder / "net.onnx")
    for split, count in (("train", 256), ("val", 40)):
        for i in range(count):
            place = folder / "pictures" / split / ("dark" if i % 2 else "light")
            place.mkdir(parents=True, exist_ok=True)
            lines = [bytes(draw.randrange(128) + 100 * (1 - i % 2) for _ in range(3 * 9)) for _ in range(9)]
            (place / f"{i}.png").write_bytes(png(9, lines, kind=2))
    idx = folder / "idx"
    idx.mkdir()
    for name, rows in (("train", 500), ("t10k", 96)):
        images = draw.randbytes(rows * 784)
        (idx / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">4I", 2051, rows, 28, 28) + images)
        (idx / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">2I", 2049, rows) +
                                                       bytes(images[784 * i] // 26 for i in range(rows)))


# ---- recipes -------------------------------------------------------------------------------------

def dense(*outs):
    layers = []
    for out in outs:
        layers += [{"type": "relu"}] * bool(layers) + [{"type": "dense", "out": out}]
    return layers


def conv(out, *after):
    return [{"type": "conv2d", "name": "c", "out": 4, "kernel": 3}, {"type": "batch_norm", "name": "n"},
            {"type": "relu"}, *after, {"type": "flatten"}, {"type": "dense", "name": "d", "out": out}]


def arrays(y):
    x = "x" if y == "votes" else "images"
    return {"name": "npy", "x": f"train_{x}.npy", "y": f"train_{y}.npy", "test_x": f"test_{x}.npy",
            "test_y": f"test_{y}.npy"}


SGD = {"name": "sgd", "lr": 0.02, "momentum": 0.9}
CSV = {"name": "csv", "missing": "mean"}
NOT_INPUT = {"quantile": ["count", "label"], "classes": ["y", "count", "w"], "counts": ["y", "label", "w"]}

RECIPES = {
    "quantile": {
        "data": CSV | {"target": "y", "weight": "w", "labels": "values", "drop": NOT_INPUT["quantile"]},
        "loss": "quantile", "quantiles": [0.1, 0.5, 0.9], "layers": dense(6, 3), "eval_every": 10,
        "optimizer": {"name": "adamw", "lr": 0.01, "weight_decay": 0.1},
        "schedule": {"name": "cosine", "warmup_epochs": 3}},
    "classes": {
        "data": CSV | {"target": "label", "drop": NOT_INPUT["classes"]}, "class_weights": "balanced",
        "layers": dense(5, 3), "optimizer": SGD | {"nesterov": True}, "label_smoothing": 0.1,
        "eval_every": 7, "patience": 50, "monitor": "loss"},
    "images": {
        "data": arrays("classes"), "layers": conv(4), "ema": 0.9, "optimizer": SGD, "eval_every": 0,
        "schedule": {"name": "one_cycle"}, "augment": {"mixup": 0.2, "resized_crop": 0.5, "flip": True}},
    "tensors": {
        "data": {"name": "safetensors", "standardize": True}, "loss": "mse", "layers": dense(4, 2),
        "optimizer": {"name": "sgd", "lr": 0.02, "clip_norm": 1}, "lr_scaling": "linear",
        "metrics": {"names": ["r2", "mae"]}, "monitor": "r2", "eval_every": 15},
    "pictures": {
        "data": {"name": "folder", "image_size": 8}, "layers": conv(2), "optimizer": SGD, "shards": 3,
        "augment": {"crop": 1, "rotate": 10, "brightness": 0.2}, "eval_every": 40, "epochs": 210},
    "idx": {
        "data": {"name": "mnist"}, "optimizer": SGD, "gradient_scale": "nominal", "eval_every": 0,
        "layers": [{"type": "avg_pool", "kernel": 4}, *conv(10, {"type": "dropout", "p": 0.2})],
        "schedule": {"name": "step", "every_epochs": 20, "gamma": 0.5}, "augment": {"erase": 4}},
    "frozen": {
        "data": {"name": "synthetic", "limit": 512}, "freeze": "c.*", "freeze_epochs": 60,
        "layers": [{"type": "avg_pool", "kernel": 4}, *conv(10)], "lr_factors": {"d.*": 2},
        "optimizer": {"name": "adamw", "lr": 0.003}, "eval_every": 35},
    "averaged": {
        "data": {"name": "synthetic", "limit": 300}, "ema": 0.99, "eval_every": 3, "patience": 4,
        "layers": [{"type": "avg_pool", "kernel": 7}, {"type": "flatten"}, *dense(10)],
        "optimizer": SGD | {"weight_decay": 0.001}, "schedule": {"name": "triangular"}},
    "votes": {
        "data": arrays("votes") | {"validation": 0.25}, "loss": "bce", "layers": dense(4, 3),
        "optimizer": {"name": "adamw", "lr": 0.01}, "on_nonfinite": "skip", "batch_size": 128, "epochs": 75,
        "eval_every": 5},
    "counts": {
        "data": CSV | {"target": "count", "labels": "values", "drop": NOT_INPUT["counts"], "clip": 3},
        "loss": "poisson", "layers": dense(4, 1), "optimizer": SGD | {"lr": 0.002}, "eval_every": 21},
    "fold": {
        "data": CSV | {"target": "label", "weight": "w", "drop": ["y", "count"], "validation": 0.2, "fold": 2,
                       "unknown": "zeros"},
        "class_weights": [1, 2, 5], "ema": 0.9, "layers": dense(4, 3), "optimizer": SGD, "eval_every": 15},
    "resized": {
        "data": {"name": "folder", "resize": [10, 11], "crop": 8, "interpolation": "bicubic"}, "layers": conv(2),
        "augment": {"resized_crop": 0.3, "flip": True}, "freeze": "c.*", "freeze_epochs": 40, "optimizer": SGD,
        "eval_every": 30, "epochs": 210},
    "imagenet": {  # one segment of large pictures
        "data": {"name": "folder", "pictures": "imagenet", "limit": 48}, "augment": {"resized_crop": 0.08}, "epochs": 1,
        "layers": [{"type": "avg_pool", "kernel": 28}, *conv(2)], "optimizer": SGD, "eval_every": 1, "batch_size": 16},
    "uneven": {  # 7 steps an epoch, so that segments begin and end within epochs
        "data": {"name": "synthetic", "limit": 1600}, "eval_every": 2, "optimizer": SGD,
        "layers": [{"type": "avg_pool", "kernel": 7}, {"type": "flatten"}, *dense(10)]},
    "network": {
        "data": arrays("classes") | {"mean": 0.5, "std": 0.25}, "model": {"onnx": "net.onnx", "head": "new"},
        "freeze": ["*", "!fc.*"], "freeze_epochs": 50, "lr_factors": {"*": 0.1, "fc.*": 1}, "optimizer": SGD,
        "eval_every": 35},
}
PLACES = {"csv": ("train.csv", "test.csv"), "npy": (".", None), "safetensors": ("tensors.safetensors", None),
          "folder": ("pictures/train", "pictures/val"), "mnist": ("idx", None)}
# What a run may not change when it is resumed, since its records would be those of no replay.
OTHER_EVALUATIONS = {"eval_every": 4, "patience": 9, "monitor": "loss", "metrics.names": []}


def config_of(folder, name, run):
    recipe = dict(RECIPES[name])
    config = {"batch_size": 256, "shards": 4, "epochs": 105, "seed": 7, "receipt": True, "run_dir": str(run),
              "cluster": {"deadline_s": 5}} | recipe
    config.setdefault("model", {"layers": config.pop("layers", None)})
    train, test = PLACES.get(config["data"]["name"], (None, None))
    config["data"] = config["data"] | {k: str(folder / v) for k, v in (("path", train), ("test_path", test)) if v}
    return config


# ---- runs ----------------------------------------------------------------------------------------

class Campaign:
    def __init__(self, trainer, neon, folder, draw):
        self.folder, self.draw = folder, draw
        self.command = {cpu: [trainer] for cpu in CPUS} | {"neon": neon}
        self.runs, self.verified, self.refused, self.wrong, self.missing = 0, 0, 0, [], set()
        self.cpus = [c for c in self.command if self.has(c)]
        self.missing |= {f"no {c}" for c in self.command if c not in self.cpus}

    def blame(self, what):
        print("WRONG:", what, flush=True)
        self.wrong.append(what)

    def environment(self, cpu):
        hidden = {"GLIBC_TUNABLES": f"glibc.cpu.hwcaps={CPUS[cpu]}"} if CPUS.get(cpu) else {}
        return os.environ | hidden | {"XDG_CACHE_HOME": str(self.folder / "cache")}

    def has(self, cpu):
        """Returns whether the program computes with this kind of CPU when it is asked to."""
        self.cpus = list(self.command)
        shown = "generic" if cpu == "neon" else cpu  # the one name of all kinds that are not of x86
        return bool(self.command[cpu]) and shown in self.call(cpu, "devices").stdout.lower()

    def start(self, cpu, *arguments):
        return subprocess.Popen([*self.command[cpu], *map(str, arguments)], env=self.environment(cpu), text=True,
                                stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)

    def call(self, cpu, *arguments):
        process = self.start(cpu, *arguments)
        try:
            said = process.communicate(timeout=WAIT_S)[0]
        except subprocess.TimeoutExpired:
            process.kill()
            said = process.communicate()[0] + "\nHANG"
        return subprocess.CompletedProcess(process.args, process.returncode, said)

    def expect(self, done, status):
        if done.returncode != status:
            raise RuntimeError(f"{' '.join(done.args[1:])}: exit {done.returncode}, not {status}: {done.stdout[-600:]}")
        return done

    def workers(self):
        return f"cpu:{self.draw.choice([1, 2, 3, 5, 8])}"

    def train(self, cpu, config, *more, status=0):
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        return self.expect(self.call(cpu, path, "--devices", self.workers(), "--quiet", *more), status)

    def resume(self, cpu, run, *more):
        return self.expect(self.call(cpu, "--resume", run, "--devices", self.workers(), "--quiet", *more), 0)

    # the ways, each with the kinds of CPU that take part

    def plain(self, cpu, other, config):
        self.train(cpu, config)

    def stopped(self, cpu, other, config):
        at = self.draw.choice([101, 100, 57, 150])
        self.train(cpu, config, "--devices", "cpu:1", "--inject", f"worker=0,step={at},kind=fail", status=71)
        self.refuse_other_evaluations(cpu, config)
        self.resume(other, config["run_dir"])

    @staticmethod
    def may_be_set(key, config):
        """Returns whether the other value of a key of evaluations goes together with the config's other keys."""
        if key == "metrics.names":  # the metric by which the best evaluation is found is measured
            return config.get("monitor", "loss") == "loss"
        return key != "patience" or config["eval_every"] > 0

    def refuse_other_evaluations(self, cpu, config):
        key = self.draw.choice([k for k in OTHER_EVALUATIONS if self.may_be_set(k, config)])
        given = config
        for part in key.split("."):
            given = given.get(part, {}) if isinstance(given, dict) else {}
        if given == OTHER_EVALUATIONS[key]:
            return
        done = self.call(cpu, "--resume", config["run_dir"], "--quiet", "--set",
                         f"{key}={json.dumps(OTHER_EVALUATIONS[key])}")
        self.refused += 1
        if done.returncode != 78 or "cannot be verified" not in done.stdout:
            self.blame(f"{key} at a resume: exit {done.returncode}: {done.stdout[-300:]}")

    def signalled(self, cpu, other, config):
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        run = self.start(cpu, path, "--devices", self.workers(), "--quiet")
        time.sleep(self.draw.uniform(0, 0.6))
        run.send_signal(signal.SIGTERM)
        said = run.communicate(timeout=WAIT_S)[0]
        if run.returncode in (-signal.SIGTERM, 143) or not (Path(config["run_dir"]) / "checkpoints").is_dir():
            shutil.rmtree(config["run_dir"], ignore_errors=True)
            self.train(other, config)  # the signal came before the run had begun
        elif run.returncode == 75:
            self.resume(other, config["run_dir"])
        elif run.returncode != 0:
            raise RuntimeError(f"after SIGTERM: exit {run.returncode}: {said[-300:]}")

    def longer(self, cpu, other, config):
        """Also with an end at which there is an evaluation that the longer run does not have."""
        schedule = config.get("schedule", {}).get("name")
        if schedule in ("cosine", "one_cycle") or "patience" in config:
            return self.plain(cpu, other, config)
        every = config["eval_every"]
        self.train(cpu, config | {"epochs": 40})
        more = ["--set", f"epochs={config['epochs']}"]
        if every == 0 or 40 % every:
            done = self.call(other, "--resume", config["run_dir"], "--quiet", *more)
            self.refused += 1
            if done.returncode != 78 or "epochs: this run was evaluated with" not in done.stdout:
                self.blame(f"more epochs: exit {done.returncode}: {done.stdout[-300:]}")
            shutil.rmtree(config["run_dir"])
            return self.plain(cpu, other, config)
        return self.resume(other, config["run_dir"], *more)

    def device_lost(self, cpu, other, config):
        self.train(cpu, config, "--devices", "cpu:3", "--inject", "worker=1,step=120,kind=fail,stage=apply")

    def hosts(self, cpus, config, stalls=(), during=None):
        """Trains on a host for each of `cpus`. `during`: called with a function that starts another host."""
        port = free_port()
        secret, path = self.folder / "key", self.folder / "config.json"
        secret.write_text("x" * 32)
        secret.chmod(0o600)
        path.write_text(json.dumps(config))

        def start(number, cpu):
            place = ["--listen", f"127.0.0.1:{port}"]
            if number > 0:
                place = ["--join", f"127.0.0.1:{port}", "--listen", "127.0.0.1:0"]
            stall = ["--inject", "worker=0,step=3,kind=stall,stage=start,seconds=1.5"] if number in stalls else []
            return self.start(cpu, path, "--devices", f"cpu:{1 + number % 2}", "--quiet", "--members", "2",
                              "--secret", secret, "--wait", "120", *place, *stall)
        members = [start(i, cpu) for i, cpu in enumerate(cpus)]
        records, end = Path(config["run_dir"]) / "metrics.jsonl", time.monotonic() + WAIT_S
        if during:
            while (not (records.exists() and '"type":"step"' in records.read_text()) and members[0].poll() is None
                   and time.monotonic() < end):
                time.sleep(0.02)
            during(members, start)
        for i, member in enumerate(members):
            said = member.communicate(timeout=WAIT_S)[0]
            if member.returncode not in ((0,) if i != 1 or not during else (0, -9)):
                raise RuntimeError(f"host {i} of {len(members)}: exit {member.returncode}: {said[-500:]}")

    def two_hosts(self, cpu, other, config):
        self.hosts([cpu, other], config)

    def host_lost(self, cpu, other, config):
        if "freeze_epochs" in config:  # is refused where hosts may come and go
            return self.two_hosts(cpu, other, config)
        config = config | {"cluster": {"deadline_s": 5, "on_host_loss": "continue"}}
        self.hosts([cpu, other], config, stalls=[1], during=lambda members, start: members[1].kill())
        self.see(config, "fault")

    def arrival(self, cpu, other, config):
        if "freeze_epochs" in config:
            return self.two_hosts(cpu, other, config)
        config = config | {"cluster": {"deadline_s": 5, "on_host_loss": "continue", "on_arrival": "admit"}}
        self.hosts([cpu, other], config, stalls=[0],
                   during=lambda members, start: members.append(start(2, other)))
        self.see(config, "arrival")

    def see(self, config, kind):
        """Notes a run in which what should happen did not: it may have ended before."""
        if f'"type":"{kind}"' not in (Path(config["run_dir"]) / "metrics.jsonl").read_text():
            self.missing.add(f"a run without the record {kind}")

    # verifying

    def verify(self, what, run, cpu, *more):
        done = self.call(cpu, "verify", run, "--devices", self.workers(), "--quiet", *more)
        self.verified += 1
        if done.returncode != 0:
            self.blame(f"{what}, verified under {cpu} {' '.join(more)}: exit {done.returncode}: "
                              f"{done.stdout[-600:]}")

    def check(self, name, way, cpu, others, receipts):
        run = self.folder / "run"
        shutil.rmtree(run, ignore_errors=True)
        what = f"{name}, {way}, made under {cpu}"
        other = self.draw.choice(self.cpus)
        getattr(self, way)(cpu, other, config_of(self.folder, name, run))
        self.runs += 1
        receipt = (run / "receipt.json").read_text()
        if receipts.setdefault(name, receipt) != receipt:
            self.blame(f"{what}: another receipt than that of a run in another way")
        model = RECIPES[name].get("model")  # the verifier has the file of the first weights too
        own = ["--set", f"model={json.dumps(model | {'onnx': str(self.folder / model['onnx'])})}"] if model else []
        for i, verifier in enumerate(others):
            self.verify(what, run, verifier, *own, *(["--segments", "1"] if i else ["--all"]))


WAYS = ["plain", "stopped", "device_lost", "two_hosts", "longer", "signalled", "host_lost", "arrival"]
FEW = {"imagenet": ["plain", "two_hosts"]}  # ways of a recipe that has too few steps for the others


def plan(campaign, names, long):
    """Yields recipe, way, kind of CPU, and those of the verifiers."""
    cpus = campaign.cpus
    for i, name in enumerate(names):
        ways = FEW.get(name, WAYS)
        if long:
            for k, way in enumerate(ways):
                for j, cpu in enumerate(cpus if way in ("plain", "stopped") else [cpus[(i + k) % len(cpus)]]):
                    yield name, way, cpu, cpus[j + 1:] + cpus[:j + 1]
            continue
        for way in (ways[i % len(ways)], ways[(i + 3) % len(ways)]):
            yield name, way, cpus[i % len(cpus)], [cpus[(i + 1) % len(cpus)]]


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=os.path.abspath)
    parser.add_argument("--long", action="store_true")
    parser.add_argument("--recipe", choices=RECIPES, nargs="+", default=list(RECIPES))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--neon", type=str.split, default=[], metavar="COMMAND")
    a = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        campaign = Campaign(a.trainer, a.neon, Path(place), random.Random(a.seed))
        make_data(campaign.folder, random.Random(5))
        receipts = {}
        for name, way, cpu, others in plan(campaign, a.recipe, a.long):
            try:
                campaign.check(name, way, cpu, others, receipts)
            except (RuntimeError, OSError, subprocess.TimeoutExpired) as why:
                campaign.blame(f"{name}, {way}, under {cpu}: {why}")
    print(f"{campaign.runs} honest runs of {len(receipts)} recipes, {campaign.verified} verifications, "
          f"{campaign.refused} resumes that must be refused")
    for line in sorted(campaign.missing):
        print("not tried:", line)
    return 1 if campaign.wrong or not campaign.verified else 0


if __name__ == "__main__":
    sys.exit(main())
