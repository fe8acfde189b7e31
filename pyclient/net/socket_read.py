# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True, embedsignature=True
"""Waits for bytes on sockets, and reads them, in one call of compiled code.

While the user's thread computes, the loop's thread waits for the interpreter after each system call, and a response of
megabytes takes dozens of them: `fill` waits once. Knows sockets and memory only.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.pyclient.net.sockets import receive

LIMIT_MS = cython.declare(cython.int, 5)  # the loop has other connections


def fill(descriptor: cython.int, frame: bytearray, start: cython.Py_ssize_t, patience_ms: cython.int) -> cython.Py_ssize_t:
    """Read into *frame* from *start* on, without holding the interpreter. Returns the number of bytes, 0 if impossible.

    Ends when the frame is full, when nothing arrived for *patience_ms*, after a few milliseconds, or at the end of the
    stream or an error, which the loop must see.
    """
    came: cython.Py_ssize_t
    room: cython.Py_ssize_t = PyByteArray_GET_SIZE(frame) - start
    at: cython.p_char = PyByteArray_AS_STRING(frame) + start
    if descriptor < 0 or start < 0 or room <= 0:
        return 0
    with cython.nogil:
        came = receive(descriptor, at, room, patience_ms, LIMIT_MS)
    return came
