#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Converts CUDA sources into C++ that runs on the CPU (emulated.h).

    emulate.py OUT.cpp KERNELS.cu

Only launches, f<<<grid, block, 0, stream>>>(…), have to be rewritten. For everything else,
emulated.h has definitions. So the logic of the kernels is tested without a GPU: indices, ends of
loops, barriers, the order of additions. With a missing barrier, some order of threads gives another
result. The memory and arithmetic of a GPU cannot be tested in this way.
"""

import re
import sys
from pathlib import Path


def closing(text, at):
    """Returns the index after the parenthesis that closes the one at `at`."""
    depth = 0
    for i in range(at, len(text)):
        depth += (text[i] == "(") - (text[i] == ")")
        if depth == 0:
            return i + 1
    raise ValueError("a parenthesis is not closed")


def split(text):
    """Splits at the commas that are outside of parentheses and brackets."""
    parts, depth, begin = [], 0, 0
    for i, c in enumerate(text):
        depth += (c in "([") - (c in ")]")
        if c == "," and depth == 0:
            parts.append(text[begin:i].strip())
            begin = i + 1
    return [*parts, text[begin:].strip()]


def translate(text):
    out, at = "", 0
    for launch in re.finditer(r"((\w+)(?:<[\w\s,]*>)?)<<<(.*?)>>>\(", text, re.DOTALL):
        kernel, name, how = launch.groups()
        grid, block, _, stream = split(how)
        end = closing(text, launch.end() - 1)
        out += text[at:launch.start()]
        out += (f'emulated::launch({grid}, {block}, {stream}, "{name}", '
                f"[](auto... args) {{ {kernel}(args...); }}, {text[launch.end():end - 1]})")
        at = end
    return out + text[at:]


def main():
    out, source = map(Path, sys.argv[1:])
    text = translate(source.read_text())
    out.write_text(f'#include "cuda_gpu/emulated.h"\n#line 1 "{source}"\n{text}')


if __name__ == "__main__":
    main()
