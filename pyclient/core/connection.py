# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The states of one connection, and the reconnect back-off of one node (M05).

Independent of sockets: `pyclient.net` reports events and acts on the state.
"""
from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Any, Final

from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.transitions import Transitions


class State(enum.Enum):
    """The state of a connection. Requests are written in READY only; DRAINING still receives responses."""

    CONNECTING = "connecting"
    TLS = "tls"
    VERSIONS = "versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    DRAINING = "draining"
    CLOSED = "closed"


class Event(enum.Enum):
    """What can happen to a connection."""

    OPENED = "socket connected"
    OPENED_FOR_TLS = "socket connected, TLS handshake next"
    SECURED = "TLS handshake done"
    AGREED = "API versions known"
    AGREED_FOR_SASL = "API versions known, authentication next"
    AUTHENTICATED = "credentials accepted"
    SESSION_ENDING = "authenticated session ends soon"
    RETIRED = "idle or replaced"
    DRAINED = "last response received"
    LOST = "closed by the peer, the network or a timeout"


CONNECTION: Final[Transitions[State, Event]] = Transitions("connection", {
    (State.CONNECTING, Event.OPENED): State.VERSIONS,
    (State.CONNECTING, Event.OPENED_FOR_TLS): State.TLS,
    (State.TLS, Event.SECURED): State.VERSIONS,
    (State.VERSIONS, Event.AGREED): State.READY,
    (State.VERSIONS, Event.AGREED_FOR_SASL): State.AUTHENTICATING,
    (State.AUTHENTICATING, Event.AUTHENTICATED): State.READY,
    (State.READY, Event.SESSION_ENDING): State.REAUTHENTICATING,
    (State.REAUTHENTICATING, Event.AUTHENTICATED): State.READY,
    (State.READY, Event.RETIRED): State.DRAINING,
    (State.REAUTHENTICATING, Event.RETIRED): State.DRAINING,
    (State.DRAINING, Event.DRAINED): State.CLOSED,
    **{(state, Event.LOST): State.CLOSED for state in State if state is not State.CLOSED},
})


class Usage(enum.Enum):
    """What a ready connection has been used for; it only moves forward."""

    UNUSED = "no request sent"
    SENT = "requests sent, none answered"
    ANSWERED = "at least one request answered"


class Throttle:
    """M09, KIP-219: the broker has answered, and wants no further request on the connection until some time."""

    def __init__(self) -> None:
        self.until = 0.0
        self._ended = True

    def apply(self, now: float, message: Any) -> float:
        """Take the throttle time of a response; returns it in seconds, 0.0 without one."""
        throttle = getattr(message, "throttle_time", None)
        if not throttle:
            return 0.0
        seconds: float = throttle.total_seconds()
        self.until, self._ended = now + seconds, False
        return seconds

    def deadline(self) -> float | None:
        """When it ends; None once `expire` has noted its end."""
        return None if self._ended else self.until

    def expire(self, now: float) -> None:
        """Note its end if it is over: the managers are asked for requests then."""
        self._ended = self._ended or now >= self.until


STAGGER: Final = 0.3
"""Seconds after which the next attempt starts beside an unfinished one (RFC 8305 proposes 0.25 and allows up to 2)."""


def next_attempt_at(started: Iterable[float]) -> float:
    """When the next candidate may be tried, given the start times of unfinished attempts; 0.0 if there are none.

    An address that drops packets uses the whole set-up timeout; the other candidates must not wait for that.
    """
    return max((start + STAGGER for start in started), default=0.0)


class Reconnects:
    """When a node may be connected to again, and the set-up timeout of the next attempt.

    Both grow with consecutive failures and are reset by a success. The set-up timeout grows only with attempts that did
    not reach the peer (KIP-601): one that accepts connections and does not answer needs no longer time to connect.
    """

    def __init__(self, backoff: ExponentialBackoff, setup: ExponentialBackoff) -> None:
        self.not_before = 0.0
        self.failures = 0
        self._unreached = 0
        self._backoff = backoff
        self._setup = setup

    def __repr__(self) -> str:
        return f"<Reconnects {self.failures} failures, not before {self.not_before:.3f}>"

    def allowed(self, now: float) -> bool:
        """Whether connecting may be tried now."""
        return now >= self.not_before

    def setup_timeout(self) -> float:
        """Seconds for connecting, TLS, API versions and authentication together."""
        return self._setup.after(self._unreached + 1)

    def failed(self, now: float, *, reached: bool = True) -> None:
        """An attempt failed, or a connection was lost with requests in flight. *reached*: the peer had accepted it."""
        self.failures += 1
        self._unreached = 0 if reached else self._unreached + 1
        self.not_before = now + self._backoff.after(self.failures)

    def succeeded(self) -> None:
        """The connection became ready."""
        self.failures = self._unreached = 0
        self.not_before = 0.0
