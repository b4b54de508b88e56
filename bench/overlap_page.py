#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Creates the picture and the page of bench_overlap from its JSON.

    python3 bench/overlap_page.py bench/out/overlap.json bench/overlap.svg bench/out/overlap.html

For results of a CPU it also prints what they mean, the conclusion first. Results of gpu_overlap also have
rows in which the work is enqueued as CUDA graphs.
"""

import json
import sys
import textwrap
from html import escape
from math import ceil

import svg

ACROSS = 3  # panels side by side
HOSTS, COLOURS = ["threads", "streams", "one-stream"], [2, 1, 6]
ENDS = [(False, False, "nothing"), (False, True, "barrier"), (True, False, "merge"),
        (True, True, "both")]


def find(cells, **wanted):
    return next((c for c in cells if all(c[k] == v for k, v in wanted.items())), None)


def triple(cell, key, factor=1):
    return cell and tuple(cell[key][k] * factor for k in ("low", "median", "high"))


def median(cell, key):
    return cell[key]["median"]


class Cells:
    """The measured cells. Its methods return panels of the picture, as functions of their position (x, y)."""

    def __init__(self, data):
        self.cells, self.cpus = data["cells"], data["cpus"]
        self.works = list(dict.fromkeys(c["work"] for c in self.cells))
        self.workers = sorted({c["workers"] for c in self.cells})
        self.launches = [form for form in ("eager", "graph")
                         if any(c["launch"] == form for c in self.cells)]

    def named(self, title, launch):
        return f"{title}, {launch}" if len(self.launches) > 1 else title

    def merging(self, work, host, launch, workers=2):
        return find(self.cells, work=work, workers=workers, host=host, launch=launch, merge=True,
                    barrier=False)

    def rates(self, work, launch):
        values = [[triple(self.merging(work, h, launch, n), "steps_per_s") for h in HOSTS]
                  for n in self.workers]
        over = " (*: more than CPUs)" if work == self.works[0] and self.workers[-1] > self.cpus else ""
        return lambda x, y: svg.bars(x, y, 310, 230, self.named(f"{work}: steps/s", launch),
                                     [f"{n}{'*' if n > self.cpus else ''}" for n in self.workers],
                                     HOSTS, COLOURS, values, f"workers{over}")

    def has(self, work, launch):
        return find(self.cells, work=work, launch=launch) is not None

    def costs(self, launch):
        def cost(cell):
            us = cell and median(cell, "launches_per_step") * median(cell, "launch_p50_s") * 1e6
            return cell and (us, us, us)
        values = [[cost(self.merging(w, h, launch)) for h in HOSTS] for w in self.works]
        return lambda x, y: svg.bars(x, y, 310, 200, self.named("host time to issue a step, us", launch),
                                     self.works, HOSTS, COLOURS, values,
                                     "launches × median launch; 2 workers")

    def overlaps(self, launch):
        values = [[triple(self.merging(w, h, launch), "overlap") for h in HOSTS] for w in self.works]
        return lambda x, y: svg.bars(x, y, 310, 200, self.named("overlap, 2 workers", launch),
                                     self.works, HOSTS, COLOURS, values,
                                     "busy time of all / of anybody; 2 is perfect")

    def ends(self):
        """The panel for the ways to end a step, for the work with which most of them were measured."""
        def cell(work, launch, host, merge, barrier):
            return find(self.cells, work=work, launch=launch, host=host, workers=2, merge=merge,
                        barrier=barrier)
        work, launch = max(((w, form) for form in self.launches for w in self.works), key=lambda of: sum(
            bool(cell(*of, h, merge, barrier)) for h in HOSTS[:2] for merge, barrier, _ in ENDS))
        values = [[triple(cell(work, launch, h, merge, barrier), "steps_per_s") for h in HOSTS[:2]]
                  for merge, barrier, _ in ENDS]
        return lambda x, y: svg.bars(x, y, 310, 200, self.named(f"end of a step, {work}", launch),
                                     [n for _, _, n in ENDS], HOSTS[:2], COLOURS[:2], values,
                                     "2 workers, steps/s")


def draw(data):
    cells = Cells(data)
    rows = [[cells.rates(work, launch) for work in cells.works if cells.has(work, launch)]
            for launch in cells.launches]
    rows += [[*map(cells.costs, cells.launches), cells.overlaps(cells.launches[-1]), cells.ends()]]
    parts, y = svg.legend(16, 22, ["a thread per worker", "one thread, a stream per worker",
                                   "one thread, one stream"], COLOURS), 44
    panels = [panel for row in rows for panel in row]
    for i, panel in enumerate(panels):
        parts += panel(16 + 330 * (i % ACROSS), y + 286 * (i // ACROSS))
    y += 286 * ceil(len(panels) / ACROSS)
    return svg.picture(12 + 330 * ACROSS, y - 56, parts,
                       "Threads and streams: steps per second, launch time, overlap")


ROWS = [("steps/s", "steps_per_s", 1, 1), ("launches/step", "launches_per_step", 1, 0),
        ("launch p50, µs", "launch_p50_s", 1e6, 2), ("launch p99, µs", "launch_p99_s", 1e6, 2),
        ("overlap", "overlap", 1, 2), ("exposed, µs", "exposed_s", 1e6, 1),
        ("merge wait, µs", "merge_wait_s", 1e6, 1), ("barrier wait, µs", "barrier_wait_s", 1e6, 1),
        ("switches/step", "switches_per_step", 1, 1), ("rate / threads", "over_threads", 1, 2)]


def table(data):
    out = ["<table><tr><th>work<th>workers<th>host<th>launch<th>end of step" +
           "".join(f"<th>{escape(name)}" for name, *_ in ROWS)]
    for c in data["cells"]:
        end = next(n for m, b, n in ENDS if (m, b) == (c["merge"], c["barrier"]))
        out.append(f"<tr><td>{escape(c['work'])}<td>{c['workers']}<td>{c['host']}<td>{c['launch']}<td>{end}" + "".join(
            f'<td title="{c[key]["low"] * f:.{d}f} to {c[key]["high"] * f:.{d}f}">'
            f'{c[key]["median"] * f:,.{d}f}' for _, key, f, d in ROWS))
    return "\n".join(out) + "</table>"


def said(cell, key="steps_per_s", form=",.0f"):
    low, middle, high = (format(v, form) for v in triple(cell, key))
    return f"{middle} ({low} to {high})"


def compared(cell):
    """Compares a cell with the same cell driven by threads. There is no difference if the middle half of the ratios
    of all rounds includes 1."""
    ratio = cell["over_threads"]
    if ratio["low"] <= 1 <= ratio["high"]:
        return "no difference"
    return "faster" if ratio["low"] > 1 else "slower"


def listed(names):
    names = list(names)
    return " and ".join(filter(None, [", ".join(names[:-1]), *names[-1:]]))


def verdict(rows):
    """Sentences that compare streams, and one stream, with threads. rows: pairs of a work and its three cells."""
    out = []
    for name, at in (("streams", 1), ("one stream for all workers", 2)):
        found = {}
        for work, cells in rows:
            found.setdefault(compared(cells[at]), []).append(f"{work} ({cells[at]['over_threads']['median']:.2f})")
        begin = {"no difference": f"No difference can be told between threads and {name}",
                 "faster": f"Threads make fewer steps than {name}", "slower": f"Threads make more steps than {name}"}
        out += [f"{begin[what]}: {listed(works)}." for what, works in found.items()]
    return out


def issuing(work, cells):
    us = [median(c, "launches_per_step") * median(c, "launch_p50_s") * 1e6 for c in cells[:2]]
    return (f"  {work}: {us[0]:.2f} us in {median(cells[0], 'launches_per_step'):.0f} launches by the threads together, "
            f"{us[1]:.2f} us in {median(cells[1], 'launches_per_step'):.0f} by the one thread, "
            f"{us[1] * 1e-4 * median(cells[1], 'steps_per_s'):.2g} % of a step")


OVER = ("Overlap is the time that ops take, added up, by the time in which at least one of them is under way. An op whose thread "
        "waits for a CPU is under way as well. With more workers than CPUs the overlap can therefore exceed the number of CPUs, "
        "although no more than that many ops make progress at a time.")
HOW = ("Threads: a thread for each worker. Streams: one thread goes round and hands each op to the queue of its worker. "
       "One-stream: one queue for all workers. On a CPU a stream is such a queue with a thread of its own, which runs the ops in "
       "order. With streams there are therefore as many computing threads as without, and only who issues the work differs.")
MORE = ("The results of other machines are in bench/RESULTS.md (\"Threads or streams\") and, shorter, in docs/measured.md, which has "
        "the same question on a GPU as well, where a launch costs more (docs/gpu.md).")


def mean(data):
    """The conclusion, and sentences about the figures of two workers with the first form of launches."""
    cells = Cells(data)
    rows = [(work, [cells.merging(work, host, cells.launches[0]) for host in HOSTS]) for work in cells.works]
    rows = [(work, row) for work, row in rows if all(row)]
    out = ["VERDICT for two workers; in parentheses steps per second as a ratio to those of threads, median of the rounds:"]
    for sentence in verdict(rows):
        out += textwrap.wrap(sentence, 100, initial_indent="  ", subsequent_indent="    ")
    out += ["", *textwrap.wrap(HOW, 100), "", "Steps per second of two workers, median (middle half of the rounds):"]
    out += [f"  {work}: threads {said(row[0])}, streams {said(row[1])}, one-stream {said(row[2])}" for work, row in rows]
    out += ["Ratio to threads, round by round, median (middle half):"]
    out += [f"  {work}: streams {said(row[1], 'over_threads', '.2f')}, one-stream {said(row[2], 'over_threads', '.2f')}"
            for work, row in rows]
    out += ["Overlap of two workers, median; 2 is perfect:"]
    out += [f"  {work}: " + ", ".join(f"{host} {median(c, 'overlap'):.2f}" for host, c in zip(HOSTS, row)) for work, row in rows]
    out += ["Time that issuing a step takes:", *(issuing(*row) for row in rows)]
    return "\n".join([*out, "", *textwrap.wrap(OVER, 100), "", *textwrap.wrap(MORE, 100)])


def main():
    source, picture, page = sys.argv[1:]
    with open(source) as f:
        data = json.load(f)
    data["cells"] = [c for c in data["cells"] if "why_not" not in c]
    drawn = draw(data)
    with open(picture, "w") as f:
        f.write(drawn)
    body = (f"<p>One process, several workers: who issues their work, and what that costs. "
            f"{data['cpus']} CPUs, {data['rounds']} round{'s in turns' if data['rounds'] > 1 else ''}, medians; whiskers, and pointing "
            f"at a number, give the middle half. Every cell's gradients and weights were one "
            f"worker's, bit for bit.{'' if data.get('graphs') else ' No graphs on the CPU.'}</p>"
            f'<div class="card">{drawn}</div><div class="card">{table(data)}</div>')
    with open(page, "w") as f:
        f.write(svg.page("Threads or streams", body))
    if not data.get("graphs"):  # the sentences are about a CPU
        print(mean(data))
    return 0


if __name__ == "__main__":
    sys.exit(main())
