"""A transaction of the exactly-once loop of several polls: when it goes on, when it ends, what an abort undoes."""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest
import tenacity

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Record, TopicPartition
from pyclient.buffers.records_view import Records
from pyclient.codec.apis import Api
from pyclient.errors import ClientClosedError, ConfigurationError, SerializationError, TopicAuthorizationError
from pyclient.processing import ATTEMPTS, AsyncExactlyOnce, ExactlyOnce, Output
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Fail
from tests.interrupted_at import interrupted_at
from tests.twins import PURE
from tests.unit.processing.test_exactly_once import LIMIT_S, SOON, UNKNOWN_MEMBER_ID, committed, reader, run_until, values, writer
from tests.waiting import eventually

IN = TopicPartition("in", 0)
INPUTS = 20
POLL = 6
"""Records of a poll: four polls have all inputs."""
LONG: dict[str, Any] = {"commit_interval": 3.0, "retry": SOON}
"""An interval that no machine is too slow for."""
NEVER: tenacity.Retrying = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))
TWICE: tenacity.Retrying = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_none())


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
            consumer._core.buffer.request_poll()
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


@pytest.mark.parametrize("bad", [POLL, POLL + 1])
def test_an_output_of_a_later_poll_that_cannot_be_sent_repeats_the_transaction_without_it(kafka: FakeCluster, bad: int) -> None:
    """Also where the transaction that is committed first ends before it."""
    def two(record: Record) -> list[Output]:
        second: Any = 5 if record.value == b"%d" % bad else record.value  # a number is no bytes
        return [same(record), Output("out", second)]

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, two, dead_letters="dead", **LONG)
        run_until(loop, lambda: all_read(kafka))
    assert Counter(values(committed(kafka))) == {number: 2 for number in range(INPUTS) if number != bad}
    assert [record.value for record in committed(kafka, "dead")] == [b"%d" % bad]
    assert (loop.progress.aborted, loop._loop.given_up) == (1, {})


def test_an_only_output_that_cannot_be_sent_is_not_asked_for_again(kafka: FakeCluster) -> None:
    seen: list[int] = []

    def text(record: Record) -> Output:
        seen.append(record.offset)
        return Output("out", "text" if record.value == b"7" else record.value)  # text is no bytes

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, text, dead_letters="dead", **LONG)
        run_until(loop, lambda: all_read(kafka))
    (dead,) = committed(kafka, "dead")
    assert (dead.value, dict(dead.headers)[ATTEMPTS]) == (b"7", b"1")
    assert (seen, loop.progress.aborted, loop.progress.outputs) == (list(range(INPUTS)), 0, INPUTS - 1)


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


def test_a_poll_error_behind_an_aborted_transaction_comes_after_its_records(kafka: FakeCluster) -> None:
    """One failure is allowed in a row."""
    def no_seven(data: bytes) -> bytes:
        if data == b"7":
            raise SerializationError("no seven")
        return data

    with (reader(kafka, value_deserializer=no_seven) as consumer, writer(kafka) as producer,
          kafka.intercept(Fail(UNKNOWN_MEMBER_ID), Api.TXN_OFFSET_COMMIT, times=1)):
        loop = ExactlyOnce(consumer, producer, same, restart=TWICE, commit_interval=3.0)
        with pytest.raises(SerializationError, match="no seven"):
            run_until(loop, lambda: False)
    assert (behind(kafka), loop.progress.records, loop.progress.aborted) == (7, 7, 1)


def test_what_the_consumer_raises_once_behind_a_transactions_records_is_not_lost(kafka: FakeCluster) -> None:
    def raises() -> Any:
        consumer._poll_buffered = buffered
        raise TopicAuthorizationError("once")

    with reader(kafka) as consumer, writer(kafka) as producer:
        buffered, consumer._poll_buffered = consumer._poll_buffered, raises
        loop = ExactlyOnce(consumer, producer, same, restart=NEVER, commit_interval=3.0)
        with pytest.raises(TopicAuthorizationError, match="once"):
            run_until(loop, lambda: False)
    assert (behind(kafka), loop.progress.aborted) == (POLL, 0)


def test_an_abort_leaves_partitions_alone_that_the_function_has_given_back(kafka: FakeCluster) -> None:
    def gives_back(_record: Record) -> Output:
        consumer.unsubscribe()
        raise LookupError("enough")

    with reader(kafka) as consumer, writer(kafka) as producer, pytest.raises(LookupError, match="enough"):
        run_until(ExactlyOnce(consumer, producer, gives_back, retry=NEVER, commit_interval=3.0), lambda: False)
    assert behind(kafka) == 0


def test_after_an_abort_each_poll_is_committed_alone_until_one_is(kafka: FakeCluster) -> None:
    witness = Witness(kafka)
    with reader(kafka) as consumer, writer(kafka) as producer, kafka.intercept(Fail(UNKNOWN_MEMBER_ID), Api.TXN_OFFSET_COMMIT, times=1):
        loop = ExactlyOnce(consumer, producer, witness, restart=TWICE, commit_interval=3.0)
        loop._loop._clock = lambda: 0.0
        run_until(loop, lambda: all_read(kafka))
    assert witness.committed_at(POLL) == {0, POLL}  # in the transaction that was aborted, and behind the first poll
    assert witness.committed_at(2 * POLL) == {0, POLL}  # in the one after that, which goes on
    assert loop.progress.aborted == 1


def test_an_empty_poll_ends_the_time_of_short_transactions(kafka: FakeCluster) -> None:
    """Another member may have committed what was repeated."""
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, same, **LONG)
        poll, polls = consumer.poll, []

        def first_none(timeout: float) -> Any:
            polls.append(timeout)
            return Records() if len(polls) == 1 else poll(timeout)

        loop._loop._repeats, consumer.poll = True, first_none
        run_until(loop, lambda: all_read(kafka))
    assert loop.progress.transactions == 1


def test_outputs_that_cannot_be_sent_are_no_failures_in_a_row(kafka: FakeCluster) -> None:
    """Each abort gives one record up, and nothing is waited for."""
    def two(record: Record) -> list[Output]:
        return [same(record), Output("out", int(record.value or b""))]  # a number is no bytes

    patient = tenacity.Retrying(stop=tenacity.stop_after_attempt(2), wait=tenacity.wait_fixed(600))
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, two, dead_letters="dead", restart=patient, commit_interval=3.0)
        run_until(loop, lambda: all_read(kafka))
    assert values(committed(kafka, "dead")) == list(range(INPUTS))
    assert (committed(kafka), loop.progress.aborted, loop._loop.given_up) == ([], INPUTS, {})


@pytest.mark.parametrize("closed", ["consumer", "producer"])
def test_a_function_that_closes_a_client_ends_the_loop_at_once(kafka: FakeCluster, closed: str) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        clients = {"consumer": consumer, "producer": producer}

        def closes(record: Record) -> Output:
            clients[closed].close()
            return same(record)

        with pytest.raises(ClientClosedError, match=f"this {closed} is closed"):
            run_until(ExactlyOnce(consumer, producer, closes, **LONG), lambda: False)
    assert committed(kafka) == []


def test_single_outputs_and_lists_are_all_counted_and_keep_their_order(kafka: FakeCluster) -> None:
    def some(record: Record) -> Any:
        return [None, same(record), [same(record)] * 2, []][record.offset % 4]

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, some, **LONG)
        run_until(loop, lambda: all_read(kafka))
    wanted = [number for number in range(INPUTS) for _ in range([0, 1, 2, 0][number % 4])]
    assert [int(record.value or b"") for record in committed(kafka)] == wanted
    assert loop.progress.outputs == len(wanted)


def test_an_output_says_all_that_send_takes(kafka: FakeCluster) -> None:
    kafka.create_topic("wide", partitions=3)

    def all_of(record: Record) -> Output:
        return Output("wide", record.value, b"key", partition=2, timestamp=1234, headers=[("name", b"header")])

    with reader(kafka) as consumer, writer(kafka) as producer:
        run_until(ExactlyOnce(consumer, producer, all_of, **LONG), lambda: all_read(kafka))
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("wide", 2)])
        record = consumer.poll(LIMIT_S)[0]
    assert (record.key, record.value, record.timestamp, record.headers) == (b"key", b"0", 1234, [("name", b"header")])


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


@pytest.mark.parametrize("timeout_ms", [1000, 1274, 20_070, 60_000])
def test_a_tenth_of_the_transactions_timeout_is_an_interval_that_fits(kafka: FakeCluster, timeout_ms: int) -> None:
    """Such a number times 10,000 may be a little more."""
    with reader(kafka) as consumer, writer(kafka, transaction_timeout_ms=timeout_ms) as producer:
        ExactlyOnce(consumer, producer, same, commit_interval=timeout_ms / 10_000)


@pytest.mark.parametrize(("seconds", "timeout_ms", "text"), [
    (-1, 60_000, "commit_interval is -1: give seconds, 0 or more"),
    (float("nan"), 60_000, "commit_interval is nan"),
    ("1", 60_000, "commit_interval is '1': give seconds, 0 or more"),
    (True, 60_000, "commit_interval is True: give seconds, 0 or more"),
    (float("inf"), 60_000, "commit_interval=inf is too long"),
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
        consumer._core.buffer.request_poll()
        assert not consumer._poll_buffered()
        assert group.polled_at == 0.0
        consumer._core.buffer.poll_requested = False
        consumer._rebalancing.polled_at = consumer._core.clock() - LIMIT_S
        assert consumer._poll_buffered()
        assert group.polled_at > 0.0
        assert consumer.metrics()["time-between-poll-max"] >= LIMIT_S * 1000


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
                again += offsets(consumer._poll_buffered() if number % 2 else consumer.poll(LIMIT_S))
            assert again == list(range(POLL, POLL + len(again))), number
            consumer.seek(IN, POLL)
            eventually(consumer._core.buffer.ready)
            number += 1
    assert offsets(kept[0]) == list(range(POLL, 2 * POLL))
    assert number > (10 if PURE else 5)  # compiled functions begin unseen
