"""Lockstep from Python: data-parallel training in C, arrays in and out.

    import lockstep

    with lockstep.Trainer("fashion_mnist.json", data=(x, y), test=(x_test, y_test)) as trainer:
        trainer.fit()
        trainer.save("model.safetensors")

    model = lockstep.Model.open("model.safetensors")
    model.predict(images)                 # probabilities, (n, classes)

Nothing of Python runs while a step is computed: rows are copied once, when the trainer is opened.
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
from . import _picture, _table, _tensors
from ._library import Error
from ._picture import pictures

__all__ = ["Error", "Model", "Result", "Trainer", "pictures"]
__version__ = "0.2.0"


def _bytes(path):
    return _os.fsencode(_os.fspath(path))


def _rows(x, what="x"):
    """As the library takes them: contiguous, uint8 or float32, (n, channels, height, width). Only uint8 is
    bytes, which are divided by 255; bool is 0 and 1, and numbers of any other type are what they are."""
    x = _np.asarray(x)
    if x.dtype.kind not in "biuf":
        raise ValueError(f"{what}: expected numbers, found {x.dtype}")
    if x.dtype != _np.uint8:
        x = x.astype(_np.float32, copy=False)
    if not 2 <= x.ndim <= 4 or 0 in x.shape:
        raise ValueError(f"{what}: expected (n, features), (n, height, width) or "
                         f"(n, channels, height, width), found {x.shape}")
    return _np.ascontiguousarray(_with_sides(x))


def _with_sides(x):
    """(n, features), (n, height, width) or (n, channels, height, width) → the last of these."""
    return x if x.ndim == 4 else x.reshape(len(x), *_sides(x.shape[1:]))


def _address(a):
    """Of an array's first number; `a.ctypes` makes an object with more than that."""
    return a.__array_interface__["data"][0]


# What arrays of rows are called in .npz files, as the library looks for them.
_ROWS = ("x", "X", "x_train", "X_train", "train_x", "train_X", "images", "data", "arr_0")


def _sides(shape):
    """(channels, height, width) of a row of shape (features,), (height, width) or these."""
    shape = tuple(shape) if _np.iterable(shape) else (shape,)
    if not 1 <= len(shape) <= 3:
        raise ValueError(f"shape: expected (features,), (height, width) or (channels, height, width), found {shape}")
    return {1: shape + (1, 1), 2: (1,) + shape, 3: shape}[len(shape)]


def _targets(y, n, what="y"):
    """Classes, int32 (n,), or numbers, float32 (n, targets). Whole numbers, one a row, are classes."""
    y = _np.asarray(y)
    if y.dtype.kind not in "biuf" or y.ndim not in (1, 2) or len(y) != n or 0 in y.shape:
        raise ValueError(f"{what}: expected {n} integers, one class for each row, or numbers (n, targets), "
                         f"found {y.dtype} {y.shape}")
    if y.dtype.kind == "f" or y.size != n:
        return _np.ascontiguousarray(y.reshape(n, -1), dtype=_np.float32)
    y = y.reshape(n)
    if int(y.min()) < 0 or int(y.max()) > 2**31 - 2:
        wrong = next(i for i, label in enumerate(y) if not 0 <= label <= 2**31 - 2)
        raise ValueError(f"{what}: row {wrong}: expected a class, a whole number from 0 on, found {y[wrong]}; "
                         "for numbers to learn pass floats")
    return _np.ascontiguousarray(y, dtype=_np.int32)


def _like(y):
    """What of targets must be alike: their type, and how many a row has."""
    return y.dtype, y.shape[1:]


class _Arrays:
    """A data source over arrays, or of a shape alone, whose rows come with each step."""

    def __init__(self, data, test, shape, classes, targets, dtype):
        self.sets, self.failed = [], None
        for pair, what in ((data, "data"), (test, "test")):
            x, y = pair if pair is not None else (None, None)
            x = None if x is None else _rows(x, f"{what}[0]")
            self.sets.append((x, None if x is None else _targets(y, len(x), f"{what}[1]")))
        x, y = self.sets[0]
        if x is None:
            y = _np.empty((0, targets), _np.float32) if targets else _np.empty(0, _np.int32)
        self.shape = _sides(shape) if x is None else x.shape[1:]
        self.dtype = _rows(_np.zeros((1, 1), dtype)).dtype if x is None else x.dtype
        self.like = _like(y)
        for x, y in self.sets:
            if x is not None:
                self.check(x, y)
        if self.like[1]:
            classes = 0
        elif classes is None:
            classes = 1 + max(int(y.max()) for _, y in self.sets if y is not None)
        rows = [0 if x is None else len(x) for x, _ in self.sets]
        self.read = _l.READ(self._read)
        self.source = _l.data_source(
            size=_c.sizeof(_l.data_source), name=b"python", channels=self.shape[0],
            height=self.shape[1], width=self.shape[2], classes=classes, train_rows=rows[0], test_rows=rows[1],
            streamed=rows[0] == 0, read=self.read, dtype=self.dtype != _np.uint8,
            targets=self.like[1][0] if self.like[1] else 0)
        self.pointers = (_c.POINTER(_l.data_source) * 1)(_c.pointer(self.source))

    def _read(self, user, test, rows, count, values, targets, error):
        """What it raises, Ctrl-C too, would be lost in C: it is kept, and the reading ends."""
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
            raise ValueError(f"expected rows of {self.dtype} {self.shape}, found {x.dtype} "
                             f"{x.shape[1:]}")
        if _like(y) != self.like:
            raise ValueError(f"expected targets of {self.like[0]} {self.like[1]}, found "
                             f"{y.dtype} {y.shape[1:]}")


class Result:
    """What a run came to: loss and accuracy on the test rows, steps, seconds, the weights' hash."""

    def __init__(self, r):
        self.epochs, self.steps = r.epochs, r.steps
        self.test_loss, self.test_accuracy = r.test_loss, r.test_accuracy
        self.seconds_per_epoch = r.seconds_per_epoch
        self.devices = (r.devices or b"").decode()
        self.weights_sha256 = r.weights_sha256.decode()
        self.checkpoint = (r.checkpoint or b"").decode() or None
        self.interrupted = bool(r.interrupted)

    def __repr__(self):
        return (f"<lockstep.Result: {self.epochs} epochs, test accuracy {self.test_accuracy:.4f}"
                f"{', interrupted' if self.interrupted else ''}>")


class Model(_l.Handle):
    """Weights to predict with, from a file (Model.open) or a trainer (Trainer.snapshot). Any thread."""

    def __init__(self):
        super().__init__("ls_snapshot_release")
        self._kept = {}

    def _once(self, what, look):
        """What the library says of the model, which never changes: a prediction of one row would spend its time on it."""
        self.handle  # raises an error where it is closed
        if what not in self._kept:
            self._kept[what] = look()
        return self._kept[what]

    @classmethod
    def open(cls, path, device=None):
        """Of a file that a run or `save` has written. `device`: "cpu:1" (the default), "cuda:0"."""
        self = cls()
        options = _l.model_options(size=_c.sizeof(_l.model_options),
                                   device=device.encode() if device else None)
        _l.call("ls_model_open", _c.byref(self._handle), _bytes(path), _c.byref(options))
        return self

    def _info(self):
        return self._once("info", self._look_info)

    def _preparation(self):
        return self._once("preparation", lambda: self.card.get("preparation") or {})

    def _look_info(self):
        info = _l.snapshot_info()
        _l.lib().ls_snapshot_describe(self.handle, _c.byref(info))
        return info

    @property
    def shape(self):
        """Of a row: (channels, height, width)."""
        info = self._info()
        return info.channels, info.height, info.width

    @property
    def parameters(self):
        return self._info().parameters

    @property
    def class_names(self):
        """A name for each class; its number where it has none."""
        names = (_l.lib().ls_model_class_name(self.handle, i)
                 for i in range(self._info().classes))
        return [str(i) if name is None else name.decode() for i, name in enumerate(names)]

    @property
    def card(self):
        """What the file says of the model, a dict: input, classes, class_names, preparation, recipe."""
        card = _l.lib().ls_model_card(self.handle)
        return {} if card is None else _json.loads(card)

    @property
    def columns(self):
        """The names of the columns that a model of a table reads; None where it reads arrays or images."""
        table = self._table()
        return None if table is None else [column["name"] for column in table]

    def _table(self):
        """The columns of a table, with the `levels` of those of texts."""
        return self._once("table", self._look_table)

    def _look_table(self):
        card = self.card
        preparation = card.get("preparation")
        if preparation is not None:
            return preparation["columns"] if preparation["rows"] == "table" else None
        if not card.get("features"):
            return None
        table = []  # a file of an earlier version names the column of each float
        for feature in card["features"]:
            if not table or table[-1]["name"] != feature["column"]:
                table.append({"name": feature["column"]})
            if "is" in feature:
                table[-1].setdefault("levels", []).append(feature["is"])
        return table

    def _prepare(self, x):
        """Rows as they are in the user's data, whatever they lie in → as ls_model_run takes them."""
        table = self._table()
        if table is None and _picture.are_several(x):
            return _picture.rows(self.handle, self.shape, x)
        if _picture.is_one(x):
            if self._is_picture(x, table):
                return _picture.rows(self.handle, self.shape, [x])
            x = self._read(_os.fsdecode(x), table)
        if table is not None:
            named = _table.of(x, [column["name"] for column in table])
            if named is not None:
                return _table.rows(self.handle, named, table)
        return _rows(self._as_trained(_np.asarray(x), table))

    def _as_trained(self, x, table):
        """Only uint8 is divided by 255: in its place other whole numbers that are bytes may stand, and it may stand
        where the training's numbers were bool or unsigned, too, or those of a table."""
        if not self._info().floats:
            if x.dtype == _np.uint8:
                return x
            if x.dtype.kind in "iu" and x.size and 0 <= int(x.min()) and int(x.max()) <= 255:
                return x.astype(_np.uint8, copy=False)
            raise ValueError(f"x: expected uint8, as in training, found {x.dtype}; only uint8 is divided by 255")
        kind = self._preparation().get("type", "")
        if x.dtype == _np.uint8 and table is None and not kind.startswith(("u", "bool")):
            raise ValueError("x: expected numbers that are not uint8, as in training, found uint8; only uint8 is "
                             "divided by 255")
        return x.astype(_np.float32) if x.dtype.kind in "biuf" else x

    def _is_picture(self, x, table):
        """Of a path, or of bytes, which are a picture's file."""
        if not isinstance(x, (str, _os.PathLike)):
            return True
        return table is None and not self._info().floats and not _os.fsdecode(x).lower().endswith((".npy", ".npz", ".csv"))

    def _channels_first(self, x, shape):
        """Rows with channels last, channels first: what fits both ways is as it was in training."""
        last = self._preparation().get("layout") == "channels_last"
        if x.shape[1:] == (*shape[1:], shape[0]) and (last or x.shape[1:] != shape):
            return _np.ascontiguousarray(_np.moveaxis(x, 3, 1))
        return x

    @staticmethod
    def _read(path, table):
        if path.lower().endswith(".npy"):
            return _np.load(path, allow_pickle=False)
        if path.lower().endswith(".npz"):
            with _np.load(path, allow_pickle=False) as archive:
                names = [name for name in _ROWS if name in archive.files] or archive.files
                if names[0] not in _ROWS and len(names) != 1:
                    raise ValueError(f"{path}: expected an array x in it, or only one, found {', '.join(names[:10])}")
                return archive[names[0]]
        if table is not None and not _os.path.isdir(path):
            return _table.read(path, [column["name"] for column in table])
        raise ValueError(f"{path}: expected {'a table (csv)' if table is not None else 'an array (npy)'}, as the "
                         "model reads it")

    def predict(self, x, logits=False):
        """Rows as they are in the user's data → probabilities, or logits, (n, classes); of a model that learnt
        numbers, these. What training did to a row is done here too.

        x    an array (n, …) of values as in training: uint8 for pixels, else numbers of any type; of a table, numbers
             in the order of `columns`, NaN where one is missing. Or, of a table, what has names: a data frame, a list of
             dicts, a dict of lists, or of values, which is one row; columns in any order, others are ignored.
             Or the path of a .csv, an .npy or an .npz file; of a model of images the path of a picture (JPEG, PNG, BMP, WebP, PGM, PPM) of
             any size, or of a folder of them (`pictures` lists what is taken), or a picture's file as bytes, or a
             list of these"""
        info = self._info()
        x = self._channels_first(self._prepare(x), (info.channels, info.height, info.width))
        x = _with_sides(x)
        if x.shape[1:] != (info.channels, info.height, info.width):
            raise ValueError(f"x: expected rows of {self.shape}, found {x.shape[1:]}")
        out = _np.empty((len(x), info.classes), _np.float32)
        _l.call("ls_model_run", self.handle, _address(x), len(x), int(logits), _address(out), out.size)
        return out

    def save(self, path):
        """As safetensors, under PyTorch's names."""
        _l.call("ls_snapshot_save", self.handle, _bytes(path))

    def weights(self):
        """Name → array, as a PyTorch module's state_dict of the same layers."""
        with _tensors.scratch() as path:
            self.save(path)
            return _tensors.read(path)


class _Bar:
    """Draws a run's records, ten times a second. It is Python at every step: made only where it is wanted."""

    def __init__(self, stream):
        self.stream, self.epochs, self.steps = stream, 0, 0
        self.begin()

    def begin(self):
        self.step, self.rows, self.loss, self.correct = 0, 0, 0.0, 0
        self.begun = self.drawn = _time.monotonic()

    def show(self, text):
        record = _json.loads(text)
        kind = record["type"]
        if kind == "run_start":
            self.epochs = record["config"]["epochs"]
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
            self.stream.write(f"test loss {record['test_loss']:.4f} acc {record['test_accuracy'] or 0:.4f}\n")
        self.stream.flush()

    def draw(self, epoch):
        self.drawn = _time.monotonic()
        rate = self.rows / max(self.drawn - self.begun, 1e-9)
        share = min(self.step / self.steps, 1) if self.steps else 0
        self.stream.write(
            f"\repoch {epoch}{f'/{self.epochs}' if self.epochs else ''} [{'=' * int(24 * share):<24}] "
            f"loss {self.loss / max(self.rows, 1):.4f} acc {self.correct / max(self.rows, 1):.4f} {rate:.0f}/s ")


class _Run:
    """What one call of `fit` or `records` began."""

    def __init__(self):
        self.done, self.alive, self.ended = _threading.Event(), False, None  # alive: it has a thread

    def outcome(self):
        if isinstance(self.ended, BaseException):
            raise self.ended
        return self.ended


class Trainer(_l.Handle):
    """A training run.

    config     a path of a JSON file, or such a document as a dict
    data       (x, y): rows of numbers, (n, features), (n, height, width) or (n, channels, height, width), and
               n classes or floats (n, targets); None: what the config names. uint8 is divided by 255; numbers
               of other types are what they are
    test       likewise, to evaluate on
    shape      instead of data, (features,), (height, width) or (channels, height, width) of rows of `dtype`,
               that come with `step`, with `classes` or `targets`
    set        a dict of keys: {"optimizer.lr": 0.1, "epochs": 3}
    resume     a run's directory, or "latest"
    data_dirs  where the files of built-in data are looked for
    step_rows  numbers of rows, besides the batch_size, that `step` will be given
    inject     faults on purpose, to see what they do: ["worker=1,step=120,kind=fail"]
    """

    def __init__(self, config=None, data=None, test=None, *, shape=None, classes=None,
                 targets=0, dtype="uint8", set=None, resume=None,
                 data_dirs=("/usr/share/datasets",), step_rows=(), inject=()):
        self._latest = _Run()
        self._latest.done.set()
        self._freeing = _threading.Lock()
        super().__init__("ls_trainer_close")
        if shape is not None and (data is not None or (classes is None and not targets)):
            raise ValueError("shape: rows come with each step; give `classes` or `targets`, and no `data`")
        self._arrays = None
        if data is not None or shape is not None:
            self._arrays = _Arrays(data, test, shape, classes, targets, dtype)
        assignments = {k: v if isinstance(v, str) else _json.dumps(v)
                       for k, v in (set or {}).items()}
        if self._arrays:
            assignments["data.name"] = "python"
        options = _l.trainer_options(size=_c.sizeof(_l.trainer_options))
        if isinstance(config, dict):
            options.config_text = _json.dumps({"run_dir": "", **config}).encode()
        elif config is not None:
            options.config_path = _bytes(config)
        if resume is not None:
            options.resume = _bytes(resume)
        texts = [f"{k}={v}".encode() for k, v in assignments.items()]
        folders = [_bytes(d) for d in data_dirs]
        options.set, options.set_count = (_c.c_char_p * len(texts))(*texts), len(texts)
        options.data_dirs = (_c.c_char_p * len(folders))(*folders)
        options.data_dir_count = len(folders)
        options.step_rows = (_c.c_uint32 * len(step_rows))(*step_rows)
        options.step_row_count = len(step_rows)
        faults = [f.encode() for f in inject]
        hooks = _l.trainer_sys(size=_c.sizeof(_l.trainer_sys), inject_count=len(faults))
        hooks.inject = (_c.c_char_p * len(faults))(*faults)
        options.sys = _c.pointer(hooks)
        if self._arrays:
            options.sources, options.source_count = self._arrays.pointers, 1
        self._sinks = []
        try:
            _l.call("ls_trainer_open", _c.byref(self._handle), _c.byref(options))
        except Error:
            if self._arrays and self._arrays.failed:
                raise self._arrays.failed
            raise

    def _stop(self):
        """Asks a run under way to end, under `_freeing`; → whether there is none, or it never began. Who waits
        waits for `done`: Python 3.11 takes a thread for ended when Ctrl-C interrupts its `join`."""
        run = self._latest
        if not run.alive:
            run.done.set()
        elif not run.done.is_set():
            _l.lib().ls_trainer_interrupt(self._handle)
        return run.done.is_set()

    def close(self):
        """Ends a run that is under way, and frees everything. From any thread: `fit` then returns there."""
        while _os.getpid() == self._process:
            with self._freeing:
                if self._stop():
                    return super().close()
            try:  # a second Ctrl-C must not free what the run still uses
                self._latest.done.wait()
            except KeyboardInterrupt:
                pass

    # ---- a whole run ----------------------------------------------------------------------------

    def _listen(self, each):
        """`each` gets every record's text, on the run's thread."""
        def record(user, text, length, error):
            each(_c.string_at(text, length))
            return 0

        sink = _l.RECORD(record)
        self._sinks.append(sink)
        _l.call("ls_trainer_add_sink", self.handle, sink, None)

    def _work(self, handle, save, run):
        """On a thread of its own, so that Ctrl-C is heard; to the end, so that `close` frees nothing before."""
        with self._freeing:
            if run.done.is_set():  # it was given up before there was a thread, and the handle may be no more
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
        with self._freeing:  # who closes the trainer now comes first, or finds a run to wait for
            thread = _threading.Thread(target=self._work, args=(self.handle, save, run))
            self._latest = run
            thread.start()
            run.alive = True

    def _stopped(self, run, why):
        """Whatever a signal's handler raises leaves nothing running; Ctrl-C is an end like others. A run that
        another call began goes on."""
        if self._latest is run:
            with self._freeing:
                self._stop()
            run.done.wait()
        if run.ended is None or not isinstance(why, KeyboardInterrupt):
            raise why

    def fit(self, progress=None, save=None):
        """Trains for the config's epochs, once; → Result. Ctrl-C ends the step under way, saves to `save`
        where that is given, and returns; a config with a run_dir saves there by itself.
        `progress`: a bar on stderr; by itself where that is a terminal."""
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
        """Trains as `fit` does, and yields each metrics record, a dict, as it comes. Leaving the loop
        stops the run, and so does Ctrl-C; then `result` says that it was interrupted."""
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
        """A run has the trainer to itself: only `close` is for another thread, and for a loop over records."""
        if not self._latest.done.is_set():
            raise RuntimeError("a run is under way; snapshots, steps and results are for before or after it")
        return super().handle

    @property
    def result(self):
        return Result(_l.lib().ls_trainer_result(self.handle).contents)

    # ---- step by step ---------------------------------------------------------------------------

    def step(self, x, y):
        """One step on these rows, of a trainer with a `shape`; → its loss and accuracy."""
        x = _rows(x)
        y = _targets(y, len(x))
        if self._arrays is None:
            raise ValueError("a trainer for steps is made with shape= and classes= or targets=")
        self._arrays.check(x, y)
        out = _l.step_result()
        _l.call("ls_trainer_step", self.handle, x.ctypes.data, y.ctypes.data, len(x),
                _c.byref(out))
        return out.loss, out.accuracy

    def evaluate(self):
        """Mean loss and accuracy on the test rows."""
        loss, accuracy = _c.c_double(), _c.c_double()
        _l.call("ls_trainer_evaluate", self.handle, _c.byref(loss), _c.byref(accuracy))
        return loss.value, accuracy.value

    def snapshot(self):
        """The weights as they are now, as a Model."""
        model = Model()
        _l.call("ls_trainer_snapshot", self.handle, _c.byref(model._handle))
        return model

    def predict(self, x, logits=False):
        """As Model.predict, with the weights as they are now."""
        with self.snapshot() as model:
            return model.predict(x, logits)

    def save(self, path):
        """Everything that training needs to go on, as one safetensors file; Model.open takes it too."""
        _l.call("ls_trainer_save", self.handle, _bytes(path))

    def load(self, source):
        """Goes on from such a file, or takes the weights of another, or of a dict of arrays by PyTorch's
        names: `load(net.state_dict())`."""
        if isinstance(source, (str, bytes, _os.PathLike)):
            _l.call("ls_trainer_load", self.handle, _bytes(source))
            return
        with _tensors.scratch() as path:
            _tensors.write(path, source)
            _l.call("ls_trainer_load", self.handle, _bytes(path))

    def weights(self):
        """As Model.weights, as they are now."""
        with self.snapshot() as model:
            return model.weights()
