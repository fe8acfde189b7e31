"""The guarantees of a consumer on real brokers: records, positions, commits."""
from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from pyclient import AsyncConsumer, Consumer, OffsetAndMetadata, Producer, Record, TopicPartition
from pyclient.errors import (
    ClientClosedError, ConcurrentUseError, ConfigurationError, IllegalStateError, InvalidTopicError, KafkaTimeoutError, NoOffsetForPartitionError, OffsetOutOfRangeError,
    SerializationError, UnknownTopicOrPartitionError, WakeupError,
)
from pyclient.testing import LocalCluster
from tests.kafka import WRITTEN_AT, consumer, make_topic, numbers, produce, read, reading
from tests.waiting import eventually


def committed(cluster: LocalCluster, group: str, tp: TopicPartition) -> int | None:
    with consumer(cluster, group_id=group) as witness:
        found = witness.committed([tp])[tp]
    return None if found is None else found.offset


# ---- positions: each row is a way through the records, and where it leaves the group ---------------------------------


def break_at_10(reader: Consumer) -> None:
    for record in reader:
        if record.offset == 10:
            break


def commit_at_10(reader: Consumer) -> None:
    for record in reader:
        if record.offset == 10:
            reader.commit()
            break


def commit_at_10_then_fail_at_20(reader: Consumer) -> None:
    for record in reader:
        if record.offset == 10:
            reader.commit()
        if record.offset == 20:
            raise ZeroDivisionError


def fail_at_10(reader: Consumer) -> None:
    for record in reader:
        if record.offset == 10:
            raise ZeroDivisionError


def poll_10(reader: Consumer) -> None:
    assert len(reader.poll(20, max_records=10)) == 10


def poll_10_then_commit(reader: Consumer) -> None:
    poll_10(reader)
    reader.commit()


def poll_10_then_fail(reader: Consumer) -> None:
    poll_10(reader)
    raise ZeroDivisionError


def poll_10_twice_then_fail(reader: Consumer) -> None:
    poll_10(reader)
    poll_10(reader)
    reader.commit(dict.fromkeys(reader.assignment(), 10))
    raise ZeroDivisionError


def hold_an_iterator_at_10(reader: Consumer) -> None:
    iterator = iter(reader)
    while next(iterator).offset < 10:
        pass
    kept.append(iterator)


kept: list[Any] = []


@pytest.mark.parametrize(("way", "left_at"), [
    (break_at_10, 11), (commit_at_10, 11), (commit_at_10_then_fail_at_20, 11), (fail_at_10, None), (poll_10, 10),
    (poll_10_then_commit, 10), (poll_10_then_fail, None), (poll_10_twice_then_fail, 10), (hold_an_iterator_at_10, 11),
])
def test_C21_a_consumer_that_ends_leaves_its_group_at_what_was_consumed(
        kafka_cluster: LocalCluster, topic: str, way: Any, left_at: int | None) -> None:
    with contextlib.suppress(ZeroDivisionError), reading(kafka_cluster, topic, group_id=topic) as (reader, _):
        way(reader)
    kept.clear()
    assert committed(kafka_cluster, topic, TopicPartition(topic, 0)) == left_at


def test_C21_the_position_is_behind_the_current_record_of_a_loop_and_behind_what_a_poll_returned(
        kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, tp):
        assert reader.position(tp) == 0
        for record in reader:
            assert reader.position(tp) == record.offset + 1
            if record.offset == 10:
                break
        assert reader.position(tp) == 11
        first = reader.poll(20, max_records=5)
        assert [record.offset for record in first] == [11, 12, 13, 14, 15]
        assert reader.position(tp) == 16
        reader.poll(20, max_records=5)
        assert reader.position(tp) == 21


def test_the_next_poll_begins_with_the_records_that_a_loop_left(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, _):
        break_at_10(reader)
        assert [record.offset for record in reader.poll(20)] == list(range(11, 100))


def test_C03_a_seek_in_the_body_of_a_loop_takes_effect_with_the_next_record(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, tp):
        seen = []
        for record in reader:
            seen.append(record.offset)
            if seen == [0, 1, 2]:
                reader.seek(tp, 90)
            if record.offset == 99:
                break
    assert seen == [0, 1, 2, *range(90, 100)]


def test_a_poll_in_the_body_of_a_loop_continues_at_the_loops_position(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, _):
        seen: list[int] = []
        for record in reader:
            seen.append(record.offset)
            if record.offset == 5:
                seen += [each.offset for each in reader.poll(20, max_records=3)]
            if record.offset == 99:
                break
    assert seen == list(range(100))


def test_C03_pausing_in_the_body_of_a_loop_holds_back_what_was_fetched_and_keeps_it(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, tp):
        next(iter(reader))
        reader.pause(tp)
        assert reader.paused() == {tp}
        assert not reader.poll(0.2)
        reader.resume(tp)
        assert [record.offset for record in reader.poll(20)] == list(range(1, 100))


def test_a_consumer_lists_topics_and_finds_the_partitions_that_it_assigns_itself(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, 3)
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic) as consumer:
        consumer.commit({TopicPartition(topic, 0): 0})
        eventually(lambda: {topic, "__consumer_offsets"} <= set(consumer.list_topics(internal=True)))
        assert "__consumer_offsets" not in consumer.list_topics()
        assert consumer.partitions_for(topic) == 3
        assert consumer.is_connected
        with pytest.raises(UnknownTopicOrPartitionError):
            consumer.partitions_for(f"{topic}-nowhere")


def test_C03_a_seek_is_never_followed_by_older_data(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, max_poll_records=3) as (reader, tp):
        for offset in (50, 0, 99, 7, 7, 98, 1) * 5:
            reader.poll(0)
            reader.seek(tp, offset)
            assert reader.position(tp) == offset
            assert reader.poll(20)[0].offset == offset


def test_seeking_to_the_ends_and_out_of_the_range_of_offsets(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, tp):
        reader.seek_to_end()
        assert reader.position(tp) == 100
        reader.seek_to_beginning(tp)
        assert reader.poll(20)[0].offset == 0
        for offset in (-1, 2**63):
            with pytest.raises(ValueError, match="offset"):
                reader.seek(tp, offset)
        with pytest.raises(IllegalStateError, match="not assigned"):
            reader.seek(TopicPartition("other", 0), 1)


# ---- where reading begins --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("reset", "begins"), [("earliest", 0), ("by_duration:PT1H", 0)])
def test_C20_without_a_commit_reading_begins_where_auto_offset_reset_says(
        kafka_cluster: LocalCluster, topic: str, reset: str, begins: int) -> None:
    with reading(kafka_cluster, topic, auto_offset_reset=reset) as (reader, _):
        assert reader.poll(20)[0].offset == begins


def test_C20_latest_begins_after_the_last_record(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, auto_offset_reset="latest") as (reader, tp):
        assert reader.position(tp) == 100
        produce(kafka_cluster, topic, [b"new"])
        assert [record.value for record in reader.poll(20)] == [b"new"]


def test_C20_with_a_commit_reading_begins_there(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, group_id=topic) as (reader, tp):
        reader.commit({tp: OffsetAndMetadata(42, "a note")})
        assert reader.committed([tp]) == {tp: OffsetAndMetadata(42, "a note")}
    with consumer(kafka_cluster, group_id=topic) as again:
        again.assign([TopicPartition(topic, 0)])
        assert again.poll(20)[0].offset == 42


def test_C20_with_none_a_missing_commit_raises_until_a_seek(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, auto_offset_reset="none", group_id=topic) as (reader, tp):
        for _ in range(2):
            with pytest.raises(NoOffsetForPartitionError, match=f"{topic}-0"):
                reader.poll(20)
        with pytest.raises(NoOffsetForPartitionError):
            reader.position(tp)
        reader.seek(tp, 5)
        assert reader.poll(20)[0].offset == 5


def test_C10_a_position_out_of_range_is_reset_or_raised_with_the_offset(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, tp):
        reader.seek(tp, 5000)
        assert reader.poll(20)[0].offset == 0
    with consumer(kafka_cluster, auto_offset_reset="none") as strict:
        strict.assign([tp])
        strict.seek(tp, 5000)
        with pytest.raises(OffsetOutOfRangeError, match="offset 5000 "):
            strict.poll(20)
        strict.seek(tp, 99)
        assert strict.poll(20)[0].offset == 99


def test_offsets_by_time_and_the_ends_and_the_lag(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, empty = make_topic(kafka_cluster, topic, 2)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for n in range(10):
            producer.send(topic, b"x", partition=0, timestamp=WRITTEN_AT + n * 1000)
    with consumer(kafka_cluster) as reader:
        reader.assign([tp, empty])
        assert reader.beginning_offsets([tp, empty]) == {tp: 0, empty: 0}
        assert reader.end_offsets([tp, empty]) == {tp: 10, empty: 0}
        found = reader.offsets_for_times({tp: WRITTEN_AT + 4500, empty: 0})
        first = found[tp]
        assert first is not None
        assert (first.offset, first.timestamp, found[empty]) == (5, WRITTEN_AT + 5000, None)
        assert reader.offsets_for_times({tp: WRITTEN_AT + 1_000_000}) == {tp: None}
        reader.seek(tp, 4)
        assert reader.lag() == {tp: 6, empty: 0}
        with pytest.raises(KafkaTimeoutError, match="nowhere-3"):
            reader.end_offsets([TopicPartition("nowhere", 3)], timeout=0.3)


# ---- commits ---------------------------------------------------------------------------------------------------------


def test_committing_needs_a_group_and_says_so(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic) as (reader, tp):
        for call in (reader.commit, reader.commit_async, lambda: reader.committed([tp])):
            with pytest.raises(IllegalStateError, match="group_id"):
                call()
        with pytest.raises(ConfigurationError, match="group_id"):
            consumer(kafka_cluster, enable_auto_commit=True)


def test_committed_returns_at_once_also_on_an_idle_client(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with consumer(kafka_cluster, group_id=topic) as reader:
        assert reader.committed([tp], timeout=10) == {tp: None}


def test_C24_commits_are_reported_in_the_order_in_which_they_were_started(kafka_cluster: LocalCluster, topic: str) -> None:
    reported: list[tuple[int, BaseException | None]] = []
    with reading(kafka_cluster, topic, group_id=topic, enable_auto_commit=False) as (reader, tp):
        for n in range(20):
            reader.commit_async({tp: n}, lambda offsets, error: reported.append((offsets[tp].offset, error)))
        reader.commit({tp: 77})
    assert reported == [(n, None) for n in range(20)]
    assert committed(kafka_cluster, topic, tp) == 77


def test_a_commit_callback_may_use_the_consumer(kafka_cluster: LocalCluster, topic: str) -> None:
    reported: list[Any] = []
    polled: list[Record] = []
    with reading(kafka_cluster, topic, group_id=topic) as (reader, tp):
        def use(offsets: Any, error: BaseException | None) -> None:
            reported.append((error, reader.committed([tp])[tp], reader.position(tp) - len(polled)))
            reader.seek(tp, 50)
            reader.commit_async({tp: 41}, lambda *_: reported.append(reader.poll(20, max_records=1)[0].offset))

        reader.seek(tp, 0)  # or reading might begin at the commit
        reader.commit_async({tp: 40}, use)

        def reported_once() -> bool:
            polled.extend(reader.poll(0))
            return bool(reported)

        eventually(reported_once)
        assert reported[0] == (None, OffsetAndMetadata(40), 0)

        def reported_again() -> bool:
            reader.seek(tp, 50)  # or a slow response would come after all records are read
            reader.poll(0, max_records=1)
            return len(reported) == 2

        eventually(reported_again)
        assert reported[1] >= 50
        assert reader.committed([tp]) == {tp: OffsetAndMetadata(41)}


def test_a_commit_callback_of_the_close_gets_a_closed_consumer(kafka_cluster: LocalCluster, topic: str) -> None:
    reported: list[BaseException] = []
    with reading(kafka_cluster, topic, group_id=topic) as (reader, tp):
        def use(offsets: Any, error: BaseException | None) -> None:
            with pytest.raises(ClientClosedError) as caught:
                reader.poll(0)
            reported.append(caught.value)

        reader.commit_async({tp: 40}, use)
    assert len(reported) == 1


def test_a_commit_callback_of_an_async_consumer_may_begin_the_next_commit(kafka_cluster: LocalCluster, topic: str) -> None:
    (tp,) = make_topic(kafka_cluster, topic)

    async def main() -> OffsetAndMetadata | None:
        again = asyncio.Event()
        async with AsyncConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic) as reader:
            reader.assign([tp])
            reader.commit_async({tp: 1}, lambda *_: reader.commit_async({tp: 2}, lambda *_: again.set()))
            async with asyncio.timeout(20):
                while not again.is_set():
                    await reader.poll(0.01)
            return (await reader.committed([tp]))[tp]

    assert asyncio.run(main()) == OffsetAndMetadata(2)


def test_a_commit_callback_that_raises_is_logged(kafka_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    def fail(offsets: object, error: object) -> None:
        raise ZeroDivisionError("in the callback")

    with reading(kafka_cluster, topic, group_id=topic) as (reader, tp):
        reader.commit_async({tp: 1}, fail)
    assert "in the callback" in caplog.text


def test_C21_automatic_commits_store_what_earlier_polls_returned(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, group_id=topic, auto_commit_interval_ms=1) as (reader, tp):
        poll_10(reader)
        assert committed(kafka_cluster, topic, tp) is None
        poll_10(reader)
        eventually(lambda: committed(kafka_cluster, topic, tp) == 10)


def test_without_automatic_commits_nothing_is_committed(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, group_id=topic, enable_auto_commit=False, auto_commit_interval_ms=0) as (reader, tp):
        poll_10(reader)
        poll_10(reader)
    assert committed(kafka_cluster, topic, tp) is None


# ---- what comes out --------------------------------------------------------------------------------------------------


def test_a_poll_returns_at_most_max_records(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, max_poll_records=7) as (reader, _):
        assert len(reader.poll(20)) == 7
        assert len(reader.poll(20, max_records=3)) == 3
        with pytest.raises(ValueError, match="max_records must be at least 1, got 0"):
            reader.poll(1, max_records=0)


def test_records_become_arrow_columns(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, compression_type="lz4") as producer:
        producer.send(topic, b"v", b"k", timestamp=WRITTEN_AT, headers=[("h", None)])
        producer.send(topic, None, timestamp=WRITTEN_AT + 1)
    with consumer(kafka_cluster) as reader:
        reader.assign([tp])
        table = reader.poll(20).to_arrow()
    assert table.column("offset").to_pylist() == [0, 1]
    assert table.column("value").to_pylist() == [b"v", None]
    assert table.column("key").to_pylist() == [b"k", None]


def test_deserializers_make_values_and_a_record_they_refuse_is_raised_until_a_seek(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"bad", b"1", b"2", b"bad", b"4"])
    with consumer(kafka_cluster, value_deserializer=int) as reader:
        reader.assign([tp])
        for _ in range(2):
            with pytest.raises(SerializationError, match=f"offset 0: .*{topic}"):
                next(iter(reader))
        reader.seek(tp, 1)
        seen: list[object] = []
        with pytest.raises(SerializationError, match="offset 3"):
            seen.extend(record.value for record in reader)
        reader.seek(tp, 4)
        assert [*seen, next(iter(reader)).value] == [1, 2, 4]


def test_an_unknown_topic_is_waited_for_and_read_once_it_is_there(kafka_cluster: LocalCluster, topic: str) -> None:
    with consumer(kafka_cluster, allow_auto_create_topics=False) as reader:
        reader.assign([TopicPartition(topic, 0)])
        assert not reader.poll(0.1)
        produce(kafka_cluster, topic, [b"here"])
        assert [record.value for record in reader.poll(20)] == [b"here"]


def test_M03_an_invalid_topic_name_is_raised_by_poll_while_other_topics_are_read(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, numbers(3))
    with consumer(kafka_cluster) as reader:
        reader.assign([TopicPartition("no/such", 0), tp])
        seen: list[object] = []
        while len(seen) < 4:
            try:
                seen += reader.poll(20)
            except InvalidTopicError as error:
                seen.append(str(error))
    assert any("no/such" in str(each) for each in seen)


# ---- life ------------------------------------------------------------------------------------------------------------


def test_wakeup_ends_a_waiting_poll_or_else_the_next_one(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with consumer(kafka_cluster) as reader:
        reader.assign([tp])
        waker = threading.Thread(target=wake_when_busy, args=[reader])
        waker.start()
        with pytest.raises(WakeupError):
            reader.poll()
        waker.join()
        reader.wakeup()
        with pytest.raises(WakeupError):
            reader.poll(20)
        assert not reader.poll(0)


def test_a_second_thread_gets_ConcurrentUseError(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with consumer(kafka_cluster) as reader:
        reader.assign([tp])
        other = threading.Thread(target=swallow, args=[reader])
        other.start()
        eventually(reader._single_user.taken)
        calls: list[Callable[[], object]] = [
            lambda: reader.poll(0), lambda: reader.pause(tp), lambda: reader.seek(tp, 0), reader.close]
        for call in calls:
            with pytest.raises(ConcurrentUseError, match="wakeup"):
                call()
        reader.wakeup()
        other.join()


def wake_when_busy(reader: Consumer) -> None:
    eventually(reader._single_user.taken)
    reader.wakeup()


def swallow(reader: Consumer) -> None:
    with contextlib.suppress(WakeupError):
        reader.poll()


def test_subscribing_needs_a_group_and_the_error_names_assign(kafka_cluster: LocalCluster, topic: str) -> None:
    with consumer(kafka_cluster) as reader:
        with pytest.raises(ConfigurationError, match="assign"):
            reader.subscribe([topic])
        with pytest.raises(IllegalStateError, match="group_id"):
            reader.group_metadata()


CTRL_C = """
import sys
from pyclient import Consumer, TopicPartition
with Consumer(bootstrap_servers=sys.argv[1]) as reader:
    reader.assign([TopicPartition(sys.argv[2], 0)])
    try:
        print("waiting", flush=True)
        reader.poll()
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""


def test_ctrl_c_ends_a_poll_without_timeout(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    process = subprocess.Popen([sys.executable, "-c", CTRL_C, kafka_cluster.bootstrap_servers, topic],
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "waiting\n"
        os.kill(process.pid, signal.SIGINT)
        try:
            out, err = process.communicate(timeout=30)
        finally:
            process.kill()
    assert (out, err, process.returncode) == ("interrupted\n", "", 0)


def test_a_cancelled_async_poll_loses_nothing(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)

    async def main() -> list[bytes | None]:
        seen: list[bytes | None] = []
        async with AsyncConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest") as reader:
            reader.assign([tp])
            storing = asyncio.create_task(asyncio.to_thread(produce, kafka_cluster, topic, numbers(300), batch_size=200))
            after = 0.0
            while len(seen) < 300:
                polling = asyncio.create_task(reader.poll(20))
                after = (after + 0.0003) % 0.005
                done, _ = await asyncio.wait([polling], timeout=after)
                if not done:
                    polling.cancel()
                with contextlib.suppress(asyncio.CancelledError):
                    seen += [record.value for record in await polling]
            await storing
        return seen

    assert asyncio.run(main()) == numbers(300)


def test_the_async_consumer_reads_seeks_and_commits(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, numbers(100))

    async def main() -> None:
        async with AsyncConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest",
                                 group_id=topic) as reader:
            reader.assign([tp])
            async for record in reader:
                if record.offset == 5:
                    reader.seek(tp, 50)
                if record.offset == 60:
                    await reader.commit()
                    break
            assert (await reader.committed([tp]))[tp] == OffsetAndMetadata(61, leader_epoch=0)
            assert (await reader.poll(20))[0].offset == 61
            reader.pause(tp)
            assert not await reader.poll(0.1)
            reader.resume(tp)
            assert await reader.lag() == {tp: 0}, "the poll between counted what the one before had returned"
            assert await reader.position(tp) == 100
            reported: list[object] = []
            reader.commit_async({tp: 9}, lambda offsets, error: reported.append(error))
            await reader.commit({tp: 10})
            assert reported == [None]
            reader.wakeup()
            with pytest.raises(WakeupError):
                await reader.poll(5)
            polling = asyncio.create_task(reader.poll())
            await asyncio.to_thread(eventually, reader._single_user.taken)
            with pytest.raises(ConcurrentUseError):
                await reader.poll(0)
            reader.wakeup()
            with contextlib.suppress(WakeupError):
                await polling

    asyncio.run(main())


def test_C05_read_committed_hides_aborted_records(kafka_cluster: LocalCluster, topic: str) -> None:
    from confluent_kafka import Producer as Transactional

    tp, = make_topic(kafka_cluster, topic)
    writer = Transactional({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic})
    writer.init_transactions(30)
    for n in range(6):
        writer.begin_transaction()
        for i in range(3):
            writer.produce(topic, b"%d-%d" % (n, i), partition=0)
        writer.flush(30)
        writer.commit_transaction(30) if n % 2 else writer.abort_transaction(30)
    kept_values = [b"%d-%d" % (n, i) for n in (1, 3, 5) for i in range(3)]
    assert [record.value for record in read(kafka_cluster, [tp], 9, isolation_level="read_committed")] == kept_values
    assert len(read(kafka_cluster, [tp], 18)) == 18
    with consumer(kafka_cluster, isolation_level="read_committed") as reader:
        reader.assign([tp])
        while reader.poll(0.5):
            pass
        assert reader.position(tp) == reader.end_offsets([tp])[tp]
