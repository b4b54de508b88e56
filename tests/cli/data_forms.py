# SPDX-License-Identifier: MIT
"""Writes data files in the forms that users have, and runs the program with them. It is used by scripts
whose first argument is the program. Needs only Python.
"""
import datetime
import gzip
import os
import struct
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tools"))
from file_bytes import npy  # noqa: E402

TRAINER = str(Path(sys.argv[1]).resolve())
ROWS = 60
failures = []


def trainer(*arguments):
    """Runs the program. Returns its exit code and its output."""
    done = subprocess.run([TRAINER, *map(str, arguments)], capture_output=True, text=True, check=False)
    return done.returncode, done.stdout + done.stderr


def run_in_scratch(function):
    """Calls the function in a temporary directory and prints the failures. Returns the exit status."""
    with tempfile.TemporaryDirectory() as scratch:
        os.chdir(scratch)
        os.environ["XDG_CACHE_HOME"] = scratch + "/cache"
        function()
        os.chdir("/")
    for line in failures:
        print("FAILED:", line)
    return bool(failures)


# ---- data -----------------------------------------------------------------------------------

def rows():
    """Yields rows: a number with a fraction, a number that is missing in one row, a text, a target of about a
    million, and a class."""
    for i in range(ROWS):
        a, b = i * 37 % 60 - 20.5, i * 11 % 17
        yield a, None if i == 7 else b, "xyz"[i % 3], 1_000_000 + 5000.5 * a + 700 * b, "big" if a > 0 else "small"


def table(separator, comma):
    def number(v):
        return "" if v is None else str(v).replace(".", ",") if comma else str(v)
    lines = [["a", "b", "kind", "value", "class"]] + [[number(a), number(b), t, number(v), c] for a, b, t, v, c in rows()]
    return "".join(separator.join(line) + "\n" for line in lines).encode()


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


def columns(path):
    """Writes rows of three numbers of different scales, and the targets -1 and 1."""
    numbers = [scale * ((i * step) % 59 - 20) for i in range(ROWS) for step, scale in ((7, 1e-3), (11, 1), (13, 1e7))]
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("features.npy", npy("<f8", (ROWS, 3), struct.pack(f"<{3 * ROWS}d", *numbers)))
        archive.writestr("target.npy", npy("<i8", (ROWS,), struct.pack(f"<{ROWS}q", *(i * 11 % 59 // 20 % 2 * 2 - 1 for i in range(ROWS)))))


def dates():
    """Writes the same moments in four forms."""
    moments = [datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=i * 997 % 9000) for i in range(ROWS)]
    for name, form in (("iso", "%Y-%m-%dT%H:%M:%SZ"), ("dmy", "%d.%m.%Y %H:%M"), ("mdy", "%m/%d/%Y %I:%M %p"), ("plain", "%Y/%m/%d %H:%M")):
        lines = "".join(f"{'' if i == 5 else f'{m:{form}}'},{i * 7 % 11},{'uv'[m.weekday() > 3]}\n" for i, m in enumerate(moments))
        Path(f"dates_{name}.csv").write_text("when,a,y\n" + lines)


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
    columns("columns.npz")
    codes = "".join(f"{(1001, 10001, 1002)[i % 3]:05},{i * 7 % 11},{'uv'[i % 3 == 0]}\n" for i in range(ROWS))
    Path("codes.csv").write_text("zip,a,y\n" + codes)
    Path("letters.csv").write_text("zip,a,y\n" + codes.replace("01001", "l").replace("10001", "n").replace("01002", "m"))
    dates()
    photos(Path("photos"))
