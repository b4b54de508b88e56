# SPDX-License-Identifier: MIT
"""While these tests run, the library gets copies of all options that Python passes to it, and the copies are overwritten
as soon as the call has returned. The library must have copied by then what it needs later, because ctypes frees such
memory at any time. What callbacks use stays."""
import ctypes

import pytest
from lockstep_trainer import _library

BOUND = {"set": "set_count", "data_dirs": "data_dir_count", "step_rows": "step_row_count", "sources": "source_count",
         "inject": "inject_count", "weights": "n"}  # a field that points to an array, and the field with its length
LASTING = {"train_weights", "test_weights"}  # fields that point to what outlives the trainer

RESULTS = _library.step_result, _library.model_info, _library.evaluation, _library.verdict  # the library writes them


class Lent:
    """Copies of structures, arrays and texts. `take_back` overwrites them."""

    def __init__(self):
        self.parts = []

    def keep(self, part):
        self.parts.append(part)
        return part

    def text(self, value):
        return self.keep(ctypes.create_string_buffer(value))

    def value(self, value, count):
        """Copies what a field of a pointer type refers to. Returns the address of the copy."""
        if isinstance(value, bytes):
            return ctypes.addressof(self.text(value))
        kind, copies = value._type_, []
        for i in range(count):
            item = value[i]
            if isinstance(item, bytes):
                copies.append(ctypes.cast(self.text(item), ctypes.c_char_p))
            elif isinstance(item, ctypes._Pointer):
                copies.append(ctypes.cast(self.value(item, 1), type(item)))
            elif isinstance(item, ctypes.Structure):
                copies.append(self.structure(item))
            else:
                copies.append(item)
        return ctypes.addressof(self.keep((kind * count)(*copies)))

    def structure(self, given):
        copy = self.keep(type(given).from_buffer_copy(given))
        for name, kind in given._fields_:
            value = getattr(given, name)
            if kind is ctypes.c_char_p and value is not None:
                self.point(copy, name, ctypes.addressof(self.text(value)))
            elif isinstance(value, ctypes._Pointer) and value and name not in LASTING:
                count = getattr(given, BOUND[name]) if name in BOUND else 1
                self.point(copy, name, self.value(value, count))
        return copy

    @staticmethod
    def point(structure, name, address):
        """Sets a field of a pointer type."""
        ctypes.c_void_p.from_buffer(structure, getattr(type(structure), name).offset).value = address

    def take_back(self):
        for part in self.parts:
            ctypes.memset(ctypes.addressof(part), 0xA5, ctypes.sizeof(part))


@pytest.fixture(autouse=True)
def options_are_lent(monkeypatch):
    plain, kept = _library.call, []

    def call(function, *arguments):
        lent, passed = Lent(), list(arguments)
        for i, argument in enumerate(arguments):
            given = getattr(argument, "_obj", None)  # of ctypes.byref
            if isinstance(given, ctypes.Structure) and hasattr(given, "size") and not isinstance(given, RESULTS):
                passed[i] = ctypes.byref(lent.structure(given))
        try:
            return plain(function, *passed)
        finally:
            lent.take_back()
            kept.append(lent)  # overwritten memory stays allocated, so no other data hides a late access

    monkeypatch.setattr(_library, "call", call)
