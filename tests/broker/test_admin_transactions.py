"""Transactions as Admin sees, fences and aborts them, on a real broker."""
from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from pyclient import Admin, AsyncAdmin, Producer
from pyclient.admin import TransactionListing
from pyclient.errors import InvalidProducerEpochError, InvalidTxnStateError, ProducerFencedError, TransactionalIdNotFoundError
from pyclient.testing import LocalCluster
from tests.kafka import make_topic
from tests.waiting import eventually


@pytest.fixture
def admin(kafka_cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as made:
        yield made


def transactional(cluster: LocalCluster, name: str) -> Producer:
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=name)
    producer.init_transactions()
    return producer


def listed(admin: Admin, name: str, **filters: object) -> list[TransactionListing]:
    return [each for each in admin.list_transactions(**filters) if each.transactional_id == name]  # type: ignore[arg-type]


def test_an_open_transaction_is_listed_and_described_and_an_ended_one_has_no_partitions(
        kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    tps = make_topic(kafka_cluster, topic, 2)
    with transactional(kafka_cluster, topic) as producer:
        with producer.transaction():
            for tp in tps:
                producer.send(topic, b"x", partition=tp.partition).result(20)
            found = admin.describe_transactions([topic])[topic]
            assert (found.transactional_id, found.state, found.timeout, found.partitions) == (topic, "Ongoing", 60.0, tuple(tps))
            assert found.started_at
            assert listed(admin, topic, states=["Ongoing"]) == [TransactionListing(topic, found.producer_id, "Ongoing")]
            assert listed(admin, topic, producer_ids=[found.producer_id])
            assert not listed(admin, topic, producer_ids=[found.producer_id + 1])
            assert not listed(admin, topic, running_longer_than=3600)
        eventually(lambda: admin.describe_transactions([topic])[topic].state == "CompleteCommit")
        assert admin.describe_transactions([topic])[topic].partitions == ()
    with pytest.raises(TransactionalIdNotFoundError):
        admin.describe_transactions([f"{topic}-unknown"])


def test_the_producers_of_a_partition_have_sequences_and_where_their_transactions_begin(
        kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as plain:
        plain.send(topic, b"x").result(20)
        with transactional(kafka_cluster, topic) as producer, producer.transaction():
            producer.send(topic, b"y").result(20)
            first, second = admin.describe_producers([tp])[tp]
            assert (first.last_sequence, first.transaction_start_offset) == (0, None)
            assert (second.last_sequence, second.transaction_start_offset) == (0, 1)
        eventually(lambda: admin.describe_producers([tp])[tp][1].transaction_start_offset is None)


def test_a_fenced_producer_cannot_commit_and_its_transaction_is_aborted(kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    tp, = make_topic(kafka_cluster, topic)
    producer = transactional(kafka_cluster, topic)
    producer.begin_transaction()
    producer.send(topic, b"x").result(20)
    fenced = admin.fence_producers([topic])[topic]
    assert fenced.producer_epoch > 0
    with pytest.raises(ProducerFencedError, match="`?fence_producers`? fenced this one"):
        producer.commit_transaction()
    producer.close(0)
    assert all(each.transaction_start_offset is None for each in admin.describe_producers([tp])[tp])


def test_a_producer_that_was_fenced_between_transactions_hears_so_of_its_next_record_and_of_the_abort(
        kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    make_topic(kafka_cluster, topic)
    producer = transactional(kafka_cluster, topic)
    admin.fence_producers([topic])
    producer.begin_transaction()
    with pytest.raises(InvalidProducerEpochError, match=r"fenced by .* If abort_transaction raises ProducerFencedError, it was fenced"):
        producer.send(topic, b"x").result(20)
    with pytest.raises(ProducerFencedError):
        producer.abort_transaction()
    producer.close(0)


@pytest.mark.kafka(brokers=3)
def test_a_producer_is_fenced_within_seconds_where_the_log_of_transactions_has_three_replicas(kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    make_topic(kafka_cluster, topic, replicas=3)
    producer = transactional(kafka_cluster, topic)
    producer.begin_transaction()
    producer.send(topic, b"x").result(20)
    assert admin.fence_producers([topic], timeout=20)[topic].producer_epoch > 0
    with pytest.raises(ProducerFencedError):
        producer.commit_transaction()
    producer.close(0)


def test_what_is_open_at_an_offset_is_aborted_and_an_offset_without_it_refused(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    producer = transactional(kafka_cluster, topic)
    producer.begin_transaction()
    producer.send(topic, b"x").result(20)

    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
            with pytest.raises(InvalidTxnStateError, match="no open transaction begins at offset 5: those that are open begin at 0"):
                await admin.abort_transaction(tp, 5)
            aborted = await admin.abort_transaction(tp, 0)
            assert aborted.transaction_start_offset == 0
            assert [each.transaction_start_offset for each in (await admin.describe_producers([tp]))[tp]] == [None]
            with pytest.raises(InvalidTxnStateError, match="none is open"):
                await admin.abort_transaction(tp, 0)

    asyncio.run(main())
    producer.abort_transaction()
    producer.close()
