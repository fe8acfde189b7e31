"""Scripts of what callbacks do, played by a reactor and by a model of its passes: both must run them in one order."""
from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Protocol, TypeAlias

import attrs
from hypothesis import strategies as st

from pyclient.reactor.pollers import Sink

Callback: TypeAlias = Callable[[], object]


# ---- scripts --------------------------------------------------------------------------------------------------------


@attrs.frozen
class Soon:
    """Post a callback that does *then*."""

    then: tuple[Any, ...]


@attrs.frozen
class Post:
    """As `Soon`, but never at once."""

    then: tuple[Any, ...]


@attrs.frozen
class At:
    """A timer, *ticks* from now."""

    ticks: int
    then: tuple[Any, ...]


@attrs.frozen
class Cancel:
    """Cancel one of the timers that were made before, if there is any."""

    which: int


@attrs.frozen
class Raise:
    """Raise an error at the end of the callback."""


def _actions(then: st.SearchStrategy[tuple[Any, ...]]) -> st.SearchStrategy[Any]:
    return st.one_of(
        st.builds(Soon, then), st.builds(Post, then), st.builds(At, st.integers(-1, 3), then),
        st.builds(Cancel, st.integers(0, 50)), st.just(Raise()))


scripts = st.recursive(st.just(()), lambda then: st.lists(_actions(then), max_size=4).map(tuple), max_leaves=12)
"""What one callback does."""


# ---- players --------------------------------------------------------------------------------------------------------


class Timed(Protocol):
    def cancel(self) -> None: ...


class Played(Protocol):
    """A reactor, or its model."""

    def call_soon(self, callback: Callback, /) -> None: ...
    def post(self, callback: Callback, /) -> None: ...
    def call_at(self, when: float, callback: Callback, /) -> Timed: ...
    def step(self, events: Iterable[tuple[Sink, int]] = ()) -> None: ...


class Player:
    """Plays scripts, and notes what runs when."""

    def __init__(self, target: Played, clock: Callable[[], float]) -> None:
        self.target, self.clock = target, clock
        self.ran: list[tuple[int, float]] = []
        self.planned: dict[int, float] = {}
        """The time of each timer's callback."""
        self.cancelled: set[int] = set()
        """Callbacks of timers that were cancelled before they ran."""
        self._timers: list[tuple[int, Timed]] = []
        self._count = 0

    def act(self, actions: Iterable[Any]) -> None:
        for action in actions:
            match action:
                case Soon(then):
                    self.target.call_soon(self.callback(then)[1])
                case Post(then):
                    self.target.post(self.callback(then)[1])
                case At(ticks, then):
                    number, callback = self.callback(then)
                    self.planned[number] = self.clock() + ticks
                    self._timers.append((number, self.target.call_at(self.planned[number], callback)))
                case Cancel(which) if self._timers:
                    self.cancel(which)
                case Raise():
                    raise LookupError("on purpose")

    def cancel(self, which: int) -> None:
        number, timer = self._timers[which % len(self._timers)]
        if all(number != ran for ran, _ in self.ran):
            self.cancelled.add(number)
        timer.cancel()

    def callback(self, then: tuple[Any, ...]) -> tuple[int, Callback]:
        self._count += 1
        number = self._count

        def run() -> None:
            self.ran.append((number, self.clock()))
            self.act(then)

        return number, run

    def sink(self, then: tuple[Any, ...]) -> Sink:
        _, run = self.callback(then)
        return lambda _events: run()


# ---- the model ------------------------------------------------------------------------------------------------------


@attrs.define(eq=False)
class ModelTimer:
    when: float
    number: int
    callback: Callback | None

    def cancel(self) -> None:
        self.callback = None

    def run(self) -> None:
        callback, self.callback = self.callback, None
        if callback is not None:
            callback()


class Model:
    """A pass: events, then what was ready as it began, posted, and due, in this order. A step: passes until all ran."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._soon: deque[Callback] = deque()
        self._posted: deque[Callback] = deque()
        self._timers: list[ModelTimer] = []
        self._leads = False

    def call_soon(self, callback: Callback) -> None:
        if self._leads:
            self._soon.append(callback)
        else:
            self._posted.append(callback)
            self.step()

    def post(self, callback: Callback) -> None:
        self._posted.append(callback)

    def call_at(self, when: float, callback: Callback) -> ModelTimer:
        timer = ModelTimer(when, len(self._timers), callback)
        self._timers.append(timer)
        return timer

    def step(self, events: Iterable[tuple[Sink, int]] = ()) -> None:
        self._leads = True
        for sink, what in events:
            _quietly(lambda sink=sink, what=what: sink(what))  # type: ignore[misc]
        while ready := self._ready():
            for callback in ready:
                _quietly(callback)
        self._leads = False

    def _ready(self) -> list[Callback]:
        due = sorted((timer for timer in self._timers if timer.callback and timer.when <= self._clock() and timer.number >= 0),
                     key=lambda timer: (timer.when, timer.number))
        ready = [*self._soon, *self._posted, *(timer.run for timer in due)]
        for timer in due:
            timer.number = -1  # it is ready: it does not become so again
        self._soon.clear()
        self._posted.clear()
        return ready

    def first(self) -> float | None:
        """When the next timer is due."""
        return min((timer.when for timer in self._timers if timer.callback), default=None)


def _quietly(callback: Callback) -> None:
    with contextlib.suppress(LookupError):
        callback()
