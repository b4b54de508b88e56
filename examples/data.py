#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Real data for two examples, as files of one's own would be.

    python3 examples/data.py table DIRECTORY           cancer.csv: 569 tumours, from scikit-learn's package
    python3 examples/data.py images DIRECTORY [ROWS]   images.npy, test_images.npy: Fashion-MNIST, values 0 … 1
"""
import array
import csv
import gzip
import importlib.util
import pathlib
import struct
import sys

IMAGES = pathlib.Path("/usr/share/datasets/fashion-mnist")
PIXELS = 28 * 28


def table(directory):
    package = importlib.util.find_spec("sklearn")
    if package is None:
        sys.exit("data.py: the table is in scikit-learn's package, which is not there: apt-get install python3-sklearn")
    source = pathlib.Path(package.origin).parent / "datasets" / "data" / "breast_cancer.csv"
    with open(source, newline="", encoding="utf-8") as file:
        (_, columns, *classes), *rows = csv.reader(file)  # its first line: rows, columns, classes
    with open(directory / "cancer.csv", "w", newline="", encoding="utf-8") as file:
        out = csv.writer(file)
        out.writerow([*(f"x{i}" for i in range(int(columns))), "kind"])
        out.writerows([*row[:-1], classes[int(row[-1])]] for row in rows)


def write_npy(path, images):
    """The bytes of images as f32, [rows][28][28]."""
    header = f"{{'descr': '<f4', 'fortran_order': False, 'shape': ({len(images) // PIXELS}, 28, 28), }}"
    header = header.ljust(128 - 10 - 1) + "\n"
    of = [value / 255 for value in range(256)]
    values = array.array("f", (of[b] for b in images))
    if sys.byteorder == "big":
        values.byteswap()
    with open(path, "wb") as file:
        file.write(b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header.encode())
        values.tofile(file)


def images(directory, rows):
    for split, name in (("train", "images.npy"), ("t10k", "test_images.npy")):
        source = IMAGES / f"{split}-images-idx3-ubyte.gz"
        if not source.exists():
            sys.exit(f"data.py: {source} is not there: apt-get install dataset-fashion-mnist")
        with gzip.open(source) as file:
            file.seek(16)
            write_npy(directory / name, file.read((rows if split == "train" else rows // 6) * PIXELS))


def main():
    if len(sys.argv) < 3 or sys.argv[1] not in ("table", "images"):
        sys.exit(__doc__)
    directory = pathlib.Path(sys.argv[2])
    directory.mkdir(parents=True, exist_ok=True)
    if sys.argv[1] == "table":
        table(directory)
    else:
        images(directory, int(sys.argv[3]) if len(sys.argv) > 3 else 12000)


if __name__ == "__main__":
    main()
