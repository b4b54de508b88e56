# SPDX-License-Identifier: MIT
"""Data and recipes of the runs that forge.py forges."""
import random
import struct


def table(path, rows, seed):
    draw = random.Random(seed)
    lines = ["a,b,c,kind,w"]
    for row in range(rows):
        a, b = draw.gauss(0, 1), draw.gauss(0, 1)
        kind = "yes" if a + b + draw.gauss(0, 0.3) > 0 else "no"
        lines.append(f"{a:.4f},{b:.4f},{draw.choice('xyz')},{kind},{1 + row % 3}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def array(path, shape, values):
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': {shape}, }}"
    header += " " * (-(len(header) + 11) % 64) + "\n"
    path.write_bytes(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() +
                     struct.pack(f"<{len(values)}f", *values))


def arrays(folder, prefix, rows, seed):
    draw = random.Random(seed)
    x = [[draw.gauss(0, 1) for _ in range(4)] for _ in range(rows)]
    y = [[sum(row) + draw.gauss(0, 0.1), row[0] * row[1]] for row in x]
    array(folder / f"{prefix}x.npy", (rows, 4), [v for row in x for v in row])
    array(folder / f"{prefix}y.npy", (rows, 2), [v for row in y for v in row])


def picture(path, seed, bright):
    draw = random.Random(seed)
    pixels = bytes(min(255, draw.randrange(120) + bright) for _ in range(12 * 12 * 3))
    path.write_bytes(b"P6\n12 12\n255\n" + pixels)


def pictures(folder):
    for part, count in (("train", 15), ("test", 5)):
        for kind, bright in (("dark", 0), ("light", 120)):
            (folder / part / kind).mkdir(parents=True)
            for i in range(count):
                picture(folder / part / kind / f"{i:02d}.ppm", f"{part}{kind}{i}", bright)


def write(folder):
    folder.mkdir(parents=True)
    table(folder / "train.csv", 512, 1)
    table(folder / "test.csv", 128, 2)
    (folder / "arrays").mkdir()
    arrays(folder / "arrays", "", 512, 3)
    arrays(folder / "arrays", "test_", 128, 4)
    pictures(folder / "photos")


def csv_of(world, **more):
    data = {"name": "csv", "path": str(world.data / "train.csv"), "test_path": str(world.data / "test.csv"),
            "target": "kind", **more}
    return data, {"data.path": "train.csv", "data.test_path": "test.csv"}


def dense(*layers):
    return {"layers": [{"type": "dense", "name": "fc1", "out": 8}, *layers, {"type": "dense", "name": "fc2"}]}


def recipe(name, world):
    """The config of a run, and the places of its data below the verifier's folder."""
    sgd = {"name": "sgd", "lr": 0.05, "momentum": 0.9}
    relu = {"type": "relu"}
    table_data, table_places = csv_of(world, drop=["w"])
    common = {"receipt": True, "batch_size": 256, "seed": 3}
    if name == "csv":  # four segments, to 100, 200, 300 and 350 steps
        return {**common, "data": table_data, "model": dense(relu), "optimizer": sgd, "epochs": 175, "eval_every": 25}, \
            table_places
    if name == "long":  # thirteen segments
        return {**common, "data": table_data, "model": dense(relu), "optimizer": sgd, "epochs": 625, "eval_every": 125}, \
            table_places
    if name == "short":  # one segment
        return {**common, "data": table_data, "model": dense(relu), "optimizer": sgd, "epochs": 5}, table_places
    if name == "init":  # two segments
        return {**common, "data": table_data, "model": dense(relu), "optimizer": sgd, "epochs": 60, "eval_every": 20,
                "init": {"weights": str(world.honest("csv").path("weights.safetensors"))}}, table_places
    if name == "weighted":  # weights of rows and classes, and an end by patience
        data, places = csv_of(world, weight="w")
        return {**common, "data": data, "model": dense(relu), "optimizer": {"name": "adamw", "lr": 0.01}, "epochs": 400,
                "eval_every": 20, "patience": 2, "class_weights": "balanced"}, places
    if name == "npy":  # three segments, to 200, 400 and 500 steps
        data = {"name": "npy", "path": str(world.data / "arrays"), "x": "x.npy", "y": "y.npy", "test_x": "test_x.npy",
                "test_y": "test_y.npy"}
        return {**common, "data": data, "model": dense({"type": "batch_norm", "name": "bn"}, relu), "ema": 0.99,
                "optimizer": {"name": "adamw", "lr": 0.01, "clip_norm": 1.0}, "batch_size": 128, "epochs": 125,
                "eval_every": 25}, {"data.path": "arrays"}
    if name == "folder":
        data = {"name": "folder", "path": str(world.data / "photos"), "image_size": 8}
        conv = {"layers": [{"type": "conv2d", "name": "conv1", "out": 4, "kernel": 3}, relu, {"type": "flatten"},
                           {"type": "dense", "name": "fc"}]}
        return {**common, "data": data, "model": conv, "optimizer": sgd, "batch_size": 10, "epochs": 4,
                "augment": {"crop": 1, "flip": True}}, {"data.path": "photos"}
    assert name == "synthetic", name
    flat = {"layers": [{"type": "flatten"}, {"type": "dense", "name": "fc1", "out": 16}, relu, {"type": "dropout"},
                       {"type": "dense", "name": "fc2"}]}
    return {**common, "data": {"name": "synthetic", "limit": 512}, "model": flat, "optimizer": sgd, "epochs": 3,
            "augment": {"mixup": 0.3}}, {}
