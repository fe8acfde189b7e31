"""The loop that processes exactly once, on a fake cluster: its function fails, transactions do, members come and go."""
from __future__ import annotations

import asyncio
import math
import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import tenacity

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, Record, TopicPartition
from pyclient.codec.apis import Api
from pyclient.consumer.polls import LONG_POLL
from pyclient.core.transactions.states import TransactionState
from pyclient.errors import ConfigurationError, IllegalStateError, KafkaError, KafkaTimeoutError
from pyclient.processing import ATTEMPTS, ERROR, MESSAGE, OFFSET, TOPIC, AsyncExactlyOnce, ExactlyOnce, Output, exactly_once, work
from pyclient.processing.exactly_once import Stopped
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Delay, Fail
from tests.interrupted_at import interrupted_at
from tests.waiting import eventually

SOON = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_none())
LIMIT_S = 30
UNKNOWN_MEMBER_ID = 25
STEPS = 10
"""Of a run with one or two turns."""


@pytest.fixture(params=[2, 1], ids=["V2", "V1"])
def kafka(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    with FakeCluster(3, features={"transaction.version": request.param}) as cluster:
        cluster.create_topic("in", partitions=2)
        cluster.create_topic("out")
        cluster.create_topic("dead")
        for number in range(20):
            cluster.produce("in", b"%d" % number, partition=number % 2)
        yield cluster


def reader(kafka: FakeCluster, kind: type[Any] = Consumer, **options: Any) -> Any:
    return kind(**{"topics": ["in"], "group_id": "g", "enable_auto_commit": False, "isolation_level": "read_committed", "auto_offset_reset": "earliest",
                   "max_poll_records": 6, "bootstrap_servers": kafka.bootstrap_servers, **options})


def writer(kafka: FakeCluster, kind: type[Any] = Producer, **options: Any) -> Any:
    return kind(**{"transactional_id": "t", "bootstrap_servers": kafka.bootstrap_servers, **options})


def committed(kafka: FakeCluster, topic: str = "out") -> list[Record]:
    """What a read_committed reader gets until the stable end."""
    tp = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=kafka.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        found: list[Record] = []
        while consumer.position(tp) < consumer.end_offsets([tp])[tp]:
            found += consumer.poll(0.1)
        return found


def values(records: list[Record]) -> list[int]:
    return sorted(int(record.value or b"") for record in records)


def doubled(record: Record) -> Output:
    return Output("out", b"%d" % (2 * int(record.value or b"")), record.key)


def run_until(loop: ExactlyOnce, condition: Any) -> None:
    """Run in another thread until the condition holds; what `run` raises is raised here."""
    with ThreadPoolExecutor(1) as pool:
        running = pool.submit(loop.run)
        try:
            eventually(lambda: running.done() or condition())
        finally:
            loop.stop()
        running.result(LIMIT_S)


def all_read(kafka: FakeCluster, group: str = "g") -> bool:
    return sum(each.offset for each in kafka.committed(group).values()) == 20


def test_each_input_has_its_outputs_once_and_its_offset_is_committed(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, doubled)
        run_until(loop, lambda: all_read(kafka))
    assert values(committed(kafka)) == [2 * number for number in range(20)]
    assert (loop.progress.records, loop.progress.outputs, loop.progress.aborted) == (20, 20, 0)


def test_a_record_may_have_several_outputs_or_none(kafka: FakeCluster) -> None:
    def some(record: Record) -> Iterator[Output]:
        for _ in range(int(record.value or b"") % 3):
            yield Output("out", record.value)

    with reader(kafka) as consumer, writer(kafka) as producer:
        run_until(ExactlyOnce(consumer, producer, some), lambda: all_read(kafka))
    assert Counter(values(committed(kafka))) == {number: number % 3 for number in range(20) if number % 3}


def test_a_function_that_fails_is_called_again(kafka: FakeCluster) -> None:
    seen: Counter[bytes | None] = Counter()

    def shaky(record: Record) -> Output:
        seen[record.value] += 1
        if seen[record.value] < 3:
            raise ZeroDivisionError
        return doubled(record)

    with reader(kafka) as consumer, writer(kafka) as producer:
        run_until(ExactlyOnce(consumer, producer, shaky, retry=SOON), lambda: all_read(kafka))
    assert set(seen.values()) == {3}
    assert values(committed(kafka)) == [2 * number for number in range(20)]


def test_a_record_that_keeps_failing_goes_to_the_dead_letters_with_its_cause(kafka: FakeCluster) -> None:
    def refuses_seven(record: Record) -> Output:
        if record.value == b"7":
            raise LookupError("no seven")
        return doubled(record)

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, refuses_seven, dead_letters="dead", retry=SOON)
        run_until(loop, lambda: all_read(kafka))
    assert values(committed(kafka)) == [2 * number for number in range(20) if number != 7]
    (dead,) = committed(kafka, "dead")
    facts = dict(dead.headers)
    assert dead.value == b"7"
    assert (facts[TOPIC], facts[OFFSET], facts[ERROR], facts[MESSAGE], facts[ATTEMPTS]) == (b"in", b"3", b"builtins.LookupError", b"no seven", b"3")
    assert loop.progress.dead_letters == 1


def test_without_dead_letters_the_transaction_is_aborted_and_the_functions_error_raised(kafka: FakeCluster) -> None:
    def refuses_seven(record: Record) -> Output:
        if record.value == b"7":
            raise LookupError("no seven")
        return doubled(record)

    with reader(kafka, max_poll_records=20) as consumer, writer(kafka) as producer:
        with pytest.raises(LookupError, match="no seven"):
            run_until(ExactlyOnce(consumer, producer, refuses_seven, retry=SOON), lambda: False)
        run_until(ExactlyOnce(consumer, producer, doubled), lambda: all_read(kafka))  # the same records, from the first on
    assert values(committed(kafka)) == [2 * number for number in range(20)]


def test_an_output_that_cannot_be_sent_is_its_records_failure_and_those_before_it_are_not_committed(kafka: FakeCluster) -> None:
    def two(record: Record) -> list[Output]:
        second: Any = 5 if record.value == b"7" else record.value  # a number is no bytes
        return [doubled(record), Output("out", second)]

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, two, dead_letters="dead", retry=SOON)
        run_until(loop, lambda: all_read(kafka))
    assert Counter(values(committed(kafka))) == Counter([n for number in range(20) if number != 7 for n in (number, 2 * number)])
    assert [record.value for record in committed(kafka, "dead")] == [b"7"]
    assert loop.progress.aborted == 1


def test_a_transaction_that_is_refused_is_repeated_from_its_first_record(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer, kafka.intercept(Fail(UNKNOWN_MEMBER_ID), Api.TXN_OFFSET_COMMIT, times=2):
        loop = ExactlyOnce(consumer, producer, doubled, restart=tenacity.Retrying(stop=tenacity.stop_after_attempt(5)))
        run_until(loop, lambda: all_read(kafka))
    assert loop.progress.aborted >= 1
    assert values(committed(kafka)) == [2 * number for number in range(20)]


def test_transactions_that_keep_failing_end_the_loop(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer, kafka.intercept(Fail(UNKNOWN_MEMBER_ID), Api.TXN_OFFSET_COMMIT):
        loop = ExactlyOnce(consumer, producer, doubled, restart=SOON)
        with pytest.raises(KafkaError) as raised:
            run_until(loop, lambda: False)
    assert not raised.value.fatal
    assert loop.progress.aborted == 3
    assert committed(kafka) == []


def test_a_function_that_ends_the_transaction_itself_ends_the_loop_at_once(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        def ends_it(record: Record) -> Output:
            producer.abort_transaction()
            return doubled(record)

        with pytest.raises(IllegalStateError, match="in a transaction only"):
            run_until(ExactlyOnce(consumer, producer, ends_it), lambda: False)
    assert committed(kafka) == []


def test_a_producer_that_was_fenced_ends_the_loop_with_what_it_is(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer, writer(kafka) as newer:
        def fenced(record: Record) -> Output:
            newer.init_transactions(transactional_id="t")
            return doubled(record)

        with pytest.raises(KafkaError) as raised:
            run_until(ExactlyOnce(consumer, producer, fenced), lambda: False)
    assert raised.value.fatal


def refused(producer: Producer) -> bool:
    return producer._transaction_calls().state is not TransactionState.IN_TRANSACTION


def test_a_fatal_error_that_send_raised_is_not_raised_again_by_close(kafka: FakeCluster) -> None:
    """Records sent before it have failed, and no call has reported that."""
    with reader(kafka) as consumer, writer(kafka) as producer, writer(kafka) as newer:
        def fenced(record: Record) -> Output:
            if calls:
                eventually(lambda: refused(producer))
            else:
                newer.init_transactions(transactional_id="t")
            calls.append(record)
            return doubled(record)

        calls: list[Record] = []

        with pytest.raises(KafkaError) as raised:
            run_until(ExactlyOnce(consumer, producer, fenced), lambda: False)
    assert raised.value.fatal


def test_a_fatal_error_that_ends_a_transactions_block_is_not_raised_again_by_close(kafka: FakeCluster) -> None:
    with writer(kafka) as producer, writer(kafka) as newer, pytest.raises(KafkaError) as raised, producer.transaction():
        newer.init_transactions(transactional_id="t")
        producer.send("out", b"1")
        eventually(lambda: refused(producer))
        producer.send("out", b"2")
    assert raised.value.fatal


def test_members_that_come_and_go_leave_each_input_with_one_output(kafka: FakeCluster) -> None:
    def member(number: int) -> None:
        with reader(kafka, max_poll_records=1) as consumer, writer(kafka, transactional_id=f"t{number}") as producer:
            loops[number] = ExactlyOnce(consumer, producer, doubled)
            ready[number].set()
            loops[number].run()

    loops: dict[int, ExactlyOnce] = {}
    ready = [threading.Event() for _ in range(3)]
    with ThreadPoolExecutor(3) as pool:
        members = []
        for number in range(3):
            members.append(pool.submit(member, number))
            assert ready[number].wait(LIMIT_S)
        for value in range(20, 60):
            kafka.produce("in", b"%d" % value, partition=value % 2)
        loops[0].stop()
        members[0].result(LIMIT_S)
        eventually(lambda: sum(each.offset for each in kafka.committed("g").values()) == 60)
        for loop in loops.values():
            loop.stop()
        for each in members:
            each.result(LIMIT_S)
    assert values(committed(kafka)) == [2 * number for number in range(60)]


def test_a_signal_ends_the_loop_after_the_present_transaction_and_gives_the_handler_back(kafka: FakeCluster) -> None:
    before = signal.getsignal(signal.SIGTERM)

    def strikes(record: Record) -> Output:
        os.kill(os.getpid(), signal.SIGTERM)
        return doubled(record)

    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, strikes)
        loop.run()
    assert loop.progress.transactions == 1
    assert signal.getsignal(signal.SIGTERM) is before


def waits_for_more(loop: ExactlyOnce | AsyncExactlyOnce, consumer: Any) -> bool:
    return loop.progress.records == 20 and consumer._core.member().polling


@pytest.fixture
def long_polls(monkeypatch: pytest.MonkeyPatch) -> None:
    """A poll that nothing ends lasts for longer than a test waits."""
    monkeypatch.setattr(work, "POLL_S", LONG_POLL - 1.0)


@pytest.mark.usefixtures("long_polls")
@pytest.mark.parametrize("performed", [False, True])
@pytest.mark.parametrize("presses", [1, 2])
@pytest.mark.parametrize("polls", [1, 3])
def test_ctrl_c_before_or_after_any_step_leaves_each_input_with_one_output(
        kafka: FakeCluster, monkeypatch: pytest.MonkeyPatch, polls: int, presses: int, performed: bool) -> None:
    left = [0]

    def step(each: Any) -> Any:
        left[0] -= 1
        outcome = each() if performed or not -presses <= left[0] < 0 else None
        if -presses <= left[0] < 0:  # the second time in what the first one leads to
            raise KeyboardInterrupt
        return outcome

    monkeypatch.setattr(exactly_once, "perform", step)
    for number in range(STEPS + 2 * (polls - 1)):
        own, left[0] = f"g{number}", number
        with reader(kafka, group_id=own, max_poll_records=math.ceil(20 / polls)) as consumer, writer(kafka, transactional_id=own) as producer:
            loop = ExactlyOnce(consumer, producer, doubled)
            stopper = threading.Thread(target=stop_when_read, args=(loop, kafka, own))
            stopper.start()
            while run_broken_off(loop):
                pass
            stopper.join()
        assert set(Counter(values(committed(kafka))).values()) == {number + 1}, number


def stop_when_read(loop: ExactlyOnce, kafka: FakeCluster, group: str) -> None:
    eventually(lambda: all_read(kafka, group))
    loop.stop()


def run_broken_off(loop: ExactlyOnce) -> bool:
    """Whether Ctrl-C broke it off."""
    try:
        loop.run()
    except KeyboardInterrupt:
        return True
    return False


def test_a_signals_handler_may_stop_the_loop_at_any_byte_code_of_a_pause() -> None:
    number, going_on = 1, True
    while going_on:
        stopped = Stopped()
        going_on = interrupted_at(number, lambda stopped=stopped: stopped.wait(0.001), stopped.set)  # type: ignore[misc]
        if going_on:
            stopped.wait(20)  # ends at once
        number += 1
    assert number > 20


def test_a_loop_that_is_stopped_ends_a_poll_that_waits(kafka: FakeCluster) -> None:
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, doubled)
        run_until(loop, lambda: waits_for_more(loop, consumer))  # it fails unless `run` returns in LIMIT_S


@pytest.mark.usefixtures("long_polls")
def test_an_async_loop_that_is_stopped_ends_a_poll_that_waits(kafka: FakeCluster) -> None:
    async def run() -> None:
        async with asyncio.timeout(LIMIT_S), reader(kafka, AsyncConsumer) as consumer, writer(kafka, AsyncProducer) as producer:
            loop = AsyncExactlyOnce(consumer, producer, doubled)
            running = asyncio.ensure_future(loop.run())
            while not waits_for_more(loop, consumer):
                await asyncio.wait([running], timeout=0.01)
            loop.stop()
            await running

    asyncio.run(run())


def test_a_loop_that_is_stopped_does_not_wait_for_its_producer_id(kafka: FakeCluster) -> None:
    with kafka.intercept(Delay(600), Api.INIT_PRODUCER_ID), reader(kafka) as consumer, writer(kafka, max_block_ms=600_000) as producer:
        loop = ExactlyOnce(consumer, producer, doubled)
        run_until(loop, lambda: producer._transaction_calls().state is TransactionState.INITIALIZING)
    assert loop.progress.transactions == 0


def test_a_producer_id_that_does_not_come_within_max_block_ends_the_loop(kafka: FakeCluster) -> None:
    with (kafka.intercept(Delay(600), Api.INIT_PRODUCER_ID), reader(kafka) as consumer, writer(kafka, max_block_ms=100) as producer,
          pytest.raises(KafkaTimeoutError) as raised):
        ExactlyOnce(consumer, producer, doubled).run()
    assert raised.value.__notes__ == ["ExactlyOnce has waited for 0.1 s, max_block_ms."]


def test_a_loop_that_is_stopped_between_two_attempts_gives_no_record_up(kafka: FakeCluster) -> None:
    started = threading.Event()

    def fails(_record: Record) -> Output:
        started.set()
        raise ZeroDivisionError

    patient = tenacity.Retrying(stop=tenacity.stop_after_attempt(3), wait=tenacity.wait_fixed(600))
    with reader(kafka) as consumer, writer(kafka) as producer:
        loop = ExactlyOnce(consumer, producer, fails, dead_letters="dead", retry=patient)
        run_until(loop, started.is_set)
    assert committed(kafka, "dead") == []
    assert kafka.committed("g") == {}


def test_tables_are_transformed_as_a_whole(kafka: FakeCluster) -> None:
    import pyarrow.compute as pc

    def only_ones(table: Any) -> Any:
        return table.filter(pc.match_substring(table["value"].cast("string"), "1")).select(["value"])

    with reader(kafka) as consumer, writer(kafka) as producer:
        run_until(ExactlyOnce.of_tables(consumer, producer, only_ones, "out"), lambda: all_read(kafka))
    assert values(committed(kafka)) == [number for number in range(20) if "1" in str(number)]


def test_the_async_loop_does_the_same(kafka: FakeCluster) -> None:
    async def refuses_seven(record: Record) -> list[Output]:
        if record.value == b"7":
            raise LookupError
        return [doubled(record)]

    async def run() -> None:
        async with reader(kafka, AsyncConsumer) as consumer, writer(kafka, AsyncProducer) as producer:
            loop = AsyncExactlyOnce(consumer, producer, refuses_seven, dead_letters="dead", retry=SOON)
            running = asyncio.ensure_future(loop.run())
            while not all_read(kafka) and not running.done():
                await asyncio.wait([running], timeout=0.01)
            loop.stop()
            await running

    asyncio.run(run())
    assert values(committed(kafka)) == [2 * number for number in range(20) if number != 7]
    assert [record.value for record in committed(kafka, "dead")] == [b"7"]


def test_a_cancelled_async_loop_aborts_its_transaction(kafka: FakeCluster) -> None:
    async def run() -> None:
        async def hangs(_record: Record) -> None:
            reached.set()
            await asyncio.Event().wait()

        reached = asyncio.Event()
        async with reader(kafka, AsyncConsumer) as consumer, writer(kafka, AsyncProducer) as producer:
            running = asyncio.ensure_future(AsyncExactlyOnce(consumer, producer, hangs).run())
            await reached.wait()
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            async with producer.transaction():
                await producer.send("out", b"1")

    asyncio.run(run())
    assert values(committed(kafka)) == [1]


@pytest.mark.parametrize(("consumer", "producer", "error", "text"), [
    ({"enable_auto_commit": True}, {}, ConfigurationError, "enable_auto_commit=False"),
    ({"isolation_level": "read_uncommitted"}, {}, ConfigurationError, "isolation_level='read_committed'"),
    ({"group_id": None, "topics": None}, {}, ConfigurationError, "give the consumer a group_id"),
    ({}, {"transactional_id": None}, IllegalStateError, "needs a transactional producer"),
    ({}, {"value_serializer": "string"}, ConfigurationError, "dead_letters needs a producer without value_serializer"),
])
def test_clients_that_cannot_process_exactly_once_are_refused(
    consumer: dict[str, Any], producer: dict[str, Any], error: type[Exception], text: str,
) -> None:
    with FakeCluster(1) as kafka, reader(kafka, **consumer) as given, writer(kafka, **producer) as made, pytest.raises(error, match=text):
        ExactlyOnce(given, made, doubled, dead_letters="dead")
