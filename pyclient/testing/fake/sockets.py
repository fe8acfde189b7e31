"""Real sockets for a fake cluster: one listener per broker on 127.0.0.1, on a loop in its own thread."""
from __future__ import annotations

import asyncio
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from pyclient.testing.fake.wire import Front
from pyclient.testing.common.listener import Listener

T = TypeVar("T")
LOCALHOST: Final = "127.0.0.1"


class LoopThread:
    """A loop in a daemon thread; other threads run work on it."""

    def __init__(self, name: str) -> None:
        self._loop = asyncio.SelectorEventLoop()
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
    """The listening sockets of a cluster's brokers; a killed broker's is closed until it restarts. Used on the loop."""

    def __init__(self, front: Front, reserved: Mapping[int, socket.socket], tls: ssl.SSLContext | None = None) -> None:
        self._front = front
        self._tls = tls
        self._listeners = {broker: self._listener(broker, sock) for broker, sock in reserved.items()}
        front.kafka.listeners.append(self._on_event)

    async def close(self) -> None:
        """Stop listening and cut every connection."""
        self._front.close()
        for listener in self._listeners.values():
            listener.close()
            await listener.all_entered()

    def _listener(self, broker: int, sock: socket.socket) -> Listener:
        return Listener(sock, lambda: self._front.connection(broker), self._tls)

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        broker = facts.get("broker")
        if event == "broker killed" and isinstance(broker, int):
            self._listeners[broker].close()
        elif event == "broker started" and isinstance(broker, int):
            self._listeners[broker] = self._listener(broker, socket.create_server((LOCALHOST, self._front.kafka.brokers[broker].port)))
