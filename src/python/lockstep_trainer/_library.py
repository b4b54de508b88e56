# SPDX-License-Identifier: MIT
"""liblockstep through ctypes: the structures of <lockstep/trainer.h>, <lockstep/model.h> and <lockstep/picture.h>,
field by field.

tests/python compares the offset of each field with that of the C compiler. A newer library can have more fields at the
end of a structure. It finds the smaller size in the first field, `size`, of a structure that it reads. A structure that
it writes has unused bytes (`_room`) at its end.
"""
import ctypes as c
import os
from pathlib import Path


class Error(Exception):
    """An error of the library; `status` is the name of its status, such as "LS_ECONFIG"."""

    def __init__(self, status, text):
        super().__init__(text)
        self.status = status


EIO = -4  # LS_EIO, the status that a callback returns after a Python exception


class c_error(c.Structure):
    _fields_ = [("status", c.c_int), ("reason", c.c_int), ("reserved", c.c_int * 8), ("text", c.c_char * 472)]


READ = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_int, c.POINTER(c.c_uint32), c.c_uint32, c.c_void_p,
                   c.c_void_p, c.POINTER(c_error))
RECORD = c.CFUNCTYPE(c.c_int, c.c_void_p, c.c_void_p, c.c_size_t, c.POINTER(c_error))


class data_source(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("channels", c.c_int),
                ("height", c.c_int), ("width", c.c_int), ("classes", c.c_int),
                ("train_rows", c.c_uint32), ("test_rows", c.c_uint32), ("streamed", c.c_int),
                ("read", READ), ("user", c.c_void_p), ("row_type", c.c_int), ("target_count", c.c_int),
                ("weighted", c.c_int), ("train_weights", c.POINTER(c.c_float)),
                ("test_weights", c.POINTER(c.c_float)), ("target_type", c.c_int)]


class result(c.Structure):
    _fields_ = [("epochs", c.c_int), ("steps", c.c_uint64), ("test_loss", c.c_double), ("seconds_per_epoch", c.c_double),
                ("devices", c.c_char_p), ("weights_sha256", c.c_char * 65),
                ("checkpoint", c.c_char_p), ("saved", c.c_int), ("interrupted", c.c_int),
                ("metric", c.c_char_p), ("metric_value", c.c_double)]


class trainer_sys(c.Structure):
    _fields_ = [("size", c.c_size_t), ("inject", c.POINTER(c.c_char_p)), ("inject_count", c.c_int),
                ("pictures", c.c_void_p), ("folder_watch", c.c_void_p), ("clock", c.c_void_p),
                ("clock_user", c.c_void_p), ("program", c.c_char_p),
                ("failed", c.c_char_p)]


class trainer_callbacks(c.Structure):
    _fields_ = [("size", c.c_size_t), ("record", RECORD), ("progress", c.c_void_p), ("model", c.c_void_p),
                ("model_every_steps", c.c_uint64), ("user", c.c_void_p)]


class trainer_options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("config_path", c.c_char_p), ("config_text", c.c_char_p),
                ("set", c.POINTER(c.c_char_p)), ("set_count", c.c_int),
                ("data_dirs", c.POINTER(c.c_char_p)), ("data_dir_count", c.c_int),
                ("cache_dir", c.c_char_p), ("resume", c.c_char_p), ("registry", c.c_void_p),
                ("callbacks", c.POINTER(trainer_callbacks)), ("trace_path", c.c_char_p), ("trace_ops", c.c_int),
                ("sources", c.POINTER(c.POINTER(data_source))), ("source_count", c.c_int),
                ("step_rows", c.POINTER(c.c_uint32)), ("step_row_count", c.c_int),
                ("pool", c.c_void_p), ("host", c.c_void_p), ("cluster", c.c_void_p),
                ("sys", c.POINTER(trainer_sys)), ("cache_bytes", c.c_uint64),
                ("resume_at", c.c_uint64)]


class verify_progress(c.Structure):
    _fields_ = [("done", c.c_uint64), ("steps", c.c_uint64), ("remaining_s", c.c_double)]


VERIFY_PROGRESS = c.CFUNCTYPE(None, c.c_void_p, c.POINTER(verify_progress))


class verify_options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("run", c.c_char_p), ("weights", c.c_char_p),
                ("trainer", c.POINTER(trainer_options)), ("all", c.c_int), ("segments", c.c_int),
                ("seed", c.c_uint64), ("progress", VERIFY_PROGRESS), ("user", c.c_void_p)]


class verdict(c.Structure):
    _fields_ = [("size", c.c_size_t), ("holds", c.c_int), ("whole", c.c_int), ("segments", c.c_int),
                ("replayed", c.c_int), ("segment", c.c_int), ("from", c.c_uint64), ("to", c.c_uint64),
                ("step", c.c_uint64), ("place", c.c_char * 200), ("text", c.c_char * 1200),
                ("weights_sha256", c.c_char * 65), ("weights_file_sha256", c.c_char * 65),
                ("prover_files", c.c_char * 1900)]


class step_rows(c.Structure):
    _fields_ = [("size", c.c_size_t), ("rows", c.c_void_p), ("targets", c.c_void_p), ("row_type", c.c_int),
                ("n", c.c_uint32), ("weights", c.POINTER(c.c_float))]


class step_result(c.Structure):
    _fields_ = [("size", c.c_size_t), ("number", c.c_uint64), ("loss", c.c_double), ("accuracy", c.c_double),
                ("lr", c.c_double), ("skipped", c.c_int)]


class picture_resize(c.Structure):
    _fields_ = [("height", c.c_int), ("width", c.c_int), ("interpolation", c.c_int)]


class model_info(c.Structure):
    _fields_ = [("size", c.c_size_t), ("steps", c.c_uint64), ("channels", c.c_int), ("height", c.c_int),
                ("width", c.c_int), ("outputs", c.c_int), ("parameters", c.c_size_t),
                ("row_type", c.c_int), ("task", c.c_int), ("threshold", c.c_double),
                ("resize", picture_resize), ("white", c.c_int)]


class evaluation(c.Structure):
    _fields_ = [("size", c.c_size_t), ("rows", c.c_uint64), ("loss", c.c_double), ("metric", c.c_char_p),
                ("metric_value", c.c_double), ("metric_count", c.c_int), ("metric_names", c.c_char_p * 16),
                ("metric_values", c.c_double * 16), ("unweighted_values", c.c_double * 16)]

    def named(self):
        """All measured metrics by name, and if rows have weights, "unweighted": a dict of those with each row counted
        once."""
        names = [name.decode() for name in self.metric_names[:self.metric_count]]
        once = {name: value for name, value in zip(names, self.unweighted_values) if name != "loss"}
        any_value = any(value == value for value in once.values())
        return {**dict(zip(names, self.metric_values)), **({"unweighted": once} if any_value else {})}


class model_options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("device", c.c_char_p), ("registry", c.c_void_p),
                ("host", c.c_void_p)]


class field(c.Structure):
    _fields_ = [("column", c.c_char_p), ("kind", c.c_int), ("text", c.c_char_p), ("number", c.c_double)]


class picture_options(c.Structure):
    _fields_ = [("size", c.c_size_t), ("name", c.c_char_p), ("host", c.c_void_p)]


STRUCTURES = {"ls_error": c_error, "ls_data_source": data_source, "ls_result": result,
              "ls_trainer_callbacks": trainer_callbacks, "ls_trainer_options": trainer_options, "ls_trainer_sys": trainer_sys, "ls_step_rows": step_rows,
              "ls_verify_progress": verify_progress, "ls_verify_options": verify_options, "ls_verdict": verdict,
              "ls_step_result": step_result,
              "ls_picture_resize": picture_resize, "ls_model_info": model_info, "ls_evaluation": evaluation, "ls_model_options": model_options, "ls_field": field,
              "ls_picture_options": picture_options}

VERSION = "0.3.0"  # of this package and of the library that it loads
TASK_VALUES = 2  # ls_task
OUTPUT_F64 = 16  # ls_output
FIELD_NUMBER, FIELD_TEXT = 1, 2  # ls_field_kind


def sized(structure):
    """Returns a zeroed structure whose field `size` is set."""
    return structure(size=c.sizeof(structure))


_P, _E = c.c_void_p, c.POINTER(c_error)
_FUNCTIONS = {  # name: (result, arguments); the last argument of functions that return a status is a c_error
    "ls_status_name": (c.c_char_p, [c.c_int]),
    "ls_version": (c.c_char_p, []),
    "ls_trainer_open": (c.c_int, [c.POINTER(_P), c.POINTER(trainer_options), _E]),
    "ls_trainer_run": (c.c_int, [_P, _E]),
    "ls_trainer_interrupt": (None, [_P]),
    "ls_trainer_result": (c.POINTER(result), [_P]),
    "ls_trainer_step": (c.c_int, [_P, c.POINTER(step_rows), c.POINTER(step_result), _E]),
    "ls_trainer_set_lr": (c.c_int, [_P, c.c_double, _E]),
    "ls_trainer_load_weights": (c.c_int, [_P, c.c_char_p, c.c_int, _E]),
    "ls_trainer_evaluate": (c.c_int, [_P, c.POINTER(evaluation), _E]),
    "ls_trainer_model": (c.c_int, [c.POINTER(_P), _P, _E]),
    "ls_trainer_save": (c.c_int, [_P, c.c_char_p, _E]),
    "ls_trainer_load": (c.c_int, [_P, c.c_char_p, _E]),
    "ls_trainer_close": (c.c_int, [_P, _E]),
    "ls_verify": (c.c_int, [c.POINTER(verdict), c.POINTER(verify_options), _E]),
    "ls_model_describe": (c.c_int, [_P, c.POINTER(model_info), _E]),
    "ls_model_release": (None, [_P]),
    "ls_model_save": (c.c_int, [_P, c.c_char_p, _E]),
    "ls_model_export": (c.c_int, [_P, c.c_char_p, _E]),
    "ls_model_open": (c.c_int, [c.POINTER(_P), c.c_char_p, c.POINTER(model_options), _E]),
    "ls_model_predict": (c.c_int, [_P, _P, c.c_int, c.c_uint32, c.c_int, _P, c.c_size_t, _E]),
    "ls_model_row": (c.c_int, [_P, c.POINTER(field), c.c_size_t, c.c_size_t, _P, c.c_size_t, _E]),
    "ls_model_evaluate": (c.c_int, [_P, c.c_char_p, _P, c.POINTER(evaluation), _E]),
    "ls_rows_open": (c.c_int, [c.POINTER(_P), _P, c.c_char_p, _P, _E]),
    "ls_rows_count": (c.c_uint32, [_P]),
    "ls_rows_predict": (c.c_int, [_P, c.c_uint32, c.c_uint32, c.c_int, _P, c.c_size_t, _E]),
    "ls_rows_close": (None, [_P]),
    "ls_model_card": (c.c_char_p, [_P]),
    "ls_model_class_name": (c.c_char_p, [_P, c.c_int]),
}
_PICTURE_FUNCTIONS = {  # of liblockstep_picture
    "ls_model_picture": (c.c_int, [_P, c.c_char_p, c.c_size_t, c.POINTER(picture_options), _P, c.c_size_t, _E]),
}


def _load(name, functions):
    beside = sorted((Path(__file__).parent / "lib").glob(f"{name}.so*"))
    library = c.CDLL(str(beside[0]) if beside else f"{name}.so.0.3")
    for function, (restype, argtypes) in functions.items():
        function = getattr(library, function)
        function.restype, function.argtypes = restype, argtypes
    return library


_library = _picture_library = None


def lib():
    """Returns the library, which is loaded at the first call."""
    global _library
    if _library is None:
        library = _load("liblockstep", _FUNCTIONS)
        found = library.ls_version().decode()
        if found != VERSION:
            raise ImportError(f"lockstep_trainer {VERSION} found liblockstep {found}; install the package of that version")
        _library = library
    return _library


def _picture_lib():
    """Returns the library that reads pictures, which is loaded at the first call."""
    global _picture_library
    if _picture_library is None:
        lib()  # liblockstep_picture needs liblockstep, and finds it because it is loaded
        try:
            _picture_library = _load("liblockstep_picture", _PICTURE_FUNCTIONS)
        except OSError as why:
            raise Error("LS_EUNSUPPORTED", f"pictures need the library liblockstep_picture, which cannot be loaded: {why}; "
                        "it is built with liblockstep where libspng or libjpeg is installed (Debian: libspng-dev, "
                        "libjpeg-dev): build Lockstep again with them, or pass pictures as arrays of their pixels") from None
    return _picture_library


def call(name, *arguments):
    """Calls a function that returns a status. If the call fails, raises Error with the library's message."""
    error = c_error()
    library = _picture_lib() if name in _PICTURE_FUNCTIONS else lib()
    status = getattr(library, name)(*arguments, c.byref(error))
    if status:
        raise failure(status, error.text)


def failure(status, text):
    return Error(lib().ls_status_name(status).decode(), text.decode("utf-8", "replace"))


class Handle:
    """Owns an object of the library; the end of a `with` block closes it. After fork, the child process must not use
    it."""

    def __init__(self, close):
        self._handle, self._close, self._process = c.c_void_p(), close, os.getpid()

    @property
    def handle(self):
        if not self._handle:
            raise ValueError("it is closed")
        if os.getpid() != self._process:
            raise RuntimeError("it belongs to the process that forked this one; open it here")
        return self._handle

    def close(self):
        """Frees the object. Further calls have no effect."""
        handle, self._handle = self._handle, c.c_void_p()
        if handle and os.getpid() == self._process:
            function = getattr(lib(), self._close)
            call(self._close, handle) if function.restype else function(handle)

    def __enter__(self):
        return self

    def __exit__(self, *ignored):
        self.close()

    def __del__(self):
        try:
            self.close()
        except Exception:  # at the interpreter's end, modules can be unloaded already
            pass
