#!/usr/bin/env python3
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
    for count, name, y in ((pushed, "tail = 11, released by the producer alone", 48),
                           (popped, "head = 6, released by the consumer alone", 170)):
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
    out += [svg.text(180, 200, "released: every rank returns LS_OK,"), svg.text(180, 216, "however late it looks"),
            svg.box(284, 94, 190, 26, "f4"), svg.text(379, 112, "round 7, 1 of 3 here, ABORTED", "middle", "on"),
            arrow(168, 107, 282, 107), svg.text(172, 100, "deadline, abort"),
            svg.text(284, 140, "the word changes no more:"), svg.text(284, 156, "every rank returns an error")]
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
    out = [svg.text(16, 26, "Eight shards, one tree; who adds which part", kind="title")]
    tree_of(8, 8, 2, out)
    tree_of(248, 8, 3, out)
    out += [svg.text(16, 264, "Coloured: added by one worker alone; large: what it brings to the merge."),
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
    for x, words in ((180, "meet"), (260, "commit")):
        out += [svg.line(x, 40, x, 158, "whisker"), svg.text(x, 172, words, "middle", "strong")]
    out += [svg.text(464, 192, "left of it: nobody applies the step, and it is repeated", "end"),
            svg.text(464, 208, "right of it: everybody does, whatever fails later", "end")]
    return svg.picture(WIDTH, 220, out, "The phases of a training step", SHOWN)


def checkpoint():
    out = [svg.text(16, 26, "Saving: what a cut at each point leaves", kind="title")]
    calls = ("open a hidden name", "write", "fsync the file", "rename", "fsync the directory", "remove the oldest")
    left = ("the old ones", "the old ones", "the old ones", "the old ones, or the new one too",
            "the new one and the old ones", "the newest K")
    for i, (call, there) in enumerate(zip(calls, left)):
        y = 44 + 32 * i
        out += [svg.box(16, y, 150, 24, "f3" if i >= 4 else "f1"), svg.text(91, y + 17, call, "middle", "on"),
                svg.text(184, y + 17, ("a cut behind it leaves " if i == 0 else "") + there)]
        if i:
            out.append(arrow(91, y - 8, 91, y - 1))
    return svg.picture(WIDTH, 250, out, "The calls that save a checkpoint", SHOWN)


def main():
    folder = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE
    for draw in (ring, barrier, tree, step, checkpoint):
        (folder / f"{draw.__name__}.svg").write_text(draw(), encoding="utf-8")


if __name__ == "__main__":
    main()
