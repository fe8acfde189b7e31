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

    def get(self, where: TopicPartition) -> OffsetAndMetadata | None:
        """The position; None before anything of the partition was consumed."""
        return self._positions.get(where)

    def all(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Every position."""
        return dict(self._positions)

    def update(self, positions: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These are consumed up to there."""
        self._positions.update(positions)
        for where, position in positions.items():
            self._note(where, position)

    def unsaved(self) -> dict[TopicPartition, OffsetAndMetadata]:
        """Positions that were not committed yet."""
        return dict(self._unsaved)

    @property
    def any_unsaved(self) -> bool:
        """Whether there are such."""
        return bool(self._unsaved)

    def saved(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """These were committed."""
        for where, position in offsets.items():
            self._saved[where] = position.offset
            if where in self._positions:
                self._note(where, self._positions[where])

    def _note(self, where: TopicPartition, position: OffsetAndMetadata) -> None:
        if self._saved.get(where) == position.offset:
            self._unsaved.pop(where, None)
        else:
            self._unsaved[where] = position

    def forget(self, where: TopicPartition) -> None:
        """Nothing of it counts any more."""
        for each in (self._positions, self._unsaved, self._saved):
            each.pop(where, None)
