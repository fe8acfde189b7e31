# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True, embedsignature=True
"""The rest of a large answer in one call, instead of a turn of the loop for every piece that the kernel has.

While the user's thread computes, the loop's thread waits for the interpreter after each call of the system, and an answer of
megabytes takes dozens: the broker would wait for its reader. This call needs the interpreter once. Knows sockets and memory only.
"""
import cython
from cython.cimports.pyclient.runtime.sockets import receive

PATIENCE_MS = cython.declare(cython.int, 1)
LIMIT_MS = cython.declare(cython.int, 5)


def fill(descriptor: cython.int, frame: bytearray, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read into *frame* from *start* on; the number of bytes that came. What ends the connection is left for the loop to see."""
    room: cython.uchar[:] = frame
    count: cython.Py_ssize_t = room.shape[0] - start
    if descriptor < 0 or start < 0 or count <= 0:
        return 0
    at: cython.p_char = cython.cast(cython.p_char, cython.address(room[start]))
    with cython.nogil:
        count = receive(descriptor, at, count, PATIENCE_MS, LIMIT_MS)
    return count
