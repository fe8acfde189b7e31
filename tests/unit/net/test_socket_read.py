"""Large answers are read in one call, which leaves to the loop what only the loop may decide."""
from __future__ import annotations

import asyncio
import random
import socket
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
from pyclient.net.socket_read import fill

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
