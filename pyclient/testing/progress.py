"""How long first-time work shows that it goes on: one line that updates on a terminal, a few lines elsewhere."""
from __future__ import annotations

import sys
import threading
import time
from typing import Final, TextIO

QUIET_S: Final = 2.0  # where lines cannot be rewritten, at most one in this time


class Progress:
    """Counts steps of *total* and shows them on *stream* (standard error). Threads may call `step`."""

    def __init__(self, title: str, total: int, stream: TextIO | None = None) -> None:
        self._title, self._total = title, total
        self._stream = sys.stderr if stream is None else stream
        self._rewrites = self._stream.isatty()
        self._guard = threading.Lock()
        self._done = self._size = 0
        self._shown_at = time.monotonic()

    def start(self) -> None:
        """Announce the work."""
        self._write(f"{self._title} …", last=not self._rewrites)

    def step(self, size: int) -> None:
        """One more is done; *size* is in bytes."""
        with self._guard:
            self._done += 1
            self._size += size
            now = time.monotonic()
            last = self._done == self._total
            if last or self._rewrites or now - self._shown_at > QUIET_S:
                self._shown_at = now
                self._write(f"{self._title}: {self._done} of {self._total}, {self._size / 1e6:.1f} MB",
                            last=last or not self._rewrites)

    def _write(self, line: str, *, last: bool) -> None:
        start = "\r\x1b[K" if self._rewrites else ""
        self._stream.write(f"{start}{line}" + ("\n" if last else ""))
        self._stream.flush()
