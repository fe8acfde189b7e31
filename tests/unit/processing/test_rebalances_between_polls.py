"""The group rebalances while a transaction is open: it commits what the member owns, and nothing that it lost (T09)."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from pyclient import Consumer, ConsumerGroupMetadata, Producer, Record, TopicPartition
from pyclient.buffers.records_view import Records
from pyclient.codec.apis import Api
from pyclient.errors import TransactionAbortableError
from pyclient.processing import ExactlyOnce, Output
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Fail
from pyclient.testing.fake.model.request import Request
from tests.waiting import eventually

EAGER: dict[str, Any] = {"assignors": ["range"], "heartbeat_interval_ms": 100}
COOPERATIVE: dict[str, Any] = {"assignors": ["cooperative-sticky"], "heartbeat_interval_ms": 100}
KIP_848: dict[str, Any] = {"group_protocol": "consumer"}
LIMIT_S = 30
COORDINATOR_LOAD_IN_PROGRESS = 14


@pytest.fixture
def kafka(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with FakeCluster(1, config={"group.consumer.heartbeat.interval.ms": 100}) as cluster:
        cluster.create_topic("out")
        yield cluster


def member(kafka: FakeCluster, **terms: Any) -> Consumer:
    return Consumer(topics=["in"], group_id="g", enable_auto_commit=False, isolation_level="read_committed", auto_offset_reset="earliest",
                    bootstrap_servers=kafka.bootstrap_servers, **terms)


def first_records(consumer: Consumer, partitions: int) -> Records:
    """Those of a poll after which the member owns all partitions."""
    found: list[Records] = []

    def polled() -> bool:
        found[:] = [records] if (records := consumer.poll(0.01)) else found
        return bool(found) and len(consumer.assignment()) == partitions

    eventually(polled)
    return found[0]


def write_inputs(kafka: FakeCluster, partitions: int) -> None:
    kafka.create_topic("in", partitions=partitions)
    for number in range(8):
        kafka.produce("in", b"%d" % number, partition=number % partitions)


@contextlib.contextmanager
def joining(kafka: FakeCluster, terms: dict[str, Any]) -> Iterator[None]:
    """Another member joins, and polls."""
    ended = threading.Event()

    def polls() -> None:
        with member(kafka, **terms) as other:
            while not ended.is_set():
                other.poll(0.05)

    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(polls)
        try:
            yield
        finally:
            ended.set()
            running.result(LIMIT_S)


def eventually_newer(consumer: Consumer, before: ConsumerGroupMetadata) -> None:
    eventually(lambda: consumer.group_metadata().generation_id > before.generation_id)


@pytest.mark.parametrize(("partitions", "terms"), [(1, COOPERATIVE), (2, COOPERATIVE), (1, KIP_848)], ids=["cooperative", "cooperative, one to give up", "KIP-848"])
def test_a_member_that_still_owns_its_partitions_commits_in_the_newer_generation(kafka: FakeCluster, partitions: int, terms: dict[str, Any]) -> None:
    write_inputs(kafka, partitions)
    with member(kafka, **terms) as consumer, Producer(transactional_id="t", bootstrap_servers=kafka.bootstrap_servers) as producer:
        records = first_records(consumer, partitions)
        before = consumer.group_metadata()
        with joining(kafka, terms):
            eventually_newer(consumer, before)  # without a poll
            with producer.transaction() as txn:
                producer.send("out", b"output")
                txn.send_offsets(records, consumer.group_metadata())
    assert kafka.committed("g") == records.next_offsets()


def test_a_member_that_lost_its_partitions_cannot_commit_what_it_read(kafka: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    write_inputs(kafka, 1)
    with member(kafka, **COOPERATIVE) as consumer, Producer(transactional_id="t", bootstrap_servers=kafka.bootstrap_servers) as producer:
        records = first_records(consumer, 1)
        before = consumer.group_metadata()
        kafka.expire_session("g", before.member_id)
        eventually(lambda: "lost its partitions" in caplog.text)
        assert consumer.group_metadata() == before
        with pytest.raises(TransactionAbortableError), producer.transaction() as txn:
            txn.send_offsets(records, consumer.group_metadata())
    assert kafka.committed("g") == {}


@pytest.mark.parametrize("terms", [COOPERATIVE, KIP_848], ids=["cooperative", "KIP-848"])
def test_a_member_that_loses_its_partitions_while_a_poll_returns_cannot_commit_what_it_read(
    kafka: FakeCluster, caplog: pytest.LogCaptureFixture, terms: dict[str, Any],
) -> None:
    """Without a generation the offsets would be taken from anyone."""
    before: ConsumerGroupMetadata | None = None

    def deserialize(data: bytes | None) -> bytes | None:
        """It runs while a poll takes records."""
        if before is not None:
            kafka.expire_session("g", before.member_id)
            eventually(lambda: "lost its partitions" in caplog.text)
        return data

    write_inputs(kafka, 1)
    with (member(kafka, max_poll_records=1, value_deserializer=deserialize, **terms) as consumer,
          Producer(transactional_id="t", bootstrap_servers=kafka.bootstrap_servers) as producer):
        first_records(consumer, 1)
        before = consumer.group_metadata()
        records = consumer.poll(0)
        assert records
        assert consumer.group_metadata() == before
        with pytest.raises(TransactionAbortableError), producer.transaction() as txn:
            txn.send_offsets(records, before)
    assert kafka.committed("g") == {}


def refuses_to_join(request: Request) -> Fail | None:
    """For now; a heartbeat of KIP-848 joins in epoch 0."""
    return Fail(COORDINATOR_LOAD_IN_PROGRESS) if getattr(request.body, "member_epoch", 0) == 0 else None


@pytest.mark.parametrize(("terms", "joins"), [(COOPERATIVE, Api.JOIN_GROUP), (KIP_848, Api.CONSUMER_GROUP_HEARTBEAT)], ids=["cooperative", "KIP-848"])
def test_a_member_whose_poll_has_seen_the_loss_cannot_commit_what_it_read_before(kafka: FakeCluster, terms: dict[str, Any], joins: Api) -> None:
    """And has not joined again."""
    lost: list[Any] = []

    class Listener:
        on_partitions_lost = staticmethod(lost.append)

    write_inputs(kafka, 1)
    with (member(kafka, rebalance_listener=Listener(), **terms) as consumer,
          Producer(transactional_id="t", bootstrap_servers=kafka.bootstrap_servers) as producer):
        records = first_records(consumer, 1)
        before = consumer.group_metadata()
        kafka.expire_session("g", before.member_id)
        with kafka.intercept(refuses_to_join, joins):
            eventually(lambda: not consumer.poll(0.01) and bool(lost))
            assert consumer.group_metadata() == before
            with pytest.raises(TransactionAbortableError), producer.transaction() as txn:
                txn.send_offsets(records, consumer.group_metadata())
    assert kafka.committed("g") == {}


def test_a_consumer_that_has_left_its_group_is_no_member(kafka: FakeCluster) -> None:
    write_inputs(kafka, 1)
    with member(kafka, **COOPERATIVE) as consumer:
        outside = consumer.group_metadata()
        first_records(consumer, 1)
        assert consumer.group_metadata() != outside
        consumer.unsubscribe()
        assert consumer.group_metadata() == outside


def test_a_rebalance_that_waits_for_a_poll_ends_the_loops_transaction(kafka: FakeCluster) -> None:
    """With records of more polls buffered."""
    write_inputs(kafka, 2)
    others = contextlib.ExitStack()
    committed: dict[int, int] = {}

    def disturbed(record: Record) -> Output:
        if not committed:
            others.enter_context(joining(kafka, EAGER))
            eventually(consumer._rebalancing.due)
        committed[len(committed)] = sum(each.offset for each in kafka.committed("g").values())
        if len(committed) == 4:
            others.close()  # all partitions come back
        if len(committed) == 8:
            loop.stop()
        return Output("out", record.value)

    with others, member(kafka, max_poll_records=3, **EAGER) as consumer, Producer(transactional_id="t", bootstrap_servers=kafka.bootstrap_servers) as producer:
        loop = ExactlyOnce(consumer, producer, disturbed, commit_interval=5)
        loop.run()
    assert [committed[number] for number in (0, 3)] == [0, 3]
    assert loop.progress.aborted == 0


def test_the_loop_commits_a_transaction_during_which_its_group_rebalanced(kafka: FakeCluster) -> None:
    write_inputs(kafka, 1)
    others = contextlib.ExitStack()

    def slow(record: Record) -> Output:
        if record.offset == 0:
            before = consumer.group_metadata()
            others.enter_context(joining(kafka, COOPERATIVE))
            eventually_newer(consumer, before)
        if record.offset == 7:
            loop.stop()
        return Output("out", record.value)

    with others, member(kafka, **COOPERATIVE) as consumer, Producer(transactional_id="t", bootstrap_servers=kafka.bootstrap_servers) as producer:
        loop = ExactlyOnce(consumer, producer, slow)
        loop.run()
        assert loop.progress.aborted == 0
        assert kafka.committed("g")[TopicPartition("in", 0)].offset == 8
