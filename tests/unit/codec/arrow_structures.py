"""Arrow's C data interface, to damage what it hands over."""
from __future__ import annotations

import ctypes
from typing import Any


class ArrowArray(ctypes.Structure):
    """An array, as the C data interface lays it out."""


ArrowArray._fields_ = [
    *((name, ctypes.c_int64) for name in ("length", "null_count", "offset", "n_buffers", "n_children")), ("buffers", ctypes.POINTER(ctypes.c_void_p)),
    ("children", ctypes.POINTER(ctypes.POINTER(ArrowArray))), ("dictionary", ctypes.POINTER(ArrowArray)), ("release", ctypes.c_void_p),
    ("private_data", ctypes.c_void_p)]
_pointer: Any = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]


def address_of(capsule: Any) -> int:
    """Where the array of a capsule of `__arrow_c_array__` is."""
    found: int = _pointer(capsule, b"arrow_array")
    return found
