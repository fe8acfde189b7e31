"""When a member may commit, and what each refusal means (C24, C25)."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import Api
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.classic_member import State
from pyclient.core.group.member_commit import MemberCommit
from pyclient.errors import (
    CommitFailedError, FencedInstanceIdError, IllegalGenerationError, KafkaError, RebalanceInProgressError, StaleMemberEpochError,
    UnknownMemberIdError, error_for,
)
from pyclient.plugins import Assignor
from tests.unit.core.groups import MEMBER, ClassicHarness, OneByOne, tps

COOPERATIVE = OneByOne(protocols=("cooperative",))


def stable(*assignors: Assignor) -> ClassicHarness:
    """A member that reads t-0 and t-1."""
    member = ClassicHarness(*assignors)
    member.becomes_stable(*tps(0, 1))
    return member


def commit(member: ClassicHarness, *numbers: int) -> MemberCommit:
    return MemberCommit(member.group, "g", tps(*numbers or (0, 1)))


def test_a_commit_carries_the_members_identity() -> None:
    member = stable()
    asked = commit(member)
    assert asked.is_ready
    assert asked.begin() == member.group.identity
    assert (asked.begin().generation, asked.begin().member_id) == (1, MEMBER)


def test_C25_a_commit_outside_of_the_group_fails_at_once() -> None:
    member = ClassicHarness()
    member.subscribes()
    asked = commit(member)
    assert asked.is_ready
    with pytest.raises(CommitFailedError, match=r"not a member of group 'g'.*max_poll_interval_ms"):
        asked.begin()


def test_C25_a_partition_of_another_member_is_not_committed() -> None:
    with pytest.raises(CommitFailedError, match="t-3 is not assigned to this member") as failed:
        commit(stable(), 0, 3).begin()
    assert failed.value.topic_partition == tps(3)[0]


def test_C24_a_commit_of_a_partition_that_was_revoked_and_assigned_again_fails() -> None:
    member = stable()
    asked = commit(member, 0)
    member.rebalances()
    member.carries_out(ChangeKind.REVOKED, *tps(0, 1))
    with pytest.raises(CommitFailedError, match="t-0"):
        asked.begin()
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 1))
    member.carries_out(ChangeKind.ASSIGNED, *tps(0, 1))
    with pytest.raises(CommitFailedError, match="t-0"):
        asked.begin()
    commit(member, 0).begin()


def test_C25_a_commit_waits_while_the_coordinator_accepts_none() -> None:
    member = stable(COOPERATIVE)
    asked = commit(member)
    member.rebalances()
    assert asked.is_ready, "while others join, the old generation still counts"
    member.reply_joined(member.sends(Api.JOIN_GROUP), generation=2)
    assert not asked.is_ready
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 1))
    assert asked.is_ready
    assert asked.begin().generation == 2


@pytest.mark.parametrize("code", [22, 25, 27, 113])
def test_C25_a_refused_commit_of_an_outdated_generation_waits_for_the_next_one(code: int) -> None:
    member = stable(COOPERATIVE)
    asked = commit(member)
    member.rebalances()
    join = member.sends(Api.JOIN_GROUP)
    before = asked.begin()
    asked.refused(error_for(code))
    assert not asked.is_ready, "the same identity would be refused again"
    member.reply_joined(join, generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0, 1))
    assert asked.is_ready
    assert asked.begin() != before
    assert member.group.identity.joined


@pytest.mark.parametrize("error", [UnknownMemberIdError(), IllegalGenerationError()])
def test_C25_a_commit_refused_to_an_unknown_member_fails_and_loses_its_partitions(error: KafkaError) -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(CommitFailedError, match="went on without this member") as failed:
        asked.refused(error)
    assert failed.value.__cause__ is error
    assert not member.group.identity.joined
    member.carries_out(ChangeKind.LOST, *tps(0, 1))


def test_C25_a_commit_refused_in_a_rebalance_raises_that_and_the_member_joins_again() -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(RebalanceInProgressError):
        asked.refused(RebalanceInProgressError())
    assert member.group.state is State.REVOKING


def test_C25_a_commit_of_a_fenced_instance_raises_that_and_ends_the_membership() -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(FencedInstanceIdError):
        asked.refused(FencedInstanceIdError())
    assert isinstance(member.group.failure, FencedInstanceIdError)


def test_N10_a_stale_epoch_waits_for_the_next_one() -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    asked.refused(StaleMemberEpochError())
    assert not asked.is_ready


def test_a_refusal_of_the_offsets_is_raised_and_the_member_stays() -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(KafkaError, match="too large"):
        asked.refused(error_for(28))
    assert member.group.state is State.STABLE
