"""`flush` and `close` return when the callbacks and interceptors of what they waited for have returned."""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import AsyncProducer, Producer
from pyclient.errors import IllegalStateError, KafkaTimeoutError
from pyclient.producer.callbacks import ThreadObserver
from pyclient.testing import FakeCluster
from tests.reactors import idle_portal

LIMIT_S = 30
TOO_SHORT_S = 0.1


class Held:
    """A callback, or an interceptor, that returns when `let_go` is set."""

    def __init__(self) -> None:
        self.let_go = threading.Event()
        self.returned = 0

    def __call__(self, *_: object) -> None:
        assert self.let_go.wait(LIMIT_S)
        self.returned += 1

    def on_send(self, _: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        return key, value, headers

    on_acknowledgement = __call__


def one(producer: Producer, held: Held) -> None:
    producer.send("t", b"x", on_delivery=held)


def added_when_done(producer: Producer, held: Held) -> None:
    delivery = producer.send("t", b"x")
    delivery.result(LIMIT_S)
    delivery.add_done_callback(held)


def bulk(producer: Producer, held: Held) -> None:
    producer.send_many("t", [b"x", b"y"]).add_done_callback(held)


@pytest.mark.parametrize("send", [one, added_when_done, bulk])
def test_flush_returns_when_callbacks_have_returned(fake_cluster: FakeCluster, send: Callable[[Producer, Held], None]) -> None:
    fake_cluster.create_topic("t")
    held = Held()
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
        send(producer, held)
        producer.send("t", b"y").result(LIMIT_S)
        with pytest.raises(KafkaTimeoutError, match="delivery callbacks are still running after 0.1 s"):
            producer.flush(TOO_SHORT_S)
        held.let_go.set()
        producer.flush(LIMIT_S)
        assert held.returned == 1


def test_flush_returns_when_interceptors_have_returned(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    held = Held()
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[held]) as producer:
        producer.send("t", b"x").result(LIMIT_S)
        with pytest.raises(KafkaTimeoutError, match="callbacks are still running"):
            producer.flush(TOO_SHORT_S)
        held.let_go.set()
        producer.flush(LIMIT_S)
        assert held.returned == 1


def test_errors_that_callbacks_collect_are_there_after_flush(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    fake_cluster.pause(1)
    errors: list[object] = []
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, linger_ms=0, delivery_timeout_ms=200, request_timeout_ms=200) as producer:
        fake_cluster.resume(1)
        producer.partitions_for("t")
        fake_cluster.pause(1)
        for _ in range(20):
            producer.send("t", b"x", on_delivery=lambda delivery: errors.append(delivery.exception()))
        producer.flush(LIMIT_S)  # raises nothing: the callbacks have seen the failures
        assert len(errors) == 20


def test_close_returns_when_callbacks_have_returned(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    seen: list[object] = []
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
        producer.send_many("t", [b"x"] * 50).add_done_callback(seen.append)
        producer.send("t", b"x", on_delivery=seen.append)
    assert len(seen) == 2


def test_in_a_callback_flush_refuses_to_wait(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    refused: list[IllegalStateError] = []

    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
        def flush(_: object) -> None:
            try:
                producer.flush()
            except IllegalStateError as error:
                refused.append(error)

        producer.send("t", b"x", on_delivery=flush)
        producer.flush(LIMIT_S)
        assert len(refused) == 1


def test_async_flush_returns_when_callbacks_and_interceptors_have_returned(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    held = Held()
    held.let_go.set()

    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[held]) as producer:
            await producer.send("t", b"x", on_delivery=held)
            (await producer.send_many("t", [b"x", b"y"])).add_done_callback(held)
            await producer.flush(LIMIT_S)
            assert held.returned == 3 + 2

    asyncio.run(test())


def test_without_callbacks_no_thread_starts_for_flush() -> None:
    observer = ThreadObserver("callbacks", idle_portal().reactor)
    assert observer.wait_for_callbacks(0)
    assert "callbacks" not in {each.name for each in threading.enumerate()}
