#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""near_weights.py A B: checks that the last weights of two runs differ only as much as the rounding
of sums explains after a few steps. (The kernels and their twins in plain C add in different
orders.) A and B are folders of runs.
"""

import json
import struct
import sys
from pathlib import Path

TOLERANCE = 2e-5  # largest ‖difference‖ / ‖reference‖ of a tensor


def tensors(folder):
    newest = max(Path(folder).rglob("*.safetensors"), key=lambda path: (path.stat().st_mtime, path.name))
    data = newest.read_bytes()
    (length,) = struct.unpack_from("<Q", data)
    for name, about in sorted(json.loads(data[8:8 + length]).items()):
        if name != "__metadata__" and about["dtype"] == "F32":
            begin, end = about["data_offsets"]
            yield name, struct.unpack_from(f"<{(end - begin) // 4}f", data, 8 + length + begin)


def main():
    a, b = (dict(tensors(folder)) for folder in sys.argv[1:])
    far = set(a) ^ set(b)
    for name in set(a) & set(b):
        error = sum((x - y) ** 2 for x, y in zip(a[name], b[name], strict=True))
        norm = sum(y ** 2 for y in b[name])
        off = (error / norm) ** 0.5 if norm else error
        print(f"  {name}: {'same bits' if error == 0 else f'off by {off:.1e}'}")
        if not off <= TOLERANCE:
            far.add(name)
    if far or not a:
        sys.exit(f"too far apart: {', '.join(sorted(far))}")


if __name__ == "__main__":
    main()
