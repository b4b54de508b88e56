#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Checks that rows in hostile notations have one answer, whoever reads them.

    python3 tests/tools/hostile_rows.py TRAINER ONE_NUMBER LIBRARY [--service SERVICE] [--drawn N] [--seed SEED] [--needs-onnxruntime]

The rows and their answers are in hostile_rows.json; N further rows are drawn: texts in spellings that mean the same,
and texts that no training row has. The rows go through the test table of a training run, `trainer predict` (in files of
all separators, encodings and orders of columns), a C program, the Python package, the HTTP service (if it is built)
and, where it is installed, ONNX Runtime. Two models read them: one with missing values in its training table, and one without. 77: NumPy is missing, or
the ONNX Runtime that is asked for.
TRAINER, ONE_NUMBER and SERVICE are programs, LIBRARY is the shared library.
"""
import argparse
import csv
import gzip
import json
import math
import random
import re
import shutil
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

BOUND = 2e-6
HERE = Path(__file__).resolve().parent
TABLE = json.loads((HERE / "hostile_rows.json").read_text())
BASE = TABLE["base"]
LEVELS = {"id": ["90071992547409921", "90071992547409922", "123456789012345", "1234567890123456789",
                 "1234567890123456789012345"], "code": ["007", "7", "7.0"], "num": ["1", "2", "0.5"],
          "name": ["caf\u00e9", "Z\u00fcrich", "tea"], "flag": ["TRUE", "FALSE"], "word": ["some", "None", "inf", "-"]}
NUMBERS = ("x", "ms")

try:
    import numpy as np
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)


# ---- rows ----------------------------------------------------------------------------------------------------------

class Row:
    """A row and its answers: the plain row that has the same outputs, "empty" or "refused"."""

    def __init__(self, row, answer, holes_refused=None, onnx=None):
        self.fields = {**BASE, **row}
        self.answers = {}
        for holes in (True, False):
            own = holes_refused if holes_refused is not None and not holes else answer
            self.answers[holes] = self.plain(own)
            # A graph that has no answer for a missing value has none for what it takes for one.
            graph = own if onnx is None or own == "empty" and isinstance(onnx, dict) and not holes else onnx
            self.answers[holes, "onnx"] = self.plain(graph)

    @staticmethod
    def plain(answer):
        return {**BASE, **answer} if isinstance(answer, dict) else answer


def number_spelt(draw, text):
    """A spelling of a positive number."""
    if draw.random() < 0.3:
        text = f"{text}{draw.choice(['e0', 'E+00', 'e-0'])}"
    elif "." not in text and draw.random() < 0.4:
        at = draw.randrange(1, len(text) + 1)
        text = f"{text[:at]}.{text[at:]}e{len(text) - at}"
    elif "." not in text and draw.random() < 0.5:
        text += draw.choice([".0", ".000", "."[:0]])
    return draw.choice(["", "", "0", "000", "+"]) + text


def spelt(draw, column, text):
    """A spelling of a level that means the same."""
    if column in ("id", "num"):
        text = number_spelt(draw, text)
    if column == "name":
        text = unicodedata.normalize(draw.choice(["NFC", "NFD"]), text)
    if column == "flag":
        text = draw.choice([text, text.lower(), text.capitalize()])
    return f"{draw.choice(['', '', ' ', '  '])}{text}{draw.choice(['', '', ' '])}"


def strange(draw):
    """A text that is no level in any spelling, and no word for a missing value."""
    return "\u017f" + "".join(draw.choice("aZ0719.e+\u00e9\u0301\u00fc\u4e2d\U0001f375_'") for _ in range(draw.randrange(24))) + "q"


def drawn(draw):
    row, plain, known = {}, {}, True
    for column in draw.sample(list(LEVELS), draw.randrange(1, 4)):
        level = draw.choice(LEVELS[column])
        unknown = draw.random() < 0.15
        row[column] = strange(draw) if unknown else spelt(draw, column, level)
        plain[column] = level
        known = known and not unknown
    if draw.random() < 0.5:
        plain["x"] = f"{draw.randrange(1, 9999) / 1000}"
        row["x"] = number_spelt(draw, plain["x"])
    same = all(row[c] == plain[c] for c in row if c in LEVELS)
    return Row(row, plain if known else "empty", None, None if known and same else "empty")


# ---- files ---------------------------------------------------------------------------------------------------------

def field(text, separator):
    return '"' + text.replace('"', '""') + '"' if separator in text or '"' in text or text != text.strip() or not text \
        else text


def text_of(rows, columns, separator=",", end="\n", begin=""):
    lines = [columns] + [[row[c] for c in columns] for row in rows]
    return begin + "".join(separator.join(field(v, separator) for v in line) + end for line in lines)


def forms(columns):
    """(name, write) for each form of a file: write(rows) gives its bytes; None: it cannot have these rows."""
    other = list(reversed(columns))

    def coded(text, code):
        return text.encode(code)
    return [
        ("commas", lambda r: coded(text_of(r, columns), "utf-8")),
        ("CRLF", lambda r: coded(text_of(r, columns, end="\r\n"), "utf-8-sig")),
        ("semicolons", lambda r: coded(text_of(r, columns, ";"), "utf-8")),
        ("tabs", lambda r: coded(text_of(r, columns, "\t"), "utf-8")),
        ("bars", lambda r: coded(text_of(r, columns, "|"), "utf-8")),
        ("blanks", lambda r: coded(text_of(r, columns, " "), "utf-8")),
        ("sep=;", lambda r: coded(text_of(r, columns, ";", begin="sep=;\n"), "utf-8")),
        ("UTF-16 little", lambda r: b"\xff\xfe" + coded(text_of(r, columns, "\t"), "utf-16-le")),
        ("UTF-16 big", lambda r: b"\xfe\xff" + coded(text_of(r, columns, ";"), "utf-16-be")),
        ("Latin-1", lambda r: coded(text_of(r, columns, ";"), "latin-1")),
        ("gzip", lambda r: gzip.compress(coded(text_of(r, columns), "utf-8"))),
        ("permuted", lambda r: coded(text_of(r, other), "utf-8")),
        ("added", lambda r: coded(text_of([{**row, "more": f"m{i}", "": "1"} for i, row in enumerate(r)],
                                          ["more", *other, "more2"][:-1]), "utf-8")),
    ]


def train_table(holes):
    draw = random.Random(7)
    rows = []
    for i in range(240):
        row = {c: draw.choice(levels) for c, levels in LEVELS.items()}
        row["x"], row["ms"] = f"{draw.gauss(0, 2):.3f}", str(1764364143000 + draw.randrange(60000))
        score = sum(len(LEVELS[c]) - 2 * LEVELS[c].index(row[c]) for c in LEVELS) + float(row["x"]) * 2
        row["kind"] = "high" if score + (int(row["ms"]) - 1764364173000) / 1e4 > 2 else "low"
        if holes and i > 9:
            row[draw.choice([*LEVELS, *NUMBERS, "kind2"])] = ""
        row.pop("kind2", None)
        rows.append(row)
    return text_of(rows, [*BASE, "kind"]).encode("latin-1")


# ---- who predicts --------------------------------------------------------------------------------------------------

def run(command, folder):
    return subprocess.run([str(c) for c in command], cwd=folder, capture_output=True, text=True)


def by_cli(env, folder, name, data, count):
    (folder / name).write_bytes(data)
    done = run([env.trainer, "predict", "model.safetensors", name, "--to", "out.csv"], folder)
    if done.returncode not in (0, 65) or "no prediction" not in done.stderr and done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-800:]}")
    with open(folder / "out.csv") as file:
        header, *rows = csv.reader(file)
    shares = [i for i, column in enumerate(header) if column.startswith("p_")]
    (folder / "out.csv").unlink()
    found = [[float(row[i]) if row[i] else math.nan for i in shares] for row in rows]
    empty = sum(row[1] == "" for row in rows)
    assert len(rows) == count, f"{name}: {len(rows)} rows"
    assert (done.returncode == 65) == (empty > 0), f"{name}: exit status {done.returncode}, {empty} empty rows"
    assert not empty or re.search(rf"\b{empty} of {count} rows ha(s|ve) no prediction", done.stderr), done.stderr
    return np.array(found)


def by_c(env, folder, rows):
    """The C program has no quotes: the texts reach ls_model_row as they are here."""
    columns = list(reversed(BASE))
    lines = [",".join(columns)] + [",".join(row[c] for c in columns) for row in rows]
    (folder / "plain.txt").write_text("".join(line + "\n" for line in lines))
    done = run([env.program, "model.safetensors", "table", "plain.txt"], folder)
    if done.returncode:
        return done.stderr
    return np.array([[float(v) for v in line.split()] for line in done.stdout.splitlines()])


def by_http(env, folder, rows, classes):
    """Each row is a JSON object of texts. The service answers a row without outputs with an error of its own."""
    sys.path.insert(0, str(HERE.parent / "service"))
    from running import Service, curl
    service = Service(env.service, HERE.parent / "service" / "config.json", folder / "state",
                      "--set", "devices=cpu:1", "--model", str(folder / "model.safetensors"), "--body", str(1 << 24))
    try:
        service.ready()
        answer = curl(service.url + "/rows", "-H", "Content-Type: application/json", "--data-binary", "@-",
                      data=json.dumps(rows).encode())
        found = answer.json()["predictions"]
    finally:
        assert service.end() == 0, service.said()
    for row in found:
        assert "probabilities" in row or "no training row" in row["error"], row
    return np.array([[row["probabilities"][c] if "probabilities" in row else math.nan for c in classes] for row in found])


def typed(column, text):
    """The value that a user's program has in place of a text."""
    if text == "":
        return None
    if column in NUMBERS:
        return float(text)
    if column == "flag" and text in ("TRUE", "FALSE"):
        return text == "TRUE"
    return int(text) if column in ("id", "num") and text.isdigit() else float(text) if column == "num" else text


def by_onnx(env, folder, rows):
    """None for a row that the caller cannot even pass: a text that is no number."""
    import onnxruntime
    done = run([env.trainer, "export", "model.safetensors", "--to", "model.onnx"], folder)
    assert done.returncode == 0, done.stderr
    session = onnxruntime.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    told = json.loads(session.get_modelmeta().custom_metadata_map["inputs"])

    def number(text):
        return math.nan if text.strip() in ("", "None", "NA") else float(text)
    with np.errstate(over="ignore"):
        feed = {i["name"]: np.array([[r[i["column"]]] for r in rows], object) if i["type"] == "string" else
                np.array([[number(r[i["column"]])] for r in rows]).astype(i["type"]) for i in told}
    return session.run(["probabilities"], feed)[0]


# ---- all of it -----------------------------------------------------------------------------------------------------

class Checker:
    def __init__(self, answers, failures):
        self.answers, self.failures = answers, failures

    def check(self, face, rows, found, key):
        if isinstance(found, str):
            self.failures.append(f"{face}: {found[:300]}")
            return
        for row, got in zip(rows, found, strict=True):
            want = row.answers[key]
            ours = np.full(len(got), math.nan) if want == "empty" else self.answers[json.dumps(want)]
            if not (np.isnan(got).all() if want == "empty" else np.abs(got - ours).max() <= BOUND):
                changed = {c: v for c, v in row.fields.items() if v != BASE[c]}
                self.failures.append(f"{face}: {changed}: expected {want if want == 'empty' else ours}, found {got}")


def train(env, folder, holes, rows, labels, file):
    """Trains with the rows as its test table, and checks what the run recorded about them."""
    (folder / "train.csv").write_bytes(train_table(holes))
    (folder / "test.csv").write_bytes(file([{**row.fields, "kind": label} for row, label in zip(rows, labels)]))
    config = {"data": {"name": "csv", "path": "train.csv", "test_path": "test.csv", "target": "kind", "clip": 10,
                       "encoding": "latin-1", "categorical": list(LEVELS), **({"missing": "mean"} if holes else {})},
              "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 12}, {"type": "relu"},
                                   {"type": "dense", "out": 2}]},
              "batch_size": 24, "epochs": 2, "seed": 3, "devices": "cpu:1", "optimizer": {"name": "adamw", "lr": 0.005}}
    (folder / "config.json").write_text(json.dumps(config))
    shutil.rmtree(folder / "run", ignore_errors=True)
    done = run([env.trainer, "config.json", "--quiet", "--set", "run_dir=run"], folder)
    if done.returncode:
        raise RuntimeError(done.stderr[-900:])
    records = [json.loads(line) for line in (folder / "run" / "metrics.jsonl").read_text().splitlines()]
    shutil.copy(folder / "run" / "weights.safetensors", folder / "model.safetensors")
    start = next(r for r in records if r["type"] == "run_start")["data"]
    return start, [r for r in records if r["type"] == "eval"][-1]["test_loss"]


def check_test_table(face, rows, labels, holes, answers, told, failures):
    start, loss = told
    known = [(row.answers[holes], label) for row, label in zip(rows, labels) if row.answers[holes] != "empty"]
    want = -np.mean([math.log(answers[json.dumps(a)][["high", "low"].index(label)]) for a, label in known])
    left = len(rows) - len(known)
    if (start["test_rows"], start.get("test_rows_left_out", 0)) != (len(known), left):
        failures.append(f"{face}: expected {len(known)} test rows and {left} left out, found {start}")
    if not abs(loss - want) < 1e-4:
        failures.append(f"{face}: expected the loss {want}, found {loss}")


def check_refused(env, folder, row, failures, model):
    (folder / "refused.csv").write_text(text_of([{**row.fields, "kind": "low"}], [*BASE, "kind"]))
    said = [run([env.trainer, "predict", "model.safetensors", "refused.csv", "--to", "out.csv"], folder),
            run([env.trainer, "config.json", "--set", "run_dir=null", "--set", "data.test_path=refused.csv"], folder)]
    for done in said:
        if done.returncode != 65 or "expected a number" not in done.stderr or (folder / "out.csv").exists():
            failures.append(f"refused {row.fields['x']}: {done.args[1]}: {done.returncode}: {done.stderr}")
    if "expected a number" not in str(by_c(env, folder, [row.fields])):
        failures.append(f"refused {row.fields['x']}: C took it")
    for form in ([row.fields], folder / "refused.csv"):
        try:
            model.predict(form)
            failures.append(f"refused {row.fields['x']}: Python took it")
        except Exception as error:  # noqa: BLE001
            if "expected a number" not in str(error):
                failures.append(f"refused {row.fields['x']}: {error}")


def check_missing_column(env, folder, model, failures):
    """A file without a column of the model is refused, and the message names the column."""
    columns = [c for c in BASE if c != "flag"]
    (folder / "fewer.csv").write_text(text_of([BASE], columns))
    done = run([env.trainer, "predict", "model.safetensors", "fewer.csv"], folder)
    said = [done.stderr if done.returncode == 65 else "", ]
    for form in ({c: BASE[c] for c in columns}, folder / "fewer.csv"):
        try:
            model.predict(form)
        except Exception as error:  # noqa: BLE001
            said.append(str(error))
    (folder / "plain.txt").write_text(",".join(columns) + "\n" + ",".join(BASE[c] for c in columns) + "\n")
    said.append(run([env.program, "model.safetensors", "table", "plain.txt"], folder).stderr)
    if len(said) != 4 or not all('"flag"' in text for text in said):
        failures.append(f"a missing column: {said}")


def check_zero_byte(env, folder, model, failures):
    """A text with a zero byte is refused: for C it would end there, and be another text."""
    row = {**BASE, "word": BASE["word"] + "\0more"}
    (folder / "zero.csv").write_text(text_of([row], list(BASE)))
    said = [run([env.trainer, "predict", "model.safetensors", "zero.csv"], folder).stderr]
    for form in ([row], folder / "zero.csv"):
        try:
            said.append(f"taken: {model.predict(form)}")
        except Exception as error:  # noqa: BLE001
            said.append(str(error))
    if not all("zero byte" in text for text in said):
        failures.append(f"a zero byte: {said}")


def check_python(model, folder, rows, plain, checker, holes, name, read):
    checker.check("Python, list of dicts", rows, model.predict([row.fields for row in rows]), holes)
    checker.check("Python, dict of lists", rows,
                  model.predict({c: [row.fields[c] for row in rows] for c in reversed(BASE)}), holes)
    values = [{c: typed(c, v) for c, v in row.fields.items()} for row in plain]
    checker.check("Python, values", plain, model.predict(values), holes)
    try:
        import pandas
    except ImportError:
        pandas = None
    if pandas:
        checker.check("pandas, texts", rows, model.predict(pandas.DataFrame([row.fields for row in rows])), holes)
        frame = pandas.DataFrame(values).astype({"id": object, "name": object})
        checker.check("pandas, values", plain, model.predict(frame), holes)
    for form, of_form in read:
        checker.check(f"Python, {form}", of_form, model.predict(folder / f"{form}.csv"), holes)


def check_model(env, holes, rows, folder, failures):
    import lockstep_trainer as lockstep
    refused = [row for row in rows if row.answers[holes] == "refused"]
    rows = [row for row in rows if row.answers[holes] != "refused"]
    labels = [("high", "low")[i % 2] for i in range(len(rows))]
    kinds = dict(forms([*BASE, "kind"]))
    told = train(env, folder, holes, rows, labels, kinds["commas"])
    plain = {json.dumps(a): a for row in rows for a in row.answers.values() if a not in ("empty", "refused")}
    known = by_cli(env, folder, "plain.csv", dict(forms(list(BASE)))["commas"](plain.values()), len(plain))
    answers = dict(zip(plain, known))
    assert np.isfinite(known).all() or not holes, "a plain row has no prediction"
    first = [k for k in dict.fromkeys(json.dumps(r.answers[holes]) for r in rows[:len(TABLE["rows"])]) if k in answers]
    apart = min(np.abs(answers[a] - answers[b]).max() for i, a in enumerate(first) for b in first[:i])
    assert apart > 10 * BOUND, f"plain rows are {apart} apart: a wrong one would not be noticed"
    checker = Checker(answers, failures)
    check_test_table("test table", rows, labels, holes, answers, told, failures)
    read = []
    for form, write in forms(list(BASE)) if holes else forms(list(BASE))[:1]:
        of_form = [r for r in rows if form != "Latin-1" or all(ord(c) < 256 for v in r.fields.values() for c in v)]
        checker.check(form, of_form, by_cli(env, folder, f"{form}.csv", write([r.fields for r in of_form]), len(of_form)),
                      holes)
        read.append((form, of_form))
    checker.check("C", rows, by_c(env, folder, [row.fields for row in rows]), holes)
    if env.service:
        checker.check("HTTP", rows, by_http(env, folder, [row.fields for row in rows], ("high", "low")), holes)
    if env.onnx:
        checker.check("ONNX", rows, by_onnx(env, folder, [row.fields for row in rows]), (holes, "onnx"))
    whole = [Row({}, a) for a in plain.values() if holes or "" not in a.values()]
    for row, a in zip(whole, (a for a in plain.values() if holes or "" not in a.values())):
        row.fields, row.answers[holes] = a, a
    with lockstep.Model.open(folder / "model.safetensors") as model:
        check_python(model, folder, rows, whole, checker, holes, "model", read)
        for row in refused if holes else []:
            check_refused(env, folder, row, failures, model)
        check_missing_column(env, folder, model, failures)
        check_zero_byte(env, folder, model, failures)
    if holes:
        told = train(env, folder, holes, rows, labels, dict(forms([*BASE, "kind"]))["added"])
        check_test_table("test table with more columns", rows, labels, holes, answers, told, failures)
    return len(rows) + len(refused)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("trainer", type=lambda name: Path(name).resolve())
    parser.add_argument("program", type=lambda name: Path(name).resolve())
    parser.add_argument("library", type=Path)
    parser.add_argument("--service", type=lambda name: Path(name).resolve())
    parser.add_argument("--drawn", type=int, default=60)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--needs-onnxruntime", action="store_true")
    env = parser.parse_args()
    draw, failures = random.Random(env.seed), []
    rows = [Row(r["row"], r["as"], r.get("holes_refused"), r.get("onnx")) for r in TABLE["rows"]]
    rows += [drawn(draw) for _ in range(env.drawn)]
    try:
        import onnxruntime  # noqa: F401
        env.onnx = True
    except ImportError:
        env.onnx = False
    if env.needs_onnxruntime and not env.onnx:
        print("skipped: there is no onnxruntime")
        return 77
    with tempfile.TemporaryDirectory() as scratch:
        package = Path(scratch, "package", "lockstep_trainer")  # as a wheel has it, with the library in it
        shutil.copytree(HERE.parents[1] / "src/python/lockstep_trainer", package,
                        ignore=shutil.ignore_patterns("__pycache__", "lib"))
        (package / "lib").mkdir()
        shutil.copy(env.library.resolve(), package / "lib" / "liblockstep.so.0")
        sys.path.insert(0, str(package.parent))
        for holes in (True, False):
            folder = Path(scratch, "holes" if holes else "whole")
            folder.mkdir()
            count = check_model(env, holes, rows, folder, failures)
            print(f"{'with' if holes else 'without'} missing values: {count} rows, "
                  f"{'with' if env.onnx else 'without'} ONNX Runtime, {len(failures)} failures", flush=True)
    for failure in failures[:40]:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
