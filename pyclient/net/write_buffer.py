"""What a connection has written and the kernel has not taken yet.

Knows bytes, a transport and perhaps its socket; knows no requests.

- Plain: before Python 3.12 a transport joins all pieces and copies what the kernel refuses, two copies of every batch.
  So pieces are sent to the socket directly; the rest waits here without a copy. The transport gets a few bytes of it,
  so that it waits for room.
- TLS: a transport encrypts everything it is given at once and keeps it until the kernel has taken it. So it gets one
  chunk at a time, the next one when the last is gone; the rest waits here without a copy. Encrypted pieces are not read
  again.
"""
from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Iterable
from itertools import islice
from typing import Final

from pyclient.codec.messages import Buffer

MOST_PIECES: Final = 512
"""Per call of sendmsg; the system may refuse more than 1024."""
WAKE_BYTES: Final = 512
"""What the transport gets to wait with for room in the kernel's buffer."""
TLS_CHUNK: Final = 128 * 1024
"""Bytes: encrypted in less than 0.1 ms, and still in the processor's cache when the kernel copies them."""


class WriteBuffer:
    """Writes pieces in order; without `attach_socket` and `attach_tls` all of them go to the transport at once."""

    def __init__(self, transport: asyncio.WriteTransport) -> None:
        self._transport = transport
        self._socket: socket.socket | None = None
        self._encrypts = False
        self._pieces: deque[Buffer] = deque()

    def attach_socket(self, sock: socket.socket) -> None:
        """Write to the transport's own socket.

        From now on the transport calls ``pause_writing`` for each byte it must keep.
        """
        self._socket = sock
        self._transport.set_write_buffer_limits(0)

    def attach_tls(self) -> None:
        """The transport encrypts. From now on it calls ``pause_writing`` for each byte it must keep."""
        self._encrypts = True
        self._transport.set_write_buffer_limits(high=1, low=0)  # high=0 would mean no call at all

    @property
    def pending(self) -> bool:
        """Whether closing the transport would lose bytes."""
        return bool(self._pieces) or (self._encrypts and self._transport.get_write_buffer_size() > 0)

    @property
    def empty(self) -> bool:
        """Whether nothing is `pending` and nothing `unwritten`."""
        return not (self._pieces or self._transport.get_write_buffer_size())

    @property
    def unwritten(self) -> int:
        """Number of written bytes whose memory may still be read: not in the kernel, or not encrypted yet."""
        waiting = sum(map(len, self._pieces)) if self._pieces else 0
        return waiting if self._encrypts else waiting + self._transport.get_write_buffer_size()

    def write(self, pieces: Iterable[Buffer]) -> None:
        """Write *pieces*; they must not change until they are no longer `unwritten`."""
        if self._socket is None and not self._encrypts:
            self._transport.writelines(pieces)
        else:
            self._pieces.extend(pieces)
            self.flush()

    def flush(self) -> None:
        """Write what the kernel takes. If the transport has bytes, wait: it calls ``resume_writing`` when it has none.

        Do not call this inside of ``resume_writing``: it may close the transport, which assumes to be open until that
        call returns.
        """
        if self._socket is None and not self._encrypts:
            return
        try:
            while self._pieces and not self._transport.get_write_buffer_size():
                if self._transport.is_closing():
                    self._pieces.clear()
                elif self._socket is None:
                    self._transport.write(_take_chunk(self._pieces))
                elif not _send(self._socket, self._pieces):
                    self._transport.write(_take_first(self._pieces))  # also if the socket is broken: the transport reports it
        except BaseException:  # Ctrl-C: it is unknown how much the kernel took, and no byte may be written twice
            self._transport.abort()
            raise


def _send(sock: socket.socket, pieces: deque[Buffer]) -> bool:
    """Whether the kernel took everything it was offered; what it took is removed from *pieces*."""
    offered = list(islice(pieces, MOST_PIECES))
    try:
        sent = sock.sendmsg(offered)
    except OSError:
        return False  # full or broken
    if len(offered) == len(pieces) and sent == sum(map(len, offered)):
        pieces.clear()
        return True
    for piece in offered:
        if sent < len(piece):
            pieces[0] = memoryview(piece)[sent:]
            return False
        sent -= len(piece)
        pieces.popleft()
    return True


def _take_chunk(pieces: deque[Buffer]) -> Buffer:
    """Remove the next chunk from *pieces*; small ones are joined, because each write becomes at least a TLS record.

    A view, even of joined pieces: it may be a login, and dumps of asyncio's local variables show bytes but no view's.
    """
    room, taken = TLS_CHUNK, []
    while pieces and room:
        piece = memoryview(pieces.popleft())
        if len(piece) > room:
            pieces.appendleft(piece[room:])
            piece = piece[:room]
        taken.append(piece)
        room -= len(piece)
    return taken[0] if len(taken) == 1 else memoryview(b"".join(taken))


def _take_first(pieces: deque[Buffer]) -> Buffer:
    """Remove the first bytes from *pieces*; a view, as of `_take_chunk`."""
    first = memoryview(pieces[0])
    if len(first) > WAKE_BYTES:
        pieces[0] = first[WAKE_BYTES:]
    else:
        pieces.popleft()
    return memoryview(bytes(first[:WAKE_BYTES]))
