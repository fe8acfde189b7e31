"""enable_auto_offset_store=False: only what the user stores is committed; and what else a member decides itself: when
the group assigns again (KIP-568), and whether it leaves at its end (KIP-1092).
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Literal

import pytest

from pyclient import AsyncConsumer, Consumer, OffsetAndMetadata, TopicPartition
from pyclient.errors import IllegalStateError, WakeupError
from pyclient.testing import FakeCluster
from tests.leaving import closed, closed_async
from tests.waiting import eventually

TP, OTHER = TopicPartition("t", 0), TopicPartition("t", 1)
COUNT = 5
NEVER_MS = 1_000_000


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", 2)
        for number in range(COUNT):
            cluster.produce("t", b"%d" % number, partition=0)
        yield cluster


def options(cluster: FakeCluster, **more: Any) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "auto_offset_reset": "earliest", "heartbeat_interval_ms": 100,
            "session_timeout_ms": 30_000, "auto_commit_interval_ms": NEVER_MS, **more}


def storing(cluster: FakeCluster, **more: Any) -> Consumer:
    return Consumer(**options(cluster, topics=["t"], enable_auto_offset_store=False, **more))


def read_all(consumer: Consumer, count: int = COUNT) -> list[Any]:
    """Poll until every record was returned; then once more, so that they would count as consumed."""
    got: list[Any] = []

    def complete() -> bool:
        got.extend(consumer.poll(0.01))
        return len(got) >= count

    eventually(complete)
    consumer.poll(0)
    return got


def committed(cluster: FakeCluster) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in cluster.committed("g").items()}


# ---- stored offsets --------------------------------------------------------------------------------------------------


def test_what_was_read_and_not_stored_is_not_committed(cluster: FakeCluster) -> None:
    with storing(cluster) as consumer:
        read_all(consumer)
        consumer.commit()
    assert committed(cluster) == {}


def test_what_was_stored_is_committed_at_the_end_and_by_commit(cluster: FakeCluster) -> None:
    with storing(cluster) as consumer:
        records = read_all(consumer)
        consumer.store_offsets(records[1])
        assert committed(cluster) == {}
        consumer.commit()
        assert committed(cluster) == {TP: 2}
        consumer.store_offsets({TP: OffsetAndMetadata(4, "mine"), OTHER: 0})
    assert cluster.committed("g")[TP] == OffsetAndMetadata(4, "mine")
    assert committed(cluster) == {TP: 4, OTHER: 0}


def test_what_was_stored_is_committed_automatically(cluster: FakeCluster) -> None:
    with storing(cluster, auto_commit_interval_ms=10) as consumer:
        records = read_all(consumer)
        consumer.store_offsets(records[2])
        eventually(lambda: consumer.poll(0.01) is not None and committed(cluster) == {TP: 3})


def test_the_current_record_of_an_iteration_is_not_committed_unless_it_is_stored(cluster: FakeCluster) -> None:
    with storing(cluster) as consumer:
        for record in consumer:
            consumer.commit()
            assert committed(cluster) == {}
            consumer.store_offsets(record)
            break
        consumer.commit()
        assert committed(cluster) == {TP: 1}


def test_a_seek_moves_reading_and_leaves_what_is_stored(cluster: FakeCluster) -> None:
    with storing(cluster) as consumer:
        records = read_all(consumer)
        consumer.store_offsets(records[3])
        consumer.seek(TP, 1)
        assert consumer.position(TP) == 1
        consumer.commit()
        assert committed(cluster) == {TP: 4}
        consumer.seek_to_beginning(TP)
        assert consumer.position(TP) == 0


def test_what_was_stored_of_a_partition_does_not_outlive_its_assignment(cluster: FakeCluster) -> None:
    with storing(cluster, enable_auto_commit=False) as consumer:
        consumer.store_offsets(read_all(consumer)[3])
        consumer.unsubscribe()
        consumer.subscribe(["t"])
        read_all(consumer)
        consumer.commit()
    assert committed(cluster) == {}


# ---- done, in any order ----------------------------------------------------------------------------------------------


def test_a_commit_stores_no_record_behind_one_that_is_not_done(cluster: FakeCluster) -> None:
    with storing(cluster) as consumer:
        records = read_all(consumer)
        for number, expected in ((4, 0), (1, 0), (0, 2), (2, 3), (2, 3), (3, 5)):
            consumer.done(records[number])
            consumer.commit()
            assert committed(cluster) == {TP: expected}


def test_records_that_were_dropped_hold_up_nothing(cluster: FakeCluster) -> None:
    def odd(value: bytes) -> int:
        if int(value) % 2 == 0:
            raise ValueError(value)
        return int(value)

    with storing(cluster, value_deserializer=odd, on_deserialization_error=lambda _record, _error: None) as consumer:
        got = read_all(consumer, 2)
        consumer.done(got[1])
        consumer.commit()
        assert committed(cluster) == {TP: 1}
        consumer.done(got[0])
        consumer.commit()
        assert committed(cluster)[TP] >= 4


def test_other_threads_are_done_while_a_poll_waits_which_commits_it(cluster: FakeCluster) -> None:
    with storing(cluster, auto_commit_interval_ms=10) as consumer, ThreadPoolExecutor(4) as pool:
        records = read_all(consumer)
        waiting = pool.submit(consumer.poll)
        list(pool.map(consumer.done, reversed(records)))
        eventually(lambda: committed(cluster) == {TP: COUNT})
        consumer.wakeup()
        assert isinstance(waiting.exception(), WakeupError)


def test_what_is_done_after_its_partition_was_sought_or_taken_away_changes_nothing(cluster: FakeCluster) -> None:
    with storing(cluster, enable_auto_commit=False) as consumer:
        records = read_all(consumer)
        consumer.done(records[0])
        consumer.seek(TP, 3)
        consumer.done(records[1])
        consumer.commit()
        assert committed(cluster) == {TP: 1}
        consumer.unsubscribe()
        for record in records:
            consumer.done(record)
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(0.01))
        consumer.commit()
    assert committed(cluster) == {TP: 1}


def test_what_is_done_is_committed_at_the_end_also_by_an_async_consumer(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncConsumer(**options(cluster, topics=["t"], enable_auto_offset_store=False)) as consumer:
            records: list[Any] = []
            while len(records) < COUNT:
                records += await consumer.poll(5)
            for number in (3, 0, 1):
                consumer.done(records[number])

    asyncio.run(main())
    assert committed(cluster) == {TP: 2}


def test_done_is_refused_where_reading_alone_counts_as_done(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, topics=["t"])) as usual:
        records = read_all(usual)
        with pytest.raises(IllegalStateError, match="enable_auto_offset_store=False"):
            usual.done(records[0])
        with pytest.raises(TypeError, match="takes a record"):
            usual.done(records)  # type: ignore[arg-type]


class StoresWhenRevoked:
    """Finishes its work when partitions go."""

    def __init__(self) -> None:
        self.assignments = 0
        self.done: dict[TopicPartition, int] = {}
        self.consumer: Consumer | None = None

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        assert self.consumer is not None
        self.consumer.store_offsets({tp: offset for tp, offset in self.done.items() if tp in partitions})

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.assignments += 1


def test_what_a_listener_stores_of_a_partition_that_goes_is_committed_before_it_goes(cluster: FakeCluster) -> None:
    listener = StoresWhenRevoked()
    with storing(cluster, rebalance_listener=listener, assignors=["range"]) as consumer:
        listener.consumer = consumer
        read_all(consumer)
        listener.done[TP] = 4
        consumer.enforce_rebalance()
        eventually(lambda: consumer.poll(0.01) is not None and listener.assignments == 2)  # before, it has nothing to lose
        assert committed(cluster) == {TP: 4}
        listener.done[TP] = 5
    assert committed(cluster) == {TP: 5}


def test_offsets_are_stored_only_where_they_will_be_committed(cluster: FakeCluster) -> None:
    with storing(cluster) as consumer:
        with pytest.raises(IllegalStateError, match="t-0 is not assigned"):
            consumer.store_offsets({TP: 1})
        with pytest.raises(TypeError):
            consumer.store_offsets([TP])  # type: ignore[arg-type]
    with Consumer(**options(cluster, topics=["t"])) as usual, pytest.raises(IllegalStateError, match="enable_auto_offset_store=False"):
        usual.store_offsets({TP: 1})
    with Consumer(**options(cluster, group_id=None, enable_auto_offset_store=False)) as alone:
        alone.assign([TP])
        with pytest.raises(IllegalStateError, match="group_id"):
            alone.store_offsets({TP: 1})


def test_an_async_consumer_stores_offsets_too(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncConsumer(**options(cluster, topics=["t"], enable_auto_offset_store=False)) as consumer:
            async for record in consumer:
                consumer.store_offsets(record)
                if record.offset == 2:
                    break
            await consumer.poll(0)

    asyncio.run(main())
    assert committed(cluster) == {TP: 3}


# ---- an enforced rebalance -------------------------------------------------------------------------------------------


def test_an_enforced_rebalance_begins_the_next_generation(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, topics=["t"])) as consumer:
        eventually(lambda: consumer.poll(0.01) is not None and len(consumer.assignment()) == 2)
        generation = cluster.groups()["g"].generation
        consumer.enforce_rebalance("new weights")
        eventually(lambda: consumer.poll(0.01) is not None and cluster.groups()["g"].generation > generation)
        eventually(lambda: consumer.poll(0.01) is not None and len(consumer.assignment()) == 2)
    assert "new weights" in [request.body.reason for request in cluster.requests("JoinGroup")]


def test_a_rebalance_is_enforced_only_where_a_member_can(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster)) as consumer, pytest.raises(IllegalStateError, match="subscribe"):
        consumer.enforce_rebalance()

    async def main() -> None:
        modern = {name: value for name, value in options(cluster, topics=["t"], group_protocol="consumer").items()
                  if name not in ("heartbeat_interval_ms", "session_timeout_ms")}
        async with AsyncConsumer(**modern) as member:
            with pytest.raises(IllegalStateError, match="the broker assigns"):
                member.enforce_rebalance()

    asyncio.run(main())


# ---- leaving or staying ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize(("instance_id", "leave", "stays"), [
    (None, None, False), (None, True, False), (None, False, True), ("static", None, True), ("static", True, False), ("static", False, True)])
@pytest.mark.parametrize("ends", [closed, closed_async], ids=["sync", "async"])
def test_a_member_leaves_or_stays_at_its_end(
        cluster: FakeCluster, ends: Callable[..., None], protocol: Literal["classic", "consumer"], instance_id: str | None, leave: bool | None, stays: bool) -> None:
    ends(leave, bootstrap_servers=cluster.bootstrap_servers, group_id="g", topics=["t"], group_protocol=protocol, group_instance_id=instance_id)
    assert bool(cluster.groups()["g"].members) == stays
