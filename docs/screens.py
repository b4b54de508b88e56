#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
r"""Draws pictures for the documentation from what the program has written, with Chromium.

    ./trainer examples/fashion_mnist.json --devices cpu:2 --set run_dir=runs/lenet 2>output.txt
    ./trainer report runs/lenet
    docs/screens.py page runs/lenet/report.html docs/report.png 1280x905 .first .tiles .hint .classes .workers \
        details a.big "header .sub" ".charts:not(.classes) > :nth-child(n+3)"
    docs/screens.py text output.txt docs/terminal.png 900x580

`page` leaves out those parts of a page that the selectors name, `text` the lines of epochs: rates depend on what else the
machine does.
"""
import html
import pathlib
import re
import subprocess
import sys
import tempfile

TERMINAL = """<body style="margin:0;padding:18px 24px;background:#16191d;color:#e4e6e8">
<pre style="margin:0;font:15px/1.25 'DejaVu Sans Mono'">{}</pre>"""


def shoot(document, to, size):
    with tempfile.TemporaryDirectory() as folder:
        page = pathlib.Path(folder, "page.html")
        page.write_text(document, encoding="utf-8")
        subprocess.run(["chromium", "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
                        f"--window-size={size.replace('x', ',')}", f"--screenshot={pathlib.Path(to).resolve()}",
                        page.as_uri()], check=True, stderr=subprocess.DEVNULL, timeout=120)


def without(page, selectors):
    """The page without the parts that the selectors name."""
    style = f"<style>{', '.join(selectors)} {{ display: none !important }} header + .sub {{ margin-top: 4px }}</style></head>"
    return page.replace("</head>", style, 1)


def lines_of(output):
    kept, gap = [], False
    for line in output.splitlines():
        if re.match(r"  epoch ", line) or "sec/epoch" in line:
            gap = True
            continue
        kept += ["  …"] * gap + [line]
        gap = False
    # Fonts differ in the width of Braille, of which the curves are made.
    return re.sub("[\u2800-\u28ff]", r'<span style="display:inline-block;width:1ch">\g<0></span>', html.escape("\n".join(kept)))


def main():
    kind, source, to, size, *selectors = sys.argv[1:]
    text = pathlib.Path(source).read_text(encoding="utf-8")
    shoot(without(text, selectors) if kind == "page" else TERMINAL.format(lines_of(text)), to, size)


if __name__ == "__main__":
    main()
