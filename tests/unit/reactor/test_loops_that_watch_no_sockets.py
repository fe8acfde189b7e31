"""A user's loop that cannot watch sockets, as Windows' proactor: a thread watches them, and the loop still leads."""
from __future__ import annotations

import asyncio
import threading
from typing import Any

from pyclient import AsyncConsumer, AsyncProducer
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
