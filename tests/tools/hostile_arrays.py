#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that values of arrays that are NaN, infinite, or too large for a float have one answer, whoever reads them.

    python3 tests/tools/hostile_arrays.py TRAINER ONE_NUMBER LIBRARY [--needs-onnxruntime]

Training refuses such a row and names it; a model has no prediction for it, and predicts the other rows; test rows and
`eval` leave it out. The rows go through training, test rows, `trainer predict` and `eval`, a C program, the Python
package by path and by array, and, where it is installed, ONNX Runtime. The models differ in type and scale of their
rows and targets, in `data.missing`, and in the loss; the predictions of all are compared. 77: NumPy is missing, or the ONNX Runtime that is asked for.
TRAINER and ONE_NUMBER are programs, LIBRARY is the shared library.
"""
import argparse
import csv
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

ROOT = Path(__file__).resolve().parents[2]
BOUND = 2e-6
ROWS = 60
NAN, INF = np.nan, np.inf
# Column 1, whose value is replaced by these, has a deviation of about 1e-3, so that 3e38 is no float once it is scaled.
VALUES = [NAN, INF, -INF, 1e39, -1e300, 3e38, 1e-320, 0.25]


def dense(n):
    return [{"type": "flatten"}, {"type": "dense", "out": 6}, {"type": "relu"}, {"type": "dense", "out": n}]


def vectors(kind):
    draw = np.random.default_rng(2)
    x = draw.normal(size=(ROWS, 4)) * [1, 1e-3, 5, 1] + [0, 0, 40, 1.7e12 if kind == "f8" else -3]
    return x.astype(kind), (x[:, 0] > 0).astype("i4"), np.stack([1000 + 40 * x[:, 0], x[:, 2] / 50], axis=1)


def images():
    draw = np.random.default_rng(3)
    x = (draw.normal(size=(ROWS, 2, 4, 4)) * [[[1]], [[1e-3]]]).transpose(0, 2, 3, 1).reshape(2, 4, 4, ROWS)
    return np.ascontiguousarray(x.reshape(ROWS, 4, 4, 2), "f4"), (x.reshape(ROWS, -1)[:, 0] > 0).astype("i4")


# name: (x, y, keys of data, layers, recipe)
def models():
    x4, labels, values = vectors("f4")
    x8, labels8, values8 = vectors("f8")
    pictures, kinds = images()
    conv = [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "out": 2}]
    three = {"loss": "quantile", "quantiles": [0.1, 0.5, 0.9]}
    return {"in place": (x4, labels, {}, dense(2), {}),
            "filled": (x4, labels, {"missing": "mean"}, dense(2), {}),
            "scaled": (x4, values, {"standardize": True}, dense(2), {"loss": "mse"}),
            "scaled and limited": (x4, values, {"standardize": True, "clip": 1.5}, dense(2), {"loss": "mse"}),
            "doubles, filled and limited": (x8, labels8, {"standardize": True, "missing": "mean", "clip": 0.5}, dense(2), {}),
            "filled and fixed": (x4, labels, {"missing": "zero", "mean": [0, 0, 40, -3], "std": [1, 1, 5, 1]}, dense(2),
                                 {}),
            "doubles": (x8, values8, {"standardize": True}, dense(6), three),
            "doubles, filled": (x8, labels8, {"standardize": True, "missing": "mean"}, dense(2), {}),
            "far target": (x8, values8[:, :1] + 1.7e9, {"standardize": True}, dense(1), {"loss": "huber"}),
            "fixed targets": (np.concatenate([x4, x4], axis=1), values,
                              {"mean": [0, 0, 40, -3] * 2, "std": [1, 1e-3, 5, 1] * 2, "target_mean": [1000, 0.8],
                               "target_std": [40, 0.1]}, dense(2), {"loss": "mae"}),
            "images": (pictures, kinds, {"layout": "channels_last"}, conv, {}),
            "images, scaled": (pictures, kinds, {"layout": "channels_last", "standardize": True}, conv, {})}


def run(command, folder):
    return subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True)


class Model:
    def __init__(self, env, folder, name, x, y, keys, layers, recipe):
        self.env, self.folder, self.name, self.x, self.y = env, folder, name, x, y
        self.filled = "missing" in keys
        # the rows have values that no float holds once they are scaled, unless they are limited
        self.scaled = ("standardize" in keys or len(keys.get("std", [])) > 4) and "clip" not in keys
        self.wide = x.dtype == np.float64
        self.config = {"data": {"name": "npy", "x": "x.npy", "y": "y.npy", **keys}, "model": {"layers": layers},
                       "batch_size": 20, "epochs": 2, "seed": 1, "devices": "cpu:1", "optimizer": {"lr": 0.01}, **recipe}
        np.save(folder / "y.npy", y)
        (folder / "config.json").write_text(json.dumps(self.config))

    def train(self, x, *more):
        np.save(self.folder / "x.npy", x)
        shutil.rmtree(self.folder / "run", ignore_errors=True)
        return run([self.env.trainer, "config.json", "--quiet", "--set", "run_dir=run", *more], self.folder)

    def known(self, value):
        """Whether a row with this value has a prediction."""
        if np.isnan(value):
            return self.filled
        return bool(abs(value) < 1e38 or abs(value) < 3.4e38 and not self.scaled)

    def hostile(self):
        """Rows with one strange value each, between plain rows, and which of them have a prediction."""
        x = np.repeat(self.x[:1], 2 * len(VALUES), axis=0)
        with np.errstate(over="ignore"):
            for i, value in enumerate(VALUES):
                x[2 * i].reshape(-1)[1] = value
        return x, np.array([self.known(row.reshape(-1)[1]) for row in x])


def by_cli(m, rows):
    done = run([m.env.trainer, "predict", "model.safetensors", "rows.npy", "--to", "out.csv"], m.folder)
    if not (m.folder / "out.csv").exists():
        return done.stderr
    with open(m.folder / "out.csv") as file:
        found = [[float(v) if v else NAN for v in row[-m.outputs:]] for row in list(csv.reader(file))[1:]]
    (m.folder / "out.csv").unlink()
    found = np.array(found)
    empty = np.isnan(found).all(axis=1).sum()
    if done.returncode != (65 if empty else 0) or f"{empty} of {len(rows)} rows have no prediction" not in done.stderr:
        return f"{empty} empty rows: {done.returncode}: {done.stderr}"
    return found


def by_c(m, rows):
    first = np.moveaxis(rows, 3, 1) if rows.ndim == 4 else rows
    np.ascontiguousarray(first).tofile(m.folder / "rows.bin")
    done = run([m.env.program, "model.safetensors", "doubles" if m.wide else "rows", "rows.bin", len(rows)], m.folder)
    return done.stderr if done.returncode else np.array([[float(v) for v in l.split()] for l in done.stdout.splitlines()])


def by_path(m, rows):
    import lockstep_trainer as lockstep
    with lockstep.Model.open(m.folder / "model.safetensors") as model:
        return model.predict(m.folder / "rows.npy")


def by_array(m, rows):
    import lockstep_trainer as lockstep
    with lockstep.Model.open(m.folder / "model.safetensors") as model:
        return model.predict(rows)


def by_onnx(m, rows):
    import onnxruntime
    done = run([m.env.trainer, "export", "model.safetensors", "--to", "model.onnx"], m.folder)
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(m.folder / "model.onnx", providers=["CPUExecutionProvider"])
    told = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])[0]
    first = np.moveaxis(rows, 3, 1) if rows.ndim == 4 else rows
    names = [o.name for o in session.get_outputs()]
    return session.run(["probabilities" if "probabilities" in names else "logits"], {"x": first.astype(told["type"])})[0]


def check_predictions(m, failures):
    rows, known = m.hostile()
    np.save(m.folder / "rows.npy", rows)
    faces = [by_cli, by_c, by_path, by_array] + ([by_onnx] if m.env.onnx else [])
    found = [face(m, rows) for face in faces]
    for face, outputs in zip(faces, found):
        if isinstance(outputs, str):
            failures.append(f"{m.name}: {face.__name__}: {outputs[:400]}")
            continue
        outputs = np.asarray(outputs, float)
        if (np.isfinite(outputs).all(axis=1) != known).any() or (np.isnan(outputs).all(axis=1) == known).any():
            failures.append(f"{m.name}: {face.__name__}: known: {known.astype(int)}, outputs: {outputs[:, 0]}")
        elif not isinstance(found[0], str):
            worst = (np.abs(outputs - found[0])[known] / np.maximum(1, np.abs(found[0][known]))).max()
            if worst > BOUND:
                failures.append(f"{m.name}: {face.__name__}: {worst} from the program's")


def check_test_rows(m, failures):
    """Test rows and rows of `eval`: those without a prediction are left out and counted, and the loss is that of the
    others alone."""
    rows, known = m.hostile()
    usual = np.abs(np.nan_to_num(rows.reshape(len(rows), -1)[:, 1])) != rows.dtype.type(3e38)  # else the loss may be infinite
    rows, known, told = rows[usual], known[usual], []
    folder = m.folder / "eval"
    folder.mkdir()
    for x, left in ((rows, (~known).sum()), (rows[known], 0)):
        np.save(folder / "x.npy", x)
        np.save(folder / "y.npy", np.repeat(m.y[:1], len(x), axis=0))
        done = run([m.env.trainer, "eval", "model.safetensors", "--data", "eval", "--json"], m.folder)
        test = m.train(m.x, "--set", "data.test_x=eval/x.npy", "--set", "data.test_y=eval/y.npy")
        if done.returncode or test.returncode:
            failures.append(f"{m.name}: {done.stderr[-300:]} {test.stderr[-300:]}")
            return
        records = [json.loads(line) for line in (m.folder / "run" / "metrics.jsonl").read_text().splitlines()]
        start = next(r for r in records if r["type"] == "run_start")["data"]
        said = json.loads(done.stdout.splitlines()[-1])
        told.append((said["loss"], [r for r in records if r["type"] == "eval"][-1]["test_loss"]))
        counts = (said["rows"], said.get("rows_left_out", 0), start["test_rows"], start.get("test_rows_left_out", 0))
        if counts != (len(x) - left, left) * 2 or left and "left out" not in done.stderr:
            failures.append(f"{m.name}: expected {len(x) - left} rows and {left} left out, found {counts}: {done.stderr}")
    if told[0] != told[1]:
        failures.append(f"{m.name}: with the rows that are left out {told[0]}, without them {told[1]}")


def check_training(m, failures):
    """A row without an answer is refused in training, and the message names it."""
    rows, known = m.hostile()
    for i in np.flatnonzero(~known):
        x = m.x.copy()
        x[7] = rows[i]
        done = m.train(x)
        # a value that is no float once it is scaled is so for the scale of a model, not for its own
        column = 16 if x.ndim == 4 else 1  # the channels of images come first
        refused = done.returncode == 65 and f"row 7, column {column}: expected a finite number" in done.stderr
        if not refused and not 1e38 < abs(rows[i].reshape(-1)[1]) < 3.4e38:
            failures.append(f"{m.name}: training on {rows[i].reshape(-1)[1]}: {done.returncode}: {done.stderr[-300:]}")


def check(env, folder, name, *model):
    failures = []
    m = Model(env, folder, name, *model)
    done = m.train(m.x)
    if done.returncode:
        return [f"{name}: {done.stderr[-500:]}"]
    shutil.copy(folder / "run" / "weights.safetensors", folder / "model.safetensors")
    m.outputs = m.config["model"]["layers"][-1]["out"]
    check_predictions(m, failures)
    check_test_rows(m, failures)
    check_training(m, failures)
    return failures


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=lambda name: Path(name).resolve())
    parser.add_argument("program", type=lambda name: Path(name).resolve())
    parser.add_argument("library", type=Path)
    parser.add_argument("--needs-onnxruntime", action="store_true")
    env = parser.parse_args()
    try:
        import onnxruntime  # noqa: F401
        env.onnx = True
    except ImportError:
        env.onnx = False
    if env.needs_onnxruntime and not env.onnx:
        print("skipped: there is no onnxruntime")
        return 77
    failures = []
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, "package", "lockstep_trainer")  # as a wheel has it, with the library in it
        shutil.copytree(ROOT / "src/python/lockstep_trainer", package, ignore=shutil.ignore_patterns("__pycache__", "lib"))
        (package / "lib").mkdir()
        shutil.copy(env.library.resolve(), package / "lib" / "liblockstep.so.0")
        sys.path.insert(0, str(package.parent))
        for i, (name, model) in enumerate(models().items()):
            folder = Path(scratch, str(i))
            folder.mkdir()
            found = check(env, folder, name, *model)
            print(f"{name:20} {len(found)} failures", flush=True)
            failures += found
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
