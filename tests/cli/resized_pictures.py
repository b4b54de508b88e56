#!/usr/bin/env python3
"""Pictures that are resized and cut: all faces of the program prepare them alike, and their enlarged parts do not depend on
the number of workers or on a kill: resized_pictures.py TRAINER
"""
import json
import os
import pathlib
import random
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
              "optimizer": {"name": "sgd", "lr": 0.1}, "checkpoint": {"every_steps": 2}}
    pathlib.Path("config.json").write_text(json.dumps(config))
    assert "packing" in train("one").stderr
    for workers in (2, 3):
        assert "packing" not in train(f"w{workers}", "--devices", f"cpu:{workers}").stderr
        assert weights(f"w{workers}") == weights("one"), f"{workers} workers"
    for key in ("augment.resized_crop=0", "augment.resized_crop=0.9"):
        train("other", "--set", key)
        assert weights("other") != weights("one"), f"{key} changes nothing"

    # the process dies in the second epoch, and the run goes on from its checkpoint
    died = subprocess.run([trainer, "config.json", "--set", "run_dir=died", "--inject", "kill:5"], capture_output=True, text=True,
                          env={**os.environ, "XDG_CACHE_HOME": place})
    print("died:", died.returncode, died.stderr[-300:])

    # another size is packed once; the old rule is another one as well
    for key, again in (("interpolation=bilinear", True), ("interpolation=bilinear", False), ("crop=8", True), ("resize=13", True)):
        assert ("packing" in train("null", "--set", f"data.{key}").stderr) == again, key

    # the model file knows the rule: the program, alone with that file, and the rows that were packed agree
    card = json.loads(header("one/weights.safetensors")["__metadata__"]["lockstep.model"])
    print(card["preparation"])
