"""The life of one connection, and of the address behind it: one table of states, one back-off per node (M05).

Knows nothing of sockets: the runtime reports events and does what the state asks for.
"""
from __future__ import annotations

import enum
from collections.abc import Iterable
from typing import Final

from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.transitions import Transitions


class State(enum.Enum):
    """What a connection is doing. Requests are written in READY only; DRAINING still takes answers."""

    CONNECTING = "connecting"
    TLS = "tls"
    VERSIONS = "versions"
    AUTHENTICATING = "authenticating"
    READY = "ready"
    REAUTHENTICATING = "reauthenticating"
    DRAINING = "draining"
    CLOSED = "closed"


class Event(enum.Enum):
    """What can happen to it."""

    OPENED = "the socket is connected"
    OPENED_FOR_TLS = "the socket is connected, TLS comes first"
    SECURED = "the TLS handshake is done"
    AGREED = "API versions are known"
    AGREED_FOR_SASL = "API versions are known, authentication comes next"
    AUTHENTICATED = "the broker accepted the credentials"
    SESSION_ENDING = "the authenticated session ends soon"
    RETIRED = "nobody wants it any more"
    DRAINED = "the last answer came"
    LOST = "the peer, the network or a timeout ended it"


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


STAGGER: Final = 0.3
"""Seconds after which an attempt that has not come to an end gets company (RFC 8305 allows up to 2 s, and proposes 0.25)."""


def company_at(under_way: Iterable[float]) -> float:
    """When one more of several equals may be tried, given when the attempts under way began; 0.0 when none is.

    An address that swallows packets takes all the time an attempt may take, and must not keep others from being tried.
    """
    return max((began + STAGGER for began in under_way), default=0.0)


class Reconnects:
    """When a node may be connected to again, and how long connecting may take.

    Both grow with failures in a row and start over with the first success (KIP-601 for the set-up time).
    """

    def __init__(self, backoff: ExponentialBackoff, setup: ExponentialBackoff) -> None:
        self.not_before = 0.0
        self.failures = 0
        self._backoff = backoff
        self._setup = setup

    def __repr__(self) -> str:
        return f"<Reconnects {self.failures} failures, not before {self.not_before:.3f}>"

    def allowed(self, now: float) -> bool:
        """Whether connecting may be tried now."""
        return now >= self.not_before

    def setup_timeout(self) -> float:
        """Seconds that connecting, TLS, versions and authentication may take together."""
        return self._setup.after(self.failures + 1)

    def failed(self, now: float) -> None:
        """Connecting failed, or an established connection broke with requests under way."""
        self.failures += 1
        self.not_before = now + self._backoff.after(self.failures)

    def succeeded(self) -> None:
        """The connection became ready."""
        self.failures = 0
        self.not_before = 0.0
