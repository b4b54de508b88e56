#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""pictures.py [FOLDER]: draws the pictures of docs/design.md, each out of the rule that it shows."""
import pathlib
import sys

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent.parent / "bench"))
import svg  # noqa: E402

WIDTH, SHOWN = 480, 640  # narrow: a telephone's page has some 360 pixels


def arrow(x1, y1, x2, y2):
    """A line with a head at its end; along one axis."""
    dx, dy = (x2 > x1) - (x2 < x1), (y2 > y1) - (y2 < y1)
    head = f"{x2:.1f} {y2:.1f}L{x2 - 6 * dx - 4 * dy:.1f} {y2 - 6 * dy - 4 * dx:.1f}" \
           f"M{x2:.1f} {y2:.1f}L{x2 - 6 * dx + 4 * dy:.1f} {y2 - 6 * dy + 4 * dx:.1f}"
    return svg.line(x1, y1, x2, y2, "axis") + f'<path class="axis" d="M{head}"/>'


def ring():
    out = [svg.text(16, 26, "A ring of 8 slots: 11 pushed, 6 popped", kind="title")]
    pushed, popped, slots, left, top, w = 11, 6, 8, 16, 84, 56
    for s in range(slots):
        items = [i for i in range(popped, pushed) if i % slots == s]
        x = left + s * w
        out += [svg.box(x + 2, top, w - 4, 40, "f1" if items else "f5"),
                svg.text(x + w / 2, top + 25, f"item {items[0]}" if items else "free", "middle",
                         "on" if items else "strong"),
                svg.text(x + w / 2, top + 58, f"slot {s}", "middle")]
    for count, name, y in ((pushed, "tail = 11, released only by the producer", 48),
                           (popped, "head = 6, released only by the consumer", 170)):
        x = left + (count % slots) * w + w / 2
        out += [arrow(x, y + 6 if y < top else y - 14, x, top - 2 if y < top else top + 64),
                svg.text(x + 8 if y < top else x - 8, y + 4 if y < top else y, name,
                         "start" if y < top else "end")]
    return svg.picture(WIDTH, 186, out, "A ring buffer with eight slots", SHOWN)


def barrier():
    out = [svg.text(16, 26, "One word decides a round for all ranks", kind="title")]
    rows = (("round 7, 0 of 3 here", "a", "rank 0 arrives"), ("round 7, 1 of 3 here", "b", "rank 2 arrives"),
            ("round 7, 2 of 3 here", "c", "rank 1 arrives, the last"), ("round 8, 0 of 3 here", "d", ""))
    for i, (state, _, event) in enumerate(rows):
        y = 48 + 46 * i
        out += [svg.box(16, y, 150, 26, "f3" if i == 3 else "f1"), svg.text(91, y + 18, state, "middle", "on")]
        if event:
            out += [arrow(91, y + 28, 91, y + 45), svg.text(104, y + 40, event)]
    out += [svg.text(180, 200, "released: every rank returns LS_OK,"), svg.text(180, 216, "however late it reads the word"),
            svg.box(284, 94, 190, 26, "f4"), svg.text(379, 112, "round 7, 1 of 3 here, ABORTED", "middle", "on"),
            arrow(168, 107, 282, 107), svg.text(186, 102, "deadline, abort"),
            svg.text(284, 140, "the word stays like this:"), svg.text(284, 156, "every rank returns an error")]
    return svg.picture(WIDTH, 232, out, "The states of the barrier's word", SHOWN)


def middle(lo, hi):
    half = 1
    while half * 2 < hi - lo:
        half *= 2
    return lo + half


def nodes(lo, hi, depth=0):
    yield lo, hi, depth
    if hi - lo > 1:
        m = middle(lo, hi)
        yield from nodes(lo, m, depth + 1)
        yield from nodes(m, hi, depth + 1)


def cover(lo, hi, a, b):
    """The maximal nodes of T(lo, hi) inside [a, b)."""
    if hi <= a or b <= lo:
        return []
    if a <= lo and hi <= b:
        return [(lo, hi)]
    m = middle(lo, hi)
    return cover(lo, m, a, b) + cover(m, hi, a, b)


def tree_of(x0, shards, workers, out):
    base, extra, split, at = shards // workers, shards % workers, [], 0
    for w in range(workers):
        n = base + (w < extra)
        split.append((at, at + n))
        at += n
    owner = {node: w for w, (a, b) in enumerate(split) for node in cover(0, shards, a, b)}
    place, unit = {}, 224 / shards
    for lo, hi, depth in nodes(0, shards):
        place[lo, hi] = (x0 + (lo + hi) / 2 * unit, 60 + 44 * (depth if hi - lo > 1 else 3))
    for (lo, hi), (x, y) in place.items():
        if hi - lo > 1:
            m = middle(lo, hi)
            out += [svg.line(x, y, *place[part], "axis") for part in ((lo, m), (m, hi))]
    for (lo, hi), (x, y) in place.items():
        inside = next((w for w, (a, b) in enumerate(split) if a <= lo and hi <= b), None)
        colour = "f5" if inside is None else f"f{(1, 3, 6)[inside]}"
        r = 9 if (lo, hi) in owner else 6
        out.append(f'<circle class="{colour}" cx="{x:.1f}" cy="{y:.1f}" r="{r}"/>')
        if hi - lo == 1:
            out.append(svg.text(x, y + 24, lo, "middle"))
    out.append(svg.text(x0 + 112, 236, f"{workers} workers: shards " + ", ".join(
        f"{a}–{b - 1}" for a, b in split), "middle", "strong"))


def tree():
    out = [svg.text(16, 26, "Eight shards, one tree: which worker adds which part", kind="title")]
    tree_of(8, 8, 2, out)
    tree_of(248, 8, 3, out)
    out += [svg.text(16, 264, "Coloured: added by one worker. Large: its partial sums in the merge."),
            svg.text(16, 280, "Grey: added in the merge.")]
    return svg.picture(WIDTH, 292, out, "The shard tree over two and over three workers", SHOWN)


def step():
    out = [svg.text(16, 26, "A step of three workers, and its commit point", kind="title")]
    shares = (96, 72, 84)
    for w, end in enumerate(shares):
        y, x = 46 + 38 * w, 74
        out += [svg.text(16, y + 17, f"worker {w}", kind="strong"), svg.box(x, y, end, 26, "f1"),
                svg.text(x + 6, y + 17, "its shards", kind="on"), svg.box(x + end, y, 104 - end, 26, "f5")]
        for left, width, name, colour in ((108, 76, "own chunk", "f6"), (188, 66, "update", "f3")):
            out += [svg.box(x + left, y, width, 26, colour),
                    svg.text(x + left + width / 2, y + 17, name, "middle", "on")]
    for x, words in ((180, "barrier"), (260, "commit")):
        out += [svg.line(x, 40, x, 158, "whisker"), svg.text(x, 172, words, "middle", "strong")]
    out += [svg.text(464, 192, "failure before the commit: no worker applies the step; it is repeated", "end"),
            svg.text(464, 208, "failure after the commit: every worker applies the step", "end")]
    return svg.picture(WIDTH, 220, out, "The phases of a training step", SHOWN)


def checkpoint():
    out = [svg.text(16, 26, "Saving: what a power cut after each call leaves", kind="title")]
    calls = ("open a hidden name", "write", "fsync the file", "rename", "fsync the directory", "remove the oldest")
    left = ("the old checkpoints", "the old checkpoints", "the old checkpoints", "the old checkpoints, perhaps also the new one",
            "the new checkpoint and the old ones", "the newest K checkpoints")
    for i, (call, there) in enumerate(zip(calls, left)):
        y = 44 + 32 * i
        out += [svg.box(16, y, 150, 24, "f3" if i >= 4 else "f1"), svg.text(91, y + 17, call, "middle", "on"),
                svg.text(184, y + 17, ("a power cut after it leaves " if i == 0 else "") + there)]
        if i:
            out.append(arrow(91, y - 8, 91, y - 1))
    return svg.picture(WIDTH, 250, out, "The calls that save a checkpoint", SHOWN)


def process():
    out = [svg.text(16, 26, "One process: a coordinator, and a thread for each device", kind="title"),
           svg.box(16, 48, 110, 130, "f3"), svg.text(71, 108, "coordinator", "middle", "on"),
           svg.text(71, 126, "order of rows", "middle", "on"), svg.box(398, 48, 66, 130, "f6"),
           svg.text(431, 118, "all-reduce", "middle", "on")]
    for w in range(3):
        y = 48 + 46 * w
        out += [arrow(128, y + 19, 166, y + 19), svg.box(168, y, 190, 38, "f1"),
                svg.text(263, y + 16, f"worker {w}", "middle", "on"),
                svg.text(263, y + 31, "device, replica of the model", "middle", "on"), arrow(360, y + 19, 396, y + 19)]
    out += [svg.text(16, 200, "work items, a ring for each worker"),
            svg.text(464, 200, "gradients, read where they are", "end")]
    return svg.picture(WIDTH, 214, out, "Coordinator, workers and all-reduce in one process", SHOWN)


def park():
    out = [svg.text(16, 26, "No wake-up is lost: both threads change one word", kind="title")]
    for x, name, steps in ((16, "a thread that waits", ("announce itself", "check the condition again", "sleep, if it does not hold")),
                           (264, "a thread that changes", ("change the condition", "look for announcements", "wake, if there is one"))):
        out.append(svg.text(x + 100, 50, name, "middle", "strong"))
        for i, words in enumerate(steps):
            y, colour = 60 + 42 * i, "f6" if (x, i) in ((16, 0), (264, 1)) else "f1"
            out += [svg.box(x, y, 200, 26, colour), svg.text(x + 100, y + 18, words, "middle", "on")]
            if i:
                out.append(arrow(x + 100, y - 14, x + 100, y - 2))
    out += [svg.text(16, 198, "Orange: read-modify-write of one word, so one of the two comes first."),
            svg.text(16, 214, "Either the announcement is seen, or the change is.")]
    return svg.picture(WIDTH, 228, out, "The protocol of waiting and waking", SHOWN)


def allreduce():
    out = [svg.text(16, 26, "Each worker adds one chunk of all partial sums", kind="title")]
    colours, left, w = ("f1", "f3", "f6"), 120, 114
    for r in range(4):
        y = 46 + 34 * r + (20 if r == 3 else 0)
        out.append(svg.text(16, y + 17, f"worker {r}'s sums" if r < 3 else "total, added", kind="strong"))
        for c in range(3):
            out += [svg.box(left + c * w, y, w - 3, 26, colours[c]),
                    svg.text(left + c * w + w / 2, y + 17, f"chunk {c}" if r < 3 else f"by worker {c}", "middle", "on")]
    out += [arrow(left + c * w + w / 2, 142, left + c * w + w / 2, 166) for c in range(3)]
    out.append(svg.text(16, 218, "Within a chunk the partial sums are added in the order of the tree."))
    return svg.picture(WIDTH, 232, out, "The all-reduce over three workers", SHOWN)


def program():
    out = [svg.text(16, 26, "From layers to a program", kind="title")]
    rows = (("layers", "what the config says: conv2d, relu, dense, …"),
            ("plan", "ops with shapes, for each possible number of rows"),
            ("replica", "the same ops, bound to this worker's memory"),
            ("program", "segments of ops; on a GPU they are recorded as graphs"))
    for i, (name, words) in enumerate(rows):
        y = 44 + 44 * i
        out += [svg.box(16, y, 76, 28, "f3" if i == 3 else "f1"), svg.text(54, y + 19, name, "middle", "on"),
                svg.text(104, y + 19, words)]
        if i:
            out.append(arrow(54, y - 14, 54, y - 2))
    return svg.picture(WIDTH, 222, out, "Layers, plan, replica and program", SHOWN)


def embedded():
    out = [svg.text(16, 26, "Lockstep inside a program", kind="title"), svg.box(16, 42, 448, 150, "f5"),
           svg.text(28, 62, "your process", kind="on"), svg.box(32, 76, 150, 100, "f1"),
           svg.text(107, 100, "your threads", "middle", "on"), svg.text(107, 126, "your signal handlers", "middle", "on"),
           svg.text(107, 152, "your memory and log", "middle", "on"), svg.box(306, 76, 142, 100, "f3"),
           svg.text(377, 116, "Lockstep", "middle", "on"), svg.text(377, 136, "worker threads", "middle", "on"),
           svg.text(244, 92, "calls", "middle", "on"), arrow(184, 98, 304, 98),
           svg.text(244, 124, "status, message", "middle", "on"), arrow(304, 130, 184, 130),
           svg.text(244, 156, "alloc, free, log", "middle", "on"), arrow(304, 162, 184, 162),
           svg.text(16, 214, "Lockstep never exits, prints, reads the environment or changes signals.")]
    return svg.picture(WIDTH, 228, out, "What passes between a program and the library", SHOWN)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for draw in (process, ring, park, barrier, tree, allreduce, step, checkpoint, program, embedded):
        (folder / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
