#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""bits_check.py SOURCE TRAINER: bench/bits.py trains all settings, hashes what both programs have written by one rule,
and notices weights that differ.

Lockstep trains a few generated images. PyTorch is replaced by a program that writes weights.
"""

import hashlib
import json
import platform
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as xml
from pathlib import Path

SOURCE, TRAINER = Path(sys.argv[1]), sys.argv[2]
sys.path.insert(0, str(SOURCE / "bench"))
sys.dont_write_bytecode = True
import bits  # noqa: E402

# The real program with less data.
SMALL = f"""#!/bin/sh
exec "{TRAINER}" "$@" --set data.name=synthetic --set data.limit=32 --set data.validation=0.5 --set batch_size=16
"""

# Weights that depend on the instruction set and, from 3 on, on the number of threads. AVX2 is not there.
TORCH = """#!/usr/bin/env python3
import json, os, struct, sys
options = dict(zip(sys.argv[3::2], sys.argv[4::2]))
isa = os.environ["ATEN_CPU_CAPABILITY"]
for file, value in ("--first", 1.0), ("--last", 2.0 + (isa == "default") + (options["--threads"] == "3") / 4):
    names = %r
    header, data = {}, b""
    for name in sorted(names):  # another order than that of the hash
        values = struct.pack("<2f", names.index(name), value)
        header[name] = {"dtype": "F32", "shape": [2], "data_offsets": [len(data), len(data) + 8]}
        data += values
    text = json.dumps(header).encode()
    with open(options[file], "wb") as out:
        out.write(struct.pack("<Q", len(text)) + text + data)
print(json.dumps({"version": "0.0", "instructions": "AVX512" if isa == "avx512" else "DEFAULT", "loss": 2.5}))
""" % bits.TENSORS

# A Lockstep whose weights are said to have another hash than they have.
LYING = SMALL.replace("exec ", "").rstrip() + """ | sed 's/"weights_sha256":"./"weights_sha256":"x/'
"""


def check(what, holds):
    if not holds:
        sys.exit(f"bits_check.py: {what}")


def program(path, text):
    path.write_text(text, encoding="utf-8")
    path.chmod(0o755)
    return path


def run(*options):
    return subprocess.run([sys.executable, "-B", SOURCE / "bench/bits.py", *options], capture_output=True, text=True,
                          check=False)


def comparing(folder):
    done = run("--trainer", program(folder / "trainer", SMALL), "--python", program(folder / "python", TORCH),
               "--json", folder / "out.json", "--picture", folder / "out.svg")
    check(f"status {done.returncode}: {done.stderr}", done.returncode == 0)
    torch, ours = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    check(f"AVX2, which PyTorch did not use, is left out: {torch}",
          torch["lacking"] == ["AVX2"] and [row["instructions"] for row in torch["rows"]] == ["AVX-512"] * 3 + ["baseline"] * 3)
    check(f"four hashes in six settings: {torch}", bits.count(torch, "last") == 4 and bits.count(torch, "first") == 1)
    check("differences are to the first row", [row["difference"] for row in torch["rows"]] == [0, 0, .25, 1, 1, 1.25])
    values = bits.array.array("f", (v for i in range(len(bits.TENSORS)) for v in (i, 2.0)))
    check("the hash is that of the tensors in the network's order",
          torch["rows"][0]["last"] == hashlib.sha256(values.tobytes()).hexdigest())
    flags = set(Path("/proc/cpuinfo").read_text(encoding="utf-8").split())
    needed = {"AVX-512": {"avx2", "fma", "avx512f", "avx512bw", "avx512dq", "avx512vl"}, "AVX2": {"avx2", "fma"}}
    lacking = [name for name in needed if not needed[name] <= flags]
    check(f"all settings that this CPU has: {ours}",
          ours["lacking"] == lacking and len(ours["rows"]) == 3 * (len(bits.SETS) - len(lacking)))
    check(f"one hash: {ours}", bits.count(ours, "last") == 1
          and ours["again"] == ours["rows"][0]["last"] != ours["rows"][0]["first"])
    lines = done.stdout.splitlines()
    table = [line for line in lines if line.startswith("|")]
    check("all rows have as many cells", len({line.count("|") for line in table}) == 1
          and len(table) == 2 + len(torch["rows"]) + len(ours["rows"]))
    check(f"the summary: {lines[-2]}", "6 settings, 4 hashes of the final weights, 1 of the first; "
                                       "the first setting again: the same hash. AVX2 could not be had." in lines[-2])
    text = (folder / "out.svg").read_text(encoding="utf-8")
    boxes = xml.fromstring(text).findall("{http://www.w3.org/2000/svg}rect")
    check(f"a strip for each setting: {len(boxes)}",
          len(boxes) == 1 + bits.DIGITS * (len(torch["rows"]) + len(ours["rows"])))
    check("viewers other than browsers draw it", "var(" not in text)
    again = run("--from", folder / "out.json")
    check("--from prints the same table", again.returncode == 0 and again.stdout == done.stdout)


def differing(folder):
    """Lockstep's weights must not differ; a difference fails the benchmark."""
    results = json.loads((folder / "out.json").read_text(encoding="utf-8"))
    results[-1]["rows"][-1]["last"] = "0" * 64
    (folder / "other.json").write_text(json.dumps(results), encoding="utf-8")
    done = run("--from", folder / "other.json")
    check(f"other weights fail: {done.stderr}", done.returncode == 1 and "differ between settings" in done.stderr)
    done = run("--trainer", program(folder / "lying", LYING))
    check(f"a hash that the file does not have: {done.stderr}",
          done.returncode == 1 and "does not have the run's weights_sha256" in done.stderr)
    check("it is said how PyTorch can be had", "pip install torch" in done.stderr)


def main():
    if platform.machine() not in ("x86_64", "AMD64"):
        print("skipped: bench/bits.py compares instruction sets of x86-64")
        sys.exit(77)
    with tempfile.TemporaryDirectory() as folder:
        comparing(Path(folder))
        differing(Path(folder))


if __name__ == "__main__":
    main()
