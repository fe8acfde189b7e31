"""What users of asyncio and of other clients write: taken, or refused at once with the line to write instead."""
from __future__ import annotations

import asyncio
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from pyclient import AsyncProducer, Deliveries, Delivery, Producer
from pyclient.errors import DeliveryError, KafkaError, KafkaTimeoutError
from pyclient.foreign_calls import Foreign
from pyclient.testing import Fail, FakeCluster
from pyclient.testing.fake.control import Delay

PAIRS = [("a", b"1"), ("b", None)]


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


def producing(cluster: FakeCluster, **options: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, **options)


async def async_callback(_: object) -> None:
    """Nothing would await it."""


# ---- asyncio --------------------------------------------------------------------------------------------------------


async def first_of(deliveries: list[Any]) -> object:
    return await deliveries[0]


async def all_completed(deliveries: list[Any]) -> object:
    return [await each for each in asyncio.as_completed(deliveries)]


Waits = Callable[[list[Any]], Awaitable[object]]
WAITS: dict[str, Waits] = {
    "wait": asyncio.wait,
    "gather": lambda deliveries: asyncio.gather(*deliveries),
    "wait_for": lambda deliveries: asyncio.wait_for(deliveries[0], 60),
    "shield": lambda deliveries: asyncio.shield(deliveries[0]),
    "await": first_of,
    "as_completed": all_completed,
}


async def waiting_begins(deliveries: list[Any], wait: Waits) -> asyncio.Future[object]:
    """A task in which *wait* has begun."""
    task = asyncio.ensure_future(wait(deliveries))
    for _ in range(5):
        await asyncio.sleep(0)
    assert not task.done()
    return task


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("bulk", [False, True])
def test_what_asyncio_waits_with_takes_deliveries_of_a_sync_producer(cluster: FakeCluster, name: str, bulk: bool) -> None:
    async def test(producer: Producer) -> None:
        queued = [producer.send_many("t", [b"y", b"z"])] if bulk else [producer.send("t", b"x"), producer.send("t", b"y")]
        task = await waiting_begins(queued, WAITS[name])
        flushing = threading.Thread(target=producer.flush)
        flushing.start()
        async with asyncio.timeout(60):
            await task
            await WAITS[name](queued)  # when all are done, too
        flushing.join()
        assert queued[0].done()

    with producing(cluster, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        asyncio.run(test(producer), debug=True)  # asyncio raises when a thread wakes it in the wrong way


@pytest.mark.parametrize("name", WAITS)
@pytest.mark.parametrize("bulk", [False, True])
def test_what_asyncio_waits_with_takes_deliveries_of_an_async_producer(cluster: FakeCluster, name: str, bulk: bool) -> None:
    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
            one = await producer.send_many("t", [b"y", b"z"]) if bulk else await producer.send("t", b"x")
            queued = [one, await producer.send("t", b"z")]
            task = await waiting_begins(queued, WAITS[name])
            await producer.flush()
            await task
            await WAITS[name](queued)
            assert one.done()

    asyncio.run(test())


def test_asyncio_wait_returns_the_deliveries(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            one, bulk = await producer.send("t", b"x"), await producer.send_many("t", [b"y", b"z"])
            done, pending = await asyncio.wait([one, bulk, bulk[1]])  # type: ignore[type-var]  # typeshed wants a Future
            assert (done, pending) == ({one, bulk, bulk[1]}, set())

    asyncio.run(test())


def test_a_wait_that_ends_early_leaves_no_callback_behind(cluster: FakeCluster) -> None:
    async def test(producer: Producer) -> None:
        queued = [producer.send("t", b"x"), producer.send_many("t", [b"y"])]
        done, pending = await asyncio.wait(queued, timeout=0)  # type: ignore[type-var]  # typeshed wants a Future
        assert (done, pending) == (set(), set(queued))

    with producing(cluster, linger_ms=60_000) as producer:
        producer.partitions_for("t")
        asyncio.run(test(producer))  # its loop is closed: a callback left behind is logged as an error
        producer.flush()


def test_asyncio_wait_looks_at_no_failure(cluster: FakeCluster) -> None:
    async def test(producer: Producer) -> None:
        delivery = producer.send("t", b"x")
        assert await asyncio.wait([delivery]) == ({delivery}, set())  # type: ignore[type-var]  # typeshed wants a Future
        with pytest.raises(DeliveryError):
            producer.flush()

    with producing(cluster) as producer, cluster.intercept(Fail(29), "Produce"):
        asyncio.run(test(producer))


def test_a_removed_callback_is_not_called(cluster: FakeCluster) -> None:
    called: list[object] = []
    with producing(cluster, linger_ms=60_000) as producer:
        delivery, bulk = producer.send("t", b"x"), producer.send_many("t", [b"y"])
        for each in (delivery, bulk, bulk[0]):
            each.add_done_callback(called.append)
            each.add_done_callback(called.append)
            assert each.remove_done_callback(called.append) == 2
            assert each.remove_done_callback(print) == 0
        assert called == []
        bulk.add_done_callback(called.append)
        producer.flush()
        assert called == [bulk]
        assert bulk.remove_done_callback(called.append) == 0


def test_deliveries_of_one_record_are_equal(cluster: FakeCluster) -> None:
    with producing(cluster) as producer:
        bulk = producer.send_many("t", [b"y", b"z"])
        assert bulk[0] == bulk[0]
        assert bulk[0] != bulk[1]
        assert len({bulk[0], bulk[0], bulk[1]}) == 2
        assert not bulk.cancelled()
        assert not bulk[0].cancelled()


@pytest.mark.parametrize(("wrong", "why"), [("x", "must be callable.*got str 'x'"), (async_callback, "`async def`")])
def test_what_cannot_be_called_is_refused_at_once_as_a_callback(cluster: FakeCluster, wrong: Any, why: str) -> None:
    with producing(cluster) as producer:
        for topic in ("t", "unknown", "t"):
            with pytest.raises(TypeError, match=why):
                producer.send(topic, b"x", on_delivery=wrong)
        for each in (producer.send("t", b"x"), producer.send_many("t", [b"x"])):
            with pytest.raises(TypeError, match=why):
                each.add_done_callback(wrong)
    assert len(cluster.records("t")) == 2

    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x")
            sending = producer.send("t", b"x", on_delivery=wrong)
            with pytest.raises(TypeError, match=why):
                await sending

    asyncio.run(test())
    assert len(cluster.records("t")) == 3


# ---- other clients --------------------------------------------------------------------------------------------------


def test_headers_may_be_a_dict(cluster: FakeCluster) -> None:
    class Serializer:
        def serialize(self, topic: str, value: bytes, headers: Any = ()) -> bytes:
            seen.append(list(headers))
            return value

    class Interceptor:
        def on_send(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
            seen.append(list(headers))
            return key, value, dict(headers)

        def on_acknowledgement(self, *_: object) -> None:
            """Nothing to do."""

    seen: list[Any] = []
    for options in ({}, {"value_serializer": Serializer()}, {"interceptors": [Interceptor()]}):
        with producing(cluster, **options) as producer:
            producer.send("t", b"x", headers=dict(PAIRS))
            producer.send_many("t", [b"x", b"y", b"z"], headers=[dict(PAIRS), None, {}])
    assert [list(record.headers) for record in cluster.records("t")] == [PAIRS, PAIRS, [], []] * 3
    assert seen == [PAIRS, PAIRS, [], []] * 2


def test_send_and_wait_returns_where_the_record_is(cluster: FakeCluster) -> None:
    with producing(cluster) as producer:
        first = producer.send_and_wait("t", b"x", b"k", partition=0, timestamp=5, headers=PAIRS)
    assert (first.partition, first.offset, first.timestamp) == (0, 0, 5)

    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            assert (await producer.send_and_wait("t", b"x")).offset == 1

    asyncio.run(test())


def test_send_and_wait_waits_no_longer_than_its_timeout(cluster: FakeCluster) -> None:
    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.send_and_wait("t", b"x", timeout=20)
            with cluster.intercept(Delay(0.5), "Produce", times=1), pytest.raises(KafkaTimeoutError, match=r"t-\d is not acknowledged after 0\.01 s"):
                await producer.send_and_wait("t", b"late", timeout=0.01)
            await producer.flush(20)

    with producing(cluster) as producer:
        producer.send_and_wait("t", b"x", timeout=20)
        with cluster.intercept(Delay(0.5), "Produce", times=1), pytest.raises(KafkaTimeoutError, match=r"t-\d is not acknowledged after 0\.01 s"):
            producer.send_and_wait("t", b"late", timeout=0.01)
        with pytest.raises(TypeError, match="timeout must be a number"):
            producer.send_and_wait("t", b"never", timeout="1")  # type: ignore[arg-type]
        producer.flush(20)
    asyncio.run(test())
    assert sorted(record.value or b"" for record in cluster.records("t")) == [b"late", b"late", b"x", b"x"]


def test_start_and_stop_do_what_async_with_does(cluster: FakeCluster) -> None:
    async def test() -> None:
        producer = AsyncProducer(bootstrap_servers=cluster.bootstrap_servers)
        await producer.start()
        try:
            await producer.send("t", b"x")
        finally:
            await producer.stop()
        with pytest.raises(KafkaError, match="closed"):
            await producer.start()

    asyncio.run(test())
    assert len(cluster.records("t")) == 1


# ---- what users see -------------------------------------------------------------------------------------------------


def test_a_producer_shows_its_state_and_its_counts(cluster: FakeCluster) -> None:
    where = cluster.bootstrap_servers
    with producing(cluster, linger_ms=60_000) as producer:
        assert repr(producer) == f"<Producer of {where}, open: 0 records not acknowledged, 0 of 33554432 B of buffer_memory used>"
        producer.send("t", b"x")
        assert repr(producer) == f"<Producer of {where}, open: 1 record not acknowledged, 2048 of 33554432 B of buffer_memory used>"
    assert repr(producer) == f"<Producer of {where}, closed: 0 records not acknowledged, 0 of 33554432 B of buffer_memory used>"
    waiting = AsyncProducer(bootstrap_servers=["a:1", "b:2", "c:3"])
    assert repr(waiting).startswith("<AsyncProducer of a:1 and 2 more, not opened: 0 records")


def test_a_bulk_counts_in_words(cluster: FakeCluster) -> None:
    with producing(cluster) as producer:
        bulk = producer.send_many("t", [b"x"])
        assert repr(bulk.result()) == "<DeliveredRecords of 1 record>"
        assert repr(bulk) == "<Deliveries of 1 record in 1 batch, delivered>"


@pytest.mark.parametrize(("kind", "names"), [
    (Delivery, {"topic", "partition"}),
    (Deliveries, {"rejected"}),
])
def test_completion_shows_no_internals(kind: type, names: set[str]) -> None:
    futures = {"add_done_callback", "cancelled", "done", "exception", "remove_done_callback", "result"}
    own = [name for name in dir(kind) if not isinstance(vars(kind).get(name), Foreign)]  # an instance's dir() leaves them out
    assert {name for name in own if not name.startswith("_")} == futures | names
