#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that clang has no warning about a C source of a build: clang_warnings.py BUILD [CLANG…]

Takes the commands of a build with ninja, replaces the compiler, and checks each source once for each of its sets of
options, without generating code. Sources with OpenMP, which clang has as a package of its own, are left out. CLANG is
clang by default. Exit status 77 if there is none, or the build uses another generator.
"""

import concurrent.futures
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

DROPPED = re.compile(r"-o$|-M[DFTQ]+$")
# The build adds the second option for clang, too (CMakeLists.txt). The others permit options that only GCC has.
ADDED = ["-fsyntax-only", "-Wno-missing-field-initializers", "-Wno-unknown-warning-option",
         "-Wno-ignored-optimization-argument", "-Werror"]


def commands(build):
    """Returns for each C source and set of options the directory and the arguments, without the compiler."""
    found = {}
    listed = subprocess.run(["ninja", "-C", build, "-t", "compdb"], capture_output=True, text=True, check=True)
    for entry in json.loads(listed.stdout):
        if not entry["file"].endswith(".c") or " -c " not in entry["command"]:
            continue
        words = shlex.split(entry["command"])
        if "-fopenmp" in words:
            continue
        kept, skip = [], False
        begin = next(i for i, w in enumerate(words) if re.search(r"(gcc|cc|clang)(-\d+)?$", w)) + 1
        for word in words[begin:]:
            if skip:
                skip = False
            elif DROPPED.match(word):
                skip = word in ("-o", "-MF", "-MT", "-MQ")
            else:
                kept.append(word)
        found[(entry["directory"], *kept)] = None
    return [(key[0], list(key[1:])) for key in found]


def main():
    build, *compilers = sys.argv[1:]
    compilers = compilers or ["clang"]
    if not all(map(shutil.which, compilers)) or not shutil.which("ninja") or not os.path.exists(f"{build}/build.ninja"):
        print("skipped: no clang, or no build with ninja")
        sys.exit(77)
    failed = 0
    listed = commands(build)
    for compiler in compilers:
        def check(command, compiler=compiler):
            return subprocess.run([compiler, *command[1], *ADDED], cwd=command[0], capture_output=True, text=True,
                                  check=False)
        with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
            for done in pool.map(check, listed):
                if done.returncode:
                    failed += 1
                    print(done.stderr)
        print(f"{compiler}: {len(listed)} commands")
        if not listed:
            sys.exit("expected commands that compile")
    sys.exit(failed > 0)


if __name__ == "__main__":
    main()
