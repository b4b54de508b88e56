#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that a model's file alone defines how new rows are prepared, whichever program predicts.

    python3 tests/tools/one_number.py TRAINER ONE_NUMBER LIBRARY [--drawn]

On each dataset the program trains briefly. The file of weights is copied to another directory, and
the training data, the run and the cache are deleted. Then the program, a C program, the Python
package and ONNX Runtime predict the same new rows, as they are in the user's file: all must agree
with the first to 1e-5 (of 1, and of the largest). --drawn: five datasets that need no package but
NumPy; without ONNX Runtime that column is left out. 77: a package is missing. TRAINER and
ONE_NUMBER are programs, LIBRARY is the shared library.
"""
import argparse
import csv
import datetime
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

BOUND = 1e-5
ROOT = Path(__file__).resolve().parents[2]

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


def dense(*out):
    layers = []
    for n in out[:-1]:
        layers += [{"type": "dense", "out": n}, {"type": "batch_norm"}, {"type": "relu"}]
    return {"layers": [{"type": "flatten"}, *layers, {"type": "dense", "out": out[-1]}]}


def conv(out):
    return {"layers": [{"type": "conv2d", "out": 8, "kernel": 3}, {"type": "relu"}, {"type": "flatten"},
                       {"type": "dense", "out": out}]}


def config(data, model, **more):
    return {"data": data, "model": model, "init": "kaiming", "batch_size": 16, "epochs": 8, "seed": 1,
            "devices": "cpu:1", "optimizer": {"name": "adamw", "lr": 0.01}, **more}


# ---- the sets: write(folder, new) puts training data into one and new rows into the other, and gives the config and
# the file of new rows

def write_table(path, names, rows):
    with open(path, "w", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows([names, *rows])


def table(names, rows, target, model, folder, new, **more):
    """The last column is the target; new rows do not have it."""
    order = np.random.default_rng(0).permutation(len(rows))
    train, test = [rows[i] for i in order[len(rows) // 5:]], [rows[i] for i in order[:len(rows) // 5]]
    write_table(folder / "table.csv", names, train)
    write_table(new / "new.csv", names[:-1], [row[:-1] for row in test])
    data = {"name": "csv", "path": "table.csv", "target": names[-1], "standardize": True, "clip": 2, **target}
    return config(data, model, **more), "new.csv"


def bunch(load, model, values=False):
    def write(folder, new):
        data = load()
        names = [str(n).replace(",", " ") for n in data.feature_names] + ["target"]
        labels = [f"{y}" if values else f"class {data.target_names[int(y)]}" for y in data.target]
        rows = [[repr(float(v)) for v in x] + [label] for x, label in zip(data.data, labels)]
        target = {"labels": "values"} if values else {}
        return table(names, rows, target, model, folder, new, **({"loss": "mse"} if values else {}))
    return write


def digits(folder, new):
    from sklearn.datasets import load_digits
    data = load_digits()
    x = data.images.astype(np.uint8)
    np.save(folder / "x.npy", x[400:])
    np.save(folder / "y.npy", data.target[400:])
    np.save(new / "new.npy", x[:400])
    return config({"name": "npy", "x": "x.npy", "y": "y.npy"}, conv(10)), "new.npy"


def penguins(folder, new):
    from palmerpenguins import load_penguins
    frame = load_penguins()
    names = [name for name in frame.columns if name != "species"] + ["species"]
    rows = [["" if v != v or v is None else str(v) for v in row] for row in frame[names].values.tolist()]
    return table(names, rows, {"missing": "mean"}, dense(16, 3), folder, new)


def photos(folder, new):
    """Crops of mixed sizes out of two photos."""
    from PIL import Image
    from sklearn.datasets import load_sample_images
    draw = np.random.default_rng(1)
    (folder / "photos").mkdir()
    (new / "new").mkdir()
    for name, photo in zip(("flower", "temple"), reversed(load_sample_images().images)):
        (folder / "photos" / name).mkdir()
        for i in range(60):
            h, w = draw.integers(40, 200, 2)
            top, left = draw.integers(0, photo.shape[0] - h), draw.integers(0, photo.shape[1] - w)
            into = new / "new" / f"{name}{i}" if i < 12 else folder / "photos" / name / str(i)
            Image.fromarray(photo[top:top + h, left:left + w]).save(f"{into}.{'jpg' if i % 2 else 'png'}", quality=90)
    data = {"name": "folder", "path": "photos", "image_size": 24, "mean": [0.45, 0.45, 0.4], "std": [0.25, 0.25, 0.25]}
    return config(data, conv(2), epochs=3), "new"


def drawn_table(folder, new):
    """Texts, numbers far from 0, and holes."""
    draw = np.random.default_rng(3)
    rows = []
    for _ in range(200):
        place, year, size = draw.choice(["north", "south", "east"]), draw.integers(1990, 2020), draw.normal(5000, 800)
        label = "high" if size + 500 * (place == "north") - 40 * (year - 2005) > 5100 else "low"
        rows.append(["" if draw.random() < 0.05 else place, str(year), "NA" if draw.random() < 0.05 else f"{size:.2f}",
                     label])
    return table(["place", "year", "size", "answer"], rows, {"missing": "mean"}, dense(8, 2), folder, new)


def drawn_dates(folder, new):
    """Dates with the day first, with holes, and times."""
    draw = np.random.default_rng(7)
    rows = []
    for _ in range(200):
        day = datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=int(draw.integers(20000)))
        place, hour = draw.choice(["north", "south"]), int(draw.integers(24))
        label = "open" if day.weekday() < 5 and hour > 8 else "closed"
        rows.append(["" if draw.random() < 0.05 else f"{day:%d.%m.%Y %H:%M}", f"{hour:02}:30", place, label])
    return table(["when", "at", "place", "answer"], rows, {"missing": "mean"}, dense(8, 2), folder, new)


def part_of(text, part, column):
    """A number that a date becomes, computed without the library."""
    if text == "":
        return float("nan")
    moment = datetime.datetime.strptime(text, "%H:%M" if column["date"] == "time" else "%d.%m.%Y %H:%M")
    since = datetime.datetime(1970, 1, 1) + datetime.timedelta(days=column["since"])
    hour = moment.hour + moment.minute / 60
    return {"year": moment.year, "month": moment.month, "weekday": moment.weekday(), "hour": hour,
            "days": (moment - since).total_seconds() / 86400}[part]


def drawn_bits(folder, new):
    """A bool array, and a target that is a number."""
    draw = np.random.default_rng(4)
    x = draw.random((300, 12)) < 0.5
    np.save(folder / "x.npy", x[100:])
    np.save(folder / "y.npy", (x[100:, 0] * 3.0 - x[100:, 1]).astype(">f8"))
    np.save(new / "new.npy", x[:100])
    return config({"name": "npy", "x": "x.npy", "y": "y.npy"}, dense(8, 1), loss="mse"), "new.npy"


def drawn_quantiles(folder, new):
    """Three quantiles of two targets with different units."""
    draw = np.random.default_rng(5)
    x = draw.normal(size=(300, 4)).astype(np.float32)
    y = np.stack([1000 + 40 * x[:, 0], x[:, 1] / 50], axis=1) * (1 + draw.normal(size=(300, 2)) / 20)
    np.save(folder / "x.npy", x[100:])
    np.save(folder / "y.npy", y[100:].astype(np.float32))
    np.save(new / "new.npy", x[:100])
    return config({"name": "npy", "x": "x.npy", "y": "y.npy"}, dense(8, 6), loss="quantile", quantiles=[0.05, 0.5, 0.95]), \
        "new.npy"


def drawn_counts(folder, new):
    """A table whose target is a count."""
    draw = np.random.default_rng(6)
    rows = []
    for _ in range(200):
        place, size = draw.choice(["north", "south"]), draw.normal()
        rows.append([place, f"{size:.3f}", str(draw.poisson(np.exp(size + (place == "north"))))])
    return table(["place", "size", "visits"], rows, {"labels": "values"}, dense(8, 1), folder, new, loss="poisson")


def real():
    try:
        from PIL import Image  # noqa: F401
        from palmerpenguins import load_penguins  # noqa: F401
        import onnxruntime  # noqa: F401
        from sklearn import datasets
    except ImportError as missing:
        print(f"skipped: {missing}")
        sys.exit(77)
    return {"wine": bunch(datasets.load_wine, dense(16, 3)), "cancer": bunch(datasets.load_breast_cancer, dense(16, 2)),
            "digits": digits, "diabetes": bunch(lambda: datasets.load_diabetes(scaled=False), dense(16, 1), True),
            "penguins": penguins, "photos": photos}


# ---- who predicts: each from the model's file and the new rows alone

def run(command, folder, **more):
    done = subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True, **more)
    if done.returncode:
        raise RuntimeError(f"{' '.join(map(str, command))}\n{done.stdout[-800:]}{done.stderr[-1500:]}")
    return done.stdout


def softmax(x):
    e = np.exp(x - x.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


def by_cli(env, folder, rows):
    files = sorted(str(p.relative_to(folder)) for p in (folder / rows).iterdir()) if (folder / rows).is_dir() else [rows]
    text = run([env.trainer, "predict", "model.safetensors", *files, "--json"], folder, env=env.variables)
    records = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    if "outputs" in records[0]:
        return np.array([r["outputs"] for r in records])
    return softmax(np.array([r["logits"] for r in records], float))


def pixels(env, folder, rows, shape):
    """A folder of pictures as the arrays of pixels that the program makes of them."""
    size = f"data.image_size={shape[1]}"
    one = folder / "packed"
    (one / "in" / "a").mkdir(parents=True)
    (one / "in" / "b").mkdir()
    names = sorted((folder / rows).iterdir())
    for path in names:
        shutil.copy(path, one / "in" / "a")
    shutil.copy(names[0], one / "in" / "b")
    run([env.trainer, "pack", one / "in", "--to", one / "rows.safetensors", "--size", size.split("=")[1], "--channels",
         str(shape[0])], folder, env=env.variables)
    raw = (one / "rows.safetensors").read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    begin, end = header["x"]["data_offsets"]
    data = raw[8 + int.from_bytes(raw[:8], "little"):]
    return np.frombuffer(data[begin:end], np.uint8).reshape(-1, *shape)[:len(names)]


def whole_rows(env, folder, rows, card):
    """The rows of an .npy file, or pixels of pictures, as the model reads them."""
    if (folder / rows).is_dir():
        return pixels(env, folder, rows, card["input"])
    x = np.load(folder / rows)
    return x if x.dtype == np.uint8 else x.astype(np.float32)


def by_c(env, folder, rows, card):
    if rows.endswith(".csv"):
        text = run([env.program, "model.safetensors", "table", rows], folder)
    else:
        x = env.whole
        x.tofile(folder / "rows.bin")
        text = run([env.program, "model.safetensors", "rows", "rows.bin", len(x)], folder)
    return np.array([[float(v) for v in line.split()] for line in text.splitlines()])


def by_python(env, folder, rows, card):
    import lockstep_trainer as lockstep
    with lockstep.Model.open(folder / "model.safetensors") as model:
        p = model.predict(folder / rows if not (folder / rows).is_dir() else env.whole)
        if rows.endswith(".csv"):  # and the same rows by their names, in another order
            with open(folder / rows) as file:
                again = model.predict([dict(reversed(row.items())) for row in csv.DictReader(file)])
            assert (again == p).all()
        return p


def by_onnx(env, folder, rows, card):
    import onnxruntime
    run([env.trainer, "export", "model.safetensors", "--to", "model.onnx"], folder, env=env.variables)
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    told = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])
    if rows.endswith(".csv"):
        with open(folder / rows) as file:
            table = list(csv.DictReader(file))

        def number(text):
            return float("nan") if text in ("", "NA") else float(text)
        columns = {c["name"]: c for c in card["preparation"]["columns"]}

        def value(row, given):
            text = row[given["column"]]
            return part_of(text, given["part"], columns[given["column"]]) if "part" in given else number(text)
        if len(told) == 1:
            feed = {"x": np.array([[number(row[c]) for c in told[0]["columns"]] for row in table], np.float32)}
        else:
            feed = {i["name"]: np.array([[row[i["column"]]] for row in table], object) if i["type"] == "string" else
                    np.array([[value(row, i)] for row in table], np.float32) for i in told}
    else:
        x = env.whole
        feed = {"x": x.reshape(-1, *told[0]["shape"][1:])}
    outputs = [o.name for o in session.get_outputs()]
    return session.run([next(name for name in ("probabilities", "counts", "logits") if name in outputs)], feed)[0]


# ---- all of it

def check(name, write, env, scratch):
    a, b = scratch / f"{name}-there", scratch / f"{name}-here"
    a.mkdir()
    b.mkdir()
    env.variables = {**os.environ, "XDG_CACHE_HOME": str(a / "cache"), "HOME": str(a)}
    settings, rows = write(a, b)
    (a / "config.json").write_text(json.dumps(settings))
    run([env.trainer, "config.json", "--set", "run_dir=run"], a, env=env.variables)
    shutil.copy(a / "run" / "weights.safetensors", b / "model.safetensors")
    shutil.rmtree(a)
    raw = (b / "model.safetensors").read_bytes()
    header = json.loads(raw[8:8 + int.from_bytes(raw[:8], "little")])
    card = json.loads(header["__metadata__"]["lockstep_model"])
    env.whole = None if rows.endswith(".csv") else whole_rows(env, b, rows, card)
    first = by_cli(env, b, rows)
    assert len(first) > 5 and np.isfinite(first).all() and first.std(axis=0).max() > 1e-3, "nothing was learnt"
    line, good = [f"{name:10} {len(first):5}"], True
    for other in (by_c, by_python, by_onnx):
        if other is by_onnx and not env.onnx:
            line.append("      -")
            continue
        found = np.asarray(other(env, b, rows, card), float)
        worst = np.abs(found - first).max() / max(1, np.abs(first).max())
        good = good and found.shape == first.shape and worst <= BOUND
        line.append(f"{worst:7.0e}{'' if worst <= BOUND else ' FAILED'}")
    print("  ".join(line), flush=True)
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=lambda name: Path(name).absolute())
    parser.add_argument("program", type=lambda name: Path(name).absolute())
    parser.add_argument("library", type=Path)
    parser.add_argument("--drawn", action="store_true")
    parser.add_argument("--only", help="names of sets, with commas")
    env = parser.parse_args()
    env.trainer, env.program = env.trainer.resolve(), env.program.resolve()
    sets = {"table": drawn_table, "dates": drawn_dates, "bits": drawn_bits, "quantiles": drawn_quantiles,
            "counts": drawn_counts} if env.drawn else real()
    try:
        import onnxruntime  # noqa: F401
        env.onnx = True
    except ImportError:
        env.onnx = False
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, "package", "lockstep_trainer")  # as a wheel has it, with the library in it
        shutil.copytree(ROOT / "src/python/lockstep_trainer", package, ignore=shutil.ignore_patterns("__pycache__", "lib"))
        (package / "lib").mkdir()
        shutil.copy(env.library.resolve(), package / "lib" / "liblockstep.so.0")
        sys.path.insert(0, str(package.parent))
        print(f"{'':10} {'rows':>5}  {'C':>7}  {'Python':>7}  {'ONNX':>7}    furthest from the program's, of 1")
        good = [check(name, write, env, Path(scratch)) for name, write in sets.items()
                if not env.only or name in env.only.split(",")]
    return 0 if all(good) and good else 1


if __name__ == "__main__":
    sys.exit(main())
