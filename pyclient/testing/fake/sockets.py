"""Real sockets for a fake cluster: one listener per broker on 127.0.0.1, on a loop in a thread of its own."""
from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from pyclient.testing.fake.wire import Front

T = TypeVar("T")
LOCALHOST: Final = "127.0.0.1"


class LoopThread:
    """A loop in a daemon thread, and how other threads have work done on it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name=name, daemon=True)
        self._thread.start()

    @property
    def loop(self) -> asyncio.AbstractEventLoop:
        """For those who need its clock."""
        return self._loop

    def call(self, work: Callable[[], T]) -> T:
        """Run a plain function on the loop; its result or exception is this call's."""
        done: Future[T] = Future()

        def run() -> None:
            try:
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 it belongs to the caller
                done.set_exception(error)

        if threading.current_thread() is self._thread:
            return work()
        self._loop.call_soon_threadsafe(run)
        return done.result()

    def wait(self, steps: Coroutine[Any, Any, T], timeout: float | None = None) -> T:
        """Run a coroutine on the loop; its result or exception is this call's."""
        return asyncio.run_coroutine_threadsafe(steps, self._loop).result(timeout)

    def end(self) -> None:
        """Cancel what runs, end the loop and the thread."""
        self.wait(_cancel_all())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _cancel_all() -> None:
    others = asyncio.all_tasks() - {asyncio.current_task()}
    for each in others:
        each.cancel()
    await asyncio.gather(*others, return_exceptions=True)


class Listeners:
    """The listening sockets of a cluster's brokers; a killed broker's is closed until it starts again. Used on the loop."""

    def __init__(self, front: Front, reserved: Mapping[int, socket.socket]) -> None:
        self._front = front
        self._reserved = dict(reserved)
        self._servers: dict[int, asyncio.Server] = {}
        self._starting: dict[int, asyncio.Task[None]] = {}
        front.kafka.listeners.append(self._on_event)

    async def open(self) -> None:
        """Listen for every broker."""
        for broker in self._front.kafka.brokers:
            await self._listen(broker)

    async def ready(self) -> None:
        """Return when every broker that was started again listens.

        Raises:
            OSError: somebody took the port of one meanwhile.
        """
        await asyncio.gather(*self._starting.values())

    async def close(self) -> None:
        """Listen no more, and cut every connection."""
        for broker in list(self._servers):
            self._servers.pop(broker).close()
        for connection in list(self._front.connections):
            connection.cut()

    async def _listen(self, broker: int) -> None:
        sock = self._reserved.pop(broker, None) or listening_socket(self._front.kafka.brokers[broker].port)
        self._servers[broker] = await asyncio.get_running_loop().create_server(
            lambda: self._front.connection(broker), sock=sock)

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        broker = facts.get("broker")
        if event == "broker killed" and isinstance(broker, int):
            self._not_starting(broker)
            if broker in self._servers:
                self._servers.pop(broker).close()
        elif event == "broker started" and isinstance(broker, int):
            self._starting[broker] = asyncio.get_running_loop().create_task(self._listen(broker))

    def _not_starting(self, broker: int) -> None:
        task = self._starting.pop(broker, None)
        if task is not None:
            task.cancel()


def listening_socket(port: int = 0) -> socket.socket:
    """A bound socket; port 0 takes a free one."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        sock.bind((LOCALHOST, port))
        sock.listen(128)
    except OSError:
        sock.close()
        raise
    return sock
