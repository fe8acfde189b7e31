"""Records with a time to live: a user's plugin for pyclient.

The header ``ttl`` is a record's time to live in seconds; the interceptor has a default for records without it. The time
starts at the record's timestamp; a record without a timestamp never expires.
"""
from __future__ import annotations

import time
from collections.abc import Callable

from pyclient import Record, Records

__all__ = ["TtlInterceptor"]


class TtlInterceptor:
    """Leaves out records older than *seconds*, or than their own header. Positions and commits move past them."""

    def __init__(self, seconds: float = 3600.0, *, header: str = "ttl", clock: Callable[[], float] = time.time) -> None:
        self._seconds = seconds
        self._header = header
        self._clock = clock
        self.expired = 0
        """How many records were left out."""

    def on_consume(self, records: Records, /) -> Records:
        """Called before poll, iteration or columns return the records."""
        now = self._clock()
        fresh = records.filter(lambda record: self._lives(record, now))
        self.expired += len(records) - len(fresh)
        return fresh

    def _lives(self, record: Record, now: float) -> bool:
        return record.timestamp < 0 or now - record.timestamp / 1000 <= self._ttl(record)

    def _ttl(self, record: Record) -> float:
        """Time to live in seconds; the last header that is a number counts."""
        for name, value in reversed(record.headers):
            if name == self._header and value is not None:
                try:
                    return float(value)
                except ValueError:
                    continue
        return self._seconds
