#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""init_from.py TRAINER: tests `init --from`: what a config says that begins with a trained network, that the frozen epochs
change the new last layer alone, that the bits do not depend on the number of workers, and what is refused. Needs only
Python.
"""
import json
import struct
import sys
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
import data_forms as forms  # noqa: E402
from data_forms import trainer  # noqa: E402
from init_cures import png  # noqa: E402
from onnx_bytes import onnx_file, onnx_floats, onnx_node  # noqa: E402

failures = forms.failures


def tensors(path):
    """The tensors of a safetensors file by name, as bytes, and its metadata."""
    data = Path(path).read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    meta = head.pop("__metadata__", {})
    return {name: data[8 + size + t["data_offsets"][0]:8 + size + t["data_offsets"][1]] for name, t in head.items()}, meta


def good(what, *arguments, said=()):
    code, text = trainer(*arguments)
    if code:
        failures.append(f"{what}: {code}: {text}")
    for line in said:
        if line not in text:
            failures.append(f"{what}: expected {line!r} in {text!r}")


def refused(what, *arguments, said, code=None):
    found, text = trainer(*arguments)
    if found == 0 or code not in (None, found) or said not in text:
        failures.append(f"{what}: {found}: expected {code or ''} {said!r} in {text!r}")


def train(config, to, *more):
    good(f"{config} {to}", config, "--quiet", "--set", f"run_dir={to}", *more)


def make_data():
    for c, name in enumerate(("cat", "dog")):
        for i in range(24):
            png(Path("photos") / name / f"{i}.png", 30, lambda x, y, c=c, i=i: bytes([(x * (5, 1)[c] + y * 3 + i) % 256]), kind=0)


def make_net():
    model = {"layers": [{"type": "conv2d", "name": "body", "out": 4, "kernel": 5, "stride": 3}, {"type": "batch_norm", "name": "norm"},
                        {"type": "relu"}, {"type": "global_avg_pool"}, {"type": "dense", "name": "fc", "out": 10}]}
    config = {"data": {"name": "synthetic", "limit": 64}, "epochs": 1, "batch_size": 32, "devices": "cpu:1", "model": model,
              "optimizer": {"name": "sgd", "lr": 0.01}, "run_dir": "made"}
    Path("made.json").write_text(json.dumps(config))
    good("the network", "made.json", "--quiet")
    good("its export", "export", "made", "--to", "net.onnx")


def from_onnx():
    good("init", "init", "photos", "--from", "net.onnx", "--to", "photos.json", said=(
        "net.onnx: a network of 5 layers", "  120 weights are taken over; the 50 of the last layer, fc, are not: it gave 10 values, "
        "and begins anew with 2", "it has batch norms, whose running statistics are taken over too",
        "the first 16 train the last layer alone (freeze, freeze_epochs)"))
    config = json.loads(Path("photos.json").read_text())
    for key, value in {"model": {"onnx": "net.onnx", "head": "new"}, "freeze": ["*", "!fc.*"], "freeze_epochs": 16,
                       "lr_factors": {"*": 0.1, "fc.*": 1}, "checkpoint": {"best": True}}.items():
        if config.get(key) != value:
            failures.append(f"photos.json: {key}: {config.get(key)} instead of {value}")
    if (config["data"]["image_size"], config["data"]["channels"]) != (28, 1):
        failures.append(f"photos.json: {config['data']}")
    short = ("--set", "epochs=2", "--set", "freeze_epochs=1", "--set", "seed=3")
    train("photos.json", "held", "--devices", "cpu:1", *short, "--set", "epochs=1")
    before, after = tensors("made/weights.safetensors")[0], tensors("held/weights.safetensors")[0]
    for name in ("body.weight", "body.bias", "norm.weight", "norm.bias", "norm.running_mean", "norm.running_var"):
        if before[name] != after[name]:
            failures.append(f"{name} has changed while it was frozen")
    if len(after["fc.weight"]) != 2 * 4 * 4:
        failures.append("fc.weight has the old shape")
    for workers in (1, 2, 3):
        train("photos.json", f"w{workers}", "--devices", f"cpu:{workers}", *short)
    all_of = [tensors(f"w{w}/weights.safetensors")[0] for w in (1, 2, 3)]
    if all_of[0] != all_of[1] or all_of[0] != all_of[2]:
        failures.append("1, 2 and 3 workers have other bits")
    if any(all_of[0][name] == before[name] for name in ("body.weight", "norm.weight", "norm.running_mean")):
        failures.append("the body was not released")
    # stopped where the body is released, and resumed on other workers
    short += ("--set", "schedule=constant")
    train("photos.json", "whole", "--devices", "cpu:1", *short)
    train("photos.json", "half", "--devices", "cpu:2", *short, "--set", "epochs=1")
    good("resumed", "photos.json", "--resume", "half", "--quiet", "--devices", "cpu:3", "--set", "run_dir=half", *short)
    if tensors("half/weights.safetensors")[0] != tensors("whole/weights.safetensors")[0]:
        failures.append("a resumed run has other bits")


def licence():
    """A model file that has a licence, as the files of models from ONNX files have."""
    data = Path("w1/weights.safetensors").read_bytes()
    size = struct.unpack("<Q", data[:8])[0]
    head = json.loads(data[8:8 + size])
    card = json.loads(head["__metadata__"]["lockstep_model"])
    card["recipe"]["model"]["source"] = {"metadata": {"License": "CC0-1.0"}}
    head["__metadata__"] = {"lockstep_model": json.dumps(card)}
    head = json.dumps(head).encode()
    Path("free.safetensors").write_bytes(struct.pack("<Q", len(head)) + head + data[8 + size:])
    good("init of free weights", "init", "photos", "--from", "free.safetensors", "--to", "free.json",
         said=("licence of the weights: CC0-1.0 (kept in the model's file)",))
    if json.loads(Path("free.json").read_text())["model"].get("source") != {"metadata": {"License": "CC0-1.0"}}:
        failures.append("free.json has no licence")


def from_a_run():
    good("init", "init", "photos", "--from", "w1/weights.safetensors", "--to", "again.json", said=(
        "weights.safetensors: a network of 5 layers", "are not: it gave 2 values, and begins anew with 2"))
    config = json.loads(Path("again.json").read_text())
    if config["init"] != {"weights": "w1/weights.safetensors", "partial": True} or config["freeze"] != ["*", "!new_head.*"]:
        failures.append(f"again.json: {config}")
    train("again.json", "again", "--devices", "cpu:1", "--set", "epochs=1", "--set", "freeze_epochs=1")
    before, after = tensors("w1/weights.safetensors")[0], tensors("again/weights.safetensors")[0]
    if before["body.weight"] != after["body.weight"] or "fc.weight" in after or before["fc.weight"] == after["new_head.weight"]:
        failures.append(f"again: {sorted(after)}")
    # in another directory the config has an absolute path
    Path("there").mkdir()
    good("init there", "init", "photos", "--from", "net.onnx", "--to", "there/photos.json")
    train("there/photos.json", "there/run", "--devices", "cpu:1", "--set", "epochs=1", "--set", "freeze_epochs=1")


def foreign(path, *shape, classes=5, output="y", last="y"):
    """Writes a small network of another program, for rows of the shape. Its features are the tensor d, its outputs `last`."""
    nodes = [onnx_node("Conv", ["x", "body.weight", "body.bias"], "a", strides=[8, 8], kernel_shape=[3, 3]), onnx_node("Relu", ["a"], "b"),
             onnx_node("GlobalAveragePool", ["b"], "c"), onnx_node("Flatten", ["c"], "d", axis=1),
             onnx_node("Gemm", ["d", "fc.weight", "fc.bias"], last, transB=1)]
    tensors = [onnx_floats("body.weight", 2, shape[0], 3, 3), onnx_floats("body.bias", 2), onnx_floats("fc.weight", classes, 2),
               onnx_floats("fc.bias", classes)]
    Path(path).write_bytes(onnx_file(nodes, tensors, shape=("n", *shape), output=output))


MEAN, STD = [0.485, 0.456, 0.406], [0.229, 0.224, 0.225]
SCALES = {"mean": MEAN, "std": STD}
GUESS = "the file does not say how its pictures were prepared: "


def near(a, b):
    return a == b or isinstance(a, list) and isinstance(b, list) and len(a) == len(b) and all(abs(x - y) < 1e-6 for x, y in zip(a, b))


def data_of(what, path, expected, *given, said=(), unsaid=()):
    """Checks what init writes into `data` about pictures, and that a run takes it."""
    sets = [text for value in given for text in ("--set", value)]
    code, text = trainer("init", "photos", "--from", path, "--to", "data.json", *sets)
    if code:
        failures.append(f"{what}: {code}: {text}")
        return
    data = json.loads(Path("data.json").read_text())["data"]
    keys = ("pictures", "image_size", "resize", "crop", "interpolation", "mean", "std")
    found = {key: data[key] for key in keys if key in data}
    if sorted(found) != sorted(expected) or not all(near(found[key], expected[key]) for key in found):
        failures.append(f"{what}: {found} instead of {expected}")
    failures.extend(f"{what}: expected {line!r} in {text!r}" for line in said if line not in text)
    failures.extend(f"{what}: did not expect {line!r} in {text!r}" for line in unsaid if line in text)
    good(f"{what}: the config", "data.json", "--print-config")


def pictures():
    """The size and scales of pictures: those of the file, or a guess; a key of the user's has precedence."""
    foreign("usual.onnx", 3, 224, 224)
    foreign("open.onnx", 3, "h", "w")
    foreign("larger.onnx", 3, 299, 299)
    foreign("lines.onnx", 3, 48, 192)
    foreign("grey.onnx", 1, 40, 40)
    recipe = {"resize": 256, "crop": 224, "interpolation": "bilinear"}
    imagenet = GUESS + "data.pictures is that of networks for ImageNet"
    data_of("224", "usual.onnx", {"pictures": "imagenet"}, said=(imagenet, "cut to the middle, 224×224 (data.pictures)"))
    data_of("an open size", "open.onnx", {"pictures": "imagenet"}, said=(
        imagenet, "leaves the size of its rows open: 3×224×224 is taken (model.input); another: --set model.input=[3,HEIGHT,WIDTH]"))
    data_of("a size that is given", "open.onnx", {"resize": [48, 192], "interpolation": "bilinear", **SCALES}, "model.input=[3,48,192]",
            unsaid=("leaves the size",))
    data_of("224 with scales", "usual.onnx", {**recipe, "mean": 0.5, "std": STD}, "data.mean=0.5",
            said=(GUESS + "data.resize and data.crop are those of",))
    data_of("224 with a size", "usual.onnx", {"image_size": 224, **SCALES}, "data.image_size=224", said=(GUESS + "data.mean and data.std are",))
    data_of("224 resized", "usual.onnx", {"resize": 240, "crop": 224, "interpolation": "bicubic", **SCALES}, "data.resize=240", "data.crop=224",
            "data.interpolation=bicubic", said=(GUESS + "data.mean and data.std are",))
    data_of("224 by name", "usual.onnx", {"pictures": "imagenet"}, "data.pictures=imagenet", unsaid=(GUESS,))
    data_of("299", "larger.onnx", {"resize": 342, "crop": 299, "interpolation": "bilinear", **SCALES},
            said=(GUESS + "data.resize, data.crop, data.mean and data.std are those of",))
    data_of("48×192", "lines.onnx", {"resize": [48, 192], "interpolation": "bilinear", **SCALES},
            said=("resized to 48×192 (data.resize)", GUESS + "data.mean and data.std are"))
    data_of("48×192 cut out", "lines.onnx", {"resize": [50, 200], "crop": [48, 192], "interpolation": "bilinear", "mean": 0.5, "std": 0.5},
            "data.resize=[50,200]", "data.crop=[48,192]", "data.mean=0.5", "data.std=0.5", unsaid=(GUESS,))
    data_of("grey", "grey.onnx", {"resize": 40, "crop": 40, "interpolation": "bilinear", "mean": 0.5, "std": 0.25}, unsaid=(GUESS,))
    refused("another size", "init", "photos", "--from", "lines.onnx", "--set", "data.image_size=48", "--to", "no.json",
            said="lines.onnx reads rows of 3×48×192, but those of photos have 3×48×48; leave out the keys of data that set this size")
    foreign("four.onnx", 4, 32, 32)
    refused("four channels", "init", "photos", "--from", "four.onnx", "--to", "no.json", said="; pictures have 1 or 3 channels")


def parts():
    """The keys that a message about several outputs, or an open size, names can be set in init."""
    foreign("two.onnx", 3, "h", "w", output="y d")
    refused("two outputs", "init", "photos", "--from", "two.onnx", "--to", "no.json", said='set model.output to one of them: "y", "d"')
    good("one of two outputs", "init", "photos", "--from", "two.onnx", "--set", "model.output=y", "--set", "model.input=[3,48,40]",
         "--to", "two.json", said=("two.onnx: a network of 4 layers", "48×40"))
    model = json.loads(Path("two.json").read_text())["model"]
    if model != {"onnx": "two.onnx", "input": [3, 48, 40], "head": "new", "output": "y"}:
        failures.append(f"one of two outputs: {model}")
    good("one of two outputs: the config", "two.json", "--print-config")
    foreign("numbered.onnx", 3, 32, 32, output="25 d", last="25")
    refused("a name that is a number", "init", "photos", "--from", "numbered.onnx", "--set", "model.output=25", "--to", "no.json",
            said='"output" must be the name of a tensor in quotes, "25" (on the command line --set \'model.output="25"\'), found a number')
    good("a name that is a number, in quotes", "init", "photos", "--from", "numbered.onnx", "--set", 'model.output="25"', "--to", "numbered.json")
    refused("no such output", "init", "photos", "--from", "two.onnx", "--set", "model.output=z", "--to", "no.json", said='it has no tensor "z"')
    refused("no shape", "init", "photos", "--from", "two.onnx", "--set", "model.output=y", "--set", "model.input=3", "--to", "no.json",
            said='"input" must be [channels, height, width], found a number')


def pictures_of_runs():
    """A run's file, and the ONNX file that `export` makes of it, say how pictures were prepared."""
    short = ("--devices", "cpu:1", "--set", "epochs=2", "--set", "freeze_epochs=1")
    for what, path, given, expected in (
            ("lines", "lines.onnx", ("data.interpolation=bicubic", "data.resize=[50,194]", "data.crop=[48,192]", "data.mean=0.25", "data.std=0.5"),
             {"resize": [50, 194], "crop": [48, 192], "interpolation": "bicubic", "mean": [0.25] * 3, "std": [0.5] * 3}),
            ("usual", "usual.onnx", (), {"pictures": "imagenet"}),
            ("cover", "grey.onnx", ("data.image_size=40", "data.mean=0.25"), {"image_size": 40, "mean": [0.25], "std": [0.25]})):
        sets = [text for value in given for text in ("--set", value)]
        good(what, "init", "photos", "--from", path, "--to", "of.json", *sets)
        train("of.json", what, *short)
        good(what, "export", what, "--to", what + ".again.onnx")
        for file in (what + "/weights.safetensors", what + ".again.onnx"):
            data_of(file, file, expected, unsaid=(GUESS,))
    # the run of another width predicts pictures as it trained on them
    good("predict", "predict", "lines", "photos", "--to", "lines.csv")
    data = Path("lines.again.onnx").read_bytes()
    for old, new in ((b'"resize":[50,194]', b'"resize":[50,191]'), (b'"resize":[50,194]', b'"resize":[50,1.5]'), (b"[0.5,0.5,0.5]", b"[0.5,0.5,0.0]")):
        if data.count(old) != 1:
            failures.append(f"lines.again.onnx: {data.count(old)} times {old}")
        Path("damaged.onnx").write_bytes(data.replace(old, new))
        refused(f"{new}", "init", "photos", "--from", "damaged.onnx", "--to", "no.json", said=" in its metadata")
    for size in (len(data) // 2, len(data) - 1):
        Path("damaged.onnx").write_bytes(data[:size])
        refused(f"{size} bytes", "init", "photos", "--from", "damaged.onnx", "--to", "no.json", said=f"after {size} bytes: it is cut off")


def arrays():
    Path("arrays").mkdir()
    size = 40 * 28 * 28
    Path("arrays/x.npy").write_bytes(forms.npy("|u1", (40, 28, 28), bytes(i * 7 % 256 for i in range(size))))
    Path("arrays/y.npy").write_bytes(forms.npy("<i8", (40,), struct.pack("<40q", *(i % 4 for i in range(40)))))
    good("init of arrays", "init", "arrays", "--from", "net.onnx", "--to", "arrays.json", said=("begins anew with 4",))
    train("arrays.json", "arrays/run", "--devices", "cpu:1", "--set", "epochs=2", "--set", "freeze_epochs=1")
    Path("table.csv").write_text("a,b,y\n" + "".join(f"{i},{i % 3},{'no' if i % 2 else 'yes'}\n" for i in range(40)))
    refused("a table", "init", "table.csv", "--from", "net.onnx", said="net.onnx reads images of 1×28×28, but table.csv is a table")
    good("a net for tables", "init", "table.csv", "--to", "table.json")
    train("table.json", "columns", "--devices", "cpu:1", "--set", "epochs=1")
    good("init of a table", "init", "table.csv", "--from", "columns/weights.safetensors", "--to", "again.json", said=("begins anew with 2",))
    train("again.json", "columns2", "--devices", "cpu:1", "--set", "epochs=2", "--set", "freeze_epochs=1")


def files_of_a_run():
    """A network that cannot be used ends every command that reads it with the same status."""
    data = onnx_file([onnx_node("Sin", ["x"], "a"), onnx_node("Flatten", ["a"], "b", axis=1), onnx_node("Gemm", ["b", "fc.weight"], "y", transB=1)],
                     [onnx_floats("fc.weight", 2, 27)], shape=("n", 3, 3, 3))
    Path("sin.onnx").write_bytes(data)
    Path("cut.onnx").write_bytes(data[:-9])
    Path("folder.onnx").mkdir()
    for path, code, said in (("sin.onnx", 65, '"a/Sin" (Sin): the operator is not read; '), ("cut.onnx", 65, "cut.onnx"),
                             ("none.onnx", 66, "none.onnx"), ("folder.onnx", 65, "found a directory")):
        config = json.loads(Path("photos.json").read_text())
        config["model"]["onnx"] = path
        Path("other.json").write_text(json.dumps(config))
        for command in (("other.json", "--set", "run_dir=null"), ("other.json", "--print-config"), ("find-lr", "other.json"),
                        ("init", "photos", "--from", path, "--to", "no.json")):
            refused(f"{path}, {command[0]}", *command, said=said, code=code)
    with zipfile.ZipFile("lzma.npz", "w", zipfile.ZIP_LZMA) as archive:
        archive.writestr("x.npy", forms.npy("|u1", (4, 2), bytes(8)))
        archive.writestr("y.npy", forms.npy("<i8", (4,), bytes(32)))
    config.update(data={"name": "npy", "path": "lzma.npz", "x": "x", "y": "y"}, model={"layers": [{"type": "dense", "out": 2}]})
    Path("other.json").write_text(json.dumps(config))
    refused("another compression", "other.json", "--set", "run_dir=null", said="compressed by another method than deflate", code=65)


def refusals():
    for path, said in (("none.onnx", "none.onnx"), ("net.pt", "a .pt or .pth of PyTorch becomes one with torch.onnx.export"),
                       ("alone.safetensors", "export the network as ONNX")):
        refused(path, "init", "photos", "--from", path, "--to", "no.json", said=said)
    refused("another size", "init", "photos", "--from", "net.onnx", "--set", "data.image_size=30", "--to", "no.json",
            said="net.onnx reads rows of 1×28×28, but those of photos have 1×30×30; leave out the keys of data that set this size")
    refused("another head", "photos.json", "--set", "model.head=old", "--set", "run_dir=null", said='"head" must be "new"')
    if Path("no.json").exists():
        failures.append("no.json was written")


def main():
    make_data()
    make_net()
    Path("net.pt").write_bytes(b"?")
    Path("alone.safetensors").write_bytes(struct.pack("<Q", 64) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(64) + b"0000")
    from_onnx()
    files_of_a_run()
    from_a_run()
    licence()
    pictures()
    parts()
    pictures_of_runs()
    arrays()
    refusals()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
