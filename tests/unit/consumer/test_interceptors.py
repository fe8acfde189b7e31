"""Consumer interceptors see each record once, before it is returned, and each commit; positions pass dropped ones."""
from __future__ import annotations

import asyncio
import itertools
import logging
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar

import pyarrow
import pyarrow.compute as pc
import pytest

from pyclient import AsyncConsumer, Consumer, OffsetAndMetadata, Record, Records, TopicPartition
from pyclient.buffers.records_view import join
from pyclient.errors import ConfigurationError, KafkaError, WakeupError
from pyclient.testing import Fail, FakeCluster
from tests.waiting import eventually

TP = TopicPartition("t", 0)
OTHER = TopicPartition("t", 1)
INVALID_COMMIT_OFFSET_SIZE = 28
Offsets = Mapping[TopicPartition, OffsetAndMetadata]


class Watching:
    """Remembers what it saw; keeps what *keeps* says."""

    def __init__(self, keeps: Callable[[Record], object] = lambda record: True) -> None:
        self.keeps = keeps
        self.seen: list[tuple[int, int]] = []
        self.reported: list[dict[TopicPartition, int]] = []
        self.closed = 0

    def on_consume(self, records: Records) -> Records:
        self.seen += [(record.partition, record.offset) for record in records]
        return records.filter(self.keeps)

    def on_commit(self, offsets: Offsets) -> None:
        self.reported.append({tp: position.offset for tp, position in offsets.items()})

    def close(self) -> None:
        self.closed += 1

    @property
    def offsets(self) -> list[int]:
        return [offset for _, offset in self.seen]


class Raising(Watching):
    """Cannot do anything."""

    def on_consume(self, records: Records) -> Records:
        raise LookupError("on_consume")

    def on_commit(self, offsets: Offsets) -> None:
        raise LookupError("on_commit")

    def close(self) -> None:
        raise LookupError("close")


class ByName(Watching):
    """Named by a text, made without arguments; found again here."""

    made: ClassVar[list[ByName]] = []

    def __init__(self) -> None:
        super().__init__(lambda record: record.offset != 1)
        self.made.append(self)


def even(record: Record) -> bool:
    return record.offset % 2 == 0


def never(record: Record) -> bool:
    return False


def filled(cluster: FakeCluster, count: int, partitions: int = 1) -> None:
    """A topic whose values are their offsets."""
    cluster.create_topic("t", partitions=partitions)
    for number, partition in itertools.product(range(count), range(partitions)):
        cluster.produce("t", str(number).encode(), partition=partition)


def reading(cluster: FakeCluster, *interceptors: object, partitions: Iterable[TopicPartition] = (TP,), **options: Any) -> Consumer:
    consumer = Consumer({}, bootstrap_servers=cluster.bootstrap_servers, interceptors=list(interceptors),
                        **{"auto_offset_reset": "earliest", "group_id": "g", **options})
    consumer.assign(partitions)
    return consumer


def offsets(records: Iterable[Record]) -> list[int]:
    return [record.offset for record in records]


def polled(consumer: Consumer, count: int, **options: Any) -> list[int]:
    """The offsets of *count* records; fails when they do not come."""
    found: list[int] = []
    while len(found) < count:
        records = consumer.poll(20, **options)
        assert records, f"{found} and no more"
        found += offsets(records)
    return found


def committed(cluster: FakeCluster) -> dict[TopicPartition, int]:
    return {tp: position.offset for tp, position in cluster.committed("g").items()}


# ---- which they are -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("spec", [ByName, f"{__name__}:ByName", [ByName]], ids=["class", "text", "list"])
def test_an_interceptor_is_given_as_object_class_or_name(fake_cluster: FakeCluster, spec: object) -> None:
    filled(fake_cluster, 3)
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=spec, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        assert polled(consumer, 2) == [0, 2]
    with Consumer({"bootstrap.servers": fake_cluster.bootstrap_servers, "interceptor.classes": f"{__name__}:ByName"}, allow_imports=[__name__],
                  auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        assert polled(consumer, 2) == [0, 2]
    assert ByName.made[-1].offsets == [0, 1, 2]


class OnlyRecords:
    def on_consume(self, records: Records) -> Records:
        return records.filter(even)


class OnlyCommits:
    def __init__(self) -> None:
        self.reported: list[Offsets] = []

    def on_commit(self, offsets: Offsets) -> None:
        self.reported.append(offsets)


class Misspelt(OnlyRecords):
    def on_commits(self, offsets: Offsets) -> None:
        """One s too many."""


def test_an_interceptor_needs_only_one_method(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 3)
    commits = OnlyCommits()
    with reading(fake_cluster, OnlyRecords, commits, enable_auto_commit=False) as consumer:
        assert polled(consumer, 2) == [0, 2]
        consumer.commit({TP: 3})
    assert [each[TP].offset for each in commits.reported] == [3]


@pytest.mark.parametrize("wrong", [object(), Misspelt(), "no.such.module:Class", "unregistered"])
@pytest.mark.parametrize("kind", [Consumer, AsyncConsumer])
def test_what_is_no_interceptor_is_refused_before_the_consumer_opens(kind: Any, wrong: object) -> None:
    with pytest.raises(ConfigurationError, match="interceptor"):
        kind(bootstrap_servers="localhost:1", interceptors=[wrong])


# ---- what they see, and what is returned ----------------------------------------------------------------------------


def test_each_sees_what_the_one_before_has_left_and_nothing_where_nothing_is(fake_cluster: FakeCluster) -> None:
    class Sizes(Watching):
        def on_consume(self, records: Records) -> Records:
            sizes.append(len(records))
            return super().on_consume(records)

    filled(fake_cluster, 12)
    sizes: list[int] = []
    first, second, last = Sizes(even), Sizes(lambda record: record.offset % 3 == 0), Sizes()
    with reading(fake_cluster, first, second, last, max_poll_records=1) as consumer:
        assert polled(consumer, 2) == [0, 6]
        assert not consumer.poll(0.2)
    assert (first.offsets, second.offsets, last.offsets) == (list(range(12)), list(range(0, 12, 2)), [0, 6])
    assert set(sizes) == {1}


def test_poll_and_iteration_hand_out_what_is_left(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 10)
    watching = Watching(even)
    with reading(fake_cluster, watching) as consumer:
        assert polled(consumer, 5) == [0, 2, 4, 6, 8]
        consumer.seek(TP, 0)
        assert offsets(itertools.islice(consumer, 5)) == [0, 2, 4, 6, 8]
    assert watching.offsets == [*range(10), *range(10)]


def test_columns_show_what_the_interceptors_left_and_a_mask_of_columns_selects(fake_cluster: FakeCluster) -> None:
    class Columns(Watching):
        def on_consume(self, records: Records) -> Records:
            table = records.to_arrow(headers=False)
            return records.select(pc.starts_with(table["value"], "1"))

    filled(fake_cluster, 20)
    with reading(fake_cluster, Columns(), Watching(even), max_poll_records=1000) as consumer:
        tables: list[pyarrow.Table] = []
        while sum(table.num_rows for table in tables) < 5:
            tables.append(consumer.poll(20).to_arrow())
    assert [offset for table in tables for offset in table["offset"].to_pylist()] == [10, 12, 14, 16, 18]
    assert [value for table in tables for value in table["value"].to_pylist()] == [b"10", b"12", b"14", b"16", b"18"]


def test_deserializers_have_worked_before_interceptors_see_a_record(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 6)
    values: list[Any] = []

    def keeps(record: Any) -> bool:
        values.append(record.value)
        return bool(record.value > 3)

    with reading(fake_cluster, Watching(keeps), value_deserializer=int) as consumer:
        found: list[Any] = [record.value for record in itertools.islice(consumer, 2)]
    assert found == [4, 5]
    assert values == [0, 1, 2, 3, 4, 5]


Way = Callable[[Consumer], list[int]]


def polls_of_two(consumer: Consumer) -> list[int]:
    return polled(consumer, 10, max_records=2)


def loops_that_break(consumer: Consumer) -> list[int]:
    found: list[int] = []
    while len(found) < 10:
        for record in consumer:
            found.append(record.offset)
            if len(found) % 3 == 0 or len(found) == 10:
                break
    return found


def a_loop_with_polls_and_commits_in_it(consumer: Consumer) -> list[int]:
    found: list[int] = []
    for record in consumer:
        found.append(record.offset)
        if len(found) < 10:
            found += offsets(consumer.poll(0, max_records=1))
            consumer.commit()
        if len(found) >= 10:
            break
    return found


def a_loop_that_pauses(consumer: Consumer) -> list[int]:
    found: list[int] = []
    while len(found) < 10:
        for record in consumer:
            found.append(record.offset)
            if len(found) == 4:
                consumer.pause(TP)
                assert not consumer.poll(0)
                consumer.resume(TP)
            if len(found) == 10:
                break
    return found


def a_loop_that_fails(consumer: Consumer) -> list[int]:
    found: list[int] = []
    while len(found) < 10:
        try:
            for record in consumer:
                found.append(record.offset)
                if len(found) in (3, 7, 10):
                    raise ZeroDivisionError
        except ZeroDivisionError:
            pass
    return found


@pytest.mark.parametrize("way", [polls_of_two, loops_that_break, a_loop_with_polls_and_commits_in_it, a_loop_that_pauses, a_loop_that_fails])
@pytest.mark.parametrize("limit", [1, 4, 500])
def test_no_record_is_shown_twice_however_it_is_read(fake_cluster: FakeCluster, way: Way, limit: int) -> None:
    filled(fake_cluster, 20)
    watching = Watching(even)
    with reading(fake_cluster, watching, max_poll_records=limit) as consumer:
        assert way(consumer) == list(range(0, 20, 2))
    assert watching.offsets == list(range(len(watching.offsets)))


def test_what_is_sought_again_is_shown_again(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 5)
    watching = Watching()
    with reading(fake_cluster, watching) as consumer:
        for record in consumer:
            if record.offset == 2:
                consumer.seek(TP, 1)
                break
        assert polled(consumer, 4) == [1, 2, 3, 4]
    assert watching.offsets == [0, 1, 2, 3, 4, 1, 2, 3, 4]


# ---- positions ------------------------------------------------------------------------------------------------------


def test_C21_positions_and_commits_move_over_what_is_left_out(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 10)
    with reading(fake_cluster, Watching(lambda record: record.offset in (0, 3))) as consumer:
        records = consumer.poll(20)
        while records[-1].offset < 3:
            records = consumer.poll(20)
        consumer.commit()
        reached = records.positions()[TP]
        assert committed(fake_cluster) == {TP: reached}
        assert reached > 4
        consumer.poll(0)
        assert consumer.position(TP) == 10


def test_C21_a_filter_that_drops_everything_makes_progress_and_commits_while_one_poll_goes_on(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 30)
    watching = Watching(never)
    seen: list[str] = []
    with reading(fake_cluster, watching, max_poll_records=2, auto_commit_interval_ms=0) as consumer:
        def feed() -> None:
            try:
                eventually(lambda: (fake_cluster.produce("t", b"more"), len(watching.reported) >= 3 and watching.reported[-1][TP] >= 30)[1])
                seen.append("reported")
            finally:
                consumer.wakeup()

        feeder = threading.Thread(target=feed)
        feeder.start()
        with pytest.raises(WakeupError):
            consumer.poll()
        feeder.join()
        assert seen == ["reported"]
        assert [each[TP] for each in watching.reported] == sorted(each[TP] for each in watching.reported)
        assert consumer.position(TP) >= 30
    assert watching.offsets == list(range(len(watching.seen)))
    assert committed(fake_cluster) == {TP: len(watching.seen)} == watching.reported[-1]


def test_C21_a_partition_of_which_nothing_is_left_is_committed_beside_one_that_is_read(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 5, partitions=2)
    keeps = Watching(lambda record: record.partition == 0)
    with reading(fake_cluster, keeps, partitions=[TP, OTHER]) as consumer:
        assert offsets(itertools.islice(consumer, 5)) == [0, 1, 2, 3, 4]
        eventually(lambda: (consumer.poll(0), len(keeps.seen) == 10)[1])
        consumer.commit()
        assert committed(fake_cluster) == {TP: 5, OTHER: 5}


def test_C21_a_loop_that_ends_leaves_positions_behind_what_was_left_out_before_its_last_record(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 10)
    with reading(fake_cluster, Watching(lambda record: record.offset in (3, 4, 8))) as consumer:
        loop = iter(consumer)
        assert next(loop).offset == 3
        assert consumer.position(TP) == 4
        consumer.commit()
        assert committed(fake_cluster) == {TP: 4}
        assert next(loop).offset == 4
        assert consumer.position(TP) == 5
        assert next(loop).offset == 8
        assert consumer.position(TP) in (9, 10)
        consumer.commit()
        assert committed(fake_cluster)[TP] in (9, 10)
        loop.close()  # type: ignore[attr-defined]
        assert consumer.position(TP) in (9, 10)
        assert consumer._consumed_positions.consumed(TP) == 8


# ---- what they do wrong ---------------------------------------------------------------------------------------------


def test_what_one_raises_is_logged_with_its_name_and_the_chain_goes_on(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    filled(fake_cluster, 4)
    first, last = Watching(even), Watching()
    with caplog.at_level(logging.ERROR, "pyclient"), reading(fake_cluster, first, Raising(), last) as consumer:
        assert polled(consumer, 2) == [0, 2]
        consumer.commit()
    assert last.offsets == [0, 2]
    assert first.reported == last.reported == [{TP: 4}]
    assert (first.closed, last.closed) == (1, 1)
    raised = [record for record in caplog.records if record.exc_info]
    assert {str(record.exc_info[1]) for record in raised if record.exc_info} == {"on_consume", "on_commit", "close"}
    assert all(f"{__name__}.Raising" in record.getMessage() for record in raised)


@pytest.mark.parametrize("made", [
    list, lambda records: None, lambda records: join(records, records), lambda records: [*records][:1],
    lambda records: join(records[1:], records[:1]),
], ids=["list", "None", "doubled", "first of list", "reordered"])
def test_what_is_no_choice_of_its_records_is_logged_and_ignored(
        fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture, made: Callable[[Any], Any]) -> None:
    class Wrong(Watching):
        def on_consume(self, records: Records) -> Any:
            return made(records)

    filled(fake_cluster, 4)
    with caplog.at_level(logging.ERROR, "pyclient"), reading(fake_cluster, Wrong()) as consumer:
        eventually(consumer._core.buffer.ready)
        assert polled(consumer, 4) == [0, 1, 2, 3]
    assert f"{__name__}." in caplog.text
    assert "must return Records" in caplog.text or "not in this order" in caplog.text


def test_a_slice_and_one_partition_are_choices_too(fake_cluster: FakeCluster) -> None:
    class Slices(Watching):
        def on_consume(self, records: Records) -> Any:
            self.seen += [(record.partition, record.offset) for record in records]
            return records.of(TP)[:1]

    filled(fake_cluster, 3, partitions=2)
    slices = Slices()
    with reading(fake_cluster, slices, partitions=[TP, OTHER], max_poll_records=3) as consumer:
        while len(slices.seen) < 6:
            assert all(record.partition == 0 for record in consumer.poll(1))
        consumer.commit()
    assert committed(fake_cluster) == {TP: 3, OTHER: 3}


def test_ctrl_c_in_an_interceptor_loses_no_record(fake_cluster: FakeCluster) -> None:
    class Interrupted(Watching):
        interrupts = 1

        def on_consume(self, records: Records) -> Records:
            if self.interrupts:
                self.interrupts -= 1
                raise KeyboardInterrupt
            return super().on_consume(records)

    filled(fake_cluster, 6)
    watching = Interrupted(even)
    with reading(fake_cluster, watching, max_poll_records=4) as consumer:
        with pytest.raises(KeyboardInterrupt):
            consumer.poll(20)
        consumer.pause(TP)
        assert not consumer.poll(0)
        consumer.resume(TP)
        assert polled(consumer, 3, max_records=1) == [0, 2, 4]
        assert not consumer.poll(0.1)
    assert watching.offsets == list(range(6))


# ---- commits --------------------------------------------------------------------------------------------------------


def test_every_commit_that_succeeded_is_reported_to_interceptors(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 4)
    watching = Watching()
    reported: list[object] = []
    with reading(fake_cluster, watching, enable_auto_commit=False) as consumer:
        polled(consumer, 4)
        consumer.commit({TP: 1})
        assert watching.reported == [{TP: 1}]
        consumer.commit_async({TP: 2}, lambda offsets, error: reported.append(list(watching.reported)))
        eventually(lambda: committed(fake_cluster) == {TP: 2})
        eventually(lambda: (consumer.poll(0), reported)[1])
        assert reported == [[{TP: 1}, {TP: 2}]]  # before the callback
        with fake_cluster.intercept(Fail(INVALID_COMMIT_OFFSET_SIZE), "OffsetCommit"), pytest.raises(KafkaError):
            consumer.commit({TP: 3})
        consumer.commit({})
        consumer.commit_async({TP: 4})
    assert watching.reported == [{TP: 1}, {TP: 2}, {TP: 4}]
    assert watching.closed == 1


def test_C24_commits_are_reported_in_the_order_they_were_made(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 4)
    watching = Watching()
    with reading(fake_cluster, watching, enable_auto_commit=False) as consumer:
        consumer.commit_async({TP: 1})
        consumer.commit_async({TP: 2})
        consumer.commit({TP: 3})
        assert watching.reported == [{TP: 1}, {TP: 2}, {TP: 3}]


def test_a_commit_that_had_ended_is_reported_though_the_consumer_ends_in_an_error(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 4)
    watching = Watching()
    with pytest.raises(ZeroDivisionError), reading(fake_cluster, watching, enable_auto_commit=False) as consumer:
        consumer.commit_async({TP: 2})
        eventually(consumer._pending_commits.tasks[0].done)
        raise ZeroDivisionError
    assert (watching.reported, watching.closed) == ([{TP: 2}], 1)


def test_C24_a_callback_never_runs_in_the_middle_of_a_poll_that_is_left_nothing(fake_cluster: FakeCluster) -> None:
    class Slow(Watching):
        def on_consume(self, records: Records) -> Records:
            fake_cluster.resume(1)
            eventually(lambda: all(task.done() for task in consumer._pending_commits.tasks))
            positions.extend(record.offset + 1 for record in records)
            return super().on_consume(records)

    def callback(offsets: Offsets, error: BaseException | None) -> None:
        reported.append(consumer.position(TP))

    filled(fake_cluster, 10)
    reported: list[int] = []
    positions: list[int] = []
    with reading(fake_cluster, Slow(never), max_poll_records=1, auto_commit_interval_ms=0) as consumer:
        eventually(lambda: consumer._core.buffer.bytes)
        fake_cluster.pause(1)
        consumer.commit_async({TP: 1}, callback)
        assert not consumer.poll(0.5)
        assert reported == []
        read = positions[-1]
        consumer.poll(0)
        assert reported == [read]


def test_automatic_commits_and_that_of_a_clean_close_are_reported_before_close(fake_cluster: FakeCluster) -> None:
    class Ending(Watching):
        def close(self) -> None:
            super().close()
            self.reported.append({})

    filled(fake_cluster, 6)
    watching = Ending()
    with reading(fake_cluster, watching, auto_commit_interval_ms=0) as consumer:
        assert polled(consumer, 2, max_records=2) == [0, 1]
        consumer.pause(TP)
        eventually(lambda: (consumer.poll(0), {TP: 2} in watching.reported)[1])
        consumer.resume(TP)
        assert polled(consumer, 1, max_records=1) == [2]
    assert watching.reported[-1] == {}
    assert watching.reported[-2] == committed(fake_cluster) == {TP: 3}


def test_C23_a_commit_before_partitions_are_given_up_is_reported(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 4)
    watching = Watching(even)
    with Consumer({}, bootstrap_servers=fake_cluster.bootstrap_servers, interceptors=[watching], auto_offset_reset="earliest",
                  group_id="g", topics=["t"], auto_commit_interval_ms=3_600_000) as consumer:
        assert polled(consumer, 2) == [0, 2]
        consumer.unsubscribe()
        assert watching.reported == [{TP: 4}]
    assert committed(fake_cluster) == {TP: 4}


def test_a_consumer_that_could_not_commit_at_its_end_closes_its_interceptors_all_the_same(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 4)
    watching = Watching()
    with (fake_cluster.intercept(Fail(INVALID_COMMIT_OFFSET_SIZE), "OffsetCommit"), pytest.raises(KafkaError),
          reading(fake_cluster, watching, auto_commit_interval_ms=3_600_000) as consumer):
        polled(consumer, 4)
    assert (watching.reported, watching.closed) == ([], 1)


# ---- async ----------------------------------------------------------------------------------------------------------


def run(cluster: FakeCluster, interceptors: Sequence[object], work: Callable[[AsyncConsumer], Any], **options: Any) -> None:
    async def main() -> None:
        async with asyncio.timeout(30), AsyncConsumer({}, bootstrap_servers=cluster.bootstrap_servers, interceptors=list(interceptors),
                                                      **{"auto_offset_reset": "earliest", "group_id": "g", **options}) as consumer:
            consumer.assign([TP])
            await work(consumer)

    asyncio.run(main())


def test_async_poll_and_iteration_hand_out_what_is_left_and_show_nothing_twice(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 10)
    watching = Watching(even)

    async def work(consumer: AsyncConsumer) -> None:
        found: list[int] = []
        async for record in consumer:
            found.append(record.offset)
            if record.offset == 4:
                break
        while len(found) < 5:
            found += offsets(await consumer.poll(20, max_records=1))
        assert found == [0, 2, 4, 6, 8]
        await consumer.commit()

    run(fake_cluster, [watching], work)
    assert watching.offsets == list(range(len(watching.offsets)))
    assert watching.reported[0][TP] >= 9
    assert watching.closed == 1


def test_async_a_filter_that_drops_everything_commits_and_leaves_the_loop_its_turns(fake_cluster: FakeCluster) -> None:
    filled(fake_cluster, 60)
    watching = Watching(never)
    turns: list[int] = []

    async def work(consumer: AsyncConsumer) -> None:
        async def others() -> None:
            while True:
                turns.append(len(watching.seen))
                await asyncio.sleep(0)

        other = asyncio.create_task(others())
        await asyncio.sleep(0)
        while len(watching.reported) < 2 or len(watching.seen) < 60:
            assert not await consumer.poll(0.5)
        other.cancel()

    run(fake_cluster, [watching], work, max_poll_records=1, auto_commit_interval_ms=0)
    assert {*range(61)} <= set(turns)
    assert committed(fake_cluster) == {TP: 60}
