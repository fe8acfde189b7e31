"""Transactions on a real broker: what read_committed consumers see, and who is fenced."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from examples.numbers_in_a_transaction import write_numbers
from pyclient import AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.errors import ApplicationRecoverableError, IllegalStateError, KafkaError, RecordTooLargeError, TransactionAbortableError
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, markers_written


@pytest.fixture(scope="module")
def old_cluster() -> Iterator[LocalCluster]:
    """Kafka 3.9 has transaction protocol V1 only."""
    with LocalCluster(version="3.9.1") as cluster:
        yield cluster


@pytest.fixture(scope="module")
def cluster_of_protocol_V1() -> Iterator[LocalCluster]:
    """Kafka 4.3 before its administrator has switched protocol V2 on."""
    with LocalCluster(features={"transaction.version": 1}) as cluster:
        yield cluster


CLUSTERS = {"V2": "kafka_cluster", "V1": "cluster_of_protocol_V1", "old-V1": "old_cluster"}


@pytest.fixture(params=CLUSTERS)
def kafka(request: pytest.FixtureRequest) -> LocalCluster:
    """A cluster of each transaction protocol."""
    cluster: LocalCluster = request.getfixturevalue(CLUSTERS[request.param])
    return cluster


def transactional(cluster: LocalCluster, name: str) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)


def committed(cluster: LocalCluster, partitions: list[TopicPartition]) -> list[bytes | None]:
    """The values that a read_committed consumer reads up to the end."""
    markers_written(cluster, partitions)
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[bytes | None] = []
        while any(consumer.position(tp) < end for tp, end in ends.items()):
            found += [record.value for record in consumer.poll(1.0)]
        return found


def test_the_textbook_transaction_is_read_once_it_is_committed(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic, 3)
    assert write_numbers(kafka.bootstrap_servers, topic, topic)
    assert sorted(committed(kafka, partitions), key=lambda value: int(value or b"-1")) == [str(n).encode() for n in range(100)]


def test_T03_an_aborted_transaction_is_never_read_and_the_producer_goes_on(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)
    with transactional(kafka, topic) as producer:
        producer.init_transactions()
        for n in range(6):
            producer.begin_transaction()
            delivery = producer.send(topic, b"%d" % n)
            if n % 3 == 1:
                delivery.result(20)
            if n % 2:
                producer.abort_transaction()
            else:
                producer.commit_transaction()
    assert committed(kafka, partitions) == [b"0", b"2", b"4"]


def test_a_with_block_commits_or_aborts(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)
    with transactional(kafka, topic) as producer:
        with producer.transaction():
            producer.send_many(topic, [b"a", b"b"])
        with pytest.raises(ZeroDivisionError), producer.transaction():
            producer.send(topic, b"c").result(20)
            raise ZeroDivisionError
        with producer.transaction():
            producer.send(topic, b"d")
    assert committed(kafka, partitions) == [b"a", b"b", b"d"]


def test_async_transactions_are_the_same(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)

    async def run() -> None:
        async with AsyncProducer(bootstrap_servers=kafka.bootstrap_servers, transactional_id=topic) as producer:
            with pytest.raises(IllegalStateError, match="init_transactions"):
                await producer.send(topic, b"too early")
            async with producer.transaction():
                await producer.send(topic, b"a")
            with pytest.raises(ZeroDivisionError):
                async with producer.transaction():
                    await producer.send(topic, b"b")
                    raise ZeroDivisionError

    asyncio.run(run())
    assert committed(kafka, partitions) == [b"a"]


def test_a_newer_producer_fences_the_older_one_and_ends_its_transaction(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)
    with transactional(kafka, topic) as older, transactional(kafka, topic) as newer:
        older.init_transactions()
        older.begin_transaction()
        older.send(topic, b"old").result(20)
        newer.init_transactions()
        with newer.transaction():
            newer.send(topic, b"new")
        with pytest.raises(ApplicationRecoverableError) as raised:
            older.commit_transaction()
        assert raised.value.fatal
        with pytest.raises(ApplicationRecoverableError):
            older.send(topic, b"never")
    assert committed(kafka, partitions) == [b"new"]


def test_a_with_block_whose_producer_was_fenced_raises_what_ends_it(kafka: LocalCluster, topic: str) -> None:
    make_topic(kafka, topic)
    with transactional(kafka, topic) as older, transactional(kafka, topic) as newer:
        with pytest.raises(ApplicationRecoverableError) as raised, older.transaction():
            older.send(topic, b"a").result(20)
            newer.init_transactions()
            older.send(topic, b"refused by the leader, which says only that the epoch is old")
        assert raised.value.fatal


def test_a_failure_that_commit_has_raised_is_not_raised_again_by_close(kafka: LocalCluster, topic: str) -> None:
    make_topic(kafka, topic)
    with transactional(kafka, topic) as older:
        older.init_transactions()
        with transactional(kafka, topic) as newer:
            newer.init_transactions()
        with pytest.raises(KafkaError), older.transaction():
            older.send(topic, b"never")


def test_a_transaction_with_a_refused_record_can_only_be_aborted(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic, max_message_bytes="1000")
    with transactional(kafka, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        refused = producer.send(topic, bytes(5000))
        assert isinstance(refused.exception(20), RecordTooLargeError)
        with pytest.raises(TransactionAbortableError):
            producer.commit_transaction()
        with pytest.raises(TransactionAbortableError):
            producer.send(topic, b"x")
        producer.abort_transaction()
        with producer.transaction():
            producer.send(topic, b"fine")
    assert committed(kafka, partitions) == [b"fine"]


def test_T04_offsets_are_committed_with_the_transaction_and_only_then(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)
    with Producer(bootstrap_servers=kafka.bootstrap_servers) as producer:
        producer.send_many(topic, [b"%d" % n for n in range(10)]).result()
    with Consumer(topics=[topic], group_id=topic, auto_offset_reset="earliest", enable_auto_commit=False,
                  bootstrap_servers=kafka.bootstrap_servers) as consumer, transactional(kafka, topic) as producer:
        records = consumer.poll(30.0, max_records=4)
        with pytest.raises(ZeroDivisionError), producer.transaction() as txn:
            txn.send_offsets(records, consumer.group_metadata())
            raise ZeroDivisionError
        assert consumer.committed(partitions) == {partitions[0]: None}
        with producer.transaction() as txn:
            txn.send_offsets(records.next_offsets(), consumer.group_metadata())
        position = consumer.committed(partitions)[partitions[0]]
        assert position is not None
        assert position.offset == len(records)


def test_T03_a_close_aborts_the_open_transaction(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)
    with transactional(kafka, topic) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send(topic, b"open").result(20)
        producer.send(topic, b"unsent")
    with transactional(kafka, topic) as producer, producer.transaction():
        producer.send(topic, b"next")
    assert committed(kafka, partitions) == [b"next"]


def test_one_producer_goes_on_under_another_transactional_id(kafka: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka, topic)
    with transactional(kafka, topic) as producer:
        with producer.transaction():
            producer.send(topic, b"a")
        producer.init_transactions(transactional_id=f"{topic}-2")
        with producer.transaction():
            producer.send(topic, b"b")
    assert committed(kafka, partitions) == [b"a", b"b"]
