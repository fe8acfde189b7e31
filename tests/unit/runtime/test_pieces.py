"""What is written in pieces arrives whole, however much the kernel takes at once, and is copied only where it must wait."""
from __future__ import annotations

import asyncio
import random
import socket

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.produce import Buffer
from pyclient.runtime import network
from pyclient.runtime.network import AsyncioNetwork, Endpoint, SocketOptions, send_pieces

pytestmark = pytest.mark.skipif(not hasattr(socket.socket, "sendmsg"), reason="this system has no sendmsg")


@settings(max_examples=60, deadline=None)
@given(sizes=st.lists(st.integers(0, 40) | st.integers(20_000, 90_000), max_size=12))
def test_what_the_kernel_took_and_what_is_left_are_the_pieces(sizes: list[int]) -> None:
    pieces: list[Buffer] = [bytearray(random.Random(at).randbytes(size)) for at, size in enumerate(sizes)]
    whole = b"".join(pieces)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8192)
        left = b"".join(send_pieces(ours, pieces))
        theirs.setblocking(False)
        assert _read(theirs) + left == whole


def test_more_pieces_than_the_system_takes_are_left_to_the_transport() -> None:
    ours, theirs = socket.socketpair()
    with ours, theirs:
        pieces: list[Buffer] = [b"x"] * 5000
        assert send_pieces(ours, pieces) == pieces


def test_a_broken_socket_is_left_to_the_transport() -> None:
    ours, theirs = socket.socketpair()
    theirs.close()
    ours.close()
    assert send_pieces(ours, [b"never"]) == [b"never"]


class _Takes(asyncio.Protocol):
    sock: socket.socket | None = None

    def take_socket(self, sock: socket.socket) -> None:
        self.sock = sock


@pytest.mark.parametrize("joins", [True, False])
def test_a_protocol_writes_itself_where_the_transport_would_join(joins: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(network, "JOINS_PIECES", joins)

    async def connect() -> _Takes:
        made = _Takes()
        with socket.create_server(("127.0.0.1", 0)) as server:
            endpoint = Endpoint(socket.AF_INET, server.getsockname())
            transport = await AsyncioNetwork().open(endpoint, lambda: made, SocketOptions())
            transport.close()
        return made

    assert (asyncio.run(connect()).sock is not None) == joins


def _read(sock: socket.socket) -> bytes:
    data = b""
    while True:
        try:
            data += sock.recv(1 << 20)
        except BlockingIOError:
            return data
