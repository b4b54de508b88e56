# SPDX-License-Identifier: MIT
"""The bytes of files in which users have data: PNG, .npy and safetensors. Needs only Python."""
import json
import struct
import zlib


def png(side, lines, kind=0, depth=8):
    """A square picture. `lines`: the bytes of each line of pixels. kind: 0 grey, 2 colour, 4 and 6 with alpha."""
    parts = ((b"IHDR", struct.pack(">IIBBBBB", side, side, depth, kind, 0, 0, 0)),
             (b"IDAT", zlib.compress(b"".join(b"\0" + line for line in lines))), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in parts)


def npy(kind, shape, packed):
    head = str({"descr": kind, "fortran_order": False, "shape": shape}).ljust(117) + "\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(head)) + head.encode() + packed


def safetensors(tensors):
    """`tensors`: name, kind ("F32"), shape and bytes of each."""
    header, at = {}, 0
    for name, kind, shape, data in tensors:
        header[name] = {"dtype": kind, "shape": shape, "data_offsets": [at, at + len(data)]}
        at += len(data)
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + b"".join(data for *_, data in tensors)
