"""Large answers are read in one call, which leaves to the loop what only the loop may decide."""
from __future__ import annotations

import asyncio
import contextlib
import os
import random
import select
import socket
import sys
import threading
import time
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import KafkaError, ProtocolError
from pyclient.net.connection import Connection
from pyclient.net.frame_reader import MUCH, SCRATCH
from pyclient.runtime.loop_thread import Portal, in_portal
from pyclient.net.socket_read import fill, receive_lent

LONG_MS = 60_000


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        yield ours, theirs


@given(before=st.integers(0, 300), room=st.integers(0, 300), sent=st.binary(max_size=400))
def test_only_the_rest_of_the_frame_is_read_and_no_byte_behind_it(before: int, room: int, sent: bytes) -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        theirs.sendall(sent)
        frame = bytearray(b"\xa5" * (before + room))
        came = fill(ours.fileno(), frame, before, 0)
        assert came == min(room, len(sent))
        assert frame == b"\xa5" * before + sent[:came] + b"\xa5" * (room - came)
        theirs.sendall(b"!")
        assert ours.recv(1000) == sent[came:] + b"!"


def test_without_patience_missing_bytes_are_not_waited_for(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"ab")
    assert fill(ours.fileno(), bytearray(3), 0, 0) == 2
    assert fill(ours.fileno(), bytearray(3), 0, 0) == 0


def test_a_call_is_limited_even_while_bytes_keep_arriving(pair: tuple[socket.socket, socket.socket]) -> None:
    """A peer that sends drop by drop must not keep the loop from its other work."""
    ours, theirs = pair
    ended = threading.Event()

    def drip() -> None:
        while not ended.wait(0.0005):
            theirs.send(b"x")

    dripping = threading.Thread(target=drip)
    dripping.start()
    try:
        frame = bytearray(10_000_000)
        assert 0 <= fill(ours.fileno(), frame, 0, 100) < len(frame)
    finally:
        ended.set()
        dripping.join()


def test_pieces_that_arrive_one_after_another_are_all_read(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    data = random.Random(7).randbytes(3_000_000)
    sender = threading.Thread(target=theirs.sendall, args=[data])
    sender.start()
    frame, filled, until = bytearray(len(data)), 0, time.monotonic() + 30
    while filled < len(frame) and time.monotonic() < until:
        filled += fill(ours.fileno(), frame, filled, 1)
    sender.join()
    assert frame == data


def test_the_end_of_the_connection_is_left_for_the_loop_to_see(pair: tuple[socket.socket, socket.socket]) -> None:
    ours, theirs = pair
    theirs.sendall(b"abc")
    theirs.close()
    frame = bytearray(10)
    assert fill(ours.fileno(), frame, 0, LONG_MS) == 3
    assert fill(ours.fileno(), frame, 3, LONG_MS) == 0
    assert ours.recv(10) == b""


@pytest.mark.parametrize(("descriptor", "start"), [(-1, 0), (10**6, 0), (0, -1), (0, 5), (0, 6)])
def test_an_impossible_read_returns_0(descriptor: int, start: int) -> None:
    """A socket that is closed already, a frame that is full."""
    assert fill(descriptor, bytearray(5), start, LONG_MS) == 0


# ---- a connection ---------------------------------------------------------------------------------------------------


class Counted(Connection):
    """Counts the turns that reading takes, and keeps its frames."""

    def __init__(self) -> None:
        self.reads = 0
        self.frames: list[bytes] = []
        self.lost: list[KafkaError] = []
        self.news = asyncio.Event()
        super().__init__("the peer", None, clock=time.monotonic, max_frame=1 << 20, on_change=lambda: None, on_quiet=lambda: None,
                         on_lost=self._on_loss, on_answer=lambda *_: None)

    def _on_loss(self, _connection: Connection, cause: KafkaError) -> None:
        self.lost.append(cause)
        self.news.set()

    def get_buffer(self, sizehint: int) -> memoryview:
        self.reads += 1
        return super().get_buffer(sizehint)

    def _on_frame(self, frame: memoryview) -> None:
        self.frames.append(bytes(frame))
        self.news.set()


def framed(*bodies: bytes) -> bytes:
    return b"".join(len(body).to_bytes(4, "big") + body for body in bodies)


async def reads(data: bytes, frames: int) -> Counted:
    """A connection that got *data*, all of which was there before it looked."""
    made = Counted()
    ours, theirs = socket.socketpair()
    theirs.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4 * len(data))
    ours.setblocking(False)
    theirs.sendall(data)
    with theirs:
        transport, _ = await asyncio.get_running_loop().create_connection(lambda: made, sock=ours)
        made.attach_socket(ours, writes=False)
        async with asyncio.timeout(20):
            while len(made.frames) < frames and not made.lost:
                await made.news.wait()
                made.news.clear()
        transport.abort()
    return made


def test_a_large_response_that_has_arrived_takes_one_turn_of_the_loop() -> None:
    large = random.Random(1).randbytes(SCRATCH + MUCH + 1000)
    made = asyncio.run(reads(framed(large), 1))
    assert made.frames == [large]
    assert made.reads == 1
    assert made.bytes_in == len(large) + 4


def test_small_responses_before_and_behind_a_large_one_are_read() -> None:
    bodies = [b"before", random.Random(2).randbytes(SCRATCH + MUCH), b"behind", random.Random(3).randbytes(50_000), b"last"]
    made = asyncio.run(reads(framed(*bodies), len(bodies)))
    assert made.frames == bodies
    assert made.bytes_in == len(framed(*bodies))


def test_a_damaged_size_behind_a_large_response_closes_the_connection() -> None:
    made = asyncio.run(reads(framed(bytes(SCRATCH + MUCH)) + b"\xff" * 8, 2))
    assert len(made.frames) == 1
    assert isinstance(made.lost[0], ProtocolError)


def test_only_the_clients_own_loop_waits_in_a_direct_read() -> None:
    portal = Portal("test")

    async def here() -> bool:
        return in_portal()

    try:
        assert portal.call(here)
        assert not asyncio.run(here())
    finally:
        portal.stop()


# ---- small frames, in place of a loop -------------------------------------------------------------------------------


@pytest.fixture
def lent() -> Iterator[Lent]:
    if sys.platform != "linux":
        pytest.skip("a loop is lent on Linux only")
    with contextlib.ExitStack() as stack:
        yield Lent(stack)


class Lent:
    """Two connections that an epoll reports, and a bell."""

    def __init__(self, stack: contextlib.ExitStack) -> None:
        pairs = [socket.socketpair() for _ in range(2)]
        self.ours, self.theirs = [ours for ours, _ in pairs], [theirs for _, theirs in pairs]
        self.epoll, self.bell = select.epoll(), os.eventfd(0, os.EFD_NONBLOCK)
        self.buffers = [bytearray(64), bytearray(64)]
        stack.callback(os.close, self.bell)
        for each in (*self.ours, *self.theirs):
            stack.callback(each.close)
        stack.callback(self.epoll.close)
        for each in self.ours:
            each.setblocking(False)
            self.epoll.register(each, select.EPOLLIN)

    def receive(self, timeout_ms: int = 10_000, *more: int) -> tuple[int, int, bytes | None]:
        """Afterwards the epoll reports both again."""
        numbers = [each.fileno() for each in self.ours] + list(more)
        found = receive_lent(self.epoll.fileno(), numbers, [*self.buffers, bytearray(64)], self.bell, timeout_ms)
        for each in self.theirs:
            with contextlib.suppress(OSError):
                each.send(b"!")
        assert len(self.epoll.poll(0)) == 2
        return found


def sized(body: bytes) -> bytes:
    return len(body).to_bytes(4, "big") + body


@pytest.mark.parametrize("place", [0, 1])
@pytest.mark.parametrize("size", [0, 1, 59, 60])
def test_a_frame_that_comes_in_pieces_is_received_whole(lent: Lent, place: int, size: int) -> None:
    def send() -> None:
        for byte in sized(bytes(size)):
            lent.theirs[place].send(bytes([byte]))

    thread = threading.Thread(target=send)
    thread.start()
    assert lent.receive() == (place, 4 + size, bytes(size))
    thread.join()


def test_two_frames_are_no_whole_one(lent: Lent) -> None:
    lent.theirs[0].send(sized(b"a") + sized(b"b"))
    assert lent.receive() == (0, 10, None)
    assert bytes(lent.buffers[0][:10]) == sized(b"a") + sized(b"b")


@pytest.mark.parametrize("sent", [b"\0", b"\0\0\0\5ab", (61).to_bytes(4, "big") + bytes(60), b"\xff\xff\xff\xff" + bytes(9)])
def test_what_of_a_frame_does_not_come_or_fit_is_left_to_the_caller(lent: Lent, sent: bytes) -> None:
    lent.theirs[0].send(sent)
    place, size, frame = lent.receive()
    assert (place, frame) == (0, None)
    assert bytes(lent.buffers[0][:size]) == sent[:size]
    assert size == min(len(sent), 64)


def test_a_frame_that_goes_on_and_on_is_left_to_the_caller(lent: Lent) -> None:
    """Each byte comes soon after the one before; the loop has other sockets and timers."""
    received, unsent = threading.Event(), iter(sized(bytes(2_000)))

    def send() -> None:
        while not received.wait(0.002):
            lent.theirs[0].send(bytes([next(unsent)]))

    lent.buffers[0] = bytearray(4096)
    thread = threading.Thread(target=send)
    thread.start()
    place, size, frame = lent.receive()
    received.set()
    thread.join()
    assert (place, frame) == (0, None)
    assert size < 2_000
    assert next(unsent) is not None, "some are still to be sent"


def test_the_end_of_a_stream_is_left_to_the_loop(lent: Lent) -> None:
    lent.theirs[0].close()
    assert lent.receive()[1:] == (0, None)


def test_a_bell_ends_the_wait(lent: Lent) -> None:
    os.eventfd_write(lent.bell, 1)
    assert lent.receive() == (-1, 0, None)


def test_the_time_ends_the_wait(lent: Lent) -> None:
    assert lent.receive(1) == (-1, 0, None)


def test_a_socket_that_the_epoll_does_not_know_ends_the_wait_at_once(lent: Lent) -> None:
    assert lent.receive(10_000, lent.theirs[0].fileno()) == (-1, 0, None)


def test_more_sockets_than_can_be_awaited_end_the_wait_at_once(lent: Lent) -> None:
    assert receive_lent(lent.epoll.fileno(), [lent.ours[0].fileno()] * 65, lent.buffers, lent.bell, 10_000) == (-1, 0, None)
