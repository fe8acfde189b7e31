"""The steps of a rebalance that the user's thread carries out, and the queue in which they wait for it.

A group decides in steps of the client's reactor. What involves the user's code is a `Change`; the user's thread carries
it out inside ``poll``. Until it has, the group waits and keeps sending heartbeats.

Rule: the user's thread carries out one change at a time. A change that it has begun is completed; one that it has not
may be withdrawn.
"""
from __future__ import annotations

import enum
from collections import deque
from collections.abc import Iterable

import attrs

from pyclient.records import TopicPartition


class ChangeKind(enum.Enum):
    """What happens to partitions."""

    REVOKED = "the member must give them up; it still owns them"
    ASSIGNED = "they were added"
    LOST = "the member does not own them any more"


@attrs.define(eq=False)
class Change:
    """One step of a rebalance. *begun*: the user's thread is carrying it out."""

    kind: ChangeKind
    partitions: tuple[TopicPartition, ...]
    begun: bool = False


class ChangeQueue:
    """One member's changes in order, and the partitions that it owns by those carried out.

    True while any change waits or is begun.
    """

    def __init__(self) -> None:
        self.owned: dict[TopicPartition, int] = {}
        """The partitions of the user's thread, each with the number of the assignment that added it."""
        self._queue: deque[Change] = deque()
        self._assignments = 0
        self._lose_rest = False  # once the change that is begun is completed, the remaining partitions are lost

    def __bool__(self) -> bool:
        return bool(self._queue)

    @property
    def due(self) -> Change | None:
        """The next change; None when there is none, or when the user's thread has begun it."""
        return self._queue[0] if self._queue and not self._queue[0].begun else None

    @property
    def begun(self) -> Change | None:
        """The change that the user's thread has begun and not completed."""
        return self._queue[0] if self._queue and self._queue[0].begun else None

    def add(self, *changes: Change) -> None:
        """Append *changes*."""
        self._queue.extend(changes)

    def begin(self, change: Change) -> bool:
        """The user's thread begins *change*; False when it was withdrawn meanwhile."""
        if self.due is not change:
            return False
        change.begun = True
        if change.kind is ChangeKind.ASSIGNED:
            self._assignments += 1
            self.owned.update(dict.fromkeys(change.partitions, self._assignments))
        elif change.kind is ChangeKind.LOST:
            self.drop(change.partitions)
        return True

    def complete(self, change: Change) -> bool:
        """The user's thread has carried out *change*; False when the group does not wait for it any more."""
        if change.kind is not ChangeKind.ASSIGNED:
            self.drop(change.partitions)
        if not self._queue or self._queue[0] is not change:
            return False
        self._queue.popleft()
        if self._lose_rest:
            self.lose()
        return True

    def withdraw(self) -> None:
        """Remove the changes that the user's thread has not begun."""
        self._queue = deque(change for change in self._queue if change.begun)
        self._lose_rest = False

    def lose(self) -> None:
        """All partitions are lost.

        A change that is begun is completed first; then what is still owned is reported as lost.
        """
        self.withdraw()
        self._lose_rest = bool(self._queue)
        if self.owned and not self._queue:
            self.add(Change(ChangeKind.LOST, tuple(self.owned)))

    def clear(self) -> None:
        """Own nothing, and forget all changes."""
        self.owned.clear()
        self._queue.clear()
        self._lose_rest = False

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """The member does not own *partitions* any more."""
        for tp in partitions:
            self.owned.pop(tp, None)
