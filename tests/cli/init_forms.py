#!/usr/bin/env python3
"""init_forms.py TRAINER: `init` of files in the forms in which they are found: what it says, what it writes into the config,
and that the config trains. Needs nothing but Python."""
import json
import subprocess
import sys
from pathlib import Path

import same_bits_of_data as forms

ROWS = 40


def trainer(*arguments):
    done = subprocess.run([forms.TRAINER, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def look(what, *arguments, data, said="", trains=True):
    """`data`: what the config has to have."""
    code, text = trainer("init", *arguments, "--to", "config.json")
    if code:
        forms.failures.append(f"{what}: init: {code}: {text}")
        return
    found = json.loads(Path("config.json").read_text())["data"]
    wrong = {key: found.get(key) for key, value in data.items() if found.get(key) != value}
    if wrong:
        forms.failures.append(f"{what}: expected {data}, found {wrong}")
    if said not in text:
        forms.failures.append(f"{what}: expected '{said}' in: {text}")
    if trains:
        code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null")
        if code:
            forms.failures.append(f"{what}: {code}: {text}")


def tables():
    look("decimal commas", "commas.csv", "--target", "value", data={"name": "csv", "target": "value", "labels": "values"},
         said="a semicolon stands between fields (data.separator)")
    look("gzip", "packed.csv.gz", "--target", "class", data={"path": "packed.csv.gz", "labels": "classes"})
    # Few different values with commas are values all the same.
    Path("halves.csv").write_text("a;y\n" + "".join(f"{i % 9};{i % 4},5\n" for i in range(ROWS)))
    look("values with a comma", "halves.csv", data={"target": "y", "labels": "values"}, said="decimal comma")
    # A name with a comma, of a column that is left out.
    Path("names.csv").write_text('"id, old",a,b,y\n' + "".join(f"{i},{i % 9},{i % 5},{'ab'[i % 2]}\n" for i in range(ROWS)))
    look("a comma in a name", "names.csv", data={"drop": ["id, old"]}, said="id, old is left out")


def arrays():
    look("npz", "first.npz", data={"name": "npy", "path": "first.npz", "layout": None}, said="rows of 3×5×6")
    look("channels last", "last.npz", data={"name": "npy", "layout": "channels_last"}, said="(data.layout)")
    if "warning" in trainer("init", "last.npz")[1]:
        forms.failures.append("channels last: what was assumed is not doubted as well")


def pictures():
    Path("photos/odd/deeper/1.ppm").write_bytes(b"P6 9 9 255\ncut off")
    look("a broken picture", "photos", data={"name": "folder", "channels": 3}, trains=False)
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null")
    if code == 0 or "skip_broken" not in text:
        forms.failures.append(f"a broken picture: expected the run to name data.skip_broken: {text}")
    code, text = trainer("config.json", "--quiet", "--devices", "cpu:1", "--set", "epochs=1", "--set", "run_dir=null",
                         "--set", "data.skip_broken=true", "--set", "data.image_size=16")
    if code:
        forms.failures.append(f"a broken picture, left out: {text}")


def main():
    forms.make()
    tables()
    arrays()
    pictures()
    for line in forms.failures:
        print("FAILED:", line)
    return bool(forms.failures)


if __name__ == "__main__":
    sys.exit(forms.in_scratch(main))
