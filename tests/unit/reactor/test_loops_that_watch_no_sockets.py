"""A user's loop that cannot watch sockets, as Windows' proactor: a thread watches them, and the loop still leads."""
from __future__ import annotations

import asyncio
import errno
import threading
from typing import Any

from pyclient import AsyncConsumer, AsyncProducer
from pyclient.reactor.loop_poller import _Watcher
from pyclient.testing import FakeCluster

WATCHER = "pyclient-sockets"


class WatchesNothing(asyncio.SelectorEventLoop):
    """What users may call refuses, as `asyncio.ProactorEventLoop` does."""

    def add_reader(self, *_: Any, **__: Any) -> None:  # type: ignore[override]  # whatever it is given
        raise NotImplementedError

    def add_writer(self, *_: Any, **__: Any) -> None:  # type: ignore[override]  # whatever it is given
        raise NotImplementedError


def watchers() -> list[threading.Thread]:
    return [each for each in threading.enumerate() if each.name == WATCHER]


class Woken:
    """A poller with one event, behind which it wakes no more once it is closed."""

    def __init__(self) -> None:
        self.slept, self.comes, self.closed = threading.Event(), threading.Event(), False

    def sleep(self, timeout: float | None) -> list[Any]:
        self.slept.set()
        self.comes.wait()
        return []

    def wake(self) -> None:
        if self.closed:
            raise OSError(errno.EBADF, "Bad file descriptor")
        self.comes.set()

    def close(self) -> None:
        self.closed = True


def test_a_watcher_that_an_event_has_ended_while_it_was_being_closed_is_not_woken_again() -> None:
    poller: Any = Woken()
    loop = asyncio.new_event_loop()
    watcher = _Watcher(loop, lambda _: None, poller)
    poller.slept.wait()
    watcher._closed = True  # the first line of `close`
    poller.comes.set()
    watcher._thread.join()
    watcher.close()
    loop.close()
    assert poller.closed


async def round_trip(address: str, value: bytes) -> list[bytes | None]:
    async with AsyncProducer(bootstrap_servers=address) as producer:
        sent = [await producer.send("t", value) for _ in range(10)]
        await asyncio.gather(*sent)
    async with AsyncConsumer(bootstrap_servers=address, group_id="g", auto_offset_reset="earliest", topics=["t"]) as consumer:
        assert len(watchers()) == 1
        got: list[bytes | None] = []
        while len(got) < 10:
            got += [record.value for record in await consumer.poll(10)]
        return got


def test_clients_work_on_a_loop_that_watches_no_sockets_and_leave_no_thread() -> None:
    value = b"v" * 300_000  # more than a socket takes at once
    with FakeCluster(brokers=1) as cluster, asyncio.Runner(loop_factory=WatchesNothing) as runner:
        cluster.create_topic("t", 1)
        assert runner.run(round_trip(cluster.bootstrap_servers, value)) == [value] * 10
    assert not watchers()
