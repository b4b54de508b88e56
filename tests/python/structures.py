# SPDX-License-Identifier: MIT
"""Compares the structures of the Python package with those of the C headers: the offset of each field and the size.

    structures.py LIBRARY_PY INCLUDE CC FOLDER
"""
import ctypes
import importlib.util
import subprocess
import sys
from pathlib import Path

HEADERS = ("model.h", "picture.h", "trainer.h", "sys/trainer.h")
WRITTEN_BY_THE_LIBRARY = ("ls_error", "ls_step_result", "ls_model_info")


def members(structure):
    return [field[0] for field in structure._fields_ if field[0] != "_room"]


def program(structures):
    """A C program that prints a line for each structure: its name, size and the offsets of its fields."""
    lines = [f"#include <lockstep/{header}>" for header in HEADERS] + ["#include <stdio.h>", "int main(void)", "{"]
    for name, structure in structures.items():
        lines.append(f'printf("{name} %zu", sizeof({name}));')
        lines += [f'printf(" %zu", offsetof({name}, {member}));' for member in members(structure)]
        lines.append('puts("");')
    return "\n".join(lines) + "\nreturn 0;\n}\n"


def differences(structures, found):
    """Yields a line for each structure of the package that is not that of the headers."""
    for line, (name, structure) in zip(found, structures.items(), strict=True):
        written, size, *offsets = line.split()
        ours = [str(getattr(structure, member).offset) for member in members(structure)]
        room = ctypes.sizeof(structure) - int(size)
        if written != name or offsets != ours:
            yield f"{name}: the offsets of {members(structure)} are {offsets} in C and {ours} in Python"
        elif room < 0 if name in WRITTEN_BY_THE_LIBRARY else room > 0:
            yield f"{name}: {size} bytes in C and {ctypes.sizeof(structure)} in Python"


def main(library, include, cc, folder):
    spec = importlib.util.spec_from_file_location("_library", library)
    package = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(package)
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "sizes.c").write_text(program(package.STRUCTURES))
    subprocess.run([cc, "-I", include, folder / "sizes.c", "-o", folder / "sizes"], check=True)
    found = subprocess.run([folder / "sizes"], check=True, capture_output=True, text=True).stdout.splitlines()
    wrong = list(differences(package.STRUCTURES, found))
    print("\n".join(wrong) or f"{len(found)} structures are those of the headers")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
