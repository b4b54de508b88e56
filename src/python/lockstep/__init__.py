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

import numpy as _np

from . import _library as _l
from ._library import Error

__all__ = ["Error", "Model", "Result", "Trainer"]
__version__ = "0.2.0"


def _bytes(path):
    return _os.fsencode(_os.fspath(path))


def _rows(x, what="x"):
    """As the library takes them: contiguous, uint8 or float32, (n, channels, height, width)."""
    x = _np.asarray(x)
    if x.dtype != _np.uint8:
        x = x.astype(_np.float32, copy=False)
    shape = {2: (len(x), x.shape[-1], 1, 1), 3: (len(x), 1) + x.shape[1:], 4: x.shape}.get(x.ndim)
    if shape is None or 0 in shape:
        raise ValueError(f"{what}: expected (n, features), (n, height, width) or "
                         f"(n, channels, height, width), found {x.shape}")
    return _np.ascontiguousarray(x.reshape(shape))


def _targets(y, n, what="y"):
    """Classes, int32 (n,), or numbers, float32 (n, targets)."""
    y = _np.asarray(y)
    if y.shape == (n,) and y.dtype.kind in "iu":
        return _np.ascontiguousarray(y, dtype=_np.int32)
    if y.dtype.kind == "f" and y.ndim in (1, 2) and len(y) == n:
        return _np.ascontiguousarray(y.reshape(n, -1), dtype=_np.float32)
    raise ValueError(f"{what}: expected {n} integers, one class for each row, or floats (n, targets), "
                     f"found {y.dtype} {y.shape}")


def _like(y):
    """What of targets must be alike: their type, and how many a row has."""
    return y.dtype, y.shape[1:]


class _Arrays:
    """A data source over arrays, or of a shape alone, whose rows come with each step."""

    def __init__(self, data, test, shape, classes, targets, dtype):
        self.sets, self.error = [], None
        for pair, what in ((data, "data"), (test, "test")):
            x, y = pair if pair is not None else (None, None)
            x = None if x is None else _rows(x, f"{what}[0]")
            self.sets.append((x, None if x is None else _targets(y, len(x), f"{what}[1]")))
        x, y = self.sets[0]
        if x is None:
            y = _np.empty((0, targets), _np.float32) if targets else _np.empty(0, _np.int32)
        self.shape = tuple(shape) if x is None else x.shape[1:]
        self.dtype = _np.dtype(dtype) if x is None else x.dtype
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

    @classmethod
    def open(cls, path, device=None):
        """Of a file that a run or `save` has written. `device`: "cpu:1" (the default), "cuda:0"."""
        self = cls()
        options = _l.model_options(size=_c.sizeof(_l.model_options),
                                   device=device.encode() if device else None)
        _l.call("ls_model_open", _c.byref(self._handle), _bytes(path), _c.byref(options))
        return self

    def _info(self):
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

    def predict(self, x, logits=False):
        """Rows (n, …) as in training → probabilities, or logits, (n, classes); of a model that learnt
        numbers, these."""
        info = self._info()
        x = _rows(x)
        if x.shape[1:] != (info.channels, info.height, info.width):
            raise ValueError(f"x: expected rows of {self.shape}, found {x.shape[1:]}")
        if (x.dtype != _np.uint8) != bool(info.floats):
            raise ValueError(f"x: expected {'float32' if info.floats else 'uint8'}, as in training, "
                             f"found {x.dtype}")
        out = _np.empty((len(x), info.classes), _np.float32)
        _l.call("ls_snapshot_predict" if logits else "ls_model_predict", self.handle,
                x.ctypes.data, len(x), out.ctypes.data)
        return out

    def save(self, path):
        """As safetensors, under PyTorch's names."""
        _l.call("ls_snapshot_save", self.handle, _bytes(path))


class Trainer(_l.Handle):
    """A training run.

    config     a path of a JSON file, or such a document as a dict
    data       (x, y): rows of uint8 or float32, (n, features), (n, height, width) or (n, channels, height,
               width), and n classes or floats (n, targets); None: what the config names
    test       likewise, to evaluate on
    shape      instead of data, (channels, height, width) of rows of `dtype`, that come with `step`, with
               `classes` or `targets`
    set        a dict of keys: {"optimizer.lr": 0.1, "epochs": 3}
    resume     a run's directory, or "latest"
    data_dirs  where the files of built-in data are looked for
    """

    def __init__(self, config=None, data=None, test=None, *, shape=None, classes=None,
                 targets=0, dtype="uint8", set=None, resume=None,
                 data_dirs=("/usr/share/datasets",), step_rows=()):
        self._thread = None
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
        if self._arrays:
            options.sources, options.source_count = self._arrays.pointers, 1
        self._shown, self._bar = 0.0, None
        self._on_progress = _l.PROGRESS(self._show)
        options.progress = self._on_progress
        self._keep = [options]
        _l.call("ls_trainer_open", _c.byref(self._handle), _c.byref(options))

    def close(self):
        """Ends a run that is under way, and frees everything."""
        thread = self._thread
        if thread is not None and thread.is_alive() and self._handle and _os.getpid() == self._process:
            _l.lib().ls_trainer_interrupt(self._handle)
            while thread.is_alive():  # a second Ctrl-C must not free what the thread still uses
                try:
                    thread.join()
                except KeyboardInterrupt:
                    pass
        super().close()

    # ---- a whole run ----------------------------------------------------------------------------

    def _show(self, user, progress):
        bar, p = self._bar, progress.contents
        if bar is None:
            return
        share = p.step / max(p.steps, 1)
        bar.write(f"\repoch {p.epoch}/{p.epochs} [{'=' * int(24 * share):<24}] "
                  f"loss {p.loss:.4f} acc {p.accuracy:.4f} {p.images_per_s:.0f}/s")
        if p.epoch_done:
            bar.write(f" test {p.test_loss:.4f} acc {p.test_accuracy:.4f}\n" if p.evaluated
                      else "\n")
        bar.flush()

    def _run(self, outcome):
        try:
            _l.call("ls_trainer_run", self.handle)
        except Error as error:
            outcome.append(error)

    def _train(self):
        """Trains on a thread of its own, so that Ctrl-C is heard; yields while it goes on."""
        outcome = []
        thread = self._thread = _threading.Thread(target=self._run, args=(outcome,))
        thread.start()
        try:
            while thread.is_alive():
                thread.join(0.05)
                yield
        except (KeyboardInterrupt, GeneratorExit) as stop:
            _l.lib().ls_trainer_interrupt(self.handle)
            thread.join()
            if isinstance(stop, GeneratorExit):
                raise
        if outcome and outcome[0].status != "LS_EINTERRUPTED":
            raise outcome[0]

    def fit(self, progress=None, save=None):
        """Trains for the config's epochs, once; → Result. Ctrl-C ends the step under way, saves to `save`
        where that is given, and returns; a config with a run_dir saves there by itself.
        `progress`: a bar on stderr; by itself where that is a terminal."""
        if progress is None:
            progress = _sys.stderr.isatty()
        self._bar = _sys.stderr if progress else None
        for _ in self._train():
            pass
        self._bar = None
        if save is not None:
            self.save(save)
        return self.result

    def records(self):
        """Trains as `fit` does, and yields each metrics record, a dict, as it comes. Leaving the loop
        stops the run."""
        arrived = _queue.SimpleQueue()

        def record(user, text, length, error):
            arrived.put(_c.string_at(text, length))
            return 0

        sink = _l.RECORD(record)
        self._keep.append(sink)
        _l.call("ls_trainer_add_sink", self.handle, sink, None)
        training = self._train()
        try:
            for _ in training:
                while not arrived.empty():
                    yield _json.loads(arrived.get())
            while not arrived.empty():
                yield _json.loads(arrived.get())
        finally:
            training.close()

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

    def load(self, path):
        """Goes on from such a file, or takes the weights of another."""
        _l.call("ls_trainer_load", self.handle, _bytes(path))
