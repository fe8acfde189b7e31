# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The fetches under way, at most one per node, and the room of the buffer that their responses may need."""
from __future__ import annotations

from typing import Final

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.codec.fetch import FetchParameters
from pyclient.core.fetching.fetch_request import FetchRequest, OnEnd, fetch_request
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.sessions import Session, SessionRequest

SHORT_WAIT: Final = 0.02
"""Seconds a broker may hold a fetch that leaves partitions out: once those are drained they must not wait for it."""
SHARE_OF_PACE: Final = 0.25
"""Or this share of the time between two drains: a slow user is not worth fifty requests a second."""
SHARE_OF_HOLDING: Final = 0.1
"""Or this share of the time since data came or was drained last."""


class FetchWait:
    """How fast the user takes what is fetched, and so how long brokers may wait for records (C14). Knows times only."""

    def __init__(self) -> None:
        self._moved = 0.0  # when data came last, or some was drained
        self._taken = 0.0  # when some was drained last
        self._between = 0.0  # seconds between two drains

    def came(self, now: float) -> None:
        """Data came."""
        self._moved = now

    def drained(self, now: float) -> None:
        """The user took some. A longer time between drains is accepted step by step, a shorter one at once."""
        self._between = min(now - self._taken, 2 * self._between + SHORT_WAIT)
        self._moved = self._taken = now

    def max_wait(self, now: float) -> float:
        """Seconds that a broker may wait for records while the user works on what is buffered.

        Partitions with buffered data are left out of the request. Once drained, they wait for its end. So the wait is
        short, or short beside the time of each drain, in which they are fetched again.
        """
        return max(SHORT_WAIT, SHARE_OF_PACE * self._between, SHARE_OF_HOLDING * (now - self._moved))


class FetchesInFlight:
    """Begins fetches and keeps them until they end. *on_end* is called with a fetch, the time and the outcome."""

    def __init__(self, buffer: FetchBuffer, limits: FetchLimits, fetch_wait: FetchWait, *, on_end: OnEnd) -> None:
        self._buffer = buffer
        self._limits = limits
        self._fetch_wait = fetch_wait
        self._on_end = on_end
        self._fetches: dict[int, FetchRequest] = {}  # by node
        self.reserved = 0

    def fetches(self) -> list[FetchRequest]:
        """Those under way."""
        return list(self._fetches.values())

    def begin(self, node: int, session: Session, session_request: SessionRequest, room: int, now: float, rack: str) -> FetchRequest:
        """A fetch of *session*, whose response may have *room* bytes."""
        limits = self._limits
        reserved = min(room, len(session_request.all_partitions) * limits.max_partition_bytes)
        wait = min(self._fetch_wait.max_wait(now), limits.max_wait) if self._buffer.ready() else limits.max_wait
        fetch = fetch_request(node, session, session_request, fetch_parameters(session_request, limits, room, wait, rack), limits.timeout, self._on_end,
                              now, wait, reserved)
        self._fetches[node] = fetch
        self.reserved += reserved
        return fetch

    def end(self, fetch: FetchRequest) -> None:
        """It has an outcome."""
        self.reserved -= fetch.reserved
        del self._fetches[fetch.node]

    def room(self) -> int:
        """Bytes the next response may have; 0 while the buffer is full, which calls ``on_room`` later."""
        room = self._free()
        if not room:
            self._buffer.await_room()
            room = self._free()
        return room

    def _free(self) -> int:
        """A buffer without returnable data takes any one response: data of paused partitions must not starve others."""
        limits = self._limits
        if not self.reserved and not self._buffer.ready():
            return min(limits.max_bytes, limits.buffer_memory)  # a broker sends one batch even if it is larger
        room = limits.buffer_memory - self._buffer.bytes - self.reserved
        return min(room, limits.max_bytes) if room >= limits.max_partition_bytes else 0


def fetch_parameters(request: SessionRequest, limits: FetchLimits, max_bytes: int, wait: float, rack: str) -> FetchParameters:
    """For at most *max_bytes* of records after at most *wait* seconds."""
    return FetchParameters(int(wait * 1000 + 0.5), limits.min_bytes, max_bytes, limits.max_partition_bytes, limits.isolation, request.id, request.epoch,
                      rack)
