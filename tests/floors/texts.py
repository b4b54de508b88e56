#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""texts.py ROOT: checks that no source decides by a text that is written for people, or by a name where a value exists.

- No function compares, searches or parses the text of an error. It reads ls_error.status or ls_error.reason.
- Each reason of <lockstep/status.h> has one place that sets it and at least one that reads it.
- Outside of src/data, no source compares the name of a kind of dataset. It reads ls_dataset_about.form.

texts.py --selftest: plants violations, which must be found, and code that only looks like one.
"""
import functools
import pathlib
import re
import sys
import tempfile

COMPARES = re.compile(r"\w*str(?:n|case|ncase)?cmp|\w*str(?:case|r|n)?str|\w*strr?chr(?:nul)?|strc?spn|strpbrk|strtok(?:_r)?|"
                      r"\w*mem(?:cmp|mem|chr)|v?sscanf|strto\w+|ato[fil]+|regexec|fnmatch|ls_is_listed|ls_closest|"
                      r"(?:\w+_)?(?:is|has|are|does|contains|starts|begins|ends|matches|equals|finds?)_\w+")
CALL = re.compile(r"\b(\w+)\s*\(")
NAME = r"[A-Za-z_]\w*"


def code_of(text):
    """Returns the text without comments; lines keep their numbers."""
    def blank(match):
        return match[0] if match[0][0] in "\"'" else re.sub(r"[^\n]", " ", match[0])
    return re.sub(r"/\*.*?\*/|//[^\n]*|\"(?:\\.|[^\"\\\n])*\"|'(?:\\.|[^'\\\n])*'", blank, text, flags=re.S)


def without_strings(code):
    return re.sub(r"\"(?:\\.|[^\"\\\n])*\"", lambda match: '"' + " " * (len(match[0]) - 2) + '"', code)


def arguments(bare, start):
    """Returns the end of the argument list that begins after `start`. `bare` has no strings."""
    depth, at = 1, start
    while at < len(bare) and depth:
        depth += {"(": 1, ")": -1}.get(bare[at], 0)
        at += 1
    return at


@functools.cache
def compares(function):
    return COMPARES.fullmatch(function) is not None


def comparisons(bare):
    """Yields the calls of functions that compare, search or parse a text."""
    return (call for call in CALL.finditer(bare) if compares(call[1]))


def declared(code):
    """Returns the names of variables, parameters and members of a type that has an error's text."""
    names = set()
    for match in re.finditer(rf"\b(?:ls_error|ls_tcp_note)\s+((?:\**\s*{NAME}(?:\[[^]]*\])?(?:\s*=\s*[^,;)]*)?\s*[,;)]\s*)+)", code):
        for part in re.split(r"[,;)]", match[1]):
            if name := re.match(rf"\**\s*({NAME})", part.strip()):
                names.add(name[1])
    return names


def texts_of_errors(code, names):
    """Yields the offset and a description of each use of an error's text as a value."""
    bare = without_strings(code)
    text = rf"\b(?:{'|'.join(sorted(names))})\s*(?:->|\.)\s*text\b"
    for call in comparisons(bare):
        if re.search(text, bare[call.end():arguments(bare, call.end())]):
            yield call.start(), "compares the text of an error"
    for match in re.finditer(rf"[^=!<>]=\s*&?\(?(?:[\w.]|->)*{text}\s*[;,+)]", bare):
        if not re.search(r"\.\w+\s*$", bare[:match.start() + 1]):  # a designator, in a list of a message's parts
            yield match.start(), "keeps a pointer to the text of an error"
    for match in re.finditer(rf"{text}\s*\[(?!\s*0\s*\])[^]]*\]\s*(?:[!=<>]=|<|>)", bare):
        yield match.start(), "compares a character of an error's text"


def names_of_kinds(code, kinds):
    bare = without_strings(code)
    for call in comparisons(bare):
        inside = code[call.end():arguments(bare, call.end())]
        if re.search(rf"\"(?:{'|'.join(kinds)})\"|\bdata_name\b|\b(?:about|kind)\s*(?:->|\.)\s*name\b", inside):
            yield call.start(), "compares the name of a kind of dataset (use ls_dataset_form_of)"


def script_texts(text, kinds):
    """The same for Python and JavaScript."""
    names = "|".join(kinds)
    message = r"(?:str\((?:e|err|error|exc|exception|failed|failure|why)\)|\b(?:e|err|error|exc|exception|failed|failure|why)\.(?:text|args\[0\]|message))"
    message += r"(?:\.(?:value|decode\([^)]*\)|contents))*"
    for number, line in enumerate(text.split("\n"), 1):
        if re.search(rf"\bin\s+{message}|{message}\.(?:startswith|endswith|find|index|includes|startsWith|match)\(|{message}\s*[!=]=|"
                     rf"\bre\.\w+\([^)]*{message}", line):
            yield number, "compares the text of an error"
        if re.search(rf"[!=]=\s*[\"'](?:{names})[\"']|[\"'](?:{names})[\"']\s*[!=]=|\bin\s*\(\s*[\"'](?:{names})[\"']", line):
            yield number, "compares the name of a kind of dataset"


def reasons(root, sources):
    header = code_of((root / "include/lockstep/status.h").read_text())
    body = header[header.index("typedef enum ls_error_reason"):header.index("} ls_error_reason")]
    bare = [without_strings(code) for _, code in sources if "LS_REASON_" in code]
    for reason in re.findall(r"\b(LS_REASON_\w+)\b", body):
        sets = reads = 0
        for code in bare:
            inside = [(call.start(), arguments(code, call.end())) for call in re.finditer(r"\bls_because\s*\(", code)]
            for use in re.finditer(rf"\b{reason}\b", code):
                within = any(start < use.start() < end for start, end in inside)
                sets, reads = sets + within, reads + (not within)
        if reason != "LS_REASON_NONE" and (sets != 1 or reads < 1):
            yield f"include/lockstep/status.h: {reason}: set at {sets} places, read at {reads}; expected 1, and at least 1"


def check(root):
    found = []
    kinds = re.findall(r"LS_DATASET\((\w+)\)", (root / "src/data/kinds.def").read_text())
    paths = sorted(p for p in (root / "src").rglob("*") if p.suffix in (".c", ".h", ".cu", ".cuh", ".inc"))
    sources = [(p.relative_to(root).as_posix(), code_of(p.read_text())) for p in paths]
    members = set().union(*(declared(code) for path, code in sources if path.endswith(".h")), {"err"})
    for path, code in sources:
        places = list(texts_of_errors(code, members | declared(code)))
        if not path.startswith("src/data/"):
            places += names_of_kinds(code, kinds)
        found += [f"{path}:{code.count(chr(10), 0, at) + 1}: {what}" for at, what in sorted(set(places))]
    for path in sorted(p for p in (root / "src").rglob("*") if p.suffix in (".py", ".js")):
        found += [f"{path.relative_to(root)}:{line}: {what}" for line, what in script_texts(path.read_text(), kinds)]
    return found + list(reasons(root, [s for s in sources if s[0].endswith(".c")]))


# ---- the test of this test ------------------------------------------------------------------------

STATUS = "typedef enum ls_error_reason {\n    LS_REASON_NONE = 0,\n    LS_REASON_A = 1 /* LS_REASON_B */\n} ls_error_reason;\n"
SETS, READS = "void f(ls_error *err) { ls_because(err, ls_fail(err, -1, \"(x\"), LS_REASON_A); }\n", "int g(int r) { return r == LS_REASON_A; }\n"
CAUGHT = [
    ("cli/a.c", 'int f(const ls_error *err) { return strstr(err->text, "not found") != NULL; }'),
    ("data/a.c", 'int f(void) { ls_error why = {0}; return !strncmp(why.text,\n    "x", 1); }'),
    ("data/a.c", "int f(struct s *s, const char *a) { ls_error why; return strlen(a) ? strcmp(a, (why.text)) : 0; }"),
    ("tcp/a.c", "int f(void) { ls_tcp_note note = {0}; return is_own_text(j, note.text); }"),
    ("nn/a.c", "int f(const ls_error *why) { const char *text = why->text; return g(text); }"),
    ("nn/a.c", "int f(const ls_error *why, int n) { return why->text[n] == ':'; }"),
    ("pool/a.c", "int f(struct worker *w) { return sscanf(w->failure.text, \"%d\", &w->n); }"),
    ("cli/a.c", 'int f(const char *name) { return strcmp(name, "npy") == 0; }'),
    ("config/a.c", 'int f(const ls_config *c) { return is_named(c, "folder"); }'),
    ("model/a.c", "int f(const ls_config *c, const char *name) { return strcmp(c->data_name, name); }"),
    ("cli/a.c", "int f(const ls_inspection *l, const char *name) { return strcmp(l->kind->name, name); }"),
    ("python/a.py", 'if "not found" in str(error):'),
    ("python/a.py", 'if error.text.decode().startswith("x"):'),
    ("python/a.py", 'if data["name"] == "folder":'),
    ("page/a.js", "if (s.data.name === 'synthetic') x();"),
    ("base/set.c", SETS + SETS),
    ("base/set.c", ""),
    ("base/read.c", ""),
]
PASSED = [
    ("cli/a.c", 'void f(const ls_error *err) { printf("%s", err->text); if (err->text[0]) puts("strstr(err->text)"); }'),
    ("cli/a.c", "/* strstr(err->text, \"x\") */ int x;"),
    ("cli/a.c", 'int f(const char *a) { ls_error why; return strcmp(a, "b") ? ls_fail(&why, -1, "%s", why.text) : 0; }'),
    ("tcp/a.c", "void f(void) { ls_tcp_note note; note.text[TCP_NOTE - 1] = '\\0'; }"),
    ("data/a.c", 'int f(const char *name) { return strcmp(name, "npy") == 0; }'),
    ("cli/a.c", 'void f(ls_json_writer *w, int is) { ls_json_put_bool(w, "synthetic", is); }'),
    ("python/a.py", 'data = {"name": "folder"}\nraise Error(str(error))'),
]


def selftest():
    wrong = []
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)

        def plant(path, text):
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            (root / path).write_text(text)
        plant("include/lockstep/status.h", STATUS)
        plant("src/data/kinds.def", "LS_DATASET(npy)\nLS_DATASET(folder)\nLS_DATASET(synthetic)\n")
        plant("src/pool/pool.h", "struct worker { ls_error failure; };")
        for expected, cases in ((True, CAUGHT), (False, PASSED)):
            for path, text in cases:
                plant("src/base/set.c", SETS)
                plant("src/base/read.c", READS)
                plant(f"src/{path}", text)
                if bool(found := check(root)) != expected:
                    wrong.append(f"{path}: {text}: expected {'a' if expected else 'no'} violation: {found}")
                (root / "src" / path).unlink()
    return wrong


problems = selftest() if sys.argv[1] == "--selftest" else check(pathlib.Path(sys.argv[1]))
print("\n".join(problems), end="\n" if problems else "")
sys.exit(bool(problems))
