#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pack_tests.py CTEST-JSON BUILD SOURCE OUT: extracts the commands of the GPU suite.

The commands are for a machine that has neither ctest nor the folders BUILD and SOURCE. Therefore OUT
contains @BUILD@ and @SOURCE@ in place of these folders. Prints the programs that the commands name,
relative to BUILD.
"""

import json
import sys
from pathlib import Path


def main():
    tests = json.loads(Path(sys.argv[1]).read_text())["tests"]
    build, source = (str(Path(folder).resolve()) for folder in sys.argv[2:4])
    out, programs = [], set()
    for test in tests:
        properties = {p["name"]: p["value"] for p in test.get("properties", [])}
        command = []
        for word in test["command"]:
            if word.startswith(build + "/"):
                programs.add(word[len(build) + 1:])
            command.append(word.replace(build, "@BUILD@").replace(source + "/trainer", "@BUILD@/trainer")
                           .replace(source, "@SOURCE@"))
        out.append({"name": test["name"], "command": command, "timeout": properties.get("TIMEOUT", 60)})
    if not out:
        sys.exit("there are no tests with the label gpu")
    out.sort(key=lambda test: test["timeout"])
    Path(sys.argv[4]).write_text(json.dumps(out, indent=1) + "\n")
    print(*sorted(p for p in programs if p != "trainer"), sep="\n")


if __name__ == "__main__":
    main()
