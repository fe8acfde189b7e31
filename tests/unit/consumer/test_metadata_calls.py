"""What clients know without an Admin: topics, numbers of partitions, ends of logs, the cluster, records pending."""
from __future__ import annotations

import asyncio
import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, OffsetAndMetadata, Producer, TopicPartition
from pyclient.errors import DeliveryError, IllegalStateError, InvalidTopicError, KafkaTimeoutError, UnknownTopicOrPartitionError
from pyclient.testing import FakeCluster
from tests.waiting import eventually

TP = TopicPartition("t", 0)
COUNT = 3


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t", partitions=2)
    for _ in range(COUNT):
        fake_cluster.produce("t", b"x", partition=0)
    return fake_cluster


@pytest.fixture
def consumer(cluster: FakeCluster) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as made:
        yield made


# ---- topics ---------------------------------------------------------------------------------------------------------


def test_a_consumer_without_a_group_finds_the_partitions_that_it_assigns_itself(consumer: Consumer) -> None:
    assert consumer.list_topics() == ["t"]
    consumer.assign([TopicPartition("t", number) for number in range(consumer.partitions_for("t"))])
    assert len(consumer.poll(10)) == COUNT


def test_asking_for_a_topic_that_does_not_exist_raises_and_creates_nothing(consumer: Consumer) -> None:
    with pytest.raises(UnknownTopicOrPartitionError, match="'nowhere'"):
        consumer.partitions_for("nowhere")
    with pytest.raises(InvalidTopicError):
        consumer.partitions_for("no/such")
    assert consumer.list_topics() == ["t"]


def test_an_async_consumer_returns_the_same(cluster: FakeCluster) -> None:
    async def main() -> tuple[list[str], int, int | None]:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            await consumer.poll(10)
            return await consumer.list_topics(), await consumer.partitions_for("t"), consumer.high_watermark(TP)

    assert asyncio.run(main()) == (["t"], 2, COUNT)


# ---- high watermarks ------------------------------------------------------------------------------------------------


def test_the_high_watermark_is_that_of_the_last_fetch_and_none_before(cluster: FakeCluster, consumer: Consumer) -> None:
    cluster.pause(1)  # it answers no fetch
    consumer.assign([TP])
    assert consumer.high_watermark(TP) is None
    cluster.resume(1)
    assert len(consumer.poll(10, max_records=1)) == 1
    assert consumer.high_watermark(TP) == COUNT
    cluster.produce("t", b"y", partition=0)
    eventually(lambda: consumer.high_watermark(TP) == COUNT + 1)


def test_the_high_watermark_of_a_partition_that_is_not_assigned_is_refused(consumer: Consumer) -> None:
    with pytest.raises(IllegalStateError, match=r"t-0 is not assigned.*assign"):
        consumer.high_watermark(TP)


# ---- seek -----------------------------------------------------------------------------------------------------------


def test_seek_takes_what_committed_returns_and_its_metadata_is_not_committed_again(cluster: FakeCluster) -> None:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", enable_auto_commit=False) as consumer:
        consumer.assign([TP])
        consumer.commit({TP: OffsetAndMetadata(1, "of mine", 0)})
        committed = consumer.committed([TP])[TP]
        assert committed is not None
        consumer.seek(TP, committed)
        assert consumer._core.fetcher.positions[TP].epoch == 0
        assert [record.offset for record in consumer.poll(10)] == [1, 2]
        consumer.seek(TP, committed)
        consumer.commit()
        assert consumer.committed([TP])[TP] == OffsetAndMetadata(1, "", 0)


def test_a_seek_to_an_offset_with_a_wrong_epoch_is_refused(consumer: Consumer) -> None:
    consumer.assign([TP])
    with pytest.raises(ValueError, match="leader epoch -3 of t-0"):
        consumer.seek(TP, OffsetAndMetadata(1, "", -3))


# ---- health ---------------------------------------------------------------------------------------------------------


MAKE: dict[str, tuple[Callable[..., Any], Callable[[Any], object]]] = {  # a client, and a call of it that asks a broker
    "Producer": (functools.partial(Producer, max_block_ms=100), lambda client: client.partitions_for("t")),
    "Consumer": (Consumer, lambda client: client.list_topics(timeout=0.1)),
    "Admin": (Admin, lambda client: client.list_topics(timeout=0.1))}


@pytest.mark.parametrize("kind", MAKE)
def test_a_client_says_which_cluster_it_is_connected_to_and_whether(cluster: FakeCluster, kind: str) -> None:
    make, ask = MAKE[kind]
    with make(bootstrap_servers=cluster.bootstrap_servers, reconnect_backoff_max_ms=20) as client:
        eventually(lambda: client.is_connected)
        name = client.cluster_id
        assert name
        cluster.kill(1)
        with contextlib.suppress(KafkaTimeoutError):
            ask(client)
        eventually(lambda: not client.is_connected)
        assert client.cluster_id == name
    assert not client.is_connected


def test_an_idle_client_notices_that_all_brokers_are_gone(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
        producer.send("t", b"x").result(20)
        assert producer.is_connected
        fake_cluster.kill(1)
        eventually(lambda: not producer.is_connected)


@pytest.mark.parametrize("kind", [AsyncProducer, AsyncConsumer, AsyncAdmin])
def test_before_it_is_opened_an_async_client_is_not_connected(kind: type[Any]) -> None:
    client = kind(bootstrap_servers="127.0.0.1:1")
    assert (client.is_connected, client.cluster_id) == (False, None)


def test_a_client_stays_connected_while_one_of_its_brokers_answers(cluster: FakeCluster) -> None:
    with FakeCluster(brokers=2) as two, Producer(bootstrap_servers=two.bootstrap_servers, reconnect_backoff_max_ms=50) as producer:
        two.create_topic("t", 2)
        eventually(lambda: producer.is_connected)
        two.kill(1)
        for partition in (0, 1):
            with contextlib.suppress(KafkaTimeoutError):
                producer.send("t", b"x", partition=partition).result(2)
        assert producer.is_connected


# ---- len(producer) --------------------------------------------------------------------------------------------------


def test_the_length_of_a_producer_is_the_records_neither_acknowledged_nor_failed(cluster: FakeCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=60_000) as producer:
        assert len(producer) == 0
        assert producer, "an idle producer is not false"
        producer.partitions_for("t")
        for _ in range(5):
            producer.send("t", b"x")
        assert len(producer) == 5
        producer.flush()
        assert len(producer) == 0


def test_the_length_of_an_async_producer_counts_too() -> None:
    async def main() -> int:
        producer = AsyncProducer(bootstrap_servers="127.0.0.1:1")
        await producer.start()
        producer._core.accumulator.set_topic("t", 1, [0])
        await producer.send("t", b"x")
        pending = len(producer)
        with pytest.raises(DeliveryError):
            await producer.close(0)
        return pending

    assert asyncio.run(main()) == 1
