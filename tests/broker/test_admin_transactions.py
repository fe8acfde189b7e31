"""Transactions as Admin sees, fences and aborts them, on a real broker."""
from __future__ import annotations

import asyncio
import datetime
import struct
from collections.abc import Iterator

import pytest
from kio.schema.errors import ErrorCode
from kio.schema.produce.v7 import request as produce_request
from kio.schema.produce.v7 import response as produce_response
from kio.schema.types import TopicName, TransactionalId
from kio.static.primitive import Records, i16, i32, i32Timedelta

from pyclient import Admin, AsyncAdmin, Producer
from pyclient.admin import FencedProducer, TransactionListing
from pyclient.codec.crc import crc32c
from pyclient.errors import InvalidProducerEpochError, InvalidTxnStateError, ProducerFencedError, TransactionalIdNotFoundError
from pyclient.records import TopicPartition
from pyclient.testing import LocalCluster
from pyclient.testing.probe import ask, one_record_batch
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


def leave_open(cluster: LocalCluster, tp: TopicPartition, transactional_id: str, producer: FencedProducer) -> None:
    """Write a record of a transaction that no coordinator knows; brokers without KIP-890 take one that comes late."""
    plain = one_record_batch(b"late")
    attributes, last, first_ms, last_ms = struct.unpack_from(">hiqq", plain, 21)
    covered = struct.pack(">hiqqqhi", attributes | 0x10, last, first_ms, last_ms, producer.producer_id, producer.producer_epoch, 0) + plain[57:]
    batch = plain[:17] + struct.pack(">I", crc32c(covered)) + covered
    partition = produce_request.PartitionProduceData(index=i32(tp.partition), records=Records(batch))
    request = produce_request.ProduceRequest(
        transactional_id=TransactionalId(transactional_id), acks=i16(-1), timeout=i32Timedelta.parse(datetime.timedelta(seconds=10)),
        topic_data=(produce_request.TopicProduceData(name=TopicName(tp.topic), partition_data=(partition,)),))
    answer = ask((cluster.nodes[0].host, cluster.nodes[0].port), request, produce_response.ProduceResponse, 10)
    assert answer.responses[0].partition_responses[0].error_code == ErrorCode.none


@pytest.mark.kafka(transaction_partition_verification_enable=False)
def test_a_transaction_that_no_coordinator_knows_is_found_and_aborted_and_an_open_one_is_not(kafka_cluster: LocalCluster, topic: str, admin: Admin) -> None:
    tp, other = make_topic(kafka_cluster, topic, 2)
    producer = transactional(kafka_cluster, topic)
    producer.begin_transaction()
    producer.send(topic, b"x", partition=other.partition).result(20)
    lost = transactional(kafka_cluster, f"{topic}-lost")
    lost.close()
    leave_open(kafka_cluster, tp, f"{topic}-lost", admin.fence_producers([f"{topic}-lost"])[f"{topic}-lost"])
    eventually(lambda: set(admin.find_hanging_transactions([tp, other], older_than=0)) == {tp})
    assert admin.find_hanging_transactions([tp, other]) == {}, "it may still become known"
    found, = admin.find_hanging_transactions(older_than=0)[tp]
    assert found.transaction_start_offset == 0
    admin.abort_transaction(tp, found.transaction_start_offset)
    assert admin.find_hanging_transactions([tp, other], older_than=0) == {}
    producer.abort_transaction()
    producer.close()
