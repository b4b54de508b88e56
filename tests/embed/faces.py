#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""One config and the same data have one weights_sha256 from the program, from C (faces.c, public headers only) and from
Python: faces.py TRAINER FACES LIBRARY PACKAGE

Python is the package's ctypes layer, which needs no numpy; where numpy is there, also its Trainer with arrays.
"""
import array
import ctypes
import importlib.util
import json
import math
import os
import pathlib
import random
import struct
import subprocess
import sys
import tempfile

trainer, program, library, package = (os.path.abspath(a) for a in sys.argv[1:])
ROWS = 256
rng = random.Random(5)


def run(*command):
    done = subprocess.run([str(c) for c in command], capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": os.getcwd()})
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done.stdout


def weights_of(run_dir):
    ends = [json.loads(line) for line in pathlib.Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    return next(r["weights_sha256"] for r in reversed(ends) if r["type"] == "run_end")


def save(name, numbers, code, width):
    """Writes numbers as an .npy file and as a file without a header, in which integers of 64 bits are doubles. `width`
    0: one dimension."""
    raw = array.array(code, numbers).tobytes()
    kind = {"B": "|u1", "f": "<f4", "d": "<f8", "i": "<i4", "q": "<i8"}[code]
    shape = f"({ROWS}, {width})" if width else f"({ROWS},)"
    head = f"{{'descr': '{kind}', 'fortran_order': False, 'shape': {shape}, }}"
    head += " " * (-(len(head) + 11) % 64) + "\n"
    pathlib.Path(name + ".npy").write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + raw)
    pathlib.Path(name + ".raw").write_bytes(array.array("d", numbers).tobytes() if code == "q" else raw)


def config(data, outputs=None, **more):
    layers = [{"type": "flatten"}] if data["name"] == "folder" else []
    layers += [{"type": "dense", "out": 8}, {"type": "relu"}, {"type": "dense", **({"out": outputs} if outputs else {})}]
    return {"name": "faces", "data": data, "model": {"layers": layers}, "batch_size": 32, "epochs": 2,
            "optimizer": {"name": "adamw", "lr": 0.01}, "devices": "cpu:1", **more}


def by_program(settings):
    place = f"by-program-{len(list(pathlib.Path().glob('by-program-*')))}"
    pathlib.Path("program.json").write_text(json.dumps({**settings, "run_dir": place}))
    run(trainer, "program.json")
    return weights_of(place)


def by_c(settings, *rows, devices="cpu:1"):
    pathlib.Path("library.json").write_text(json.dumps({**settings, "run_dir": "", "devices": devices}))
    return run(program, "library.json", *rows).strip()


def load_ctypes():
    os.environ["LD_LIBRARY_PATH"] = ""
    ctypes.CDLL(library, mode=ctypes.RTLD_GLOBAL)
    spec = importlib.util.spec_from_file_location("lockstep_ctypes", pathlib.Path(package, "lockstep_trainer", "_library.py"))
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


L = load_ctypes()


def by_ctypes(settings, rows=None):
    """`rows`: (x, y, features, targets, classes, type) as the arguments of faces.c, or None."""
    options = L.trainer_options(size=ctypes.sizeof(L.trainer_options), cache_dir=os.getcwd().encode() + b"/lockstep")
    options.config_text = json.dumps({**settings, "run_dir": ""}).encode()
    if rows:
        x, y, features, targets, classes, kind = rows
        kind, _, wanted_kind = kind.partition(":")
        size = {"u8": 1, "f32": 4, "f64": 8}[kind]
        sizes = (features * size, targets * (8 if size == 8 or wanted_kind else 4) or 4)
        data = [pathlib.Path(n + ".raw").read_bytes() for n in (x, y)]

        def read(user, test, index, count, values, wanted, error):
            for i in range(count):
                for place, from_, n in ((values, data[0], sizes[0]), (wanted, data[1], sizes[1])):
                    ctypes.memmove(place + i * n, from_[index[i] * n:(index[i] + 1) * n], n)
            return 0

        callback = L.READ(read)
        source = L.data_source(size=ctypes.sizeof(L.data_source), name=b"mine", channels=features, height=1, width=1,
                               classes=classes, train_rows=ROWS, read=callback,
                               row_type={"u8": 1, "f32": 2, "f64": 3}[kind], target_count=targets,
                               target_type=3 if wanted_kind else 0)
        options.sources, options.source_count = (ctypes.POINTER(L.data_source) * 1)(ctypes.pointer(source)), 1
    handle = ctypes.c_void_p()
    L.call("ls_trainer_open", ctypes.byref(handle), ctypes.byref(options))
    try:
        L.call("ls_trainer_run", handle)
        return L.lib().ls_trainer_result(handle).contents.weights_sha256.decode()
    finally:
        L.call("ls_trainer_close", handle)


def by_numpy(settings, x, y):
    try:
        import numpy
    except ImportError:
        return None
    sys.path.insert(0, package)
    import lockstep_trainer
    with lockstep_trainer.Trainer(settings, data=(numpy.load(x + ".npy"), numpy.load(y + ".npy"))) as t:
        return t.fit().weights_sha256


def same(what, *hashes):
    found = [h for h in hashes if h is not None]
    assert len(found) > 1 and len(set(found)) == 1 and len(found[0]) == 64, (what, found)
    print(f"{what}: {found[0][:8]} from {len(found)}")


def files(what, settings):
    same(what, by_program(settings), by_c(settings), by_ctypes(settings))


def check_predictions(what, x):
    """The model file of a program's own rows predicts as that of the arrays does."""
    newest = max(pathlib.Path().glob("by-program-*"), key=lambda p: int(p.name.split("-")[2]))
    predicted = []
    for model in (newest / "weights.safetensors", "faces.safetensors"):
        run(trainer, "predict", model, x + ".npy", "--to", "p.csv")
        predicted.append(pathlib.Path("p.csv").read_text())
        os.remove("p.csv")
    assert predicted[0] == predicted[1], (what, predicted[0][:300], predicted[1][:300])


def check_offset(x, y, near, offset, **keys):
    """A target far from 0 is predicted as well, from Python too, as the same target without its offset."""
    wanted, errors = array.array("d", pathlib.Path(near + ".raw").read_bytes()), []
    for target, add in ((y, offset), (near, 0)):
        of_rows = config({"name": "mine", **keys}, 1, epochs=20)
        by_c(of_rows, "rows", "resident", x + ".raw", target + ".raw", ROWS, 6, 1, 0, "f64", "devices=cpu:1")
        run(trainer, "predict", "faces.safetensors", x + ".npy", "--to", "p.csv")
        found = [[float(line.split(",")[1]) for line in pathlib.Path("p.csv").read_text().splitlines()[1:]]]
        os.remove("p.csv")
        found += [rows_of_ctypes("faces.safetensors", x + ".npy")]
        errors.append([math.sqrt(sum((p - add - w) ** 2 for p, w in zip(f, wanted)) / ROWS) for f in found])
    deviation = math.sqrt(sum(w * w for w in wanted) / ROWS)
    assert all(far <= 1.05 * close < .5 * deviation for far, close in zip(*errors)), (errors, deviation)
    print(f"RMSE with the offset {errors[0]}, without {errors[1]}, deviation {deviation:.0f}")


def rows_of_ctypes(model_path, path):
    """The predictions of a file's rows, as doubles."""
    model, rows = ctypes.c_void_p(), ctypes.c_void_p()
    L.call("ls_model_open", ctypes.byref(model), model_path.encode(), None)
    L.call("ls_rows_open", ctypes.byref(rows), model, path.encode(), None)
    out = (ctypes.c_double * ROWS)()
    L.call("ls_rows_predict", rows, 0, ROWS, L.OUTPUT_F64, ctypes.addressof(out), ROWS)
    L.lib().ls_rows_close(rows)
    L.lib().ls_model_release(model)
    return list(out)


def own(what, x, y, width, targets, classes, kind, recipe=None, **keys):
    """Arrays in files for the program, and rows of their own for C and Python. `keys`: those of `data`."""
    data, recipe = {k: v for k, v in keys.items()}, recipe or {}
    outputs = (targets or classes) * len(recipe.get("quantiles", [.5]))
    of_files = config({"name": "npy", "x": x + ".npy", "y": y + ".npy", **data}, outputs, **recipe)
    of_rows = config({"name": "mine", **data}, outputs, **recipe)
    arguments = (x + ".raw", y + ".raw", ROWS, width, targets, classes, kind)
    same(what, by_program(of_files), by_c(of_files), by_ctypes(of_files),
         *(by_c(of_rows, "rows", how, *arguments, f"devices=cpu:{n}") for how in ("resident", "streamed") for n in (1, 2, 3)),
         by_ctypes(of_rows, (x, y, width, targets, classes, kind)),
         by_numpy(config({"name": "python", **data}, outputs, **recipe), x, y))
    check_predictions(what, x)


def as_table(what, x, y, width, rows, targets, **keys):
    """Rows without height and width are a table without names: its weights are those of the arrays, with `keys`."""
    with open("columns.csv", "w") as f:
        f.write(",".join(f"c{i}" for i in range(width)) + ",y\n")
        f.writelines(",".join(map(repr, [*row, target])) + "\n" for row, target in zip(rows, targets))
    labels = {"labels": "classes" if isinstance(targets[0], int) else "values"}
    data = {"standardize": True, **labels, **keys}
    table = {"name": "csv", "path": "columns.csv", "target": "y", **data}
    arrays = {"name": "npy", "x": x + ".npy", "y": y + ".npy", **data}
    same(what, *(by_program(config(d, devices=f"cpu:{n}")) for d in (table, arrays) for n in (1, 2, 3)))
    assert by_program(config({**arrays, "clip": 0})) != by_program(config(arrays)) or not keys.get("clip"), what


def steps(what, x, y, width, targets, kind, recipe=None, **keys):
    """Rows that a program passes to ls_trainer_step: on any number of workers, and after a resume."""
    recipe = recipe or {}
    settings = config({"name": "mine", **keys}, targets * len(recipe.get("quantiles", [.5])), **recipe)
    arguments = (x + ".raw", y + ".raw", ROWS, width, targets, 0, kind)
    same(what, *(by_c(settings, "rows", how, *arguments, f"devices=cpu:{n}") for how in ("steps", "again") for n in (1, 2)))


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    xs = [[rng.gauss(m, d) for m, d in ((0, 1), (50, 9), (-3, .1), (1000, 200), (7, 2), (.5, .01))] for _ in range(ROWS)]
    one = [1.7e9 + 600 * r[0] + 40 * (r[1] - 50) for r in xs]
    two = [v for r in xs for v in (990 * r[0] - 5000, .96 * (r[1] - 50) / 9)]
    save("x64", [v for r in xs for v in r], "d", 6)
    save("x32", [v for r in xs for v in r], "f", 6)
    save("x8", [int(min(max(64 * v + 128, 0), 255)) for r in xs for v in (r[0], r[4] - 7)], "B", 2)
    save("large", [v for r in xs for v in (1.7e9 + 600 * r[0], 1.7e12 + 4000 * r[0] + 900 * (r[4] - 7))], "d", 2)
    save("whole", [round(v) for r in xs for v in (1.7e9 + 600 * r[0], 1.7e12 + 4000 * r[0])], "q", 2)
    save("labels", [int(r[0] > 0) + int(r[1] > 50) for r in xs], "i", 0)
    save("one", one, "d", 0)
    save("near", [600 * r[0] for r in xs], "f", 0)
    save("one_near", [v - 1.7e9 for v in one], "d", 0)
    save("counts", [abs(int(3 * r[0])) for r in xs], "f", 0)
    save("two", two, "d", 2)
    save("two32", two, "f", 2)
    with open("t.csv", "w") as f:
        f.write("a,b,c,kind,value,visits\n")
        for r, v in zip(xs, one):
            f.write(f"{r[0]!r},{r[1]!r},{'xyz'[int(r[4]) % 3]},{'no' if r[0] < 0 else 'yes'},{v!r},{abs(int(3 * r[0]))}\n")
    for kind in ("dark", "light"):
        pathlib.Path("pictures", kind).mkdir(parents=True)
        for i in range(16):
            data = bytes(rng.randrange(100) + (kind == "light") * 150 for _ in range(3 * 64))
            pathlib.Path("pictures", kind, f"{i}.ppm").write_bytes(b"P6 8 8 255\n" + data)

    table = {"name": "csv", "path": "t.csv"}
    files("table, classes", config({**table, "target": "kind", "drop": "value,visits"}))
    values = {**table, "target": "value", "drop": "kind,visits", "labels": "values"}
    files("table, value near 1.7e9", config(values))
    for loss in ({"loss": "mae"}, {"loss": "huber", "huber_delta": .5}, {"loss": "quantile", "quantiles": [.1, .5, .9]}):
        files(f"table, {loss['loss']}", config(values, len(loss.get("quantiles", [.5])), **loss))
    files("table, counts", config({**table, "target": "visits", "drop": "kind,value", "labels": "values"}, loss="poisson"))
    files("folder", config({"name": "folder", "path": "pictures", "image_size": 8}))
    own("bytes, classes", "x8", "labels", 2, 0, 3, "u8")
    own("floats, classes", "x32", "labels", 6, 0, 3, "f32")
    own("floats, classes, standardised", "x32", "labels", 6, 0, 3, "f32", standardize=True)
    own("floats, fixed scale of six", "x32", "labels", 6, 0, 3, "f32", mean=[0, 50, -3, 1000, 7, .5],
        std=[1, 9, .1, 200, 2, .01])
    own("doubles, classes, standardised", "x64", "labels", 6, 0, 3, "f64", standardize=True)
    own("doubles, value near 1.7e9", "x64", "one", 6, 1, 0, "f64", standardize=True)
    check_offset("x64", "one", "one_near", 1.7e9, standardize=True)
    own("bytes, value near 1.7e9", "x8", "one", 2, 1, 0, "u8:f64")
    own("bytes, two targets near 1.7e9 and 1.7e12", "x8", "large", 2, 2, 0, "u8:f64")
    own("bytes, whole targets near 1.7e9 and 1.7e12", "x8", "whole", 2, 2, 0, "u8:f64")
    own("floats, value near 1.7e9", "x32", "one", 6, 1, 0, "f32:f64", standardize=True)
    own("floats, two targets near 1.7e9 and 1.7e12", "x32", "large", 6, 2, 0, "f32:f64", {"loss": "mae"}, standardize=True)
    own("doubles, two targets near 1.7e9 and 1.7e12", "x64", "large", 6, 2, 0, "f64", standardize=True)
    own("floats, classes, limited", "x32", "labels", 6, 0, 3, "f32", standardize=True, clip=1.5)
    own("doubles, value near 1.7e9, limited", "x64", "one", 6, 1, 0, "f64", standardize=True, clip=1.5)
    own("floats, fixed scale of six, limited", "x32", "labels", 6, 0, 3, "f32", mean=[0, 50, -3, 1000, 7, .5],
        std=[1, 9, .1, 200, 2, .01], clip=.75)
    own("doubles, two targets", "x64", "two", 6, 2, 0, "f64", standardize=True)
    own("floats, two targets", "x32", "two32", 6, 2, 0, "f32", standardize=True)
    own("floats, fixed targets", "x32", "two32", 6, 2, 0, "f32", standardize=True, target_mean=[-5000, 0], target_std=[990, 1])
    own("floats, mae", "x32", "near", 6, 1, 0, "f32", {"loss": "mae"}, standardize=True)
    own("floats, huber with fixed targets", "x32", "two32", 6, 2, 0, "f32", {"loss": "huber", "huber_delta": .5},
        standardize=True, target_mean=[-5000, 0], target_std=[990, 1])
    own("doubles, quantiles of two targets", "x64", "two", 6, 2, 0, "f64",
        {"loss": "quantile", "quantiles": [.1, .5, .9]}, standardize=True)
    own("floats, counts", "x32", "counts", 6, 1, 0, "f32", {"loss": "poisson"}, standardize=True)
    steps("steps, quantiles of two targets", "x32", "two32", 6, 2, "f32",
          {"loss": "quantile", "quantiles": [.1, .9]}, standardize=True, scale_rows=100)
    steps("steps, bytes, one target", "x8", "one", 2, 1, "u8:f64")
    steps("steps, floats, two targets of doubles", "x32", "large", 6, 2, "f32:f64", standardize=True, scale_rows=100)
    steps("steps, limited", "x64", "one", 6, 1, "f64", standardize=True, clip=1.5)
    steps("steps, one target", "x64", "one", 6, 1, "f64", standardize=True)
    steps("steps, one target of floats", "x32", "near", 6, 1, "f32", standardize=True)
    steps("steps, two targets, learnt from 100 rows", "x32", "two32", 6, 2, "f32", standardize=True, scale_rows=100)
    classes = [int(r[0] > 0) + int(r[1] > 50) for r in xs]
    floats, whole = [list(array.array("f", r)) for r in xs], [[round(100 * v) for v in r] for r in xs]
    save("i32", [v for r in whole for v in r], "i", 6)
    save("u8", [abs(v) % 256 for r in whole for v in r], "B", 6)
    for limit in ({}, {"clip": 1.5}):
        what = "a table and columns of " + (f"{{}}, limited to {limit['clip']}" if limit else "{}")
        as_table(what.format("doubles"), "x64", "labels", 6, xs, classes, **limit)
        as_table(what.format("floats, value near 1.7e9"), "x32", "one", 6, floats, one, **limit)
        as_table(what.format("integers"), "i32", "one", 6, whole, one, **limit)
        as_table(what.format("bytes"), "u8", "labels", 6, [[abs(v) % 256 for v in r] for r in whole], classes, **limit)
print("equal")
