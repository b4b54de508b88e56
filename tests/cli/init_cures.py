#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""init_cures.py TRAINER: tests that each key which a message of `init` names can be set with `--set`: `init` then
accepts the data, a run accepts the config, and what `init` prints agrees with what it writes. Needs only Python.
"""
import json
import math
import re
import struct
import sys
import zipfile
from pathlib import Path

import data_forms as forms
import file_bytes
from data_forms import npy, trainer

ROWS = 60
failures = forms.failures


def floats(values, shape):
    return npy("<f8", shape, struct.pack(f"<{len(values)}d", *values))


def wholes(values):
    return npy("<i8", (len(values),), struct.pack(f"<{len(values)}q", *values))


def numbers(hole=None):
    values = [(i * 37 % 101) / 10 for i in range(4 * ROWS)]
    if hole is not None:
        values[hole] = float("nan")
    return floats(values, (ROWS, 4))


def pair(folder, x, y, names=("x.npy", "y.npy")):
    Path(folder).mkdir()
    (Path(folder) / names[0]).write_bytes(x)
    (Path(folder) / names[1]).write_bytes(y)
    return folder


def table(name, head, row, encoding="utf-8"):
    Path(name).write_bytes((head + "\n" + "".join(row(i) + "\n" for i in range(ROWS))).encode(encoding))
    return name


def png(path, size, pixel, kind=6, depth=8):
    """Writes a PNG file. pixel(x, y): the bytes of a pixel."""
    lines = [b"".join(pixel(x, y) for x in range(size)) for y in range(size)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_bytes.png(size, lines, kind, depth))


def run(what, *arguments):
    code, text = trainer("config.json", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null", *arguments)
    if code:
        failures.append(f"{what}: the run: {code}: {text}")
    return text


def accepts(what, *arguments, said=(), unsaid=(), data=None, trains=True):
    """`init` writes a config with the members `data`, prints the texts `said`, and a run accepts the config."""
    code, text = trainer("init", *arguments, "--to", "config.json")
    if code:
        failures.append(f"{what}: {code}: {text}")
        return
    found = json.loads(Path("config.json").read_text())["data"]
    for key, value in (data or {}).items():
        if found.get(key) != value:
            failures.append(f"{what}: expected {key} {value!r} in {found}")
    failures.extend(f"{what}: expected '{part}' in: {text}" for part in said if part not in text)
    failures.extend(f"{what}: unexpected '{part}' in: {text}" for part in unsaid if part in text)
    if trains:
        run(what)


# ---- each cure ----------------------------------------------------------------------------------------------------

def cures():
    """Yields data that `init` refuses, its arguments, and the key of each cure with a value."""
    yield "codes", [table("codes.csv", "chrom,a,y", lambda i: f"{'123X'[i % 4]},{i % 7},{'uv'[i % 2]}")], {"categorical": "chrom"}
    yield "money", [table("money.csv", "cost,a,y", lambda i: f"{'$' if i == 9 else ''}{i % 5},{i % 7},{'uv'[i % 2]}")], {
        "categorical": "cost"}
    yield "money, left out", ["money.csv"], {"drop": "cost"}
    yield "decimals", [table("both.csv", "a;y", lambda i: f"{i % 9 + 1},{i * 25 % 900 + 100};{'uv'[i % 2]}")], {"decimal": '","'}
    yield "separators", [table("fit.csv", "a;b,y", lambda i: f"{i % 3};{i % 2},{'uv'[i % 2]}")], {"separator": '","'}
    yield "an encoding", [table("latin.csv", "a;ort;y", lambda i: f"{i % 9};{('Köln', 'Bonn')[i % 2]};{'uv'[i % 2]}", "latin-1")], {
        "encoding": "latin-1"}
    table("places-test.csv", "place,a,y", lambda i: f"C{i % 5},{i % 7},{i * 37 % 101 / 4}")
    other = [table("places.csv", "place,a,y", lambda i: f"A{i % 5},{i % 7},{i * 37 % 101 / 4}"), "--set", "data.test_path=places-test.csv"]
    yield "a test table of other places, without the column", other, {"drop": "place"}
    yield "a test table of other places, with zeros", other, {"unknown": "zeros"}
    two = wholes([i % 2 for i in range(ROWS)])
    yield "targets of another name", [pair("other", numbers(), two, ("rows.npy", "kinds.npy")) + "/rows.npy"], {"y": "kinds.npy"}
    with forms.zipfile.ZipFile("names.npz", "w") as archive:
        archive.writestr("spectra.npy", numbers())
        archive.writestr("kinds.npy", two)
    yield "names in an archive", ["names.npz"], {"x": "spectra", "y": "kinds"}


def follow(what, arguments, keys):
    """`init` refuses the data and names the keys; with them it accepts the data."""
    code, text = trainer("init", *arguments)
    named = set(re.findall(r"data\.([a-z_]+)", text))
    if code == 0 or not set(keys) <= named:
        failures.append(f"{what}: expected to be refused with {sorted(keys)}, found {code}: {text}")
    sets = [part for key, value in keys.items() for part in ("--set", f"data.{key}={value}")]
    accepts(what, *arguments, *sets, data={key: value.strip('"') for key, value in keys.items()})


# ---- what is printed and what is written --------------------------------------------------------------------------

def agreement():
    table("zip.csv", "zip,a,k,y", lambda i: f"{1000 + i % 6},{'' if i == 3 else i * 7 % 11},{i % 3},{i % 5}")
    accepts("a column of texts", "zip.csv", "--set", "data.categorical=zip", said=("  zip                      texts ",),
            data={"categorical": "zip"})
    accepts("classes as values", "zip.csv", "--set", "data.labels=values", said=("  y                        value ",),
            data={"labels": "values"})
    accepts("another target", "zip.csv", "--set", "data.target=k", said=("  k                        class ",),
            data={"target": "k", "labels": "classes"})
    accepts("not standardised", "zip.csv", "--set", "data.standardize=false",
            said=("numbers are not standardised (data.standardize)\n",), data={"standardize": False})
    accepts("another limit", "zip.csv", "--set", "data.clip=4", said=("limited to 4 deviations",))
    accepts("zeros", "zip.csv", "--set", "data.missing=zero", said=("missing numbers become 0 (data.missing)",))
    accepts("half of the rows", "zip.csv", "--set", "data.validation=0.5", said=("0.5 of the rows are held out",),
            unsaid=("a fifth",), data={"validation": 0.5})
    accepts("targets in their unit", "zip.csv", "--set", "data.labels=values", "--set", "data.standardize_target=false",
            said=("y is not standardised",))
    table("counted.csv", "id,a,y", lambda i: f"{i},{i * 7 % 11},{i % 5}")
    accepts("a column that counts", "counted.csv", said=("id is left out",), data={"drop": "id"})
    accepts("chosen columns", "counted.csv", "--set", "data.drop=a", said=("  a                        left out",),
            unsaid=("id is left out",), data={"drop": "a"})
    table("test.csv", "zip,a,k,y", lambda i: f"{1000 + i % 6},{i * 5 % 11},{i % 3},{i % 5}")
    accepts("test rows", "zip.csv", "--set", "data.test_path=test.csv", said=(f"  {ROWS} test rows",), unsaid=("held out",),
            data={"validation": None})
    table("value.csv", "id,a,y", lambda i: f"{i},{i * 7 % 11},{i * 37 % 101 + i / 8}")
    table("value-test.csv", "a,y", lambda i: f"{i * 5 % 11},{i * 41 % 101 + i / 16}")
    accepts("test rows with values", "value.csv", "--set", "data.test_path=value-test.csv",
            said=(f"  {ROWS} test rows", "  y                        value ", "id is left out"), data={"labels": "values", "drop": "id"})
    table("zeros.csv", "plz,a,y", lambda i: f"{1000 + i % 12:05d},{i * 7 % 11},{int(i % 12 > 5)}")
    accepts("codes with zeros", "zeros.csv", said=("plz                      texts ",), data={"categorical": None}, trains=False)
    if "are numbers, but" in run("codes with zeros"):
        failures.append("codes with zeros: the run warns of texts that are numbers")
    table("flag.csv", "a,flag,y", lambda i: f"{i * 7 % 11},{'' if i % 3 else 1},{int(i % 3 == 0)}")
    accepts("a flag", "flag.csv", said=("flag is left out (data.drop): it has the same value in every row that has one; data.categorical",),
            data={"drop": "flag"})
    accepts("a flag that is learnt", "flag.csv", "--set", "data.categorical=flag", unsaid=("flag is left out",),
            data={"categorical": "flag", "drop": None})
    for name, head, row, said in (("alone.csv", "y", "{0}", ("there is no other",)),
                                  ("names.csv", "a,y", "n{1},{0}", ("all others are left out", "a is left out (data.drop): it has nearly"))):
        code, text = trainer("init", table(name, head, lambda i, row=row: row.format(i % 2, i)), "--target", "y")
        if code != 65 or any(part not in text for part in said):
            failures.append(f"{name}: expected 65 and {said}, found {code}: {text}")
    code, text = trainer("init", "zip.csv", "--set", "data.image_size=32")
    if code != 78 or "image_size" not in text:
        failures.append(f"a key of pictures: expected 78, found {code}: {text}")
    code, text = trainer("init", "zip.csv", "--set", "data.path=other.csv")
    if code != 64 or "data.path: expected" not in text:
        failures.append(f"another path: expected 64, found {code}: {text}")


# ---- pictures -----------------------------------------------------------------------------------------------------

def shape(kind, i, x, y):
    """Whether a pixel belongs to a cross (0) or to a frame (1), which is shifted."""
    x, y = x - i % 3, y - i % 2
    return x == 4 or y == 4 if kind == 0 else 1 <= x <= 7 and 1 <= y <= 7 and (x in (1, 7) or y in (1, 7))


def pictures():
    for kind in (0, 1):
        for i in range(20):
            name = f"{kind}/{i}.png"
            png(Path("drawn") / name, 12, lambda x, y: b"\0\0\0" + bytes([255 * shape(kind, i, x, y)]))
            png(Path("opaque") / name, 12, lambda x, y: bytes(3 * [255 - 255 * shape(kind, i, x, y)]), kind=2)
            png(Path("equal") / name, 12, lambda x, y: b"\xff\xff\xff" + bytes([255 * shape(kind, i, x, y)]))
            png(Path("sensor") / name, 12, lambda x, y: struct.pack(">H", 300 * shape(kind, i, x, y)), kind=0, depth=16)
            png(Path("wide") / name, 40 if i > 2 else 10 + 80 * i, lambda x, y: bytes([x * y * (kind + 1) % 256]), kind=0)
    accepts("a drawing", "drawn", data={"image_size": 12, "channels": 1}, said=("scaled to 12×12",))
    said = run("a drawing")
    if "40 images have transparent pixels and were laid on white" not in said:
        failures.append(f"a drawing: expected to hear of the white ground: {said}")
    first = re.findall(r"loss [0-9.]+  acc [0-9.]+", said)
    accepts("an opaque one", "opaque", data={"image_size": 12, "channels": 1})
    if not first or first != (other := re.findall(r"loss [0-9.]+  acc [0-9.]+", run("an opaque one"))):
        failures.append(f"a drawing on white and a transparent one differ: {first}, {other}")
    for command in (("init", "equal"), ("config.json", "--devices", "cpu:1", "--set", "run_dir=null", "--set", "data.path=equal")):
        code, text = trainer(*command)
        if code != 65 or "all 40 training images are equal" not in text or "laid on white" not in text:
            failures.append(f"equal pictures: {command[0]}: expected 65, found {code}: {text}")
    accepts("16 bits", "sensor")
    if "300, the largest of the training images, became white" not in run("16 bits"):
        failures.append("16 bits: expected to hear of the range")
    accepts("the median of the sides", "wide", data={"image_size": 40}, said=("40 training pictures are few", "shifted"))
    accepts("a size that is set", "wide", "--set", "data.image_size=9", data={"image_size": 9}, said=("scaled to 9×9",))
    accepts("colours that are set", "wide", "--set", "data.channels=3", "--set", "data.image_size=8", data={"channels": 3},
            said=("pictures, in colour", "mirrored at random (augment); where a mirrored picture shows something else, such as text: --set augment.flip=false"))


def result(what, *sets):
    """Trains with the config that `init` has written, and returns the last line of the standard output."""
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "run_dir=null", *sets)
    last = re.findall(r"validation (?:acc|r2): ([-0-9.]+)", text)
    if code or not last:
        failures.append(f"{what}: {code}: {text}")
        return 0
    return float(last[-1])


def columns_of_tables():
    """Columns that say nothing, codes, equal names, and many columns."""
    table("still.csv", "year,none,one,a,y", lambda i: f"2023,,x,{i * 7 % 11},{'uv'[i % 2]}")
    accepts("columns that say nothing", "still.csv", data={"drop": "year,none,one"},
            said=("year is left out (data.drop): it has the same value in every row", "none is left out (data.drop): it has no value"))
    table("hole.csv", "flag,a,y", lambda i: f"{'x' if i % 3 else ''},{i * 7 % 11},{'uv'[i % 2]}")
    accepts("a text or none", "hole.csv", data={"drop": None})
    table("codes0.csv", "zip,a,y", lambda i: f"{(10001 if i < 5 else 1001) + i % 20:05},{i * 7 % 11},{'uv'[i % 2]}")
    accepts("codes", "codes0.csv", said=("  zip                      texts ", '"01006" begins with 0'))
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=codes")
    Path("new.csv").write_text("zip,a\n01006,1\n1006,1\n")
    code, text = trainer("predict", "codes", "new.csv", "--devices", "cpu:1")
    if code != 65 or not re.search(r"row 0: [01] [uv]", text) or '"1006"' not in text:
        failures.append(f"codes: 01006 and 1006 are two: {code}: {text}")
    Path("amounts.csv").write_text("n,a,y\n" + "".join(f"{i * 37 % 5003:05},{i * 7 % 11},{'uv'[i % 2]}\n" for i in range(1500)))
    accepts("too many codes", "amounts.csv", said=("  n                        number ",))
    table("twice.csv", "a,x,x,y", lambda i: f"{i % 7},{i % 3},{i % 2},{'uv'[i % 2]}")
    accepts("equal names that are left out", "twice.csv", "--set", "data.drop=x", data={"drop": "x"})
    if (code := trainer("init", "twice.csv")[0]) != 65:
        failures.append(f"equal names: expected 65, found {code}")
    table("wide.csv", ",".join(f"c{i}" for i in range(3000)) + ",y", lambda i: ",".join(str(i * k % 7) for k in range(1, 3001)) + f",{'uv'[i % 2]}")
    code, text = trainer("init", "wide.csv", "--to", "config.json")
    if code or len(text.splitlines()) > 90 or "more columns:" not in text or "  y  " not in text:
        failures.append(f"many columns: {code}: {text[:3000]}")


def columns_of_arrays():
    """Arrays of rows without height and width are tables without names."""
    scales = (1, 1000, 1e-3, 1e7)  # the class depends on the column with the smallest numbers
    rows = [[(i * step % 101 - 50) * scale + 3 * scale for step, scale in zip((37, 41, 43, 47), scales)] for i in range(300)]
    classes = [int(row[2] > 3e-3) for row in rows]
    pair("scales", floats([v for row in rows for v in row], (300, 4)), wholes(classes))
    accepts("columns of different scales", "scales", said=("300 rows of 4 columns of floats, each column standardised",),
            data={"standardize": True, "clip": 10, "mean": None, "std": None}, trains=False)
    if (found := result("columns of different scales")) < 0.95:
        failures.append(f"columns of different scales: expected an accuracy of 0.95, found {found}")
    days = [2460000.5 + i * 37 % 300 / 4000 for i in range(300)]  # as floats they are all equal
    pair("days", floats(days, (300, 1)), floats([math.sin(100 * (day - 2460000.5)) for day in days], (300,)))
    accepts("days near a large offset", "days", said=("300 rows of 1 column of floats",), unsaid=("left out",), trains=False)
    if (found := result("days near a large offset")) < 0.95:
        failures.append(f"days near a large offset: expected an R² of 0.95, found {found}")
    accepts("a fixed scale", "scales", "--set", "data.mean=3", "--set", "data.std=5", said=("mean 3, deviation 5",),
            data={"standardize": None, "clip": None})
    accepts("another limit of columns", "scales", "--set", "data.clip=4",
            said=("standardised (data.standardize), and limited to 4 deviations (data.clip)",))
    accepts("no limit of columns", "scales", "--set", "data.clip=0", said=("each column standardised (data.standardize)\n",))
    accepts("columns that are not standardised", "scales", "--set", "data.standardize=false")
    far_cells()
    for size, name in ((2e6, "large"), (1e-9, "small")):
        pair(name, floats([(i * 37 % 101) * size for i in range(60 * 48)], (60, 6, 8)), wholes(classes[:60]))
        accepts(f"{name} images", name, said=("each channel standardised (data.standardize)\n",), data={"standardize": True, "clip": None})


def far_cells():
    """One value that is far out does not spoil the training: arrays have the limit of tables, and the same weights."""
    rows = [[float(i * step % 101 - 50) for step in (37, 41, 43, 47)] for i in range(300)]
    y = [row[0] - row[1] / 2 + row[2] / 3 + row[3] / 4 + i * 53 % 17 for i, row in enumerate(rows)]
    rows[7][2], rows[8][1] = 1e7, -1e7
    pair("far", floats([v for row in rows for v in row], (300, 4)), floats(y, (300,)))
    Path("far.csv").write_text("a,b,c,d,y\n" + "".join(",".join(map(repr, row)) + f",{v!r}\n" for row, v in zip(rows, y)))
    found = []
    for data in ("far", "far.csv"):
        code, text = trainer("init", data, "--to", "config.json", "--train", "--set", f"run_dir=run of {data}", "--set", "devices=cpu:1")
        ends = [json.loads(line) for line in Path(f"run of {data}", "metrics.jsonl").read_text().splitlines()] if not code else []
        end = next((r for r in reversed(ends) if r["type"] == "run_end"), {})
        found.append((code, end.get("weights_sha256"), end.get("metric_value", end.get("test_loss"))))
    if found[0] != found[1] or found[0][0] or not found[0][1]:
        failures.append(f"values that are far out: {found}")


def targets_of_arrays():
    """What `init` makes of whole numbers, and the names of the classes."""
    def given(name, targets, rows=None):
        rows = rows or len(targets)
        return pair(name, floats([(i * 37 % 101) / 10 + 5 * (k == 0) * targets[i] for i in range(rows) for k in range(3)],
                                 (rows, 3)), wholes(targets))
    few = [i % 5 - 2 for i in range(ROWS)]
    accepts("targets below 0", given("negative", few), data={"labels": "classes"},
            said=("targets: 5 classes", "from -2 to 2, a class each", "--set data.labels=values"))
    accepts("targets below 0, values", "negative", "--set", "data.labels=values", data={"labels": "values"}, said=("targets: 1 value",))
    for name, labels in (("signs", (-1, 1)), ("gaps", (0, 5, 9)), ("from one", (1, 2, 3))):
        accepts(name, given(name, [labels[i % len(labels)] for i in range(120)]), data={"labels": "classes"},
                said=(f"targets: {len(labels)} classes",), unsaid=("no training row",), trains=False)
        if (found := result(name, "--set", "run_dir=run " + name)) < 0.9:
            failures.append(f"{name}: expected an accuracy of 0.9, found {found}")
        code, text = trainer("eval", "run " + name, "--devices", "cpu:1")
        if code or any(not re.search(rf" {label}$", text, re.M) for label in labels):
            failures.append(f"{name}: expected the classes {labels}: {code}: {text}")
        again = trainer("eval", "run " + name, "--data", name, "--devices", "cpu:1")
        if again[0] or any(not re.search(rf" {label}$", again[1], re.M) for label in labels):
            failures.append(f"{name}: the same labels as new rows: {again}")
    Path("signs/y.npy").write_bytes(wholes([(i + 1) % 2 for i in range(120)]))
    code, text = trainer("eval", "run signs", "--data", "signs", "--devices", "cpu:1")
    if code != 65 or "expected one of the 2 labels from -1 to 1" not in text:
        failures.append(f"a label that was not learnt: {code}: {text}")
    many = [i % 30 for i in range(150)]
    accepts("numbered classes", given("numbered", many), data={"labels": "classes"}, said=("targets: 30 classes",))
    rare = many + [30]
    accepts("a number that is rare", given("rare", rare), data={"labels": "values"}, said=("targets: 1 value", "too few rows of each"))
    prices = [100000 + i * 739 % 50000 for i in range(120)]
    accepts("prices", given("prices", prices), data={"labels": "values"}, said=("--set data.labels=classes",))
    code, text = trainer("init", given("equal targets", [4] * ROWS))
    if code != 65 or "at least two different targets, found 4 in each" not in text:
        failures.append(f"equal targets: {code}: {text}")


def unicode(values, order="<"):
    width = max(map(len, values))
    return npy(f"{order}U{width}", (len(values),),
               b"".join(v.ljust(width, "\0").encode("utf-32-le" if order == "<" else "utf-32-be") for v in values))


def labels_as_texts():
    """Labels that are texts are the classes of the same names, in any order of bytes; texts that are numbers are numbers."""
    names = ["zoë", "b", "élan"]
    values = [names[i * i % 7 % 3] for i in range(ROWS)]
    results = []
    for name, y in (("little", unicode(values)), ("big", unicode(values, ">")), ("bytes", npy(
            "|S5", (ROWS,), b"".join(v.encode().ljust(5, b"\0") for v in values)))):
        accepts(name, pair("texts_" + name, numbers(), y), data={"labels": "classes"}, trains=False)
        trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=2", "--set", f"run_dir=run_{name}")
        trainer("predict", f"run_{name}", f"texts_{name}/x.npy", "--to", f"{name}.csv")
        results.append(Path(f"{name}.csv").read_text(encoding="utf-8"))
    if results[0].splitlines()[0] != "row,prediction,p_b,p_zoë,p_élan" or len(set(results)) != 1:
        failures.append(f"labels as texts: {[r[:200] for r in results]}")
    code, text = trainer("eval", "run_little", "--data", "texts_big", "--devices", "cpu:1")
    if code or "rows of texts_big" not in text:
        failures.append(f"labels as texts, new rows: {code}: {text}")
    Path("texts_big/y.npy").write_bytes(unicode(["other"] + values[1:]))
    code, text = trainer("eval", "run_little", "--data", "texts_big", "--devices", "cpu:1")
    if code != 65 or 'row 0: expected a label of the training rows, found "other"' not in text:
        failures.append(f"a text that is no class: {code}: {text}")
    accepts("texts of numbers", pair("texts_of_numbers", numbers(), unicode([str(i % 3 * 5) for i in range(ROWS)])),
            data={"labels": "classes"})
    accepts("texts beside NaN", pair("texts_beside_nan", numbers(5), unicode(values)), data={"labels": "classes", "missing": "mean"})
    code, text = trainer("init", pair("texts_as_rows", unicode(values), wholes([i % 2 for i in range(ROWS)])))
    if code != 65 or "found '<U4'" not in text:
        failures.append(f"rows of texts: {code}: {text}")
    with zipfile.ZipFile("medical.npz", "w") as archive:
        for part in ("train", "val"):
            archive.writestr(f"{part}_images.npy", numbers())
            archive.writestr(f"{part}_labels.npy", unicode(values))
    accepts("rows for validation in an archive", "medical.npz", data={"labels": "classes"}, said=(f"{ROWS} test rows",))


def columns_of_bytes():
    """Columns of u8 are standardised each, as the same numbers of another type are."""
    values = [min(255, (i // 3 * step) % 59 * scale) for i in range(3 * ROWS) for step, scale in [((7, 4), (11, 1), (13, 1))[i % 3]]]
    y = wholes([i * 11 % 59 // 20 % 2 for i in range(ROWS)])
    found = []
    for name, x in (("u1", npy("|u1", (ROWS, 3), bytes(values))), ("f8", floats(values, (ROWS, 3)))):
        accepts(name, pair("columns_" + name, x, y), data={"standardize": True, "clip": 10}, said=("each column standardised",), trains=False)
        trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=2", "--set", f"run_dir=run_{name}")
        code, text = trainer("predict", f"run_{name}", f"columns_{name}/x.npy", "--to", f"columns_{name}.csv")
        if code:
            failures.append(f"columns of {name}: {code}: {text}")
            return
        found.append((Path(f"columns_{name}.csv").read_text(), re.sub(r", [0-9.]+ s\n.*|columns_..", "", trainer(
            "eval", f"run_{name}", "--data", f"columns_{name}", "--devices", "cpu:1")[1])))
    if found[0] != found[1] or "60 rows" not in found[0][1]:
        failures.append(f"columns of bytes: {found[0][0][:200]} {found[0][1]} and {found[1][0][:200]} {found[1][1]}")
    accepts("bytes as pixels", "columns_u1", "--set", "data.standardize=false", said=("bytes / 255",), data={"standardize": False})


def small_images():
    """Images of 8 × 8 in which only the place of a spot is the class: the network must not average over all places."""
    def image(i):
        left, top = 1 + 4 * (i % 2) + i // 4 % 2, 1 + 4 * (i // 2 % 2) + i // 8 % 2
        return bytes(150 + i % 100 if x in (left, left + 1) and y in (top, top + 1) else i * 7 % 20 for y in range(8) for x in range(8))
    pair("spots", npy("|u1", (400, 8, 8), b"".join(map(image, range(400)))), wholes([i % 4 for i in range(400)]))
    accepts("small images", "spots", said=("rows of 1×8×8",), trains=False)
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "run_dir=null", "--set", "epochs=5")
    accuracy = re.search(r"validation acc: ([0-9.]+)", text)
    if code or not accuracy or float(accuracy[1]) < 0.97:
        failures.append(f"small images: expected an accuracy of 0.97, found {code}: {text}")


def says(what, code, texts, *arguments, unsaid=()):
    """Expects the exit code and texts of `init`."""
    found, text = trainer("init", *arguments)
    if found != code or any(t not in text for t in texts) or any(t in text for t in unsaid):
        failures.append(f"{what}: expected {code} and {texts}, without {unsaid}: {found}: {text}")


def configs_that_cannot_train():
    """`init` writes no config that a run refuses, and says if the target cannot be learnt."""
    for side in (1040, 4096):
        png(Path("wide_pictures/a/1.png"), 8, lambda x, y: bytes((x, y, 0, 255)))
        png(Path("wide_pictures/b/1.png"), 8, lambda x, y: bytes((0, x, y, 255)))
        png(Path("wide_pictures/b/2.png"), 8, lambda x, y: bytes((0, y, x, 255)))
        says(f"pictures of {side}", 0, ("in colour",), "wide_pictures", "--set", f"data.image_size={side}", "--to", "wide_pictures.json")
        config = json.loads(Path("wide_pictures.json").read_text()) if Path("wide_pictures.json").exists() else {}
        if config.get("augment", {}).get("crop") != 64:
            failures.append(f"pictures of {side}: expected the largest crop, 64: {config}")
    table("lists.csv", "a,b,y", lambda i: f"{i % 7},{i % 5},{i * 1.5}")
    for key, value, meant in (("quantiles", "0.05,0.5,0.95", "[0.05,0.5,0.95]"), ("class_weights", "0.2,0.8", "[0.2,0.8]"),
                              ("metrics.names", "loss,r2", '["loss","r2"]'), ("freeze", "conv1.*,bn*", '["conv1.*","bn*"]'),
                              ("data.mean", "1,2", "[1,2]"), ("data.std", "1,2", "[1,2]")):
        says(f"a list for {key}", 78, (f"a list has brackets: --set '{key}={meant}'",), "lists.csv", "--set", f"{key}={value}")
    table("config_list.csv", "1,2,y", lambda i: f"{i % 7},{i % 5},{i % 2}")
    says("names of columns", 0, (), "config_list.csv", "--set", "data.categorical=1,2", "--target", "y")
    table("ids.csv", "id,day,a,y", lambda i: f"K{i},D{i // 3},{i % 7},{'uv'[i % 2]}")
    says("an id as the target", 65, ("another class in each of the 60 rows", '"id" is perhaps an id', "--target"), "ids.csv", "--target", "id")
    says("a date as the target", 0, ("20 classes for 60 rows: 3.0 rows of a class", "--target"), "ids.csv", "--target", "day")
    says("a target with enough rows", 0, ("to be learnt",), "ids.csv", "--target", "y", unsaid=("rows of a class",))
    table("rare.csv", "a,y", lambda i: f"{i % 7},{'ja' if i % 20 == 0 else 'nein'}")
    says("a rare class that is not positive", 0, ("rows are of class ja", "is the positive one"), "rare.csv")
    table("rare.csv", "a,y", lambda i: f"{i % 7},{'yes' if i % 20 == 0 else 'no'}")
    says("a rare class that is positive", 0, ("rows are of class yes",), "rare.csv", unsaid=("is the positive one",))
    pair("own_classes", numbers(), wholes(list(range(ROWS))))
    says("a class for each row of arrays", 65, ("another class in each of the 60 rows",), "own_classes", "--set", "data.labels=classes")
    for head, warns in (("14.23,1.7,1065.0", True), ("14.23,-1.7e3,1065", True), ("0,1,2", False), ("1,2,3", False), ("a,1.7,y", False)):
        table("header.csv", head, lambda i: f"{i % 7},{i % 5},{i % 2}")
        said = "looks like data" if warns else "to be learnt"
        says(f"the header {head}", 0, (said, "put a line with names") if warns else (said,), "header.csv",
             unsaid=() if warns else ("looks like data",))


def main():
    for what, arguments, keys in cures():
        follow(what, arguments, keys)
    accepts("a missing number", pair("hole", numbers(5), wholes([i % 2 for i in range(ROWS)])), data={"missing": "mean"},
            said=("missing numbers become their column's mean",))
    agreement()
    columns_of_tables()
    columns_of_arrays()
    targets_of_arrays()
    labels_as_texts()
    columns_of_bytes()
    pictures()
    small_images()
    configs_that_cannot_train()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
