# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Reads and writes of the system's sockets: as `recv_into` and `sendmsg` of a socket, in a tenth of the instructions.

Independent of reactors. A socket here does not block.
"""
import cython
from cython.cimports.cpython.buffer import PyBUF_SIMPLE, Py_buffer, PyBuffer_Release, PyObject_GetBuffer
from cython.cimports.cpython.bytearray import PyByteArray_AS_STRING, PyByteArray_GET_SIZE
from cython.cimports.cpython.bytes import PyBytes_AS_STRING, PyBytes_GET_SIZE
from cython.cimports.pyclient.reactor.system_sockets import HAS_SOCKETS, MOST_PIECES, Piece, receive_now, send_now

import os

AVAILABLE = bool(HAS_SOCKETS)
"""Whether this system has them: all but Windows."""


@cython.ccall
def receive(descriptor: cython.int, buffer: bytearray, start: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """Read into *buffer* from *start* on: the number of bytes, 0 at the end of the stream, -1 when nothing has come.

    Raises OSError.
    """
    room: cython.Py_ssize_t = PyByteArray_GET_SIZE(buffer) - start
    if start < 0 or room <= 0:
        raise ValueError(f"a buffer of {len(buffer)} B has no room from {start} on")
    to: cython.p_char = PyByteArray_AS_STRING(buffer) + start
    with cython.nogil:
        size = receive_now(descriptor, to, room)
    return _checked(size)


@cython.ccall
def send(descriptor: cython.int, pieces: list) -> cython.bint:
    """Remove from *pieces* what the system takes; whether that was all. Raises OSError."""
    while pieces:
        if not _send_some(descriptor, pieces):
            return False
    return True


@cython.cfunc
@cython.exceptval(-1, check=False)
def _send_some(descriptor: cython.int, pieces: list) -> cython.bint:
    """One call of the system, with the first pieces; whether it took any byte."""
    parts: Piece[MOST_PIECES]
    views: Py_buffer[MOST_PIECES]
    count: cython.int = 0
    viewed: cython.int = 0
    most: cython.int = cython.cast(cython.int, min(len(pieces), MOST_PIECES))
    try:
        while count < most:
            piece = pieces[count]
            if type(piece) is bytes:
                parts[count].iov_base = cython.cast(cython.p_void, PyBytes_AS_STRING(piece))
                parts[count].iov_len = PyBytes_GET_SIZE(piece)
            else:
                PyObject_GetBuffer(piece, cython.address(views[viewed]), PyBUF_SIMPLE)
                parts[count].iov_base = views[viewed].buf
                parts[count].iov_len = views[viewed].len
                viewed += 1
            count += 1
        with cython.nogil:
            sent = send_now(descriptor, parts, count)
    finally:
        while viewed > 0:
            viewed -= 1
            PyBuffer_Release(cython.address(views[viewed]))
    if _checked(sent) < 0:
        return False
    _drop(pieces, parts, count, sent)
    return True


@cython.cfunc
def _drop(pieces: list, parts: cython.pointer(Piece), count: cython.int, sent: cython.Py_ssize_t) -> object:
    """Remove what was sent: whole pieces, and the beginning of one."""
    whole: cython.int = 0
    while whole < count and cython.cast(cython.Py_ssize_t, parts[whole].iov_len) <= sent:
        sent -= parts[whole].iov_len
        whole += 1
    if whole == len(pieces):
        pieces.clear()
        return
    del pieces[:whole]
    if sent:
        pieces[0] = memoryview(pieces[0])[sent:]


@cython.cfunc
@cython.exceptval(-2, check=False)
def _checked(size: cython.Py_ssize_t) -> cython.Py_ssize_t:
    """-1 when the socket would block. Raises the system's error."""
    if size >= -1:
        return size
    raise OSError(-size - 1, os.strerror(-size - 1))
