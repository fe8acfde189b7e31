"""When the view of the cluster is refreshed: at its age, or after a back-off when it proved stale (M01).

Independent of topics, nodes and messages.
"""
from __future__ import annotations

import enum
from typing import Final

from pyclient.core.backoff import Backoff
from pyclient.core.transitions import Transitions
from pyclient.errors import KafkaError


class State(enum.Enum):
    """What is known of the view's freshness, and whether a request is under way."""

    FRESH = "nothing is wanted before the view's age"
    STALE = "an update is wanted, after the back-off"
    REFRESHING = "a request is under way"
    OUTDATED = "a request is under way, and another is wanted after it"


class Event(enum.Enum):
    """What happens to a view."""

    UPDATE_WANTED = "the view proved stale, or somebody needs a newer one"
    SENT = "a request was sent"
    COMPLETE = "the answer holds all that was wanted"
    INCOMPLETE = "the request failed, or a topic in its answer is not usable yet"


REFRESH: Final[Transitions[State, Event]] = Transitions("metadata refresh", {
    (State.FRESH, Event.UPDATE_WANTED): State.STALE,
    (State.STALE, Event.UPDATE_WANTED): State.STALE,
    # The broker may have written its answer before the reason for this wish: the answer under way does not do.
    (State.REFRESHING, Event.UPDATE_WANTED): State.OUTDATED,
    (State.OUTDATED, Event.UPDATE_WANTED): State.OUTDATED,
    (State.FRESH, Event.SENT): State.REFRESHING,  # at its age, or for new topics only
    (State.STALE, Event.SENT): State.REFRESHING,
    (State.REFRESHING, Event.COMPLETE): State.FRESH,
    (State.REFRESHING, Event.INCOMPLETE): State.STALE,
    (State.OUTDATED, Event.COMPLETE): State.STALE,
    (State.OUTDATED, Event.INCOMPLETE): State.STALE,
})


class RefreshTimer:
    """State and times of the refresh. Each answer without news makes the next back-off longer."""

    def __init__(self, *, max_age: float, backoff: Backoff) -> None:
        self.state = State.FRESH
        self._max_age = max_age
        self._backoff = backoff
        self._fruitless = 0  # failures and answers without news, in a row
        self._not_before = 0.0
        self._refresh_at = 0.0  # the view's age; due at once when there is no view yet

    @property
    def in_flight(self) -> bool:
        """Whether a request is not answered yet."""
        return self.state is State.REFRESHING or self.state is State.OUTDATED

    def want_update(self) -> None:
        """The view proved stale: refresh it, after the back-off."""
        self._on(Event.UPDATE_WANTED)

    def want_update_now(self, now: float) -> None:
        """The same, without a back-off."""
        self._not_before = now
        self._on(Event.UPDATE_WANTED)

    def is_due(self, now: float) -> bool:
        """Whether a request about every topic is due."""
        return now >= self._not_before and (self.state is State.STALE or now >= self._refresh_at)

    def allows_partial(self, now: float) -> bool:
        """Whether a request may be about new topics only: the view of the others is fresh."""
        return self.state is State.FRESH and now < self._refresh_at

    def deadline(self) -> float:
        """When the next request is due; not asked for while one is under way."""
        return self._not_before if self.state is State.STALE else max(self._not_before, self._refresh_at)

    def sent(self) -> None:
        """A request is under way."""
        self._on(Event.SENT)

    def answered(self, now: float, *, partial: bool, news: bool, complete: bool) -> None:
        """A broker answered. Partial answers leave the age of the view as it is."""
        if not partial:
            self._refresh_at = now + self._max_age
        self._fruitless = 0 if news and complete else self._fruitless + 1
        self._not_before = now + self._backoff.after(max(self._fruitless, 1))
        self._on(Event.COMPLETE if complete else Event.INCOMPLETE)

    def failed(self, now: float, cause: KafkaError | None) -> None:
        """The request failed, or its answer was of no use."""
        self._fruitless += 1
        self._not_before = now + self._backoff.after(self._fruitless, cause)
        self._on(Event.INCOMPLETE)

    def _on(self, event: Event) -> None:
        self.state = REFRESH.after(self.state, event)
