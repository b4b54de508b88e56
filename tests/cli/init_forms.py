#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""init_forms.py TRAINER: tests `init` with files in the forms that users have: the description that it
prints, the config that it writes, and training with that config. Needs only Python.
"""
import gzip
import json
import struct
import sys
import zipfile
from pathlib import Path

import data_forms as forms
from data_forms import trainer

ROWS = 40


def look(what, *arguments, data, said="", trains=True):
    """Runs `init`. `data`: keys and values that the config's `data` must have."""
    code, text = trainer("init", *arguments, "--to", "config.json")
    if code:
        forms.failures.append(f"{what}: init: {code}: {text}")
        return
    found = json.loads(Path("config.json").read_text())["data"]
    wrong = {key: found.get(key) for key, value in data.items() if found.get(key) != value}
    if wrong:
        forms.failures.append(f"{what}: expected {data}, found {wrong}")
    if said not in text:
        forms.failures.append(f"{what}: expected '{said}' in: {text}")
    if trains:
        code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null")
        if code:
            forms.failures.append(f"{what}: {code}: {text}")


def fails(what, *arguments, said, code=65, unsaid=None):
    found, text = trainer("init", *arguments)
    if found != code or said not in text or unsaid and unsaid in text:
        forms.failures.append(f"{what}: expected {code} and '{said}', found {found}: {text}")


def prints_once():
    """`init` reads a table twice, and the run reads it a third time: each message is printed once."""
    Path("codes.csv").write_text("zip;y\n" + "".join(f"0050{i % 9};{i % 4}.5\n" for i in range(ROWS)))
    code, text = trainer("init", "codes.csv", "--to", "codes.json", "--train", "--set", "epochs=1", "--set", "run_dir=null")
    for said in ("the separator of fields is a semicolon", "begins with 0, so the column has codes"):
        if code or text.count(said) != 1:
            forms.failures.append(f"{code}; expected once: {said}; found {text.count(said)} times in: {text}")


def tables():
    look("decimal commas", "commas.csv", "--target", "value", data={"name": "csv", "target": "value", "labels": "values"},
         said="the separator of fields is a semicolon (data.separator)")
    look("gzip", "packed.csv.gz", "--target", "class", data={"path": "packed.csv.gz", "labels": "classes"})
    # Numbers with a decimal comma are values, even if there are few different ones.
    Path("halves.csv").write_text("a;y\n" + "".join(f"{i % 9};{i % 4},5\n" for i in range(ROWS)))
    look("values with a comma", "halves.csv", data={"target": "y", "labels": "values"}, said="decimal comma")
    # The name of a column that is left out contains a comma.
    Path("names.csv").write_text('"id, old",a,b,y\n' + "".join(f"{i},{i % 9},{i % 5},{'ab'[i % 2]}\n" for i in range(ROWS)))
    look("a comma in a name", "names.csv", data={"drop": ["id, old"]}, said="id, old is left out")


    # If numbers can be read in two ways, the message names the option of init that decides. The same
    # holds for separators and encodings.
    Path("both.csv").write_text("a;y\n" + "".join(f"{i % 9 + 1},{i * 25 % 900 + 100};{'uv'[i % 2]}\n" for i in range(ROWS)))
    fails("both ways", "both.csv", said='set data.decimal to "," or "." (with init: --decimal)')
    look("decimal commas by an option", "both.csv", "--decimal", ",", data={"decimal": ","}, said="     5.248 ")
    look("thousands by an option", "both.csv", "--decimal", ".", data={"decimal": "."}, said="      5248 ")
    Path("fit.csv").write_text("a;b,y\n" + "".join(f"{i % 3};{i % 2},{'uv'[i % 2]}\n" for i in range(ROWS)))
    fails("separators", "fit.csv", said="(with init: --separator)")
    look("a separator by an option", "fit.csv", "--separator", ",", data={"separator": ",", "target": "y"})
    Path("bars.csv").write_text("a|b,y|z\n" + "".join(f"{i % 3}|{i % 2},5|{'uv'[i % 2]}\n" for i in range(ROWS)))
    for bar in ("bar", "|"):
        look("a bar by an option", "bars.csv", "--separator", bar, data={"separator": bar, "target": "z"})
    Path("latin.csv").write_bytes("a;ort;y\n".encode() + "".join(
        f"{i % 9};{('Köln', 'Bonn')[i % 2]};{'uv'[i % 2]}\n" for i in range(ROWS)).encode("latin-1"))
    fails("an encoding", "latin.csv", said="(with init: --encoding)")
    look("an encoding by an option", "latin.csv", "--encoding", "latin-1", data={"encoding": "latin-1"})
    # What a message quotes decides nothing.
    fails("a key in a path", "data.encoding.csv", said="no such file", code=66, unsaid="with init")
    Path("quoted.csv").write_text("a,at most 65536 classes\n" + "1,x\n" * ROWS)
    fails("a limit in a name", "quoted.csv", said="expected at least two classes")
    fails("a misspelt loss", "bars.csv", "--separator", "bar", "--set", "loss=quantiles", code=78,
          said='--set loss=quantiles: the config: unknown loss "quantiles"; did you mean "quantile"?')
    prints_once()
    # The reason for which a column is left out is printed. A column without a name is left out without a key.
    Path("odd.csv").write_text(",day,cost,long,a,y\n" + "".join(
        f"{i},2024-01-{i % 28 + 1:02},${i},{'x' * 5000},{i * 7 % 11},{'uv'[i % 2]}\n" for i in range(ROWS)))
    look("columns that are left out", "odd.csv", data={"drop": "cost,long"}, said="weekday, days\n")
    for text in ("cost is left out (data.drop): it has texts that are neither", "such as an amount of money\n",
                 "such as a long text\n", "  (no name) "):
        look("columns that are left out", "odd.csv", data={}, said=text, trains=False)
    # Dates in forms that are not read are named, whatever becomes of them.
    Path("dates.csv").write_text("named,short,digits,version,a,y\n" + "".join(
        f'"Jan {i % 9 + 1:02}, 2023",{i % 28 + 1:02}.01.23,202301{i % 28 + 1:02},1.{i % 3}.2,{i * 7 % 11},{"uv"[i % 2]}\n' for i in range(ROWS)))
    for text in ("named looks like dates (Jan 01, 2023), but has texts; dates are read if they are written as 2024-12-31\n",
                 "short looks like dates (01.01.23), but has texts", "digits looks like dates (20230101), but has numbers"):
        look("dates that are not read", "dates.csv", data={}, said=text, trains=False)
    if "version looks" in trainer("init", "dates.csv")[1]:
        forms.failures.append("versions are taken for dates")
    # Several targets, and the cure: arrays.
    Path("two.csv").write_text("a,b,y,z\n" + "".join(f"{i % 9},{i % 5},{i * 3 % 7}.5,{i % 4}.5\n" for i in range(ROWS)))
    cure = "a table has one target; save the rows and their targets as numbers in x.npy and y.npy"
    fails("several targets", "two.csv", "--target", "y,z", said=f'expected one column, found several: "y,z"; {cure}', code=78)
    fails("several targets", "two.csv", "--set", 'data.target=["y","z"]', said=f"found an array; {cure}", code=78)
    for target, said in (("hello", 'expected a number, found "hello"'), ("1e40", "expected a finite number that a float holds"),
                         ('"1,5"', 'expected a number with a decimal point, as the training table has, found "1,5"')):
        Path("test.csv").write_text(f"a,b,y,z\n1,2,1.5,{target}\n")
        fails("a target of a test table", "two.csv", "--set", "data.test_path=test.csv", said=f'test.csv:2: column "z": {said}')
    folder_of("targets", {"x.npy": floats([[i % 9, i % 5] for i in range(ROWS)]), "y.npy": floats([[i * 3 % 7 + .5, i % 4 + .5] for i in range(ROWS)])})
    look("several targets in arrays", "targets", data={"name": "npy"})
    # Targets of types that are not read, and texts that training does not have: the message names the array and the cure.
    x = floats([[i % 9, i % 5] for i in range(ROWS)])
    objects = forms.npy("|O", (ROWS,), b"pickled")
    fields = objects.replace(b"'descr': '|O'", b"'descr': [('a', '<i4')]").replace(b" " * 10, b"", 1)
    for name, y, said in (("objects", objects, "found '|O'; save values as x.astype('<f4'), texts as y.astype(str)"),
                          ("fields", fields, "found an array with fields, whose arrays are x['NAME']; save")):
        folder_of(name, {"x.npy": x, "y.npy": y})
        fails("targets of another type", name, said=said)
    words = lambda texts: forms.npy("<U5", (ROWS,), "".join(text.ljust(5, "\0") for text in texts).encode("utf-32-le"))
    known = [("a", "b")[i % 2] for i in range(ROWS)]
    archive_of("zebra.npz", {"x.npy": x, "y.npy": words(known), "x_test.npy": x, "y_test.npy": words(known[:2] + ["zebra"] + known[3:])})
    fails("an unknown text", "zebra.npz", said='zebra.npz: test_y: row 2: expected a label of the training rows, found "zebra"')
    # Files of other formats are named, with the cure.
    for content, text in ((b"PAR1\x15\x04\x15", "found a Parquet file: save it as CSV, in Python with pandas.read_parquet("),
                          (b'\n[ {"a": 1}]', "found JSON: save it as CSV, in Python with pandas.read_json("),
                          (b'{"a": [1, 2]}', "found JSON"), (b"SQLite format 3\0", "found an SQLite database"),
                          (b"GIF89a", "found a picture"), (b"\0\0\0 ftypheic", "found a picture"), (b"\x1f\x8b", "gzip")):
        Path("other.csv").write_bytes(content)
        fails("another format", "other.csv", said=text)
    for name in ("MM", "P1", "%PDF", "abc,JXL "):  # a table of text can begin like a picture
        Path("column.csv").write_text(f"{name},y\n" + "".join(f"{i * 7 % 11},{f'{i * 5 % 13},' * name.count(',')}{'uv'[i % 2]}\n" for i in range(ROWS)))
        look("a column's name", "column.csv", data={"target": "y"})
    for option in ("--decimal", "--separator", "--encoding"):
        fails("a word that it is not", "both.csv", option, "x", said=f"{option}: expected", code=64)
        fails("no table", "first.npz", option, {"--decimal": ",", "--separator": ";", "--encoding": "latin-1"}[option],
              said=f"{option}: is about a table", code=64)
    Path("log.csv").write_text("time,a,y\n" + "".join(f"{1700000000 + 60 * i},{i * 7 % 11},{'uv'[i % 2]}\n" for i in range(ROWS)))
    look("a time", "log.csv", data={"drop": None}, said="time goes up evenly from row to row")


def files_of_data_sets():
    """Folders with IDX or CIFAR files are recognised by the names of the files."""
    def idx(folder, name, rows):
        folder.mkdir(parents=True, exist_ok=True)
        pixels = bytes((i * 7 + k) % 256 for i in range(rows) for k in range(64))
        (folder / f"{name}-images-idx3-ubyte").write_bytes(struct.pack(">IIII", 0x803, rows, 8, 8) + pixels)
        (folder / f"{name}-labels-idx1-ubyte").write_bytes(struct.pack(">II", 0x801, rows) + bytes(i % 10 for i in range(rows)))
    for folder, path, kind in (("digits/MNIST/raw", "digits", "mnist"), ("digits", "digits", "mnist"),
                               ("my-fashion", "my-fashion", "fashion_mnist")):
        idx(Path(folder), "train", 60)
        idx(Path(folder), "t10k", 20)
        look(f"IDX in {folder}", path, data={"name": kind, "path": path, "validation": None}, said="20 test rows")
    fails("one file of several", "digits/train-images-idx3-ubyte", said="name the directory that has all of them", code=64)
    idx(Path("letters"), "emnist-byclass-train", 60)
    idx(Path("letters"), "emnist-byclass-test", 20)
    look("EMNIST", "letters", data={"name": "emnist"}, said="62 classes")
    fails("a column of what is no table", "letters", "--target", "y", said="--target: is about a table", code=64)
    (Path("digits") / "t10k-labels-idx1-ubyte").unlink()
    fails("a file that is missing", "digits", said="no t10k-labels-idx1-ubyte[.gz] beside", code=66)
    Path("pickled/cifar-10-batches-py").mkdir(parents=True)
    Path("pickled/cifar-10-batches-py/data_batch_1").write_bytes(b"pickled")
    fails("CIFAR in Python's form", "pickled", said="cifar10 in Python's pickle format, which cannot be read", code=66)
    records = gzip.compress(bytes(3073 * 9999) + b"\1" * 3073, 1)
    Path("cifar").mkdir()
    for name in [f"data_batch_{i}" for i in range(1, 6)] + ["test_batch"]:
        (Path("cifar") / f"{name}.bin.gz").write_bytes(records)
    look("CIFAR", "cifar", data={"name": "cifar10", "validation": None}, said="50000 rows of 3×32×32 bytes", trains=False)


def arrays():
    look("npz", "first.npz", data={"name": "npy", "path": "first.npz", "layout": None}, said="rows of 3×5×6")
    look("channels last", "last.npz", data={"name": "npy", "layout": "channels_last"}, said="(data.layout)")
    if "warning" in trainer("init", "last.npz")[1]:
        forms.failures.append("channels last: what was assumed is not doubted as well")
    look("columns", "columns.npz", data={"path": "columns.npz", "labels": "classes", "standardize": True}, said="targets: 2 classes")


def floats(rows):
    """Returns an .npy file of rows of floats."""
    flat = [v for row in rows for v in row]
    return forms.npy("<f8", (len(rows), len(rows[0])), struct.pack(f"<{len(flat)}d", *flat))


def labels(count):
    return forms.npy("<i8", (count,), struct.pack(f"<{count}q", *(i * 7 % 11 // 6 for i in range(count))))


def folder_of(name, files):
    Path(name).mkdir()
    for file, content in files.items():
        (Path(name) / file).write_bytes(content)


def archive_of(name, files):
    with zipfile.ZipFile(name, "w") as archive:
        for file, content in files.items():
            archive.writestr(file, content)


def tensors_of(name, rows):
    """Writes a safetensors file with rows of two floats, and labels, for each pair of names."""
    header, data = {}, b""
    for x, y in rows:
        for key, kind, shape, packed in ((x, "F32", [ROWS, 2], struct.pack(f"<{2 * ROWS}f", *(i * 37 % 23 for i in range(2 * ROWS)))),
                                         (y, "I64", [ROWS], struct.pack(f"<{ROWS}q", *(i % 2 for i in range(ROWS))))):
            if not key:
                continue
            header[key] = {"dtype": kind, "shape": shape, "data_offsets": [len(data), len(data) + len(packed)]}
            data += packed
    text = json.dumps(header).encode()
    Path(name).write_bytes(struct.pack("<Q", len(text)) + text + data)


def constant_columns():
    """A column that is constant in training counts for nothing, whatever it is in new rows; `init` and the run say so."""
    def rows(year):
        return [[i * 37 % 60, year, i * 11 % 17] for i in range(ROWS)]
    folder_of("years", {"x.npy": floats(rows(2023)), "y.npy": labels(ROWS), "moved.npy": floats(rows(2033))})
    look("a constant column", "years", data={"standardize": True}, said="left out: column 1, counted from 0")
    Path("years.csv").write_text("z,a,year,b,y\n" + "".join(f"7,{a},{y},{b},{'uv'[i * 7 % 11 // 6]}\n" for i, (a, y, b) in enumerate(rows(2023))))
    Path("moved.csv").write_text("a,year,b\n" + "".join(f"{a},{y},{b}\n" for a, y, b in rows(2033)))
    for what, new, moved, arguments in (("arrays", "years/x.npy", "years/moved.npy", ("years",)),
                                        ("a table", "years.csv", "moved.csv", ("years.csv", "--set", "data.drop=z"))):
        trainer("init", *arguments, "--to", "config.json")
        code, text = trainer("config.json", "--devices", "cpu:1", "--set", "epochs=3", "--set", f"run_dir=run of {what}")
        if code or what == "arrays" and "left out: 1 of 3 columns" not in text:
            forms.failures.append(f"constant column of {what}: {code}: {text}")
        found = [trainer("predict", f"run of {what}", name) for name in (new, moved)]
        if found[0] != found[1] or found[0][0] or len(found[0][1].splitlines()) < ROWS:
            forms.failures.append(f"constant column of {what}: other predictions: {found}")


def spare_arrays():
    """Arrays with the names of test or validation rows that a run does not use are named."""
    x, y = floats([[i * 37 % 23, i * 11 % 17] for i in range(ROWS)]), labels(ROWS)
    train, test, validation = {"x_train.npy": x, "y_train.npy": y}, {"x_test.npy": x, "y_test.npy": y}, {"x_val.npy": x, "y_val.npy": y}
    archive_of("three.npz", train | test | validation)
    look("test and validation", "three.npz", data={"validation": None}, said="x_val is not used (data.test_x and data.test_y")
    look("validation by the keys", "three.npz", "--set", "data.test_x=x_val", "--set", "data.test_y=y_val", data={"test_x": "x_val"},
         said="x_test is not used")
    archive_of("two.npz", train | validation)
    folder_of("both", {"x.npy": x, "y.npy": y, "test_x.npy": x, "test_y.npy": y, "val_x.npy": x, "val_y.npy": y})
    look("files of both", "both", data={"test_x": "test_x.npy"}, said="val_x is not used")
    folder_of("one", {"x.npy": x, "y.npy": y, "val_x.npy": x, "val_y.npy": y})
    look("files of validation rows", "one", data={"validation": 0.2}, said="val_x is not used")
    folder_of("rows", {"x.npy": x, "y.npy": y, "test_x.npy": x})
    look("test rows without targets", "rows", data={"validation": 0.2}, said="test_x is not used")
    archive_of("rows.npz", train | {"x_test.npy": x})
    tensors_of("rows.safetensors", (("x", "y"), ("test_x", None)))
    for name in ("rows.npz", "rows.safetensors"):
        look("test rows without targets", name, data={"validation": 0.2},
             said=f'{name}: has test rows, but no targets of them, such as "test_y": they are not used')
    tensors_of("both.safetensors", (("x", "y"), ("test_x", "test_y"), ("val_x", "val_y")))
    look("tensors of both", "both.safetensors", data={"validation": None}, said="val_x is not used")
    tensors_of("test.safetensors", (("x", "y"), ("test_x", "test_y")))
    for name in ("two.npz", "test.safetensors"):
        code, text = trainer("init", name)
        if code or "not used" in text or f"{ROWS} test rows" not in text:
            forms.failures.append(f"{name}: {code}: {text}")


def pictures():
    Path("photos/odd/deeper/1.ppm").write_bytes(b"P6 9 9 255\ncut off")
    Path("photos/odd/1.gif").write_bytes(b"GIF89a")
    look("a broken picture", "photos", data={"name": "folder", "channels": 3}, trains=False,
         said="1 file is an image of a kind that is not read (gif) and was left out; convert it")
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null")
    if code == 0 or "skip_broken" not in text:
        forms.failures.append(f"a broken picture: expected the run to name data.skip_broken: {text}")
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null",
                         "--set", "data.skip_broken=true", "--set", "data.image_size=16")
    if code:
        forms.failures.append(f"a broken picture, left out: {text}")


def main():
    forms.make()
    tables()
    arrays()
    constant_columns()
    spare_arrays()
    pictures()
    files_of_data_sets()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
