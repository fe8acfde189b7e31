"""How many records a loop is given at a time."""
from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pyclient.config import ConsumerConfig
from pyclient.runtime.stride import LONGEST, MOMENT_S, Stride


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def stride(clock: Clock, **options: Any) -> Stride:
    return Stride(ConsumerConfig.parse({}, {"bootstrap_servers": "localhost:9092", **options}), clock)


def gone_through(clock: Clock, each: Stride, seconds: float, count: int | None = None) -> int:
    """The loop takes its time for what it is given; the next size."""
    each.begin(each.next() if count is None else count)
    clock.now += seconds
    return each.next()


def test_a_quick_loop_is_given_more_and_more_and_never_more_than_the_most() -> None:
    clock = Clock()
    ours = stride(clock)
    sizes = [gone_through(clock, ours, 0.0) for _ in range(10)]
    assert sizes[0] >= 500
    assert sizes == sorted(sizes)
    assert sizes[-1] == LONGEST


def test_what_is_not_there_is_no_reason_to_ask_for_more() -> None:
    clock = Clock()
    ours = stride(clock)
    assert {gone_through(clock, ours, 0.0, count=3) for _ in range(10)} == {500}


def test_a_loop_that_becomes_slow_is_given_less_soon() -> None:
    clock = Clock()
    ours = stride(clock)
    for _ in range(10):
        gone_through(clock, ours, 0.0)
    assert gone_through(clock, ours, 3 * MOMENT_S) == LONGEST // 4
    assert [gone_through(clock, ours, 3 * MOMENT_S) for _ in range(4)][-1] == 500


@given(st.lists(st.floats(0, 1), max_size=20), st.integers(1, 100_000))
def test_max_poll_records_that_was_set_is_what_a_loop_gets(times: list[float], limit: int) -> None:
    clock = Clock()
    ours = stride(clock, max_poll_records=limit)
    assert {ours.next(), *(gone_through(clock, ours, each) for each in times)} == {limit}
