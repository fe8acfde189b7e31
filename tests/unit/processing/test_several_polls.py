"""A transaction of the exactly-once loop of several polls: when it goes on, when it ends, what an abort undoes."""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import tenacity

from pyclient import AsyncConsumer, AsyncProducer, Record, TopicPartition
from pyclient.codec.apis import Api
from pyclient.errors import ConfigurationError, SerializationError
from pyclient.processing import AsyncExactlyOnce, ExactlyOnce, Output
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Fail
from tests.interrupted_at import interrupted_at
from tests.unit.processing.test_exactly_once import LIMIT_S, SOON, UNKNOWN_MEMBER_ID, committed, reader, run_until, values, writer
from tests.waiting import eventually

IN = TopicPartition("in", 0)
INPUTS = 20
POLL = 6
"""Records of a poll: four polls have all inputs."""
LONG: dict[str, Any] = {"commit_interval": 3.0, "retry": SOON}
"""An interval that no machine is too slow for."""


@pytest.fixture
def kafka() -> Iterator[FakeCluster]:
    """One response to a fetch has all inputs."""
    with FakeCluster(1) as cluster:
        for topic in ("in", "out", "dead"):
            cluster.create_topic(topic)
        for number in range(INPUTS):
            cluster.produce("in", b"%d" % number)
        yield cluster


def same(record: Record) -> Output:
    return Output("out", record.value)


def all_read(kafka: FakeCluster) -> bool:
    return behind(kafka) == INPUTS


def behind(kafka: FakeCluster) -> int:
    """The committed offset."""
    return kafka.committed("g")[IN].offset if kafka.committed("g") else 0


class Witness:
    """Copies records, and looks at what is committed when each comes."""

    def __init__(self, kafka: FakeCluster) -> None:
        self._kafka = kafka
        self.seen: list[tuple[int, int]] = []

    def __call__(self, record: Record) -> Output:
        self.seen.append((record.offset, behind(self._kafka)))
        return same(record)

    def committed_at(self, offset: int) -> set[int]:
        """What was committed whenever this record came."""
        return {done for seen, done in self.seen if seen == offset}


def test_a_transaction_goes_on_with_buffered_records(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, same, **LONG)
        run_until(loop, lambda: all_read(kafka))
        assert (loop.progress.transactions, loop.progress.records, loop.progress.outputs) == (1, INPUTS, INPUTS)
        assert consumer.metrics()["records-consumed-total"] == INPUTS
    assert values(committed(kafka)) == list(range(INPUTS))


def test_an_interval_of_0_commits_each_poll_by_itself(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, same, commit_interval=0)
        run_until(loop, lambda: all_read(kafka))
    assert (loop.progress.transactions, loop.progress.records) == (4, INPUTS)


@pytest.mark.parametrize(("interval", "transactions"), [(5.0, 4), (POLL * 1.0, 4), (6.0 + 1e-9, 2)])
def test_a_transaction_ends_behind_the_poll_in_which_the_interval_ends(kafka: FakeCluster, interval: float, transactions: int) -> None:
    now = [0.0]

    def takes_a_second(record: Record) -> Output:
        now[0] += 1
        return same(record)

    with reader(kafka) as consumer, writer(kafka, transaction_timeout_ms=100_000) as producer:
        loop = ExactlyOnce(consumer, producer, takes_a_second, commit_interval=interval)
        loop._loop._clock = lambda: now[0]
        run_until(loop, lambda: all_read(kafka))
    assert loop.progress.transactions == transactions


def test_a_loop_that_has_caught_up_commits_at_once(kafka: FakeCluster) -> None:
    """Its clock stands still: the interval never ends."""
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, same, **LONG)
        loop._loop._clock = lambda: 0.0
        run_until(loop, lambda: all_read(kafka))
    assert loop.progress.records == INPUTS


def test_a_transaction_ends_when_a_rebalance_waits(kafka: FakeCluster) -> None:
    witness = Witness(kafka)

    def disturbed(record: Record) -> Output:
        if record.offset == 0:
            consumer._core.buffer.nudge()
        return witness(record)

    with reader(kafka) as consumer, writer(kafka) as producer:
        run_until(ExactlyOnce(consumer, producer, disturbed, **LONG), lambda: all_read(kafka))
    assert witness.committed_at(POLL) == {POLL}
    assert witness.committed_at(2 * POLL) == {POLL}  # the next one goes on as ever


def test_a_wakeup_ends_a_transaction_and_does_not_abort_it(kafka: FakeCluster) -> None:
    witness = Witness(kafka)

    def woken(record: Record) -> Output:
        if record.offset == 0:
            consumer.wakeup()
        return witness(record)

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, woken, **LONG)
        run_until(loop, lambda: all_read(kafka))
    assert (witness.committed_at(POLL), loop.progress.aborted) == ({POLL}, 0)


def test_a_loop_that_is_stopped_does_not_go_on_with_buffered_records(kafka: FakeCluster) -> None:
    def stops(record: Record) -> Output:
        loop.stop()
        return same(record)

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, stops, **LONG)
        loop.run()
    assert (loop.progress.records, behind(kafka)) == (POLL, POLL)


def test_an_abort_repeats_every_poll_of_the_transaction(kafka: FakeCluster) -> None:
    seen: list[int] = []

    def noted(record: Record) -> Output:
        seen.append(record.offset)
        return same(record)

    with reader(kafka) as consumer, writer(kafka) as producer, kafka.intercept(Fail(UNKNOWN_MEMBER_ID), Api.TXN_OFFSET_COMMIT, times=1):
        loop = ExactlyOnce(consumer, producer, noted, restart=tenacity.Retrying(stop=tenacity.stop_after_attempt(5)), commit_interval=3.0)
        run_until(loop, lambda: all_read(kafka))
    assert seen == [*range(INPUTS), *range(INPUTS)]
    assert values(committed(kafka)) == list(range(INPUTS))
    assert (loop.progress.aborted, loop.progress.records, loop.progress.outputs) == (1, INPUTS, INPUTS)


def test_a_record_of_a_later_poll_goes_to_the_dead_letters_in_the_same_transaction(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, refuses_seven, dead_letters="dead", **LONG)
        run_until(loop, lambda: all_read(kafka))
    assert values(committed(kafka)) == [number for number in range(INPUTS) if number != 7]
    assert [record.value for record in committed(kafka, "dead")] == [b"7"]
    assert (loop.progress.transactions, loop.progress.dead_letters, loop.progress.records) == (1, 1, INPUTS)


def refuses_seven(record: Record) -> Output:
    if record.value == b"7":
        raise LookupError("no seven")
    return same(record)


def test_an_output_of_a_later_poll_that_cannot_be_sent_repeats_the_transaction_without_it(kafka: FakeCluster) -> None:
    def two(record: Record) -> list[Output]:
        second: Any = 5 if record.value == b"7" else record.value  # a number is no bytes
        return [same(record), Output("out", second)]

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, two, dead_letters="dead", **LONG)
        run_until(loop, lambda: all_read(kafka))
    assert Counter(values(committed(kafka))) == {number: 2 for number in range(INPUTS) if number != 7}
    assert [record.value for record in committed(kafka, "dead")] == [b"7"]
    assert (loop.progress.aborted, loop._loop.given_up) == (1, {})


def test_a_function_that_fails_in_a_later_poll_gives_back_all_of_the_transaction(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        with pytest.raises(LookupError, match="no seven"):
            run_until(ExactlyOnce(consumer, producer, refuses_seven, **LONG), lambda: False)
        assert behind(kafka) == 0
        run_until(ExactlyOnce(consumer, producer, same), lambda: all_read(kafka))
    assert values(committed(kafka)) == list(range(INPUTS))


def test_what_the_consumer_raises_behind_a_transactions_records_is_raised_once_they_are_committed(kafka: FakeCluster) -> None:
    def no_seven(data: bytes) -> bytes:
        if data == b"7":
            raise SerializationError("no seven")
        return data

    with reader(kafka, value_deserializer=no_seven) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, same, restart=SOON, commit_interval=3.0)
        with pytest.raises(SerializationError, match="no seven"):
            run_until(loop, lambda: False)
    assert (behind(kafka), loop.progress.records, loop.progress.transactions, loop.progress.aborted) == (7, 7, 1, 0)


def test_each_table_of_a_transaction_holds_one_poll(kafka: FakeCluster) -> None:
    rows: list[int] = []

    def noted(table: Any) -> Any:
        rows.append(table.num_rows)
        return table.select(["value"])

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce.of_tables(consumer, producer, noted, "out", **LONG)
        run_until(loop, lambda: all_read(kafka))
    assert (rows, loop.progress.transactions, loop.progress.outputs) == ([6, 6, 6, 2], 1, INPUTS)
    assert values(committed(kafka)) == list(range(INPUTS))


def test_the_async_loop_goes_on_with_buffered_records_too(kafka: FakeCluster) -> None:
    async def run() -> AsyncExactlyOnce:
        async with reader(kafka, AsyncConsumer) as consumer, writer(kafka, AsyncProducer) as producer:
            loop = AsyncExactlyOnce(consumer, producer, same, **LONG)
            running = asyncio.ensure_future(loop.run())
            while not all_read(kafka) and not running.done():
                await asyncio.wait([running], timeout=0.01)
            loop.stop()
            await asyncio.wait_for(running, LIMIT_S)
            return loop

    progress = asyncio.run(run()).progress
    assert (progress.transactions, progress.records) == (1, INPUTS)
    assert values(committed(kafka)) == list(range(INPUTS))


@pytest.mark.parametrize(("seconds", "timeout_ms", "text"), [
    (-1, 60_000, "commit_interval is -1: give seconds, 0 or more"),
    (float("nan"), 60_000, "commit_interval is nan"),
    ("1", 60_000, "commit_interval is '1': give seconds, 0 or more"),
    (6.1, 60_000, "Give at most 6 s, a 10th of it, or raise transaction_timeout_ms"),
    (0.1, 999, "commit_interval=0.1 is too long for the producer's transaction_timeout_ms=999"),
])
def test_an_interval_that_does_not_fit_well_into_the_transactions_timeout_is_refused(
    kafka: FakeCluster, seconds: float, timeout_ms: int, text: str,
) -> None:
    with reader(kafka) as consumer, writer(kafka, transaction_timeout_ms=timeout_ms) as producer:
        with pytest.raises(ConfigurationError, match=text) as raised:
            ExactlyOnce(consumer, producer, same, commit_interval=seconds)
        assert raised.value.option == "commit_interval"
        ExactlyOnce(consumer, producer, same, commit_interval=timeout_ms / 10_000)


# ---- the consumer's part ---------------------------------------------------------------------------------------------


def read_a_poll(consumer: Any) -> list[int]:
    """Wait for the first records."""
    found: list[int] = []

    def polled() -> bool:
        found.extend(offsets(consumer.poll(0.1)))
        return bool(found)

    eventually(polled)
    return found


def offsets(records: Any) -> list[int]:
    return [record.offset for record in records]


def test_buffered_records_of_paused_partitions_are_held_back(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer:
        assert read_a_poll(consumer) == list(range(POLL))
        consumer.pause(IN)
        assert offsets(consumer._poll_buffered()) == []
        consumer.resume(IN)
        assert offsets(consumer._poll_buffered()) == list(range(POLL, 2 * POLL))
        assert consumer.position(IN) == 2 * POLL


def test_buffered_records_count_as_a_poll_for_its_interval_unless_one_waits(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer:
        read_a_poll(consumer)
        group = consumer._core.member()
        group.polled_at = 0.0
        consumer._core.buffer.nudge()
        assert not consumer._poll_buffered()
        assert group.polled_at == 0.0
        consumer._core.buffer.nudged = False
        assert consumer._poll_buffered()
        assert group.polled_at > 0.0


def test_buffered_records_pass_the_interceptors(kafka: FakeCluster) -> None:
    class Seen:
        def __init__(self) -> None:
            self.offsets: list[int] = []

        def on_consume(self, records: Any) -> Any:
            self.offsets += offsets(records)
            return records

        def on_commit(self, _offsets: Any) -> None:
            """There is none."""

    seen = Seen()
    with reader(kafka, interceptors=[seen]) as consumer:
        read_a_poll(consumer)
        consumer._poll_buffered()
    assert seen.offsets == list(range(2 * POLL))


def test_buffered_records_whose_hand_over_ctrl_c_broke_off_come_again(kafka: FakeCluster) -> None:
    """At the beginning of every function on the way; the end has none, as that of a poll."""
    kept: list[Any] = []
    with reader(kafka) as consumer:
        read_a_poll(consumer)
        number = 1
        while interrupted_at(number, lambda: kept.append(consumer._poll_buffered()), where="call"):
            assert kept == []
            again: list[int] = []
            while len(again) < POLL:
                again += offsets(consumer.poll(LIMIT_S))
            assert again == list(range(POLL, POLL + len(again))), number
            consumer.seek(IN, POLL)
            eventually(consumer._core.buffer.ready)
            number += 1
    assert offsets(kept[0]) == list(range(POLL, 2 * POLL))
    assert number > 10
