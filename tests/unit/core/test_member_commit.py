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
from tests.unit.core.groups import MEMBER, Member, OneByOne, parts

COOPERATIVE = OneByOne(protocols=("cooperative",))


def stable(*assignors: Assignor) -> Member:
    """A member that reads t-0 and t-1."""
    member = Member(*assignors)
    member.stable(*parts(0, 1))
    return member


def commit(member: Member, *numbers: int) -> MemberCommit:
    return MemberCommit(member.group, "g", parts(*numbers or (0, 1)))


def test_a_member_commits_as_who_it_is() -> None:
    member = stable()
    asked = commit(member)
    assert asked.is_ready
    assert asked.begin() == member.group.identity
    assert (asked.begin().generation, asked.begin().member_id) == (1, MEMBER)


def test_C25_who_is_no_member_is_told_so_at_once() -> None:
    member = Member()
    member.subscribes()
    asked = commit(member)
    assert asked.is_ready
    with pytest.raises(CommitFailedError, match=r"not a member of group 'g'.*max_poll_interval_ms"):
        asked.begin()


def test_C25_a_partition_of_somebody_else_is_not_committed() -> None:
    with pytest.raises(CommitFailedError, match="t-3 is not assigned to this member") as failed:
        commit(stable(), 0, 3).begin()
    assert failed.value.topic_partition == parts(3)[0]


def test_C24_a_commit_of_a_partition_that_went_and_came_back_since_is_too_late() -> None:
    member = stable()
    asked = commit(member, 0)
    member.is_rebalancing()
    member.takes(ChangeKind.REVOKED, *parts(0, 1))
    with pytest.raises(CommitFailedError, match="t-0"):
        asked.begin()
    member.joined(member.sends(Api.JOIN_GROUP), generation=2)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 1))
    member.takes(ChangeKind.ASSIGNED, *parts(0, 1))
    with pytest.raises(CommitFailedError, match="t-0"):
        asked.begin()
    commit(member, 0).begin()


def test_C25_while_the_coordinator_takes_no_commits_it_waits() -> None:
    member = stable(COOPERATIVE)
    asked = commit(member)
    member.is_rebalancing()
    assert asked.is_ready, "while others join, the old generation still counts"
    member.joined(member.sends(Api.JOIN_GROUP), generation=2)
    assert not asked.is_ready
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 1))
    assert asked.is_ready
    assert asked.begin().generation == 2


@pytest.mark.parametrize("code", [22, 25, 27, 113])
def test_C25_a_refusal_that_a_newer_generation_explains_is_no_failure(code: int) -> None:
    member = stable(COOPERATIVE)
    asked = commit(member)
    member.is_rebalancing()
    join = member.sends(Api.JOIN_GROUP)
    before = asked.begin()
    asked.refused(error_for(code))
    assert not asked.is_ready, "the same identity would be refused again"
    member.joined(join, generation=2)
    member.synced(member.sends(Api.SYNC_GROUP), *parts(0, 1))
    assert asked.is_ready
    assert asked.begin() != before
    assert member.group.identity.joined


@pytest.mark.parametrize("error", [UnknownMemberIdError(), IllegalGenerationError()])
def test_C25_a_refused_member_has_lost_its_partitions_and_the_commit_says_so(error: KafkaError) -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(CommitFailedError, match="went on without this member") as failed:
        asked.refused(error)
    assert failed.value.__cause__ is error
    assert not member.group.identity.joined
    member.takes(ChangeKind.LOST, *parts(0, 1))


def test_C25_that_the_group_rebalances_makes_the_member_join_and_the_commit_fail_as_that() -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(RebalanceInProgressError):
        asked.refused(RebalanceInProgressError())
    assert member.group.state is State.REVOKING


def test_C25_a_fenced_instance_is_told_that() -> None:
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


def test_a_refusal_that_concerns_the_offsets_is_raised_and_the_member_lives_on() -> None:
    member = stable()
    asked = commit(member)
    asked.begin()
    with pytest.raises(KafkaError, match="too large"):
        asked.refused(error_for(28))
    assert member.group.state is State.STABLE
