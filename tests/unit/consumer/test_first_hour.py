"""What a new user meets in the first hour: wrong arguments, forgotten calls, positions, waits."""
from __future__ import annotations

import asyncio
import gc
import logging
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, TopicPartition
from pyclient.consumer import facade, facade_base
from pyclient.errors import IllegalStateError, KafkaTimeoutError, UnknownTopicOrPartitionError
from pyclient.testing import FakeCluster, Silence
from tests.waiting import eventually

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
COUNT = 3


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    """Three records in each partition of t."""
    fake_cluster.create_topic("t", partitions=2)
    for tp in (TP, OTHER):
        for _ in range(COUNT):
            fake_cluster.produce("t", b"x", partition=tp.partition)
    return fake_cluster


@pytest.fixture
def consumer(cluster: FakeCluster) -> Iterator[Consumer]:
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as made:
        yield made


class Listener:
    def __init__(self) -> None:
        self.assigned: list[TopicPartition] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.assigned += partitions


class Awaited:
    async def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Never called."""


# ---- positions ------------------------------------------------------------------------------------------------------


def test_a_position_is_behind_what_poll_has_returned_and_commits_store_what_is_consumed(consumer: Consumer) -> None:
    consumer.assign([TP])
    assert [record.offset for record in consumer.poll(10, max_records=2)] == [0, 1]
    assert consumer.position(TP) == 2
    assert consumer.lag() == {TP: 1}
    assert consumer._consumed_positions.consumed(TP) is None
    assert consumer._consumed_positions.uncommitted() == {}
    consumer.commit()
    assert consumer._consumed_positions.consumed(TP) == 2


def test_a_position_in_a_loop_is_behind_the_current_record(consumer: Consumer) -> None:
    consumer.assign([TP])
    for record in consumer:
        assert consumer.position(TP) == record.offset + 1
        assert consumer.lag() == {TP: COUNT - 1 - record.offset}
        assert consumer._consumed_positions.consumed(TP) == record.offset
        if record.offset == COUNT - 1:
            break


def test_C10_the_position_after_a_reset_is_known_before_the_next_poll(consumer: Consumer, caplog: pytest.LogCaptureFixture) -> None:
    consumer.assign([TP])
    consumer.seek(TP, 1_000_000)
    with caplog.at_level(logging.WARNING, "pyclient"):
        eventually(lambda: consumer.position(TP) == 0)
    assert "offset 1000000 is not in the log, so auto_offset_reset continues at offset 0: 1000000 records back" in caplog.text


def test_C10_records_from_before_a_reset_are_returned_before_the_position_moves(consumer: Consumer) -> None:
    consumer.assign([TP])
    eventually(lambda: consumer._core.buffer.bytes > 0)
    consumer._run_on_loop(lambda: consumer._core.fetcher._lookups.on_out_of_range(
        consumer._core.clock(), consumer._core.fetcher.positions[TP], "is lost"))
    assert consumer.position(TP) == 0
    assert len(consumer.poll(10)) == COUNT


# ---- nothing to read ------------------------------------------------------------------------------------------------


def test_a_poll_without_anything_to_read_says_what_to_call(consumer: Consumer) -> None:
    for read in (consumer.poll, lambda: consumer.poll(1), lambda: next(iter(consumer))):
        with pytest.raises(IllegalStateError, match=r"nothing to read: subscribe\(.*assign\("):
            read()
    consumer.assign([TP])
    assert consumer.poll(10)
    consumer.assign([])
    with pytest.raises(IllegalStateError, match="nothing to read"):
        consumer.poll()


def test_an_async_poll_without_anything_to_read_says_what_to_call(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers) as consumer:
            with pytest.raises(IllegalStateError, match="nothing to read"):
                await consumer.poll()
            with pytest.raises(IllegalStateError, match="nothing to read"):
                async for _ in consumer:
                    pass

    asyncio.run(main())


# ---- listeners ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("topics", [None, ["other"]])
def test_a_listener_stays_when_topics_are_subscribed_without_another(cluster: FakeCluster, topics: list[str] | None) -> None:
    listener = Listener()
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", topics=topics, rebalance_listener=listener) as consumer:
        consumer.subscribe(["t"])
        eventually(lambda: (consumer.poll(0.1), set(listener.assigned) == {TP, OTHER})[1])
        assert type(listener.assigned) is list
        other = Listener()
        consumer.subscribe(["t"], rebalance_listener=other)
        assert consumer._rebalancing.listener is other


def test_a_listener_that_could_not_be_called_is_refused_at_once(cluster: FakeCluster, consumer: Consumer) -> None:
    with pytest.raises(TypeError, match=r"not a class: give Listener\(\)"):
        consumer.subscribe(["t"], rebalance_listener=Listener)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="cannot await on_partitions_revoked.*AsyncConsumer"):
        consumer.subscribe(["t"], rebalance_listener=Awaited())  # type: ignore[arg-type]
    assert consumer.subscription() == frozenset()
    with pytest.raises(TypeError, match="AsyncConsumer"):
        Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", rebalance_listener=Awaited())  # type: ignore[arg-type]
    AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", rebalance_listener=Awaited())


# ---- arguments ------------------------------------------------------------------------------------------------------


def refused(call: Callable[[], object]) -> str:
    with pytest.raises(TypeError) as caught:
        call()
    return str(caught.value)


def test_arguments_of_a_wrong_kind_are_refused_with_what_to_write(consumer: Consumer) -> None:
    given: Any = consumer
    consumer.assign([TP])
    records = consumer.poll(10)
    assert "{TopicPartition(topic, partition): offset" in refused(lambda: given.commit([TP]))
    assert "records.next_offsets()" in refused(lambda: given.commit(records))
    assert "ms since the epoch}" in refused(lambda: given.offsets_for_times([TP]))
    assert "number of seconds" in refused(lambda: given.poll("5"))
    assert "max_records must be an int" in refused(lambda: given.poll(5, "5"))
    assert "[TopicPartition(topic, partition), ...]" in refused(lambda: given.assign(None))
    assert "[TopicPartition(topic, partition), ...]" in refused(lambda: given.assign(TP))
    assert "plain function" in refused(lambda: given.commit_async(callback=5))
    assert "plain function" in refused(lambda: given.commit_async(callback=Awaited().on_partitions_revoked))
    assert consumer.assignment() == {TP}


def test_a_record_as_argument_commits_the_position_after_it(cluster: FakeCluster, consumer: Consumer) -> None:
    consumer.assign([TP])
    consumer.commit(consumer.poll(10)[1])
    assert cluster.committed("g")[TP].offset == 2


@pytest.mark.parametrize("some", [[OTHER], (OTHER,), {OTHER}, frozenset([OTHER]), OTHER])
def test_lists_of_partitions_are_taken_where_partitions_are(consumer: Consumer, some: Any) -> None:
    consumer.assign([TP, OTHER])
    consumer.pause(some)
    assert consumer.paused() == {OTHER}
    consumer.resume(some)
    assert consumer.paused() == frozenset()
    consumer.seek(TP, 1)
    consumer.seek(OTHER, 1)
    consumer.seek_to_end(some)
    assert (consumer.position(TP), consumer.position(OTHER)) == (1, COUNT)
    consumer.seek_to_beginning(some)
    assert (consumer.position(TP), consumer.position(OTHER)) == (1, 0)
    consumer.seek_to_end([])  # of all, as in Java
    assert (consumer.position(TP), consumer.position(OTHER)) == (COUNT, COUNT)
    consumer.seek_to_beginning()
    assert (consumer.position(TP), consumer.position(OTHER)) == (0, 0)


def test_a_poll_of_more_than_300_s_warns_of_the_unit_once(consumer: Consumer) -> None:
    consumer.assign([TP])
    with pytest.warns(UserWarning, match=r"poll\(1000\) waits up to 1000 s.*poll\(1\)") as warned:
        consumer.poll(1000)
    assert [each.filename for each in warned] == [__file__]
    consumer.seek(TP, 0)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        consumer.poll(1000)


# ---- life -----------------------------------------------------------------------------------------------------------


def test_its_repr_is_a_sentence_with_counts_and_states(cluster: FakeCluster) -> None:
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers)
    assert repr(consumer) == "<Consumer without a group: nothing subscribed or assigned>"
    consumer.assign([TP, OTHER])
    consumer.pause(OTHER)
    assert repr(consumer).startswith("<Consumer without a group: 2 partitions assigned, 1 paused; ")
    assert repr(consumer).endswith(" fetched ahead>")
    consumer.close()
    assert repr(consumer) == "<Consumer without a group: closed>"
    with Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", topics=["t"]) as member:
        assert repr(member).startswith("<Consumer of group 'g': subscribed to t; 0 partitions assigned; 0 bytes")
    assert repr(AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers)) == "<AsyncConsumer without a group: not opened yet>"


def test_start_and_stop_do_what_async_with_does(cluster: FakeCluster) -> None:
    async def main() -> None:
        consumer = AsyncConsumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest")
        await consumer.start()
        consumer.assign([TP])
        assert await consumer.poll(10)
        await consumer.stop()
        assert repr(consumer).endswith("closed>")
        del consumer
        gc.collect()

    asyncio.run(main())


def test_a_close_without_a_timeout_ends_though_no_broker_answers(cluster: FakeCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    """How long it takes is tested in virtual time (test_operator_log)."""
    assert facade_base.CLOSE_TIMEOUT_MS == 5_000
    monkeypatch.setattr(facade, "CLOSE_TIMEOUT_MS", 100)
    consumer = Consumer(bootstrap_servers=cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest")
    consumer.assign([TP])
    assert consumer.poll(10)
    with cluster.intercept(Silence()), pytest.raises(KafkaTimeoutError):
        consumer.close()
    assert repr(consumer).endswith("closed>")


def test_the_position_of_a_partition_that_does_not_exist_says_so_at_once(consumer: Consumer) -> None:
    missing = TopicPartition("t", 7)
    consumer.assign([missing])
    for _ in range(2):
        with pytest.raises(UnknownTopicOrPartitionError, match="t-7 was assigned and does not exist: topic 't' has 2 partitions"):
            consumer.position(missing)
    with pytest.raises(UnknownTopicOrPartitionError, match="t-7 was assigned and does not exist"):
        consumer.poll(10)
    assert not consumer.poll(0)


def test_assigning_a_partition_that_does_not_exist_is_an_error_of_poll(consumer: Consumer) -> None:
    missing = TopicPartition("t", 7)
    consumer.assign([TP, missing])
    errors: list[str] = []

    def tried() -> bool:
        try:
            consumer.poll(0.1)
        except UnknownTopicOrPartitionError as error:
            errors.append(str(error))
        return bool(errors)

    eventually(tried)
    assert "t-7" in errors[0]
    assert "2 partitions" in errors[0]
    consumer.assign([TP])
    consumer.seek(TP, 0)
    assert len(consumer.poll(10)) == COUNT
