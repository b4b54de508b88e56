#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that links, figures and commands of the documentation are right.

    docs.py ROOT TRAINER BUILD
"""
import html
import json
import pathlib
import re
import shlex
import subprocess
import sys

MOST_LINES = 120  # of README.md
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
# 3.1×, 1.03 s, 32,486; not 1 or 2, which stand everywhere.
FIGURE = re.compile(r"\d{1,3}(?:,\d{3})+|\d+\.\d+|\d{3,}")


def anchors(text):
    """As GitHub names headings."""
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")
            for heading in re.findall(r"(?m)^#+ (.*)$", text)}


def broken_links(root, page):
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if re.match(r"https?:", link):
            continue
        file, _, anchor = link.partition("#")
        target = (page.parent / file).resolve() if file else page
        if not target.exists():
            yield f"{page.relative_to(root)}: {link} does not exist"
        elif anchor and anchor not in anchors(target.read_text(encoding="utf-8")):
            yield f"{page.relative_to(root)}: {link}: no such heading"


def section(text, heading):
    found = re.search(rf"(?ms)^## {heading}\n(.*?)(?=^## |\Z)", text)
    return found.group(1) if found else ""


def unmeasured(where, text, *results):
    """Figures that none of the result files has."""
    text = re.sub(r"`[^`]*`|https?://\S+|\]\([^)]*\)", "", text)
    known = {f.replace(",", "") for r in results
             for f in FIGURE.findall(r.read_text(encoding="utf-8"))}
    rounded = {f"{float(k):.{digits}f}" for k in known for digits in (0, 1, 2)}
    for figure in FIGURE.findall(text):
        if figure.replace(",", "") not in known | rounded:
            yield f"{where}: {figure} is in none of {', '.join(r.name for r in results)}"


TOKEN = re.compile(r"""/\*.*?\*/|"((?:[^"\\\n]|\\.)*)"|'(?:[^'\\]|\\.)*'|\s+|\w+|.""", re.S)


def texts(source):
    """A C file's strings, neighbours joined; what stands between two is a macro's text."""
    parts = []
    for token in TOKEN.finditer(source):
        if token.group(1) is not None:
            parts.append(token.group(1))
        elif parts and re.match(r"[A-Z]\w+$", token.group()):
            parts.append("%")
        elif parts and not token.group().isspace():
            yield "".join(parts)
            parts = []


def unsaid(root, page):
    """Messages that the page explains and the program does not have."""
    said = [text.replace('\\"', '"') for file in (root / "src").rglob("*.[ch]")
            for text in texts(file.read_text(encoding="utf-8")) if " " in text]
    for message in re.findall(r"(?m)^\| `([^`]*)` \|", page.read_text(encoding="utf-8")):
        parts = [re.escape(part.strip()) for part in message.split("…") if part.strip()]
        if not any(re.search(".*".join(parts), text) for text in said):
            yield f"{page.relative_to(root)}: nothing says {message}"


def registered(build):
    """Names of the tests that ctest knows."""
    shown = subprocess.run(["ctest", "--test-dir", build, "-N"], capture_output=True, text=True, check=True)
    return set(re.findall(r"(?m)^ *Test +#\d+: (\w+)", shown.stdout))


def untested(root, build, page):
    """Tests that the page names and nobody has."""
    known = registered(build)
    for pattern, name in (("CMakeLists.txt", r"(?:ls_test_command\(|ONLY )(\w+)"), ("test_*.c", r"LS_TESTS\((\w+)")):
        for file in (root / "tests").rglob(pattern):
            known.update(re.findall(name, file.read_text(encoding="utf-8")))
    text = page.read_text(encoding="utf-8")
    places = re.findall(r"(?s)\*Tested by\*:(.*?)(?:\n\n|\Z)", text)
    places += re.findall(r"(?m)^\|.*\|([^|]*)\|$", text) if page.name == "promises.md" else []
    for breaks in places:
        for name in set(re.findall(r"`([a-z]\w+)`", breaks)) - known:
            yield f"{page.relative_to(root)}: there is no test {name}"


def refused(root, trainer, page):
    """Commands that begin a run: the config that they would run with is asked for."""
    text = page.read_text(encoding="utf-8")
    for line in re.findall(r"(?m)^(?:    |\| .*`)\./trainer (examples/[^`#|\n]*)", text):
        words = shlex.split(line.replace("DIRECTORY", "/nowhere").rstrip("\\").strip())
        done = subprocess.run([trainer, *words, "--print-config"], cwd=root, capture_output=True,
                              text=True, timeout=60, check=False)
        if done.returncode:
            yield f"{page.relative_to(root)}: ./trainer {line}: {done.stderr.strip()}"


def refused_examples(root, trainer, page):
    """Parts of configs that the page shows as json: completed by what every config needs, they are taken."""
    for part in re.findall(r"(?ms)^```json\n(.*?)^```$", page.read_text(encoding="utf-8")):
        if "…" in part:
            continue
        config = {"model": {"layers": [{"type": "flatten"}, {"type": "dense", "name": "fc"}]},
                  "optimizer": {"name": "sgd", "lr": 0.1}, **json.loads("{" + part + "}")}
        done = subprocess.run([trainer, "-", "--print-config"], cwd=root, input=json.dumps(config), capture_output=True,
                              text=True, timeout=60, check=False)
        if done.returncode:
            yield f"{page.relative_to(root)}: {part}: {done.stderr.strip()}"


def moved(root, page):
    """`name` (`room/file`) of the map: the file has that name. A function of ls_ that the map names is in the sources."""
    text = page.read_text(encoding="utf-8")
    for name, file in re.findall(r"`(\w+)`\s+\(`([\w/]+\.\w+)`\)", text):
        where = root / "src" / file
        if not where.exists() or not re.search(rf"\b{name}\b", where.read_text(encoding="utf-8")):
            yield f"{page.relative_to(root)}: src/{file} has no {name}"
    known = set()
    for file in [*(root / "src").rglob("*.*"), *(root / "include").rglob("*.h")]:
        if file.suffix in (".c", ".h", ".cu", ".inc", ".def"):
            known.update(re.findall(r"\b(?:ls|LS)_\w+", file.read_text(encoding="utf-8")))
    for name in sorted(set(re.findall(r"`((?:ls|LS)_\w+)", text)) - known):
        yield f"{page.relative_to(root)}: nothing is called {name}"


def shown_otherwise(root, page):
    """A section whose heading links an example shows the whole file after the line that names its licence."""
    for part in re.split(r"(?m)^## ", page.read_text(encoding="utf-8"))[1:]:
        name = re.match(r".*\]\((?:\.\./)+(examples/\w+\.c(?:pp)?)\)", part)
        code = re.search(r"(?s)```c(?:pp)?\n(.*?)```", part)
        if not name:
            continue
        file = re.sub(r"\A.*SPDX-License-Identifier.*\n", "", (root / name.group(1)).read_text(encoding="utf-8"))
        if not code or code.group(1) != file:
            yield f"{page.relative_to(root)}: what it shows is not {name.group(1)}; copy the file without its licence's line between the two ```"


def hard_to_see(root, picture):
    """What only browsers draw, and text smaller than 11 pixels where a column of 880 pixels shows the picture."""
    text = picture.read_text(encoding="utf-8")
    where = picture.relative_to(root)
    for word in ("var(", "currentColor", "<foreignObject", "<image", "@import"):
        if word in text:
            yield f"{where}: {word}: viewers other than browsers draw it black, or not at all"
    width = float(re.search(r'viewBox="0 0 ([\d.]+) ', text).group(1))
    shown = re.search(r'<svg[^>]* width="(\d+)"', text)
    scale = min(float(shown.group(1)) if shown else 880, 880) / width
    for size in re.findall(r"font(?:-size)?[:=]\"?([\d.]+)", text) if "<text" in text else []:
        if float(size) * scale < 10.995:
            yield f"{where}: text of {float(size) * scale:.1f} pixels in a column of 880"


def main():
    root, trainer, build = pathlib.Path(sys.argv[1]).resolve(), *sys.argv[2:]
    readme = root / "README.md"
    pages = [readme, *sorted((root / "docs").glob("*.md")), *sorted((root / ".github").glob("*.md")),
             root / "CHANGELOG.md", *(root / place / "README.md" for place in (
                 "src", "src/train", "tests", "include/lockstep", "bench", "examples/service", "examples/d2l"))]
    bench, campaigns = root / "bench" / "RESULTS.md", root / "tests" / "campaigns" / "RESULTS.md"
    text = readme.read_text(encoding="utf-8")
    promises = (root / "docs" / "promises.md").read_text(encoding="utf-8")
    problems = [p for page in pages for p in broken_links(root, page)]
    problems += [p for page in pages for p in refused(root, trainer, page)]
    problems += [p for page in pages for p in refused_examples(root, trainer, page)]
    problems += shown_otherwise(root, root / "include" / "lockstep" / "README.md")
    lab = (root / "tests" / "examples" / "expected" / "own_allreduce.txt").read_text(encoding="utf-8")
    if lab not in (root / "docs" / "book.md").read_text(encoding="utf-8"):
        problems.append("docs/book.md: the lab does not show what examples/own_allreduce.c prints")
    problems += moved(root, root / "src" / "README.md")
    problems += unsaid(root, root / "docs" / "troubleshooting.md")
    problems += untested(root, build, root / "docs" / "design.md")
    problems += untested(root, build, root / "docs" / "promises.md")
    design = re.split(r"(?m)^## (\d+)\. ", (root / "docs" / "design.md").read_text(encoding="utf-8"))
    if design[1::2] != [str(n + 1) for n in range(10)] or not all(page.count("](design/") == 1 for page in design[2::2]):
        problems.append("docs/design.md: expected ten pages with a picture each")
    problems += [p for place in ("docs", "docs/design", "bench") for picture in sorted((root / place).glob("*.svg"))
                 for p in hard_to_see(root, picture)]
    problems += unmeasured("README.md, Figures", section(text, "Figures"), bench)
    problems += unmeasured("README.md, Promises", section(text, "Promises"), campaigns)
    problems += unmeasured("docs/measured.md", (root / "docs" / "measured.md").read_text(encoding="utf-8"), bench)
    problems += unmeasured("docs/comparison.md, Speed",
                           section((root / "docs" / "comparison.md").read_text(encoding="utf-8"), "Speed"), bench)
    problems += unmeasured("docs/why-loss-differs.md",
                           section((root / "docs" / "why-loss-differs.md").read_text(encoding="utf-8"),
                                   "What it looks like"), bench)
    problems += unmeasured("docs/book.md", (root / "docs" / "book.md").read_text(encoding="utf-8").split("###")[1],
                           bench, root / "tests" / "accuracy" / "README.md")
    problems += unmeasured("docs/python.md", section((root / "docs" / "python.md").read_text(encoding="utf-8"),
                                                     "What it costs"), bench)
    problems += unmeasured("docs/promises.md", promises.split("Counted so far")[1].split("\n\n")[0], campaigns)
    if text.count("\n") > MOST_LINES:
        problems.append(f"README.md has {text.count(chr(10))} lines, not {MOST_LINES}")
    for name, options in (("api.md", []), ("api-sys.md", ["--authors"])):
        reference = subprocess.run([sys.executable, root / "docs" / "api.py", root, *options], capture_output=True, text=True,
                                   timeout=60, check=False)
        if reference.stdout != (root / "docs" / name).read_text(encoding="utf-8"):
            problems.append(f"docs/{name} is not what the headers say: "
                            f"{' '.join(['docs/api.py .', *options])} >docs/{name} {reference.stderr}")
    picture = html.unescape((root / "docs" / "same_bits.svg").read_text(encoding="utf-8"))
    hashes = re.findall(r">([0-9a-f]{24})…", picture)
    if len(hashes) < 5 or len(set(hashes)) != 1:
        problems.append(f"docs/same_bits.svg has {hashes}")
    print("\n".join(problems))
    return bool(problems)


if __name__ == "__main__":
    sys.exit(main())
