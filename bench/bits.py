#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Trains the book's LeNet with 1, 2 and 3 threads under three instruction sets, and compares the bits of the weights.

    python3 bench/bits.py [--trainer ./trainer] [--python VENV/bin/python] [--json FILE] [--picture FILE]

PyTorch and Lockstep train the network of examples/fashion_mnist.json for 20 steps of 256 images, each with its own
seed 0. PyTorch uses its deterministic algorithms (peers/bits_torch.py). A thread is a thread of PyTorch and a worker
of Lockstep. PyTorch's instruction set is limited by its variable ATEN_CPU_CAPABILITY, and Lockstep's by the C
library's tunable. Both programs report the set that they use; if it is not the set of the setting (the CPU lacks
the set, or the C library has no such tunable), the setting is left out. The first setting of each program is trained
twice.

One rule for both programs gives the hash: SHA-256 of the tensors' bytes (little-endian fp32, row-major), in the order
conv1, conv2, fc1, fc2, each the weight and then the bias. Lockstep's `weights_sha256` is this hash, which is checked.
"""

import argparse
import array
import hashlib
import json
import os
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

import svg

ROOT = Path(__file__).parent.parent
DATA = Path("/usr/share/datasets/fashion-mnist")
STEPS, BATCH, THREADS = 20, 256, (1, 2, 3)
TENSORS = [f"{layer}.{part}" for layer in ("conv1", "conv2", "fc1", "fc2") for part in ("weight", "bias")]
HOW_TO_GET_TORCH = ("no Python with PyTorch, so only Lockstep is trained. To compare: python3 -m venv torch; "
                    "torch/bin/pip install torch numpy; TORCH_PYTHON=torch/bin/python ./dev bench bits")

# name: the tunable that limits Lockstep, the kernels that Lockstep then reports; PyTorch's variable and report.
SETS = {
    "AVX-512": (None, "avx512", "avx512", "AVX512"),
    "AVX2": ("glibc.cpu.hwcaps=-AVX512F", "avx2", "avx2", "AVX2"),
    "baseline": ("glibc.cpu.hwcaps=-AVX512F,-AVX2", "generic", "default", "DEFAULT"),
}


class Lacking(Exception):
    """The program used another instruction set than that of the setting."""


# ---- weights ---------------------------------------------------------------------------------------

def read_weights(path):
    """The bytes of the fp32 tensors in a safetensors file, in the order of TENSORS."""
    raw = path.read_bytes()
    size, = struct.unpack_from("<Q", raw)
    header = json.loads(raw[8:8 + size])
    header.pop("__metadata__", None)
    if set(header) != set(TENSORS) or any(t["dtype"] != "F32" for t in header.values()):
        sys.exit(f"{path}: expected the fp32 tensors {', '.join(TENSORS)}; found {', '.join(sorted(header))}")
    parts = (header[name]["data_offsets"] for name in TENSORS)
    return b"".join(raw[8 + size + begin:8 + size + end] for begin, end in parts)


def largest_difference(one, other):
    """The largest absolute difference of two texts of fp32."""
    a, b = array.array("f", one), array.array("f", other)
    return max(abs(x - y) for x, y in zip(a, b, strict=True))


# ---- one training ----------------------------------------------------------------------------------

def run(command, variables):
    environment = {k: v for k, v in os.environ.items() if k not in ("GLIBC_TUNABLES", "ATEN_CPU_CAPABILITY")}
    done = subprocess.run([str(word) for word in command], env=environment | variables, capture_output=True, text=True,
                          timeout=1800, check=False)
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))}: status {done.returncode}\n{done.stderr.strip()}")
    return [json.loads(line) for line in done.stdout.splitlines()]


def train_lockstep(trainer, folder, name, threads):
    """Returns the hash before the first step, the bytes after the last step, the mean loss, the version."""
    tunable, wanted, _, _ = SETS[name]
    where = folder / f"lockstep-{len(list(folder.iterdir()))}"
    command = [trainer, ROOT / "examples/fashion_mnist.json", "--quiet", "--metrics", "-", "--devices", f"cpu:{threads}"]
    for key in (f"data.limit={STEPS * BATCH}", f"batch_size={BATCH}", "epochs=1", "seed=0", "receipt=true",
                f"run_dir={where}"):
        command += ["--set", key]
    records = run(command, {"GLIBC_TUNABLES": tunable} if tunable else {})
    if not records[0]["device_model"].endswith(f", {wanted}"):
        raise Lacking
    weights = read_weights(where / "weights.safetensors")
    if hashlib.sha256(weights).hexdigest() != records[-1]["weights_sha256"]:
        sys.exit(f"{where}/weights.safetensors does not have the run's weights_sha256")
    first = json.loads((where / "receipt.json").read_text(encoding="utf-8"))["first_weights"]
    loss = next(r["train_loss"] for r in records if r["type"] == "epoch")
    return first, weights, loss, records[0]["library"]


def train_torch(python, folder, name, threads):
    """Returns the same as train_lockstep."""
    _, _, capability, wanted = SETS[name]
    files = folder / "first.safetensors", folder / "last.safetensors"
    report, = run([python, "-B", ROOT / "bench/peers/bits_torch.py", "--data", DATA, "--first", files[0], "--last",
                   files[1], "--steps", STEPS, "--batch", BATCH, "--seed", 0, "--threads", threads],
                  {"ATEN_CPU_CAPABILITY": capability})
    if report["instructions"] != wanted:
        raise Lacking
    first = hashlib.sha256(read_weights(files[0])).hexdigest()
    return first, read_weights(files[1]), report["loss"], report["version"]


# ---- all settings ----------------------------------------------------------------------------------

def measure(side, train, say):
    """Trains with all settings, then with the first one again."""
    rows, base, version, lacking = [], None, None, []
    for name in SETS:
        for threads in THREADS:
            try:
                first, weights, loss, version = train(name, threads)
            except Lacking:
                lacking.append(name)
                say(f"{side}: {name} cannot be had here; left out")
                break
            base = base or (name, threads, weights)
            rows.append({"instructions": name, "threads": threads, "first": first, "loss": loss,
                         "last": hashlib.sha256(weights).hexdigest(),
                         "difference": largest_difference(base[2], weights)})
            say(f"{side}, {name}, {threads}: {rows[-1]['last']}")
    if not rows:
        sys.exit(f"{side} can use none of {', '.join(SETS)} here: an x86-64 CPU with glibc is needed")
    again = hashlib.sha256(train(*base[:2])[1]).hexdigest()
    return {"side": side, "version": version, "rows": rows, "lacking": lacking, "again": again}


def count(result, key):
    return len({row[key] for row in result["rows"]})


def plural(number, word):
    return f"{number} {word}" + ("" if number == 1 else "es" if word.endswith("h") else "s")


def markdown(results):
    lines = ["| program | instructions | threads | first weights | SHA-256 of the final weights | largest difference "
             "from the first line | mean loss |", "|---|---|---:|---|---|---:|---:|"]
    for result in results:
        for row in result["rows"]:
            difference = f"{row['difference']:.1e}" if row["difference"] else "0"
            lines.append(f"| {result['side']} | {row['instructions']} | {row['threads']} | `{row['first'][:12]}` | "
                         f"`{row['last']}` | {difference} | {row['loss']:.9f} |")
    lines.append("")
    for result in results:
        again = "the same" if result["again"] == result["rows"][0]["last"] else "**another**"
        lines.append(f"- {result['side']} ({result['version']}): {plural(len(result['rows']), 'setting')}, "
                     f"{plural(count(result, 'last'), 'hash')} of the final weights, {count(result, 'first')} of the "
                     f"first; the first setting again: {again} hash."
                     + "".join(f" {name} could not be had." for name in result["lacking"]))
    return "\n".join(lines)


# ---- the picture -----------------------------------------------------------------------------------

WIDTH, SHOWN = 480, 640  # narrow, for telephones
STRIP, CELL, DIGITS, LINE = 146, 7, 32, 16
COLOURS = {"Lockstep": 2, "PyTorch": 4}


def strip(y, sha, colour):
    """A cell for each hexadecimal digit, the darker the larger the digit is."""
    cells = []
    for i, digit in enumerate(sha[:DIGITS]):
        cell = svg.box(STRIP + i * CELL, y, CELL, LINE - 4, f"f{colour}")
        cells.append(cell.replace("/>", f' fill-opacity="{0.06 + 0.94 * int(digit, 16) / 15:.2f}"/>'))
    return cells


def draw(results):
    out, y = [svg.text(16, 24, f"LeNet after {STEPS} steps: the bits of the weights", kind="title")], 50
    for result in results:
        hashes = count(result, "last")
        out.append(svg.text(16, y, f"{result['side']}: {plural(len(result['rows']), 'setting')}, "
                                   f"{plural(hashes, 'hash')}", kind="strong"))
        y += 10
        for row in result["rows"]:
            out.append(svg.text(16, y + 10, f"{row['instructions']}, {plural(row['threads'], 'thread')}"))
            out += strip(y, row["last"], COLOURS[result["side"]])
            out.append(svg.text(STRIP + DIGITS * CELL + 8, y + 10, f"{row['last'][:8]}…"))
            y += LINE
        y += 22
    out.append(svg.text(16, y - 4, f"{BATCH} images per step, seed 0. A cell is a digit of the SHA-256."))
    y += 16
    label = "; ".join(f"{r['side']}: {plural(count(r, 'last'), 'hash')} of the weights from "
                      f"{plural(len(r['rows']), 'setting')}" for r in results)
    return svg.picture(WIDTH, y - 10, out, label, SHOWN)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trainer", default=ROOT / "trainer")
    parser.add_argument("--python", help="a Python with PyTorch; without it only Lockstep is trained")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--picture", type=Path)
    parser.add_argument("--from", dest="saved", type=Path, help="train nothing; print and draw the results of --json")
    args = parser.parse_args()

    def say(text):
        print(text, file=sys.stderr, flush=True)

    if args.saved:
        results = json.loads(args.saved.read_text(encoding="utf-8"))
    else:
        results = []
        with tempfile.TemporaryDirectory() as folder:
            if args.python:
                results.append(measure("PyTorch", lambda *s: train_torch(args.python, Path(folder), *s), say))
            else:
                say(HOW_TO_GET_TORCH)
            results.append(measure("Lockstep", lambda *s: train_lockstep(args.trainer, Path(folder), *s), say))
    print(markdown(results))
    if args.json:
        args.json.write_text(json.dumps(results, indent=1), encoding="utf-8")
    if args.picture:
        args.picture.write_text(draw(results), encoding="utf-8")
    ours = results[-1]
    if count(ours, "last") != 1 or ours["again"] != ours["rows"][0]["last"]:
        sys.exit("Lockstep's weights differ between settings, which they must not")


if __name__ == "__main__":
    main()
