#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""overlap_rows.py JSON: checks that the output of gpu_overlap --small is complete. Each
cell of the output has compared its results itself, so only the list of cells is checked.
"""

import json
import sys


def main():
    with open(sys.argv[1], encoding="utf-8") as f:
        cells = json.load(f)["cells"]
    forms = {(c["host"], c["launch"], c["workers"]) for c in cells}
    wanted = {(h, l, 2) for h in ("threads", "streams", "one-stream") for l in ("eager", "graph")}
    if not wanted <= forms:
        sys.exit(f"not there: {sorted(wanted - forms)}")
    said = [c["why_not"] for c in cells if "why_not" in c]
    if not said or any("need NCCL" not in why for why in said):
        sys.exit(f"expected to read why buckets are not overlapped, found {said}")
    measured = [c for c in cells if "why_not" not in c]
    for c in measured:
        if c["steps_per_s"]["median"] <= 0 or c["launches_per_step"]["median"] < 1:
            sys.exit(f"nothing was measured: {c}")
        if c["overlap"]["median"] != 0 and not 0.99 <= c["overlap"]["median"] <= c["workers"] + 0.01:
            sys.exit(f"an overlap of {c['overlap']} by {c['workers']} workers")
    for work in {c["work"] for c in measured}:
        count = {c["launch"]: c["launches_per_step"]["median"] for c in measured
                 if c["work"] == work and c["workers"] == 2 and c["host"] == "threads"}
        if count["graph"] >= count["eager"]:
            sys.exit(f"{work}: as many launches with graphs as without: {count}")
    print(f"{len(measured)} cells measured, {len(said)} explained")


if __name__ == "__main__":
    main()
