"""Attempts that race: when the next begins, who wins, and what becomes of the others."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient.errors import DisconnectError
from pyclient.net.happy_eyeballs import race
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future, Task, all_done, sleep
from tests.reactors import run_in_task

SOON = 0.01
NEVER = 1000.0


class Track:
    """Runners by name that arrive, fail or stay on command; and their outcomes."""

    def __init__(self, reactor: Reactor, *names: str) -> None:
        self.reactor = reactor
        self.names = names
        self.runs: dict[str, Task[str]] = {}
        self.ends: dict[str, Future[str]] = {}
        self.lost: list[str] = []

    def runner(self, name: str) -> Callable[[], Task[str]]:
        def begin() -> Task[str]:
            self.ends[name] = Future(self.reactor)
            self.runs[name] = Task(self.reactor, self._run(self.ends[name]))
            return self.runs[name]

        return begin

    @staticmethod
    async def _run(end: Future[str]) -> str:
        return await end

    def start(self, stagger: float) -> Task[str]:
        return Task(self.reactor, race(self.reactor, [self.runner(name) for name in self.names], stagger=stagger, discard=self.lost.append))

    async def until_runs(self, name: str) -> None:
        while name not in self.runs:
            await sleep(self.reactor, 0)


def test_M05_the_next_attempt_starts_at_once_when_one_fails() -> None:
    async def test(reactor: Reactor) -> None:
        track = Track(reactor, "first", "second")
        racing = track.start(NEVER)
        await track.until_runs("first")
        assert list(track.runs) == ["first"]
        track.ends["first"].set_exception(ConnectionRefusedError())
        await track.until_runs("second")
        track.ends["second"].set_result("second")
        assert await racing == "second"

    run_in_task(test)


def test_M05_a_slow_attempt_runs_beside_the_next_one_and_may_still_win() -> None:
    async def test(reactor: Reactor) -> None:
        track = Track(reactor, "slow", "stuck")
        racing = track.start(SOON)
        await track.until_runs("stuck")
        track.ends["slow"].set_result("slow")
        assert await racing == "slow"
        await all_done(reactor, [track.runs["stuck"]])
        assert track.runs["stuck"].cancelled()
        assert track.lost == []

    run_in_task(test)


def test_M05_of_two_attempts_that_succeed_together_one_is_discarded() -> None:
    async def test(reactor: Reactor) -> None:
        track = Track(reactor, "one", "other")
        racing = track.start(SOON)
        await track.until_runs("other")
        track.ends["one"].set_result("one")
        track.ends["other"].set_result("other")
        assert {await racing, *track.lost} == {"one", "other"}

    run_in_task(test)


def test_a_result_after_the_race_is_discarded() -> None:
    async def test(reactor: Reactor) -> None:
        track = Track(reactor, "only")
        racing = track.start(NEVER)
        await track.until_runs("only")
        track.ends["only"].set_result("only")
        track.runs["only"].add_done_callback(lambda _: racing.cancel())  # the race has not seen it yet
        await all_done(reactor, [racing])
        assert racing.cancelled()
        assert track.lost == ["only"]

    run_in_task(test)


def test_when_all_fail_the_last_failure_is_raised() -> None:
    async def test(reactor: Reactor) -> None:
        track = Track(reactor, "first", "second")
        racing = track.start(SOON)
        await track.until_runs("second")
        track.ends["second"].set_exception(DisconnectError("second"))
        track.ends["first"].set_exception(DisconnectError("first"))
        with pytest.raises(DisconnectError):
            await racing

    run_in_task(test)


def test_a_defect_ends_the_race_and_stops_the_others() -> None:
    async def test(reactor: Reactor) -> None:
        track = Track(reactor, "good", "broken")
        racing = track.start(SOON)
        await track.until_runs("broken")
        track.ends["broken"].set_exception(LookupError("a defect"))
        with pytest.raises(LookupError):
            await racing
        await all_done(reactor, [track.runs["good"]])
        assert track.runs["good"].cancelled()

    run_in_task(test)
