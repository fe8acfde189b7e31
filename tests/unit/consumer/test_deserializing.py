"""C06: a record that cannot be deserialized is raised, with its bytes and in order, until a seek; or it is dropped."""
from __future__ import annotations

import asyncio
import itertools
import pickle
import threading
from collections.abc import Callable, Iterable
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, Record, Records, TopicPartition
from pyclient.errors import ConfigurationError, SerializationError, WakeupError
from pyclient.testing import FakeCluster
from tests.waiting import eventually

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)


class Numbers:
    """Takes numbers, and what was *allowed* later."""

    def __init__(self) -> None:
        self.allowed: set[bytes] = set()
        self.inputs: list[bytes | None] = []

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        self.inputs.append(data)
        return data if data in self.allowed else int(data or b"")


class ErrorHandler:
    """An on_deserialization_error that records its calls."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.errors: list[SerializationError] = []

    def __call__(self, record: Record, error: SerializationError) -> None:
        self.records.append(record)
        self.errors.append(error)

    @property
    def offsets(self) -> list[int]:
        return [record.offset for record in self.records]


def filled(cluster: FakeCluster, *values: bytes, partitions: int = 1) -> None:
    cluster.create_topic("t", partitions=partitions)
    for value in values:
        cluster.produce("t", value, key=b"k", partition=0, headers=[("h", b"x")], timestamp=1234)


def reading(cluster: FakeCluster, partitions: Iterable[TopicPartition] = (TP,), **options: Any) -> Consumer:
    consumer = Consumer({}, bootstrap_servers=cluster.bootstrap_servers,
                        **{"auto_offset_reset": "earliest", "group_id": "g", "value_deserializer": Numbers(), **options})
    consumer.assign(partitions)
    return consumer


def values(records: Iterable[Any]) -> list[Any]:
    return [record.value for record in records]


def all_polled(consumer: Consumer) -> list[Any]:
    """What polls return before one of them raises."""
    found: list[Any] = []
    while True:
        try:
            found += values(consumer.poll(20))
        except SerializationError:
            return found


def committed(cluster: FakeCluster) -> int | None:
    found = cluster.committed("g").get(TP)
    return None if found is None else found.offset


# ---- raise ----------------------------------------------------------------------------------------------------------


def test_C06_the_error_has_the_record_with_its_bytes(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"bad")
    with reading(fake_cluster) as consumer, pytest.raises(SerializationError, match=r"the value of the record at offset 0: .* seek\(\) past it") as caught:
        consumer.poll(20)
    error = caught.value
    assert error.topic_partition == TP
    assert error.record is not None
    assert type(error.record) is Record
    record = error.record
    assert (record.topic, record.partition, record.offset, record.timestamp) == ("t", 0, 0, 1234)
    assert (record.key, record.value, record.headers) == (b"k", b"bad", [("h", b"x")])
    assert isinstance(error.__cause__, SerializationError)
    assert isinstance(error.__cause__.__cause__, ValueError)
    assert pickle.loads(pickle.dumps(error)).record == record


def test_C06_the_error_says_when_it_is_the_key(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"1")
    with reading(fake_cluster, key_deserializer=int) as consumer, pytest.raises(SerializationError, match="the key of the record at offset 0"):
        consumer.poll(20)


def test_C06_poll_returns_the_records_before_it_first_and_then_raises_until_a_seek(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"0", b"1", b"bad", b"3")
    with reading(fake_cluster) as consumer:
        eventually(consumer._core.buffer.ready)
        assert all_polled(consumer) == [0, 1]
        for _ in range(3):
            with pytest.raises(SerializationError, match="offset 2"):
                consumer.poll(20)
        assert consumer.position(TP) == 2
        consumer.commit()
        assert committed(fake_cluster) == 2
        consumer.seek(TP, 3)
        assert values(consumer.poll(20)) == [3]
    assert committed(fake_cluster) == 4


def test_C06_in_a_loop_it_is_raised_after_the_records_before_it_and_again_in_the_next_loop(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"0", b"1", b"bad", b"3")
    with reading(fake_cluster) as consumer:
        found: list[Any] = []
        for _ in range(2):
            with pytest.raises(SerializationError, match="offset 2"):
                found.extend(record.value for record in consumer)
        assert found == [0, 1]
        assert consumer.position(TP) == 2
        try:
            consumer.poll(20)
        except SerializationError as error:  # as a user would go on
            assert error.record is not None  # noqa: PT017
            consumer.seek(TP, error.record.offset + 1)
        assert values([next(iter(consumer))]) == [3]


def test_C06_what_is_deserialized_at_a_retry_is_handed_out(fake_cluster: FakeCluster) -> None:
    """A registry that was down, say."""
    filled(fake_cluster, b"0", b"later", b"2")
    numbers = Numbers()
    with reading(fake_cluster, value_deserializer=numbers) as consumer:
        assert all_polled(consumer) == [0]
        numbers.allowed.add(b"later")
        assert values(itertools.islice(consumer, 2)) == [b"later", 2]


def test_C06_other_partitions_go_on(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"bad", b"1", partitions=2)
    with reading(fake_cluster, [TP, OTHER]) as consumer:
        found: list[Any] = []
        raised = 0
        for number in range(3):
            fake_cluster.produce("t", str(number).encode(), partition=1)
            while len(found) <= number:
                try:
                    found += [(record.partition, record.value) for record in consumer.poll(20)]
                except SerializationError:
                    raised += 1
        assert found == [(1, 0), (1, 1), (1, 2)]
        assert raised


def test_no_record_is_deserialized_twice_and_columns_hold_the_bytes(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"0", b"1", b"2", b"3")
    numbers = Numbers()
    with reading(fake_cluster, value_deserializer=numbers) as consumer:
        assert values(itertools.islice(consumer, 2)) == [0, 1]
        records = consumer.poll(20)
        assert values(records) == values(records) == values([records[0], records[-1]]) == [2, 3]
        assert records.to_arrow()["value"].to_pylist() == [b"2", b"3"]
    assert numbers.inputs == [b"0", b"1", b"2", b"3"]


def test_ctrl_c_in_a_deserializer_loses_no_record(fake_cluster: FakeCluster) -> None:
    interrupts = [2]

    def interrupted(data: bytes) -> int:
        if interrupts and int(data) == interrupts[0]:
            interrupts.clear()
            raise KeyboardInterrupt
        return int(data)

    filled(fake_cluster, b"0", b"1", b"2", b"3")
    with reading(fake_cluster, value_deserializer=interrupted) as consumer:
        found: list[Any] = []
        while len(found) < 4:
            try:
                found += values(consumer.poll(20))
            except KeyboardInterrupt:
                assert not interrupts
        assert found == [0, 1, 2, 3]


def test_C03_what_ctrl_c_left_behind_is_dropped_by_a_seek(fake_cluster: FakeCluster) -> None:
    interrupts = [2]

    def interrupted(data: bytes) -> int:
        if interrupts and int(data) == interrupts[0]:
            raise KeyboardInterrupt
        return int(data)

    filled(fake_cluster, b"0", b"1", b"2", b"3")
    with reading(fake_cluster, value_deserializer=interrupted) as consumer:
        found: list[Any] = []
        with pytest.raises(KeyboardInterrupt):
            while True:
                found += values(consumer.poll(20))
        interrupts.clear()
        consumer.seek(TP, 3)
        assert values(consumer.poll(20)) == [3]


# ---- leave out ------------------------------------------------------------------------------------------------------


def loop(consumer: Consumer) -> list[Any]:
    return values(itertools.islice(consumer, 2))


def polls(consumer: Consumer) -> list[Any]:
    found: list[Any] = []
    while len(found) < 2:
        found += values(consumer.poll(20))
    return found



@pytest.mark.parametrize("way", [loop, polls])
@pytest.mark.parametrize("limit", [1, 500])
def test_C06_a_reported_record_is_dropped_and_positions_move_over_it(
        fake_cluster: FakeCluster, way: Callable[[Consumer], list[Any]], limit: int) -> None:
    filled(fake_cluster, b"bad", b"1", b"worse", b"bad", b"4", b"bad")
    reported = ErrorHandler()
    with reading(fake_cluster, on_deserialization_error=reported, max_poll_records=limit) as consumer:
        assert way(consumer) == [1, 4]
        eventually(lambda: (consumer.poll(0), len(reported.records) == 4)[1])
        consumer.commit()
        assert committed(fake_cluster) == 6
    assert reported.offsets == [0, 2, 3, 5]
    assert [record.value for record in reported.records] == [b"bad", b"worse", b"bad", b"bad"]
    assert [error.record for error in reported.errors] == reported.records
    assert "offset 2" in str(reported.errors[1])
    assert isinstance(reported.errors[1].__cause__, SerializationError)


def test_C06_a_poll_that_finds_only_such_records_commits_while_it_goes_on(fake_cluster: FakeCluster) -> None:
    def more_is_committed() -> bool:
        fake_cluster.produce("t", b"bad")
        return (committed(fake_cluster) or 0) > 1

    def feed() -> None:
        try:
            eventually(more_is_committed)
            seen.append("committed")
        finally:
            consumer.wakeup()

    filled(fake_cluster, b"bad")
    seen: list[str] = []
    with reading(fake_cluster, on_deserialization_error=ErrorHandler(), auto_commit_interval_ms=0) as consumer:
        feeder = threading.Thread(target=feed)
        feeder.start()
        with pytest.raises(WakeupError):
            consumer.poll()
        feeder.join()
        assert seen == ["committed"]


def test_C06_a_policy_that_raises_leaves_the_record_in_line(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"0", b"bad", b"2")
    reported = ErrorHandler()
    fails = [True, True]

    def policy(record: Record, error: SerializationError) -> None:
        if fails and fails.pop():
            raise OSError("the dead letters' topic is full")
        reported(record, error)

    with reading(fake_cluster, on_deserialization_error=policy) as consumer:
        found: list[Any] = []
        while len(found) < 2:
            try:
                found += values(consumer.poll(20))
            except OSError as error:
                assert found == [0]
                assert "dead letters" in str(error)  # noqa: PT017
    assert found == [0, 2]
    assert reported.offsets == [1]


def test_an_interceptor_is_not_shown_what_cannot_be_deserialized(fake_cluster: FakeCluster) -> None:
    class Seen:
        def __init__(self) -> None:
            self.values: list[Any] = []

        def on_consume(self, records: Records) -> Records:
            self.values += values(records)
            return records

        def on_commit(self, offsets: Any) -> None:
            pass

    filled(fake_cluster, b"0", b"bad", b"2")
    seen, reported = Seen(), ErrorHandler()
    with reading(fake_cluster, on_deserialization_error=reported, interceptors=[seen]) as consumer:
        assert polls(consumer) == [0, 2]
    assert seen.values == [0, 2]
    assert reported.offsets == [1]


@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_a_policy_that_is_a_coroutine_or_no_function_is_refused(kind: Any) -> None:
    async def later(record: Record, error: SerializationError) -> None: ...

    class Later:
        async def __call__(self, record: Record, error: SerializationError) -> None: ...

    for wrong in (later, Later(), "skip"):
        with pytest.raises(ConfigurationError, match="a plain function of a record and its error"):
            kind(bootstrap_servers="localhost:1", on_deserialization_error=wrong)


# ---- async ----------------------------------------------------------------------------------------------------------


def run(cluster: FakeCluster, work: Callable[[AsyncConsumer], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), AsyncConsumer({}, bootstrap_servers=cluster.bootstrap_servers, value_deserializer=Numbers(),
                                                      **{"auto_offset_reset": "earliest", "group_id": "g", **options}) as consumer:
            consumer.assign([TP])
            await work(consumer)

    asyncio.run(main())


def test_C06_async_it_is_raised_after_the_records_before_it_until_a_seek(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"0", b"1", b"bad", b"3")

    async def work(consumer: AsyncConsumer) -> None:
        found: list[Any] = []
        for _ in range(2):
            with pytest.raises(SerializationError, match="offset 2"):
                async for record in consumer:
                    found.append(record.value)  # noqa: PERF401 what came before the error counts
            with pytest.raises(SerializationError, match="offset 2"):
                await consumer.poll(20)
        assert found == [0, 1]
        consumer.seek(TP, 3)
        assert values(await consumer.poll(20)) == [3]

    run(fake_cluster, work)
    assert committed(fake_cluster) == 4


def test_C06_async_a_reported_record_is_dropped(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, b"0", b"bad", b"2")
    reported = ErrorHandler()

    async def work(consumer: AsyncConsumer) -> None:
        found: list[Any] = []
        async for record in consumer:
            found.append(record.value)
            if len(found) == 2:
                break
        assert found == [0, 2]

    run(fake_cluster, work, on_deserialization_error=reported)
    assert reported.offsets == [1]
    assert committed(fake_cluster) == 3
