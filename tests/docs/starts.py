#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Runs the four short starts of README.md as they are printed, in a folder that looks like a clone after ./dev run.

    starts.py ROOT TRAINER BUILD FOLDER
    starts.py --installed ROOT FOLDER     with the program and the library that the system has

Each ```sh block of the section "Four short starts" is one script. Only the TCP port is replaced, by one that is free.
Where the data set is not installed (skipped: 77), nothing runs.
"""
import os
import pathlib
import re
import shutil
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
from free_port import free_port  # noqa: E402

DATA = "fashion-mnist"
LIMIT_S = 1500  # for a start that hangs; a loaded machine can need some minutes


def scripts(readme):
    """The blocks, in order."""
    section = re.search(r"(?ms)^## Four short starts\n(.*?)^## ", readme.read_text(encoding="utf-8")).group(1)
    return re.findall(r"(?ms)^```sh\n(.*?)^```$", section)


def clone(folder, root, trainer, build):
    """What the starts use of a clone: links to the program, the examples and the build."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build").mkdir(parents=True)
    (folder / "trainer").symlink_to(trainer)
    (folder / "examples").symlink_to(root / "examples")
    (folder / "build" / "release").symlink_to(build)


def installed(folder, root):
    """Such a folder, whose program and prefix are those of the system."""
    shutil.rmtree(folder, ignore_errors=True)
    (folder / "build" / "prefix").mkdir(parents=True)
    (folder / "trainer").symlink_to(shutil.which("trainer"))
    (folder / "examples").symlink_to(root / "examples")
    (folder / "build" / "prefix" / "include").symlink_to("/usr/include")
    where = subprocess.run(["cc", "-print-file-name=liblockstep.so"], capture_output=True, text=True, check=True)
    (folder / "build" / "prefix" / "lib").symlink_to(pathlib.Path(where.stdout.strip()).parent)


def without_installation(script):
    """The script without the line that installs the build."""
    return re.sub(r"(?m)^cmake --install build/release --prefix build/prefix\n", "", script)


def hashes(text):
    return re.findall(r"(?m)^([0-9a-f]{64})  runs/", text)


def main():
    on_system = sys.argv[1] == "--installed"
    if on_system:
        root, folder = (pathlib.Path(word).resolve() for word in sys.argv[2:])
        trainer = build = None
    else:
        root, trainer, build, folder = (pathlib.Path(word).resolve() for word in sys.argv[1:])
    places = [os.environ.get("LOCKSTEP_DATA", ""), "/usr/share/datasets"]
    if not any((pathlib.Path(place) / DATA).exists() or (pathlib.Path(place) / "train-images-idx3-ubyte.gz").exists()
               for place in places if place):
        print(f"skipped: {DATA} is not installed (Debian's dataset-fashion-mnist)")
        return 77
    if not shutil.which("cc"):
        print("skipped: there is no C compiler called cc")
        return 77
    if on_system:
        installed(folder, root)
    else:
        clone(folder, root, trainer, build)
    found, failed, port = [], 0, str(free_port())
    # The build's own list of what it installed last stays as it was.
    manifests = "install_manifest*.txt"
    lists = {} if on_system else {path: path.read_bytes() for path in build.glob(manifests)}
    try:
        blocks = scripts(root / "README.md")
        for number, script in enumerate(blocks, 1):
            if on_system:
                script = without_installation(script)
            done = subprocess.run(["sh", "-e"], input=script.replace("7070", port), cwd=folder, capture_output=True,
                                  text=True, timeout=LIMIT_S, check=False)
            print(f"start {number}: exit status {done.returncode}\n{done.stdout}", flush=True)
            if done.returncode:
                failed += 1
                print(done.stderr)
            found += hashes(done.stdout)
    finally:
        for path in () if on_system else build.glob(manifests):
            path.unlink()
        for path, text in lists.items():
            path.write_bytes(text)
    if len(blocks) != 4:
        print(f"{len(blocks)} starts, expected 4")
        failed += 1
    if len(found) != 3 or len(set(found)) != 1:
        print(f"expected three equal hashes of weights, found {found}")
        failed += 1
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
