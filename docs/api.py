#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""api.py ROOT [--authors]: the API reference, made from the comments of the public headers, to standard output.

docs/api.md is for programs that use the library. With --authors: docs/api-sys.md, for authors of back ends and transports.

A header is read as its authors write it: a comment at its top, sections (/* ---- name ---- */), and declarations,
each behind its comment. Functions become entries; types, constants and their comments stay C.
"""
import pathlib
import re
import sys

# What a user meets first; a header that is in no group is an error, so that none is forgotten.
GROUPS = {
    "Everywhere": ["status.h", "host.h", "version.h"],
    "The trainer": ["trainer.h", "model.h", "model.h", "picture.h", "data_source.h", "cluster.h"],
    "The worker pool": ["pool.h", "device_pool.h", "device.h", "collective.h", "split.h"],
}
AUTHORS = {
    "For authors of back ends and transports": ["sys/plugin.h", "sys/communicator.h", "sys/transport.h", "sys/trainer.h"],
}
USERS_HEAD = """# API reference

This page is made from the public headers by `docs/api.py`. The rules that hold for all functions (errors, ownership,
threads, versions) are in [using the library](../include/lockstep/README.md). The headers for authors of back ends and of
transports between hosts are on [a page of their own](api-sys.md).
"""
AUTHORS_HEAD = """# API reference for authors of back ends and transports

This page is made from the headers below `lockstep/sys` by `docs/api.py`. They are unstable: any version may change them.
Programs that only use the library need [the other page](api.md).
"""

COMMENT = re.compile(r"/\*.*?\*/", re.S)
PARAGRAPH = re.compile(r"[A-Z][a-z]+(?: [a-z]+){0,2}: ")  # "Errors: …", "Whose threads: …"
SECTION = re.compile(r"/\* -{4,} *(.*?) *-* *(?:\*/|\*\n)", re.S)
FUNCTION = re.compile(r"(?:static inline )?[\w ]+?[ *]+(ls_\w+)\s*\([^{}]*\)\s*(?:__attribute__\s*\(\(.*\)\)\s*)?$", re.S)


def words(comment):
    """A comment's text without its frame."""
    body = comment[2:-2]
    lines = [re.sub(r"^\s*\*( |$)", "", line) if i else line.lstrip() for i, line in enumerate(body.split("\n"))]
    return "\n".join(line.rstrip() for line in lines).strip("\n")


def markdown(comment):
    """Text as Markdown: indented lines stay code, *words* and <names> stay what they are."""
    out, code = [], False
    for line in words(comment).split("\n"):
        is_code = line.startswith("    ") and (code or not out or not out[-1].strip())
        if is_code != code and (line.strip() or is_code):
            while code and not out[-1].strip():
                out.pop()
            out += ["```c"] if is_code else ["```", ""]
            code = is_code
        elif not code and out and out[-1].strip() and PARAGRAPH.match(line):
            out.append("")
        out.append(line[4:] if code and line.startswith("    ") else line if code else line.replace("<", "&lt;"))
    if code:
        out.append("```")
    return "\n".join(out).strip()


def pieces(text):
    """Comments and declarations of a header, in order, without the line that names its licence."""
    text = re.sub(r"\A.*SPDX-License-Identifier.*\n", "", text)
    text = re.sub(r"^#(?:ifndef|include|endif|ifdef|pragma|define LOCKSTEP_\w+_H$).*$", "", text, flags=re.M)
    text = re.sub(r'^extern "C" \{\n\n?\}?$|^\}$(?=\n*\Z)', "", text, flags=re.M)
    text = re.sub(r'^extern "C" \{$', "", text, flags=re.M)
    at = 0
    while True:
        at += len(text[at:]) - len(text[at:].lstrip())
        if at >= len(text):
            return
        if text.startswith("/*", at):
            end = text.index("*/", at) + 2
            yield "comment", text[at:end]
        elif text.startswith("#define", at):
            end = re.compile(r"(?<!\\)\n|\Z").search(text, at).end()
            yield "code", text[at:end].rstrip()
        elif text.startswith("}", at):
            end = at + 1
        else:
            end = declaration_end(text, at)
            yield "code", text[at:end].rstrip()
        at = end


def declaration_end(text, at):
    """Behind the semicolon, or the body, that ends what starts at `at`; comments inside are skipped."""
    depth, i = 0, at
    while i < len(text):
        if text.startswith("/*", i):
            i = text.index("*/", i) + 2
            continue
        c = text[i]
        depth += (c in "{(") - (c in "})")
        if depth == 0 and c == ";":
            rest = text[i + 1:text.find("\n", i) if "\n" in text[i:] else len(text)]
            tail = re.match(r"[ \t]*/\*.*?\*/", text[i + 1:], re.S) if rest.strip().startswith("/*") else None
            return i + 1 + (tail.end() if tail else 0)
        if depth == 0 and c == "}" and text[at:i].startswith("static inline"):
            return i + 1
        i += 1
    return len(text)


def prototype(code):
    """The declaration of a function, without a body; None: it is something else."""
    head = code.split("{")[0] if code.startswith("static inline") else code
    head = COMMENT.sub("", head).strip().rstrip(";").strip()
    if head.startswith("typedef"):
        return None
    found = FUNCTION.match(head)
    return (found.group(1), head + ";") if found else None


def first_sentence(comment):
    """For a table's cell; an empty text without a comment."""
    text = re.split(r"(?m)\n *- |\n\n", words(comment))[0] if comment else ""
    text = re.split(r"(?<=[.;:])\s+(?=[A-Z(`]|ls_)", " ".join(text.split()))[0].rstrip(".;:") + "."
    return text.replace("|", "\\|").replace("<", "&lt;")


def entry(out, index, comment, code):
    function = prototype(code)
    if function:
        index.append((function[0], first_sentence(comment)))
        out.append(f"### {function[0]}\n\n```c\n{function[1]}\n```\n")
        if comment:
            out.append(markdown(comment) + "\n")
    else:
        out.append("```c\n" + (comment + "\n" if comment else "") + code + "\n```\n")


def header(include, name):
    """The header's section, and its functions: name and first sentence."""
    out, index, pending, first = [], [], None, True
    out.append(f"## {name}\n")
    for kind, text in pieces((include / name).read_text(encoding="utf-8")):
        section = SECTION.match(text) if kind == "comment" else None
        if kind == "comment" and first:
            out.append(markdown(text) + "\n")
        elif section:
            pending and out.append(markdown(pending) + "\n")
            pending = None
            out.append(f"**{section.group(1)[:1].upper() + section.group(1)[1:]}**\n")
            rest = text[section.end():-2].strip()
            if rest:
                out.append(markdown("/*" + text[section.end() - 1:]) + "\n")
        elif kind == "comment":
            pending and out.append(markdown(pending) + "\n")
            pending = text
        else:
            entry(out, index, pending, text)
            pending = None
        first = False
    pending and out.append(markdown(pending) + "\n")
    return "\n".join(out), index


def join_code(text):
    """Neighbouring blocks of types are one block."""
    return text.replace("```\n\n```c\n", "\n")


def show_index(sections):
    """A table of the functions of these headers."""
    print("\n## Index of functions\n\n| function | header | |\n|---|---|---|")
    for name, (_, index) in sections.items():
        for function, sentence in index:
            print(f"| [`{function}`](#{function}) | `{name}` | {sentence} |")


def main():
    include = pathlib.Path(sys.argv[1]) / "include" / "lockstep"
    groups, head = (AUTHORS, AUTHORS_HEAD) if "--authors" in sys.argv[2:] else (GROUPS, USERS_HEAD)
    there = {p.relative_to(include).as_posix() for p in include.rglob("*.h")}
    forgotten = there - {name for names in (*GROUPS.values(), *AUTHORS.values()) for name in names}
    if forgotten:
        sys.exit(f"docs/api.py: no group for {', '.join(sorted(forgotten))}")
    sections = {}
    print(head)
    for group, names in groups.items():
        names = [name for name in names if name in there]
        anchors = [f"[{n}](#{n.replace('.', '').replace('/', '')})" for n in names]
        print(f"- {group}: {', '.join(anchors)}")
        sections.update({name: header(include, name) for name in names})
    if groups is GROUPS:
        show_index(sections)
    print("\n" + "\n".join(join_code(text) for text, _ in sections.values()).rstrip())


if __name__ == "__main__":
    main()
