# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""The positions of all assigned partitions, and the errors that polls raise for them. Independent of requests.

Rule: a partition gets a new generation with each assignment, seek and reset; the buffer drops data of older ones (C03).
"""
from __future__ import annotations

from pyclient.buffers.fetch_buffer import Chunk, Failure, FetchBuffer
from pyclient.core.fetching.positions import Position
from pyclient.errors import KafkaError
from pyclient.records import TopicPartition


class AssignedPositions:
    """The position of each assigned partition; the buffer always has the same partitions and generations."""

    def __init__(self, buffer: FetchBuffer) -> None:
        self._buffer = buffer
        self._generation = 0
        self.by_partition: dict[TopicPartition, Position] = {}
        self.lookup_errors: dict[TopicPartition, KafkaError] = {}
        """Why a partition has no position; positions of others are known or still looked up."""

    def add(self, tp: TopicPartition) -> None:
        """Begin without a position."""
        self._generation += 1
        self.by_partition[tp] = Position(tp, self._generation)
        self._buffer.renew(tp, self._generation)

    def renew(self, tp: TopicPartition) -> Position:
        """Begin another generation: what was fetched for the old one is dropped."""
        self._generation += 1
        position = self.by_partition[tp]
        position.generation = self._generation
        position.failures, position.lost = 0, None
        self._buffer.renew(tp, position.generation)
        return position

    def remove(self, tp: TopicPartition) -> None:
        """Forget the position and its data."""
        del self.by_partition[tp]
        self._buffer.renew(tp, None)

    def is_current(self, position: Position) -> bool:
        """False once the partition was removed, even if it was added again."""
        return self.by_partition.get(position.tp) is position

    def fail(self, position: Position, error: KafkaError, *, lasting: bool) -> None:
        """Let polls raise *error*. *lasting*: until a seek; otherwise once, and only if no data is buffered."""
        if lasting:
            self.lookup_errors[position.tp] = error
        if lasting or not self._buffer.count(position.tp):
            self._buffer.put(Failure(position.tp, position.generation, error, lasting))

    def show(self, position: Position) -> None:
        """Move the user's position too: no record may come for long, and the log may no longer hold the old one."""
        self._buffer.put(
            Chunk(position.tp, position.generation, position.offset, (), position.offset, 0, position.epoch))

    def is_lost(self, tp: TopicPartition) -> bool:
        """Whether auto_offset_reset is about to move the position. For any thread."""
        position = self.by_partition.get(tp)
        return position is not None and position.lost is not None

    def high_watermark(self, tp: TopicPartition) -> int | None:
        """The end of the log as the last response showed it; None before. For any thread."""
        position = self.by_partition.get(tp)
        end = None if position is None else position.high_watermark
        return None if end is None or end < 0 else end

    def largest_lag(self) -> int | None:
        """The largest number of offsets between a position and the end of its log; None while no end is known.

        For any thread.
        """
        return max((each.high_watermark - each.offset for each in list(self.by_partition.values())
                    if each.known and each.high_watermark is not None), default=None)
