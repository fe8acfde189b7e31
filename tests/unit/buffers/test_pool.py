"""Memory of a producer: accounted to the byte, never more than its total, first come first served."""
from __future__ import annotations

import inspect
from collections.abc import Callable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from pyclient.buffers.pool import SMALLEST, Pool, Waiter

TOTAL = 64 * 1024
LARGEST = 16 * 1024
NEEDS = st.one_of(st.integers(1, LARGEST), st.integers(1, TOTAL), st.sampled_from([SMALLEST, SMALLEST + 1, LARGEST, LARGEST + 1, TOTAL]))


def add_waiter(pool: Pool, size: int, notify: Callable[[], object], allowed: Callable[[], bool] = lambda: True) -> Waiter:
    waiter = Waiter(notify)
    pool.wait(waiter, size, allowed)
    return waiter


class PoolRules(RuleBasedStateMachine):
    """Senders take, wait, leave and return buffers in any order; batches are compressed meanwhile."""

    def __init__(self) -> None:
        super().__init__()
        self.pool = Pool(TOTAL, LARGEST)
        self.held: list[bytearray] = []
        self.charges: list[int] = []
        self.waiting: list[Waiter] = []
        self.granted: list[Waiter] = []
        self.waits = 0
        self.numbers: dict[Waiter, int] = {}
        self.notified: list[int] = []

    # --- what senders do ---------------------------------------------------------------------------------------------

    @rule(need=NEEDS)
    def take(self, need: int) -> None:
        size = self.pool.size_for(need)
        buffer = self.pool.take(size)
        if self.waiting:
            assert buffer is None, "P03: a newcomer overtook waiters"
        elif buffer is None:
            assert self.pool.used + size > TOTAL, "refused although there was room"
        else:
            assert len(buffer) == size >= need
            self.held.append(buffer)

    @rule(need=NEEDS)
    def wait(self, need: int) -> None:
        size = self.pool.size_for(need)
        number = self.waits = self.waits + 1
        waiter = add_waiter(self.pool, size, lambda: self.notified.append(number))
        self.numbers[waiter] = number
        self.waiting.append(waiter)
        self.serve()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def give(self, data: st.DataObject) -> None:
        self.pool.give(self.held.pop(data.draw(st.integers(0, len(self.held) - 1))))
        self.serve()

    @precondition(lambda self: self.held)
    @rule(data=st.data())
    def compress(self, data: st.DataObject) -> None:
        """A smaller output replaces the buffer."""
        buffer = self.held.pop(data.draw(st.integers(0, len(self.held) - 1)))
        size = data.draw(st.integers(0, len(buffer) - 1))
        self.pool.swap(buffer, size)
        self.charges.append(size)
        self.serve()

    @precondition(lambda self: self.charges)
    @rule(data=st.data())
    def discharge(self, data: st.DataObject) -> None:
        self.pool.discharge(self.charges.pop(data.draw(st.integers(0, len(self.charges) - 1))))
        self.serve()

    @precondition(lambda self: self.waiting)
    @rule(data=st.data())
    def give_up(self, data: st.DataObject) -> None:
        self.pool.leave(self.waiting.pop(data.draw(st.integers(0, len(self.waiting) - 1))))
        self.serve()

    @precondition(lambda self: self.granted)
    @rule(data=st.data(), use=st.booleans())
    def end_wait(self, data: st.DataObject, use: bool) -> None:
        waiter = self.granted.pop(data.draw(st.integers(0, len(self.granted) - 1)))
        if use:
            assert waiter.grant is not None
            buffer, waiter.grant = waiter.grant, None
            self.held.append(buffer)
        self.pool.leave(waiter)
        self.pool.leave(waiter)  # a second time does nothing
        self.serve()

    # --- what must hold ----------------------------------------------------------------------------------------------

    def serve(self) -> None:
        """Every waiter with a grant came before every waiter without one."""
        served = [waiter for waiter in self.waiting if waiter.grant is not None]
        assert served == self.waiting[: len(served)], "P03: a waiter was overtaken"
        assert all(len(waiter.grant or b"") == waiter.size for waiter in served)
        self.granted += served
        self.waiting = self.waiting[len(served) :]

    @invariant()
    def accounts_are_exact(self) -> None:
        grants = [waiter.grant for waiter in self.granted if waiter.grant is not None]
        assert self.pool.used == sum(map(len, self.held)) + sum(self.charges) + sum(map(len, grants))
        assert self.pool.waiting == len(self.waiting)

    @invariant()
    def the_total_is_never_exceeded(self) -> None:
        assert self.pool.used >= 0
        assert self.pool.used + self.pool.free_bytes <= TOTAL

    @invariant()
    def the_first_in_line_waits_only_when_there_is_no_room(self) -> None:
        assert not self.waiting or self.pool.used + self.waiting[0].size > TOTAL

    @invariant()
    def each_grant_is_notified_once(self) -> None:
        assert len(self.notified) == len(set(self.notified))
        assert {self.numbers[waiter] for waiter in self.granted} <= set(self.notified)
        assert not {self.numbers[waiter] for waiter in self.waiting} & set(self.notified)

    def teardown(self) -> None:
        for waiter in [*self.granted, *self.waiting]:
            self.pool.leave(waiter)
        for buffer in self.held:
            self.pool.give(buffer)
        for size in self.charges:
            self.pool.discharge(size)
        assert self.pool.used == 0
        assert self.pool.waiting == 0


TestPool = PoolRules.TestCase
TestPool.settings = settings(max_examples=60, stateful_step_count=40)


@given(total=st.integers(1, 100_000), largest=st.integers(1, 100_000), need=st.integers(1, 100_000))
def test_a_buffer_holds_what_is_needed_and_wastes_less_than_half_of_itself(total: int, largest: int, need: int) -> None:
    size = Pool(total, largest).size_for(need)
    assert size >= need
    assert size <= max(2 * need, SMALLEST)


def test_the_buffer_given_back_last_is_taken_first() -> None:
    pool = Pool(TOTAL, LARGEST)
    first, second = pool.take(SMALLEST), pool.take(SMALLEST)
    assert first is not None
    assert second is not None
    pool.give(first)
    pool.give(second)
    assert pool.take(SMALLEST) is second
    assert pool.take(SMALLEST) is first


def test_free_buffers_make_room_for_other_sizes() -> None:
    pool = Pool(TOTAL, LARGEST)
    taken = [pool.take(LARGEST) for _ in range(TOTAL // LARGEST)]
    for buffer in taken:
        assert buffer is not None
        pool.give(buffer)
    assert pool.free_bytes == TOTAL
    assert len(pool.take(TOTAL) or b"") == TOTAL
    assert pool.free_bytes == 0


@pytest.mark.parametrize("leaves", [True, False])
def test_P03_a_waiter_that_leaves_lets_the_next_one_pass(leaves: bool) -> None:
    pool = Pool(TOTAL, LARGEST)
    half = pool.take(TOTAL // 2)
    assert half is not None
    large, small = add_waiter(pool, TOTAL, lambda: None), add_waiter(pool, SMALLEST, lambda: None)
    assert (large.grant, small.grant) == (None, None)
    if leaves:
        pool.leave(large)
        assert small.grant is not None
    else:
        pool.give(half)
        assert large.grant is not None
        assert small.grant is None


def test_P08_ending_the_waits_notifies_every_waiter_and_grants_nothing() -> None:
    pool = Pool(TOTAL, LARGEST)
    pool.take(TOTAL)
    notified: list[int] = []
    waiters = [add_waiter(pool, SMALLEST, lambda number=number: notified.append(number)) for number in range(3)]  # type: ignore[misc]
    pool.end_waits()
    assert notified == [0, 1, 2]
    assert [waiter.grant for waiter in waiters] == [None, None, None]
    assert pool.waiting == 0


def test_Ctrl_C_cannot_come_between_two_lines_of_the_pool() -> None:
    """Python raises it between the instructions it interprets: a buffer taken would be lost, one given back doubled."""
    assert not inspect.isfunction(Pool.take), "the pool is not compiled"


def test_P03_a_waiter_set_aside_is_overtaken_and_queued_when_allowed() -> None:
    pool, notified = Pool(TOTAL, LARGEST), list[str]()
    allowed: list[bool] = []
    aside = add_waiter(pool, SMALLEST, lambda: notified.append("aside"), lambda: bool(allowed))
    other = add_waiter(pool, SMALLEST, lambda: notified.append("other"))
    assert (notified, aside.grant, pool.waiting) == (["other"], None, 0)
    pool.readmit()
    assert notified == ["other"]
    allowed.append(True)
    pool.readmit()
    assert notified == ["other", "aside"]
    for each in (aside, other):
        pool.leave(each)
    assert pool.used == 0
