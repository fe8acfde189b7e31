"""What every poller does: report changes of sockets, wake sleepers, keep deadlines; threads change what it watches."""
from __future__ import annotations

import contextlib
import errno
import functools
import selectors
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import attrs
import pytest
from hypothesis import settings, strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, initialize, rule

from pyclient.reactor.pollers import READABLE, WRITABLE, Poller, SelectorPoller
from tests.waiting import eventually

LIMIT_S = 20.0
Make = Callable[[], Poller]


def of_selector(kind: type[selectors.BaseSelector]) -> Make:
    return functools.partial(SelectorPoller, time.monotonic, kind)


MAKERS: dict[str, Make] = {"select": of_selector(selectors.SelectSelector), "default": of_selector(selectors.DefaultSelector)}
if hasattr(selectors, "PollSelector"):
    MAKERS["poll"] = of_selector(selectors.PollSelector)
if sys.platform == "linux":
    from pyclient.reactor.epoll_poller import EpollPoller

    MAKERS["epoll"] = EpollPoller
every_poller = pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)


@pytest.fixture
def poller(make: Make) -> Iterator[Poller]:
    made = make()
    yield made
    made.close()


def pair() -> tuple[socket.socket, socket.socket]:
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    return ours, theirs


class Sleeper:
    """A thread that sleeps in a poller once."""

    def __init__(self, poller: Poller, timeout: float | None = None) -> None:
        self.found: list[object] | None = None
        self._thread = threading.Thread(target=self._sleep, args=(poller, timeout), daemon=True)
        self._thread.start()

    def _sleep(self, poller: Poller, timeout: float | None) -> None:
        self.found = list(poller.sleep(timeout))

    def returns(self) -> bool:
        self._thread.join(LIMIT_S)
        return not self._thread.is_alive()


# ---- sockets: what is reported --------------------------------------------------------------------------------------


@attrs.define(eq=False)
class Watched:
    """One socket, the peer's, and what is known of it."""

    ours: socket.socket
    theirs: socket.socket
    token: int = 0
    awaits: int = 0
    """What it is armed for, after the system had nothing to read or no room to write."""
    reported: int = 0
    """Since the last look."""
    gone: bool = False

    def readable(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.ours.recv(1, socket.MSG_PEEK)
            return True
        return False

    def writable(self) -> bool:
        with contextlib.suppress(BlockingIOError):
            self.ours.send(b"x")
            return True
        return False

    def read_all(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.ours.recv(1 << 20):
                pass

    def fill(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while self.ours.send(b"x" * 65536):
                pass


class Reports(RuleBasedStateMachine):
    """Sockets come and go, and change; what is armed and has come is reported, and nothing else."""

    sockets = Bundle("sockets")
    make: Make

    @initialize()
    def begin(self) -> None:
        self.poller = self.make()
        self.all: list[Watched] = []

    def teardown(self) -> None:
        self.poller.close()
        for each in self.all:
            each.ours.close()
            each.theirs.close()

    @rule(target=sockets)
    def register(self) -> Watched:
        made = Watched(*pair())

        def sink(events: int) -> None:
            assert not made.gone
            made.reported |= events

        made.token = self.poller.register(made.ours.fileno(), sink)
        self.all.append(made)
        return made

    @rule(one=sockets)
    def read(self, one: Watched) -> None:
        """As a channel: until there is nothing, and then it asks for more."""
        one.read_all()
        if not self.ended(one):
            one.awaits |= READABLE
            self.poller.arm(one.token, READABLE)

    @rule(one=sockets)
    def write(self, one: Watched) -> None:
        one.fill()
        one.awaits |= WRITABLE
        self.poller.arm(one.token, WRITABLE)

    @rule(one=sockets, count=st.integers(1, 3))
    def peer_writes(self, one: Watched, count: int) -> None:
        with contextlib.suppress(BlockingIOError, BrokenPipeError):
            one.theirs.send(b"x" * count)

    @rule(one=sockets)
    def peer_reads(self, one: Watched) -> None:
        with contextlib.suppress(BlockingIOError):
            while one.theirs.recv(1 << 20):
                pass

    @rule(one=sockets)
    def peer_half_closes(self, one: Watched) -> None:
        one.theirs.shutdown(socket.SHUT_WR)

    @rule(one=consumes(sockets), reported=st.booleans())
    def unregister(self, one: Watched, *, reported: bool) -> None:
        """Its number may be the next socket's. What was to be reported is dropped."""
        if reported:
            with contextlib.suppress(BlockingIOError, BrokenPipeError):
                one.theirs.send(b"x")
        self.poller.unregister(one.token)
        self.poller.unregister(one.token)
        self.poller.arm(one.token, READABLE)
        one.gone = True
        one.ours.close()

    @rule()
    def sleep(self) -> None:
        for sink, events in self.poller.sleep(0):
            sink(events)
        for one in self.all:
            if not one.gone:
                self.look(one)

    def look(self, one: Watched) -> None:
        readable, writable = one.readable(), one.writable()
        assert readable or not one.awaits & one.reported & READABLE
        assert writable or not one.reported & WRITABLE
        if one.awaits & READABLE and readable:
            assert one.reported & READABLE
            one.awaits &= ~READABLE
        if one.awaits & WRITABLE and writable:
            assert one.reported & WRITABLE
            one.awaits &= ~WRITABLE
        one.reported = 0

    @staticmethod
    def ended(one: Watched) -> bool:
        """Whether the peer writes no more."""
        with contextlib.suppress(BlockingIOError):
            return one.ours.recv(1, socket.MSG_PEEK) == b""
        return False


for _name, _make in MAKERS.items():
    _case = type(f"Reports_{_name}", (Reports,), {"make": staticmethod(_make)}).TestCase  # type: ignore[attr-defined]
    _case.settings = settings(max_examples=20, stateful_step_count=20, deadline=None)
    globals()[f"TestReports_{_name}"] = _case
    del _case


@every_poller
def test_what_was_reported_is_reported_again_only_after_a_change(poller: Poller) -> None:
    ours, theirs = pair()
    with ours, theirs:
        seen: list[int] = []
        token = poller.register(ours.fileno(), seen.append)
        poller.arm(token, READABLE)
        theirs.send(b"x")
        for _ in range(3):
            for sink, events in poller.sleep(0):
                sink(events)
        assert [events & READABLE for events in seen].count(READABLE) == 1
        poller.unregister(token)


@every_poller
def test_a_connection_that_the_peer_ends_is_readable(poller: Poller) -> None:
    ours, theirs = pair()
    with ours:
        seen: list[int] = []
        poller.arm(poller.register(ours.fileno(), seen.append), READABLE)
        theirs.close()
        for sink, events in poller.sleep(LIMIT_S):
            sink(events)
        assert seen
        assert seen[0] & READABLE


# ---- waking, and deadlines ------------------------------------------------------------------------------------------


@every_poller
def test_a_sleeper_is_woken_and_without_one_the_next(poller: Poller) -> None:
    for woken_before in (False, True):
        if woken_before:
            poller.wake()
        sleeper = Sleeper(poller)
        if not woken_before:
            poller.wake()
        assert sleeper.returns()
        assert sleeper.found == []


@every_poller
def test_many_wakes_and_a_full_pipe_are_no_error(poller: Poller) -> None:
    for _ in range(20_000):
        poller.wake()
    assert poller.sleep(LIMIT_S) == []


@every_poller
def test_a_sleep_ends_after_its_timeout_or_at_the_deadline(poller: Poller) -> None:
    begun = time.monotonic()
    assert poller.sleep(0.01) == []
    assert time.monotonic() >= begun + 0.009
    poller.set_deadline(time.monotonic() + 0.01)
    deadline_s = time.monotonic() + 0.01
    while time.monotonic() < deadline_s - 0.001:
        assert poller.sleep(LIMIT_S) == []
    poller.set_deadline(None)
    while poller.sleep(0.005):
        pass


@every_poller
def test_an_earlier_deadline_wakes_a_sleeper(poller: Poller) -> None:
    poller.set_deadline(time.monotonic() + 1000)
    poller.sleep(0)
    sleeper = Sleeper(poller)
    poller.set_deadline(time.monotonic() + 0.001)
    assert sleeper.returns()


@every_poller
def test_a_deadline_that_has_passed_wakes_at_once(poller: Poller) -> None:
    for at in (0.0, -1.0, time.monotonic() - 1):
        poller.set_deadline(at)
        assert Sleeper(poller).returns()


@every_poller
@pytest.mark.skipif(not hasattr(signal, "setitimer"), reason="no timers of signals")
def test_a_signals_handler_runs_in_a_sleep_and_may_raise(poller: Poller) -> None:
    class Interrupted(Exception):  # noqa: N818 as KeyboardInterrupt
        """By the handler."""

    def handler(*_: object) -> None:
        raise Interrupted

    before = signal.signal(signal.SIGALRM, handler)
    rest = signal.setitimer(signal.ITIMER_REAL, 0.005, 0.005)  # again and again: the first may come before the sleep
    try:
        with pytest.raises(Interrupted):
            poller.sleep(LIMIT_S)
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        signal.setitimer(signal.ITIMER_REAL, *rest)


# ---- threads --------------------------------------------------------------------------------------------------------


@every_poller
def test_sockets_come_and_go_in_one_thread_while_another_sleeps(make: Make) -> None:
    poller, problems, over = make(), [], threading.Event()
    lost: list[int] = []

    def sleep() -> None:
        try:
            while not over.is_set():
                for sink, events in poller.sleep(None):
                    sink(events)
        except BaseException as error:  # noqa: BLE001 reported below
            problems.append(error)

    thread = threading.Thread(target=sleep, daemon=True)
    thread.start()
    for number in range(300):
        ours, theirs = pair()
        reported = threading.Event()
        token = poller.register(ours.fileno(), lambda events, reported=reported: reported.set() if events & READABLE else None)  # type: ignore[misc]
        poller.arm(token, READABLE)
        theirs.send(b"x")
        if number % 2 and not reported.wait(LIMIT_S):
            lost.append(number)
        poller.unregister(token)
        ours.close()
        theirs.close()
        if problems or lost:
            break
    over.set()
    poller.wake()
    thread.join(LIMIT_S)
    poller.close()
    assert not problems
    assert not lost


class Interfered(selectors.SelectSelector):
    """Another thread acts between what the poller looks at and what it does."""

    act: Callable[[], object] | None = None

    def unregister(self, fileobj: object) -> selectors.SelectorKey:
        self._interfere()
        return super().unregister(fileobj)  # type: ignore[arg-type]

    def register(self, fileobj: object, events: int, data: object = None) -> selectors.SelectorKey:
        self._interfere()
        return super().register(fileobj, events, data)  # type: ignore[arg-type]

    def _interfere(self) -> None:
        act, self.act = self.act, None
        if act is not None:
            thread = threading.Thread(target=act, daemon=True)
            thread.start()
            thread.join(0.05)  # it may have to wait until the poller has done it


@pytest.mark.parametrize("when", ["watched", "reported"])
def test_a_socket_that_goes_as_the_sleeper_handles_it_is_forgotten(when: str) -> None:
    selector = Interfered()
    poller = SelectorPoller(time.monotonic, lambda: selector)
    ours, theirs = pair()
    token = poller.register(ours.fileno(), lambda _: None)

    def go() -> None:
        poller.unregister(token)
        ours.close()

    poller.arm(token, READABLE)
    if when == "reported":
        poller.sleep(0)
        theirs.send(b"x")
    selector.act = go
    poller.sleep(0)
    eventually(lambda: len(selector.get_map()) == 1)  # what wakes it
    poller.close()
    theirs.close()


class ClosedBefore(selectors.SelectSelector):
    """A socket is unregistered and closed by another thread as the system is about to be called with it."""

    close_one: Callable[[], object] | None = None

    def _select(self, read: set[int], write: set[int], *given: object) -> object:
        given = (set(read), set(write), *given)
        close_one, self.close_one = self.close_one, None
        if close_one is not None:
            close_one()
        return super()._select(*given)  # type: ignore[misc]


def test_a_socket_that_is_closed_as_the_system_is_called_does_not_end_the_sleeper() -> None:
    """select() knows no such descriptor then."""
    selector = ClosedBefore()
    poller = SelectorPoller(time.monotonic, lambda: selector)
    ours, theirs = pair()
    token = poller.register(ours.fileno(), lambda _: None)
    poller.arm(token, READABLE)

    def close_one() -> None:
        poller.unregister(token)
        ours.close()

    selector.close_one = close_one
    assert poller.sleep(0) == []
    assert poller.sleep(0) == []
    poller.close()
    theirs.close()


def test_an_error_of_the_system_that_stays_is_raised() -> None:
    selector = selectors.SelectSelector()
    poller = SelectorPoller(time.monotonic, lambda: selector)
    ours, theirs = pair()
    poller.arm(poller.register(ours.fileno(), lambda _: None), READABLE)
    ours.close()  # against the rule
    with pytest.raises(OSError) as caught:
        for _ in range(3):
            poller.sleep(0)
    assert caught.value.errno == errno.EBADF
    poller.close()
    theirs.close()


# ---- the end --------------------------------------------------------------------------------------------------------


@every_poller
@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="nothing lists the descriptors")
def test_a_closed_poller_has_freed_its_descriptors(make: Make) -> None:
    before = set(Path("/proc/self/fd").iterdir())
    poller = make()
    ours, theirs = pair()
    poller.arm(poller.register(ours.fileno(), lambda _: None), READABLE)
    poller.sleep(0)
    ours.close()
    theirs.close()
    poller.close()
    poller.close()
    assert set(Path("/proc/self/fd").iterdir()) <= before
