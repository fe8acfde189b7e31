"""Where the time of one record goes in our producers, and how many calls and turns a record takes.

Moments are taken in the call that sends and around the channel that its bytes pass. That costs a few µs a record, so
figures of a timeline are never those of the table.
"""
from __future__ import annotations

import contextlib
import selectors
import statistics
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import mock

import attrs

from pyclient.reactor.channels import Channel, OnEvents

if TYPE_CHECKING:
    from pyclient.reactor.pollers import Poller, Sink
    from pyclient.runtime.network import Network

T = TypeVar("T")

STAGES: Final = {
    "write begins": "append, choose the batch and encode",
    "write ends": "write to the socket",
    "send returns": "return of send",
    "read begins": "broker, and wake-up of the reader",
    "read ends": "read from the socket",
    "result returns": "decode, complete, and wake-up of the caller if another thread has read",
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
        """Take the moments inside of clients that are made in this context."""
        from pyclient.runtime.environment import environment, using

        here = environment()
        with using(attrs.evolve(here, network=lambda: _MarkedNetwork(here.network(), self))):
            yield

    def around(self, name: str, call: Callable[[], T], counts: Callable[[T], bool]) -> T:
        """Mark the beginning and the end of a call, if its result counts."""
        began = time.perf_counter()
        found = call()
        if counts(found) and f"{name} ends" not in self._now:
            self._now[f"{name} begins"] = began
            self.mark(f"{name} ends")
        return found


class _MarkedNetwork:
    """A network whose channels are marked."""

    def __init__(self, network: Network, timeline: Timeline) -> None:
        self._network, self._timeline = network, timeline

    async def open(self, *args: Any) -> Any:
        return _MarkedChannel(await self._network.open(*args), self._timeline)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)


class _MarkedChannel(Channel):
    """A channel that takes the moments of its writes and reads."""

    def __init__(self, channel: Channel, timeline: Timeline) -> None:
        super().__init__()
        self._channel, self._timeline, self.secured = channel, timeline, channel.secured

    def attach(self, on_events: OnEvents) -> None:
        self._channel.attach(on_events)

    def write(self, pieces: list[Any]) -> bool:
        done = self._timeline.around("write", lambda: self._channel.write(pieces), bool)
        self.unwritten = self._channel.unwritten
        return done

    def read_into(self, buffer: bytearray, start: int) -> int:
        size = self._timeline.around("read", lambda: self._channel.read_into(buffer, start), lambda size: size > 0)
        self.short_reads_end, self.unwritten = self._channel.short_reads_end, self._channel.unwritten
        return size

    def set_low_water(self, size: int) -> None:
        self._channel.set_low_water(size)

    def close(self) -> None:
        self._channel.close()

    def abort(self) -> None:
        self._channel.abort()


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
