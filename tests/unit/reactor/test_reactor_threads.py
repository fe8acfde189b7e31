"""Threads that lead one reactor: who sleeps in the poller, who waits, and that each wait and each event ends."""
from __future__ import annotations

import functools
import os
import socket
import threading
import time
from collections.abc import Iterator
from random import Random

import pytest
from hypothesis import given, settings, strategies as st

from pyclient.reactor.pollers import READABLE, Poller, Sink
from pyclient.reactor.reactor import Reactor, Waiter
from tests.forks import fork
from tests.unit.reactor.test_pollers import LIMIT_S, MAKERS, Make, every_poller, pair
from tests.waiting import eventually


class CountedPoller:
    """Another poller, and which threads sleep in it."""

    def __init__(self, inner: Poller, *, wakes_any: bool) -> None:
        self._inner = inner
        self.shared, self.wakes_any = inner.shared, wakes_any
        self.sleepers: set[int] = set()
        self.most: int = 0
        for name in ("register", "arm", "unregister", "wake", "set_deadline", "close"):
            setattr(self, name, getattr(inner, name))

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        this = threading.get_ident()
        self.sleepers.add(this)
        self.most = max(self.most, len(self.sleepers))
        try:
            return self._inner.sleep(timeout)
        finally:
            self.sleepers.discard(this)


class Threads:
    """A reactor, its background thread and callers."""

    def __init__(self, make: Make, *, background: bool = True, wakes_any: bool | None = None) -> None:
        inner = make()
        self.poller = CountedPoller(inner, wakes_any=inner.wakes_any if wakes_any is None else wakes_any)
        self.reactor = Reactor(self.poller)  # type: ignore[arg-type]  # its other methods are the inner one's
        self.background = threading.Thread(target=self.reactor.run_forever, daemon=True)
        self.callers: list[threading.Thread] = []
        self.ended: dict[int, object] = {}
        if background:
            self.background.start()
            eventually(lambda: self.poller.sleepers, every_s=0.001)

    def wait(self, number: int, waiter: Waiter, timeout: float | None = None) -> threading.Thread:
        """Wait in a thread of its own; `ended` gets what the wait returned."""
        def run() -> None:
            try:
                self.ended[number] = self.reactor.run_until(waiter, timeout)
            except BaseException as error:  # noqa: BLE001 looked at by the test
                self.ended[number] = error

        thread = threading.Thread(target=run, daemon=True)
        self.callers.append(thread)
        thread.start()
        return thread

    def is_watched(self) -> bool:
        """Whether the thread sleeps in the poller that is to: a caller, where it is shared."""
        return len(self.poller.sleepers - {self.background.ident}) == 1 if self.poller.shared else len(self.poller.sleepers) == 1

    def close(self) -> None:
        self.reactor.close()
        for each in self.callers:
            each.join(LIMIT_S)
            assert not each.is_alive()
        if self.background.ident is not None:
            self.background.join(LIMIT_S)
            assert not self.background.is_alive()
        self.poller.close()  # type: ignore[attr-defined]


@pytest.fixture
def threads(make: Make) -> Iterator[Threads]:
    made = Threads(make)
    yield made
    made.close()


# ---- the background thread ------------------------------------------------------------------------------------------


@every_poller
def test_a_post_of_another_thread_runs_in_the_background_and_a_call_in_the_thread_that_makes_it(threads: Threads) -> None:
    ran: list[int | None] = []
    for _ in range(100):
        threads.reactor.post(lambda: ran.append(threading.get_ident()))
    eventually(lambda: len(ran) == 100, every_s=0.001)
    assert set(ran) == {threads.background.ident}
    threads.reactor.call_soon(lambda: ran.append(threading.get_ident()))
    eventually(lambda: len(ran) == 101, every_s=0.001)  # the background thread may lead just now, and run it


@every_poller
def test_a_timer_of_another_thread_wakes_the_sleeper_earlier(threads: Threads) -> None:
    ran: list[str] = []
    reactor = threads.reactor

    def set_timer(after: float, name: str) -> None:
        reactor.call_soon(lambda: reactor.call_at(reactor.clock() + after, lambda: ran.append(name)))

    set_timer(1000, "late")
    set_timer(0.5, "later")
    set_timer(0.001, "early")
    eventually(lambda: "early" in ran, every_s=0.001)
    eventually(lambda: "later" in ran, every_s=0.001)
    assert ran == ["early", "later"]


@every_poller
def test_work_that_posts_itself_starves_no_socket_no_timer_and_no_caller(threads: Threads) -> None:
    reactor, seen, over = threads.reactor, [], threading.Event()
    ours, theirs = pair()

    def again() -> None:
        if not over.is_set():
            reactor.call_soon(again)

    def sink(_events: int) -> None:
        seen.append("socket")

    with ours, theirs:
        reactor.call_soon(again)
        reactor.call_soon(lambda: threads.poller.arm(threads.poller.register(ours.fileno(), sink), READABLE))  # type: ignore[attr-defined]
        reactor.call_soon(lambda: reactor.call_at(reactor.clock() + 0.001, lambda: seen.append("timer")))
        theirs.send(b"x")
        waiter = Waiter(reactor)
        threads.wait(0, waiter)
        eventually(lambda: {"socket", "timer"} <= set(seen))
        threading.Thread(target=waiter.end, daemon=True).start()
        eventually(lambda: threads.ended == {0: True})
        over.set()


# ---- callers --------------------------------------------------------------------------------------------------------


@every_poller
def test_a_wait_returns_when_its_time_is_over_and_may_be_made_again(threads: Threads) -> None:
    waiter = Waiter(threads.reactor)
    begun = time.monotonic()
    assert threads.reactor.run_until(waiter, 0.01) is False
    assert time.monotonic() >= begun + 0.01
    assert threads.reactor.run_until(waiter, 0) is False
    waiter.end()
    assert threads.reactor.run_until(waiter) is True
    assert threads.reactor.run_until(waiter, 0) is True


@every_poller
def test_one_caller_sleeps_in_a_shared_poller_and_the_others_wait_outside(threads: Threads) -> None:
    waiters = [Waiter(threads.reactor) for _ in range(6)]
    for number, waiter in enumerate(waiters):
        threads.wait(number, waiter)
    eventually(threads.is_watched, every_s=0.001)
    for waiter in waiters:
        waiter.end()
    eventually(lambda: len(threads.ended) == len(waiters), every_s=0.001)
    assert threads.poller.most <= 1 + threads.poller.shared


@settings(max_examples=15, deadline=None)
@given(order=st.permutations(range(5)), limited=st.sets(st.integers(0, 4)), name=st.sampled_from(sorted(MAKERS)))
def test_callers_end_in_any_order_and_one_of_the_rest_goes_to_the_poller(order: list[int], limited: set[int], name: str) -> None:
    """Those with a limit end without help."""
    threads = Threads(MAKERS[name])
    try:
        waiters = [Waiter(threads.reactor) for _ in order]
        for number, waiter in enumerate(waiters):
            threads.wait(number, waiter, 0.002 if number in limited else None)
        left = set(order)
        for number in order:
            if number not in limited:
                waiters[number].end()
            left.discard(number)
            eventually(lambda number=number: number in threads.ended, every_s=0.001)  # type: ignore[misc]
            if left - limited:
                eventually(threads.is_watched, every_s=0.001)
        assert threads.ended == {number: number not in limited for number in order}
    finally:
        threads.close()


shared_pollers = pytest.mark.parametrize("make", [each for name, each in MAKERS.items() if name == "epoll"], ids=["epoll"][:"epoll" in MAKERS])


@shared_pollers
def test_the_background_thread_stands_aside_while_a_caller_is_in_the_poller_and_comes_back(make: Make) -> None:
    threads = Threads(make)
    seen: list[int] = []
    waiters: list[Waiter] = []
    ours, theirs = pair()

    def sink(events: int) -> None:
        if not events & READABLE:  # a new socket has room to write, which may come first
            return
        if not seen:  # in the background: let a caller come meanwhile
            waiters.append(Waiter(threads.reactor))
            threads.wait(0, waiters[0])
            eventually(threads.is_watched, every_s=0.001)
        ours.recv(100)
        seen.append(threading.get_ident())

    def report() -> None:
        count = len(seen)
        theirs.send(b"x")
        eventually(lambda: len(seen) > count, every_s=0.001)

    with ours, theirs:
        try:
            threads.reactor.call_soon(lambda: threads.poller.register(ours.fileno(), sink))  # type: ignore[attr-defined]
            eventually(lambda: threads.poller.sleepers == {threads.background.ident}, every_s=0.001)
            for _ in range(50):
                report()
            (caller,) = threads.callers
            assert seen == [threads.background.ident] + 49 * [caller.ident]
            assert threads.poller.sleepers <= {caller.ident}
            waiters[0].end()
            eventually(lambda: threads.poller.sleepers == {threads.background.ident}, every_s=0.001)
            report()
            assert seen[-1] == threads.background.ident
        finally:
            threads.close()


@shared_pollers
def test_the_background_thread_sleeps_beside_a_caller_in_a_poller_that_decides_itself_whom_it_wakes(make: Make) -> None:
    threads = Threads(make, background=False, wakes_any=False)
    waiter = Waiter(threads.reactor)
    try:
        caller = threads.wait(0, waiter)
        eventually(lambda: threads.poller.sleepers == {caller.ident}, every_s=0.001)
        threads.background.start()
        eventually(lambda: threads.poller.sleepers == {caller.ident, threads.background.ident}, every_s=0.001)
        waiter.end()
    finally:
        threads.close()


@shared_pollers
def test_what_is_posted_behind_the_last_wait_is_run_while_the_background_thread_stands_aside(make: Make) -> None:
    threads = Threads(make)
    ran: list[int] = []
    try:
        for number in range(200):
            waiter = Waiter(threads.reactor)
            threads.reactor.call_soon(lambda: threads.reactor.call_at(threads.reactor.clock() + 0.0001, waiter.end))  # noqa: B023 ended below
            assert threads.reactor.run_until(waiter, LIMIT_S)
            threads.reactor.post(lambda: ran.append(1))
            eventually(lambda number=number: len(ran) == number + 1, every_s=0.0001)  # type: ignore[misc]
    finally:
        threads.close()


@shared_pollers
def test_without_a_background_thread_callers_handle_all_events_of_each_other(make: Make) -> None:
    """Each waits for a byte of its own; the thread that sleeps in the poller gets the bytes of all."""
    threads = Threads(make, background=False)
    chance, count = Random(1), 6
    pairs = [pair() for _ in range(count)]
    waiters = [Waiter(threads.reactor) for _ in range(count)]
    for (ours, _), waiter in zip(pairs, waiters, strict=True):
        threads.poller.register(ours.fileno(), functools.partial(_on_byte, ours, waiter))  # type: ignore[attr-defined]
    for number, waiter in enumerate(waiters):
        threads.wait(number, waiter)
    eventually(lambda: threads.poller.sleepers, every_s=0.001)
    order = list(range(count))
    chance.shuffle(order)
    for number in order:
        pairs[number][1].send(b"x")
        eventually(lambda number=number: threads.ended.get(number) is True, every_s=0.001)  # type: ignore[misc]
    threads.close()
    for each in pairs:
        for sock in each:
            sock.close()


def _on_byte(sock: socket.socket, waiter: Waiter, events: int) -> None:
    if events & READABLE:
        try:
            sock.recv(16)
        except BlockingIOError:
            return
        waiter.end()


@every_poller
def test_calls_of_many_threads_each_end_while_others_post(threads: Threads) -> None:
    """As users' threads do: post work, and wait until it has run."""
    problems: list[BaseException] = []

    def call(number: int) -> None:
        try:
            for _ in range(100):
                waiter = Waiter(threads.reactor)
                if number % 2:
                    threads.reactor.call_soon(waiter.end)
                else:
                    threads.reactor.post(waiter.end)
                assert threads.reactor.run_until(waiter, LIMIT_S)
        except BaseException as error:  # noqa: BLE001 looked at below
            problems.append(error)

    callers = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(4)]
    for each in callers:
        each.start()
    for each in callers:
        each.join(LIMIT_S * 2)
        assert not each.is_alive()
    assert not problems


# ---- the end --------------------------------------------------------------------------------------------------------


@every_poller
def test_a_closed_reactors_thread_ends_when_no_caller_waits_any_more(make: Make) -> None:
    """Nor one that is about to go to the poller, which is closed then."""
    for _ in range(20):
        threads = Threads(make)
        waiters = [Waiter(threads.reactor) for _ in range(3)]
        for number, waiter in enumerate(waiters):
            threads.wait(number, waiter)
        eventually(lambda: len(threads.poller.sleepers) == 1 + threads.poller.shared, every_s=0.001)  # noqa: B023 called at once
        if not threads.poller.shared:  # the callers wait outside: they need no poller
            for waiter in waiters:
                waiter.end()
        threads.reactor.close()
        for number, waiter in enumerate(waiters):
            waiter.end()
            eventually(lambda number=number: number in threads.ended, every_s=0.0001)  # type: ignore[misc]  # noqa: B023
        threads.close()
        assert threads.ended == dict.fromkeys(range(3), True)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
@every_poller
def test_a_forked_child_lets_go_and_the_parents_sockets_are_reported_all_the_same(make: Make) -> None:
    poller = make()
    reactor = Reactor(poller)
    ours, theirs = pair()
    seen: list[int] = []
    poller.arm(poller.register(ours.fileno(), seen.append), READABLE)
    reactor.step(poller.sleep(0))
    before = len(seen)
    if not (child := fork()):
        try:
            reactor.forked()
            os._exit(0 if reactor.closed else 1)
        finally:
            os._exit(2)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    theirs.send(b"x")
    reactor.step(poller.sleep(LIMIT_S))
    assert any(events & READABLE for events in seen[before:])
    poller.close()
    ours.close()
    theirs.close()


