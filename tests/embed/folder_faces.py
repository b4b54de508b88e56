#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The program and the library train the same config of a folder of pictures, and get the same weights and the same ONNX
file: folder_faces.py TRAINER FOLDER-PROGRAM PICTURE-LIBRARY

FOLDER-PROGRAM is tests/embed/folder.c, linked with the shared liblockstep. The library loads PICTURE-LIBRARY, which lies
beside it, when it decodes the first picture.
"""
import json
import os
import pathlib
import random
import subprocess
import sys
import tempfile

trainer, program, library = sys.argv[1:]


def draw(folder, count):
    """Pictures of two classes in PPM files of several sizes: bright above, or bright below."""
    rng = random.Random(7)
    for name, top in (("above", 200), ("below", 40)):
        (folder / name).mkdir(parents=True)
        for i in range(count):
            side = 8 + i % 3
            rows = [[(top if y < side / 2 else 240 - top) + rng.randrange(15) for _ in range(3 * side)]
                    for y in range(side)]
            data = bytes(v for row in rows for v in row)
            (folder / name / f"{i:02}.ppm").write_bytes(b"P6 %d %d 255\n" % (side, side) + data)


def run(*command, expect=0):
    done = subprocess.run(command, capture_output=True, text=True, env={**os.environ, "XDG_CACHE_HOME": os.getcwd()})
    assert done.returncode == expect, f"{command}: {done.returncode}\n{done.stdout}{done.stderr}"
    return done


def weights_of(run_dir):
    ends = [json.loads(line) for line in pathlib.Path(run_dir, "metrics.jsonl").read_text().splitlines()]
    return next(r["weights_sha256"] for r in reversed(ends) if r["type"] == "run_end")


with tempfile.TemporaryDirectory() as place:
    os.chdir(place)
    draw(pathlib.Path("pictures"), 24)
    config = {"name": "faces", "data": {"name": "folder", "path": "pictures", "image_size": 8, "validation": 0.25},
              "model": {"layers": [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "flatten"},
                                   {"type": "dense"}]},
              "optimizer": {"name": "sgd", "lr": 0.1}, "batch_size": 8, "epochs": 2, "devices": "cpu:1", "run_dir": "by-program"}
    pathlib.Path("program.json").write_text(json.dumps(config))
    pathlib.Path("library.json").write_text(json.dumps({**config, "run_dir": "by-library"}))
    run(trainer, "program.json")
    run(trainer, "export", "by-program/weights.safetensors", "--to", "program.onnx")
    by_program = weights_of("by-program")

    # the rows that the program has decoded, and rows that the library decodes itself
    for cache in ("lockstep", "fresh"):
        hashed = run(program, "library.json", cache, "library.onnx").stdout.strip()
        assert hashed == by_program == weights_of("by-library"), (cache, hashed, by_program)
        assert pathlib.Path("library.onnx").read_bytes() == pathlib.Path("program.onnx").read_bytes(), cache
        subprocess.run(["rm", "-r", "by-library", "library.onnx"], check=True)

    # packed rows in a folder whose name only begins with that of the cache belong to the user, and are taken as they are
    rows = next(pathlib.Path("lockstep").glob("data-*.safetensors"))
    named = {**config, "run_dir": "by-library", "data": {**config["data"], "packed": str(rows)}}
    pathlib.Path("packed.json").write_text(json.dumps(named))
    assert run(program, "packed.json", "lock", "library.onnx").stdout.strip() == by_program
    assert not pathlib.Path("lock").exists()

    # without a cache, and without the library that decodes
    assert "cache_dir" in run(program, "library.json", "", "x.onnx", expect=1).stderr
    beside = pathlib.Path(library).parent
    alone = pathlib.Path("alone")
    alone.mkdir()
    for file in beside.glob("liblockstep.so*"):
        (alone / file.name).write_bytes(file.read_bytes())
    missing = subprocess.run([program, "library.json", "empty", "x.onnx"], capture_output=True, text=True,
                             env={**os.environ, "LD_LIBRARY_PATH": str(alone.resolve())})
    assert missing.returncode == 1 and "liblockstep-picture" in missing.stderr, missing
print("equal")
