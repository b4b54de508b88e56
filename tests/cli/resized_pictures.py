#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pictures that are resized and cut: all faces of the program prepare them alike, and their enlarged parts do not depend on
the number of workers or on a kill: resized_pictures.py TRAINER
"""
import json
import os
import pathlib
import random
import shutil
import subprocess
import sys
import tempfile

trainer = os.path.abspath(sys.argv[1])
KEYS = {"resize": 12, "crop": [8, 10], "interpolation": "bicubic"}


def draw(folder, count):
    """Pictures of two classes in PPM files of several sizes."""
    rng = random.Random(7)
    for name, top in (("above", 200), ("below", 40)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            wide, high = 9 + i % 5 * 7, 11 + i % 4 * 9
            pixels = bytes((top if y < high / 2 else 240 - top) + rng.randrange(15) for y in range(high) for _ in range(3 * wide))
            (folder / name / f"{i:02}.ppm").write_bytes(b"P6 %d %d 255\n" % (wide, high) + pixels)


def run(*command, expect=0):
    done = subprocess.run([trainer, *command], capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": os.getcwd()})
    assert done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def ends(run_dir, kind):
    records = [json.loads(line) for line in pathlib.Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    return next(record for record in reversed(records) if record["type"] == kind)


def weights(run_dir):
    return ends(run_dir, "run_end")["weights_sha256"]


def loss_of(model):
    return json.loads(run("eval", model, "--data", "photos", "--json").stdout)["loss"]


def header(path):
    data = pathlib.Path(path).read_bytes()
    return json.loads(data[8:8 + int.from_bytes(data[:8], "little")])


def train(run_dir, *options, expect=0):
    return run("config.json", "--set", f"run_dir={run_dir}", *options, expect=expect)


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    draw(pathlib.Path("photos"), 10)
    config = {"data": {"name": "folder", "path": "photos", "validation": 0.25, **KEYS}, "batch_size": 6, "shards": 6,
              "augment": {"resized_crop": 0.3, "flip": True}, "epochs": 3, "devices": "cpu:1",
              "model": {"layers": [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "flatten"}, {"type": "dense"}]},
              "optimizer": {"name": "sgd", "lr": 0.1}, "checkpoint": {"every_steps": 2, "keep": 20}}
    pathlib.Path("config.json").write_text(json.dumps(config))
    assert "packing" in train("one").stderr
    for workers in (2, 3):
        assert "packing" not in train(f"w{workers}", "--devices", f"cpu:{workers}").stderr
        assert weights(f"w{workers}") == weights("one"), f"{workers} workers"
    for share in (0, 0.9):
        train(f"other{share}", "--set", f"augment.resized_crop={share}")
        assert weights(f"other{share}") != weights("one"), f"{share} changes nothing"

    # what the program writes of such a run can be read again: its receipt, and its config as that of another run
    train("proved", "--set", "receipt=true", "--quiet")
    assert "verified: the whole training" in run("verify", "proved", "--all", "--devices", "cpu:2").stdout
    run("one/config.json", "--set", "run_dir=again", "--quiet")
    assert weights("again") == weights("one"), "config.json of a run"

    # a process that has died in the second epoch has left a checkpoint, from which the run goes on
    shutil.copytree("one", "died")
    left = sorted(pathlib.Path("died/checkpoints").glob("step-*.safetensors"))
    assert left[2].stem == "step-000000004", left
    for path in [*left[3:], *pathlib.Path("died").glob("weights.*")]:
        path.unlink()
    records = pathlib.Path("died/metrics.jsonl")
    lines = [line for line in records.read_text().splitlines() if json.loads(line)["type"] != "run_end"]
    records.write_text("\n".join(lines) + "\n")
    run("--resume", "died")
    assert weights("died") == weights("one"), "after a kill"

    # another size is packed once; the old rule is another one as well
    for key, again in (("interpolation=bilinear", True), ("interpolation=bilinear", False), ("crop=8", True), ("resize=13", True)):
        assert ("packing" in train("null", "--set", f"data.{key}").stderr) == again, key

    # the model file knows the rule; the program with that file alone, and a file of packed rows, agree with the run
    rule = {"version": 4, "rows": "images", "fit": "resize", "resize": 12, "interpolation": "bicubic"}
    shutil.copy("one/weights.safetensors", "alone.safetensors")
    said = run("predict", "one", "photos", "--json").stdout
    assert run("predict", "alone.safetensors", "photos", "--json").stdout == said
    of_file = loss_of("alone.safetensors")
    packed = [part for key, value in KEYS.items() for part in ("--set", f"data.{key}={json.dumps(value)}")]
    run("pack", "photos", "--to", "packed.safetensors", "--quiet", *packed)
    entry = header("packed.safetensors")
    assert entry["x"]["shape"] == [20, 3, 8, 10] and json.loads(entry["__metadata__"]["pictures"]) == \
        {"resize": 12, "interpolation": "bicubic"}, entry
    config["data"] = {"name": "safetensors", "path": "packed.safetensors", "validation": 0.25}
    pathlib.Path("config.json").write_text(json.dumps(config))
    train("packed-run")
    assert weights("packed-run") == weights("one"), "packed rows"
    assert run("predict", "packed-run/weights.safetensors", "photos", "--json").stdout == said
    assert loss_of("packed-run/weights.safetensors") == of_file
    for path in ("alone.safetensors", "packed-run/weights.safetensors"):
        text = pathlib.Path(path).read_bytes().replace(b"\\", b"")
        assert json.dumps(rule, separators=(",", ":")).encode() in text, path
    run("export", "alone.safetensors", "--to", "alone.onnx")
    onnx = pathlib.Path("alone.onnx").read_bytes()
    assert json.dumps(rule, separators=(",", ":")).encode() in onnx, "the metadata of the ONNX file"

    # a file whose pictures would be smaller than its rows is refused
    for path, command, message in (("alone.safetensors", ("predict", "alone.safetensors", "photos"), 'expected "resize" to at least the 10×8'),
                                   ("packed.safetensors", ("config.json", "--set", "run_dir=null"), "resized to less than the 10×8")):
        data = pathlib.Path(path).read_bytes()
        assert data.count(b'resize\\":12') == 1, path
        if path == "alone.safetensors":  # without its checksum, as a program that changes a file has to leave it
            data = data.replace(b'"sha256"', b'"former"')
        pathlib.Path(path).write_bytes(data.replace(b'resize\\":12', b'resize\\": 7'))
        refused = run(*command, expect=65).stderr
        assert message in refused, refused

    # init looks at the pictures by the rule, and writes it
    run("init", "photos", "--to", "init.json", "--set", "data.pictures=imagenet")
    data = json.loads(pathlib.Path("init.json").read_text())["data"]
    assert data["pictures"] == "imagenet" and not {"image_size", "mean", "std"} & set(data), data
    shown = json.loads(run("init.json", "--print-config").stdout)["data"]
    assert (shown["resize"], shown["crop"], shown["interpolation"]) == (256, 224, "bilinear"), shown
    assert shown["mean"][:3] == [0.485, 0.456, 0.406] and shown["std"][:3] == [0.229, 0.224, 0.225], shown
