#!/usr/bin/env python3
"""init_from.py TRAINER: tests `init --from`: what a config says that begins with a trained network, that the frozen epochs
change the new last layer alone, that the bits do not depend on the number of workers, and what is refused. Needs only
Python.
"""
import json
import struct
import sys
from pathlib import Path

import data_forms as forms
from data_forms import trainer
from init_cures import png

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


def refused(what, *arguments, said):
    code, text = trainer(*arguments)
    if code == 0 or said not in text:
        failures.append(f"{what}: {code}: expected {said!r} in {text!r}")


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


def refusals():
    for path, said in (("none.onnx", "none.onnx"), ("net.pt", "a .pt or .pth of PyTorch becomes one with torch.onnx.export"),
                       ("alone.safetensors", "export the network as ONNX")):
        refused(path, "init", "photos", "--from", path, "--to", "no.json", said=said)
    refused("another size", "init", "photos", "--from", "net.onnx", "--set", "data.image_size=30", "--to", "no.json",
            said="net.onnx reads rows of 1×28×28, but those of photos have 1×30×30; export the network for these rows")
    refused("another head", "photos.json", "--set", "model.head=old", "--set", "run_dir=null", said='"head" must be "new"')
    if Path("no.json").exists():
        failures.append("no.json was written")


def main():
    make_data()
    make_net()
    Path("net.pt").write_bytes(b"?")
    Path("alone.safetensors").write_bytes(struct.pack("<Q", 64) + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}'.ljust(64) + b"0000")
    from_onnx()
    from_a_run()
    licence()
    arrays()
    refusals()


if __name__ == "__main__":
    sys.exit(forms.run_in_scratch(main))
