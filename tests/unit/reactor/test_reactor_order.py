"""In which order a reactor runs what is posted, due and reported, and which deadline its poller gets."""
from __future__ import annotations

import logging
import random
from collections.abc import Callable

import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from pyclient.errors import IllegalStateError
from pyclient.reactor.pollers import READABLE, Sink
from pyclient.reactor.reactor import Reactor, Timer, Waiter
from tests.reactors import Sleepless
from tests.unit.reactor.played import At, Model, Player, Post, Soon, scripts

MOST_PASSES = 64  # as in the reactor


class NotedPoller(Sleepless):
    """Nothing sleeps in it; what it is given is noted."""

    def __init__(self) -> None:
        self.deadline: float | None = None
        self.wakes = 0

    def wake(self) -> None:
        self.wakes += 1

    def set_deadline(self, at: float | None) -> None:
        self.deadline = at


class Clock:
    """Stands still until it is set."""

    now = 0.0

    def __call__(self) -> float:
        return self.now


def idle() -> tuple[Reactor, NotedPoller, Clock]:
    poller, clock = NotedPoller(), Clock()
    return Reactor(poller, clock), poller, clock


# ---- the order, beside a model --------------------------------------------------------------------------------------


class Order(RuleBasedStateMachine):
    """A reactor and its model get the same scripts."""

    @initialize()
    def begin(self) -> None:
        logging.getLogger("pyclient.reactor").setLevel(logging.CRITICAL)  # errors on purpose
        reactor, self.poller, self.clock = idle()
        self.model = Model(self.clock)
        self.players = [Player(reactor, self.clock), Player(self.model, self.clock)]

    def teardown(self) -> None:
        logging.getLogger("pyclient.reactor").setLevel(logging.NOTSET)

    @rule(then=scripts)
    def call_soon(self, then: tuple[object, ...]) -> None:
        for player in self.players:
            player.act([Soon(then)])

    @rule(then=scripts)
    def post(self, then: tuple[object, ...]) -> None:
        for player in self.players:
            player.act([Post(then)])

    @rule(ticks=st.integers(-1, 5), then=scripts)
    def set_timer(self, ticks: int, then: tuple[object, ...]) -> None:
        for player in self.players:
            player.act([Soon((At(ticks, then),))])

    @rule(thens=st.lists(scripts, max_size=3), ticks=st.integers(0, 2))
    def step(self, thens: list[tuple[object, ...]], ticks: int) -> None:
        self.clock.now += ticks
        for player in self.players:
            player.target.step([(player.sink(then), READABLE) for then in thens])

    @invariant()
    def both_have_run_the_same_in_the_same_order(self) -> None:
        ours, models = self.players
        assert ours.ran == models.ran

    @invariant()
    def each_ran_once_and_no_timer_before_its_time_or_after_it_was_cancelled(self) -> None:
        ours = self.players[0]
        ran = dict(ours.ran)
        assert len(ran) == len(ours.ran)
        assert not ran.keys() & ours.cancelled
        assert all(at >= ours.planned[number] for number, at in ran.items() if number in ours.planned)

    @invariant()
    def the_poller_knows_of_a_deadline_that_is_not_too_late(self) -> None:
        first = self.model.first()
        assert first is None or (self.poller.deadline is not None and self.poller.deadline <= max(first, self.clock.now))


TestOrder = Order.TestCase
TestOrder.settings = settings(max_examples=25, stateful_step_count=12, deadline=None)


# ---- single rules ---------------------------------------------------------------------------------------------------


def test_timers_of_the_same_time_run_in_the_order_in_which_they_were_set() -> None:
    reactor, _, clock = idle()
    ran: list[int] = []
    numbers = list(range(50))
    for number in numbers:
        reactor.call_at(1.0, lambda number=number: ran.append(number))  # type: ignore[misc]
    clock.now = 1.0
    reactor.step()
    assert ran == numbers


def test_a_timer_that_is_cancelled_by_one_that_is_due_with_it_does_not_run() -> None:
    reactor, _, clock = idle()
    ran: list[str] = []
    timers: list[Timer] = []

    def cancel() -> None:
        timers[0].cancel()

    reactor.call_at(1.0, cancel)
    timers.append(reactor.call_at(1.0, lambda: ran.append("second")))
    clock.now = 2.0
    reactor.step()
    assert ran == []
    assert timers[0].cancelled()


def test_many_cancelled_timers_are_forgotten_and_the_others_run_in_order() -> None:
    reactor, _, clock = idle()
    ran: list[float] = []
    chance = random.Random(1)
    kept = [chance.uniform(1, 9) for _ in range(100)]
    timers = []
    for when in kept:
        reactor.call_at(when, lambda when=when: ran.append(when))  # type: ignore[misc]
        timers += [reactor.call_at(chance.uniform(1, 9), lambda: ran.append(-1)) for _ in range(5)]
    for timer in timers:
        timer.cancel()
        timer.cancel()
    clock.now = 10.0
    reactor.step()
    assert ran == sorted(kept)


def test_the_deadline_follows_the_earliest_timer_that_is_left() -> None:
    reactor, poller, clock = idle()
    timers = {}

    def set_timers() -> None:
        for when in (5.0, 3.0, 4.0):
            timers[when] = reactor.call_at(when, lambda: None)

    reactor.call_soon(set_timers)
    assert poller.deadline == 3.0
    reactor.call_soon(timers[3.0].cancel)
    assert poller.deadline == 3.0  # too early is allowed; a poller hears of no cancellation
    clock.now = 3.0
    reactor.step()
    assert poller.deadline == 4.0
    clock.now = 6.0
    reactor.step()
    assert poller.deadline is None


def test_what_a_callback_raises_is_logged_and_stops_no_other(caplog: pytest.LogCaptureFixture) -> None:
    reactor, _, _ = idle()
    ran: list[str] = []

    def fail(*_: object) -> None:
        raise LookupError("a defect")

    def post() -> None:
        reactor.call_soon(fail)
        reactor.call_soon(lambda: ran.append("soon"))

    reactor.post(post)
    reactor.step([(fail, READABLE), (lambda _: ran.append("sink"), READABLE)])
    assert ran == ["sink", "soon"]
    assert [each.getMessage().partition(":")[0] for each in caplog.records] == ["a defect in the client"] * 2


def test_an_exception_that_ends_programs_leaves_the_step_once_when_the_others_have_run() -> None:
    reactor, _, _ = idle()
    ran: list[str] = []

    def exit_program() -> None:
        raise SystemExit

    reactor.post(exit_program)
    reactor.post(lambda: ran.append("after"))
    with pytest.raises(SystemExit):
        reactor.step()
    assert ran == ["after"]
    reactor.step()
    reactor.call_soon(lambda: ran.append("next"))
    assert ran == ["after", "next"]


def test_a_step_within_a_step_and_a_wait_within_one_are_refused() -> None:
    reactor, _, _ = idle()
    refused: list[str] = []

    def nested() -> None:
        for work in (reactor.step, lambda: reactor.run_until(Waiter(reactor))):
            with pytest.raises(IllegalStateError) as caught:
                work()
            refused.append(str(caught.value))

    reactor.call_soon(nested)
    assert len(refused) == 2
    assert not reactor.leads


def again(reactor: Reactor, rounds: list[int]) -> Callable[[], None]:
    """Posts itself, for ever."""
    def run() -> None:
        rounds[0] += 1
        reactor.call_soon(run)

    return run


def test_work_that_posts_itself_ends_the_step_and_is_left_for_the_next_one() -> None:
    reactor, poller, _ = idle()
    rounds = [0]
    seen: list[int] = []
    reactor.call_soon(again(reactor, rounds))
    assert (rounds[0], poller.wakes) == (MOST_PASSES, 1)
    for step in range(3):
        reactor.step([(seen.append, READABLE)])
        assert len(seen) == step + 1
        assert (rounds[0], poller.wakes) == (MOST_PASSES * (step + 2), step + 2)


def test_work_that_is_posted_again_from_outside_ends_the_lead_too() -> None:
    """As finalizers and other threads do it, each time as the leader lets go."""
    reactor, poller, _ = idle()
    rounds = [0]

    def run() -> None:
        rounds[0] += 1
        reactor.post(run)

    reactor.post(run)
    wakes = poller.wakes
    reactor.step()
    assert rounds[0] <= 16 * MOST_PASSES  # rounds of a leader, and passes of a step
    assert poller.wakes > wakes


@pytest.mark.parametrize("more", range(5))
def test_a_wait_ends_in_the_pass_behind_the_one_that_ended_it_and_leaves_the_rest(more: int) -> None:
    ran: list[int] = []

    def follow(left: int) -> None:
        ran.append(left)
        if left:
            reactor.call_soon(lambda: follow(left - 1))

    def end(_events: int) -> None:
        waiter.end()
        follow(more)

    class Sleeper(NotedPoller):
        """Where an event has come."""

        shared = True
        wakes_any = False

        def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
            return [(end, READABLE)]

    poller = Sleeper()
    reactor = Reactor(poller, Clock())
    waiter = Waiter(reactor)
    everything = list(range(more, -1, -1))
    assert reactor.run_until(waiter)
    assert ran == everything[:3]  # two in the event's pass: what it posts is ready in it
    assert poller.wakes == (more > 2)  # another thread goes on with the rest
    reactor.step()
    assert ran == everything
