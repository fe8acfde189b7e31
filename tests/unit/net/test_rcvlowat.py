"""With TLS the loop is woken for a large response only when much of it has arrived, and always for its end."""
from __future__ import annotations

import asyncio
import random
import socket
import ssl
import threading
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.core.connection import Event
from pyclient.runtime.transport import HAS_RCVLOWAT, AsyncioNetwork, Endpoint, SocketOptions, Tls
from pyclient.net.rcvlowat import LEAST, MOST, SLACK, ReceiveLowWater
from tests.unit.net import raw_peers
from tests.unit.net.test_socket_read import Counted, framed
from tests.unit.net.test_tls_connections import authority, limited, loops, served

RECORD = 2**14 + 2048
"""Bytes of the largest record of TLS 1.2, without its head."""


@given(st.lists(st.integers(0, 3 * MOST) | st.sampled_from([0, 1, LEAST - 1, LEAST, LEAST + 1, SLACK, MOST, MOST + SLACK])))
def test_the_low_water_mark_never_exceeds_the_bytes_that_can_still_arrive(missing: list[int]) -> None:
    asked: list[int] = []
    waking, now = ReceiveLowWater(asked.append), 1
    for each in missing:
        before = len(asked)
        waking.update(each)
        now = asked[-1] if asked else now
        assert 1 <= now <= max(1, each - RECORD)
        assert now <= MOST
        assert len(asked) - before <= 1
        assert (now > 1) == (each >= LEAST)
    assert all(one != another for one, another in zip([1, *asked], asked, strict=False)), "the system is asked for changes only"


async def read(data: bytes, pieces: list[int], frames: int, context: ssl.SSLContext) -> Counted:
    """A connection to a peer that sends *data* in these pieces, one after the other, and then nothing more."""
    made, done = Counted(), threading.Event()

    def talk(connection: socket.socket) -> None:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with served().wrap_socket(connection, server_side=True) as secured:
            at = 0
            for size in [*pieces, len(data)]:
                secured.sendall(data[at:at + size])
                at += size
            done.wait(30)

    with raw_peers.Peer(talk) as peer:
        endpoint = Endpoint(socket.AF_INET, ("127.0.0.1", peer.port))
        await AsyncioNetwork().open(endpoint, lambda: made, SocketOptions(), Tls(context, "localhost", 10.0, lambda: made.advance(Event.OPENED_FOR_TLS)))
        try:
            async with asyncio.timeout(10):
                while len(made.frames) < frames and not made.lost:
                    await made.news.wait()
                    made.news.clear()
        finally:
            done.set()
            if made._transport is not None:
                made._transport.abort()
            await asyncio.sleep(0)
    return made


def context(version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> ssl.SSLContext:
    found = ssl.create_default_context(cadata=authority().pem)
    return limited(found, version)


sizes = st.integers(4, 3000) | st.integers(LEAST - 3000, LEAST + 3 * SLACK) | st.integers(MOST - 3000, 2 * MOST)


@pytest.mark.parametrize("run", loops())
@settings(max_examples=40, deadline=None)
@given(bodies=st.lists(sizes, min_size=1, max_size=6), pieces=st.lists(sizes, max_size=12), version=st.sampled_from([ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3]))
def test_all_responses_are_read_however_they_are_split(run: Callable[..., Counted], bodies: list[int], pieces: list[int], version: ssl.TLSVersion) -> None:
    answers = [bytes([number]) * size for number, size in enumerate(bodies)]
    made = run(read(framed(*answers), pieces, len(answers), context(version)))
    assert made.frames == answers


@pytest.mark.skipif(not HAS_RCVLOWAT, reason="no SO_RCVLOWAT on this system")
@pytest.mark.parametrize("run", loops())
def test_a_large_response_in_many_pieces_takes_few_turns_of_the_loop(run: Callable[..., None]) -> None:
    large = random.Random(1).randbytes((1 << 20) - 4)

    async def talk(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for at in range(0, len(large) + 4, 10_000):
            writer.write(framed(large)[at:at + 10_000])
            for _ in range(5):  # who wants to read it can
                await asyncio.sleep(0)
        await made.news.wait()
        writer.close()

    async def test() -> None:
        server = await asyncio.start_server(talk, "127.0.0.1", 0, ssl=served())
        endpoint = Endpoint(socket.AF_INET, server.sockets[0].getsockname()[:2])
        transport = await AsyncioNetwork().open(endpoint, lambda: made, SocketOptions(), Tls(context(), "localhost", 10.0, shaking_hands))
        async with asyncio.timeout(10):
            await made.news.wait()
        transport.abort()
        server.close()

    def shaking_hands() -> None:
        made.advance(Event.OPENED_FOR_TLS)

    made = Counted()
    run(test())
    assert made.frames == [large]
    assert made.reads < 20, "a hundred pieces"
