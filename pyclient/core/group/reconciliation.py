"""From what a member has to what its coordinator told it to have, one step at a time (N05, N09).

The coordinator speaks of topics by their ids; here they get their names, and what has none yet waits. Knows no requests and no states.
Rule: each step goes towards what was told last, from what the user's thread has at that moment; what goes, goes first.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import TypeAlias
from uuid import UUID

from pyclient.core.group.membership import Change, ChangeKind
from pyclient.records import TopicPartition

Place: TypeAlias = tuple[UUID, int]
"""A topic's id and the number of a partition."""
Names: TypeAlias = Mapping[UUID, str]


class Reconciliation:
    """What one member was told, and how far it has come with it. *names* are those of the newest view of the cluster."""

    def __init__(self) -> None:
        self._target: frozenset[Place] | None = None
        self._told = 0  # which of the targets that came one after the other this is
        self._known_as = 0  # the one up to which the coordinator knows what the member has
        self._names: dict[UUID, str] = {}  # of topics in the target: a view may forget them
        self._ids: dict[TopicPartition, UUID] = {}  # of what the user's thread was given
        self._owes = True  # the listener is to be told of an assignment, even if it adds nothing

    # ---- what is told -----------------------------------------------------------------------------------------------

    def aim(self, places: Iterable[Place]) -> bool:
        """The coordinator says what the member is to have; whether that is news."""
        target = frozenset(places)
        if target == self._target:
            return False
        self._target = target
        self._told += 1
        return True

    def start_over(self) -> None:
        """The member has nothing, and joins anew."""
        self._target, self._owes = None, True
        self._names, self._ids = {}, {}

    # ---- what is to be done -----------------------------------------------------------------------------------------

    def step(self, owned: Collection[TopicPartition], names: Names) -> Change | None:
        """What the user's thread has to do next; None when there is nothing, or not yet."""
        if self._target is None:
            return None
        wanted = self._named(self._target, names)
        gone = tuple(where for where in owned if (self._ids[where], where.partition) not in self._target)
        if gone:
            self._owes = True
            return Change(ChangeKind.REVOKED, gone)
        new = {where: topic_id for where, topic_id in wanted.items() if where not in owned}
        if new or self._owes:
            self._ids = {**{where: self._ids[where] for where in owned}, **new}
            return Change(ChangeKind.ASSIGNED, tuple(new))
        return None

    def assigned(self) -> None:
        """The user's thread has taken over what was to be added."""
        self._owes = False

    @property
    def is_unsaid(self) -> bool:
        """Whether the coordinator waits to hear what the member has now."""
        return self._target is not None and self._told != self._known_as

    def heard(self) -> None:
        """The coordinator knows what the member has, by what it was told so far."""
        self._known_as = self._told

    # ---- ids and names ----------------------------------------------------------------------------------------------

    def places(self, owned: Iterable[TopicPartition]) -> frozenset[Place]:
        """What the user's thread has, as the coordinator calls it."""
        return frozenset((self._ids[where], where.partition) for where in owned)

    def nameless(self, names: Names) -> list[UUID]:
        """Topics in the target that nobody has told the names of."""
        return sorted({topic for topic, _ in self._target or () if topic not in names and topic not in self._names})

    def topics(self) -> frozenset[str]:
        """The topics of what it is to have, as far as they have names, and of what was handed out."""
        return frozenset(self._names.values()).union(where.topic for where in self._ids)

    def _named(self, target: Collection[Place], names: Names) -> dict[TopicPartition, UUID]:
        """Of two topics with one name the older one was deleted: the view knows the newer one."""
        known = {topic: names.get(topic) or self._names.get(topic) for topic, _ in target}
        self._names = {topic: name for topic, name in known.items() if name is not None}
        oldest_first = sorted(target, key=lambda place: (place[0] in names, place))
        return {TopicPartition(self._names[topic], number): topic for topic, number in oldest_first if topic in self._names}
