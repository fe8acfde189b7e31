"""A TCP proxy that misbehaves on command: resets, silence and delay between a client and one address.

Independent of Kafka. Runs in a thread with its own loop, so that tests, sync or async, command it by plain calls; every
command has taken effect when it returns.
"""
from __future__ import annotations

import asyncio
import contextlib
import socket
import struct
import threading
import time
from collections.abc import Callable
from typing import Final, Self, TypeVar

from pyclient.testing.common.listener import Listener

CHUNK: Final = 64 * 1024
COMMAND_TIMEOUT_S: Final = 10.0

T = TypeVar("T")


class _Link:
    """One client's connection and its twin to the upstream."""

    def __init__(self, client: asyncio.StreamWriter) -> None:
        self.writers: list[asyncio.StreamWriter] = [client]
        self.moved_at = time.monotonic()
        self.is_answered = False
        """Whether the bytes that passed last went to the client: it waits for nothing."""
        self.passed = {False: 0, True: 0}
        """Bytes by direction: True is to the client."""

    def reset(self) -> None:
        """RST to both sides: nothing buffered is sent."""
        for writer in self.writers:
            _reset(writer)

    def close(self) -> None:
        """FIN to both sides, after what is buffered."""
        for writer in self.writers:
            writer.close()


def _reset(writer: asyncio.StreamWriter) -> None:
    """End the connection by RST: aborting alone sends a FIN, as an orderly end does."""
    if (connection := writer.get_extra_info("socket")) is not None:
        with contextlib.suppress(OSError):  # closed already
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    writer.transport.abort()


class FaultProxy:
    """Passes connections to *upstream* (``host, port``) until a fault is set. A context manager.

    ``upstream`` may be set later, or changed: connections made from then on go there. ``host`` is the address to
    listen on (``"::1"`` for IPv6), ``port`` the port, 0 for a free one.
    """

    def __init__(self, upstream: tuple[str, int] | None = None, *, host: str = "127.0.0.1", port: int = 0) -> None:
        self.upstream = upstream
        self._host, self._wanted_port = host, port
        self._links: set[_Link] = set()
        self._refusing = False
        self._delay_s = 0.0
        self._breaks: tuple[bool, int, bool] | None = None
        self._flowing: asyncio.Event
        self._listener: Listener
        self._loop = asyncio.SelectorEventLoop()
        self._thread = threading.Thread(target=self._run, name="pyclient-fault-proxy", daemon=True)
        self._started = False

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.close()

    def start(self) -> Self:
        """Listen. Raises OSError when the port is taken."""
        self._started = True
        self._thread.start()
        try:
            asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(COMMAND_TIMEOUT_S)
        except BaseException:
            self._end_loop()
            raise
        return self

    def close(self) -> None:
        """Reset every connection and stop listening. Calling again does nothing."""
        if self._started and not self._loop.is_closed():
            asyncio.run_coroutine_threadsafe(self._shut(), self._loop).result(COMMAND_TIMEOUT_S)
            self._end_loop()

    @property
    def port(self) -> int:
        """Where it listens."""
        return self._listener.port

    @property
    def address(self) -> str:
        """``host:port``, for ``bootstrap_servers``."""
        return f"[{self._host}]:{self.port}" if ":" in self._host else f"{self._host}:{self.port}"

    @property
    def connections(self) -> int:
        """How many clients are connected now."""
        return self._do(lambda: len(self._links))

    def cut(self) -> None:
        """Reset all connections, and each new one at once, until `heal`."""
        def act() -> None:
            self._refusing = True
            self._reset_all()
        self._do(act)

    def reset(self) -> None:
        """Reset all connections once; new ones pass."""
        self._do(self._reset_all)

    def hang(self) -> None:
        """Accept connections and bytes, and pass nothing on, until `heal`."""
        self._do(self._flowing.clear)

    def delay(self, seconds: float) -> None:
        """Hold each chunk for *seconds* in each direction; 0 ends it."""
        def act() -> None:
            self._delay_s = seconds
        self._do(act)

    def break_after(self, count: int, *, to_client: bool = False, silently: bool = False) -> None:
        """Pass *count* bytes of each connection in one direction, then reset it, or *silently* drop the rest.

        Lasts until `heal`.
        """
        def act() -> None:
            self._breaks = to_client, count, silently
        self._do(act)

    def heal(self) -> None:
        """Pass everything again, what `hang` has held included. Connections that were reset stay lost."""
        def act() -> None:
            self._refusing = False
            self._delay_s = 0.0
            self._breaks = None
            self._flowing.set()
        self._do(act)

    def close_idle(self, idle_for: float = 0.0) -> int:
        """Close, in order (FIN), connections that passed nothing for *idle_for* seconds and wait for no answer, as
        brokers do after ``connections.max.idle.ms``. Returns how many."""
        return self._do(lambda: self._close_idle(time.monotonic() - idle_for))

    def _do(self, action: Callable[[], T]) -> T:
        async def act() -> T:
            return action()
        return asyncio.run_coroutine_threadsafe(act(), self._loop).result(COMMAND_TIMEOUT_S)

    # --- on the loop ---

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    async def _listen(self) -> None:
        self._flowing = asyncio.Event()
        self._flowing.set()
        family = socket.AF_INET6 if ":" in self._host else socket.AF_INET
        self._listener = Listener(
            socket.create_server((self._host, self._wanted_port), family=family),
            lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader(), self._serve))

    async def _shut(self) -> None:
        self._listener.close()
        await self._listener.all_entered()
        self._reset_all()
        self._flowing.set()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)

    def _end_loop(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(COMMAND_TIMEOUT_S)
        self._loop.close()

    def _reset_all(self) -> None:
        for link in list(self._links):
            link.reset()

    def _close_idle(self, moved_before: float) -> int:
        idle = [link for link in self._links if link.is_answered and link.moved_at <= moved_before]
        for link in idle:
            link.close()
        return len(idle)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self._refusing or self.upstream is None:
            _reset(writer)
            return
        link = _Link(writer)
        self._links.add(link)
        try:
            await self._pass_on(link, reader, writer, self.upstream)
            link.close()
        except* (OSError, asyncio.CancelledError):
            link.reset()  # one side has gone, or the proxy ends: the other learns it as it was
        finally:
            self._links.discard(link)

    async def _pass_on(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter,
                       upstream: tuple[str, int]) -> None:
        upstream_reader, upstream_writer = await asyncio.open_connection(*upstream)
        link.writers.append(upstream_writer)
        if self._refusing:  # cut while connecting
            return
        async with asyncio.TaskGroup() as both:
            both.create_task(self._pump(link, reader, upstream_writer, to_client=False))
            both.create_task(self._pump(link, upstream_reader, writer, to_client=True))

    async def _pump(self, link: _Link, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, to_client: bool) -> None:
        while data := await reader.read(CHUNK):
            await self._flowing.wait()
            if self._breaks is not None and to_client is self._breaks[0]:
                _, count, silently = self._breaks
                if link.passed[to_client] + len(data) >= count:
                    writer.write(data[:max(0, count - link.passed[to_client])])
                    await writer.drain()
                    await self._break(link, silently=silently)
            link.passed[to_client] += len(data)
            if self._delay_s:
                await asyncio.sleep(self._delay_s)
            link.moved_at, link.is_answered = time.monotonic(), to_client
            writer.write(data)
            await writer.drain()
        writer.write_eof()

    async def _break(self, link: _Link, *, silently: bool) -> None:
        if silently:
            await asyncio.get_running_loop().create_future()  # until the client or the proxy ends it
        link.reset()
