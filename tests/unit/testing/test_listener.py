"""No connection is lost between a listener and its protocols, whenever it is closed."""
from __future__ import annotations

import asyncio
import errno
import gc
import socket
from collections.abc import Coroutine
from typing import Any

import pytest

from pyclient.testing.common import listener as listener_module
from pyclient.testing.common.listener import Listener


def run(work: Coroutine[Any, Any, None]) -> None:
    with asyncio.Runner(loop_factory=asyncio.SelectorEventLoop) as runner:
        runner.run(work)


class Recorder(asyncio.Protocol):
    def __init__(self, made: list[asyncio.Transport]) -> None:
        self._made = made

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self._made.append(transport)
        transport.write(b"!")


def said_to(client: socket.socket) -> bytes | None:
    try:
        return client.recv(1)
    except ConnectionResetError:
        return None


@pytest.mark.parametrize("turns", range(6))
def test_connections_accepted_before_the_end_reach_a_protocol_and_others_are_rejected(turns: int) -> None:
    made: list[asyncio.Transport] = []

    async def test() -> None:
        listener = Listener(socket.create_server(("127.0.0.1", 0)), lambda: Recorder(made))
        with socket.create_connection(("127.0.0.1", listener.port), 5) as client:
            for _ in range(turns):
                await asyncio.sleep(0)
            listener.close()
            await listener.all_entered()
            for transport in made:
                transport.abort()
            await asyncio.sleep(0)
            assert said_to(client) == (b"!" if made else None)

    run(test())
    gc.collect()  # an unclosed socket or transport would be reported
    assert len(made) == (turns > 1)


def test_a_short_answer_is_sent_at_once_though_the_one_before_is_not_acknowledged() -> None:
    """As brokers do (TCP_NODELAY). Otherwise a client that gave up a request gets each later answer 40 ms late."""
    made: list[asyncio.Transport] = []

    async def test() -> None:
        listener = Listener(socket.create_server(("127.0.0.1", 0)), lambda: Recorder(made))
        with socket.create_connection(("127.0.0.1", listener.port), 5) as client:
            assert await asyncio.to_thread(said_to, client) == b"!"
            listener.close()
            assert made[0].get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
            made[0].abort()
            await asyncio.sleep(0)

    run(test())


def test_a_system_error_is_logged_and_accepting_continues(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(listener_module, "PAUSE_S", 0.0)
    made: list[asyncio.Transport] = []

    class Poor(socket.socket):
        refused = 2

        def accept(self) -> tuple[socket.socket, Any]:
            if self.refused:
                self.refused -= 1
                raise OSError(errno.EMFILE, "Too many open files")
            return super().accept()

    async def test() -> None:
        with socket.create_server(("127.0.0.1", 0)) as plain:
            listener = Listener(Poor(fileno=plain.detach()), lambda: Recorder(made))
        with socket.create_connection(("127.0.0.1", listener.port), 5) as client:
            assert await asyncio.to_thread(said_to, client) == b"!"
            listener.close()
            listener.close()
            made[0].abort()
            await asyncio.sleep(0)

    run(test())
    assert [each.getMessage() for each in caplog.records] == [
        "accepting a connection failed, trying again in 0.0 s: [Errno 24] Too many open files"] * 2
