"""Opens batches that are too large for the loop, in a worker: an `AsyncConsumer` must not hold its loop (B06).

The batches stay in the `FetchBuffer` meanwhile: nothing is taken, so a seek, a pause, a timeout or a cancelled poll
has nothing to undo.
"""
from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Final

from pyclient.buffers.fetch_buffer import Chunk, FetchBuffer
from pyclient.buffers.collect import open_ahead
from pyclient.reactor.reactor import Reactor
from pyclient.runtime.environment import Environment
from pyclient.runtime.offload import Offload

OPENING_THREAD: Final = "pyclient-open"


class BatchDecompressor:
    """One worker. *on_end* is called in a step after each work, which opens up to *memory* bytes and one batch."""

    def __init__(self, buffer: FetchBuffer, environment: Environment, reactor: Reactor, memory: int, on_end: Callable[[], object]) -> None:
        self._buffer = buffer
        self._offload = Offload(environment, reactor, OPENING_THREAD)
        self._memory = memory
        self._on_end = on_end
        self._opening: Chunk | None = None

    def has_data(self) -> bool:
        """Whether a poll can take something. If it is refused what comes next, opening that begins, or goes on."""
        entry = self._buffer.next()
        if not isinstance(entry, Chunk) or not entry.refused:
            return entry is not None
        if entry is not self._opening:
            self._begin(entry)
        return False

    def _begin(self, chunk: Chunk) -> None:
        self._opening = chunk
        batches = list(itertools.islice(chunk.batches, chunk.refused))
        work = functools.partial(open_ahead, batches, chunk.refused, self._memory, lambda: self._opening is chunk)
        self._offload.run(work, lambda _, error: self._ended(chunk, error))

    def _ended(self, chunk: Chunk, error: BaseException | None) -> None:
        chunk.refused, chunk.fault = 0, error
        if self._opening is chunk:
            self._opening = None
        if not self._buffer.is_open(chunk):
            chunk.close()  # another entry was taken, or the data dropped, while this one's batches were opened
        self._on_end()

    def close(self) -> None:
        """Open no more."""
        self._opening = None
        self._offload.close()
