# SPDX-License-Identifier: MIT
"""Writes small ONNX files without a package: the messages of onnx.proto. It is used by scripts."""
import math
import struct


def varint(n):
    n &= (1 << 64) - 1
    out = bytearray()
    while n >= 0x80:
        out.append(n & 0x7f | 0x80)
        n >>= 7
    return bytes(out) + bytes([n])


def field(number, value):
    """A field of a message: an integer, a float, or bytes (a text or a message)."""
    if isinstance(value, int):
        return varint(number << 3) + varint(value)
    if isinstance(value, float):
        return varint(number << 3 | 5) + struct.pack("<f", value)
    data = value.encode() if isinstance(value, str) else value
    return varint(number << 3 | 2) + varint(len(data)) + data


def message(*fields):
    return b"".join(field(number, value) for number, value in fields)


def onnx_attribute(name, value):
    if isinstance(value, int):
        return message((1, name), (3, value), (20, 2))
    if isinstance(value, float):
        return message((1, name), (2, value), (20, 1))
    if isinstance(value, str):
        return message((1, name), (4, value), (20, 3))
    if isinstance(value, bytes):
        return message((1, name), (5, value), (20, 4))
    return message((1, name), *((8, n) for n in value), (20, 7))


def onnx_node(op, inputs, output, **attributes):
    return message(*((1, name) for name in inputs), (2, output), (3, output + "/" + op), (4, op),
                   *((5, onnx_attribute(k, v)) for k, v in attributes.items()))


def onnx_floats(name, *dims, form="raw"):
    values = [i % 7 / 4 for i in range(math.prod(dims))]
    data = {"raw": lambda: (9, struct.pack(f"<{len(values)}f", *values)),
            "list": lambda: (4, struct.pack(f"<{len(values)}f", *values)),
            "half": lambda: (9, struct.pack(f"<{len(values)}e", *values)),
            "words": lambda: (5, b"".join(varint(16256 + i) for i in range(len(values))))}[form]()
    kind = {"raw": 1, "list": 1, "half": 10, "words": 16}[form]
    return message(*((1, d) for d in dims), (2, kind), (8, name), data)


def onnx_ints(name, values, packed=False):
    data = (7, b"".join(varint(v) for v in values)) if packed else \
        (9, struct.pack(f"<{len(values)}q", *values))
    return message((1, len(values)), (2, 7), (8, name), data)


def onnx_value(name, *dims):
    shape = message(*((1, message((1, d) if isinstance(d, int) else (2, d))) for d in dims))
    return message((1, name), (2, message((1, message((1, 1), (2, shape))))))


def onnx_file(nodes, tensors=(), shape=("n", 2, 4, 4), output="y", opset=17, **metadata):
    graph = message(*((1, n) for n in nodes), (2, "g"), *((5, t) for t in tensors),
                    (11, onnx_value("x", *shape)),
                    *((12, onnx_value(name, "n", 3)) for name in output.split()))
    return message((1, 8), (2, metadata.pop("producer", "seed")), (7, graph),
                   (8, message((2, opset))),
                   *((14, message((1, k), (2, v))) for k, v in metadata.items()))
