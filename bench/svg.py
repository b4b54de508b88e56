# SPDX-License-Identifier: MIT
"""Pictures for the benchmarks: self-contained SVG, for light and dark backgrounds."""

from html import escape
from math import ceil, floor, log10

# Okabe and Ito's palette, which people with colour blindness tell apart.
LIGHT = {"page": "#fff", "ink": "#1b1f24", "soft": "#59636e", "line": "#8b949e", "grid": "#e4e7ea",
         "colours": ("#56b4e9", "#0072b2", "#009e73", "#d55e00", "#b4bac1", "#e69f00")}
DARK = {"page": "#0f1216", "ink": "#e8ebee", "soft": "#9ba5b0", "line": "#6b7682", "grid": "#2a3038",
        "colours": ("#7cc7f2", "#3a95d6", "#17b488", "#f0793a", "#5d6671", "#edb235")}


def colours(p):
    """The CSS rules that contain a colour. They use no CSS variables, because many viewers do not support them."""
    return (f".page text{{fill:{p['soft']}}}.page .title,.page .strong{{fill:{p['ink']}}}.page .on{{fill:#11161b}}\n"
            f".page .axis{{stroke:{p['line']}}}.page .grid{{stroke:{p['grid']}}}.page .whisker{{stroke:{p['ink']}}}\n"
            f".page .paper{{fill:{p['page']}}}\n"
            + "".join(f".page .f{i}{{fill:{c}}}.page .s{i}{{stroke:{c}}}" for i, c in enumerate(p["colours"], 1)) + "\n")


COLUMN = 830  # width of a page's column in pixels; wider pictures are shrunk to it
LEAST = 11  # height in pixels of the smallest text in a picture, after shrinking


def size(width):
    """The font size for a picture."""
    return max(12, ceil(LEAST * width / COLUMN * 10) / 10)


STYLE = """
.page text{font:SIZEpx system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif;font-variant-numeric:tabular-nums}
.page .title{font-size:14px;font-weight:650}
.page .axis,.page .grid{fill:none}.page .whisker{stroke-opacity:.55;fill:none}
.page .curve{fill:none;stroke-width:2;stroke-linejoin:round;stroke-linecap:round}
""" + colours(LIGHT) + "@media(prefers-color-scheme:dark){\n" + colours(DARK) + "}\n"


def style(width):
    return STYLE.replace("SIZE", f"{size(width):g}")


def text(x, y, words, anchor="start", kind=""):
    return (f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="{anchor}"'
            f'{f" class={chr(34)}{kind}{chr(34)}" if kind else ""}>{escape(str(words))}</text>')


def line(x1, y1, x2, y2, kind):
    return f'<path class="{kind}" d="M{x1:.1f} {y1:.1f}L{x2:.1f} {y2:.1f}"/>'


def box(x, y, w, h, kind):
    return f'<rect class="{kind}" x="{x:.1f}" y="{y:.1f}" width="{w:.1f}" height="{max(h, 0):.1f}"/>'


def curve(points, kind, dashed=False):
    d = "L".join(f"{x:.1f} {y:.1f}" for x, y in points)
    return f'<path class="curve {kind}"{" stroke-dasharray=" + chr(34) + "5 4" + chr(34) if dashed else ""} d="M{d}"/>'


def ticks(most, count=4):
    """Multiples of 1, 2 or 5 times a power of ten, from 0 to at least `most`."""
    if most <= 0:
        return [0, 1]
    step = 10 ** floor(log10(most / count))
    step *= next(f for f in (1, 2, 5, 10) if f * step * count >= most * 0.999)
    out = [0]
    while out[-1] < most * 0.999:
        out.append(out[-1] + step)
    return out


def number(value):
    return f"{value:,.0f}" if value >= 10 or value == int(value) else f"{value:.3g}"


def legend(x, y, names, colours):
    out = []
    for name, colour in zip(names, colours):
        out += [box(x, y - 9, 11, 11, f"f{colour}"), text(x + 16, y, name)]
        x += 16 + 7.2 * len(name) + 18
    return out


def split(name, room):
    """A name in one line, or in two lines if one line has no room for it."""
    return [name] if len(name) * 7.6 < room or " " not in name else name.rsplit(" ", 1)


def bars(x, y, w, h, title, groups, series, colours, values, note=""):
    """Grouped bars with whiskers: values[group][series] is (low, median, high) or None."""
    tops = [v[2] for row in values for v in row if v]
    marks = ticks(max(tops) if tops else 1)
    left, bottom, top = x + 46, y + h - 24, y + 30
    width, scale = w - 50, (y + h - 24 - top) / marks[-1]
    room = width / len(groups)
    lines = [split(name, room) for name in groups]
    out = [text(x, y + 12, title, kind="title"),
           text(x, y + h - 4 + 12 * max(map(len, lines)), note)]
    for m in marks:
        level = bottom - m * scale
        out += [line(left, level, left + width, level, "axis" if m == 0 else "grid"),
                text(left - 6, level + 4, number(m), "end")]
    each = min(room * 0.8 / len(series), 34)
    for g, name in enumerate(lines):
        middle = left + room * (g + 0.5)
        out += [text(middle, bottom + 16 + 12 * i, words, "middle") for i, words in enumerate(name)]
        for s in range(len(series)):
            v = values[g][s]
            if not v:
                continue
            at = middle + (s - len(series) / 2) * each
            out.append(box(at + 1, bottom - v[1] * scale, each - 2, v[1] * scale, f"f{colours[s]}"))
            out.append(line(at + each / 2, bottom - v[0] * scale, at + each / 2,
                            bottom - v[2] * scale, "whisker"))
    return out


def picture(width, height, parts, label, shown=None):
    """`shown`: the width in pixels at which a page shows the picture if there is room; by default the whole width."""
    wide = f'width="{shown}" ' if shown else ""
    return (f'<svg xmlns="http://www.w3.org/2000/svg" class="page" {wide}viewBox="0 0 {width} {height}" '
            f'role="img" aria-label="{escape(label)}"><style>{style(shown or width)}</style>'
            f'<rect class="paper" width="{width}" height="{height}"/>\n' + "\n".join(parts) + "</svg>\n")


def page(title, body):
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{escape(title)}</title>
<meta name="viewport" content="width=device-width,initial-scale=1">
<style>:root{{color-scheme:light dark}}body{{margin:0;background:#f5f6f7;color:#1b1f24;
font:15px/1.5 system-ui,-apple-system,'Segoe UI',Roboto,'DejaVu Sans',sans-serif}}
main{{max-width:1240px;margin:0 auto;padding:28px 20px 48px}}h1{{font-size:26px;margin:0 0 8px}}
.card{{background:#fff;border:1px solid #dde1e5;border-radius:10px;padding:16px;margin:16px 0;
overflow-x:auto}}table{{border-collapse:collapse;font-size:13px;font-variant-numeric:tabular-nums;
width:100%}}th,td{{padding:3px 8px;text-align:right;border-bottom:1px solid #e4e7ea;
white-space:nowrap}}th:nth-child(-n+4),td:nth-child(-n+4){{text-align:left}}
svg{{display:block;width:100%;height:auto;min-width:640px}}
@media(prefers-color-scheme:dark){{body{{background:#0b0d10;color:#e8ebee}}
.card{{background:#0f1216;border-color:#2a3038}}th,td{{border-color:#2a3038}}}}</style></head>
<body><main><h1>{escape(title)}</h1>
{body}
</main></body></html>
"""
