# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""When a node counts as silent: it accepts connections and requests, and nothing comes back.

A hung broker looks like a slow one. So silence has no harsh consequence: the view of the cluster is kept fresh, other
nodes are preferred for what any node can answer, and the responsible node is looked up again. A node that has left
the cluster, or is not responsible any more, is given up then; any other once a request times out. Independent of
sockets and requests.
"""
from __future__ import annotations

from typing import Final

LONGEST_SILENCE_S: Final = 2.0
"""Seconds. A broker with much to do takes tens of milliseconds, and one that hangs is replaced after nine seconds."""
LATEST: Final = 1.5
"""A look for silence may come after so many times its timeout, with something else to do: a client wakes once."""
LATELY: Final = 10.0
"""Seconds for which an answer shows that a node is alive."""
LOGGED_AFTER: Final = 5.0
"""Seconds of silence after which it is logged: an election ends most of them earlier."""


def silence_timeout_s(request_timeout: float, failures: int = 0) -> float:
    """Seconds until an unanswered request is a reason to look elsewhere.

    It doubles with each of *failures* in a row: answers that take longer, from a large cluster say, must come at last.
    """
    first = min(LONGEST_SILENCE_S, request_timeout / 4)
    return min(request_timeout, first * 2.0 ** min(failures, 16))


class Silence:
    """Of one connection. It ends with any byte that arrives."""

    def __init__(self, silence_timeout_s: float) -> None:
        self._silence_timeout_s = silence_timeout_s
        self.bytes_in = 0
        self.last_response_at = self._checked_at = 0.0
        self.since: float | None = None
        """Since when; None while the connection is not silent."""

    def answered(self, now: float, bytes_in: int) -> None:
        """A response arrived. *bytes_in*: how many bytes have arrived ever."""
        self.last_response_at, self.bytes_in, self.since = now, bytes_in, None

    def next_check(self, waits_since: float | None, others: float | None = None) -> float | None:
        """When to look next; *waits_since*: when the oldest answer was due, None if none is.

        *others*: when there will be something else to do.
        """
        if waits_since is None:
            return None
        since = max(waits_since, self.last_response_at, self._checked_at)
        look = since + self._silence_timeout_s
        return others if others is not None and look < others <= since + LATEST * self._silence_timeout_s else look

    def is_silent(self, now: float, waits_since: float | None, bytes_in: int) -> bool:
        """Whether it is silent; *bytes_in* as in `answered`: a part of a large response is a sign of life."""
        if bytes_in != self.bytes_in:
            self.bytes_in, self.last_response_at, self.since = bytes_in, now, None
        elif waits_since is None:
            self.since = None
        elif self.since is None and now >= max(waits_since, self.last_response_at) + self._silence_timeout_s:
            self.since = max(waits_since, self.last_response_at)
        if self.since is not None:
            self._checked_at = now
        return self.since is not None
