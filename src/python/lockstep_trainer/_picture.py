# SPDX-License-Identifier: MIT
"""Converts encoded pictures to rows of a model, with the library liblockstep_picture."""
import ctypes as _c
import os as _os

import numpy as _np

from . import _library as _l

ENDS = (".jpg", ".jpeg", ".jpe", ".jfif", ".png", ".pgm", ".ppm", ".pnm", ".bmp", ".webp")
IGNORED = ("__MACOSX", "@eaDir")  # folders that archives and file servers create


def pictures(folder):
    """Returns the paths of the pictures in a folder and its subfolders, without hidden files. They are sorted by the
    bytes of their names, as `trainer predict` sorts them."""
    found = []
    for name in sorted(_os.listdir(folder), key=_os.fsencode):
        path = _os.path.join(folder, name)
        if name.startswith(".") or name in IGNORED:
            continue
        if _os.path.isdir(path):
            found += pictures(path)
        elif name.lower().endswith(ENDS):
            found.append(path)
    return found


def _is_bytes(x):
    return isinstance(x, (bytes, bytearray, memoryview))


def is_one(x):
    return _is_bytes(x) or isinstance(x, (str, _os.PathLike))


def are_several(x):
    return isinstance(x, (list, tuple)) and len(x) > 0 and all(map(is_one, x))


def _listed(x):
    """Returns the list `x` of pictures (bytes or paths), with each folder replaced by the pictures in it."""
    every = []
    for one in x:
        if _is_bytes(one) or not _os.path.isdir(one):
            every.append(one)
            continue
        inside = pictures(_os.fspath(one))
        if not inside:
            raise ValueError(f"{_os.fspath(one)}: expected images (jpg, png, bmp, webp, pgm, ppm) in it, found none")
        every += inside
    return every


def _contents(one, number):
    """Returns a name for messages, and the bytes of the file."""
    if _is_bytes(one):
        return f"picture {number}", bytes(one)
    path = _os.fspath(one)
    if _os.path.exists(path) and not _os.path.isfile(path):
        raise ValueError(f"{path}: expected a file or a folder")
    with open(path, "rb") as file:
        return path, file.read()


def rows(handle, shape, x):
    """Converts pictures (paths of files or folders, or bytes of files) to rows for ls_model_predict: uint8 (n, channels,
    height, width)."""
    every = _listed(x)
    out = _np.empty((len(every), *shape), _np.uint8)
    for i, one in enumerate(every):
        name, contents = _contents(one, i)
        options = _l.picture_options(size=_c.sizeof(_l.picture_options), name=_os.fsencode(name))
        _l.call("ls_model_picture", handle, contents, len(contents), _c.byref(options), out[i].ctypes.data,
                out[i].size)
    return out
