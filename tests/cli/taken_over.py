#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""taken_over.py TRAINER: tests that `init.weights` takes weights over by the names of columns, levels and classes, and
scales them: before it is trained, the new model predicts what the old one did. Needs only Python.
"""
import csv
import json
import random
import struct
import sys
from pathlib import Path

import data_forms as forms
from data_forms import npy, trainer

failures = forms.failures
STILL = ("--set", 'optimizer={"name": "sgd", "lr": 1e-12}', "--set", "epochs=1")
DEEP = [{"type": "dense", "name": "hidden", "out": 8}, {"type": "tanh"}, {"type": "dropout", "p": 0.1},
        {"type": "concat", "with": "input"}, {"type": "dense", "name": "last"}]


def table(name, columns, rows):
    """Writes the columns of the rows, each a dict."""
    with open(name, "w", encoding="utf-8", newline="") as file:
        out = csv.writer(file)
        out.writerow(columns)
        out.writerows([row[c] for c in columns] for row in rows)


def examples(count, towns="bcd", classes=("no", "yes")):
    draw = random.Random(5)
    rows = []
    for i in range(count):
        row = {"a": draw.gauss(5, 2), "b": draw.gauss(-100, 30), "town": towns[i % len(towns)], "extra": draw.random(),
               "when": f"{2020 + i % 3}-{i * 7 % 12 + 1:02d}-{i % 28 + 1:02d}"}
        row["sum"] = 1000 + 3 * row["a"] + row["b"] + 20 * (row["town"] == "c")
        row["y"] = classes[row["sum"] > 920]
        rows.append(row)
    return rows


def config(data, layers, **keys):
    data.setdefault("name", "csv")
    Path("config.json").write_text(json.dumps({
        "data": data, "model": {"layers": layers}, "batch_size": 20, "epochs": 3,
        "optimizer": {"name": "sgd", "lr": 0.02, "momentum": 0.9}, **keys}))


def run(name, *arguments, code=0):
    """Trains; returns what was said."""
    found, text = trainer("config.json", "--devices", "cpu:1", "--set", f"run_dir={name}", *arguments)
    if found != code:
        failures.append(f"{name}: exit status {found} instead of {code}: {text}")
    return text


def predicted(run_name, file):
    """A dict for each row, without the line."""
    code, text = trainer("predict", run_name, file, "--to", "out.csv")
    if code:
        failures.append(f"predict {run_name} {file}: {code}: {text}")
        return []
    with open("out.csv", encoding="utf-8", newline="") as rows:
        return list(csv.DictReader(rows))


def same(what, old, new, keys, tolerance=1e-5):
    if len(old) != len(new) or not old:
        failures.append(f"{what}: {len(old)} and {len(new)} rows")
    for a, b in zip(old, new):
        for key, its in keys.items():
            x, y = float(a[key]), float(b[its])
            if abs(x - y) > tolerance * max(1, abs(x)):
                failures.append(f"{what}: {key} was {x} and is {y}")
                return


def says(what, text, *wanted, unsaid=()):
    failures.extend(f"{what}: expected {w!r} in: {text}" for w in wanted if w not in text)
    failures.extend(f"{what}: unexpected {w!r} in: {text}" for w in unsaid if w in text)


def begin(name, columns, rows, layers=None, data=None, **keys):
    """Trains the old model."""
    table(f"{name}.csv", columns, rows)
    config({"path": f"{name}.csv", "target": columns[-1], **(data or {})}, layers or DEEP, **keys)
    run(name)


def follow(name, of, columns, rows, layers=None, data=None, code=0, more=(), **keys):
    """Begins with the weights of the run `of` and does not train them. Returns what was said."""
    table(f"{name}.csv", columns, rows)
    config({"path": f"{name}.csv", "target": columns[-1], **(data or {})}, layers or DEEP, **keys)
    return run(name, *STILL, "--set", f"init.weights={of}/weights.safetensors", *more, code=code)


BOTH = {"p_no": "p_no", "p_yes": "p_yes"}


def columns_and_levels():
    rows = examples(120)
    begin("old", ["a", "b", "town", "when", "y"], rows)
    said = follow("same", "old", ["a", "b", "town", "when", "y"], rows)
    says("the same table", said, unsaid=["init.weights"])
    same("the same table", predicted("old", "old.csv"), predicted("same", "old.csv"), BOTH)
    said = follow("other", "old", ["extra", "when", "town", "b", "a", "y"], rows)
    says("columns in another order", said, 'does not have these columns or texts; their weights begin with 0: "extra"',
         unsaid=["left out"])
    same("columns in another order", predicted("old", "other.csv"), predicted("other", "other.csv"), BOTH)
    # a level that comes first, one that is gone, and dates that are counted from another day
    late = [dict(row, town={"d": "a"}.get(row["town"], row["town"]), when="2019" + row["when"][4:]) for row in rows]
    said = follow("late", "old", ["town", "when", "b", "a", "y"], rows + late, data={"drop": "b"})
    says("another level", said, 'begin with 0: "a" of "town"', 'do not have are left out: "b"')
    table("mean.csv", ["a", "b", "town", "when"], [dict(row, b=sum(r["b"] for r in rows) / len(rows)) for row in rows])
    same("another level", predicted("old", "mean.csv"), predicted("late", "mean.csv"), BOTH)


def scales():
    rows = examples(120)
    moved = [dict(row, a=row["a"] * 3 + 7, b=row["b"] - 20, sum=row["sum"] * 2) for row in examples(90)]
    begin("value", ["a", "b", "town", "sum"], rows, data={"labels": "values"})
    said = follow("moved", "value", ["b", "town", "a", "sum"], moved, data={"labels": "values"})
    says("another scale", said, unsaid=["init.weights"])
    same("another scale", predicted("value", "moved.csv"), predicted("moved", "moved.csv"), {"prediction": "prediction"})
    relu = [{"type": "relu"}, {"type": "dense", "name": "only"}]
    begin("bent", ["a", "b", "y"], rows, relu)
    said = follow("straight", "bent", ["b", "a", "y"], moved, relu)
    says("an activation before the layer", said, 'layer "only" has no bias or an activation beside it')
    said = follow("equal", "bent", ["b", "a", "y"], rows, relu)
    says("the same numbers", said, unsaid=["init.weights"])
    same("the same numbers", predicted("bent", "bent.csv"), predicted("equal", "bent.csv"), BOTH)


def classes():
    rows = examples(120)
    begin("two", ["a", "b", "y"], rows)
    three = [dict(row, y="aaa" if i % 9 == 0 else row["y"]) for i, row in enumerate(rows)]
    said = follow("three", "two", ["b", "a", "y"], three)
    says("a third class", said, 'does not have these classes; their weights begin as without it: "aaa"')
    new = [{**p, "share": str(float(p["p_yes"]) / (float(p["p_yes"]) + float(p["p_no"])))}
           for p in predicted("three", "two.csv")]
    same("a third class", predicted("two", "two.csv"), new, {"p_yes": "share"})
    other = [dict(row, y={"no": "yes", "yes": "always"}[row["y"]]) for row in rows]  # "yes" is the second class no more
    said = follow("shifted", "two", ["a", "b", "y"], other)
    says("a class at another place", said, 'as without it: "always"', 'do not have are left out: "no"')
    said = follow("numbers", "two", ["a", "b", "sum"], rows, data={"labels": "values"}, code=65)
    says("values instead of classes", said, "init.weights")


def networks():
    rows = examples(120)
    normed = [{"type": "batch_norm", "name": "first"}, {"type": "dense", "name": "middle", "out": 6},
              {"type": "batch_norm", "name": "second"},
              {"type": "relu", "name": "bent"}, {"type": "dense", "name": "branch", "out": 5, "from": "input"},
              {"type": "concat", "with": "bent"}, {"type": "concat", "with": "input"},
              {"type": "dense", "name": "last", "out": "classes"}, {"type": "batch_norm", "name": "third"}]
    begin("norm", ["a", "b", "town", "y"], rows, normed)
    normed = [dict(layer, momentum=0) if layer["type"] == "batch_norm" else layer for layer in normed]  # statistics stay
    follow("normed", "norm", ["town", "b", "a", "y"], rows, normed)
    same("batch norm of the columns and classes", predicted("norm", "norm.csv"), predicted("normed", "norm.csv"), BOTH)
    three = [dict(row, y="aaa" if i % 9 == 0 else row["y"]) for i, row in enumerate(rows)]
    follow("third", "norm", ["a", "b", "town", "y"], three, normed)
    first = [{"type": "dense", "name": "more", "out": 4}, {"type": "concat", "from": "input", "with": "more"}, {"type": "dense", "name": "last"}]
    begin("front", ["a", "b", "town", "y"], rows, first)
    follow("fronts", "front", ["extra", "town", "b", "a", "y"], rows, first)
    same("the row before the rest", predicted("front", "fronts.csv"), predicted("fronts", "fronts.csv"), BOTH)
    mixed = [{"type": "dense", "name": "hidden", "out": 2}, {"type": "add", "with": "input"}, {"type": "dense", "name": "last"}]
    begin("mix", ["a", "b", "y"], rows, mixed)
    said = follow("mixed", "mix", ["b", "a", "y"], rows, mixed, code=65)
    says("columns that are mixed", said, 'layer "last" mixes them, so no weight belongs to one of them')
    wider = [dict(layer, out=9) if layer.get("name") == "hidden" else layer for layer in DEEP]
    begin("narrow", ["a", "b", "y"], rows)
    said = follow("wide", "narrow", ["b", "a", "y"], rows, wider, code=65)
    says("another width", said, 'tensor "hidden.weight" has another shape; with "partial": true the others are read')
    said = follow("part", "narrow", ["b", "a", "y"], rows, [dict(layer) for layer in DEEP[:3]] + [
        {"type": "dense", "name": "new", "out": 4}, {"type": "dense", "name": "last"}], more=("--set", "init.partial=true"))
    says("a part", said, 'tensor "new.weight" is not there: it begins as without the file',
         'tensor "last.weight" has another shape: it begins as without the file', unsaid=['"hidden.weight"'])


def arrays():
    draw = random.Random(3)
    x = [[draw.gauss(3 * k, k + 1) for k in range(4)] for _ in range(80)]
    y = [-1 if row[0] + row[1] < 3 else 1 for row in x]
    for name, values, labels in (("u", x, y), ("v", [[v * 5 - 2 for v in row] for row in x], [0, 0] + y[2:])):
        Path(name).mkdir()
        flat = [v for row in values for v in row]
        Path(name, "x.npy").write_bytes(npy("<f8", (80, 4), struct.pack("<320d", *flat)))
        Path(name, "y.npy").write_bytes(npy("<i8", (80,), struct.pack("<80q", *labels)))
        config({"name": "npy", "path": name, "x": "x.npy", "y": "y.npy", "standardize": True, "labels": "classes"}, DEEP)
        said = run(f"run_{name}", *(STILL + ("--set", "init.weights=run_u/weights.safetensors") if name == "v" else ()))
    says("a class by value", said, 'as without it: "0"')
    new = [{**p, "share": str(float(p["p_1"]) / (float(p["p_1"]) + float(p["p_-1"])))} for p in predicted("run_v", "v/x.npy")]
    same("arrays of another scale", predicted("run_u", "v/x.npy"), new, {"p_1": "share"})


def main():
    for test in (columns_and_levels, scales, classes, networks, arrays):
        test()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
