"""How a member gets from the partitions it owns to those its coordinator assigned, one change at a time (KIP-848; N05,
N09).

The coordinator names topics by id. Here they get their names; a topic without a known name waits for metadata.
Independent of requests and states.

Rule: each change leads from what the user's thread owns at that moment to the newest assignment, and revokes before it
assigns.
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from itertools import islice
from typing import TypeAlias
from uuid import UUID

from pyclient.core.cluster import Cluster
from pyclient.core.group.assigned import MOST_ASSIGNED, MOST_UNKNOWN, within_limits
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.records import TopicPartition

TopicIdPartition: TypeAlias = tuple[UUID, int]
TopicNames: TypeAlias = Mapping[UUID, str]
"""Of the newest view of the cluster."""


class Reconciliation:
    """One member's assignment, and how much of it is carried out and acknowledged."""

    def __init__(self) -> None:
        self.pending = False
        """Something has changed since `next_change` was called last, so that it may give another answer."""
        self.left_out = 0
        """Partitions of the assignment beyond the limits (N11), as of the last `next_change`."""
        self._assignment: frozenset[TopicIdPartition] | None = None
        self._version = 0  # number of the newest assignment
        self._acknowledged_version = 0  # the one up to which the coordinator knows what the member owns
        self._names: dict[UUID, str] = {}  # of topics in the assignment: a view may drop them
        self._ids: dict[TopicPartition, UUID] = {}  # of the partitions that the user's thread owns
        self._assigned_due = True  # the listener gets an ASSIGNED change even if it adds no partition

    # ---- the assignment ---------------------------------------------------------------------------------------------

    def set_assignment(self, partitions: Iterable[TopicIdPartition]) -> bool:
        """The coordinator's newest assignment; whether it differs from the one before."""
        assignment = frozenset(islice(partitions, MOST_ASSIGNED))
        if assignment == self._assignment:
            return False
        self._assignment = assignment
        self._version += 1
        return True

    def reset(self) -> None:
        """The member owns nothing, and joins again."""
        self._assignment, self._assigned_due, self.pending = None, True, False
        self._names, self._ids = {}, {}

    # ---- the next change --------------------------------------------------------------------------------------------

    def next_change(self, owned: Collection[TopicPartition], cluster: Cluster) -> Change | None:
        """What the user's thread has to do next; None when there is nothing to do, or names of topics are missing."""
        self.pending = False
        if self._assignment is None:
            return None
        named = self._named(self._assignment, cluster.names)
        within, self.left_out = within_limits(named, cluster)
        revoked = tuple(tp for tp in owned if (self._ids[tp], tp.partition) not in self._assignment)
        if revoked:
            self._assigned_due = True
            return Change(ChangeKind.REVOKED, revoked)
        added = {tp: named[tp] for tp in within if tp not in owned}
        if added or self._assigned_due:
            self._ids = {**{tp: self._ids[tp] for tp in owned}, **added}
            return Change(ChangeKind.ASSIGNED, tuple(added))
        return None

    def assigned(self) -> None:
        """The user's thread has carried out an ASSIGNED change."""
        self._assigned_due = False

    @property
    def unacknowledged(self) -> bool:
        """Whether the coordinator waits to learn which partitions of the newest assignment the member owns."""
        return self._assignment is not None and self._version != self._acknowledged_version

    def acknowledged(self) -> None:
        """The coordinator knows what the member owns by the assignments so far."""
        self._acknowledged_version = self._version

    # ---- ids and names ----------------------------------------------------------------------------------------------

    def note_names(self, names: TopicNames) -> None:
        """Remember the names of assigned topics: the view may drop them before the next change begins."""
        known = {topic: names.get(topic) or self._names.get(topic) for topic, _ in self._assignment or ()}
        self._names = {topic: name for topic, name in known.items() if name is not None}

    def with_ids(self, owned: Iterable[TopicPartition]) -> frozenset[TopicIdPartition]:
        """The partitions of the user's thread, by topic id."""
        return frozenset((self._ids[tp], tp.partition) for tp in owned)

    def unnamed(self) -> list[UUID]:
        """Topics in the assignment whose names are not known yet."""
        return sorted({topic for topic, _ in self._assignment or () if topic not in self._names})[:MOST_UNKNOWN]

    def topics(self) -> frozenset[str]:
        """The topics of the assignment, as far as their names are known, and of the partitions owned."""
        return frozenset(self._names.values()).union(tp.topic for tp in self._ids)

    def _named(self, assignment: Collection[TopicIdPartition], names: TopicNames) -> dict[TopicPartition, UUID]:
        """Of two topics with one name, the older one was deleted: the view knows the newer one."""
        self.note_names(names)
        oldest_first = sorted(assignment, key=lambda each: (each[0] in names, each))
        return {TopicPartition(self._names[topic], number): topic for topic, number in oldest_first if topic in self._names}
