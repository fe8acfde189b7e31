"""The line of `Change`s that wait for the user's thread, and the partitions that it has by them.

Rule: the user's thread carries out one change at a time; what it has begun it ends, what it has not begun may be withdrawn.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from pyclient.core.group.membership import Change, ChangeKind
from pyclient.records import TopicPartition


class Changes:
    """One member's changes, first come, first carried out."""

    def __init__(self) -> None:
        self.owned: dict[TopicPartition, int] = {}
        """What the user's thread was given, and by which of its assignments."""
        self._line: deque[Change] = deque()
        self._assignments = 0
        self._losing = False  # once the change under way is carried out, the rest is lost

    def __bool__(self) -> bool:
        """Whether anything is waiting or under way."""
        return bool(self._line)

    @property
    def due(self) -> Change | None:
        """The next one, unless the user's thread is at it."""
        return self._line[0] if self._line and not self._line[0].begun else None

    def add(self, *changes: Change) -> None:
        """Have these carried out after the others."""
        self._line.extend(changes)

    def begin(self, change: Change) -> bool:
        """The user's thread begins with *change*; False when it is not to be done any more."""
        if self.due is not change:
            return False
        change.begun = True
        if change.kind is ChangeKind.ASSIGNED:
            self._assignments += 1
            self.owned.update(dict.fromkeys(change.partitions, self._assignments))
        elif change.kind is ChangeKind.LOST:
            self.drop(change.partitions)
        return True

    def end(self, change: Change) -> bool:
        """The user's thread is done with *change*; False when nobody waits for that any more."""
        if change.kind is not ChangeKind.ASSIGNED:
            self.drop(change.partitions)
        if not self._line or self._line[0] is not change:
            return False
        self._line.popleft()
        if self._losing:
            self.lose()
        return True

    def withdraw(self) -> None:
        """What the user's thread has not begun is not to be done any more."""
        self._line = deque(change for change in self._line if change.begun)
        self._losing = False

    def lose(self) -> None:
        """All is gone: what the user's thread is at goes on, and then it is told of what it still has."""
        self.withdraw()
        self._losing = bool(self._line)
        if self.owned and not self._line:
            self.add(Change(ChangeKind.LOST, tuple(self.owned)))

    def clear(self) -> None:
        """Nothing is owned, and nothing to be done."""
        self.owned.clear()
        self._line.clear()
        self._losing = False

    def drop(self, partitions: Iterable[TopicPartition]) -> None:
        """These are not owned any more."""
        for where in partitions:
            self.owned.pop(where, None)
