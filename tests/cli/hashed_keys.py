#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""hashed_keys.py TRAINER: changes one key of a recipe at a time, trains with both values, and checks that the receipts
tell the two runs apart exactly if the training does. docs/config.md lists the keys; each of them is in a table here.

A key of the kind
    steps        changes the steps: the weights differ, and so do the keys that the hashes of states contain
    begins       changes with what the steps begin: weights and first weights or rows differ, the hashed keys do not
    longer       changes the number of steps alone, and not those that both runs have
    tests        changes the test rows alone
    evaluations  changes when and how the run is evaluated: only the receipt's evaluations differ
    nothing      changes nothing: the receipt is the same, byte by byte
Of any two runs of a table whose hashed keys, rows and first weights are the same, the weights are the same.
"""
import json
import random
import struct
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import data_forms as forms  # noqa: E402
from init_cures import png  # noqa: E402

PAGE = Path(__file__).resolve().parents[2] / "docs" / "config.md"
ROWS = 96


def dense(*outs):
    layers = []
    for i, out in enumerate(outs):
        layers += [{"type": "relu", "name": f"r{i}"}] * (i > 0) + [{"type": "dense", "name": f"d{i}", "out": out}]
    return {"layers": layers}


CONV = {"layers": [{"type": "conv2d", "name": "c", "out": 2, "kernel": 3}, {"type": "batch_norm", "name": "n"},
                   {"type": "relu", "name": "r"}, {"type": "flatten", "name": "f"}, {"type": "dense", "name": "d0"}]}
SGD = {"name": "sgd", "lr": 0.1}
COMMON = {"batch_size": 32, "epochs": 2, "seed": 1, "shards": 2, "devices": "cpu:1", "receipt": True}
NPY = {"name": "npy", "path": ".", "test_x": "test_bytes.npy", "test_y": "test_classes.npy"}
IMAGES = NPY | {"x": "bytes.npy", "y": "classes.npy"}
FLOATS = NPY | {"x": "floats.npy", "y": "values.npy", "test_x": "test_floats.npy", "test_y": "test_values.npy"}
TABLE = {"name": "csv", "path": "t.csv", "test_path": "test.csv", "target": "class", "drop": ["value", "w", "ragged"]}
VALUES = TABLE | {"target": "value", "labels": "values", "drop": ["class", "w", "ragged"]}
BASES = {
    "images": {"data": IMAGES, "model": CONV, "optimizer": SGD},
    "folder": {"data": {"name": "folder", "path": "pictures/train", "test_path": "pictures/val", "image_size": 8},
               "model": CONV, "optimizer": SGD},
    "resized": {"data": {"name": "folder", "path": "pictures/train", "test_path": "pictures/val", "resize": 10, "crop": 8},
                "model": CONV, "optimizer": SGD},
    "table": {"data": TABLE, "model": dense(4, 3), "optimizer": SGD},
    "held": {"data": TABLE | {"validation": 0.25, "fold": 1}, "model": dense(3), "optimizer": SGD},
    "gaps": {"data": TABLE | {"drop": ["value", "w"], "missing": "mean"}, "model": dense(3), "optimizer": SGD},
    "weights": {"data": TABLE | {"drop": ["value", "ragged"]}, "model": dense(3), "optimizer": SGD},
    "values": {"data": VALUES, "model": dense(3, 1), "optimizer": SGD},
    "huber": {"data": VALUES, "model": dense(1), "optimizer": SGD, "loss": "huber"},
    "quantile": {"data": VALUES, "model": dense(2), "optimizer": SGD, "loss": "quantile", "quantiles": [0.1, 0.9]},
    "floats": {"data": FLOATS, "model": dense(1), "optimizer": SGD | {"lr": 0.01}},
    "cosine": {"data": TABLE, "model": dense(3), "optimizer": SGD, "schedule": "cosine"},
    "frozen": {"data": IMAGES, "model": CONV, "optimizer": SGD, "freeze": "c.*", "freeze_epochs": 1},
}
# Key, base, other value or values, and kind. A key may have several rows.
CASES = [
    ("name", "table", "other", "nothing"),
    ("data.path", "table", "other.csv", "begins"),
    ("data.path", "table", "same.csv", "nothing"),
    ("data.limit", "table", 64, "steps"),
    ("data.x", "images", "other_bytes.npy", "begins"),
    ("data.y", "images", "other_classes.npy", "begins"),
    ("data.test_x", "images", "other_test_bytes.npy", "tests"),
    ("data.test_y", "images", "other_test_classes.npy", "tests"),
    ("data.test_path", "table", "t.csv", "tests"),
    ("data.target", "table", "kind", "steps"),
    ("data.weight", "weights", "w", "steps"),
    ("data.categorical", "table", "a", "steps"),
    ("data.drop", "table", ["value", "w", "ragged", "a"], "steps"),
    ("data.standardize", "table", False, "steps"),
    ("data.standardize", "floats", True, "steps"),
    ("data.clip", "table", 0.5, "steps"),
    ("data.standardize_target", "values", False, "steps"),
    ("data.target_mean", "values", 3, "steps"),
    ("data.target_std", "values", 3, "steps"),
    ("data.labels", "images", "values", "steps"),
    ("data.classes", "images", 7, "steps"),
    ("data.missing", "gaps", "zero", "steps"),
    ("data.unknown", "table", "zeros", "evaluations"),
    ("data.unknown", "held", "zeros", "evaluations"),
    ("data.image_size", "folder", 9, "steps"),
    ("data.channels", "folder", 1, "steps"),
    ("data.resize", "resized", 12, "steps"),
    ("data.resize", "resized", [8, 9], "steps"),
    ("data.crop", "resized", 7, "steps"),
    ("data.crop", "resized", [8, 7], "steps"),
    ("data.interpolation", "resized", "bicubic", "steps"),
    ("data.layout", "images", "channels_last", "steps"),
    ("data.validation", "table", 0.25, "steps"),
    ("data.validation", "held", 0.5, "steps"),
    ("data.fold", "held", 2, "steps"),
    ("data.fold", "held", 0, "steps"),
    ("data.mean", "images", [0.1, 0.2], "steps"),
    ("data.std", "images", 0.5, "steps"),
    ("model", "table", dense(5, 3), "steps"),
    ("model", "frozen", {"layers": [CONV["layers"][0] | {"stride": 2}, *CONV["layers"][1:]]}, "steps"),
    ("batch_size", "table", 24, "steps"),
    ("seed", "table", 2, "steps"),
    ("init", "table", "xavier", "begins"),
    ("init", "table", {"weights": "first.safetensors"}, "begins"),
    ("optimizer", "table", SGD | {"lr": 0.2}, "steps"),
    ("optimizer", "table", SGD | {"momentum": 0.5}, "steps"),
    ("optimizer", "table", SGD | {"weight_decay": 0.1}, "steps"),
    ("optimizer", "table", SGD | {"clip_norm": 0.01}, "steps"),
    ("optimizer", "table", {"name": "adamw", "lr": 0.1}, "steps"),
    ("optimizer", "table", {"name": "adamw", "lr": 0.1, "beta1": 0.5}, "steps"),
    ("optimizer", "table", {"name": "adamw", "lr": 0.1, "beta2": 0.5}, "steps"),
    ("optimizer", "table", {"name": "adamw", "lr": 0.1, "epsilon": 0.1}, "steps"),
    ("freeze", "table", "d0.*", "steps"),
    ("freeze", "frozen", "n.*", "steps"),
    ("freeze_epochs", "frozen", 2, "steps"),
    ("lr_factors", "table", {"d0.*": 2}, "steps"),
    ("ema", "table", 0.5, "steps"),
    ("schedule", "table", "cosine", "steps"),
    ("schedule", "table", {"name": "constant", "warmup_epochs": 1}, "steps"),
    ("schedule", "table", {"name": "step", "every_epochs": 1}, "steps"),
    ("schedule", "table", {"name": "step", "every_epochs": 1, "gamma": 0.5}, "steps"),
    ("schedule", "table", "one_cycle", "steps"),
    ("schedule", "cosine", {"name": "cosine", "minimum": 0.05}, "steps"),
    ("schedule", "cosine", {"name": "cosine", "epoch_steps": 2}, "steps"),
    ("lr_scaling", "table", "linear", "steps"),
    ("loss", "values", "mae", "steps"),
    ("loss", "huber", "mse", "steps"),
    ("loss", "values", "poisson", "steps"),
    ("huber_delta", "huber", 0.25, "steps"),
    ("quantiles", "quantile", [0.2, 0.9], "steps"),
    ("label_smoothing", "table", 0.2, "steps"),
    ("class_weights", "table", "balanced", "steps"),
    ("class_weights", "table", [1, 2, 3], "steps"),
    ("augment.crop", "images", 2, "steps"),
    ("augment.flip", "images", True, "steps"),
    ("augment.rotate", "images", 20, "steps"),
    ("augment.erase", "images", 3, "steps"),
    ("augment.brightness", "images", 0.5, "steps"),
    ("augment.resized_crop", "images", 0.3, "steps"),
    ("augment.mixup", "images", 0.4, "steps"),
    ("gradient_scale", "gaps", "nominal", "steps"),
    ("shards", "table", 3, "steps"),
    ("epochs", "table", 3, "longer"),
    ("epochs", "cosine", 3, "steps"),
    ("devices", "table", "cpu:2", "nothing"),
    ("threads", "table", 2, "nothing"),
    ("capacity", "table", [2], "nothing"),
    ("eval_every", "table", 0, "evaluations"),
    ("checkpoint.every_steps", "table", 1, "nothing"),
    ("checkpoint.every_epochs", "table", 0, "nothing"),
    ("checkpoint.every_seconds", "table", 0, "nothing"),
    ("checkpoint.keep", "table", 1, "nothing"),
    ("checkpoint.async", "table", False, "nothing"),
    ("checkpoint.best", "table", True, "nothing"),
    ("monitor", "table", "loss", "evaluations"),
    ("patience", "table", 5, "evaluations"),
    ("metrics.tensorboard", "table", True, "nothing"),
    ("metrics.names", "table", [], "evaluations"),
    ("deadline_s", "table", 100, "nothing"),
    ("verify_every_steps", "table", 1, "nothing"),
    ("on_device_loss", "table", "stop", "nothing"),
    ("cluster.deadline_s", "table", 100, "nothing"),
    ("cluster.on_host_loss", "table", "continue", "nothing"),
    ("cluster.transport", "table", "none", "nothing"),
    ("run_dir", "table", "elsewhere", "nothing"),
]
# Keys of which no other value can be tried here, with the reason.
UNTRIED = {
    "data.name": "other data have other keys",
    "data.separator": "acts through the rows; cli_same_bits_of_data reads tables with each", "data.decimal": "the same",
    "data.encoding": "the same", "data.skip_broken": "acts through the rows, and none of these is broken",
    "data.pictures": "sets keys that are tried, and large pictures", "data.scale_rows": "for a program's own rows",
    "data.packed": "the program sets it", "precision": "for GPUs", "allreduce": "only \"ordered\" can be verified",
    "on_nonfinite": "acts if a loss is not finite", "checkpoint.final": "cannot be verified",
    "cluster.on_arrival": "needs other hosts", "receipt": "without it there is no receipt",
}


# ---- data ------------------------------------------------------------------------------------------------------------

def table(path, rows, seed):
    draw = random.Random(seed)
    lines = ["a,b,kind,w,ragged,value,class"]
    for i in range(rows):
        a, b = draw.randrange(9) - 4, draw.uniform(-1, 1)
        value = abs(a * b + a + draw.gauss(0, 0.1))
        lines.append(f"{a},{b:.4f},{draw.choice('pqr')},{draw.choice([0, 1, 2.5])},{'' if i % 7 == 3 else 5 + i % 5},"
                     f"{value:.4f},{'low' if value < 1 else 'mid' if i % 5 else 'top'}")
    path.write_text("\n".join(lines) + "\n")


def make_data():
    table(Path("t.csv"), ROWS + 4, 1)
    Path("same.csv").write_bytes(Path("t.csv").read_bytes())
    table(Path("other.csv"), ROWS + 4, 2)
    table(Path("test.csv"), 30, 3)
    draw = random.Random(4)
    for prefix, rows in (("", ROWS), ("other_", ROWS), ("test_", 30), ("other_test_", 30)):
        images = draw.randbytes(rows * 3 * 8 * 8)
        floats = [draw.gauss(1, 2) for _ in range(rows * 4)]
        Path(f"{prefix}bytes.npy").write_bytes(forms.npy("|u1", (rows, 3, 8, 8), images))
        Path(f"{prefix}classes.npy").write_bytes(forms.npy("<i4", (rows,), struct.pack(
            f"<{rows}i", *(draw.randrange(5) if i > 4 else i for i in range(rows)))))
        Path(f"{prefix}floats.npy").write_bytes(forms.npy("<f4", (rows, 4), struct.pack(f"<{rows * 4}f", *floats)))
        Path(f"{prefix}values.npy").write_bytes(forms.npy("<f4", (rows,), struct.pack(
            f"<{rows}f", *(floats[4 * i] - floats[4 * i + 1] + 0.5 for i in range(rows)))))
    for split, count in (("train", 40), ("val", 8)):
        for i in range(count):
            png(Path("pictures") / split / "ab"[i % 2] / f"{i}.png", 13,
                lambda x, y, i=i: bytes([(x * (7, 2)[i % 2] + y * k + 5 * i) % 256 for k in (3, 11, 19)]), kind=2)


# ---- runs ------------------------------------------------------------------------------------------------------------

def merged(config, key, value):
    group, _, inner = key.rpartition(".")
    return config | {group: config.get(group, {}) | {inner: value}} if group else config | {key: value}


def receipt_of(name, config):
    """Trains, and returns the receipt; None: the run failed, which is noted."""
    run = config.get("run_dir", f"runs/{name}")
    Path(f"{name}.json").write_text(json.dumps(config | {"run_dir": run}))
    code, said = forms.trainer(f"{name}.json", "--quiet")
    if code or not Path(run, "receipt.json").exists():
        forms.failures.append(f"{name}: {code}: {said}")
        return None
    return json.loads(Path(run, "receipt.json").read_text())


def kind_of(base, other):
    """The kind of difference between two receipts."""
    def same(*path):
        a, b = base, other
        for key in path:
            a, b = a[key], b[key]
        return a == b
    begins = same("first_weights") and same("data", "training", "rows_sha256")
    if same("hashed") and begins and same("end", "steps") and not same("weights_sha256"):
        return "WEIGHTS THAT DIFFER THOUGH NOTHING ELSE DOES"
    if same("weights_sha256"):
        if base == other:
            return "nothing"
        if not same("hashed"):
            return "hashed keys that change nothing"
        if not same("data"):
            return "tests"
        return "evaluations" if not same("evaluations") else "SOMETHING THAT NO KEY SAYS"
    if not same("hashed"):
        return "steps"
    return "longer" if not same("end", "steps") else "begins"


def check_keys():
    bases = {name: receipt_of(name, COMMON | config) for name, config in BASES.items()}
    Path("first.safetensors").write_bytes(Path("runs/images/weights.safetensors").read_bytes())
    other = receipt_of("first", COMMON | BASES["table"] | {"seed": 9})
    Path("first.safetensors").write_bytes(Path("runs/first/weights.safetensors").read_bytes())
    seen = {name: {} for name in BASES}
    for number, (key, base, value, kind) in enumerate(CASES):
        receipt = receipt_of(f"case{number}", merged(COMMON | BASES[base], key, value))
        if not receipt or not bases[base] or not other:
            continue
        found = kind_of(bases[base], receipt)
        if found != kind:
            forms.failures.append(f"{key} = {value} in {base}: the receipts differ by {found}; expected {kind}")
        # no two values of any keys of a base have the same hashed keys, rows and first weights, but other weights
        same = (json.dumps(receipt["hashed"]), receipt["first_weights"], receipt["data"]["training"]["rows_sha256"],
                receipt["end"]["steps"])
        if seen[base].setdefault(same, receipt["end"]["state"]) != receipt["end"]["state"]:
            forms.failures.append(f"{key} = {value} in {base}: another state, though all that it depends on is the same")
    tried = {key for key, *_ in CASES}
    listed = {line.split("`")[1] for line in PAGE.read_text(encoding="utf-8").split("## All keys")[1].splitlines()
              if line.startswith("| `")}
    if listed != tried | set(UNTRIED) or tried & set(UNTRIED):
        forms.failures.append(f"keys that no table has, or that no page has: {listed ^ (tried | set(UNTRIED))}")


def main():
    make_data()
    check_keys()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
