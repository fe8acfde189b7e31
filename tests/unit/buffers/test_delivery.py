"""Results of records: decided once, reported to every waiter; failures that the user has not seen are counted."""
from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections.abc import Awaitable, Callable, Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.buffers.delivery import BatchResult, Delivery, Observer
from pyclient.errors import CorruptRecordError, KafkaError, KafkaTimeoutError
from pyclient.records import RecordMetadata, TopicPartition
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.waiting import eventually

WHERE = TopicPartition("orders", 3)


class Later(Awaitable[None]):
    """What an asyncio future is to `await`: it yields until the batch is done."""

    def __init__(self, result: BatchResult) -> None:
        self.result = result

    def __await__(self) -> Generator[Any, None, None]:
        while not self.result.done:
            yield self


class Awaits(Observer):
    """An observer whose deliveries can be awaited by hand."""

    def awaiting(self, result: BatchResult) -> Awaitable[None]:
        return Later(result)


def deliveries(count: int, observer: Observer | None = None, *, gap: int = 10) -> tuple[BatchResult, list[Delivery]]:
    """One batch of *count* records, *gap* ms apart, and the deliveries of its records."""
    buffers = accumulator(Clock(), observer=observer or Observer())
    topic = buffers.topic("orders")
    assert topic is not None
    made = [buffers.append(topic, 3, 1000 + gap * number, None, b"value", None) for number in range(count)]
    (batch,) = buffers.flush_open()
    return batch.result, [delivery for delivery in made if delivery is not None]


# --- what it costs ---------------------------------------------------------------------------------------------------


def test_a_delivery_takes_32_bytes_and_no_time_of_the_garbage_collector() -> None:
    _, (delivery,) = deliveries(1)
    assert sys.getsizeof(delivery) == sys.getsizeof(object()) + 16  # the header is larger without a GIL
    assert not gc.is_tracked(delivery)


# --- outcomes --------------------------------------------------------------------------------------------------------


@given(base=st.integers(0, 2**62), gap=st.integers(0, 1000))
def test_each_record_has_its_offset_and_the_timestamp_its_producer_gave(base: int, gap: int) -> None:
    result, made = deliveries(4, gap=gap)
    result.complete(base)
    assert [each.result() for each in made] == [RecordMetadata("orders", 3, base + n, 1000 + gap * n) for n in range(4)]


def test_each_record_has_the_brokers_timestamp_where_the_broker_stamps() -> None:
    result, made = deliveries(3)
    result.complete(40, 99_000)
    assert [each.result() for each in made] == [RecordMetadata("orders", 3, 40 + n, 99_000) for n in range(3)]


def test_P22_without_acknowledgement_a_record_is_done_and_its_offset_unknown() -> None:
    result, (delivery,) = deliveries(1)
    result.complete(-1)
    assert delivery.done()
    assert delivery.result() == RecordMetadata("orders", 3, None, 1000)


def test_result_raises_a_failure_and_exception_returns_it() -> None:
    result, (delivery, other) = deliveries(2)
    error = CorruptRecordError("no", topic_partition=WHERE)
    result.fail(error)
    given = delivery.exception()
    with pytest.raises(CorruptRecordError, match="no") as caught:
        other.result()
    assert (type(given), str(given)) == (type(caught.value), str(caught.value)) == (CorruptRecordError, str(error))
    assert caught.value.topic_partition == WHERE


@given(st.lists(st.one_of(st.integers(-1, 100), st.just("fail")), min_size=2, max_size=5))
def test_P23_the_first_outcome_counts(outcomes: list[int | str]) -> None:
    result, (delivery,) = deliveries(1)
    called: list[Delivery] = []
    delivery.add_done_callback(called.append)
    changed = [result.fail(KafkaError("no")) if outcome == "fail" else result.complete(int(outcome)) for outcome in outcomes]
    assert changed == [True] + [False] * (len(outcomes) - 1)
    assert (delivery.exception() is None) == (outcomes[0] != "fail")
    assert called == [delivery]


class Kept:
    """Something large that a function has at hand."""


@pytest.mark.parametrize("look", [lambda delivery: delivery.result(0), lambda delivery: _raise(delivery.exception(0))], ids=["result", "exception"])
def test_a_failed_delivery_keeps_no_frame_of_its_error_alive(look: Callable[[Delivery], object]) -> None:
    buffers, seen = accumulator(Clock()), []

    def send_and_look() -> None:
        large = Kept()
        seen.append(weakref.ref(large))
        topic = buffers.topic("orders")
        assert topic is not None
        delivery = buffers.append(topic, 0, -1, None, b"v", None)
        assert delivery is not None
        for batch in buffers.flush_open():
            batch.result.fail(KafkaError("no"))
        with pytest.raises(KafkaError):
            look(delivery)
        look(delivery)

    with pytest.raises(KafkaError):
        send_and_look()
    gc.collect()
    assert [each() for each in seen] == [None]


def _raise(error: BaseException | None) -> None:
    assert error is not None
    raise error


def test_an_error_raised_repeatedly_keeps_its_cause_and_no_earlier_traceback() -> None:
    batch, (delivery,) = deliveries(1)
    cause = ValueError("why")
    failure = KafkaError("no")
    failure.__cause__ = cause
    batch.fail(failure)
    for _ in range(3):
        with pytest.raises(KafkaError, match="no") as caught:
            delivery.result(0)
        assert caught.value.__cause__ is cause
    assert failure.__traceback__ is None


def test_a_pending_delivery_says_so() -> None:
    result, (delivery,) = deliveries(1)
    assert "pending" in repr(delivery)
    with pytest.raises(KafkaTimeoutError, match="not acknowledged after 0 s"):
        delivery.result(0)
    result.complete(5)
    assert "offset=5" in repr(delivery)


# --- waiting ---------------------------------------------------------------------------------------------------------


def test_every_waiting_thread_wakes() -> None:
    result, made = deliveries(5)
    seen: list[RecordMetadata] = []
    threads = [threading.Thread(target=lambda each=each: seen.append(each.result(20))) for each in made]
    for thread in threads:
        thread.start()
    result.complete(7)
    for thread in threads:
        thread.join(20)
    assert sorted(each.offset or 0 for each in seen) == [7, 8, 9, 10, 11]


def test_a_very_long_timeout_is_no_error() -> None:
    result, (delivery,) = deliveries(1)
    thread = threading.Thread(target=lambda: delivery.result(float("inf")))
    thread.start()
    result.complete(1)
    thread.join(20)
    assert not thread.is_alive()


def test_waits_that_time_out_leave_no_waiters() -> None:
    result, (delivery,) = deliveries(1)
    before = len(gc.get_referrers(result)), sys.getallocatedblocks()
    for _ in range(2000):
        assert not result.wait(0)
        assert not result.wait(1e-9)
    assert sys.getallocatedblocks() - before[1] < 500
    assert not delivery.done()


def test_await_returns_what_result_returns() -> None:
    result, (delivery,) = deliveries(1, Awaits())
    steps = delivery.__await__()
    next(steps)
    result.complete(3)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value == RecordMetadata("orders", 3, 3, 1000)


# --- callbacks -------------------------------------------------------------------------------------------------------


def test_P23_callbacks_run_in_the_order_they_were_added_also_those_added_when_done() -> None:
    result, made = deliveries(3)
    called: list[Delivery] = []
    for delivery in made:
        delivery.add_done_callback(called.append)
    assert called == []
    result.complete(1)
    made[0].add_done_callback(called.append)
    assert called == [*made, made[0]]


def test_P23_a_callback_that_raises_does_not_keep_the_outcome_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    result, (delivery,) = deliveries(1)
    called: list[Delivery] = []

    def broken() -> None:
        raise RuntimeError("the loop is closed")

    result.when_done(broken)
    delivery.add_done_callback(called.append)
    assert result.complete(1)
    assert called == [delivery]
    assert "the loop is closed" in caplog.text


# --- failures that the user has not seen ---------------------------------------------------------------------------


def look_by_result(delivery: Delivery) -> None:
    with pytest.raises(KafkaError):
        delivery.result(0)


def look_by_exception(delivery: Delivery) -> None:
    assert delivery.exception(0) is not None


def look_by_callback(delivery: Delivery) -> None:
    delivery.add_done_callback(lambda done: None)


def look_by_await(delivery: Delivery) -> None:
    with pytest.raises(KafkaError):
        list(delivery.__await__())


@pytest.mark.parametrize("look", [look_by_result, look_by_exception, look_by_callback, look_by_await])
def test_every_way_to_read_the_outcome_marks_the_failure_as_seen(look: Any) -> None:
    observer = Awaits()
    result, made = deliveries(3, observer)
    result.fail(KafkaError("no"))
    look(made[1])
    look(made[1])
    count, causes = observer.take_failures()
    assert (count, list(causes)) == (2, [WHERE])


def test_a_failure_is_seen_by_a_callback_that_was_added_before() -> None:
    observer = Observer()
    result, made = deliveries(3, observer)
    made[0].add_done_callback(lambda done: None)
    result.fail(KafkaError("no"))
    assert observer.take_failures()[0] == 2


def test_done_and_repr_do_not_count_as_looking() -> None:
    observer = Observer()
    result, (delivery,) = deliveries(1, observer)
    result.fail(KafkaError("no"))
    assert delivery.done()
    repr(delivery)
    assert observer.take_failures()[0] == 1


def test_a_failure_is_reported_once() -> None:
    observer = Observer()
    result, _ = deliveries(2, observer)
    result.fail(KafkaError("the first"))
    count, causes = observer.take_failures()
    assert (count, {where: str(error) for where, error in causes.items()}) == (2, {WHERE: "the first"})
    assert observer.take_failures() == (0, {})


def test_looking_at_a_failure_that_was_reported_hides_no_later_one() -> None:
    observer = Observer()
    old, (early,) = deliveries(1, observer)
    old.fail(KafkaError("old"))
    assert observer.take_failures()[0] == 1
    new, _ = deliveries(1, observer)
    new.fail(KafkaError("new"))
    early.exception()
    count, causes = observer.take_failures()
    assert count == 1
    assert str(causes[WHERE].args[0]) == "new"


def test_a_success_is_never_counted() -> None:
    observer = Observer()
    result, (delivery,) = deliveries(1, observer)
    result.complete(1)
    delivery.exception()
    assert observer.take_failures() == (0, {})


class SeenAtOnce(Observer):
    """A thread that reads the outcome the moment it is visible, before any other continues."""

    def __init__(self) -> None:
        super().__init__()
        self.delivery: Delivery | None = None

    def failed(self, where: TopicPartition, count: int, error: KafkaError) -> int:
        assert self.delivery is not None
        assert not self.delivery.done(), "it could be seen before it was counted: then it is counted after it was seen"
        return super().failed(where, count, error)


def test_a_failure_is_counted_before_any_thread_can_see_it() -> None:
    observer = SeenAtOnce()
    result, (delivery,) = deliveries(1, observer)
    observer.delivery = delivery
    result.fail(KafkaError("no"))
    delivery.exception()
    assert observer.take_failures()[0] == 0


def test_failures_seen_by_many_threads_are_counted_exactly() -> None:
    observer = Observer()
    pairs = [deliveries(50, observer) for _ in range(20)]
    looked = [delivery for _, made in pairs for delivery in made[:30]]
    threads = [threading.Thread(target=lambda part=part: [each.exception(20) for each in part])
               for part in (looked[:200], looked[200:400], looked[400:])]
    for thread in threads:
        thread.start()
    for result, _ in pairs:
        result.fail(KafkaError("no"))
    for thread in threads:
        thread.join(20)
    eventually(lambda: not any(thread.is_alive() for thread in threads))
    assert observer.take_failures()[0] == 20 * 20
