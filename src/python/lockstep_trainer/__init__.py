# SPDX-License-Identifier: MIT
"""Lockstep from Python: data-parallel training in C, arrays in and out.

    import lockstep_trainer as lockstep

    with lockstep.Trainer("fashion_mnist.json", data=(x, y), test=(x_test, y_test)) as trainer:
        trainer.fit()
        trainer.save("model.safetensors")

    model = lockstep.Model.open("model.safetensors")
    model.predict(images)                 # probabilities, (n, classes)

No Python code runs while a step is computed. The rows of `data` are copied once, when the trainer is opened.
"""
import ctypes as _c
import json as _json
import os as _os
import queue as _queue
import sys as _sys
import threading as _threading
import time as _time

import numpy as _np

from . import _library as _l
from . import _nvidia, _picture, _table, _tensors
from ._library import Error
from ._picture import pictures

__all__ = ["Error", "Model", "Result", "Trainer", "Verdict", "pictures", "verify"]
__version__ = _l.VERSION


def _bytes(path):
    return _os.fsencode(_os.fspath(path))


def _check_target(path):
    """Raises an error if a file cannot be written to `path` because of what stands there: before a run rather than
    after it. The library checks it again when it writes."""
    text = _os.fsdecode(path)
    if _os.path.exists(path) and not _os.path.isfile(path):
        raise Error("LS_EINVAL", f'"{text}": expected the name of a file, found something else')
    folder = _os.path.dirname(_os.path.realpath(text))
    if not _os.path.isdir(folder):
        raise Error("LS_EIO", f"{text}: there is no directory {folder}")


def _first_object(x):
    """Returns the place of the first value of an array of objects that is no float, for an error."""
    for place, value in _np.ndenumerate(x) if x.dtype.kind == "O" else ():
        try:
            float(value)
        except OverflowError:
            found = "a number that no float holds"
        except (TypeError, ValueError):
            found = repr(value)[:40]
        else:
            continue
        return f" (row {place[0]}, column {', '.join(map(str, place[1:])) or 0}: {found})"
    return "; convert them by .astype(float)" if x.dtype.kind == "O" else ""


def _rows(x, what="x", wide=False):
    """Converts rows to the form that the library reads: a contiguous array (n, channels, height, width) of uint8 or
    float32, or of float64 if `wide` is true and the numbers have that type. Only uint8 values are divided by 255. bool becomes 0.0 and 1.0; numbers of other types keep their
    values."""
    x = _np.asarray(x)
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{what}: expected numbers, found {x.dtype}{_first_object(x)}")
    if x.dtype != _np.uint8 and not (wide and x.dtype == _np.float64):
        x = x.astype(_np.float32, copy=False)
    if not 2 <= x.ndim <= 4 or 0 in x.shape:
        raise ValueError(f"{what}: expected (n, features), (n, height, width) or "
                         f"(n, channels, height, width), found {x.shape}")
    return _np.ascontiguousarray(_with_sides(x))


def _with_sides(x):
    """Reshapes (n, features), (n, height, width) or (n, channels, height, width) to (n, channels, height, width)."""
    return x if x.ndim == 4 else x.reshape(len(x), *_sides(x.shape[1:]))


def _address(a):
    """Returns the address of an array's first number. It is faster than `a.ctypes`, which creates an object."""
    return a.__array_interface__["data"][0]


_ROW_TYPE = {"uint8": 1, "float32": 2, "float64": 3}  # ls_row_type by the name of numpy's type


def _sides(shape):
    """Returns the shape (channels, height, width) of a row of shape (features,), (height, width) or that shape."""
    shape = tuple(shape) if _np.iterable(shape) else (shape,)
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"shape: expected (features,), (height, width) or (channels, height, width), found {shape}")
    return {1: shape + (1, 1), 2: (1,) + shape, 3: shape}[len(shape)]


def _targets(y, n, what="y"):
    """Converts targets to classes, int32 (n,), or to numbers (n, targets), float64. Integers, one for each row, are
    classes."""
    y = _np.asarray(y)
    if y.dtype.kind not in "biuf" or y.ndim not in (1, 2) or len(y) != n or 0 in y.shape:
        raise ValueError(f"{what}: expected {n} integers, one class for each row, or numbers (n, targets), "
                         f"found {y.dtype} {y.shape}")
    if y.dtype.kind == "f" or y.size != n:
        return _np.ascontiguousarray(y.reshape(n, -1), dtype=_np.float64)
    y = y.reshape(n)
    if int(y.min()) < 0 or int(y.max()) > 2**31 - 2:
        wrong = next(i for i, label in enumerate(y) if not 0 <= label <= 2**31 - 2)
        raise ValueError(f"{what}: row {wrong}: expected a class, a whole number from 0 on, found {y[wrong]}; "
                         "for numbers to learn pass floats")
    return _np.ascontiguousarray(y, dtype=_np.int32)


def _weights(weights, rows):
    """Returns the weights of rows as an array of float32, or None if they have none."""
    if weights is None:
        return None
    weights = _np.ascontiguousarray(weights, dtype=_np.float32)
    if weights.shape != (rows,):
        raise ValueError(f"weights: expected a number for each of {rows} rows, found an array of {weights.shape}")
    return weights


def _floats(array):
    """Returns the address of an array of float32 for C, or None."""
    return None if array is None else array.ctypes.data_as(_c.POINTER(_c.c_float))


def _like(y):
    """Returns the properties that training and test targets must share: type, and number of targets of a row."""
    return y.dtype, y.shape[1:]


class _Arrays:
    """A data source (ls_data_source) whose rows are in arrays, or one that has only a shape, for rows that the user
    passes to each step."""

    def __init__(self, data, test, shape, classes, targets, dtype, weights, test_weights, weighted):
        self.sets, self.failed = [], None
        self.wide = self._needs_doubles(_np.asarray(data[0]).dtype if data is not None else _np.dtype(dtype))
        for pair, what in ((data, "data"), (test, "test")):
            x, y = pair if pair is not None else (None, None)
            x = None if x is None else self.rows(x, f"{what}[0]")
            self.sets.append((x, None if x is None else _targets(y, len(x), f"{what}[1]")))
        x, y = self.sets[0]
        if x is None:
            y = _np.empty((0, targets), _np.float64) if targets else _np.empty(0, _np.int32)
        self.shape = _sides(shape) if x is None else x.shape[1:]
        self.dtype = self.rows(_np.zeros((1, 1), dtype)).dtype if x is None else x.dtype
        self.like = _like(y)
        for x, y in self.sets:
            if x is not None:
                self.check(x, y)
        if self.like[1]:
            classes = 0
        elif classes is None:
            classes = 1 + max(int(y.max()) for _, y in self.sets if y is not None)
        rows = [0 if x is None else len(x) for x, _ in self.sets]
        self.weights = [_weights(w, n) for w, n in ((weights, rows[0]), (test_weights, rows[1]))]
        self.read = _l.READ(self._read)
        self.source = _l.data_source(
            size=_c.sizeof(_l.data_source), name=b"python", channels=self.shape[0],
            height=self.shape[1], width=self.shape[2], classes=classes, train_rows=rows[0], test_rows=rows[1],
            streamed=rows[0] == 0, read=self.read, row_type=_ROW_TYPE[self.dtype.name],
            target_count=self.like[1][0] if self.like[1] else 0,
            target_type=_ROW_TYPE["float64"] if self.like[1] else 0,
            weighted=weighted or any(w is not None for w in self.weights))
        self.source.train_weights, self.source.test_weights = map(_floats, self.weights)
        self.pointers = (_c.POINTER(_l.data_source) * 1)(_c.pointer(self.source))

    @staticmethod
    def _needs_doubles(dtype):
        """Returns whether rows are of a type whose numbers a float32 may not hold."""
        return dtype.kind in "iuf" and not _np.can_cast(dtype, _np.float32)

    def rows(self, x, what="x"):
        """Converts rows to the form that the data source has."""
        x = _np.asarray(x)
        wide = self.wide and x.dtype.kind in "biuf" and x.dtype != _np.uint8
        return _rows(x.astype(_np.float64, copy=False) if wide else x, what, wide)

    def _read(self, user, test, rows, count, values, targets, error):
        """The callback of the data source. C cannot pass on a Python exception, such as KeyboardInterrupt. So the
        exception is stored in self.failed, and the callback returns an error."""
        try:
            return self._copy(test, rows, count, values, targets)
        except BaseException as failed:
            self.failed = failed
            error.contents.text = repr(failed).encode()[:500]
            error.contents.status = _l.EIO
            return _l.EIO

    def _copy(self, test, rows, count, values, targets):
        x, y = self.sets[1 if test else 0]
        index = _np.ctypeslib.as_array(rows, (count,))
        row = x[0].nbytes
        out = (_c.c_char * (count * row)).from_address(values)
        _np.take(x, index, axis=0,
                 out=_np.frombuffer(out, x.dtype).reshape((count,) + x.shape[1:]))
        out = (_c.c_char * (count * y[0].nbytes)).from_address(targets)
        _np.take(y, index, axis=0,
                 out=_np.frombuffer(out, y.dtype).reshape((count,) + y.shape[1:]))
        return 0

    def check(self, x, y):
        if x.shape[1:] != self.shape or x.dtype != self.dtype:
            cure = ""
            if x.dtype != self.dtype and self.sets[0][0] is None:  # created with shape=
                cure = f"; for such rows create the trainer with dtype=\"{x.dtype}\""
            elif x.dtype != self.dtype:
                cure = f"; convert them by .astype(\"{self.dtype}\")"
            raise ValueError(f"expected rows of {self.dtype} {self.shape}, found {x.dtype} "
                             f"{x.shape[1:]}{cure}")
        if _like(y) != self.like:
            raise ValueError(f"expected targets of {self.like[0]} {self.like[1]}, found "
                             f"{y.dtype} {y.shape[1:]}")


def _accuracy(found):
    """Returns the share of correct predictions, or NaN if the loss does not define when a prediction is correct."""
    return found.metric_value if found.metric == b"accuracy" else float("nan")


class Result:
    """The result of a run: loss and accuracy on the test rows, number of steps, seconds, SHA-256 of the weights."""

    def __init__(self, r):
        self.epochs, self.steps = r.epochs, r.steps
        self.test_loss, self.test_accuracy = r.test_loss, _accuracy(r)
        self.seconds_per_epoch = r.seconds_per_epoch
        self.devices = (r.devices or b"").decode()
        self.weights_sha256 = r.weights_sha256.decode()
        self.checkpoint = (r.checkpoint or b"").decode() or None
        self.interrupted = bool(r.interrupted)

    def __repr__(self):
        return (f"<lockstep_trainer.Result: {self.epochs} epochs, test accuracy {self.test_accuracy:.4f}"
                f"{', interrupted' if self.interrupted else ''}>")


class Model(_l.Handle):
    """A trained model for predictions, from a file (Model.open) or a trainer (Trainer.model). Any thread may use
    it."""

    def __init__(self):
        super().__init__("ls_model_release")
        self._kept = {}

    def _once(self, what, look):
        """Returns `look()`, a property of the model that never changes. Stores it, because without the store the
        prediction of one row takes much longer."""
        self.handle  # raises an error if the model is closed
        if what not in self._kept:
            self._kept[what] = look()
        return self._kept[what]

    @classmethod
    def open(cls, path, device=None):
        """Opens a file that a run or `save` has written. `device`: "cpu:1" (the default) or "cuda:0"."""
        self = cls()
        _nvidia.share({"devices": device or "cpu"})
        options = _l.model_options(size=_c.sizeof(_l.model_options),
                                   device=device.encode() if device else None)
        _l.call("ls_model_open", _c.byref(self._handle), _bytes(path), _c.byref(options))
        return self

    def _info(self):
        return self._once("info", self._look_info)

    def _preparation(self):
        return self._once("preparation", lambda: self.card.get("preparation") or {})

    def _look_info(self):
        info = _l.sized(_l.model_info)
        _l.call("ls_model_describe", self.handle, _c.byref(info))
        return info

    @property
    def shape(self):
        """The shape of a row: (channels, height, width)."""
        info = self._info()
        return info.channels, info.height, info.width

    @property
    def parameters(self):
        return self._info().parameters

    @property
    def class_names(self):
        """A list with the name of each class, or with its number as a text if it has no name."""
        names = (_l.lib().ls_model_class_name(self.handle, i)
                 for i in range(self._info().outputs))
        return [str(i) if name is None else name.decode() for i, name in enumerate(names)]

    @property
    def threshold(self):
        """Of two classes and of yes/no answers: the probability from which the second class, or yes, is predicted. It
        is 0.5 unless the model's file keeps another one (trainer eval --threshold T --keep)."""
        return self._info().threshold

    @property
    def card(self):
        """The description of the model in its file, a dict: input, classes, class_names, preparation, recipe."""
        card = _l.lib().ls_model_card(self.handle)
        return {} if card is None else _json.loads(card)

    @property
    def columns(self):
        """The names of the columns that the model reads; None if it was not trained on a table."""
        table = self._table()
        return None if table is None else [column["name"] for column in table]

    def _table(self):
        """The columns that a model of a table reads, each a dict: "name" and, for a column of texts, "levels" (the
        texts), or, for one of dates, "date" and "parts"."""
        return self._once("table", self._look_table)

    def _look_table(self):
        card = self.card
        preparation = card.get("preparation")
        if preparation is not None:
            return preparation["columns"] if preparation["rows"] == "table" else None
        if not card.get("features"):
            return None
        table = []  # a file of an earlier version has a list with the column of each float
        for feature in card["features"]:
            if not table or table[-1]["name"] != feature["column"]:
                table.append({"name": feature["column"]})
            if "is" in feature:
                table[-1].setdefault("levels", []).append(feature["is"])
        return table

    def _prepare(self, x):
        """Converts the argument `x` of `predict` to an array for ls_model_predict."""
        table = self._table()
        if table is None and _picture.are_several(x):
            return _picture.rows(self.handle, self.shape, x)
        if _picture.is_one(x):
            return _picture.rows(self.handle, self.shape, [x])
        if table is not None:
            named = _table.of(x, [column["name"] for column in table])
            if named is not None:
                return _table.rows(self.handle, named, table)
        return _rows(self._as_trained(_np.asarray(x), table), wide=True)

    def _as_trained(self, x, table):
        """Checks that the type of `x` fits the training data, because the library divides only uint8 by 255. A model
        of uint8 rows also accepts other integers from 0 to 255. A model of other numbers accepts uint8 only if it was
        trained on bool, on unsigned integers or on a table."""
        if self._info().row_type == _ROW_TYPE["uint8"]:
            if x.dtype == _np.uint8:
                return x
            if x.dtype.kind in "iu" and x.size and 0 <= int(x.min()) and int(x.max()) <= 255:
                return x.astype(_np.uint8, copy=False)
            raise ValueError(f"x: expected uint8, as in training, found {x.dtype}; only uint8 is divided by 255")
        kind = self._preparation().get("type", "")
        if x.dtype == _np.uint8 and table is None and not kind.startswith(("u", "bool")):
            raise ValueError("x: expected numbers that are not uint8, as in training, found uint8; only uint8 is "
                             "divided by 255")
        wide = table is not None or self._preparation().get("scale_type") == "f64"
        return x.astype(_np.float64 if wide else _np.float32) if x.dtype.kind in "biuf" else x

    def _is_picture(self, x, table):
        """Returns whether `x`, a path or the bytes of a file, is a picture. Bytes always are."""
        if not isinstance(x, (str, _os.PathLike)):
            return True
        return (table is None and self._info().row_type == _ROW_TYPE["uint8"] and
                not _os.fsdecode(x).lower().endswith((".npy", ".npz", ".csv")))

    def _channels_first(self, x, shape):
        """Moves the channels to the front if they are last. If a shape fits both orders, the order of the training
        rows is assumed."""
        last = self._preparation().get("layout") == "channels_last"
        if x.shape[1:] == (*shape[1:], shape[0]) and (last or x.shape[1:] != shape):
            return _np.ascontiguousarray(_np.moveaxis(x, 3, 1))
        return x

    def _rows_of(self, path):
        """Opens the rows of a file for this model, as `trainer predict` reads them."""
        rows = _l.Handle("ls_rows_close")
        _l.call("ls_rows_open", _c.byref(rows._handle), self.handle, _bytes(path), None)
        return rows

    def _form(self, logits):
        """Returns the form of outputs, and NumPy's type for them."""
        wide = self._info().task == _l.TASK_VALUES  # a float may have too few digits for values that were learnt
        return int(logits) | (_l.OUTPUT_F64 if wide else 0), _np.float64 if wide else _np.float32

    def _predict_file(self, path, logits):
        form, dtype = self._form(logits)
        with self._rows_of(path) as rows:
            n = _l.lib().ls_rows_count(rows.handle)
            out = _np.empty((n, self._info().outputs), dtype)
            _l.call("ls_rows_predict", rows.handle, 0, n, form, _address(out), out.size)
        return out

    def evaluate(self, path):
        """Evaluates the model on a file with the targets too, as `trainer eval --data` does. Returns a dict: rows, loss,
        accuracy, and all measured metrics by their names; NaN is the value of a metric that has none on these rows. If the
        rows have weights, "unweighted" is a dict of the metrics with each row counted once."""
        found = _l.sized(_l.evaluation)
        _l.call("ls_model_evaluate", self.handle, _bytes(path), None, _c.byref(found))
        return {**found.named(), "rows": found.rows, "loss": found.loss, "accuracy": _accuracy(found),
                found.metric.decode(): found.metric_value}

    def predict(self, x, logits=False):
        """Predicts rows that are in the form of the user's own data: they are prepared as the training rows were.
        Returns probabilities (n, classes), or logits if `logits` is true. A model that learnt numbers returns numbers,
        with the loss poisson expected counts, or their logarithms if `logits` is true.
        A row with a value that the model does not know, such as a text that training did not have, gives NaN.

        x    one of these:
             - an array (n, …) of values as in training: uint8 for pixels, else numbers of any type
             - for a model of a table, an array of numbers in the order of `columns`, with NaN for a missing number
             - for a model of a table, values with column names: a data frame, a list of dicts, a dict of lists, or
               a dict of values, which is one row. Columns may be in any order; other columns are ignored
             - the path of a .csv, .npy or .npz file
             - for a model of images, the path of a picture of any size (JPEG, PNG, BMP, WebP, PGM, PPM), the path
               of a folder of pictures (`pictures` lists them), the bytes of a picture's file, or a list of these"""
        info = self._info()
        if _picture.is_one(x) and not self._is_picture(x, self._table()):
            return self._predict_file(x, logits)
        x = self._channels_first(self._prepare(x), (info.channels, info.height, info.width))
        x = _with_sides(x)
        if x.shape[1:] != (info.channels, info.height, info.width):
            raise ValueError(f"x: expected rows of {self.shape}, found {x.shape[1:]}")
        form, dtype = self._form(logits)
        out = _np.empty((len(x), info.outputs), dtype)
        _l.call("ls_model_predict", self.handle, _address(x), _ROW_TYPE[x.dtype.name], len(x), form, _address(out), out.size)
        return out

    def save(self, path):
        """Writes the weights as a safetensors file, under PyTorch's names."""
        _l.call("ls_model_save", self.handle, _bytes(path))

    def export(self, path):
        """Writes the whole network as an ONNX file, as `trainer export` does."""
        _l.call("ls_model_export", self.handle, _bytes(path))

    def weights(self):
        """Returns a dict from names to arrays, like the state_dict of a PyTorch module with the same layers."""
        with _tensors.scratch() as path:
            self.save(path)
            return _tensors.read(path)


class _Bar:
    """Draws the progress of a run, ten times a second. It runs Python code at each step, so it is created only on
    request."""

    def __init__(self, stream):
        self.stream, self.epochs, self.steps, self.judged = stream, 0, 0, "test"
        self.begin()

    def begin(self):
        self.step, self.rows, self.loss, self.correct = 0, 0, 0.0, 0
        self.begun = self.drawn = _time.monotonic()

    def show(self, text):
        record = _json.loads(text)
        kind = record["type"]
        if kind == "run_start":
            self.epochs = record["config"]["epochs"]
            self.judged = "validation" if record["config"]["data"]["validation"] > 0 else "test"
            self.steps = -(-record["data"]["train_rows"] // record["batch_size"])
        elif kind == "step" and record["loss"] is not None:
            self.step += 1
            self.rows += record["rows"]
            self.loss += record["loss"] * record["rows"]
            self.correct += record["correct"] or 0
            if _time.monotonic() > self.drawn + 0.1:
                self.draw(record["epoch"])
        elif kind == "epoch":
            self.draw(record["epoch"])
            self.begin()
            self.stream.write("\n")
        elif kind == "eval" and record["test_loss"] is not None:
            self.stream.write(f"{self.judged} loss {record['test_loss']:.4f} acc {record['test_accuracy'] or 0:.4f}\n")
        self.stream.flush()

    def draw(self, epoch):
        self.drawn = _time.monotonic()
        rate = self.rows / max(self.drawn - self.begun, 1e-9)
        share = min(self.step / self.steps, 1) if self.steps else 0
        self.stream.write(
            f"\repoch {epoch}{f'/{self.epochs}' if self.epochs else ''} [{'=' * int(24 * share):<24}] "
            f"loss {self.loss / max(self.rows, 1):.4f} acc {self.correct / max(self.rows, 1):.4f} {rate:.0f}/s ")


class _Run:
    """The run that one call of `fit` or `records` has started."""

    def __init__(self):
        self.done, self.alive, self.ended = _threading.Event(), False, None  # alive: the run has a thread

    def outcome(self):
        if isinstance(self.ended, BaseException):
            raise self.ended
        return self.ended


def _cache_dir():
    """The cache directory of the command-line program; None if the environment names no usable one."""
    for name, below in (("XDG_CACHE_HOME", "lockstep"), ("HOME", ".cache/lockstep")):
        place = _os.environ.get(name, "")
        if place.startswith("/"):
            return _os.fsencode(_os.path.join(place, below))
    return None


def _set_places(options, assignments, data_dirs, cache_dir):
    """Sets the options of a trainer that say what keys are set to, and where files are."""
    texts = [f"{k}={v if isinstance(v, str) else _json.dumps(v)}".encode() for k, v in assignments.items()]
    folders = [_bytes(d) for d in data_dirs]
    options.set, options.set_count = (_c.c_char_p * len(texts))(*texts), len(texts)
    options.data_dirs = (_c.c_char_p * len(folders))(*folders)
    options.data_dir_count = len(folders)
    options.cache_dir = _bytes(cache_dir) if cache_dir else _cache_dir()


class Trainer(_l.Handle):
    """A training run.

    config     path of a config file (JSON), or the config as a dict
    data       (x, y): x has rows of numbers, (n, features), (n, height, width) or (n, channels, height, width); y has
               n classes or floats (n, targets). uint8 rows are divided by 255; numbers of other types keep their
               values. None: the data that the config names
    test       (x, y) like `data`: the rows on which the model is evaluated
    weights    with `data`: the weight of each training row, 0 or from 1e-9 to 1e9; `test_weights`: those of `test`
    shape      instead of `data`, for rows that are passed to `step`: the shape of a row, (features,), (height, width)
               or (channels, height, width). The rows have the type `dtype`; their targets are `classes` classes or
               `targets` numbers. `weighted`: `step` receives weights of rows, too
    set        values of keys that replace those in the config, a dict: {"optimizer.lr": 0.1, "epochs": 3}
    resume     directory of a run to continue, or "latest"
    at         with `resume`: number of steps of the checkpoint to continue from; None: the newest
    data_dirs  directories in which the files of built-in data are looked for
    cache_dir  directory for the decoded pictures of a folder and for choices of kernels; None: that of the
               command-line program, ~/.cache/lockstep
    step_rows  numbers of rows that `step` accepts in addition to batch_size
    inject     faults to cause on purpose, for tests: ["worker=1,step=120,kind=fail"]
    """

    def __init__(self, config=None, data=None, test=None, *, shape=None, classes=None,
                 targets=0, dtype="uint8", weights=None, test_weights=None,
                 weighted=False, set=None, resume=None, at=None,
                 data_dirs=("/usr/share/datasets",), cache_dir=None, step_rows=(), inject=()):
        self._latest = _Run()
        self._latest.done.set()
        self._freeing = _threading.Lock()
        super().__init__("ls_trainer_close")
        if shape is not None and (data is not None or (classes is None and not targets)):
            raise ValueError("shape: rows come with each step; give `classes` or `targets`, and no `data`")
        self._check_weights(data, test, shape, weights, test_weights, weighted)
        self._arrays = None
        if data is not None or shape is not None:
            self._arrays = _Arrays(data, test, shape, classes, targets, dtype, weights, test_weights, weighted)
        assignments = {**(set or {}), **({"data.name": "python"} if self._arrays else {})}
        options = _l.trainer_options(size=_c.sizeof(_l.trainer_options))
        if isinstance(config, dict):
            options.config_text = _json.dumps(config).encode()
        elif config is not None:
            options.config_path = _bytes(config)
        if resume is not None:
            options.resume = _bytes(resume)
            options.resume_at = at or 0
        _set_places(options, assignments, data_dirs, cache_dir)
        options.step_rows = (_c.c_uint32 * len(step_rows))(*step_rows)
        options.step_row_count = len(step_rows)
        faults = [f.encode() for f in inject]
        hooks = _l.trainer_sys(size=_c.sizeof(_l.trainer_sys), inject_count=len(faults))
        hooks.inject = (_c.c_char_p * len(faults))(*faults)
        options.sys = _c.pointer(hooks)
        if self._arrays:
            options.sources, options.source_count = self._arrays.pointers, 1
        listeners = self._listeners = []

        def record(user, text, length, error):
            if listeners:
                record_text = _c.string_at(text, length)
                for each in listeners:
                    each(record_text)
            return 0

        self._record = _l.RECORD(record)  # lives as long as the trainer
        callbacks = _l.trainer_callbacks(size=_c.sizeof(_l.trainer_callbacks), record=self._record)
        options.callbacks = _c.pointer(callbacks)
        _nvidia.share(config, set)
        try:
            _l.call("ls_trainer_open", _c.byref(self._handle), _c.byref(options))
        except Error:
            if self._arrays and self._arrays.failed:
                raise self._arrays.failed
            raise

    @staticmethod
    def _check_weights(data, test, shape, weights, test_weights, weighted):
        """Raises an error for weights of rows that are not given as arrays."""
        if weights is not None and data is None:
            raise ValueError("weights: weights of the rows of `data`, which is missing; " +
                             ("give them to each step, with weighted=True" if shape is not None else
                              "a table has a column of weights, data.weight in the config"))
        if test_weights is not None and test is None:
            raise ValueError("test_weights: weights of the rows of `test`, which is missing")
        if weighted and data is None and shape is None:
            raise ValueError("weighted: `step` needs `shape`")

    def _stop(self):
        """Asks the current run to end. Returns whether no run is in progress. The caller holds `_freeing`. To wait for
        the end of a run, wait for `done` instead of joining the thread: if Ctrl-C interrupts `join`, Python 3.11
        wrongly marks the thread as ended."""
        run = self._latest
        if not run.alive:
            run.done.set()
        elif not run.done.is_set():
            _l.lib().ls_trainer_interrupt(self._handle)
        return run.done.is_set()

    def close(self):
        """Ends a run that is in progress, and frees everything. Any thread may call it; `fit` then returns in the
        thread that called `fit`."""
        while _os.getpid() == self._process:
            with self._freeing:
                if self._stop():
                    return super().close()
            try:  # after a second Ctrl-C the run still uses the trainer, so keep waiting
                self._latest.done.wait()
            except KeyboardInterrupt:
                pass

    # ---- a whole run ----------------------------------------------------------------------------

    def _listen(self, each):
        """Calls `each` with the text of each record, on the run's thread."""
        self.handle  # raises an error if the trainer is closed
        self._listeners.append(each)

    def _work(self, handle, save, run):
        """The run's own thread; the caller's thread stays free to receive Ctrl-C. Sets run.done at its end; until
        then `close` frees nothing."""
        with self._freeing:
            if run.done.is_set():  # the run was cancelled before this thread began; the handle can be closed
                return
            run.alive = True
        try:
            try:
                _l.call("ls_trainer_run", handle)
            except Error as error:
                if error.status != "LS_EINTERRUPTED":
                    raise
            if save is not None:
                _l.call("ls_trainer_save", handle, _bytes(save))
            run.ended = Result(_l.lib().ls_trainer_result(handle).contents)
        except BaseException as error:
            run.ended = error
        finally:
            run.done.set()

    def _begin(self, run, save):
        if save is not None:
            _check_target(save)
        with self._freeing:  # a concurrent close() comes before this block, or finds the new run and waits for it
            thread = _threading.Thread(target=self._work, args=(self.handle, save, run))
            self._latest = run
            thread.start()
            run.alive = True

    def _stopped(self, run, why):
        """Handles the exception `why`, raised while the caller waited for `run`, for example by a signal's handler:
        ends the run and waits for its end. A run that another call has started goes on. After Ctrl-C, returns
        normally if the run has ended; raises any other exception again."""
        if self._latest is run:
            with self._freeing:
                self._stop()
            run.done.wait()
        if run.ended is None or not isinstance(why, KeyboardInterrupt):
            raise why

    def fit(self, progress=None, save=None):
        """Trains for the config's number of epochs, and returns a Result. Can be called once. Ctrl-C ends the run after
        the current step; `fit` then returns. `save`: file to which the weights are saved at the end. If the config
        has a run_dir, the run also saves its files there. `progress`: whether to draw a progress bar on stderr;
        None: if stderr is a terminal."""
        if progress is None:
            progress = _sys.stderr.isatty()
        if progress:
            self._listen(_Bar(_sys.stderr).show)
        run = _Run()
        try:
            self._begin(run, save)
            while not run.done.wait(0.05):
                pass
        except BaseException as why:
            self._stopped(run, why)
        return run.outcome()

    def records(self, save=None):
        """Trains as `fit` does, and yields each metrics record, a dict, when the run writes it. Leaving the loop or
        Ctrl-C stops the run; then result.interrupted is true."""
        arrived, run = _queue.SimpleQueue(), _Run()
        self._listen(arrived.put)
        try:
            self._begin(run, save)
            while not run.done.wait(0.05):
                while not arrived.empty():
                    yield _json.loads(arrived.get())
        except BaseException as why:
            self._stopped(run, why)
        while not arrived.empty():
            yield _json.loads(arrived.get())
        run.outcome()

    @property
    def handle(self):
        """The handle of the trainer. During a run only `close` may be called, from another thread or from the loop over
        `records`; all other functions raise an error here."""
        if not self._latest.done.is_set():
            raise RuntimeError("a run is under way; models, steps and results are for before or after it")
        return super().handle

    @property
    def result(self):
        return Result(_l.lib().ls_trainer_result(self.handle).contents)

    # ---- step by step ---------------------------------------------------------------------------

    def step(self, x, y, weights=None):
        """Trains one step on these rows, and returns its loss and accuracy. `weights`: the weight of each row. The
        trainer must have been created with `shape`."""
        if self._arrays is None:
            raise ValueError("a trainer for steps is made with shape= and classes= or targets=")
        x = self._arrays.rows(x)
        y = _targets(y, len(x))
        self._arrays.check(x, y)
        out = _l.sized(_l.step_result)
        rows = _l.sized(_l.step_rows)
        rows.rows, rows.targets, rows.n = x.ctypes.data, y.ctypes.data, len(x)
        rows.row_type = _ROW_TYPE[x.dtype.name]
        weights = _weights(weights, len(x))
        rows.weights = _floats(weights)
        _l.call("ls_trainer_step", self.handle, _c.byref(rows), _c.byref(out))
        return out.loss, out.accuracy

    def set_lr(self, lr):
        """Sets the full learning rate, from the next step on. The schedule multiplies it."""
        _l.call("ls_trainer_set_lr", self.handle, float(lr))

    def evaluate(self, metrics=False):
        """Returns mean loss and accuracy on the test rows; if `metrics` is true, a dict of all measured metrics by their
        names instead, with "unweighted" if the rows have weights (see Model.evaluate)."""
        found = _l.sized(_l.evaluation)
        _l.call("ls_trainer_evaluate", self.handle, _c.byref(found))
        if metrics:
            return {**found.named(), "rows": found.rows, "loss": found.loss, "accuracy": _accuracy(found)}
        return found.loss, _accuracy(found)

    def model(self):
        """Returns a Model with a copy of the current weights."""
        model = Model()
        _l.call("ls_trainer_model", _c.byref(model._handle), self.handle)
        return model

    def predict(self, x, logits=False):
        """Does the same as Model.predict, with the current weights."""
        with self.model() as model:
            return model.predict(x, logits)

    def save(self, path):
        """Writes everything that is needed to continue training to a safetensors file. Model.open accepts the file,
        too."""
        _l.call("ls_trainer_save", self.handle, _bytes(path))

    def load(self, source, state=None):
        """Continues from a file that `save` has written. If `source` is another safetensors file, or a dict of arrays
        with PyTorch's names (`load(net.state_dict())`), loads only the weights. `state` "reset", "keep" or "take":
        loads only the weights, and resets the optimizer's state, keeps it, or takes that of the file."""
        if not isinstance(source, (str, bytes, _os.PathLike)):
            with _tensors.scratch() as path:
                _tensors.write(path, source)
                return self.load(path, state)
        if state is None:
            return _l.call("ls_trainer_load", self.handle, _bytes(source))
        states = ("reset", "keep", "take")
        if state not in states:
            raise ValueError(f'state: expected "reset", "keep" or "take", found {state!r}')
        return _l.call("ls_trainer_load_weights", self.handle, _bytes(source), states.index(state))

    def weights(self):
        """Does the same as Model.weights, with the current weights."""
        with self.model() as model:
            return model.weights()


class Verdict:
    """The result of `verify`. It is true if nothing differs.

    holds      nothing differs
    whole      the whole training was replayed
    segments, replayed    number of segments of the run, and of those that were replayed
    seed       the number with which the segments were drawn; None: the whole training was replayed
    segment    the first segment that differs, counted from 1; None: none, or the difference is not in a segment
    steps      (first, last) step of that segment; None without one
    step       first step of that segment whose record differs; None: none is known
    place      what differs otherwise: "receipt.json: evaluation.test_loss", "metrics.jsonl:17"; ""
    text       a sentence about the result
    weights_sha256    of the weights that the result is about; "" if it is unknown
    weights_file_sha256    of the file of weights that was compared; "" without one
    prover_files    paths of files that the prover has named, not `set`, by their keys: {"data.test_path": "/their/t.csv"}
    """

    def __init__(self, v, seed):
        self.holds, self.whole = bool(v.holds), bool(v.whole)
        self.segments, self.replayed = v.segments, v.replayed
        self.seed = None if self.whole else seed
        self.segment = v.segment + 1 if v.segment >= 0 else None
        self.steps = (getattr(v, "from") + 1, v.to) if v.segment >= 0 else None
        self.step = v.step or None
        self.place, self.text = (t.decode("utf-8", "replace") for t in (v.place, v.text))
        self.weights_sha256 = v.weights_sha256.decode()
        self.weights_file_sha256 = v.weights_file_sha256.decode()
        files = v.prover_files.decode("utf-8", "replace").split("\n") if v.prover_files else []
        self.prover_files = dict(line.split("=", 1) for line in files)

    def __bool__(self):
        return self.holds

    def __repr__(self):
        return f"<lockstep_trainer.Verdict: {self.text}>"


def verify(run, *, weights=None, all=False, segments=3, seed=None, set=None, data_dirs=("/usr/share/datasets",),
           cache_dir=None, progress=None):
    """Verifies a run: reads its data again, replays the training or parts of it, and compares. Returns a Verdict.

    run        directory of the run, or path of a receipt alone, which is always replayed as a whole
    weights    file of the weights; None: weights.safetensors beside the run's or the receipt's other files
    all        replay the whole training; only this proves that nothing differs
    segments   else: number of segments that are replayed besides the first and the last
    seed       number with which they are drawn, to repeat a draw; None: a random number of the system
    set        values of keys that are not part of the recipe, a dict: {"data.path": "/data", "devices": "cpu:4"}
    data_dirs, cache_dir    as for Trainer
    progress   called with the number of steps replayed so far and the number of all, from time to time

    Raises Error if the run cannot be verified, for example because it was made with another version of the kernels. No
    file is written. Python code of other threads runs meanwhile; Ctrl-C takes effect at the end.
    """
    seed = int.from_bytes(_os.urandom(6), "little") if seed is None else seed
    options = _l.trainer_options(size=_c.sizeof(_l.trainer_options))
    _set_places(options, set or {}, data_dirs, cache_dir)

    def show(user, p):
        progress(p.contents.done, p.contents.steps)

    asked = _l.verify_options(size=_c.sizeof(_l.verify_options), run=_bytes(run), all=bool(all), segments=segments,
                              seed=seed, trainer=_c.pointer(options))
    asked.weights = None if weights is None else _bytes(weights)
    if progress:
        asked.progress = _l.VERIFY_PROGRESS(show)
    _nvidia.share(None, set)
    found = _l.sized(_l.verdict)
    _l.call("ls_verify", _c.byref(found), _c.byref(asked))
    return Verdict(found, seed)
