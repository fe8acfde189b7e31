# cython: language_level=3, freethreading_compatible=True, embedsignature=True
"""Uninitialised memory. Compiled, because Python can only create buffers filled with zeros."""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_FromStringAndSize


def unwritten(size: cython.Py_ssize_t) -> bytearray:
    """A bytearray of *size* bytes whose content is arbitrary: for output that will be written before it is read."""
    return PyByteArray_FromStringAndSize(cython.NULL, size)
