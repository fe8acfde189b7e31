# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""How long a login holds, and when to log in again (KIP-368)."""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from random import Random

RENEWAL_WINDOW: Final = (0.85, 0.95)
"""Fraction of the session lifetime after which to authenticate again (KIP-368), as in Java's client."""
LEAST_REST_S: Final = 0.5
"""Reserved at the end of a session: a busy broker handles a request late, and disconnects if the session has ended."""
SHORTEST_S: Final = 1.1
"""Brokers refuse to authenticate a connection twice within one second."""
RENEWAL_RETRY_S: Final = 1.0
"""Shortest pause before a failed re-authentication is tried again."""


class Session:
    """The lifetime of a session and when to renew it (KIP-368); unlimited until `begin` is given a lifetime."""

    def __init__(self) -> None:
        self.ends_at: float | None = None
        """No request is written after this; the broker disconnects at the first request after the session's end."""
        self.renew_at: float | None = None
        """When to authenticate again; None while there is nothing to do."""

    def begin(self, now: float, lifetime: float | None, random: Random) -> None:
        """The broker granted *lifetime* seconds, counted from *now*, when the last login request was written."""
        self.ends_at = None if lifetime is None else now + usable_for(lifetime)
        self.renew_at = None if lifetime is None else now + renewal_after(lifetime, random)

    def is_over(self, now: float) -> bool:
        """Whether no request may be written any more."""
        return self.ends_at is not None and now >= self.ends_at

    def renewal_is_due(self, now: float) -> bool:
        """Whether to authenticate again now."""
        return self.renew_at is not None and now >= self.renew_at

    def clear_renewal(self) -> None:
        """A renewal is under way or no longer needed."""
        self.renew_at = None

    def renewal_failed(self, now: float) -> bool:
        """Schedule the next try before the session's end; False if the session is over."""
        if self.ends_at is None or self.ends_at <= now:
            return False
        self.renew_at = min(now + max(RENEWAL_RETRY_S, (self.ends_at - now) / 4), self.ends_at)
        return True


def renewal_after(lifetime: float, random: Random) -> float:
    """Seconds after which to renew a session; random, so that connections do not renew together."""
    return max(min(lifetime * random.uniform(*RENEWAL_WINDOW), lifetime - LEAST_REST_S), SHORTEST_S)


def usable_for(lifetime: float) -> float:
    """Seconds for which requests may be written in a session of *lifetime* seconds that is not renewed."""
    return lifetime - min(LEAST_REST_S, lifetime / 10)
