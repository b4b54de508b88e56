#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that each source file names its licence in its first line, or in the one after a line that must be the first.

    spdx.py ROOT            prints the files without the line
    spdx.py ROOT --add      adds the line to them

A source file is one in a programming language, CMake's included. Files of data, pages and settings are under LICENSE as
well, without a line; so is what has no place for a comment.
"""
import pathlib
import re
import sys

TEXT = "SPDX-License-Identifier: MIT"
C, SCRIPT = f"/* {TEXT} */", f"# {TEXT}"
LINES = {**dict.fromkeys((".c", ".h", ".inc", ".def", ".cu", ".cuh", ".pml", ".js", ".css"), C),
         **dict.fromkeys((".cpp", ".hpp"), f"// {TEXT}"),
         **dict.fromkeys((".py", ".sh", ".awk", ".cmake"), SCRIPT),
         ".html": f"<!-- {TEXT} -->"}
NAMES = {"CMakeLists.txt": SCRIPT}
FIRST = re.compile(r"#!|<!doctype", re.I)  # what a file of its kind must begin with
NOT_OURS = {".git", "build", "__pycache__"}


def line_of(path, text):
    """The line that the file must have; None: it is no source file."""
    line = NAMES.get(path.name) or LINES.get(path.suffix)
    return line or (SCRIPT if text.startswith("#!") else None)


def sources(root):
    """The paths of the source files, their texts and their lines."""
    waiting = [root]
    while waiting:
        for path in sorted(waiting.pop().iterdir()):
            if path.is_symlink() or path.name in NOT_OURS:
                continue
            if path.is_dir():
                waiting.append(path)
                continue
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            line = line_of(path, text)
            if line:
                yield path, text, line


def split(text):
    """The line that must be the first, if there is one, and the rest."""
    return text.partition("\n")[::2] if FIRST.match(text) else (None, text)


def named(text, line):
    return split(text)[1].partition("\n")[0] == line


def with_line(text, line):
    first, rest = split(text)
    return f"{line}\n{rest}" if first is None else f"{first}\n{line}\n{rest}"


def main():
    root, add = pathlib.Path(sys.argv[1]), sys.argv[2:] == ["--add"]
    count, without = 0, []
    for path, text, line in sources(root):
        count += 1
        if not named(text, line):
            without.append(path)
            if add:
                path.write_text(with_line(text, line), encoding="utf-8")
    for path in without:
        print(f"{path.relative_to(root)}: " + ("a line was added" if add else f"the line is missing: {TEXT}"))
    if without and not add:
        print(f"to add the lines: tests/floors/spdx.py . --add ({len(without)} of {count} files)")
    if count < 1000:
        print(f"only {count} source files were found")
    return int(count < 1000 or bool(without) and not add)


if __name__ == "__main__":
    sys.exit(main())
