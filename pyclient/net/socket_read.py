# cython: language_level=3, boundscheck=False, wraparound=False, freethreading_compatible=True, embedsignature=True
"""Waits for bytes on sockets, and reads them, in one call of compiled code.

While the user's thread computes, the loop's thread waits for the interpreter after each system call, and a response of
megabytes takes dozens of them: `fill` waits once. `receive_lent` is for small responses, in place of a loop. Knows
sockets and memory only.
"""
import cython
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_FromStringAndSize
from cython.cimports.pyclient.net.sockets import MOST_AWAITED, await_any, receive, receive_frame
from cython.cimports.pyclient.runtime.epoll import watch

LIMIT_MS = cython.declare(cython.int, 5)  # the loop has other connections
REST_MS = cython.declare(cython.int, 20)  # brokers write the records of a response behind what is before them


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


def receive_lent(epoll: cython.int, descriptors: list, buffers: list, bell: cython.int, timeout_ms: cython.int) -> tuple:
    """Wait for a frame on one of some sockets that *epoll* reports too, but not meanwhile.

    Returns the place of that socket, how many bytes are in its bytearray, and the frame behind its size; None for it
    if it is larger than that, or its rest did not come in time.
    Returns (-1, 0, None) after *timeout_ms*, on a signal, when the *bell* is readable, and on a broken socket, which
    the loop must see; at once when *epoll* does not know one of them, or there are too many.
    """
    muted: cython.int = 0
    found: cython.int = -1
    came: cython.Py_ssize_t = 0
    count: cython.int = len(descriptors)
    given = cython.declare(cython.int[64])
    if count > MOST_AWAITED:
        return -1, 0, None
    while muted < count:
        given[muted] = descriptors[muted]
        if not watch(epoll, given[muted], False):
            break
        muted += 1
    if muted == count:
        with cython.nogil:
            found = await_any(given, count, bell, timeout_ms)
        if found >= 0:
            came = _frame(given[found], bell, buffers[found])
    while muted > 0:
        muted -= 1
        watch(epoll, given[muted], True)
    return found, came, None if found < 0 else _whole(buffers[found], came)


def receive_readable(descriptor: cython.int, buffer: bytearray, bell: cython.int) -> tuple:
    """Read a frame from a socket that is readable, on the loop's own thread.

    Returns how many bytes are in *buffer*, and the frame as `receive_lent` does.
    """
    came: cython.Py_ssize_t = _frame(descriptor, bell, buffer)
    return came, _whole(buffer, came)


@cython.cfunc
def _whole(buffer: bytearray, came: cython.Py_ssize_t) -> bytes:
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))
    size: cython.Py_ssize_t = (cython.cast(cython.Py_ssize_t, at[0]) << 24) | (at[1] << 16) | (at[2] << 8) | at[3]
    return None if came < 4 or came != size + 4 else PyBytes_FromStringAndSize(cython.cast(cython.p_char, at + 4), size)


@cython.cfunc
@cython.exceptval(-1, check=False)
def _frame(descriptor: cython.int, bell: cython.int, buffer: bytearray) -> cython.Py_ssize_t:
    came: cython.Py_ssize_t
    at: cython.p_uchar = cython.cast(cython.p_uchar, PyByteArray_AS_STRING(buffer))
    room: cython.Py_ssize_t = PyByteArray_GET_SIZE(buffer)
    with cython.nogil:
        came = receive_frame(descriptor, bell, at, room, REST_MS)
    return came
