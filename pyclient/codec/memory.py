# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True, embedsignature=True
"""Memory as C sees it: buffers that are not filled with zeros, and a few bytes of them without a slice in between."""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_FromStringAndSize, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cython.cimports.pyclient.codec.parse import int32_at as _int32


def unwritten(size: cython.Py_ssize_t) -> bytearray:
    """A bytearray of *size* bytes whose content is arbitrary: for output that will be written before it is read."""
    return PyByteArray_FromStringAndSize(cython.NULL, size)


@cython.ccall
def int32_at(buffer: bytearray, at: cython.Py_ssize_t) -> cython.longlong:
    """The big-endian integer of four bytes at *at*."""
    _check(buffer, at, 4)
    return _int32(cython.cast(cython.p_const_uchar, PyByteArray_AS_STRING(buffer)) + at)


@cython.ccall
def bytes_at(buffer: bytearray, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> bytes:
    """A copy of the *size* bytes at *at*."""
    _check(buffer, at, size)
    return PyBytes_FromStringAndSize(PyByteArray_AS_STRING(buffer) + at, size)


@cython.ccall
def first_int32(data: bytes) -> cython.longlong:
    """The big-endian integer that *data* begins with, which has four bytes at least."""
    if PyBytes_GET_SIZE(data) < 4:
        raise IndexError(f"an int32 has 4 B, and these are {len(data)}")
    return _int32(cython.cast(cython.p_const_uchar, PyBytes_AS_STRING(data)))


@cython.ccall
def int32_bytes(number: cython.longlong) -> bytes:
    """*number*, 0 to 2**32 - 1, as four bytes, the largest first."""
    if not 0 <= number <= 0xFFFFFFFF:
        raise OverflowError(f"{number} does not fit into 4 B")
    made: bytes = PyBytes_FromStringAndSize(cython.NULL, 4)
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyBytes_AS_STRING(made))
    at[0], at[1], at[2], at[3] = number >> 24 & 255, number >> 16 & 255, number >> 8 & 255, number & 255
    return made


@cython.cfunc
@cython.exceptval(-1, check=False)
def _check(buffer: bytearray, at: cython.Py_ssize_t, size: cython.Py_ssize_t) -> cython.int:
    if at < 0 or size < 0 or at + size > PyByteArray_GET_SIZE(buffer):
        raise IndexError(f"{size} B at {at} are outside of a buffer of {len(buffer)} B")
    return 0
