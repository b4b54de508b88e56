#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks the kernels against budgets that are counted, not timed: no GPU is needed.

    kernel_costs.py BUDGETS --nvcc NVCC --source FOLDER [--cuobjdump PROGRAM] [--also ARCH...]

Compiles FOLDER/*.cu for sm_90 as the plugin's build does, and fails if

- ptxas spills registers to memory, or gives a kernel more registers than its budget (`ptxas -v`); this
  part is repeated for each ARCH, with the limit of any kernel in place of the budgets;
- a kernel of BUDGETS has more machine instructions for each element than its budget (`cuobjdump
  -sass`; without that program this part is left out, and the output says so).

The counted instructions are those of the loop that moves most bytes of global memory: every
instruction from the target of its backward branch to the branch, including predicated ones. If
BUDGETS says so, they are all instructions of a kernel instead. A call among the counted
instructions is a failure, because it would be a division that is not inlined.

Counts depend on the compiler: with another release of nvcc than the one in BUDGETS the exit status
is 77 (skipped).
"""

import argparse
import re
import subprocess
import sys
import tempfile
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ARCH = "sm_90"
FLAGS = ["-O3", "--fmad=false", "-std=c++17", "-cubin", "-Xptxas=-v"]
WIDTHS = {"U8": 1, "S8": 1, "U16": 2, "S16": 2, "64": 8, "128": 16}


Row = namedtuple("Row", "name part elements registers instructions symbol")


def run(command):
    done = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    if done.returncode:
        sys.exit(f"{' '.join(command)}\n{done.stdout}")
    return done.stdout


def read_budgets(path):
    """Returns the release of nvcc, the largest number of registers of any kernel, and the rows."""
    rows, release, registers = [], "", 0
    for number, line in enumerate(path.read_text().splitlines(), 1):
        words = line.split("#")[0].split()
        if not words:
            continue
        if words[0] == "nvcc":
            release = words[1]
        elif words[0] == "registers":
            registers = int(words[1])
        elif len(words) == 5:
            part, number_of = words[1].split(":")
            rows.append(Row(words[0], part, float(number_of), int(words[2]), float(words[3]), words[4]))
        else:
            sys.exit(f"{path}:{number}: expected NAME ELEMENTS REGISTERS INSTRUCTIONS SYMBOL, got: {line}")
    return release, registers, rows


def resources(log):
    """Returns {function: (registers, spilled bytes)} from the output of `ptxas -v`."""
    found = {}
    for part in re.split(r"Compiling entry function '", log)[1:]:
        spills = re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", part)
        used = re.search(r"Used (\d+) registers", part)
        found[part.split("'")[0]] = (int(used[1]), int(spills[1]) + int(spills[2]))
    return found


def functions(sass):
    """Returns {function: its instructions}, each as (address, text)."""
    found = {}
    for part in re.split(r"Function : ", sass)[1:]:
        lines = re.findall(r"/\*([0-9a-f]{4,})\*/\s+([^;/]+?)\s*;", part)
        found[part.split()[0]] = [(int(at, 16), text) for at, text in lines]
    return found


def moved(text):
    """Returns how many bytes an instruction moves between global memory and one thread."""
    op = re.search(r"\b(?:LDG|STG)((?:\.\w+)*)", text)
    return next((WIDTHS[w] for w in op[1].split(".") if w in WIDTHS), 4) if op else 0


def busiest_loop(code):
    """Returns the instructions of the loop that moves most bytes; of several, the shortest loop."""
    best, most = [], 0
    for at, text in code:
        target = re.search(r"\bBRA\b.*?\b0x([0-9a-f]+)", text)
        if not target or int(target[1], 16) >= at:
            continue
        body = [t for a, t in code if int(target[1], 16) <= a <= at]
        bytes_moved = sum(map(moved, body))
        if bytes_moved > most or (bytes_moved == most and len(body) < len(best)):
            best, most = body, bytes_moved
    return best


def whole(code):
    end = max(i for i, (_, text) in enumerate(code) if re.search(r"\bEXIT\b", text))
    return [text for _, text in code[: end + 1]]


def cost(code, row):
    """Returns the instructions per element, and whether the counted instructions contain a call."""
    body = whole(code) if row.part == "all" else busiest_loop(code)
    elements = row.elements if row.part == "all" else sum(map(moved, body)) / row.elements
    calls = any(re.search(r"\bCALL\b", text) for text in body)
    return (len(body) / elements if elements else float("inf")), calls


def compile_all(nvcc, folder, out, arch=ARCH):
    sources = sorted(folder.glob("*.cu"))
    if not sources:
        sys.exit(f"{folder}: no *.cu")

    def one(source):
        return run([nvcc, *FLAGS, f"-arch={arch}", f"-I{folder.parent.parent}", "-o", f"{out}/{source.stem}.cubin",
                    source])

    with ThreadPoolExecutor(2) as pool:
        return "".join(pool.map(one, sources))


def check_registers(found, most, rows):
    bad = []
    for name, (registers, spilled) in sorted(found.items()):
        limit = min([row.registers for row in rows if re.search(row.symbol, name)], default=most)
        if spilled or registers > limit:
            bad.append(f"{name}: {registers} registers of {limit}, {spilled} bytes spilled")
    return bad


def check_counts(found, rows):
    bad = []
    for row in rows:
        codes = [code for function, code in found.items() if re.search(row.symbol, function)]
        if len(codes) != 1:
            bad.append(f"{row.name}: {len(codes)} functions match {row.symbol}, not one")
            continue
        count, calls = cost(codes[0], row)
        print(f"  {row.name:24} {count:6.1f} of {row.instructions:5.1f} instructions an element")
        if calls or count > row.instructions:
            bad.append(f"{row.name}: {count:.1f} instructions an element of {row.instructions}"
                       + (", and a call" if calls else ""))
    return bad


def main():
    args = argparse.ArgumentParser()
    args.add_argument("budgets", type=Path)
    args.add_argument("--nvcc", required=True)
    args.add_argument("--source", type=Path, required=True)
    args.add_argument("--cuobjdump")
    args.add_argument("--also", nargs="*", default=[])
    args = args.parse_args()
    release, registers, rows = read_budgets(args.budgets)
    if f"release {release}," not in run([args.nvcc, "--version"]):
        print(f"skipped: the budgets are those of nvcc {release}")
        return 77
    with tempfile.TemporaryDirectory() as out:
        found = resources(compile_all(args.nvcc, args.source, out))
        bad = check_registers(found, registers, rows)
        print(f"{len(found)} kernels, at most {max(r for r, _ in found.values())} registers")
        if args.cuobjdump:
            cubins = sorted(map(str, Path(out).glob("*.cubin")))
            sass = "".join(run([args.cuobjdump, "-sass", cubin]) for cubin in cubins)
            bad += check_counts(functions(sass), rows)
        else:
            print("instructions not counted: no cuobjdump")
        for arch in args.also:
            found = resources(compile_all(args.nvcc, args.source, out, arch))
            bad += [f"{arch}: {line}" for line in check_registers(found, registers, [])]
            print(f"{arch}: {len(found)} kernels, at most {max(r for r, _ in found.values())} registers")
    print(*bad, sep="\n")
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
