#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Pictures with 16 bits for each sample: they are scaled by the largest sample of the training pictures, so all faces of the
program treat them as pictures of 8 bits whose samples were computed here: long_pictures.py TRAINER
"""
import json
import os
import pathlib
import random
import shutil
import struct
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import file_bytes  # noqa: E402

trainer = os.path.abspath(sys.argv[1])
SIDE = 8
WHITE = 306  # the largest sample of the training pictures
KINDS = {"grey": 0, "colour": 2, "grey_alpha": 4, "colour_alpha": 6}
SAMPLES = {0: 1, 2: 3, 4: 2, 6: 4}


def png(path, kind, depth, samples):
    """Writes a PNG file. `samples`: those of all pixels, in one list."""
    line = SIDE * SAMPLES[kind]
    lines = [struct.pack(f">{line}{'H' if depth == 16 else 'B'}", *samples[at:at + line])
             for at in range(0, len(samples), line)]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(file_bytes.png(SIDE, lines, kind, depth))


def byte(sample):
    return (min(sample, WHITE) * 255 + WHITE // 2) // WHITE


def draw(place, kind, split, count, most):
    """Draws pictures of two classes with samples up to `most`, and the same with samples of 8 bits. Returns the bytes."""
    rng = random.Random(f"{split}{kind}")
    rows = []
    for label, name in enumerate(("dim", "lit")):
        for i in range(count):
            samples, short = [], []
            for pixel in range(SIDE * SIDE):
                alpha = rng.choice((0, 0x1234, 0xffff)) if kind >= 4 else None
                colour = [rng.randrange(60) + 40 * label * (pixel // SIDE < 4) for _ in range(3 if kind in (2, 6) else 1)]
                if i == 1 and pixel == 9:
                    colour, alpha = [most] * len(colour), alpha and 0xffff or (0xffff if kind >= 4 else None)
                if alpha == 0:
                    colour = [9999] * len(colour)  # not visible, so it does not count
                samples += colour + ([] if alpha is None else [alpha])
                short += [byte(c) for c in colour] + ([] if alpha is None else [alpha >> 8])
            png(pathlib.Path(place, "long", split, name, f"{i}.png"), kind, 16, samples)
            png(pathlib.Path(place, "short", split, name, f"{i}.png"), kind, 8, short)
            rows.append(short)
    return rows


def run(*command, expect=0):
    done = subprocess.run([trainer, *command], capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": os.getcwd()})
    assert done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def weights(run_dir):
    records = [json.loads(line) for line in pathlib.Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    return next(record for record in reversed(records) if record["type"] == "run_end")["weights_sha256"]


def packed(path):
    data = pathlib.Path(path).read_bytes()
    end = 8 + int.from_bytes(data[:8], "little")
    header = json.loads(data[8:end])
    begin, stop = header["x"]["data_offsets"]
    return header["__metadata__"], data[end + begin:end + stop]


def configure(path):
    config = {"data": {"name": "safetensors", "path": path} if path.endswith("safetensors") else
              {"name": "folder", "path": path, "image_size": SIDE, "channels": 1}, "batch_size": 6, "shards": 6, "epochs": 3,
              "devices": "cpu:1", "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]},
              "optimizer": {"name": "sgd", "lr": 0.1}}
    pathlib.Path("config.json").write_text(json.dumps(config))


def train(run_dir, path, *options):
    configure(path)
    return run("config.json", "--set", f"run_dir={run_dir}", *options)


def kill_and_resume(run_dir, path):
    """Kills a run of six steps that stands in its fifth, on two workers, and resumes it on one."""
    configure(path)
    stall = ("--inject", "worker=0,step=5,kind=stall,stage=start,seconds=600", "--set", "deadline_s=600")
    with subprocess.Popen([trainer, "config.json", "--set", f"run_dir={run_dir}", "--devices", "cpu:2", "--quiet",
                           "--set", "checkpoint.every_steps=1", "--set", "checkpoint.async=false", *stall]) as process:
        saved = pathlib.Path(run_dir, "checkpoints", "step-000000004.safetensors")
        while not saved.exists():
            assert process.poll() is None, "the run ended before it was killed"
            time.sleep(0.05)
        process.kill()
    run("--resume", run_dir, "--devices", "cpu:1", "--quiet")


def predictions(model, folder):
    return [json.loads(line)["logits"] for line in run("predict", model, folder, "--json").stdout.splitlines()]


def rows_of(kind):
    """Packs pictures of a kind, with 16 and with 8 bits: the rows are equal."""
    rows = draw(".", kind, "train", 6, WHITE)
    draw(".", kind, "test", 4, 400)  # brighter than all training pictures
    for name in ("long", "short"):
        run("pack", name, "--to", f"{name}.safetensors", "--size", str(SIDE), "--channels", "1", "--quiet")
    (note, x), (other, y) = packed("long.safetensors"), packed("short.safetensors")
    assert x == y and note["white"] == str(WHITE) and "white" not in other and note["sha256"] == other["sha256"], (note, other)
    if kind == 0:
        assert x == b"".join(map(bytes, rows)), "the bytes that were computed here"


def faces():
    """All faces of the program agree with the pictures of 8 bits."""
    said = train("long-1", "long")
    assert f"{WHITE}, the largest of the training images, became white" in said.stdout + said.stderr, said
    train("short-1", "short")
    want = weights("short-1")
    for workers in (1, 2, 3):
        if workers > 1:
            train(f"long-{workers}", "long", "--devices", f"cpu:{workers}")
        assert weights(f"long-{workers}") == want, f"{workers} workers"
    train("packed", "long.safetensors")
    assert weights("packed") == want, "packed rows"
    for run_dir, path in (("killed", "long"), ("killed-packed", "long.safetensors")):
        kill_and_resume(run_dir, path)
        assert weights(run_dir) == want, run_dir

    shutil.copy("long-1/weights.safetensors", "alone.safetensors")
    want = predictions("short-1", "short/test")
    for model in ("long-1", "alone.safetensors", "packed", "packed/weights.safetensors"):
        assert predictions(model, "long/test") == want, model
    one = predictions("alone.safetensors", "long/test/lit/1.png")
    assert one == want[5:6], (one, want)
    for model, other in (("long-1", "short-1"), ("alone.safetensors", "short-1/weights.safetensors")):
        here, there = (json.loads(run("eval", m, "--data", data, "--json").stdout)["loss"]
                       for m, data in ((model, "long/test"), (other, "short/test")))
        assert here == there, (model, here, there)
    rule = b'{"version":6,"rows":"images","fit":"cover","white":306}'
    run("export", "alone.safetensors", "--to", "alone.onnx")
    for path in ("alone.safetensors", "packed/weights.safetensors", "alone.onnx"):
        assert rule in pathlib.Path(path).read_bytes().replace(b"\\", b""), path
    assert b"white" not in pathlib.Path("short-1/weights.safetensors").read_bytes()


with tempfile.TemporaryDirectory() as place:
    for name, kind in KINDS.items():
        pathlib.Path(place, name).mkdir()
        os.chdir(pathlib.Path(place, name))
        rows_of(kind)
    faces()

    # a file with a white level that no picture can have is refused
    data = pathlib.Path("long.safetensors").read_bytes()
    assert data.count(b'"white":"306"') == 1
    for text in (b"0  ", b"x  ", b"-30"):
        pathlib.Path("long.safetensors").write_bytes(data.replace(b'"white":"306"', b'"white":"%s"' % text))
        refused = run("config.json", "--set", "data.path=long.safetensors", "--set", "run_dir=null", expect=65).stderr
        assert '"white": expected 1 to 65535' in refused, refused
    os.chdir("/")
