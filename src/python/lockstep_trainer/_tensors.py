# SPDX-License-Identifier: MIT
"""Reads and writes weights as safetensors files, with NumPy alone."""
import contextlib
import json
import os
import struct

import numpy as np

TYPES = {"F64": "<f8", "F32": "<f4", "F16": "<f2", "I64": "<i8", "U64": "<u8", "I32": "<i4", "U32": "<u4",
         "I16": "<i2", "U16": "<u2", "I8": "|i1", "U8": "|u1", "BOOL": "|b1"}


@contextlib.contextmanager
def scratch():
    """Yields the name of a file in a temporary directory, which is removed afterwards."""
    import tempfile  # imported here because this import takes longer than that of the whole package
    with tempfile.TemporaryDirectory() as folder:
        yield os.path.join(folder, "weights.safetensors")


def read(path):
    with open(path, "rb") as file:
        header = json.loads(file.read(*struct.unpack("<Q", file.read(8))))
        header.pop("__metadata__", None)
        data = file.read()
    return {name: np.frombuffer(data[slice(*t["data_offsets"])], TYPES[t["dtype"]]).reshape(t["shape"]).copy()
            for name, t in header.items()}


def _native(a):
    """Converts an array to the byte order of the file, little-endian."""
    return a.astype(a.dtype.newbyteorder("<"), copy=False) if a.dtype.kind in "iuf" else a


def write(path, tensors):
    arrays = {name: _native(np.asarray(t, order="C")) for name, t in tensors.items()}
    names = {np.dtype(code): name for name, code in TYPES.items()}
    header, at = {}, 0
    for name, a in arrays.items():
        if a.dtype not in names:
            raise ValueError(f"{name}: expected one of {', '.join(map(str, names))}, found {a.dtype}")
        if a.dtype.kind == "f" and not np.isfinite(a).all():
            place = tuple(int(i) for i in np.argwhere(~np.isfinite(a))[0])
            raise ValueError(f"{name}: expected finite numbers, found {a[place]} at {list(place)}")
        header[name] = {"dtype": names[a.dtype], "shape": a.shape, "data_offsets": [at, at + a.nbytes]}
        at += a.nbytes
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    with open(path, "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for a in arrays.values():
            file.write(a.tobytes())
