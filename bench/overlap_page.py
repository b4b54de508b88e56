#!/usr/bin/env python3
"""The picture and the page of bench_overlap, from its JSON.

    python3 bench/overlap_page.py bench/out/overlap.json bench/overlap.svg bench/out/overlap.html
"""

import json
import sys
from html import escape

import svg

HOSTS, COLOURS = ["threads", "streams", "one-stream"], [2, 1, 6]
ENDS = [(False, False, "nothing"), (False, True, "barrier"), (True, False, "merge"),
        (True, True, "both")]


def find(cells, **wanted):
    return next((c for c in cells if all(c[k] == v for k, v in wanted.items())), None)


def triple(cell, key, factor=1):
    return cell and tuple(cell[key][k] * factor for k in ("low", "median", "high"))


def median(cell, key):
    return cell[key]["median"]


def draw(data):
    cells, cpus = data["cells"], data["cpus"]
    works = list(dict.fromkeys(c["work"] for c in cells))
    workers = sorted({c["workers"] for c in cells})
    parts = svg.legend(16, 22, ["a thread per worker", "one thread, a stream per worker",
                                "one thread, one stream"], COLOURS)
    for i, work in enumerate(works):
        values = [[triple(find(cells, work=work, workers=n, host=h, merge=True, barrier=False),
                          "steps_per_s") for h in HOSTS] for n in workers]
        parts += svg.bars(16 + 330 * i, 44, 310, 230, f"{work}: steps/s",
                          [f"{n}{'*' if n > cpus else ''}" for n in workers], HOSTS, COLOURS, values,
                          f"workers{' (*: more than CPUs)' if i == 0 else ''}")
    cost = [[(lambda c: c and tuple([median(c, "launches_per_step") * median(c, "launch_p50_s") * 1e6]
                                    * 3))(find(cells, work=w, workers=2, host=h, merge=True,
                                               barrier=False)) for h in HOSTS] for w in works]
    parts += svg.bars(16, 330, 310, 200, "host time to issue a step, us", works, HOSTS, COLOURS, cost,
                      "launches × median launch; 2 workers")
    over = [[triple(find(cells, work=w, workers=2, host=h, merge=True, barrier=False), "overlap")
             for h in HOSTS] for w in works]
    parts += svg.bars(346, 330, 310, 200, "overlap, 2 workers", works, HOSTS, COLOURS, over,
                      "busy time of all / time anybody is busy; 2 is perfect")
    ends = [[triple(find(cells, work=works[-1], workers=2, host=h, merge=m, barrier=b), "steps_per_s")
             for h in HOSTS[:2]] for m, b, _ in ENDS]
    parts += svg.bars(676, 330, 310, 200, f"end of a step, {works[-1]}: steps/s",
                      [n for _, _, n in ENDS], HOSTS[:2], COLOURS[:2], ends, "2 workers")
    return svg.picture(1002, 560, parts, "Threads and streams: steps per second, launch time, overlap")


ROWS = [("steps/s", "steps_per_s", 1, 1), ("launches/step", "launches_per_step", 1, 0),
        ("launch p50, µs", "launch_p50_s", 1e6, 2), ("launch p99, µs", "launch_p99_s", 1e6, 2),
        ("overlap", "overlap", 1, 2), ("exposed, µs", "exposed_s", 1e6, 1),
        ("merge wait, µs", "merge_wait_s", 1e6, 1), ("barrier wait, µs", "barrier_wait_s", 1e6, 1),
        ("switches/step", "switches_per_step", 1, 1)]


def table(data):
    out = ["<table><tr><th>work<th>workers<th>host<th>end of step" +
           "".join(f"<th>{escape(name)}" for name, *_ in ROWS)]
    for c in data["cells"]:
        end = next(n for m, b, n in ENDS if (m, b) == (c["merge"], c["barrier"]))
        out.append(f"<tr><td>{escape(c['work'])}<td>{c['workers']}<td>{c['host']}<td>{end}" + "".join(
            f'<td title="{c[key]["low"] * f:.{d}f} to {c[key]["high"] * f:.{d}f}">'
            f'{c[key]["median"] * f:,.{d}f}' for _, key, f, d in ROWS))
    return "\n".join(out) + "</table>"


def main():
    source, picture, page = sys.argv[1:]
    with open(source) as f:
        data = json.load(f)
    data["cells"] = [c for c in data["cells"] if "why_not" not in c]
    drawn = draw(data)
    with open(picture, "w") as f:
        f.write(drawn)
    body = (f"<p>One process, several workers: who issues their work, and what that costs. "
            f"{data['cpus']} CPUs, {data['rounds']} rounds in turns, medians; whiskers, and pointing "
            f"at a number, give the middle half. Every cell's gradients and weights were one "
            f"worker's, bit for bit. No graphs on the CPU.</p>"
            f'<div class="card">{drawn}</div><div class="card">{table(data)}</div>')
    with open(page, "w") as f:
        f.write(svg.page("Threads or streams", body))
    return 0


if __name__ == "__main__":
    sys.exit(main())
