"""A reactor on an asyncio loop, or on uvloop: deadlines, sockets, posts and what is left when the loop is closed."""
from __future__ import annotations

import asyncio
import gc
import socket
import threading
import time
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from pyclient.reactor.loop_poller import LoopPoller
from pyclient.reactor.pollers import READABLE, WRITABLE
from pyclient.reactor.reactor import Reactor
from tests.reactors import open_portal

LIMIT_S = 20.0
Main = Callable[[Reactor], Coroutine[Any, Any, None]]


async def on_its_reactor(main: Main) -> None:
    await asyncio.wait_for(main((await open_portal()).reactor), LIMIT_S)


def on_asyncio(main: Main) -> None:
    asyncio.run(on_its_reactor(main))


def on_uvloop(main: Main) -> None:
    uvloop = pytest.importorskip("uvloop")
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(on_its_reactor(main))


@pytest.fixture(params=[on_asyncio, on_uvloop])
def on_loop(request: pytest.FixtureRequest) -> Callable[[Main], None]:
    """Runs a coroutine, which gets a reactor, on a new loop."""
    run: Callable[[Main], None] = request.param
    return run


OnLoop = Callable[[Main], None]


@pytest.fixture
def pair() -> Iterator[tuple[socket.socket, socket.socket]]:
    """Two sockets that are connected and do not block."""
    ours, theirs = socket.socketpair()
    for each in (ours, theirs):
        each.setblocking(False)
    with ours, theirs:
        yield ours, theirs


# ---- deadlines ------------------------------------------------------------------------------------------------------


def test_a_timer_runs_at_its_time_however_the_loop_rounds(on_loop: OnLoop) -> None:
    async def main(reactor: Reactor) -> None:
        for number in range(60):
            ran = asyncio.Event()
            when = reactor.clock() + number * 0.000_1
            reactor.call_soon(lambda when=when, ran=ran: reactor.call_at(when, ran.set))  # type: ignore[misc]
            await ran.wait()
            assert reactor.clock() >= when

    on_loop(main)


def test_a_timer_that_the_loop_calls_before_its_time_runs_when_that_has_come() -> None:
    now = 0.0
    looks = 0

    def clock() -> float:
        nonlocal looks
        looks += 1
        return now

    async def main() -> None:
        nonlocal now
        poller = LoopPoller(clock)
        reactor = Reactor(poller, clock)
        poller.bind(asyncio.get_running_loop(), reactor)
        ran: list[float] = []
        reactor.call_soon(lambda: reactor.call_at(0.001, lambda: ran.append(now)))
        before = looks
        await asyncio.wait_for(until(lambda: looks > before), LIMIT_S)  # the loop has called
        assert not ran
        now = 0.002
        await asyncio.wait_for(until(lambda: ran), LIMIT_S)

    asyncio.run(main())


def test_an_earlier_deadline_replaces_a_later_one_and_a_cancelled_one_calls_nothing(on_loop: OnLoop) -> None:
    async def main(reactor: Reactor) -> None:
        ran: list[str] = []
        end = asyncio.Event()

        def early() -> None:
            ran.append("early")
            end.set()

        def set_up() -> None:
            now = reactor.clock()
            reactor.call_at(now + 0.002, lambda: ran.append("cancelled")).cancel()
            reactor.call_at(now + LIMIT_S, lambda: ran.append("late"))
            reactor.call_at(now + 0.003, early)

        reactor.call_soon(set_up)
        await end.wait()
        assert ran == ["early"]

    on_loop(main)


# ---- sockets --------------------------------------------------------------------------------------------------------


async def until(condition: Callable[[], object]) -> None:
    while not condition():  # noqa: ASYNC110 any condition
        await asyncio.sleep(0)


async def passes() -> None:
    """Of the loop, enough for it to report what is there."""
    for _ in range(20):
        await asyncio.sleep(0)


def test_a_socket_is_reported_when_it_is_readable_and_when_there_is_room_again(
        on_loop: OnLoop, pair: tuple[socket.socket, socket.socket]) -> None:
    async def main(reactor: Reactor) -> None:
        ours, theirs = pair
        seen: list[int] = []

        def sink(events: int) -> None:
            assert reactor.leads
            seen.append(events)
            if events & READABLE:
                ours.recv(65536)

        token = reactor.poller.register(ours.fileno(), sink)
        theirs.send(b"x")
        await until(lambda: READABLE in seen)
        fill(ours)
        reactor.poller.arm(token, WRITABLE)
        await passes()
        assert WRITABLE not in seen
        drain(theirs)
        await until(lambda: WRITABLE in seen)
        writable = seen.count(WRITABLE)
        await passes()
        assert seen.count(WRITABLE) == writable == 1  # once per `arm`
        reactor.poller.unregister(token)
        reactor.poller.unregister(token)
        reactor.poller.arm(token, WRITABLE)  # as a channel that is closed meanwhile
        before = list(seen)
        theirs.send(b"x")
        await passes()
        assert seen == before

    on_loop(main)


def fill(sock: socket.socket) -> None:
    """Until the system has no room."""
    try:
        while True:
            sock.send(b"x" * 65536)
    except BlockingIOError:
        pass


def drain(sock: socket.socket) -> None:
    try:
        while sock.recv(65536):
            pass
    except BlockingIOError:
        pass


# ---- posts ----------------------------------------------------------------------------------------------------------


def test_posts_of_this_thread_and_of_others_run_on_the_loop_in_their_order(on_loop: OnLoop) -> None:
    async def main(reactor: Reactor) -> None:
        home, ran = threading.get_ident(), []

        def mark(number: int) -> Callable[[], None]:
            def run() -> None:
                assert threading.get_ident() == home
                ran.append(number)
            return run

        def post(call: Callable[[Callable[[], None]], None], start: int) -> None:
            for number in range(start, start + 100):
                call(mark(number))

        await asyncio.to_thread(post, reactor.call_soon, 0)
        await asyncio.to_thread(post, reactor.post, 100)
        await until(lambda: len(ran) == 200)
        assert ran == list(range(200))
        post(reactor.post, 200)
        assert len(ran) == 200  # never inside the call
        post(reactor.call_soon, 300)
        assert ran == list(range(400))  # at once, behind the others

    on_loop(main)


def test_work_that_posts_itself_leaves_the_loop_time_for_others(on_loop: OnLoop) -> None:
    async def main(reactor: Reactor) -> None:
        rounds = 0
        stop = False

        def again() -> None:
            nonlocal rounds
            rounds += 1
            if not stop:
                reactor.call_soon(again)

        reactor.call_soon(again)
        for _ in range(10):
            before = rounds
            await asyncio.sleep(0)
            await until(lambda before=before: rounds > before)  # type: ignore[misc]
        stop = True

    on_loop(main)


# ---- a closed loop --------------------------------------------------------------------------------------------------


def test_posts_to_a_loop_that_is_closed_and_deadlines_are_dropped(on_loop: OnLoop, pair: tuple[socket.socket, socket.socket]) -> None:
    kept: list[tuple[Reactor, int]] = []

    async def main(reactor: Reactor) -> None:
        kept.append((reactor, reactor.poller.register(pair[0].fileno(), lambda _: None)))

    on_loop(main)
    (reactor, token), = kept
    reactor.post(lambda: None)
    reactor.poller.set_deadline(1.0)
    reactor.poller.unregister(token)
    reactor.poller.close()
    gc.collect()


def test_a_poller_that_is_not_bound_refuses_steps() -> None:
    poller = LoopPoller(time.monotonic)
    poller.wake()
    poller.set_deadline(1.0)
    poller.close()
    with pytest.raises(NotImplementedError):
        poller.sleep(None)
