"""Positions that count as consumed, and which of them are not committed yet: looked at by every poll, so the two are kept apart."""
from __future__ import annotations

from collections.abc import Mapping

from pyclient.records import OffsetAndMetadata, TopicPartition


class Uncommitted:
    """Of one consumer's partitions, those of which anything was consumed."""

    def __init__(self) -> None:
        self._positions: dict[TopicPartition, OffsetAndMetadata] = {}
        self._unsaved: dict[TopicPartition, OffsetAndMetadata] = {}
        self._saved: dict[TopicPartition, int] = {}

    def get(self, tp: TopicPartition) -> OffsetAndMetadata | None:
        """The position; None before anything of the partition was consumed."""
        return self._positions.get(tp)

    def all(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every position."""
        return dict(self._positions)

    def update(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are consumed up to there."""
        self._positions.update(positions)
        for tp, position in positions.items():
            self._note(tp, position)

    def uncommitted(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that were not committed yet."""
        return dict(self._unsaved)

    @property
    def any_uncommitted(self) -> bool:
        """Whether there are such."""
        return bool(self._unsaved)

    def note_commits(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""
        for tp, position in offsets.items():
            self._saved[tp] = position.offset
            if tp in self._positions:
                self._note(tp, self._positions[tp])

    def _note(self, tp: TopicPartition, position: OffsetAndMetadata) -> None:
        if self._saved.get(tp) == position.offset:
            self._unsaved.pop(tp, None)
        else:
            self._unsaved[tp] = position

    def forget(self, tp: TopicPartition) -> None:
        """Nothing of it counts any more."""
        for each in (self._positions, self._unsaved, self._saved):
            each.pop(tp, None)
