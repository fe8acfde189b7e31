"""Records live for a time and are not read after it: a user's plugin for pyclient.

A record says in its header ``ttl`` how many seconds it is good for; one that does not say so lives as long as the interceptor is told. The time
runs from the record's timestamp; a record without one is always read.
"""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from pyclient import OffsetAndMetadata, Record, Records, TopicPartition

__all__ = ["TtlInterceptor"]


class TtlInterceptor:
    """Leaves out records older than *seconds*, or than their own header says. Positions and commits move over them."""

    def __init__(self, seconds: float = 3600.0, *, header: str = "ttl", clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._header = header
        self._clock = clock
        self.expired = 0
        """How many records were left out."""

    def on_consume(self, records: Records, /) -> Records:
        """Called before records are handed out, whether they are polled or iterated over; columns show what is returned, too."""
        now = self._clock()
        fresh = records.filter(lambda record: self._lives(record, now))
        self.expired += len(records) - len(fresh)
        return fresh

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], /) -> None:
        """Commits are of no interest here."""

    def _lives(self, record: Record, now: float) -> bool:
        return record.timestamp < 0 or now - record.timestamp / 1000 <= self._ttl(record)

    def _ttl(self, record: Record) -> float:
        """Seconds that *record* is good for; of several headers the last one counts, and one that is no number does not."""
        for name, value in reversed(record.headers):
            if name == self._header and value is not None:
                try:
                    return float(value)
                except ValueError:
                    continue
        return self._seconds
