#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs every command of the program in the documentation, with the files that it names.

    commands.py ROOT TRAINER FOLDER

Placeholders are replaced: CONFIG by a small config, runs/RUN by a run, DIRECTORY by a folder of
images; the data is small. Not run: lines with … or [ ], which are syntax; commands of other
programs (cmake, mpirun, pip); commands that wait for a browser or for other hosts; configs whose
files other commands create.
"""
import json
import pathlib
import re
import resource
import shlex
import shutil
import struct
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from file_bytes import npy, png, safetensors  # noqa: E402

SIDE = 28
TINY = {"name": "tiny", "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 3}]}, "batch_size": 32,
        "epochs": 1, "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1}}


def shown(page):
    """Commands of indented lines, of sh blocks' and of tables' last columns."""
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"(?m)^    ((?:\./)?trainer .*)$|`(trainer (?:CONFIG|pack|sweep|examples/) [^`]*)` \|$", text):
        command = re.split(r"\s{2,}|\s#", max(line))[0]
        if not re.search(r"[…\[\]|]|--join|--listen", command):
            yield command


def furnish(folder, root):
    rows = 90
    x = bytes(i * 7 % 256 for i in range(rows * SIDE * SIDE))
    y = struct.pack(f"<{rows}i", *(i % 3 for i in range(rows)))
    (folder / "config.json").write_text(json.dumps(TINY))
    (folder / "arrays.json").write_text(json.dumps({**TINY, "data": {
        "name": "npy", "path": ".", "x": "x.npy", "y": "y.npy", "validation": 0.2}}))
    (folder / "examples").symlink_to(root / "examples")
    (folder / "x.npy").write_bytes(npy("|u1", (rows, SIDE, SIDE), x))
    (folder / "y.npy").write_bytes(npy("<i4", (rows,), y))
    (folder / "my.safetensors").write_bytes(
        safetensors([("x", "U8", [rows, SIDE, SIDE], x), ("y", "I32", [rows], y)]))
    (folder / "wine.csv").write_text("acid,sugar,quality\n" + "".join(f"{i % 7},{i % 5}.5,{i % 3}\n" for i in range(rows)))
    (folder / "rare.csv").write_text("a,b,y\n" + "".join(f"{i % 7},{i % 5}.5,{'no' if i % 9 else 'yes'}\n" for i in range(rows)))
    (folder / "circle.csv").write_text("x,y,inside\n" + "".join(
        f"{i % 17},{i % 13},{'yes' if i % 17 + i % 13 < 14 else 'no'}\n" for i in range(400)))
    for name in ("prices.csv", "earlier.csv", "later.csv"):
        (folder / name).write_text("size,price\n" + "".join(f"{i % 13},{i % 13 * 10 + i % 3 / 4}\n" for i in range(rows)))
    (folder / "table.json").write_text(json.dumps({**TINY, "data": {
        "name": "csv", "path": "wine.csv", "target": "quality"}, "model": {"layers": [{"type": "dense", "out": 3}]}}))
    (folder / "NEW.csv").write_text("sugar,acid,quality\n1.5,3,2\n2.5,1,0\n")
    for label in "abc":
        (folder / "photos" / label).mkdir(parents=True)
        for i in range(12):
            (folder / "photos" / label / f"{i}.pgm").write_bytes(b"P5 70 66 255\n" + bytes((i * j) % 256 for j in range(70 * 66)))
    (folder / "picture.png").write_bytes(png(SIDE, [bytes((x * y) % 256 for x in range(SIDE)) for y in range(SIDE)]))
    (folder / "boot.pgm").write_bytes(b"P5 28 28 255\n" + bytes((i * j) % 256 for j in range(SIDE) for i in range(SIDE)))


def words_of(command, run):
    """As it is called here, with little data."""
    if "NEW.csv" in command:
        run = "runs/table"
    if "--folds" in command:  # a config whose network fits its data
        command = command.replace("CONFIG", "table.json")
    if "receipt=true" in command:  # a run that the page verifies afterwards
        command = command.replace("CONFIG", "table.json") + " --set run_dir=runs/proved"
    if " verify " in command:
        run = "runs/proved"
        command = re.sub(r"(receipt\.json|weights\.safetensors)", rf"{run}/\1", command)
    if "NEW.npy" in command:  # the page has made a model of arrays before
        command = command.replace("latest", "runs/arrays")
    for name, stands_for in (("runs/RUN", run), ("RUN", run), ("CONFIG", "config.json"), ("RECEIPT", "runs/proved/receipt.json"),
                              ("DIRECTORY", "photos"),
                              ("FOLDER", "photos"), ("DATA", "wine.csv"), ("MORE_PHOTOS", "photos/a"),
                              ("NEW.jpg", "picture.png"), ("NEW.npy", "x.npy"), ("NEW", "NEW.csv")):
        command = re.sub(rf"(?<![\w/]){re.escape(name)}\b(?!\.)", stands_for, command)
    command = re.sub("(bench|find-lr|sweep) config.json", r"\1 examples/fashion_mnist.json", command).replace("seed=0,1,2", "seed=0,1")
    words = shlex.split(command)[1:]
    if "--serve" in words:
        del words[words.index("--serve"):][:2]
    words += {"bench": ["--seconds", "0.1", "--rounds", "1"], "find-lr": ["--steps", "60"]}.get(words[0], [])
    if words[0].startswith("examples/") or words[0] in ("sweep", "find-lr"):
        words += ["--set", "data.name=synthetic", "--set", "epochs=1", "--set"]
        words += ["data.limit=32", "--set", "data.validation=0.5"] if "resnet" in command else ["data.limit=256"]
    return words


def needs_files(root, words):
    """A config whose data another command makes first (examples/data.py, with packages of Python): not run."""
    if not words[0].startswith("examples/"):
        return False
    data = json.loads((root / words[0]).read_text()).get("data", {})
    return bool(set(data) - {"name", "mean", "std", "limit", "validation"} or "--set data.path=" in " ".join(words))


def main():
    root, trainer, folder = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2], pathlib.Path(sys.argv[3])
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    furnish(folder, root)
    run = "runs/run"
    for config in ("table.json --quiet --set run_dir=runs/table", "arrays.json --quiet --set run_dir=runs/arrays",
                   f"examples/fashion_mnist.json --quiet --set run_dir={run}"):
        subprocess.run([trainer, *words_of(f"trainer {config}", run)], cwd=folder, check=True,
                       stdout=subprocess.DEVNULL, timeout=60)
    subprocess.run([trainer, "export", run, "--to", "net.onnx"], cwd=folder, check=True, timeout=60)
    commands = {tuple(words_of(command, run)): command for page in (
        root / "README.md", *sorted((root / "docs").glob("*.md"))) for command in shown(page)
        if not needs_files(root, words_of(command, run))}
    failed = 0
    for words, command in commands.items():
        done = subprocess.run([trainer, *words], cwd=folder, capture_output=True, text=True, timeout=100,
                              check=False)
        print(f"{done.returncode:3} {command}", flush=True)
        if done.returncode:
            failed += 1
            print(done.stderr)
    spent = resource.getrusage(resource.RUSAGE_CHILDREN)
    print(f"{spent.ru_utime + spent.ru_stime:.1f} s of processor time")
    print(f"{len(commands) - failed} passed, {failed} failed")
    return failed or len(commands) < 25


if __name__ == "__main__":
    sys.exit(bool(main()))
