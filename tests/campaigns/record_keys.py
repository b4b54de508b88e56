#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The keys of records that two runs with the same bits have alike, read from the table of keys in
src/records/record.c: all but those that it marks VARIES, as times and devices.

    record_keys.py      checks that the table is understood
"""
import re
from pathlib import Path

SOURCES = Path(__file__).resolve().parents[2] / "src"
TABLE = SOURCES / "records" / "record.c"
SCHEMA = SOURCES / "train" / "README.md"
COMPARED = ("step", "epoch", "eval")


def read_table(text):
    """{type: {key: whether it varies}} of the records whose types the rows name by IN(TYPE)."""
    keys = {}
    for types, key, rest in re.findall(r'\{(IN\(\w+\)(?:\s*\|\s*IN\(\w+\))*),\s*"(\w+)",(.*?)\},\n', text, re.DOTALL):
        for name in re.findall(r"IN\((\w+)\)", types):
            keys.setdefault(name.lower(), {})[key] = "VARIES" in rest
    return keys


KEYS = read_table(TABLE.read_text(encoding="utf-8"))


def timeless(record):
    """A record without what varies; None: one of a type that is not compared."""
    if record["type"] not in COMPARED:
        return None
    varies = KEYS[record["type"]]
    return {key: value for key, value in record.items() if key == "type" or not varies[key]}


def described(schema, name):
    """The keys in the table of the records of one type in `schema`, the text of SCHEMA."""
    section = re.search(rf"^### {name}\n(.*?)^###? ", schema, re.DOTALL | re.MULTILINE).group(1)
    rows = re.findall(r"^\| (`.*?) \|", section, re.MULTILINE)
    return {key for row in rows for key in re.findall(r"`(\w+)`", row)}


def main():
    step = {"type": "step", "step": 1, "epoch": 1, "rows": 2, "loss": 0.5, "correct": 1, "lr": 0.1, "images_per_s": 7.0,
            "workers": []}
    same = {**step, "images_per_s": 8.0, "workers": [{}]}
    other = {**step, "loss": 0.25}
    best = {"type": "eval", "epoch": 1, "test_loss": 1.0, "test_accuracy": 0.5, "best": True, "seconds": 1.0}
    assert timeless(step) == timeless(same) != timeless(other)
    assert timeless(best) == timeless({**best, "seconds": 2.0}) != timeless({**best, "best": False})
    assert timeless({"type": "fault", "step": 1}) is None
    schema = SCHEMA.read_text(encoding="utf-8")
    for name in ("epoch", "eval", "fault", "nonfinite"):  # the types whose records contain no objects with rows here
        assert set(KEYS[name]) == described(schema, name) != set(), (name, KEYS[name])


if __name__ == "__main__":
    main()
