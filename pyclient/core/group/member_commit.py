"""When a member may commit, and what a refusal means (C24, C25). Independent of requests.

Rule: a commit belongs to the assignment in which it was requested. Partitions that were assigned to another member
meanwhile are not committed: the late commit would overwrite what the new owner has committed.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyclient.core.group.coordinator import Identity
from pyclient.core.group.membership import Membership
from pyclient.errors import (
    CommitFailedError, FencedMemberEpochError, IllegalGenerationError, KafkaError, RebalanceInProgressError,
    StaleMemberEpochError, UnknownMemberIdError,
)
from pyclient.records import TopicPartition

_NOT_A_MEMBER: Final = (UnknownMemberIdError, IllegalGenerationError, FencedMemberEpochError)
_OUTDATED: Final = (*_NOT_A_MEMBER, StaleMemberEpochError, RebalanceInProgressError)
"""Errors for a generation that has ended, perhaps before this member knows the next one."""


class MemberCommit:
    """One commit of *partitions*, over all its attempts."""

    def __init__(self, group: Membership, group_id: str, partitions: Iterable[TopicPartition]) -> None:
        self._group = group
        self._group_id = group_id
        self._assignments = {tp: group.owned.get(tp) for tp in partitions}
        self._sent_as: Identity | None = None
        self._awaits_generation = False

    @property
    def is_ready(self) -> bool:
        """Whether to send it now: waiting would not make the coordinator more likely to accept it."""
        if self._awaits_generation and self._group.identity == self._sent_as:
            return False
        return self._group.accepts_commits

    def begin(self) -> Identity:
        """The identity to send it with.

        Raises:
            CommitFailedError: the consumer is not a member of the group, or does not own a partition any more.
        """
        if not self._group.identity.joined:
            raise CommitFailedError(f"this consumer is not a member of group {self._group_id!r} now, so it cannot commit: poll() joins the group, and reads on "
                               "from the committed offsets. A member that does not poll for max_poll_interval_ms is removed from its group.")
        for tp, assignment in self._assignments.items():
            if assignment is None or self._group.owned.get(tp) != assignment:
                raise CommitFailedError(f"{tp} is not assigned to this member of group {self._group_id!r} (any more): its owner reads on from the offset "
                                   "committed before. Commit in on_partitions_revoked what must not be read again.", topic_partition=tp)
        self._sent_as, self._awaits_generation = self._group.identity, False
        return self._sent_as

    def refused(self, error: KafkaError) -> None:
        """The coordinator refused it: retry in the next generation, or raise.

        Raises:
            CommitFailedError: the group went on without this member.
            KafkaError: any other refusal.
        """
        sent_as = self._sent_as
        if sent_as is None:
            raise error
        outdated = sent_as != self._group.identity or self._group.generation_in_doubt or isinstance(error, StaleMemberEpochError)
        self._group.on_commit_refused(error, sent_as)
        if outdated and isinstance(error, _OUTDATED):
            self._awaits_generation = True
        elif isinstance(error, _NOT_A_MEMBER):
            raise CommitFailedError(f"group {self._group_id!r} went on without this member ({error.name}): nothing was committed, and the new owners of "
                               "its partitions read the records again. poll() joins again.") from error
        else:
            raise error
