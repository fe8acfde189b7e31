"""When a member may commit, and what a refusal means (C24, C25). Knows no requests.

Rule: a commit counts for the assignment it was asked for in. What went to another member meanwhile is not committed any more, or
the late commit would take back what the new owner has committed.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyclient.core.group.membership import Identity, Membership
from pyclient.errors import (
    CommitFailedError, FencedMemberEpochError, IllegalGenerationError, KafkaError, RebalanceInProgressError, StaleMemberEpochError,
    UnknownMemberIdError,
)
from pyclient.records import TopicPartition

_GONE: Final = (UnknownMemberIdError, IllegalGenerationError, FencedMemberEpochError)
_OUTDATED: Final = (*_GONE, StaleMemberEpochError, RebalanceInProgressError)
"""Said of a generation that is over, while the next one is not known here yet."""


class MemberCommit:
    """One commit of these partitions, over all its attempts."""

    def __init__(self, group: Membership, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._group = group
        self._group_id = group_id
        self._assignments = {where: group.owned.get(where) for where in partitions}
        self._sent_as: Identity | None = None
        self._waits = False

    @property
    def may_go(self) -> bool:
        """Whether waiting would not help: the coordinator may take it now, or never will."""
        if self._waits and self._group.identity == self._sent_as:
            return False
        return self._group.settled

    def begin(self) -> Identity:
        """As whom to send it now.

        Raises:
            CommitFailedError: this is no member of the group, or a partition is not assigned to it any more.
        """
        if not self._group.identity.joined:
            raise CommitFailedError(f"this consumer is no member of group {self._group_id!r} now, so it may not commit for it: poll() joins, and reads on "
                               "from what is committed. A member that does not poll for max_poll_interval_ms is put out of its group.")
        for where, assignment in self._assignments.items():
            if assignment is None or self._group.owned.get(where) != assignment:
                raise CommitFailedError(f"{where} is not assigned to this member of group {self._group_id!r} any more, or never was: its owner goes on from "
                                   "what was committed before. Commit in on_partitions_revoked what must not be read again.", topic_partition=where)
        self._sent_as, self._waits = self._group.identity, False
        return self._sent_as

    def refused(self, error: KafkaError) -> None:
        """The coordinator refused it: wait for the next generation, or raise.

        Raises:
            CommitFailedError: the group goes on without this member.
            KafkaError: any other refusal.
        """
        sent_as = self._sent_as
        if sent_as is None:
            raise error
        outdated = sent_as != self._group.identity or self._group.joining or isinstance(error, StaleMemberEpochError)
        self._group.refused(error, sent_as)
        if outdated and isinstance(error, _OUTDATED):
            self._waits = True
        elif isinstance(error, _GONE):
            raise CommitFailedError(f"group {self._group_id!r} goes on without this member ({error.name}): nothing was committed, and the records are read "
                               "again by whoever gets their partitions. poll() joins anew.") from error
        else:
            raise error
