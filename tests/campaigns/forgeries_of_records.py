# SPDX-License-Identifier: MIT
"""Forgeries of metrics.jsonl. See forge.py."""
import re
import struct

import forgery as F
from forged_run import compact
from forgery import NOTICED, found, nothing

ALL = F.Forgeries()
FORGERIES = ALL.list
DRAWN = "has the run's directory and own data; --segments 0"


def line(number):
    return found(rf"metrics\.jsonl:{number}\b")


def next_float(value):
    """The neighbour of a float, with the digits that records have."""
    bits = struct.unpack("<I", struct.pack("<f", value))[0] + 1
    return float(f"{struct.unpack('<f', struct.pack('<I', bits))[0]:.9g}")


def next_double(value):
    return struct.unpack("<d", struct.pack("<q", struct.unpack("<q", struct.pack("<d", value))[0] + 1))[0]


def other(value, single):
    if isinstance(value, bool):
        return not value
    if isinstance(value, float):
        return next_float(value) if single else next_double(value)
    if isinstance(value, int):
        return value + 1
    if isinstance(value, str):
        return value + "x"
    if isinstance(value, list):
        return [other(value[0], single)] + value[1:]
    if isinstance(value, dict):
        key = next(iter(value))
        return {**value, key: other(value[key], single)}
    return 0.5


VARIES = ("images_per_s", "workers", "seconds", "time", "devices", "device_model", "instruction_set", "device_bytes",
          "batch_per_device", "seconds_per_epoch", "checkpoint", "lockstep")
NUMBERS = {"step": "step", "epoch": "epoch", "eval": "epoch"}  # the key that says which record it is
FIELDS = {
    "csv": {"step": ("step", "epoch", "rows", "loss", "correct", "lr", "images_per_s", "workers"),
            "epoch": ("epoch", "train_loss", "train_accuracy", "seconds", "images_per_s"),
            "eval": ("epoch", "test_loss", "test_accuracy", "best", "test_auc", "test_average_precision", "test_f1",
                     "precision", "recall", "confusion", "seconds"),
            "run_start": ("time", "lockstep", "devices", "device_model", "instruction_set", "library", "shards",
                          "batch_size", "batch_per_device", "parameters", "parameter_bytes", "device_bytes", "data"),
            "run_end": ("time", "status", "epochs", "steps", "test_accuracy", "seconds_per_epoch", "devices", "synthetic",
                        "checkpoint", "weights_sha256")},
    "npy": {"step": ("loss", "grad_norm"), "eval": ("test_loss", "test_mae", "test_r2", "test_r2_mean", "test_r2_each")},
    "weighted": {"eval": ("unweighted", "test_loss"), "run_end": ("stopped_early",)},
}


def number_of(of, kind):
    """Which record of this type is forged: one in the middle."""
    return {"step": 149, "epoch": 74, "eval": 3 if of == "csv" else 2}.get(kind, 0)


def field(of, kind, key):
    def make(_world, run):
        at = run.line_of(kind, number_of(of, kind))

        def edit(record):
            record[key] = other(record[key], kind == "step")
        run.edit_record(at, edit)
    if key in VARIES:
        return make, nothing(F.BESIDES)
    if key == "library":
        return make, nothing(F.KERNELS)
    if key == NUMBERS.get(kind):  # a record with another number is one that is missing
        return make, found(rf"metrics\.jsonl.*: the record {kind} \d+ is missing")
    return make, found(rf"metrics\.jsonl:\d+: the record {kind}")


for of, kinds in FIELDS.items():
    for kind, keys in kinds.items():
        for key in keys:
            make, expect = field(of, kind, key)
            ALL.add(f"record {kind} of {of}: {key}", make, f"changes {key} of one record {kind}, by an ulp if it is a "
                    "number with a fraction", expect, of=of, long=key in VARIES or of != "csv")


def whole(change):
    """Changes the list of lines."""
    def make(_world, run):
        run.put_lines(change(run, run.lines()))
    return make


def moved(lines, start, end):
    lines[start], lines[end] = lines[end], lines[start]
    return lines


def without(lines, at):
    del lines[at]
    return lines


def inserted(lines, at, text):
    return lines[:at] + [text] + lines[at:]


STEP = 60
EXTRA = compact({"type": "eval", "epoch": 175, "test_loss": 0.001, "test_accuracy": 1.0, "best": True,
                 "seconds": 0.1}).encode()
RESUME = compact({"type": "resume", "time": "2026-01-01T00:00:00Z", "lockstep": "0.3.0", "step": 200, "epochs": 175,
                  "missing_records": 100}).encode()
LINES = [("a step is missing", lambda run, lines: without(lines, STEP), found(r"metrics\.jsonl")),
         ("an evaluation is missing", lambda run, lines: without(lines, run.line_of("eval", 2)), found(r"metrics\.jsonl")),
         ("an epoch is missing", lambda run, lines: without(lines, run.line_of("epoch", 9)), found(r"metrics\.jsonl")),
         ("the last evaluation is missing", lambda run, lines: without(lines, run.line_of("eval", -1)),
          found(r"metrics\.jsonl")),
         ("a step twice", lambda run, lines: inserted(lines, STEP, lines[STEP]), found(r"metrics\.jsonl")),
         ("two steps swapped", lambda run, lines: moved(lines, run.line_of("step", 20), run.line_of("step", 21)),
          found(r"metrics\.jsonl")),
         ("the first half cut", lambda run, lines: lines[len(lines) // 2:], found(r"metrics\.jsonl")),
         ("the second half cut", lambda run, lines: lines[:len(lines) // 2], found(r"metrics\.jsonl")),
         ("the last step and all after it cut", lambda run, lines: lines[:run.line_of("step", -1)],
          found(r"metrics\.jsonl")),
         ("everything cut", lambda run, lines: [], found(r"metrics\.jsonl")),
         ("a middle part cut", lambda run, lines: lines[:100] + lines[200:], found(r"metrics\.jsonl")),
         ("a better evaluation is added at the end", lambda run, lines: lines + [EXTRA], found(r"metrics\.jsonl")),
         ("a better evaluation is added before the last", lambda run, lines: inserted(lines, run.line_of("eval", -1), EXTRA),
          found(r"metrics\.jsonl")),
         ("a better evaluation is added after the first step", lambda run, lines: inserted(lines, 2, EXTRA),
          found(r"metrics\.jsonl")),
         ("steps of a longer run are added", lambda run, lines: lines + [lines[1].replace(b'"step":1,', b'"step":351,')],
          found(r"metrics\.jsonl")),
         ("all records of another run", None, found(r"metrics\.jsonl")),
         ("a half line", lambda run, lines: lines[:-1] + [lines[-1][:20]], NOTICED),
         ("a line that is no JSON", lambda run, lines: inserted(lines, 50, b"{loss: 0}"), NOTICED),
         ("a line of 100 MB", lambda run, lines: inserted(lines, 50, b'{"type":"x","y":"' + b"z" * 100000000 + b'"}'),
          NOTICED),
         ("a million brackets", lambda run, lines: inserted(lines, 50, b"[" * 1000000), NOTICED),
         ("an array", lambda run, lines: inserted(lines, 50, b"[1]"), NOTICED),
         ("blank lines", lambda run, lines: inserted(lines, 50, b""), NOTICED)]


def records_of_another(world, run):
    import forgeries_of_training
    other_run = forgeries_of_training.another(world, seed=4)
    run.put_lines(run.lines()[:1] + other_run.lines()[1:])


for name, change, expect in LINES:
    ALL.add(f"records: {name}", whole(change) if change else records_of_another, f"metrics.jsonl: {name}", expect,
            long=name in ("a line of 100 MB", "a middle part cut", "an array", "blank lines"))


@ALL.of("records: a resume that says that records are missing", "cuts 100 records, and adds a record that says so",
        ("nothing", F.MISSING, r"record"))
def _(_world, run):
    lines = run.lines()
    run.put_lines([RESUME] + lines[-120:])


def text_in(kind, number, old, new):
    def make(_world, run):
        lines = run.lines()
        at = run.line_of(kind, number)
        after = re.sub(old, new, lines[at], count=1)
        assert after != lines[at]
        lines[at] = after
        run.put_lines(lines)
    return make


for name, old, new, expect in (
        ("the loss twice, the forged one first", rb'"loss":', b'"loss":0.001,"loss":', NOTICED),
        ("the loss twice, the forged one last", rb',"lr"', b',"loss":0.001,"lr"', NOTICED),
        ("the loss twice, once with an escape", rb'"loss":', b'"l\\\\u006fss":0.001,"loss":', NOTICED),
        ("the loss in capitals too", rb'"loss":', b'"LOSS":0.001,"loss":', nothing(F.BESIDES)),
        ("an unknown key", rb'"loss":', b'"perplexity":0.001,"loss":', nothing(F.BESIDES)),
        ("the type twice", rb'"type":"step"', b'"type":"note","type":"step"', NOTICED),
        ("another type", rb'"type":"step"', b'"type":"Step"', found(r"metrics\.jsonl")),
        ("the loss as text", rb'"loss":([\d.]+)', rb'"loss":"\1"', found(r"metrics\.jsonl")),
        ("the loss is null", rb'"loss":([\d.]+)', b'"loss":null', found(r"metrics\.jsonl")),
        ("the loss is missing", rb'"loss":([\d.]+),', b"", found(r"metrics\.jsonl")),
        ("the loss is 1e999", rb'"loss":([\d.]+)', b'"loss":1e999', NOTICED),
        ("the loss is NaN", rb'"loss":([\d.]+)', b'"loss":NaN', NOTICED),
        ("the loss is negative", rb'"loss":', b'"loss":-', found(r"metrics\.jsonl")),
        ("the loss a double beside the float", rb'"loss":([\d.]+)', rb'"loss":\g<1>00001', found(r"metrics\.jsonl")),
        ("the number of correct rows with a fraction", rb'"correct":(\d+)', rb'"correct":\1.25', found(r"metrics\.jsonl")),
        ("an exponent that changes nothing", rb'"correct":(\d+)', rb'"correct":\1e0', nothing("to the last bit"))):
    ALL.add(f"text of a record: {name}", text_in("step", 30, old, new), f"record of a step: {name}", expect,
            long=name not in ("the loss twice, the forged one first", "the loss twice, the forged one last", "an unknown key"))


# ---- of segments that are not drawn --------------------------------------------------------------

def edit_step(number):
    def make(_world, run):
        run.edit_record(run.line_of("step", number), lambda r: r.update(loss=0.001))
        return [run.dir, "--segments", "0"]
    return make


ALL.add("drawn: a record of a segment that is not drawn", edit_step(149), "changes the loss of a step in segment 2",
        nothing(F.NOT_DRAWN), verifier=DRAWN)
ALL.add("drawn: a record of the first segment", edit_step(49), "changes the loss of a step in segment 1", line(75),
        verifier=DRAWN)
ALL.add("drawn: a record of the last segment", edit_step(340), "changes the loss of a step in the last segment",
        found(r"metrics\.jsonl"), verifier=DRAWN)
ALL.add("drawn: the final evaluation's record", lambda world, run: (run.edit_record(
    run.line_of("eval", -1), lambda r: r.update(test_accuracy=1.0)), [run.dir, "--segments", "0"])[1],
    "changes the accuracy of the last evaluation", found(r"metrics\.jsonl"), verifier=DRAWN)


@ALL.of("config in the first record: another seed", "changes the seed in the first record", found(r"metrics\.jsonl"))
def _(_world, run):
    run.edit_record(0, lambda r: r["config"].update(seed=4))


@ALL.of("config in the first record: none", "removes the config from the first record", NOTICED)
def _(_world, run):
    run.edit_record(0, lambda r: r.pop("config"))


@ALL.of("config in the first record: behind a record of a fault", "puts a record that is not compared before the first, "
        "and another seed into it", found(r"metrics\.jsonl:1\b"))
def _(_world, run):
    run.edit_record(0, lambda r: r["config"].update(seed=4))
    run.put_lines([b'{"type":"arrival","step":0}'] + run.lines())


@ALL.of("records: a step excuses what is missing", "leaves steps out, and gives the next one the key missing_records",
        found(r"metrics\.jsonl.*missing"))
def _(_world, run):
    lines = run.lines()
    at = run.line_of("step", 120)
    run.put_lines(lines[:at - 30] + lines[at:])
    run.edit_record(at - 30, lambda r: r.update(missing_records=30))


@ALL.of("run_end: better than it was", "changes the accuracy of the last record", found(r"metrics\.jsonl"), long=True)
def _(_world, run):
    run.edit_record(run.line_of("run_end", -1), lambda r: r.update(test_accuracy=0.99))
