# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Channels: bytes to and from one peer, over a plain socket or TLS. Who owns one is called when it can go on.

Independent of what the bytes mean, and of who reads them. Everything here is called in a step of the reactor.
"""
from __future__ import annotations

import contextlib
import errno
import os
import socket
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyclient.reactor.pollers import ENDS, READABLE, WRITABLE
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.system_sockets import AVAILABLE, receive, send
from pyclient.reactor.tasks import Future

Buffer: TypeAlias = bytes | bytearray | memoryview
OnEvents: TypeAlias = Callable[[int], object]
NOTHING: Final = -1
"""What `Channel.read_into` returns when no bytes are there now."""
MOST_PIECES: Final = 512
"""Per call of sendmsg; the system may refuse more than 1024."""
IN_PROGRESS: Final = (errno.EINPROGRESS, errno.EWOULDBLOCK, errno.EAGAIN, getattr(errno, "WSAEWOULDBLOCK", errno.EAGAIN))
HAS_RCVLOWAT: Final = os.name == "posix" and hasattr(socket, "SO_RCVLOWAT") and hasattr(socket, "MSG_ERRQUEUE")
"""Whether SO_RCVLOWAT affects pollers (Linux), and not only blocking reads."""


OF_SYSTEM: Final = socket.socket if AVAILABLE else None


class Channel:
    """One connected peer. It belongs to one owner, which `attach` names. Subclasses carry the bytes."""

    def __init__(self) -> None:
        self.secured = False
        """Whether the bytes are encrypted on their way."""
        self.short_reads_end = False
        """Whether a read of fewer bytes than asked for has taken all there is, the end of the stream too."""
        self.unwritten = False
        """Whether the channel itself holds bytes that were taken and have not reached the system."""

    def attach(self, on_events: OnEvents) -> None:
        """Call *on_events* with READABLE and WRITABLE when `read_into` and `write` can go on, and once soon."""
        raise NotImplementedError

    def read_into(self, buffer: bytearray, start: int) -> int:
        """Read into *buffer* from *start* on: the number of bytes, 0 at the end of the stream, or `NOTHING`.

        Another event comes after `NOTHING`, and after fewer bytes than there is room for where `short_reads_end` is
        true. Raises OSError.
        """
        raise NotImplementedError

    def write(self, pieces: list[Buffer]) -> bool:
        """Remove from *pieces* what was taken; whether all of it has reached the system. Else another event comes.

        Raises OSError.
        """
        raise NotImplementedError

    def peer_certificate(self) -> dict[str, Any]:
        """As `ssl.SSLSocket.getpeercert`; empty without TLS."""
        return {}

    def set_low_water(self, size: int) -> None:
        """Report READABLE not before *size* bytes have come, or the end of the stream, where the system can do that."""

    def close(self) -> None:
        """Close it; what it has taken still leaves. No event comes any more. Idempotent."""
        raise NotImplementedError

    def abort(self) -> None:
        """Close it without a word to the peer."""
        raise NotImplementedError


class PlainChannel(Channel):
    """A socket: the system's, or an object with its methods."""

    def __init__(self, reactor: Reactor, sock: socket.socket) -> None:
        """*sock* does not block, and is connected or being connected."""
        Channel.__init__(self)
        self._reactor = reactor
        self.socket = sock
        self.short_reads_end = True
        self.on_events: OnEvents = _ignore
        """Its owner's, or what waits for an event."""
        self.of_system = type(sock) is OF_SYSTEM
        """Whether the system's calls carry the bytes, and not methods of the socket."""
        self._descriptor = sock.fileno()
        self._token = reactor.poller.register(self._descriptor, self._report)
        self._arms = reactor.poller.arms
        reactor.poller.arm(self._token, READABLE | WRITABLE)
        self._closed = False

    def _report(self, events: int) -> None:
        if events & ENDS:
            self.short_reads_end = False
        if not self._closed:
            self.on_events(events)

    def attach(self, on_events: OnEvents) -> None:
        """As `Channel.attach`."""
        self.on_events = on_events
        self._reactor.call_soon(self._report_first)

    def _report_first(self) -> None:
        """What came before it was attached was reported to the owner before."""
        self._report(READABLE | WRITABLE)

    def read_into(self, buffer: bytearray, start: int) -> int:
        """As `Channel.read_into`."""
        size = receive(self._own_descriptor(), buffer, start) if self.of_system else _receive(self.socket, buffer, start)
        if self._arms and size and size < len(buffer) - start:
            self._reactor.poller.arm(self._token, READABLE)
        return size

    def write(self, pieces: list[Buffer]) -> bool:
        """As `Channel.write`."""
        done = send(self._own_descriptor(), pieces) if self.of_system else _send(self.socket, pieces)
        if self._arms and not done:
            self._reactor.poller.arm(self._token, WRITABLE)
        return done

    def _own_descriptor(self) -> int:
        """As `fileno` of the socket. A forked child has closed it, and may have another descriptor of its number."""
        return -1 if self._reactor.is_forked else self._descriptor

    def set_low_water(self, size: int) -> None:
        """As `Channel.set_low_water`."""
        if HAS_RCVLOWAT and not self._closed:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, size)

    def close(self) -> None:
        """As `Channel.close`."""
        if not self._closed:
            self._closed = True
            self._reactor.poller.unregister(self._token)
            self._descriptor = -1
            self.socket.close()

    def abort(self) -> None:
        """As `Channel.abort`."""
        self.close()

    def close_after(self, last: bytes) -> None:
        """Close it when *last* was written, if that can be written at once."""
        if not self._closed:
            with contextlib.suppress(OSError):
                self.socket.send(last)
            self.close()


def _receive(sock: socket.socket, buffer: bytearray, start: int) -> int:
    """As `pyclient.reactor.system_sockets.receive`."""
    try:
        with memoryview(buffer) as whole, whole[start:] as room:
            return sock.recv_into(room)
    except BlockingIOError:
        return NOTHING


def _send(sock: socket.socket, pieces: list[Buffer]) -> bool:
    """As `pyclient.reactor.system_sockets.send`."""
    try:
        while pieces:
            _drop_sent(pieces, _send_some(sock, pieces))
    except BlockingIOError:
        return False
    return True


def _send_some(sock: socket.socket, pieces: list[Buffer]) -> int:
    """How many bytes of the first pieces were taken."""
    if len(pieces) == 1 or not hasattr(sock, "sendmsg"):
        return sock.send(pieces[0])
    return sock.sendmsg(pieces if len(pieces) <= MOST_PIECES else pieces[:MOST_PIECES])


def _drop_sent(pieces: list[Buffer], sent: int) -> None:
    whole = 0
    for each in pieces:
        if sent < len(each):
            break
        sent -= len(each)
        whole += 1
    del pieces[:whole]
    if sent:
        pieces[0] = memoryview(pieces[0])[sent:]


async def connected(reactor: Reactor, sock: socket.socket, address: Any) -> PlainChannel:
    """Connect *sock*, which does not block. Raises OSError; closes it when this fails or is cancelled."""
    channel = None
    try:
        error = sock.connect_ex(address)
        if error and error not in IN_PROGRESS:
            raise OSError(error, os.strerror(error))
        channel = PlainChannel(reactor, sock)  # not earlier: of a new socket pollers report that its connection is lost
        if error:
            await next_event(channel, reactor, WRITABLE)
            if failed := sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR):
                raise OSError(failed, os.strerror(failed))
    except BaseException:
        if channel is not None:
            channel.close()
        sock.close()
        raise
    return channel


async def next_event(channel: PlainChannel, reactor: Reactor, wanted: int) -> None:
    """Wait until READABLE or WRITABLE is reported."""
    came: Future[None] = Future(reactor)

    def note(events: int) -> None:
        if events & wanted and not came.done():
            came.set_result(None)

    channel.on_events = note
    try:
        await came
    finally:
        channel.on_events = _ignore


def _ignore(_: int) -> None:
    """Without an owner nothing can go on; `attach` reports again."""
