#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""same_objects.py BUILD [COMMIT]: proves that a change of comments changed no code.

Compares the working tree for which BUILD was configured with COMMIT (HEAD by default). Each C
source that the change affects, itself or through a header that it includes, is compiled from both
trees by the command of BUILD/compile_commands.json with -g0, and the two objects must have the same
SHA-256. CUDA sources are preprocessed instead, because nvcc writes a number that depends on the
path into its objects; their text without comments and white space must be the same. __LINE__ is 0
in both trees, because a comment may become a line longer or shorter. BUILD must have been built
once, because some sources are generated.

Prints each source that differs, and ends with 1 if there is any.
"""
import concurrent.futures
import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
import tempfile

SOURCES = (".c", ".cpp", ".cu")
PARTS = SOURCES + (".h", ".cuh", ".inc")
FIXED = ["-g0", "-Wno-builtin-macro-redefined", "-D__LINE__=0"]


def git(*arguments):
    return subprocess.run(["git", *arguments], check=True, capture_output=True, text=True).stdout


def command_of(entry, root, tree, output):
    """The entry's command for the same source in `tree`, without a compiler's cache. Paths into the
    build folder stay, and so do those that a definition hands to the source as text."""
    words = []
    for word in shlex.split(entry["command"]):
        if not word.startswith("-D") and not word.startswith(entry["build"]):
            word = word.replace(root + "/", tree + "/").replace(
                entry["build"].replace(root + "/", tree + "/"), entry["build"])
        if not word.endswith("ccache"):
            words.append(word)
    words[words.index("-o") + 1] = output
    return words


def digest(entry, root, tree, output):
    """SHA-256 of what the compiler makes of the entry's source in `tree`."""
    words = command_of(entry, root, tree, output)
    if entry["file"].endswith(".cu"):
        words = [word for word in words if word not in ("-c", "-x", "cu", "-rdc=true")]
        words = words[:1] + ["-E", "-x", "cu"] + words[1:]
        words[words.index("-o") + 1] = output
    else:
        words += FIXED + [f"-ffile-prefix-map={tree}=."]
    run = subprocess.run(words, cwd=entry["directory"], capture_output=True, text=True)
    if run.returncode != 0:
        return "does not compile: " + run.stderr.strip()[:400]
    with open(output, "rb") as stream:
        data = stream.read()
    if entry["file"].endswith(".cu"):
        lines = [line for line in data.decode().split("\n") if not re.match(r"#\s*(line\b|\d)", line)]
        data = re.sub(r"\s+", "", "".join(lines)).replace(tree, "").encode()
    return hashlib.sha256(data).hexdigest()


def includes_changed(entry, root, changed, folder):
    """True if the source or a header that it includes is among the changed files."""
    output = os.path.join(folder, "dependencies")
    words = command_of(entry, root, root, output)
    words = [word for word in words if word != "-c"] + ["-M"]
    subprocess.run(words, cwd=entry["directory"], capture_output=True, check=True)
    with open(output, encoding="utf-8") as stream:
        text = stream.read()
    named = {os.path.relpath(os.path.realpath(os.path.join(entry["directory"], word)), root)
             for word in text.replace("\\\n", " ").split()}
    return bool(named & changed)


def check(entry, root, old, changed):
    """None if the entry's source is not concerned, else its path and the two digests."""
    with tempfile.TemporaryDirectory() as folder:
        if not includes_changed(entry, root, changed, folder):
            return None
        after = digest(entry, root, root, os.path.join(folder, "object"))
        before = digest(entry, root, old, os.path.join(folder, "object"))
    return os.path.relpath(entry["file"], root), before, after


def main():
    build = os.path.realpath(sys.argv[1])
    commit = sys.argv[2] if len(sys.argv) > 2 else "HEAD"
    root = os.path.realpath(git("rev-parse", "--show-toplevel").strip())
    with open(os.path.join(build, "compile_commands.json"), encoding="utf-8") as stream:
        entries = {entry["file"]: entry for entry in json.load(stream)}
    changed = {name for name in git("diff", "--name-only", commit).split() if name.endswith(PARTS)}
    entries = [entry for entry in entries.values()
               if entry["file"].endswith(SOURCES) and entry["file"].startswith(root + "/")
               and not entry["file"].startswith(build)]
    for entry in entries:
        entry["build"] = build
    with tempfile.TemporaryDirectory() as old:
        archive = subprocess.run(["git", "archive", commit], check=True, capture_output=True)
        subprocess.run(["tar", "-x", "-C", old], input=archive.stdout, check=True)
        with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
            checks = [found for found in
                      pool.map(lambda entry: check(entry, root, old, changed), entries) if found]
    differing = [(name, before, after) for name, before, after in checks
                 if before != after or not re.fullmatch("[0-9a-f]{64}", before)]
    for name, before, after in differing:
        print(f"{name}: differs ({before[:200]} before, {after[:200]} now)")
    print(f"{len(changed)} files changed, {len(checks)} sources compared, {len(differing)} differ")
    return 1 if differing else 0


if __name__ == "__main__":
    sys.exit(main())
