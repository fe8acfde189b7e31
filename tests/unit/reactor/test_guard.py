"""Signals, and exceptions of other threads, that come while a step runs interpreted code: once, and when it is over."""
from __future__ import annotations

import contextlib
import os
import signal
import sys
import sysconfig
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from pyclient.reactor.deferred_exceptions import DeferredExceptions
from pyclient.reactor.deferred_signals import DeferredSignals
from pyclient.reactor.guard import Guard
from pyclient.reactor.reactor import Reactor
from tests.forks import fork
from tests.interrupted_at import interrupted_at
from tests.raised_into import Interrupt, raise_into
from tests.unit.reactor.test_reactor_order import Clock, NotedPoller

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="Windows has other signals")
holds_exceptions = pytest.mark.skipif(bool(sysconfig.get_config_var("Py_GIL_DISABLED")), reason="free-threaded builds hold none")
USED = [signal.SIGUSR1, signal.SIGUSR2, signal.SIGINT] if sys.platform != "win32" else []


@pytest.fixture
def seen() -> Iterator[list[int]]:
    """Signals whose handlers have run; SIGINT's raises besides."""
    found: list[int] = []

    def handler(number: int, _frame: object) -> None:
        found.append(number)
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    before = [(number, signal.signal(number, handler)) for number in USED]
    yield found
    for number, each in before:
        signal.signal(number, each)


def handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in USED}


def ctrl_c() -> None:
    signal.raise_signal(signal.SIGINT)


def usr1() -> None:
    signal.raise_signal(signal.SIGUSR1)


# ---- signals --------------------------------------------------------------------------------------------------------


def test_a_signals_handler_runs_once_and_at_the_release(seen: list[int]) -> None:
    deferred, before = DeferredSignals(), handlers()
    held = deferred.hold()
    signal.raise_signal(signal.SIGUSR1)
    signal.raise_signal(signal.SIGUSR2)
    assert not seen
    deferred.release(held)
    assert seen == [signal.SIGUSR1, signal.SIGUSR2]
    assert handlers() == before
    deferred.release(deferred.hold())
    assert len(seen) == 2


def test_all_that_came_is_handled_although_one_handler_raises(seen: list[int]) -> None:
    deferred = DeferredSignals()
    held = deferred.hold()
    for number in (signal.SIGUSR1, signal.SIGINT, signal.SIGINT, signal.SIGUSR2):
        signal.raise_signal(number)
    with pytest.raises(KeyboardInterrupt):
        deferred.release(held)
    assert seen == [signal.SIGUSR1, signal.SIGINT, signal.SIGINT, signal.SIGUSR2]


def test_ignored_and_default_signals_are_left_as_they_are(seen: list[int]) -> None:
    deferred = DeferredSignals()
    signal.signal(signal.SIGUSR1, signal.SIG_IGN)
    held = deferred.hold()
    assert signal.getsignal(signal.SIGUSR1) is signal.SIG_IGN
    signal.raise_signal(signal.SIGUSR1)
    deferred.release(held)
    assert not seen


def test_a_handler_that_was_replaced_between_two_holds_is_the_one_that_runs(seen: list[int]) -> None:
    deferred, other = DeferredSignals(), []
    deferred.release(deferred.hold())
    signal.signal(signal.SIGUSR1, lambda *_: other.append(True))
    held = deferred.hold()
    signal.raise_signal(signal.SIGUSR1)
    deferred.release(held)
    assert (seen, other) == ([], [True])


def test_two_reactors_that_hold_within_each_other_release_to_the_outer_one(seen: list[int]) -> None:
    """A callback of one client that calls another client."""
    outer, inner = DeferredSignals(), DeferredSignals()
    before = handlers()
    held = outer.hold()
    nested = inner.hold()
    signal.raise_signal(signal.SIGUSR1)
    inner.release(nested)
    assert not seen
    outer.release(held)
    assert seen == [signal.SIGUSR1]
    assert handlers() == before


def test_only_the_main_thread_holds_them(seen: list[int]) -> None:
    deferred, held = DeferredSignals(), []
    thread = threading.Thread(target=lambda: held.append(deferred.hold()))
    thread.start()
    thread.join()
    assert held == [None]
    deferred.release(None)
    signal.raise_signal(signal.SIGUSR1)
    assert seen == [signal.SIGUSR1]


def test_ctrl_c_at_any_byte_code_of_a_hold_or_a_release_restores_all_handlers_and_loses_no_signal(seen: list[int]) -> None:
    before, number = handlers(), 1

    def hold_and_release() -> None:
        deferred.release(deferred.hold())

    def press() -> None:
        signal.raise_signal(signal.SIGUSR1)
        signal.raise_signal(signal.SIGINT)

    deferred = DeferredSignals()
    while interrupted_at(number, hold_and_release, press):
        assert handlers() == before, f"byte code {number}"
        assert seen == [signal.SIGUSR1, signal.SIGINT], f"byte code {number}"
        seen.clear()
        number += 1
    assert number > 50


@pytest.mark.usefixtures("seen")
def test_ctrl_c_where_python_looks_for_it_in_a_release_delays_no_signal_that_came_before() -> None:
    number, going_on = 1, True
    while going_on:
        deferred = DeferredSignals()
        frames: list[object] = []
        signal.signal(signal.SIGUSR1, frames.insert)  # gets the number and a frame; compiled: Ctrl-C does not come within it
        held = deferred.hold()
        signal.raise_signal(signal.SIGUSR1)
        going_on = interrupted_at(number, lambda deferred=deferred, held=held: deferred.release(held), ctrl_c,  # type: ignore[misc]
                                  where="call")
        assert len(frames) == 1, f"function {number}"
        number += 1
    assert number > 2


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork")
def test_a_forked_child_has_the_handlers_that_the_parent_holds_back_and_not_its_signals(seen: list[int]) -> None:
    deferred, before = DeferredSignals(), handlers()
    held = deferred.hold()
    signal.raise_signal(signal.SIGUSR1)
    if not (child := fork()):
        ok = False
        with contextlib.suppress(BaseException):
            deferred.forked()
            ok = handlers() == before and not seen
            signal.raise_signal(signal.SIGUSR2)
            ok = ok and seen == [signal.SIGUSR2]
        os._exit(0 if ok else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    deferred.release(held)
    assert seen == [signal.SIGUSR1]


# ---- exceptions of other threads ------------------------------------------------------------------------------------


def step() -> None:
    """One at which Python raises what was raised into the thread."""


@holds_exceptions
def test_an_exception_of_another_thread_is_raised_behind_the_block() -> None:
    log: list[str] = []

    def work() -> None:
        with DeferredExceptions():
            with DeferredExceptions():
                other = threading.Thread(target=raise_into, args=(threading.main_thread().ident, Interrupt))
                other.start()
                other.join()
                step()
                log.append("inner")
            step()
            log.append("outer")
        step()
        log.append("behind")

    with pytest.raises(Interrupt):
        work()
    assert log == ["inner", "outer"]
    step()


@holds_exceptions
def test_a_block_that_is_dropped_holds_no_exception_back() -> None:
    block = DeferredExceptions()
    block.__enter__()
    del block
    with pytest.raises(Interrupt):
        _raise_here()


def _raise_here() -> None:
    raise_into(threading.get_ident(), Interrupt)
    step()
    raise AssertionError("held back")


# ---- a step of a reactor --------------------------------------------------------------------------------------------


class Steps:
    """A guarded reactor whose callbacks are hit."""

    def __init__(self) -> None:
        self.reactor = Reactor(NotedPoller(), Clock(), Guard())
        self.ran: list[int] = []

    def post(self, number: int, hits: list[Callable[[], object]]) -> None:
        def callback() -> None:
            for hit in hits:
                hit()
            self.ran.append(number)

        self.reactor.post(callback)


@settings(max_examples=40, deadline=None)
@given(hits=st.lists(st.lists(st.sampled_from([ctrl_c, usr1]), max_size=2), min_size=1, max_size=4))
def test_a_signal_in_a_step_is_handled_once_when_the_step_is_over(hits: list[list[Callable[[], object]]]) -> None:
    """Whatever it raises: each callback has run, and the reactor takes the next call."""
    seen: list[tuple[int, bool]] = []

    def handler(number: int, _frame: object) -> None:
        seen.append((number, steps.reactor.leads))
        if number == signal.SIGINT:
            raise KeyboardInterrupt

    steps = Steps()
    before = [(number, signal.signal(number, handler)) for number in USED]
    try:
        for number, each in enumerate(hits):
            steps.post(number, each)
        with pytest.raises(KeyboardInterrupt) if any(ctrl_c in each for each in hits) else contextlib.nullcontext():
            steps.reactor.step()
        assert all(signal.getsignal(number) is handler for number in USED)
        steps.reactor.call_soon(lambda: steps.ran.append(-1))
    finally:
        for number, old in before:
            signal.signal(number, old)
    assert steps.ran == [*range(len(hits)), -1]
    assert seen == [(signal.SIGINT if hit is ctrl_c else signal.SIGUSR1, False) for each in hits for hit in each]


@holds_exceptions
def test_an_exception_of_another_thread_in_a_step_is_raised_when_the_step_is_over() -> None:
    steps = Steps()
    steps.post(1, [lambda: raise_into(threading.get_ident(), Interrupt), step])
    steps.post(2, [step])

    def lead() -> None:
        steps.reactor.step()
        step()

    with pytest.raises(Interrupt):
        lead()
    assert steps.ran == [1, 2]
    steps.reactor.call_soon(step)


def test_ctrl_c_at_any_byte_code_of_a_step_loses_no_callback(seen: list[int]) -> None:
    number = 1
    while True:
        steps = Steps()
        for each in range(3):
            steps.post(each, [step])
        if not interrupted_at(number, steps.reactor.step, ctrl_c):
            break
        steps.reactor.step()
        assert steps.ran == [0, 1, 2], f"byte code {number}"
        assert not steps.reactor.leads
        number += 1
    assert number > 30
    assert len(seen) == number - 1
