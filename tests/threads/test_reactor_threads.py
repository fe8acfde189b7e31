"""Threads that lead one reactor: they wait, post, set timers and close it, and exceptions strike them from outside.

No wait has a limit, and nothing else happens while one lasts: a lost wake-up hangs the test.
"""
from __future__ import annotations

import functools
import itertools
import signal
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

import pytest

from pyclient.reactor.reactor import Reactor, Waiter
from pyclient.runtime.environment import new_poller, thread_reactor
from tests.raised_into import Interrupt, raise_into
from tests.threads.edges import Coin
from tests.threads.team import Team
from tests.waiting import eventually

CALLERS: Final = 3
ROUNDS: Final = 60
POSTS: Final = 60
STRIKES: Final = 60
LONGEST_S: Final = 0.002
NEVER_S: Final = 1000.0
"""With a limit a wait reads the clock, where the coin is tossed."""
Work = Callable[[], object]


class Steps:
    """Callbacks of a reactor. Notes what runs twice, beside another one, or in a thread that does not lead."""

    def __init__(self, reactor: Reactor, toss: Work) -> None:
        self.reactor = reactor
        self.ran: Counter[object] = Counter()
        self.wrong: list[str] = []
        self.leaders: list[int] = []
        self._toss = toss
        self._one = threading.Lock()

    def once(self, key: object, work: Work = lambda: None) -> Work:
        """A callback that does *work*, between two tosses: meanwhile other threads find the lock taken."""
        def run() -> None:
            if not self.reactor.leads:
                self.wrong.append(f"{key} runs in a thread that does not lead")
            if not self._one.acquire(blocking=False):
                self.wrong.append(f"{key} runs beside another callback")
            self._toss()
            self.ran[key] += 1
            self.leaders.append(threading.get_ident())
            work()
            self._toss()
            self._one.release()

        return run

    def check(self) -> None:
        """What ran, ran once and alone."""
        assert self.wrong == []
        assert set(self.ran.values()) <= {1}

    @property
    def changes(self) -> int:
        """How often another thread led than before."""
        return sum(a != b for a, b in itertools.pairwise(self.leaders))


@contextmanager
def background(reactor: Reactor) -> Iterator[threading.Thread]:
    """A thread that leads when no caller does."""
    thread = threading.Thread(target=reactor.run_forever, name="background", daemon=True)
    thread.start()
    yield thread
    reactor.close()
    thread.join(20)
    assert not thread.is_alive(), "the background thread still runs behind a close"
    reactor.poller.close()


# ---- waits ----------------------------------------------------------------------------------------------------------


class Caller:
    """Waits again and again, each time for something else; *other* is a thread that ends some of the waits."""

    def __init__(self, steps: Steps, name: str, chance: Random) -> None:
        self.steps, self.reactor, self.name, self.chance = steps, steps.reactor, name, chance
        self.keys = itertools.count()
        self.waiter: Waiter | None = None
        self.asked: Work | None = None
        """What the other thread shall do in this round."""
        self.here, self.there = socket.socketpair()
        for each in self.here, self.there:
            each.setblocking(False)
        self.reactor.call_soon(self._register)

    def _register(self) -> None:
        self.token = self.reactor.poller.register(self.here.fileno(), self._on_events)
        self.reactor.poller.arm(self.token, 1)

    def close(self) -> None:
        """Forget its sockets; call it in a step."""
        self.reactor.poller.unregister(self.token)
        self.here.close()
        self.there.close()

    def _on_events(self, _: int) -> None:
        try:
            read = self.here.recv(1)
        except BlockingIOError:
            read = b""
        self.reactor.poller.arm(self.token, 1)
        if read:
            self.step(self.end)()

    def step(self, work: Work) -> Work:
        return self.steps.once((self.name, next(self.keys)), work)

    def end(self) -> None:
        assert self.waiter is not None
        self.waiter.end()

    def prepare(self) -> None:
        """Make a waiter, and arrange that it ends once: by this thread, or by the other one."""
        self.waiter = Waiter(self.reactor)
        ways: list[Callable[[], object]] = [
            functools.partial(self.reactor.call_soon, self.step(self.end)),
            functools.partial(self.reactor.post, self.step(self.end)),
            functools.partial(self.reactor.call_soon, self.step(lambda: self.reactor.call_soon(self.step(self.end)))),
            functools.partial(self.reactor.call_soon, self.step(self.end_at_a_time)),
            functools.partial(self.there.send, b"x"),
            self.end]
        do = self.chance.choice(ways)
        if self.chance.random() < 0.6:
            self.asked = do
        else:
            self.asked = None
            do()

    def end_at_a_time(self) -> None:
        self.reactor.call_at(time.monotonic() + self.chance.uniform(0, LONGEST_S), self.step(self.end))

    def wait(self) -> None:
        assert self.waiter is not None
        assert self.reactor.run_until(self.waiter, self.chance.choice([None, NEVER_S]))
        assert self.waiter.done


@pytest.mark.parametrize("alone", [False, True], ids=["beside a background thread", "without one"])
def test_every_wait_ends_whichever_thread_ends_it_and_whichever_leads(seed: int, coin: Coin, alone: bool) -> None:
    chance = Random(seed)
    reactor = thread_reactor()
    steps = Steps(reactor, coin)
    callers = [Caller(steps, f"caller-{number}", Random(chance.random())) for number in range(CALLERS)]
    begun, prepared, ended = (threading.Barrier(CALLERS + 1) for _ in range(3))

    def call(number: int) -> None:
        for _ in range(ROUNDS):
            begun.wait()
            callers[number].prepare()
            prepared.wait()
            callers[number].wait()
            ended.wait()

    def end_waits() -> None:
        for _ in range(ROUNDS):
            begun.wait()
            prepared.wait()
            for each in chance.sample(callers, CALLERS):
                coin()
                if each.asked is not None:
                    each.asked()
            ended.wait()

    team = Team()
    team.add_many(CALLERS, call)
    team.add("end_waits", end_waits)
    if alone:
        team.run()
    else:
        with background(reactor):
            team.run()
    steps.check()
    assert steps.changes > ROUNDS
    for each in callers:
        each.close()
    reactor.poller.close()


def test_the_background_thread_passes_on_what_was_to_wake_a_caller(seed: int, coin: Coin) -> None:
    """The system wakes the sleeper that came last, which may be either."""
    reactor = thread_reactor()
    steps = Steps(reactor, coin)
    waiters = [Waiter(reactor) for _ in range(5 * ROUNDS)]
    begun = threading.Barrier(2)

    def call() -> None:
        for each in waiters:
            begun.wait()
            assert reactor.run_until(each)

    def end() -> None:
        for number, each in enumerate(waiters):
            begun.wait()
            for _ in range(2):
                coin()
                reactor.post(steps.once((number, "posted", _)))  # both sleepers wake, and go to sleep in any order
            coin()
            reactor.call_soon(steps.once((number, "end"), each.end))

    team = Team()
    team.add("call", call)
    team.add("end", end)
    with background(reactor):
        team.run()
    steps.check()


def test_a_wait_that_times_out_leaves_its_place_in_the_poller_to_the_next(seed: int, coin: Coin) -> None:
    reactor = thread_reactor()
    steps = Steps(reactor, coin)
    waiters = [Waiter(reactor) for _ in range(CALLERS)]
    gone = threading.Semaphore(0)

    def call(number: int) -> None:
        chance = Random(f"{seed}:{number}")
        for _ in range(ROUNDS):
            assert not reactor.run_until(Waiter(reactor), chance.uniform(0, LONGEST_S))
        gone.release()
        assert reactor.run_until(waiters[number])

    def end() -> None:
        for _ in waiters:
            assert gone.acquire(timeout=20)
        for number, each in enumerate(waiters):
            reactor.call_soon(steps.once(number, each.end))

    team = Team()
    team.add_many(CALLERS, call)
    team.add("end", end)
    team.run()
    steps.check()
    reactor.poller.close()


# ---- posts and timers -----------------------------------------------------------------------------------------------


def test_posted_calls_run_once_and_in_their_threads_order_while_others_wait(seed: int, coin: Coin) -> None:
    reactor = thread_reactor()
    steps = Steps(reactor, coin)
    order: dict[int, list[int]] = {number: [] for number in range(CALLERS)}
    waited = Waiter(reactor)

    def post(number: int) -> None:
        chance = Random(f"{seed}:{number}")
        for at in range(POSTS):
            (reactor.post if chance.random() < 0.1 else reactor.call_soon)(steps.once((number, at), functools.partial(run, number, at)))
            coin()

    def run(number: int, at: int) -> None:
        order[number].append(at)
        reactor.call_soon(steps.once(("inner", number, at)))
        if len(steps.ran) >= CALLERS * POSTS and all(len(each) == POSTS for each in order.values()):
            waited.end()

    team = Team()
    team.add_many(CALLERS, post)
    team.add("wait", lambda: reactor.run_until(waited))
    with background(reactor):
        team.run()
        eventually(lambda: len(steps.ran) == 2 * CALLERS * POSTS)
    steps.check()
    assert order == {number: list(range(POSTS)) for number in range(CALLERS)}


def test_timers_run_once_and_never_early_and_those_that_are_cancelled_do_not_run(seed: int, coin: Coin) -> None:
    reactor = thread_reactor()
    steps = Steps(reactor, coin)
    early: list[float] = []
    cancelled: set[object] = set()

    def set_timers(number: int) -> None:
        chance = Random(f"{seed}:{number}")
        for at in range(POSTS // 3):
            ended = Waiter(reactor)
            reactor.call_soon(steps.once((number, at, "set"), functools.partial(set_two, (number, at), chance, ended)))
            coin()
            reactor.run_until(ended)

    def set_two(key: object, chance: Random, ended: Waiter) -> None:
        """One ends the wait; the other is cancelled in a step before its time, or runs too."""
        when = time.monotonic() + chance.uniform(0, LONGEST_S)
        reactor.call_at(when, steps.once((key, "first"), functools.partial(run, when, ended.end)))
        late = when + chance.uniform(0, LONGEST_S)
        timer = reactor.call_at(late, steps.once((key, "second"), functools.partial(run, late, lambda: None)))
        if chance.random() < 0.5:
            cancelled.add((key, "second"))
            timer.cancel()

    def run(when: float, work: Work) -> None:
        if time.monotonic() < when:
            early.append(when - time.monotonic())
        work()

    team = Team()
    team.add_many(CALLERS, set_timers)
    with background(reactor):
        team.run()
        eventually(lambda: len(steps.ran) == CALLERS * (POSTS // 3) * 3 - len(cancelled))
    steps.check()
    assert early == []
    assert not cancelled & set(steps.ran)


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_close_while_callers_come_and_go_ends_the_background_thread_and_no_caller_sleeps_behind_it(seed: int, coin: Coin) -> None:
    chance = Random(seed)
    for _ in range(ROUNDS // 4):
        close_while_others_wait(coin, chance.randrange(40))


def close_while_others_wait(coin: Coin, tosses: int) -> None:
    reactor = thread_reactor()
    steps = Steps(reactor, coin)
    keys = itertools.count()

    def call(_: int) -> None:
        for _ in range(10):
            waiter = Waiter(reactor)
            reactor.call_soon(steps.once(next(keys), waiter.end))
            reactor.call_soon(steps.once(next(keys), functools.partial(go_on, 4)))
            assert reactor.run_until(waiter)

    def go_on(times: int) -> None:
        """In as many passes: a caller whose wait is over leaves some of them to the next leader."""
        if times:
            reactor.call_soon(steps.once(next(keys), functools.partial(go_on, times - 1)))

    def close() -> None:
        for _ in range(tosses):
            coin()
        reactor.close()

    def lead() -> None:
        reactor.run_forever()
        reactor.poller.close()  # as the portal's thread does: a caller that still slept in it would never wake

    team = Team()
    team.add_many(CALLERS, call)
    team.add("close", close)
    team.add("background", lead)
    team.run()
    steps.check()
    assert len(steps.ran) == 6 * 10 * CALLERS


# ---- exceptions from outside ----------------------------------------------------------------------------------------


class Pairs:
    """What a step changes in two places, with a switch of threads between: an exception there would show."""

    def __init__(self) -> None:
        self.first = self.second = 0

    def add(self) -> None:
        self.first += 1
        time.sleep(0)
        sum(range(50))
        self.second += 1


class Struck:
    """A thread that posts and waits, again and again, until it is over; what strikes it raises `Interrupt`."""

    def __init__(self, reactor: Reactor, seed: int) -> None:
        self.reactor = reactor
        self.steps = Steps(reactor, lambda: None)
        self.pairs = Pairs()
        self.posted: list[int] = []
        """Calls whose `call_soon` has returned."""
        self.struck = 0
        self.ready = self.over = False
        self._chance = Random(seed)
        self._keys = itertools.count()

    def run(self) -> None:
        while not self.over:
            try:
                self.ready = True
                while not self.over:
                    self.work()
            except Interrupt:
                self.struck += 1

    def work(self) -> None:
        key, waiter = next(self._keys), Waiter(self.reactor)

        def step() -> None:
            self.pairs.add()
            if self._chance.random() < 0.5:
                self.reactor.call_soon(waiter.end)
            else:
                self.reactor.call_at(time.monotonic() + self._chance.uniform(0, LONGEST_S / 4), waiter.end)

        self.reactor.call_soon(self.steps.once(key, step))
        self.posted.append(key)
        self.reactor.run_until(waiter)

    def check(self) -> None:
        """No step was broken off, no call was lost or ran twice, and the lock is free."""
        done = Waiter(self.reactor)
        self.reactor.call_soon(done.end)
        assert self.reactor.run_until(done)
        self.steps.check()
        assert self.pairs.first == self.pairs.second == len(self.steps.ran)
        assert set(self.posted) <= set(self.steps.ran)


def test_exceptions_raised_into_a_thread_that_leads_break_off_no_step_and_lose_no_call(seed: int) -> None:
    reactor = Reactor(new_poller(), time.monotonic, defers=True)
    struck, chance, pause = Struck(reactor, seed), Random(seed), threading.Event()
    with background(reactor):
        thread = threading.Thread(target=struck.run, name="struck", daemon=True)
        thread.start()
        for _ in range(STRIKES):
            eventually(lambda: struck.ready, every_s=0.0001)
            struck.ready = False
            pause.wait(chance.uniform(0, LONGEST_S))
            raise_into(thread.ident or 0, Interrupt)
        eventually(lambda: struck.ready)
        struck.over = True
        thread.join(20)
        assert not thread.is_alive()
        struck.check()
    assert struck.struck == STRIKES


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="this system sends no signals to threads")
@pytest.mark.parametrize("alone", [False, True], ids=["beside a background thread", "without one"])
def test_signals_to_the_main_thread_that_leads_break_off_no_step_and_lose_no_call(seed: int, alone: bool) -> None:
    reactor = Reactor(new_poller(), time.monotonic, defers=True)
    struck, chance, main = Struck(reactor, seed), Random(seed), threading.get_ident()
    pause = threading.Event()

    def handle(_number: int, _frame: Any) -> None:
        raise Interrupt

    def strike() -> None:
        for _ in range(STRIKES):
            eventually(lambda: struck.ready, every_s=0.0001)
            struck.ready = False
            pause.wait(chance.uniform(0, LONGEST_S))
            signal.pthread_kill(main, signal.SIGUSR1)
        eventually(lambda: struck.ready)
        struck.over = True

    before = signal.signal(signal.SIGUSR1, handle)
    thread = threading.Thread(target=strike, name="strike", daemon=True)
    try:
        if alone:
            thread.start()
            struck.run()
            struck.check()
        else:
            with background(reactor):
                thread.start()
                struck.run()
                struck.check()
    finally:
        thread.join(20)
        signal.signal(signal.SIGUSR1, before)
        reactor.poller.close()
    assert struck.struck == STRIKES
