# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True, embedsignature=True
"""The rest of a large answer in one call, instead of a turn of the loop for every piece that the kernel has.

While the user's thread computes, the loop's thread waits for the interpreter after each call of the system, and an answer of
megabytes takes dozens: meanwhile the broker waits for its reader. This call waits once. Knows sockets and memory only.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.pyclient.net.sockets import receive

LIMIT_MS = cython.declare(cython.int, 5)  # the loop has other connections


def fill(descriptor: cython.int, frame: bytearray, start: cython.Py_ssize_t, patience_ms: cython.int) -> cython.Py_ssize_t:
    """Read into *frame* from *start* on, without the interpreter; the number of bytes that came, 0 where this is not possible.

    Ends when the frame is full, when nothing came for *patience_ms*, after a few milliseconds, and where the loop has to see
    what the socket says: the end, or an error.
    """
    came: cython.Py_ssize_t
    room: cython.Py_ssize_t = PyByteArray_GET_SIZE(frame) - start
    at: cython.p_char = PyByteArray_AS_STRING(frame) + start
    if descriptor < 0 or start < 0 or room <= 0:
        return 0
    with cython.nogil:
        came = receive(descriptor, at, room, patience_ms, LIMIT_MS)
    return came
