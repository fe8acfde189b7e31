"""What a connection has written and the kernel has not taken yet.

Knows bytes, a transport and perhaps its socket; knows no requests. Before Python 3.12 a transport joins all pieces, tries to send them, and
copies what is left once more: two copies of every batch. So what the kernel takes goes past it, and what must wait waits here as it
is; the transport gets a crumb of it, which it copies and waits with until there is room.

A transport with TLS encrypts all that it is given, at once, and keeps that until the kernel has taken it. So it gets a gulp at a
time, and the next one when none of the last is left: what must wait waits here as it is. What was encrypted is read no more.
"""
from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from pyclient.codec.produce import Buffer

MOST_PIECES: Final = 512
"""In one call of the system; it may refuse more than 1024."""
CRUMB: Final = 512
"""Bytes."""
GULP: Final = 128 * 1024
"""Bytes: encrypting them takes less than a tenth of a millisecond, and they still are in the processor's cache when the kernel copies them."""


class WriteBuffer:
    """Writes pieces in their order; without a socket and without TLS all of them go through the transport at once."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._socket: socket.socket | None = None
        self._encrypts = False
        self._pieces: deque[Buffer] = deque()

    def take_socket(self, sock: socket.socket) -> None:
        """The transport's own: from now on it tells of every byte that it must keep, by ``pause_writing``, and that it is gone."""
        self._socket = sock
        self._transport.set_write_buffer_limits(0)

    def take_tls(self) -> None:
        """The transport encrypts: from now on it tells of all that it must keep, and that it is gone."""
        self._encrypts = True
        self._transport.set_write_buffer_limits(high=1, low=0)  # reached, not passed: with 0 it would tell of nothing too

    @property
    def holds(self) -> bool:
        """Whether something waits here, which closing the transport would lose."""
        return bool(self._pieces) or (self._encrypts and self._transport.get_write_buffer_size() > 0)

    @property
    def unwritten(self) -> int:
        """So many of the bytes put here may still be read: the kernel has not taken them, or they are not encrypted yet."""
        waiting = sum(map(len, self._pieces))
        return waiting if self._encrypts else waiting + self._transport.get_write_buffer_size()

    def put(self, pieces: Iterable[Buffer]) -> None:
        """Write *pieces*; nobody may change them before they are gone."""
        if self._socket is None and not self._encrypts:
            self._transport.writelines(pieces)
        else:
            self._pieces.extend(pieces)
            self.go_on()

    def go_on(self) -> None:
        """Give the kernel what it takes, unless the transport has something to write before: it tells when it has not (``resume_writing``).

        Not to be called in there: it may end the transport, which believes to be alive until that call returns.
        """
        if self._socket is None and not self._encrypts:
            return
        try:
            while self._pieces and not self._transport.get_write_buffer_size():
                if self._transport.is_closing():
                    self._pieces.clear()
                elif self._socket is None:
                    self._transport.write(_gulped(self._pieces))
                elif not _send(self._socket, self._pieces):
                    self._transport.write(_bitten(self._pieces))  # of what is broken, too: it finds out and tells
        except BaseException:  # Ctrl-C: nobody knows how much the kernel took, and what it took must not be written again
            self._transport.abort()
            raise


def _send(sock: socket.socket, pieces: deque[Buffer]) -> bool:
    """Whether the kernel took all that it was offered; what it took is gone from *pieces*."""
    offered = list(islice(pieces, MOST_PIECES))
    try:
        sent = sock.sendmsg(offered)
    except OSError:
        return False  # full, or broken
    for piece in offered:
        if sent < len(piece):
            pieces[0] = memoryview(piece)[sent:]
            return False
        sent -= len(piece)
        pieces.popleft()
    return True


def _gulped(pieces: deque[Buffer]) -> Buffer:
    """The next bytes, taken off *pieces*; several small ones are joined, for each would be a record of TLS by itself."""
    room, taken = GULP, []
    while pieces and room:
        piece = memoryview(pieces.popleft())
        if len(piece) > room:
            pieces.appendleft(piece[room:])
            piece = piece[:room]
        taken.append(piece)
        room -= len(piece)
    return taken[0] if len(taken) == 1 else b"".join(taken)


def _bitten(pieces: deque[Buffer]) -> bytes:
    """The first bytes, taken off *pieces*."""
    first = memoryview(pieces[0])
    if len(first) > CRUMB:
        pieces[0] = first[CRUMB:]
    else:
        pieces.popleft()
    return bytes(first[:CRUMB])
