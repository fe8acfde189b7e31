"""The sockets of simulated clients. Their own channels and poller use them as they use the system's.

They are as hard as the system's may be: bytes come and go in pieces of any size, also one by one; writing is refused,
or a part is taken; descriptors are used again; what had arrived before a reset may be lost.
"""
from __future__ import annotations

import asyncio
import errno
import os
import socket
from collections.abc import Callable, Iterable
from random import Random
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from pyclient.testing.simulation.loop import SimulationLoop
    from pyclient.testing.simulation.network import Link

Buffer: TypeAlias = bytes | bytearray | memoryview
SEND_BUFFER: Final = 64 * 1024
"""Bytes that a socket takes before any has arrived."""
CUT: Final = 0.1
"""How often a call takes or gives a part of what it could."""
FULL: Final = 0.05
"""How often a call that writes finds no more room, or too little."""
ONE_BY_ONE: Final = 0.01
"""How often the next bytes are given one by one."""
MOST_ONE_BY_ONE: Final = 40
NEAR_AN_END: Final = 9
"""Half of the cuts are in so many bytes at one of the ends, where lengths and headers are."""
LOST_BY_RESET: Final = 0.5
WAKES_EARLY: Final = 0.5
"""How many sockets ignore SO_RCVLOWAT, as some systems do."""


def part(random: Random, size: int) -> int:
    """At least one of *size* bytes, and fewer than all if there are more."""
    if random.random() < CUT and size > 1:
        few = random.randrange(1, min(size, NEAR_AN_END + 1))
        return random.choice((few, size - few, random.randrange(1, size), random.randrange(1, size)))
    return size


class SimulatedSocket(asyncio.Protocol):
    """What `PlainChannel` needs of a ``socket.socket`` that does not block; the protocol of its end of a `Link`."""

    def __init__(self, loop: SimulationLoop, random: Random, connect: Callable[[SimulatedSocket, tuple[str, int]], None]) -> None:
        """*connect* makes the link later, if ever, and then calls `connected` or `refused`."""
        self._loop = loop
        self._random = random
        self._connect = connect
        self.link: Link | None = None
        self._received = bytearray()
        self._error = 0
        self._ended = self._full = self._left = False
        self._one_by_one = 0
        self._low_water = 1
        self._wakes_early = random.random() < WAKES_EARLY
        self._descriptor = loop.open_descriptor(self.is_readable, self.is_writable)

    # ---- what the loop's poller sees ---------------------------------------------------------------------------------

    def is_readable(self) -> bool:
        """A call that reads gives something."""
        return bool(self._error) or self._ended or len(self._received) >= self._low_water

    def is_writable(self) -> bool:
        """A call that writes takes something, or says what is wrong."""
        return bool(self._error) or (self.link is not None and not self._full and self.link.near.unsent < SEND_BUFFER)

    def _changed(self) -> None:
        if self._descriptor >= 0:
            self._loop.look_at(self._descriptor)

    # ---- asyncio.Protocol: what the other end and the network do -----------------------------------------------------

    def connected(self, link: Link) -> None:
        """The peer has accepted the connection."""
        self.link = link
        self._changed()

    def refused(self, error: int) -> None:
        """It has not."""
        self._error = error
        self._changed()

    def data_received(self, data: bytes) -> None:
        """Bytes arrived."""
        self._received += data
        self._changed()

    def eof_received(self) -> bool:
        """The peer writes nothing more. It may still read: this end is closed by its owner."""
        self._ended = True
        self._changed()
        return True

    def connection_lost(self, exc: Exception | None) -> None:
        """The connection is gone."""
        self._ended = True
        if isinstance(exc, OSError):
            self._error = errno.ECONNRESET
            if self._random.random() < LOST_BY_RESET:
                self._received.clear()
        self._changed()

    def resume_writing(self) -> None:
        """Enough has arrived for the next bytes."""
        self._changed()

    def pause_writing(self) -> None:
        """`is_writable` knows."""

    # ---- socket.socket -----------------------------------------------------------------------------------------------

    def fileno(self) -> int:
        """Its number; -1 when it is closed."""
        return self._descriptor

    def connect_ex(self, address: tuple[str, int]) -> int:
        """Begin to connect."""
        self._connect(self, address)
        return errno.EINPROGRESS

    def getsockopt(self, _level: int, option: int) -> int:
        """SO_ERROR: how connecting has ended."""
        assert option == socket.SO_ERROR
        error, self._error = self._error, 0
        return error

    def setsockopt(self, _level: int, option: int, value: int) -> None:
        """SO_RCVLOWAT."""
        assert option == socket.SO_RCVLOWAT
        if not self._wakes_early:
            self._low_water = value
            self._changed()

    def recv_into(self, room: memoryview) -> int:
        """As of a socket. What has arrived is given before an error is raised, once."""
        size = min(len(room), len(self._received))
        if not size:
            return self._nothing_to_read()
        size = self._given(size)
        room[:size] = self._received[:size]
        del self._received[:size]
        return size

    def _nothing_to_read(self) -> int:
        self._raise_error()
        if not self._ended:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return 0

    def _given(self, size: int) -> int:
        if self._random.random() < ONE_BY_ONE:
            self._one_by_one = self._random.randrange(MOST_ONE_BY_ONE)
        if self._one_by_one:
            self._one_by_one -= 1
            return 1
        return part(self._random, size)

    def send(self, data: Buffer) -> int:
        """As of a socket."""
        return self.sendmsg((data,))

    def sendmsg(self, pieces: Iterable[Buffer]) -> int:
        """As of a socket."""
        self._raise_error()
        if self._ended and self.link is not None and self.link.near.is_closing():
            raise BrokenPipeError(errno.EPIPE, os.strerror(errno.EPIPE))
        assert self.link is not None
        data = b"".join(pieces)
        size = self._taken(len(data))
        if size:
            self.link.near.write(data[:size])
            self.link.network.written(self.link, continued=self._left)
        self._left = size < len(data)
        if not size:
            raise BlockingIOError(errno.EAGAIN, os.strerror(errno.EAGAIN))
        return size

    def _taken(self, size: int) -> int:
        assert self.link is not None
        room = 0 if self._full else min(size, max(0, SEND_BUFFER - self.link.near.unsent))
        if room and self._random.random() < FULL:
            self._full = True
            self._loop.call_later(self.link.delay(), self._has_room)
            return self._random.choice((0, part(self._random, room), self._random.randrange(room)))
        return part(self._random, room) if room else 0

    def _has_room(self) -> None:
        self._full = False
        self._changed()

    def _raise_error(self) -> None:
        error, self._error = self._error, 0
        if error:
            raise OSError(error, os.strerror(error))

    def close(self) -> None:
        """Close it. As systems do, reset the connection if something that has arrived was not read."""
        if self._descriptor < 0:
            return
        self._loop.close_descriptor(self._descriptor)
        self._descriptor = -1
        if self._loop.is_closed():
            return  # a broken run: what it has left is collected
        if self.link is not None and self._received:
            self.link.near.abort()
        elif self.link is not None:
            self.link.near.close()
