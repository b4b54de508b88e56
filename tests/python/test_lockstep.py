# SPDX-License-Identifier: MIT
"""Tests the wheel as a user has it: installed into an environment of its own, without the
repository.
"""
import base64
import datetime
import importlib.metadata
import json
import os
import re
import signal
import struct
import subprocess
import sys
import threading
import time
import zlib
from decimal import Decimal
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest

import lockstep_trainer as lockstep
from lockstep_trainer import _library

CONFIG = {
    "name": "small", "data": {"mean": 0.3, "std": 0.3}, "batch_size": 32, "epochs": 6, "devices": "cpu:2",
    "model": {"layers": [{"type": "conv2d", "out": 4, "kernel": 3}, {"type": "relu"},
                         {"type": "flatten"}, {"type": "dense", "out": 3}]},
    "init": "kaiming", "optimizer": {"name": "sgd", "lr": 0.1, "momentum": 0.9}}


def stripes(n, seed=0):
    """Images of 8 × 8 that are bright above, in the middle or below, which is their class."""
    draw = np.random.default_rng(seed)
    y = draw.integers(0, 3, n)
    x = draw.integers(0, 90, (n, 8, 8), dtype=np.uint8)
    for i, label in enumerate(y):
        x[i, 3 * label:3 * label + 2] += 120
    return x, y


def trainer(**more):
    return lockstep.Trainer(CONFIG, data=stripes(320), test=stripes(90, 1), **more)


def test_what_was_learnt_is_predicted_from_the_file_alone(tmp_path):
    x, y = stripes(50, 2)
    file = tmp_path / "model.safetensors"
    with trainer() as t:
        result = t.fit(save=file)
        assert result.epochs == 6 and result.test_accuracy > 0.95
        assert t.evaluate()[1] == result.test_accuracy
        named = t.evaluate(metrics=True)
        assert named["accuracy"] == result.test_accuracy and 0.95 < named["auc"] <= 1 and named["rows"] > 0
        want = t.predict(x)
    with lockstep.Model.open(file) as model:
        assert model.shape == (1, 8, 8) and model.class_names == ["0", "1", "2"]
        p = model.predict(x)
        logits = model.predict(x, logits=True)
        assert (p == want).all() and (p.argmax(1) == y).mean() > 0.9
        assert np.allclose(p.sum(1), 1) and (logits.argmax(1) == p.argmax(1)).all()
        model.save(tmp_path / "again.safetensors")
        (tmp_path / "link.onnx").symlink_to("later.onnx")
        model.export(tmp_path / "link.onnx")
        model.export(tmp_path / "file.onnx")
        assert (tmp_path / "link.onnx").is_symlink()
        assert (tmp_path / "later.onnx").read_bytes() == (tmp_path / "file.onnx").read_bytes() != b""
        with pytest.raises(lockstep.Error, match="expected the name of a file, found a directory"):
            model.export(tmp_path)
    with lockstep.Model.open(tmp_path / "again.safetensors") as again:
        assert (again.predict(x) == want).all()
    with pytest.raises(ValueError, match="closed"):
        model.predict(x)


def test_any_number_of_workers_gives_the_same_weights():
    hashes = set()
    for workers in (1, 2, 3):
        with trainer(set={"devices": f"cpu:{workers}", "epochs": 2}) as t:
            hashes.add(t.fit().weights_sha256)
    assert len(hashes) == 1 and len(hashes.pop()) == 64


def test_steps_take_rows_as_they_come():
    x, y = stripes(32 * 60, 3)
    with lockstep.Trainer(CONFIG, shape=(1, 8, 8), classes=3) as t:
        steps = [t.step(x[i:i + 32], y[i:i + 32]) for i in range(0, len(x), 32)]
        assert steps[-1][0] < steps[0][0] / 2 and steps[-1][1] > 0.9
        assert (t.predict(x[:100]).argmax(1) == y[:100]).mean() > 0.9
        with pytest.raises(ValueError, match="expected rows"):
            t.step(x[:32, :7], y[:32])
        with pytest.raises(lockstep.Error) as wrong:
            t.step(x[:31], y[:31])
        assert wrong.value.status == "LS_EINVAL"


def test_weights_of_rows_a_rate_and_a_state(tmp_path):
    x, y = stripes(64, 3)
    hashes, losses = set(), set()
    for weight in (None, 1, 2):  # of resident rows, and of those of steps
        w = None if weight is None else [weight] * 64
        with lockstep.Trainer(CONFIG, data=(x, y), weights=w, set={"epochs": 1}) as t:
            hashes.add(t.fit().weights_sha256)
        with lockstep.Trainer(CONFIG, shape=(1, 8, 8), classes=3, weighted=w is not None) as t:
            losses.add(t.step(x[:32], y[:32], w and w[:32]))
            if w:
                assert t.step(x[:32], y[:32], [0] * 32)[0] == 0
                with pytest.raises(lockstep.Error, match="row 3 has the weight -1"):
                    t.step(x[:32], y[:32], [1, 1, 1, -1] + [1] * 28)
                with pytest.raises(ValueError, match="a number for each of 32 rows"):
                    t.step(x[:32], y[:32], [1, 1])
            t.set_lr(0.01)
            t.save(tmp_path / "saved")
            for state in ("reset", "keep", "take"):
                t.load(tmp_path / "saved", state)
            with pytest.raises(ValueError, match="expected \"reset\", \"keep\" or \"take\", found 'none'"):
                t.load(tmp_path / "saved", "none")
    assert len(hashes) == len(losses) == 1


def test_weights_without_their_rows_are_refused():
    x, y = stripes(64, 3)
    for arguments, missing in (({"weights": [1] * 64}, "weights: .*data.weight"), ({"weighted": True}, "weighted: .*shape"),
                               ({"weights": [1] * 64, "shape": (1, 8, 8), "classes": 3}, "weights: .*weighted=True"),
                               ({"data": (x, y), "test_weights": [1] * 64}, "test_weights: .*`test`")):
        with pytest.raises(ValueError, match=missing):
            lockstep.Trainer({**CONFIG, "data": {"name": "synthetic"}}, **arguments)


def test_metrics_have_the_weights_of_rows():
    x, y = stripes(64, 3)
    with lockstep.Trainer(CONFIG, data=(x, y), test=(x, y), test_weights=[0.5] * 32 + [2] * 32, weights=[1] * 64,
                          set={"epochs": 1}) as t:
        t.fit()
        found, right = t.evaluate(metrics=True), t.predict(x).argmax(1) == y
        assert found["accuracy"] == pytest.approx((right[:32].sum() + 4 * right[32:].sum()) / 160)
        assert found["unweighted"]["accuracy"] == pytest.approx(right.mean())
        assert "auc" in found["unweighted"] and "loss" not in found["unweighted"]
    with lockstep.Trainer(CONFIG, data=(x, y), test=(x, y), set={"epochs": 1}) as t:
        t.fit()
        assert "unweighted" not in t.evaluate(metrics=True)


def test_rows_of_another_type_are_told_the_cure():
    x, y = stripes(64, 3)
    with lockstep.Trainer(CONFIG, shape=(1, 8, 8), classes=3) as t:
        with pytest.raises(ValueError, match='create the trainer with dtype="float32"'):
            t.step(x[:32].astype(np.float64), y[:32])
    with lockstep.Trainer(CONFIG, shape=(1, 8, 8), classes=3, dtype="float32") as t:
        t.step(x[:32].astype(np.float64), y[:32])
        with pytest.raises(ValueError, match='create the trainer with dtype="uint8"'):
            t.step(x[:32], y[:32])
    with pytest.raises(ValueError, match=r'convert them by .astype\("uint8"\)'):
        lockstep.Trainer(CONFIG, data=(x, y), test=(x / 255, y))


def test_other_numbers_of_rows_are_prepared_and_steps_have_a_hash():
    x, y = stripes(640, 3)
    with lockstep.Trainer(CONFIG, shape=(1, 8, 8), classes=3, step_rows=[7, 14]) as t:
        before = t.result.weights_sha256
        for n in (32, 14, 7, 14):
            t.step(x[:n], y[:n])
        with pytest.raises(lockstep.Error):
            t.step(x[:8], y[:8])
        after = t.result.weights_sha256
        assert len(before) == len(after) == 64 and before != after == t.result.weights_sha256


def test_floats_and_numbers_to_learn_are_taken_as_they_are(tmp_path):
    draw = np.random.default_rng(5)
    x = draw.normal(size=(640, 6)).astype(np.float32)
    y = np.stack([x[:, 0] - x[:, 1], 0.5 * x[:, 2]], axis=1)
    config = {"model": {"layers": [{"type": "dense", "out": 2}]}, "batch_size": 32, "epochs": 20,
              "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1}, "loss": "mse", "devices": "cpu:2"}
    with lockstep.Trainer(config, data=(x, y), test=(x[:64], y[:64])) as t:
        assert t.fit(save=tmp_path / "table").test_loss < 1e-3
    with lockstep.Model.open(tmp_path / "table") as model:
        assert np.abs(model.predict(x[:9]) - y[:9]).max() < 0.2
        with pytest.raises(ValueError, match="expected numbers that are not uint8"):
            model.predict(np.zeros((1, 6), np.uint8))
    with lockstep.Trainer(config, shape=(6, 1, 1), targets=2, dtype="float32") as t:
        first = t.step(x[:32], y[:32])[0]
        for i in range(32, 640, 32):
            loss = t.step(x[i:i + 32], y[i:i + 32])[0]
        assert loss < first / 4
    with pytest.raises(ValueError, match="expected targets"):
        lockstep.Trainer(config, data=(x, y), test=(x, y[:, 0]))


def test_targets_are_doubles_until_they_are_scaled_beside_rows_of_every_type():
    draw = np.random.default_rng(7)
    x = draw.integers(0, 256, (640, 6))
    near = np.stack([2.0 * x[:, 0] - x[:, 1], 0.25 * x[:, 2]], axis=1)
    config = {"model": {"layers": [{"type": "dense", "out": 2}]}, "batch_size": 32, "epochs": 20, "devices": "cpu:1",
              "optimizer": {"name": "adamw", "lr": 0.02}, "loss": "mse"}
    for kind in (np.uint8, np.float32, np.float64):
        rows = x.astype(kind) if kind == np.uint8 else (x / 255).astype(kind)
        for far in (near + 1.7e9, near.round().astype(np.int64) + [1.7e9, 1.7e12]):
            with lockstep.Trainer(config, data=(rows, far)) as t:
                t.fit()
                assert np.abs(t.predict(rows) - far).max() < 40
        with lockstep.Trainer(config, shape=6, targets=2, dtype=rows.dtype.name) as t:
            for i in [*range(0, 640, 32)] * 20:
                t.step(rows[i:i + 32], near[i:i + 32] + 1.7e9)
            assert np.abs(t.predict(rows) - near - 1.7e9).max() < 40


def test_only_bytes_are_divided_and_other_types_are_what_they_are():
    draw = np.random.default_rng(6)
    bits = draw.integers(0, 2, (64, 20))
    config = {"model": {"layers": [{"type": "dense", "out": 2}]}, "batch_size": 32, "epochs": 2, "devices": "cpu:1",
              "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1}}
    hashes = {}
    for kind in ("|b1", "|i1", "|u1", "<u2", ">u2", "<i4", ">i8", "<u8", "<f2", ">f4", "<f8"):
        x, y = bits.astype(kind), bits[:, 0]
        with lockstep.Trainer(config, data=(x, y), test=(x, y)) as t:
            hashes[kind] = t.fit().weights_sha256
            assert t.predict(x[:3]).shape == (3, 2)
    assert hashes.pop("|u1") not in hashes.values() and len(set(hashes.values())) == 1
    with pytest.raises(ValueError, match="expected numbers, found complex"):
        lockstep.Trainer(config, data=(bits.astype(complex), bits[:, 0]))


def test_labels_of_any_type_are_classes_and_those_beyond_32_bits_are_refused():
    x, y = stripes(64)
    hashes = set()
    for labels in (y, y.astype(np.uint64), y.astype(">i2"), y.astype(np.int8).reshape(-1, 1)):
        with lockstep.Trainer(CONFIG, data=(x, labels), test=(x, labels), set={"epochs": 1}) as t:
            hashes.add(t.fit().weights_sha256)
    assert len(hashes) == 1
    for wrong in (y + 2**32, y.astype(np.uint64) + np.uint64(2**63), y - 5, y + 2**31 - 2):
        with pytest.raises(ValueError, match="row [0-9]+: expected a class"):
            lockstep.Trainer(CONFIG, data=(x, wrong))


def test_a_shape_may_have_one_side_two_or_three():
    for shape, rows in (((20,), (32, 20)), (20, (32, 20)), ((4, 5), (32, 4, 5)), ((2, 5, 2), (32, 2, 5, 2))):
        with lockstep.Trainer({"model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 3}]},
                               "batch_size": 32, "init": {"name": "normal", "std": 0.01},
                               "optimizer": {"name": "sgd", "lr": 0.1}, "devices": "cpu:1"},
                              shape=shape, classes=3, dtype="float64") as t:
            assert t.step(np.ones(rows), np.zeros(32, int))[0] > 0
            assert t.predict(np.ones(rows)).shape == (32, 3)
    with pytest.raises(ValueError, match="shape: expected"):
        lockstep.Trainer(CONFIG, shape=(), classes=3)
    with pytest.raises(ValueError, match="expected"):
        lockstep.Trainer(CONFIG, data=(np.float32(3), np.zeros(1, int)))


TABLE = """place,year,size,answer
north,2001,5000,yes
"south, far",1999,NA,no
north,2010,4000.5,yes
east,2015,,no
,2003,5100,no
"""


def table_model(tmp_path, text=TABLE, **data):
    (tmp_path / "t.csv").write_text(text)
    config = {"model": {"layers": [{"type": "dense", "out": 2}]}, "batch_size": 4, "epochs": 3, "devices": "cpu:1",
              "optimizer": {"name": "sgd", "lr": 0.5}, "init": "kaiming",
              "data": {"name": "csv", "path": str(tmp_path / "t.csv"), "target": "answer", "standardize": True, **data}}
    with lockstep.Trainer(config) as t:
        t.fit(save=tmp_path / "table")
    (tmp_path / "t.csv").unlink()
    return lockstep.Model.open(tmp_path / "table")


def keep_threshold(source, to, threshold):
    """Copies a model file, with a threshold in its description, as `trainer eval --threshold T --keep` stores it."""
    content = source.read_bytes()
    size = struct.unpack("<Q", content[:8])[0]
    header = json.loads(content[8:8 + size])
    card = json.loads(header["__metadata__"]["lockstep_model"])
    header["__metadata__"] = {"lockstep_model": json.dumps({**card, "threshold": threshold})}
    text = json.dumps(header).encode()
    to.write_bytes(struct.pack("<Q", len(text)) + text + content[8 + size:])


def test_a_model_has_the_threshold_that_its_file_keeps(tmp_path):
    with table_model(tmp_path, missing="mean") as model:
        assert model.threshold == 0.5 and "threshold" not in model.card
        rows = [{"place": "north", "year": 2001, "size": 5000}]
        want = model.predict(rows)
        model.save(tmp_path / "plain")
    keep_threshold(tmp_path / "plain", tmp_path / "kept", 0.125)
    with lockstep.Model.open(tmp_path / "kept") as kept:
        assert kept.threshold == kept.card["threshold"] == 0.125 and (kept.predict(rows) == want).all()
        kept.save(tmp_path / "again")
    with lockstep.Model.open(tmp_path / "again") as again:
        assert again.threshold == 0.125


class Frame:
    """What a data frame of any library has."""

    def __init__(self, columns):
        self.columns, self._of = list(columns), columns

    def __getitem__(self, name):
        return np.asarray(self._of[name], object)


def test_rows_of_a_table_are_taken_in_every_form_and_give_one_number(tmp_path):
    nan = float("nan")
    with table_model(tmp_path, missing="mean") as model:
        assert model.columns == ["place", "year", "size"] and model.class_names == ["no", "yes"]
        (tmp_path / "new.csv").write_text('\ufeffsize,id,place,year\r\n5000, 7 ,north,2001\r\nNA,8,"south, far",1999\r\n'
                                          '\r\n,9,,2003\r\n')
        want = model.predict(tmp_path / "new.csv")
        assert want.shape == (3, 2) and np.allclose(want.sum(axis=1), 1) and want[0, 1] > 0.5 > want[1, 1]
        columns = {"year": [2001, 1999, 2003], "place": ["north", "south, far", None], "size": [5000.0, nan, None],
                   "other": [1, 2, 3]}
        rows = [dict(zip(columns, values)) for values in zip(*columns.values())]
        raw = [[0, 1, 0, 2001, 5000], [0, 0, 1, 1999, nan], [0, 0, 0, 2003, nan]]  # levels in their order: east first
        table = [["north", 2001, "5000"], ["south, far", "1999", None], [nan, 2003, ""]]
        for form in (columns, rows, Frame(columns), np.array(raw), raw, np.array(table, object), table,
                     str(tmp_path / "new.csv")):
            assert (model.predict(form) == want).all(), form
        assert (model.predict(rows[0]) == want[:1]).all()
        logits = model.predict(rows, logits=True)
        e = np.exp(logits - logits.max(axis=1, keepdims=True))
        assert np.abs(e / e.sum(axis=1, keepdims=True) - want).max() < 1e-6
        some = model.predict([{**rows[1], "place": "west"}, rows[0], {**rows[1], "size": 1e39}])
        assert np.isnan(some[[0, 2]]).all() and (some[1] == want[0]).all()
        with pytest.raises(lockstep.Error, match='row 0: column "year": expected a number, found "old"'):
            model.predict({**rows[0], "year": "old"})
        with pytest.raises(ValueError, match='column "size" is missing'):
            model.predict({"place": ["north"], "year": [2000]})
        with pytest.raises(ValueError, match='column "size" is missing'):
            model.predict([{"place": "north", "year": 2000}])
        with pytest.raises(ValueError, match="expected 3 values"):
            model.predict({"place": ["north"] * 3, "year": [2000] * 3, "size": [1]})
        with pytest.raises(ValueError, match="expected 3 values a row"):
            model.predict([["north", 2001]])
        (tmp_path / "new.csv").write_text("place,year,size,size\nnorth,2001,5000,1\n")
        with pytest.raises(lockstep.Error, match='new.csv:1: column "size": expected once, found twice'):
            model.predict(tmp_path / "new.csv")
        (tmp_path / "new.csv").write_text("place,year,size\nnorth,2001\n")
        with pytest.raises(lockstep.Error, match="new.csv:2: "):
            model.predict(tmp_path / "new.csv")
        # the library's reader finds out separators, encodings and marks of decimals
        (tmp_path / "new.csv").write_bytes("place;year;size\nnorth;2001;5000\n".encode("utf-16"))
        assert (model.predict(tmp_path / "new.csv") == want[:1]).all()
        (tmp_path / "new.csv").write_text(TABLE)
        found = model.evaluate(tmp_path / "new.csv")
        right = [model.class_names[k] for k in model.predict(tmp_path / "new.csv").argmax(axis=1)]
        answers = [line.rsplit(",", 1)[1] for line in TABLE.strip().splitlines()[1:]]
        assert found["rows"] == len(answers)
        assert found["accuracy"] == np.mean([a == b for a, b in zip(right, answers)])
        assert 0 <= found["auc"] <= 1


def test_numbers_alone_need_no_text_and_what_no_row_missed_has_no_outputs(tmp_path):
    with table_model(tmp_path, "a,b,answer\n1,2,no\n3,5,yes\n4,1,no\n6,7,yes\n") as model:
        want = model.predict(np.array([[3, 5], [4, 1]]))
        assert (model.predict({"b": np.array([5, 1]), "a": np.array([3, 4], np.int8)}) == want).all()
        assert (model.predict({"b": ["5", "1"], "a": [3, True + 3]}) == want).all()
        for hole in ({"a": [3.0], "b": [float("nan")]}, {"a": ["3"], "b": [""]}):
            assert np.isnan(model.predict(hole)).all()
        some = model.predict(np.array([[3, np.nan], [3, 5], [1e39, 5]]))
        assert np.isnan(some[[0, 2]]).all() and (some[1] == want[0]).all()
    with table_model(tmp_path, "a,b,answer\n1,2,no\n3,5,yes\n4,1,no\n6,7,yes\n", unknown="error") as model:
        for hole in ({"a": [3.0], "b": [float("nan")]}, {"a": ["3"], "b": [""]}):
            with pytest.raises(lockstep.Error, match='column "b"'):
                model.predict(hole)


def test_numbers_that_no_float_holds_are_unknown_and_infinite_ones_are_missing(tmp_path):
    with table_model(tmp_path, "a,b,answer\n1,2,no\n3,5,yes\n,1,no\n6,7,yes\n", missing="mean") as model:
        missing = model.predict({"a": [None], "b": [5]})
        for value in (float("inf"), float("-inf"), Decimal("Infinity"), Decimal("NaN")):
            assert (model.predict({"a": [value], "b": [5]}) == missing).all(), value
        for value in (10 ** 400, -10 ** 400, Decimal("1e400"), Fraction(-10 ** 400), "1e400", 1e39):
            assert np.isnan(model.predict({"a": [value], "b": [5]})).all()
            assert np.isnan(model.predict([[value, 5]])).all()
    with table_model(tmp_path, "a,b,answer\nu,2,no\nv,5,yes\n", missing="mean") as model:
        assert np.isnan(model.predict({"a": [10 ** 400], "b": [5]})).all()
        with pytest.raises(ValueError, match='row 1: column "a": '):
            model.predict({"a": ["u", 10 ** 5000], "b": [5, 5]})


def test_objects_that_are_no_numbers_are_named_by_row_and_column():
    x, y = stripes(64, 3)
    table = x.reshape(64, 64).astype(object)
    for value, found in ((10 ** 400, "a number that no float holds"), (None, "None"), ("seven", "'seven'")):
        table[3, 7] = value
        with pytest.raises(ValueError, match=rf"data\[0\]: expected numbers, found object \(row 3, column 7: {found}\)"):
            lockstep.Trainer(CONFIG, data=(table, y))
    table[3, 7] = Decimal("0.5")
    with pytest.raises(ValueError, match=r"found object; convert them by .astype\(float\)"):
        lockstep.Trainer(CONFIG, data=(table, y))


def test_dates_are_texts_or_datetimes(tmp_path):
    days = [datetime.datetime(2021, 1, 1) + datetime.timedelta(hours=997 * i % 9000) for i in range(24)]
    text = "when,at,a,answer\n" + "".join(
        f"{d:%d.%m.%Y %H:%M},{i % 24}:30,{i % 3},{'no' if d.weekday() > 3 else 'yes'}\n" for i, d in enumerate(days))
    with table_model(tmp_path, text, missing="mean") as model:
        (tmp_path / "new.csv").write_text("when,at,a\n05.03.2021 08:15,10:30,1\n,10:30,1\n")
        want = model.predict(tmp_path / "new.csv")
        moment = datetime.datetime(2021, 3, 5, 8, 15)
        zone = datetime.timezone(datetime.timedelta(hours=2))
        for value in (moment, np.datetime64(moment), moment.isoformat(), "05.03.2021 08:15",
                      moment.replace(hour=10, tzinfo=zone)):
            found = model.predict({"when": [value, None], "at": [datetime.time(10, 30), "10:30"], "a": [1, 1]})
            assert (found == want).all(), repr(value)
        for none in (float("nan"), np.datetime64("NaT"), "NaT", ""):
            assert (model.predict({"when": [none], "at": ["10:30"], "a": [1]}) == want[1]).all(), repr(none)
        for unknown in ("31.02.2021", "03/25/2021", "soon"):
            assert np.isnan(model.predict({"when": [unknown], "at": ["10:30"], "a": [1]})).all()
        with pytest.raises(lockstep.Error, match='column "when": expected a date such as 31.12.2024 or 2024-12-31'):
            model.predict({"when": [2021.0], "at": ["10:30"], "a": [1]})


def test_whole_numbers_are_texts_with_all_their_digits(tmp_path):
    ids = [90071992547409921, 90071992547409922]
    text = "id,a,answer\n" + "".join(f"{ids[i % 2]},{i % 3},{'no' if i % 2 else 'yes'}\n" for i in range(20))
    with table_model(tmp_path, text, categorical="id") as model:
        want = model.predict([{"id": str(i), "a": 1} for i in ids])
        assert abs(want[0] - want[1]).max() > 0.01
        assert (model.predict({"id": np.array(ids), "a": np.array([1, 1])}) == want).all()
        assert (model.predict([{"id": i, "a": 1} for i in ids]) == want).all()
        assert np.isnan(model.predict({"id": [ids[0] + 2], "a": [1]})).all()
        for other in (float(ids[0]), np.float64(ids[1])):
            with pytest.raises(lockstep.Error, match='row 0: column "id": expected a text that the model has learnt'):
                model.predict({"id": [other], "a": [1]})


def test_numbers_of_every_type_are_texts_with_their_own_digits(tmp_path):
    texts = ["0.3", "90071992547409921", "16777216"]
    text = "id,a,answer\n" + "".join(f"{texts[i % 3]},{i % 4},{'no' if i % 3 else 'yes'}\n" for i in range(24))
    with table_model(tmp_path, text, categorical="id") as model:
        want = model.predict([{"id": t, "a": 1} for t in texts])
        for i, value in ((0, np.float32(0.3)), (0, np.float16(0.3)), (0, Decimal("0.30")), (1, Decimal(texts[1])),
                         (2, Decimal("16777216"))):
            assert (model.predict({"id": [value], "a": [1]}) == want[i]).all(), repr(value)
        assert (model.predict({"id": np.array([0.3, 0.3], np.float32), "a": np.array([1, 1])}) == want[0]).all()
        with pytest.raises(ValueError, match='row 1: column "id": .* float32 of this size has lost digits'):
            model.predict({"id": np.array([0.3, 2 ** 24], np.float32), "a": [1, 1]})


def test_a_path_that_cannot_be_written_is_refused_before_the_run(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "later")
    with trainer(set={"epochs": 1}) as t:
        for path, status in ((tmp_path, "LS_EINVAL"), (tmp_path / "pipe", "LS_EINVAL"), (tmp_path / "no" / "m", "LS_EIO")):
            with pytest.raises(lockstep.Error, match=re.escape(str(path))) as refused:
                t.fit(save=path)
            assert refused.value.status == status
            with pytest.raises(lockstep.Error):
                next(t.records(save=path))
        assert t.fit(save=tmp_path / "link").steps == 10  # nothing has been trained before
    assert (tmp_path / "link").is_symlink() and (tmp_path / "later").is_file()


def test_weights_that_are_not_finite_are_named():
    with trainer() as t:
        for bad in (np.nan, np.inf):
            weights = t.weights()
            weights["3.bias"][2] = bad
            with pytest.raises(ValueError, match=rf"^3\.bias: expected finite numbers, found {bad} at \[2\]$"):
                t.load(weights)


def test_arrays_lie_in_files_too(tmp_path):
    x, _ = stripes(9)
    with trainer(set={"epochs": 1}) as t:
        t.fit(save=tmp_path / "m")
    with lockstep.Model.open(tmp_path / "m") as model:
        np.save(tmp_path / "x.npy", x)
        assert (model.predict(tmp_path / "x.npy") == model.predict(x)).all() and model.columns is None
        with pytest.raises(lockstep.Error, match="x.csv: no such file"):
            model.predict(tmp_path / "x.csv")
        assert (model.predict(x.astype(np.int64)) == model.predict(x)).all()  # bytes in another type
        for other in (x / 255, x.astype(np.int16) - 1, x > 100):
            with pytest.raises(ValueError, match="expected uint8, as in training"):
                model.predict(other)


@pytest.mark.parametrize("kind, taken", [("bool", True), ("<u2", True), ("<i4", False), ("<f4", False)])
def test_bytes_stand_for_numbers_where_these_were_unsigned(tmp_path, kind, taken):
    bits = np.random.default_rng(7).integers(0, 2, (32, 5))
    np.save(tmp_path / "x.npy", bits.astype(kind))
    np.save(tmp_path / "y.npy", bits[:, 0])
    config = {"model": {"layers": [{"type": "dense", "out": 2}]}, "batch_size": 8, "epochs": 1, "devices": "cpu:1",
              "init": {"name": "normal", "std": 0.01}, "optimizer": {"name": "sgd", "lr": 0.1},
              "data": {"name": "npy", "path": str(tmp_path), "x": "x.npy", "y": "y.npy"}}
    with lockstep.Trainer(config) as t:
        t.fit(save=tmp_path / "m")
    with lockstep.Model.open(tmp_path / "m") as model:
        want = model.predict(bits.astype(bool))
        assert (model.predict(bits.astype(">f8")) == want).all() and (model.predict(bits) == want).all()
        if taken:
            assert (model.predict(bits.astype(np.uint8)) == want).all()
        else:
            with pytest.raises(ValueError, match="found uint8"):
                model.predict(bits.astype(np.uint8))


JPEG = base64.b64decode(
    "/9j/4AAQSkZJRgABAQAAAQABAAD/2wBDAAgGBgcGBQgHBwcJCQgKDBQNDAsLDBkSEw8UHRofHh0aHBwgJC4nICIsIxwcKDcpLDAx"
    "NDQ0Hyc5PTgyPC4zNDL/2wBDAQkJCQwLDBgNDRgyIRwhMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIyMjIy"
    "MjIyMjIyMjL/wAARCAACAAMDASIAAhEBAxEB/8QAFQABAQAAAAAAAAAAAAAAAAAAAAX/xAAaEAEAAQUAAAAAAAAAAAAAAAAAAgED"
    "MXOy/8QAFQEBAQAAAAAAAAAAAAAAAAAABgf/xAAbEQABBAMAAAAAAAAAAAAAAAAAAQIzcQMEsf/aAAwDAQACEQMRAD8Aiwzc2z6q"
    "AoutAyk4As0jrU//2Q==")  # of 3 × 2 pixels, in colours


def png(pixels):
    """A PNG file of grey pixels, (height, width), or of colours, (height, width, 3), with 8 or 16 bits."""
    h, w = pixels.shape[:2]
    depth = 8 * pixels.itemsize
    pixels = pixels.astype(f">u{pixels.itemsize}")
    chunks = [(b"IHDR", struct.pack(">IIBBBBB", w, h, depth, 2 if pixels.ndim == 3 else 0, 0, 0, 0)),
              (b"IDAT", zlib.compress(b"".join(b"\0" + row.tobytes() for row in pixels))), (b"IEND", b"")]
    return b"\x89PNG\r\n\x1a\n" + b"".join(struct.pack(">I", len(data)) + kind + data
                                          + struct.pack(">I", zlib.crc32(kind + data)) for kind, data in chunks)


HAS_PICTURES = any((Path(lockstep.__file__).parent / "lib").glob("liblockstep_picture.so*"))
pictures_are_read = pytest.mark.skipif(not HAS_PICTURES, reason="Lockstep was built without libspng and libjpeg")


@pictures_are_read
def test_pictures_come_as_paths_folders_and_bytes_and_give_one_number(tmp_path):
    x = stripes(4, 3)[0]
    folder = tmp_path / "photos"
    (folder / "b").mkdir(parents=True)
    wide = np.pad(x[2], ((0, 0), (3, 3)))  # the middle of it is the row
    files = {folder / "a.png": png(x[0]), folder / "b/0.PNG": png(np.stack([x[1]] * 3, 2)), folder / "c.png": png(wide)}
    for path, contents in files.items():
        path.write_bytes(contents)
    (folder / ".hidden.png").write_bytes(b"")
    (folder / "notes.txt").write_bytes(b"")
    with trainer() as t, t.model() as model:
        want = model.predict(x[:3])
        assert lockstep.pictures(folder) == [str(path) for path in files]
        for form in (folder, str(folder), [folder], list(files), [str(path) for path in files], list(files.values()),
                     [bytearray(files[folder / "a.png"]), folder / "b", memoryview(files[folder / "c.png"])]):
            assert (model.predict(form) == want).all(), form
        assert (model.predict(folder / "a.png") == want[:1]).all()
        assert (model.predict(files[folder / "a.png"], logits=True) == model.predict(x[:1], logits=True)).all()
        assert (t.predict(folder) == want).all()
        assert model.predict([JPEG]).shape == (1, 3)


@pictures_are_read
def test_pictures_that_cannot_be_read_are_named(tmp_path):
    (tmp_path / "cut.png").write_bytes(png(stripes(1)[0][0])[:-20])
    (tmp_path / "empty").mkdir()
    os.mkfifo(tmp_path / "pipe")
    with trainer() as t, t.model() as model:
        with pytest.raises(lockstep.Error, match="cut.png: before offset") as error:
            model.predict([JPEG, tmp_path / "cut.png"])
        assert error.value.status == "LS_EDATA"
        with pytest.raises(lockstep.Error, match="picture 1: offset 0: a GIF image, which is not supported"):
            model.predict([JPEG, b"GIF89a"])
        with pytest.raises(ValueError, match="empty: expected images"):
            model.predict(tmp_path / "empty")
        with pytest.raises(FileNotFoundError, match="nowhere.png"):
            model.predict("nowhere.png")
        with pytest.raises(ValueError, match="pipe: expected a file"):
            model.predict(tmp_path / "pipe")
    config = {**CONFIG, "data": {}, "model": {"layers": [{"type": "dense", "out": 2}]}}
    with lockstep.Trainer(config, shape=(4,), classes=2, dtype="f4") as t, t.model() as model:
        with pytest.raises(lockstep.Error, match="picture 0: the model reads rows of 4×1×1 floats, not pictures"):
            model.predict(JPEG)
        with pytest.raises(lockstep.Error, match="photo.png: the model reads arrays, not pictures; name an .npy file"):
            model.predict("photo.png")


def test_without_the_library_of_pictures_its_lack_is_said(monkeypatch):
    def load(name, functions):
        raise OSError(f"{name}.so.0.3: cannot open shared object file")

    with trainer() as t, t.model() as model:
        monkeypatch.setattr(_library, "_picture_library", None)
        monkeypatch.setattr(_library, "_load", load)
        with pytest.raises(lockstep.Error, match="liblockstep_picture, .* libspng-dev, libjpeg-dev") as error:
            model.predict(JPEG)
        assert error.value.status == "LS_EUNSUPPORTED"
        assert model.predict(stripes(2)[0]).shape == (2, 3)


@pictures_are_read
@pytest.mark.skipif("LOCKSTEP_TRAINER" not in os.environ, reason="no program beside it")
def test_pictures_give_the_programs_bits(tmp_path):
    draw = np.random.default_rng(6)
    (tmp_path / "new").mkdir()
    for i, shape in enumerate([(8, 8), (17, 9, 3), (5, 31, 3), (1, 1), (64, 40)]):
        (tmp_path / f"new/{i}.png").write_bytes(png(draw.integers(0, 255, shape, dtype=np.uint8)))
    (tmp_path / "new/9.jpg").write_bytes(JPEG)
    file = tmp_path / "model.safetensors"
    with trainer() as t:
        t.fit(save=file)
    said = subprocess.run([os.environ["LOCKSTEP_TRAINER"], "predict", file, tmp_path / "new", "--json", "--devices", "cpu:1"],
                          check=True, capture_output=True, text=True).stdout.splitlines()
    want = np.array([json.loads(line)["logits"] for line in said], np.float32)
    with lockstep.Model.open(file) as model:
        assert (model.predict(tmp_path / "new", logits=True) == want).all()


@pictures_are_read
def test_pictures_of_16_bits_are_scaled_as_in_training(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    draw = np.random.default_rng(7)
    for kind in "ab":
        (tmp_path / "train" / kind).mkdir(parents=True)
        for i in range(4):
            pixels = draw.integers(0, 500 if kind == "b" else 100, (4, 4), dtype=np.uint16)
            pixels[0, 0] = 777 if (kind, i) == ("b", 2) else 0
            (tmp_path / "train" / kind / f"{i}.png").write_bytes(png(pixels))
    config = {**CONFIG, "batch_size": 4, "shards": 4, "data": {"name": "folder", "path": str(tmp_path / "train"), "image_size": 4, "channels": 1},
              "model": {"layers": [{"type": "flatten"}, {"type": "dense", "out": 2}]}}
    new = draw.integers(0, 1000, (4, 4), dtype=np.uint16)
    want = (np.minimum(new.astype(int), 777) * 255 + 777 // 2) // 777
    with lockstep.Trainer(config) as t, t.model() as model:
        assert (model.predict(png(new), logits=True) == model.predict(np.uint8(want)[None], logits=True)).all()
        assert (model.predict(png(np.uint8(want))) == model.predict(np.uint8(want)[None])).all()


def test_records_come_one_by_one_and_leaving_the_loop_stops_the_run():
    with trainer() as t:
        types = [r["type"] for r in t.records()]
        assert types.count("eval") == 6 and types.count("step") == 60
    with trainer(set={"epochs": 100000}) as t:
        for record in t.records():
            if record["type"] == "eval":
                break
        assert t.result.interrupted and 1 <= t.result.epochs < 100000


def test_errors_say_what_the_library_says(tmp_path):
    with pytest.raises(lockstep.Error, match="epochs") as wrong:
        trainer(set={"epochs": -1})
    assert wrong.value.status == "LS_ECONFIG"
    with pytest.raises(lockstep.Error, match="nowhere.json") as wrong:
        lockstep.Trainer("nowhere.json")
    assert wrong.value.status == "LS_ENOENT"
    (tmp_path / "cut").write_bytes(b"\7\0\0")
    with pytest.raises(lockstep.Error, match="cut off") as wrong:
        lockstep.Model.open(tmp_path / "cut")
    assert wrong.value.status == "LS_EDATA"
    x, y = stripes(32)
    for data in ((x, y[:5]), (x, y.astype(str)), (x[0, 0], y)):
        with pytest.raises(ValueError, match="expected"):
            lockstep.Trainer(CONFIG, data=data)


def test_ctrl_c_ends_the_step_saves_and_returns(tmp_path):
    file = tmp_path / "stopped.safetensors"
    with trainer(set={"epochs": 100000}) as t:
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGINT)).start()
        result = t.fit(save=file)
        assert result.interrupted and result.steps > 0
        want = t.predict(stripes(5)[0])
    with lockstep.Model.open(file) as model:
        assert (model.predict(stripes(5)[0]) == want).all()


def test_closing_in_another_thread_ends_the_run_there(tmp_path):
    file, ended = tmp_path / "stopped.safetensors", []
    t = trainer(set={"epochs": 100000})
    running = threading.Thread(target=lambda: ended.append(t.fit(save=file)))
    running.start()
    time.sleep(0.4)
    t.close()
    running.join()
    assert ended[0].interrupted and ended[0].steps > 0 and len(ended[0].weights_sha256) == 64
    with lockstep.Model.open(file) as model:
        assert model.predict(stripes(5)[0]).shape == (5, 3)
    with pytest.raises(ValueError, match="closed"):
        t.evaluate()


def test_closing_again_and_again_while_runs_go_on_frees_nothing_twice():
    for i in range(12):
        t = trainer(set={"epochs": 100000})
        running = threading.Thread(target=t.fit)
        running.start()
        closers = [threading.Thread(target=t.close) for _ in range(3)]
        time.sleep(0.02 * i)
        for closer in closers:
            closer.start()
        for thread in (running, *closers):
            thread.join()


def test_a_loop_over_records_may_close_its_trainer():
    t = trainer(set={"epochs": 100000})
    records = t.records()
    assert next(records)["type"] == "run_start"
    with pytest.raises(RuntimeError, match="under way"):
        t.evaluate()  # two threads in one trainer
    t.close()
    for record in records:
        pass
    assert record["type"] == "run_end" and record["status"] == "interrupted"


def test_what_a_signals_handler_raises_leaves_no_run_behind():
    def late(number, frame):
        raise TimeoutError("late")

    before = signal.signal(signal.SIGALRM, late)
    try:
        with trainer(set={"epochs": 100000}) as t:
            signal.setitimer(signal.ITIMER_REAL, 0.3)
            with pytest.raises(TimeoutError, match="late"):
                t.fit()
            assert t._latest.done.is_set() and t.result.interrupted
    finally:
        signal.signal(signal.SIGALRM, before)


def test_a_second_fit_is_refused_and_the_first_goes_on():
    with trainer(set={"epochs": 100000}) as t:
        records = t.records()
        assert next(records)["type"] == "run_start"
        with pytest.raises(RuntimeError, match="under way"):
            t.fit(progress=False)
        with pytest.raises(RuntimeError, match="under way"):
            t.evaluate()


@pytest.mark.parametrize("late", [False, True])
def test_ctrl_c_before_a_run_has_its_thread_comes_out_and_leaves_none(monkeypatch, late):
    start, threads = threading.Thread.start, []

    def interrupted(thread):
        threads.append(thread)
        raise KeyboardInterrupt

    t = trainer(set={"epochs": 100000})
    with monkeypatch.context() as patch:
        patch.setattr(threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            t.fit(progress=False)
    if late:  # the system gives the thread its turn when the trainer is no more
        t.close()
        start(threads[0])
        threads[0].join()
    else:
        threading.Timer(0.4, t.close).start()
        assert t.fit(progress=False).interrupted


def test_ctrl_c_in_a_loop_over_records_saves_too(tmp_path):
    file = tmp_path / "stopped.safetensors"
    with trainer(set={"epochs": 100000}) as t:
        threading.Timer(0.4, os.kill, (os.getpid(), signal.SIGINT)).start()
        types = [record["type"] for record in _until_idle(t.records(save=file))]
        assert types[-1] == "run_end" and t.result.interrupted
    assert lockstep.Model.open(file).shape == (1, 8, 8)


def _until_idle(records):
    """Takes records without working in between: Ctrl-C meets the iterator."""
    yield from records


@pytest.mark.parametrize("what", [KeyboardInterrupt(), MemoryError("rows")])
def test_what_reading_rows_raises_comes_out(monkeypatch, what):
    def fail(*ignored):
        raise what

    monkeypatch.setattr(lockstep._Arrays, "_copy", fail)
    with pytest.raises(type(what)):
        trainer()


def test_a_bar_is_drawn_only_where_it_is_wanted(capsys):
    with trainer(set={"epochs": 2}) as t:
        t.fit(progress=True)
        assert t._listeners
    drawn = capsys.readouterr().err
    assert "epoch 2/2 [========================] loss 0." in drawn and drawn.count("test loss") == 2
    with trainer(set={"epochs": 1, "data.validation": 0.25}) as t:
        t.fit(progress=True)
    drawn = capsys.readouterr().err
    assert "validation loss" in drawn and "test" not in drawn
    with trainer(set={"epochs": 1}) as t:
        t.fit()
        assert not t._listeners  # then a record is not even copied to Python
    assert capsys.readouterr().err == ""


def test_weights_go_out_and_in_as_arrays():
    with trainer() as t, trainer(set={"epochs": 1}) as other:
        t.fit()
        weights = t.weights()
        assert weights["0.weight"].shape == (4, 1, 3, 3) and weights["3.bias"].dtype == np.float32
        other.load(weights)
        again = other.weights()
        assert list(again) == list(weights)
        assert all((again[name] == w).all() for name, w in weights.items())
        with pytest.raises(lockstep.Error, match="3.bias"):
            other.load({name: w for name, w in weights.items() if name != "3.bias"})
        with pytest.raises(ValueError, match="expected one of"):
            other.load({"0.weight": np.zeros(3, complex)})


def test_a_worker_that_is_lost_costs_no_bit():
    with trainer(set={"epochs": 2, "shards": 4}) as t:
        want = t.fit().weights_sha256
    with trainer(set={"epochs": 2, "shards": 4, "devices": "cpu:3"}, inject=["worker=1,step=7,kind=fail"]) as t:
        faults = [r["type"] for r in t.records()].count("fault")
        assert faults == 1 and t.result.weights_sha256 == want


def test_threads_predict_at_the_same_time(tmp_path):
    x = stripes(40)[0]
    with trainer(set={"epochs": 1}) as t:
        t.fit(save=tmp_path / "m")
    with lockstep.Model.open(tmp_path / "m") as model:
        want, right = model.predict(x), []
        threads = [threading.Thread(target=lambda: right.append(
            all((model.predict(x) == want).all() for _ in range(20)))) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert right == [True] * 4


def test_a_model_is_asked_once_what_it_is(tmp_path, monkeypatch):
    """What it says of itself is longer than one row takes to be predicted."""
    with trainer() as t:
        t.fit()
        t.save(tmp_path / "small.safetensors")
    x, _ = stripes(2, 3)
    with lockstep.Model.open(tmp_path / "small.safetensors") as model:
        first = model.predict(x)
        asked = []
        for name in ("ls_model_card", "ls_model_describe"):
            monkeypatch.setattr(_library.lib(), name, lambda *_, name=name: asked.append(name))
        assert (model.predict(x) == first).all()
        assert (model.predict(x[:1]) == first[:1]).all()
        assert not asked
        monkeypatch.undo()
        assert model.card is not model.card  # a dict of the caller's own
    with pytest.raises(ValueError, match="closed"):
        model.predict(x)


def test_a_forked_child_is_told_and_does_no_harm(tmp_path):
    with trainer(set={"epochs": 1}) as t:
        child = os.fork()
        if child == 0:
            try:
                t.evaluate()
                os._exit(1)
            except RuntimeError:
                t.close()
                os._exit(0)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert t.fit().epochs == 1


def test_everything_that_is_bundled_has_its_licence():
    package = Path(lockstep.__file__).parent
    libraries = {p.name for p in (package / "lib").iterdir()}
    licences = {p.name for p in (package / "licences").iterdir() if p.is_file()}
    assert any(re.match(r"liblockstep\.so", name) for name in libraries)
    assert {n for n in libraries if not n.startswith("liblockstep")} | {"lockstep"} == licences
    assert all((package / "licences" / n).stat().st_size > 200 for n in licences)
    # A text that a licence only names, as Debian's do, is in the wheel too.
    named = {name for n in licences for name in re.findall(r"/(common-licenses/[\w.+-]*\w)",
                                                           (package / "licences" / n).read_text(encoding="utf-8"))}
    assert any("LGPL" in name for name in named)  # Nettle's
    assert all((package / "licences" / name).stat().st_size > 1000 for name in named)
    assert importlib.metadata.version("lockstep-trainer") == lockstep.__version__
    if HAS_PICTURES:
        _library._picture_lib()
    maps = Path("/proc/self/maps").read_text()
    for name in libraries:
        if name.startswith("liblockstep"):
            assert str(package / "lib" / name) in maps  # and no other of that name


def test_the_wheel_installs_one_package_of_its_own_name():
    """Other projects on PyPI install a package `lockstep`, so no file of this wheel may lie in a folder of that name."""
    tops = {path.parts[0] for path in importlib.metadata.files("lockstep-trainer")}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"lockstep_trainer"}
    assert lockstep.__name__ == lockstep.Trainer.__module__ == "lockstep_trainer"


def test_what_the_documentation_shows_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    draw = np.random.default_rng(4)
    names = {"x": draw.integers(0, 255, (640, 28, 28), dtype=np.uint8),
             "y": draw.integers(0, 10, 640)}
    names.update(x_test=names["x"][:100], y_test=names["y"][:100])
    page = Path(os.environ["LOCKSTEP_INCLUDE"], "../docs/python.md").read_text()
    blocks = re.findall(r"```python\n(.*?)```", page, re.S)
    assert len(blocks) >= 4
    for block in blocks:
        exec(block, names)
    assert names["probabilities"].shape == (5, 10) and len(names["best"]) == 5


@pytest.mark.skipif(not Path("/usr/share/datasets/fashion-mnist").is_dir(), reason="no Fashion-MNIST")
def test_the_notebook_runs():
    pytest.importorskip("matplotlib")
    root = Path(os.environ["LOCKSTEP_INCLUDE"]).parent
    said = subprocess.run([sys.executable, root / "tests/python/notebook.py", root / "examples/lenet.ipynb", "--short"],
                          capture_output=True, text=True)
    assert said.returncode == 0, said.stdout + said.stderr


def test_a_config_in_a_file_is_taken_too(tmp_path):
    (tmp_path / "c.json").write_text(json.dumps({**CONFIG, "run_dir": str(tmp_path / "run")}))
    with lockstep.Trainer(tmp_path / "c.json", data=stripes(64), test=stripes(30, 1)) as t:
        assert t.fit().checkpoint.startswith(str(tmp_path / "run"))
    assert (tmp_path / "run/weights.safetensors").exists()


def test_a_run_is_verified_and_a_forged_one_is_not(tmp_path):
    config = {"data": {"name": "synthetic", "limit": 256}, "epochs": 101, "eval_every": 0, "receipt": True,
              "run_dir": str(tmp_path / "run"), "devices": "cpu:2", "optimizer": {"lr": 0.01},
              "model": {"layers": [{"type": "avg_pool", "kernel": 7}, {"type": "flatten"}, {"type": "dense", "out": 10}]}}
    with lockstep.Trainer(config) as t:
        sha256 = t.fit().weights_sha256
    steps = []
    verdict = lockstep.verify(tmp_path / "run", all=True, set={"devices": "cpu:1"}, progress=lambda *n: steps.append(n))
    assert verdict and verdict.whole and verdict.seed is None and verdict.weights_sha256 == sha256
    assert verdict.segments == verdict.replayed == 2 and steps[-1] == (101, 101)
    assert verdict.segment is verdict.steps is verdict.step is None and verdict.place == ""
    file = tmp_path / "run/receipt.json"
    forged = json.loads(file.read_text())
    forged["evaluation"]["test_loss"] /= 2
    file.write_text(json.dumps(forged, separators=(",", ":")) + "\n")
    verdict = lockstep.verify(tmp_path / "run")
    assert not verdict and verdict.place == "receipt.json: evaluation.test_loss" and verdict.place in repr(verdict)
    assert verdict.prover_files == {}
    with pytest.raises(lockstep.Error, match="no such file") as why:
        lockstep.verify(tmp_path / "nothing")
    assert why.value.status == "LS_ENOENT"


def test_files_of_the_prover_are_listed(tmp_path):
    table = tmp_path / "t=.csv"
    table.write_text("a,y\n" + "".join(f"{i},{'uv'[i > 30]}\n" for i in range(60)))
    with lockstep.Trainer({"data": {"name": "csv", "path": str(table), "target": "y", "validation": 0.2}, "epochs": 2,
                           "receipt": True, "run_dir": str(tmp_path / "run"), "optimizer": {"lr": 0.01}, "model": {"layers": [{"type": "dense"}]}}) as t:
        t.fit()
    assert lockstep.verify(tmp_path / "run").prover_files == {"data.path": str(table)}
    assert lockstep.verify(tmp_path / "run", set={"data.path": str(table)}).prover_files == {}
