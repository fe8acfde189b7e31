# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Pauses for nodes that answer fetches at once and without data (C27). Independent of partitions."""
from __future__ import annotations

import datetime
import enum
import logging
from typing import Final

from pyclient.codec.fetch import NO_REPLICA, FetchedPartition, FetchResponse
from pyclient.core.backoff import Backoff
from pyclient.core.manager import Outcome, Reply

_log = logging.getLogger(__name__)
NO_TIME: Final = datetime.timedelta(0)
AT_ONCE: Final = 5
"""Such responses in a row that are followed by the next fetch at once."""
EARLY: Final = 0.5
"""A response is early before this share of the time for which the broker may hold the fetch."""
_EARLY: Final = EARLY
_NO_REPLICA: Final = NO_REPLICA


class EmptyResponses:
    """Counts early responses without data by node.

    A broker holds a fetch until there is data, so the response sets the pace of fetching: one that does not hold it
    could make the client send thousands of requests a second.
    """

    def __init__(self, backoff: Backoff) -> None:
        self._backoff = backoff
        self._in_a_row: dict[int, int] = {}  # by node; the last response of any other was not early, or brought records
        self._paused: dict[int, float] = {}  # until when

    def answered(self, node: int, now: float, outcome: Outcome, took: float, wait: float) -> None:
        """A fetch that the broker may hold for *wait* seconds has ended after *took*."""
        if not isinstance(outcome, Reply):
            return
        news = _news(outcome.message)
        if news is _NONE and took < _EARLY * wait:
            self._on_early(node, now, wait)
        elif news is not _OTHER and self._in_a_row:
            self._in_a_row.pop(node, None)

    def _on_early(self, node: int, now: float, wait: float) -> None:
        count = self._in_a_row[node] = self._in_a_row.get(node, 0) + 1
        if count > AT_ONCE:
            self._paused[node] = now + self._backoff.after(count - AT_ONCE)
        if count == AT_ONCE + 1:
            _log.warning("node %d answered %d fetches in a row at once and without data, although it may hold each for %.3g s; fetching from it after "
                         "pauses from now on", node, count, wait)

    def end_pauses(self, now: float) -> None:
        """Forget the pauses that are over."""
        if self._paused:
            for node in [node for node, until in self._paused.items() if now >= until]:
                del self._paused[node]

    def pauses(self, node: int) -> bool:
        """Whether nothing is to be fetched from the node now."""
        return node in self._paused

    def next_deadline(self) -> float | None:
        """When the next pause ends."""
        return min(self._paused.values()) if self._paused else None


class News(enum.Enum):
    """What a response brings."""

    DATA = "records"
    OTHER = "errors, throttling or another replica: what is fetched next, and when, is decided for each partition"
    NONE = "nothing"


_DATA: Final = News.DATA
_OTHER: Final = News.OTHER
_NONE: Final = News.NONE


def _news(message: FetchResponse) -> News:
    if message.error_code or message.throttle_time > NO_TIME:
        return _OTHER
    news = _NONE
    for topic in message.topics:
        for each in topic.partitions:
            if each.records:
                return _DATA
            if _needs_attention(each):
                news = _OTHER
    return news


def _needs_attention(partition: FetchedPartition) -> bool:
    diverging = partition.diverging_epoch
    return bool(partition.error_code) or partition.preferred_read_replica != _NO_REPLICA or (diverging is not None and diverging.epoch >= 0)
