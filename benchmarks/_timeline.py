"""Where the time of one record goes in our producers, and how many calls and turns a record takes.

Moments are taken around methods that a record passes on its way; those are replaced while a job runs. That costs a few
µs a record, so figures of a timeline are never those of the table.
"""
from __future__ import annotations

import contextlib
import selectors
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

import attrs

if TYPE_CHECKING:
    from pyclient.reactor.pollers import Poller, Sink

STAGES: Final = {
    "turn begins": "append, and wake-up of the loop if it takes the turn",
    "request begins": "choose the batch",
    "write begins": "encode",
    "write ends": "write to the socket",
    "send returns": "return of send",
    "read begins": "broker, and wake-up of the reader",
    "read ends": "decode and complete",
    "result returns": "wake-up of the caller if another thread has read",
}
"""What the time until each moment, since the one before it, was spent with."""


class Timeline:
    """The moments of each record: the last time that each of them came."""

    def __init__(self) -> None:
        self._taken: list[dict[str, float]] = []
        self._now: dict[str, float] = {}

    def begin(self) -> None:
        """A record is about to be sent."""
        self._now = {"begin": time.perf_counter()}
        self._taken.append(self._now)

    def mark(self, moment: str) -> None:
        """It has come to *moment*."""
        self._now[moment] = time.perf_counter()

    def stages_us(self, warm_up: int) -> dict[str, float]:
        """The median µs of each stage that was passed."""
        found: dict[str, list[float]] = {}
        for moments in self._taken[warm_up:]:
            for stage, took in durations(moments).items():
                found.setdefault(stage, []).append(took * 1e6)
        return {stage: statistics.median(found[stage]) for stage in STAGES.values() if stage in found}

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Take the moments inside of the client."""
        from pyclient.client.driver import Driver
        from pyclient.net.connection import Connection

        places: Sequence[tuple[type, str, str | None, str | None]] = (
            (Driver, "_turn", "turn begins", None), (Connection, "send", "request begins", None),
            (Connection, "_flush", "write begins", "write ends"), (Connection, "_read", "read begins", "read ends"))
        with contextlib.ExitStack() as undo:
            for owner, name, before, after in places:
                undo.callback(setattr, owner, name, getattr(owner, name))
                setattr(owner, name, self._around(getattr(owner, name), before, after))
            yield

    def _around(self, method: Callable[..., Any], before: str | None, after: str | None) -> Callable[..., Any]:
        def around(*args: Any, **kwargs: Any) -> Any:
            if before and before not in self._now:
                self.mark(before)
            try:
                return method(*args, **kwargs)
            finally:
                if after and after not in self._now:
                    self.mark(after)

        return around


def durations(moments: Mapping[str, float]) -> dict[str, float]:
    """The stages of one record, in the order in which it passed them: two threads may run, or one."""
    passed = sorted((at, moment) for moment, at in moments.items() if moment in STAGES)
    begun = [moments["begin"], *(at for at, _ in passed)]
    return {STAGES[moment]: at - before for (at, moment), before in zip(passed, begun, strict=False)}


class Counts:
    """Python calls (also of built-in functions) of all threads, and how often loops and reactors slept."""

    def __init__(self) -> None:
        self.calls = self.turns = 0
        self._counting = False

    @contextlib.contextmanager
    def watching(self) -> Iterator[None]:
        """Also of threads that start from now on; before the client is made, in the same context."""
        from pyclient.runtime.environment import environment, using

        select, here = selectors.DefaultSelector.select, environment()

        def counted(selector: Any, timeout: float | None = None) -> Any:
            self.turns += self._counting
            return select(selector, timeout)

        with mock.patch.object(selectors.DefaultSelector, "select", counted), using(attrs.evolve(here, poller=lambda: _Counted(here.poller(), self))):
            threading.setprofile(self._on_event)
            sys.setprofile(self._on_event)
            try:
                yield
            finally:
                sys.setprofile(None)
                threading.setprofile(None)

    def start(self) -> None:
        """The warm-up is over."""
        self._counting = True

    def slept(self) -> None:
        """A thread sleeps in a reactor's poller."""
        self.turns += self._counting

    def _on_event(self, _frame: Any, event: str, _what: Any) -> None:
        if self._counting and event in {"call", "c_call"}:
            self.calls += 1


class _Counted:
    """A poller whose sleeps are counted."""

    def __init__(self, poller: Poller, counts: Counts) -> None:
        self._poller, self._counts = poller, counts

    def sleep(self, timeout: float | None) -> list[tuple[Sink, int]]:
        self._counts.slept()
        return self._poller.sleep(timeout)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._poller, name)
