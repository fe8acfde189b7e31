"""Calls of a client where the user's calls are nested almost as deep as the interpreter allows."""
from __future__ import annotations

import asyncio
import contextlib
import sys
import threading
from collections.abc import Callable, Iterator
from typing import Any, TypeVar

import pytest

from pyclient import AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.reactor.epoll_poller import EpollPoller
from pyclient.reactor.reactor import Reactor, Waiter
from pyclient.testing import FakeCluster
from tests.waiting import eventually

T = TypeVar("T")


def nested(left: int, call: Callable[[], T]) -> T:
    """The result of *call*, made where about so many calls more may be nested."""
    depth = sys.getrecursionlimit() - left - len(list(_frames()))

    def descend(more: int) -> T:
        return descend(more - 1) if more > 0 else call()

    return descend(depth)


def _frames() -> Iterator[Any]:
    frame: Any = sys._getframe()
    while frame is not None:
        yield frame
        frame = frame.f_back


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="an epoll")
def test_a_step_runs_in_another_thread_where_the_stack_has_no_room_for_it() -> None:
    reactor = Reactor(EpollPoller())
    thread = threading.Thread(target=reactor.run_forever)
    thread.start()
    ran: list[int | None] = []
    nested(50, lambda: reactor.call_soon(lambda: ran.append(threading.get_ident())))
    eventually(lambda: ran)
    waiter = Waiter(reactor)
    reactor.post(lambda: ran.append(threading.get_ident()))
    reactor.post(waiter.end)
    assert nested(50, lambda: reactor.run_until(waiter, 30))
    assert set(ran) == {thread.ident}
    reactor.close()
    thread.join()


@pytest.mark.parametrize("left", [30, 60, 100])
def test_a_client_works_or_raises_RecursionError_wherever_it_is_called_and_goes_on(left: int, caplog: pytest.LogCaptureFixture) -> None:
    def tried(call: Callable[[], Any]) -> None:
        with contextlib.suppress(RecursionError):
            nested(left, call)

    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", 1)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer, \
                Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition("t", 0)])
            for _ in range(20):
                tried(lambda: producer.send("t", b"deep").result(30))
                tried(lambda: consumer.poll(0.01))
            producer.send("t", b"last").result(30)
            eventually(lambda: b"last" in [record.value for record in consumer.poll(1)])
    assert not caplog.records


@pytest.mark.parametrize("left", [30, 60, 100])
def test_an_async_client_works_or_raises_RecursionError_wherever_it_is_called_and_goes_on(left: int, caplog: pytest.LogCaptureFixture) -> None:
    async def deep(more: int, producer: AsyncProducer) -> None:
        if more > 0:
            await deep(more - 1, producer)
        else:
            await (await producer.send("t", b"deep"))

    async def main(address: str) -> None:
        async with AsyncProducer(bootstrap_servers=address) as producer:
            for _ in range(5):
                with contextlib.suppress(RecursionError):
                    await deep(sys.getrecursionlimit() - left - len(list(_frames())), producer)
            async with asyncio.timeout(30):
                await (await producer.send("t", b"last"))

    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", 1)
        asyncio.run(main(cluster.bootstrap_servers))
    assert not caplog.records
