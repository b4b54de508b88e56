#!/usr/bin/env python3
"""same_bits_of_data.py TRAINER: data of every form that `init` and the readers accept trains to the
same weights on one, two and three workers, and on two after a kill on one. Needs nothing but
Python.

Each form has a counterpart that contains the same data in another form: a plain table, an array
with its channels first, values. Its weights must be the same as well, or different where that is
the purpose of the form.
"""
import gzip
import json
import os
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import zipfile
from pathlib import Path

TRAINER = str(Path(sys.argv[1]).resolve())
ROWS = 60
LAYERS = [{"type": "dense", "out": 8}, {"type": "relu"}, {"type": "dense"}]
PICTURES = [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "relu"}, {"type": "flatten"}, {"type": "dense", "out": "classes"}]
failures = []


# ---- data -----------------------------------------------------------------------------------

def rows():
    """A number with a fraction, one with a hole, a text, and a target of the order of a million."""
    for i in range(ROWS):
        a, b = i * 37 % 60 - 20.5, i * 11 % 17
        yield a, None if i == 7 else b, "xyz"[i % 3], 1_000_000 + 5000.5 * a + 700 * b, "big" if a > 0 else "small"


def table(separator, comma):
    def number(v):
        return "" if v is None else str(v).replace(".", ",") if comma else str(v)
    lines = [["a", "b", "kind", "value", "class"]] + [[number(a), number(b), t, number(v), c] for a, b, t, v, c in rows()]
    return "".join(separator.join(line) + "\n" for line in lines).encode()


def npy(kind, shape, packed):
    header = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode() + packed


def pixel(row, channel, y, x):
    return (row * 29 + channel * 60 + y * 7 + x * (3 if row % 2 else 17)) % 256


def npz(path, last, how):
    sides = [(c, y, x) for c in range(3) for y in range(5) for x in range(6)]
    if last:
        sides.sort(key=lambda at: (at[1], at[2], at[0]))
    shape = (ROWS, 5, 6, 3) if last else (ROWS, 3, 5, 6)
    with zipfile.ZipFile(path, "w", how) as archive:
        archive.writestr("x.npy", npy("|u1", shape, bytes(pixel(r, *at) for r in range(ROWS) for at in sides)))
        archive.writestr("y.npy", npy("<f8", (ROWS,), struct.pack(f"<{ROWS}d", *(1.0 + r % 2 for r in range(ROWS)))))


def photos(folder):
    for i in range(ROWS // 2):
        where = folder / ("even", "odd")[i % 2] / "deeper"
        where.mkdir(parents=True, exist_ok=True)
        w, h = 9 + i % 5, 8 + i % 3
        body = bytes(pixel(i, c, y, x) for y in range(h) for x in range(w) for c in range(3))
        (where / f"{i}.ppm").write_bytes(b"P6 %d %d 255\n" % (w, h) + body)


def make():
    Path("plain.csv").write_bytes(table(",", False))
    Path("commas.csv").write_bytes(table(";", True))
    Path("packed.csv.gz").write_bytes(gzip.compress(table(",", False), mtime=0))
    Path("utf16.csv").write_bytes(table(";", True).decode().encode("utf-16"))
    npz("first.npz", False, zipfile.ZIP_STORED)
    npz("last.npz", True, zipfile.ZIP_DEFLATED)
    photos(Path("photos"))


def csv(path, target, **more):
    return {"name": "csv", "path": path, "target": target, "missing": "mean", "validation": 0.2, **more}


VALUES = {"labels": "values", "drop": "class"}
# Name: data, layers, and which form has the same weights.
FORMS = {
    "values": (csv("plain.csv", "value", **VALUES), LAYERS, None),
    "commas": (csv("commas.csv", "value", **VALUES), LAYERS, "values"),
    "gzip": (csv("packed.csv.gz", "value", **VALUES), LAYERS, "values"),
    "UTF-16": (csv("utf16.csv", "value", labels="values", drop=["class"]), LAYERS, "values"),
    "classes": (csv("commas.csv", "class", drop=["value"]), LAYERS, None),
    "npz": ({"name": "npy", "path": "first.npz", "validation": 0.2}, PICTURES, None),
    "channels last": ({"name": "npy", "path": "last.npz", "layout": "channels_last", "validation": 0.2}, PICTURES, "npz"),
    "photos": ({"name": "folder", "path": "photos", "image_size": 8, "channels": 3, "validation": 0.2}, PICTURES, None),
}


# ---- runs -----------------------------------------------------------------------------------

def config(name, **more):
    data, layers, _ = FORMS[name]
    path = Path("config.json")
    path.write_text(json.dumps({
        "data": data, "model": {"layers": layers}, "batch_size": 16, "shards": 3, "epochs": 3, "seed": 5,
        "optimizer": {"name": "adamw", "lr": 0.01}, **({"loss": "mse"} if data.get("labels") == "values" else {}), **more}))
    return path


def sha(directory):
    records = Path(directory, "metrics.jsonl").read_text().splitlines() if Path(directory, "metrics.jsonl").exists() else []
    last = json.loads(records[-1]) if records else {}
    return last.get("weights_sha256") if last.get("status") == "finished" else None


def train(name, workers):
    shutil.rmtree("run", ignore_errors=True)
    done = subprocess.run([TRAINER, config(name, run_dir="run"), "--quiet", "--devices", f"cpu:{workers}"],
                          capture_output=True, text=True, check=False)
    if done.returncode:
        failures.append(f"{name} on {workers}: {done.stderr}")
    return sha("run")


def killed(name):
    """A run that is killed in its fifth step, and goes on from the checkpoint behind the fourth or the third."""
    shutil.rmtree("killed", ignore_errors=True)
    path = config(name, run_dir="killed", checkpoint={"every_steps": 1})
    with open("said.txt", "w", encoding="utf-8") as said, subprocess.Popen(
            [TRAINER, path, "--quiet", "--devices", "cpu:1", "--inject", "worker=0,step=5,kind=stall,seconds=30"],
            stdout=said, stderr=said) as run:
        until = time.monotonic() + 30
        while not Path("killed/checkpoints/step-000000003.safetensors").exists() and time.monotonic() < until and run.poll() is None:
            time.sleep(0.01)
        run.send_signal(signal.SIGKILL)
    if sha("killed"):
        failures.append(f"{name}: it ended before it was killed")
    done = subprocess.run([TRAINER, "--resume", "killed", "--quiet", "--devices", "cpu:2"], capture_output=True, text=True,
                          check=False)
    if done.returncode:
        failures.append(f"{name}, resumed: {done.stderr} {Path('said.txt').read_text()}")
    return sha("killed")


def in_scratch(function):
    """Calls it in a directory of its own, which goes with what it holds."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        os.environ["XDG_CACHE_HOME"] = scratch + "/cache"
        status = function()
        os.chdir("/")
    return status


def main():
    make()
    known = {}
    for name, (_, _, twin) in FORMS.items():
        known[name] = train(name, 1)
        found = {"2 workers": train(name, 2), "3 workers": train(name, 3), "a kill": killed(name)}
        if twin:
            found[f"the form of {twin}"] = known[twin]
        for what, other in found.items():
            if not other or other != known[name]:
                failures.append(f"{name}: {known[name]}, and with {what} {other}")
    if len(set(known.values())) != sum(twin is None for _, _, twin in FORMS.values()):
        failures.append(f"forms that are other data have other weights: {known}")
    for line in failures:
        print("FAILED:", line)
    return bool(failures)


if __name__ == "__main__":
    sys.exit(in_scratch(main))
