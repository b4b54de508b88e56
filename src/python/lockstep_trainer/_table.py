# SPDX-License-Identifier: MIT
"""Converts a user's rows of a table, whose columns have names, to rows that the library has prepared."""
import ctypes as _c
import datetime as _datetime
import decimal as _decimal
import math as _math
import numbers as _numbers
import sys as _sys

import numpy as _np

from . import _library as _l


def _named(items, columns):
    """Returns a dict of the items whose name is one of `columns`. Blanks at the ends of a name do not count, as in a
    file, whose names pandas keeps with the blanks after the commas."""
    named = {}
    for name, values in items:
        inner = name.strip(" \t") if isinstance(name, str) else name
        if inner in columns and inner in named:
            raise ValueError(f"column \"{inner}\": expected once, found twice")
        if inner in columns:
            named[inner] = values
    return named


def of(x, columns):
    """Returns a dict from column names to lists of values. `x` is a data frame, a dict of values or of columns, a list
    of dicts, or rows of mixed values in the order of `columns`, the model's columns. Returns None if `x` is none of
    these."""
    if hasattr(x, "columns") and not isinstance(x, type):  # pandas, polars and similar
        return _named(((name, x[name]) for name in x.columns), columns)
    if hasattr(x, "keys"):
        named = _named(x.items(), columns)
        several = {name: v for name, v in named.items() if _np.ndim(v) == 1}
        if several and len(several) < len(named):
            one = next(name for name in named if name not in several)
            raise ValueError(f"column \"{one}\": expected as many values as \"{next(iter(several))}\" has, found one")
        return named if several else {name: [v] for name, v in named.items()}
    if isinstance(x, (list, tuple)) and x and all(hasattr(row, "keys") for row in x):
        x = [_named(row.items(), columns) for row in x]
        for i, row in enumerate(x):
            missing = [name for name in columns if name not in row]
            if missing:
                raise ValueError(f"row {i}: column \"{missing[0]}\" is missing")
        return {name: [row[name] for row in x] for name in columns}
    if getattr(_np.asarray(x), "dtype", None) is not None and _np.asarray(x).dtype.kind in "OUS":
        x = _np.asarray(x, dtype=object)
        if x.ndim == 2 and x.shape[1] == len(columns):
            return {name: x[:, i] for i, name in enumerate(columns)}
        raise ValueError(f"x: expected {len(columns)} values a row, {', '.join(map(repr, columns[:20]))}, "
                         f"found {x.shape}")
    return None


def _numbers_of(values):
    """Returns the values as floats if all of them are numbers, else None. NaN is a missing number."""
    values = _np.asarray(values)
    return values.astype(_np.float64) if values.dtype.kind in "biuf" else None


def _number(value):
    """Converts a number to a float. One that no float holds becomes the largest: it is unknown, while inf is missing."""
    try:
        number = float(value)
    except OverflowError:
        return _math.copysign(_sys.float_info.max, -1 if value < 0 else 1)
    return _math.copysign(_sys.float_info.max, number) if _math.isinf(number) and value != number else number


def _value(value):
    """Converts a value to a text or a float. None and every kind of NaN become NaN, a missing number."""
    if isinstance(value, (bool, _np.bool_, str, bytes)):
        return value.decode() if isinstance(value, bytes) else str(value)
    if value is None or type(value).__name__ in ("NAType", "NaTType") or value != value:
        return float("nan")
    if isinstance(value, (_numbers.Number, _np.number)):
        return _number(value)
    return value.isoformat() if isinstance(value, _datetime.date) else str(value)


def _category(value, where):
    """Converts a value of a column of texts like _value, but a whole or decimal number to its digits, all of them, and a
    number of less than 64 bits to its own digits: float32(0.3) to 0.3. `where` names the row and column in an error."""
    if isinstance(value, (int, _np.integer)) and not isinstance(value, bool):
        try:
            return str(int(value))
        except ValueError as error:  # Python limits the digits of a text
            raise ValueError(f"{where}: {error}") from None
    if isinstance(value, _decimal.Decimal) and not value.is_nan():
        return str(value)
    if isinstance(value, _np.floating) and value.itemsize < 8 and _np.isfinite(value):
        if abs(value) >= 2.0 ** (_np.finfo(value.dtype).nmant + 1):
            raise ValueError(f"{where}: found {value}, but a {value.dtype} of this size has lost digits: give a text")
        return float(str(value))
    return _value(value)


def _categories(name, values):
    """Converts the values of a column of texts. A column of float32 is read as such: pandas would give floats."""
    array = _np.asarray(values) if hasattr(values, "__array__") else None
    values = array if array is not None and array.dtype.kind == "f" else values
    return [_category(v, f"row {i}: column \"{name}\"") for i, v in enumerate(values)]


def _bit(value):
    """Converts True and False to 1.0 and 0.0, for a column of numbers."""
    return float(value) if isinstance(value, (bool, _np.bool_)) else value


def rows(handle, named, table):
    """Converts columns (a dict from names to values) to rows for ls_model_predict, float64 (n, features). `table`: the
    columns in the model's card (its description)."""
    for column in table:
        if column["name"] not in named:
            raise ValueError(f"column \"{column['name']}\" is missing; the model reads "
                             f"{', '.join(c['name'] for c in table[:50])}")
    values = {c["name"]: named[c["name"]] for c in table}
    lengths = {name: len(v) for name, v in values.items()}
    n = next(iter(lengths.values()))
    for name, length in lengths.items():
        if length != n:
            raise ValueError(f"column \"{name}\": expected {n} values, as the first column has, found {length}")
    if n == 0:
        raise ValueError("x: expected at least one row")
    width = sum(len(c.get("levels") or c.get("parts") or " ") for c in table)
    plain = [None if "levels" in c or "date" in c else _numbers_of(values[c["name"]]) for c in table]
    if all(p is not None for p in plain):
        return _np.ascontiguousarray(_np.stack(plain, axis=1))
    out = _np.empty((n, width), _np.float64)
    lists = [_categories(c["name"], values[c["name"]]) if "levels" in c
             else [_value(_bit(v)) for v in values[c["name"]]] for c in table]
    fields = (_l.field * len(table))()
    for field, column in zip(fields, table):
        field.column = column["name"].encode()
    for i in range(n):
        for field, column in zip(fields, lists):
            text = isinstance(column[i], str)
            if text and "\0" in column[i]:  # the end of a text in C
                raise ValueError(f"row {i}: column \"{field.column.decode()}\": expected text, found a zero byte")
            field.text = column[i].encode() if text else None
            field.number = 0.0 if text else column[i]
            field.kind = _l.FIELD_TEXT if text else _l.FIELD_NUMBER
        try:
            _l.call("ls_model_row", handle, fields, len(fields), _c.sizeof(_l.field), out[i].ctypes.data, width)
        except _l.Error as error:
            raise _l.Error(error.status, f"row {i}: {error}") from None
    return out
