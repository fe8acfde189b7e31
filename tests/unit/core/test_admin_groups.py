"""Groups: the requests in every version, and what responses mean."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.admin import AclOperation, GroupListing, GroupMember
from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.consumer_protocol import encode_assignment
from pyclient.core.admin.groups import (
    alter_offsets_call,
    Removal, all_committed_call, delete_group_call, delete_offsets_call, describe_classic_group_call, describe_consumer_group_call, lags, list_groups_call,
    remove_members_call,
)
from pyclient.core.calls import Again, Broker, Call, Coordinator, Done
from pyclient.descriptions.acls import NOT_ASKED
from pyclient.errors import GroupAuthorizationError, GroupIdNotFoundError, GroupNotEmptyError, GroupSubscribedToTopicError, UnknownMemberIdError, UnknownTopicOrPartitionError
from pyclient.plugins import Assignment
from pyclient.records import OffsetAndMetadata, TopicPartition
from tests.unit.core.test_admin_calls import body, ignore, versions
from tests.unit.core.world import answer

ONE, TWO = TopicPartition("t", 0), TopicPartition("t", 1)
NOT_COORDINATOR, NOT_ALLOWED, NOT_EMPTY, NOT_FOUND, SUBSCRIBED = 16, 30, 68, 69, 86


def listing(states: tuple[str, ...] = (), types: tuple[str, ...] = ()) -> Call:
    return list_groups_call(node=2, states=states, types=types, finish=ignore, deadline=None)


@pytest.mark.parametrize("version", versions(Api.LIST_GROUPS))
def test_each_broker_lists_its_groups_with_what_its_version_knows(version: int) -> None:
    call = listing()
    assert call.target == Broker(2)
    body(call, version)
    group = {"group_id": "g", "protocol_type": "consumer", "group_state": "Stable", "group_type": "Consumer"}
    verdict = call.classify(answer(Api.LIST_GROUPS, version, groups=[group]))
    assert verdict == Done([GroupListing("g", "consumer", "Stable" if version >= 4 else None, "consumer" if version >= 5 else None)])


def test_a_filter_is_asked_only_of_brokers_that_have_it() -> None:
    by_state, by_type = listing(states=("Stable",)).versions, listing(types=("classic",)).versions
    assert (by_state and by_state.low, by_type and by_type.low, listing().versions) == (4, 5, None)
    read = body(listing(("Stable",), ("classic",)), 5)
    assert (read.states_filter, read.types_filter) == (("Stable",), ("classic",))


@pytest.mark.parametrize("version", versions(Api.CONSUMER_GROUP_DESCRIBE))
def test_a_member_of_the_next_generation_has_partitions_and_a_target(version: int) -> None:
    call = describe_consumer_group_call("g", finish=ignore, deadline=None)
    assert call.target == Coordinator("g")
    assert body(call, version).group_ids == ("g",)

    def assigned(*numbers: int) -> dict[str, Any]:
        return {"topic_partitions": [{"topic_id": None, "topic_name": "t", "partitions": numbers}]}

    member = {"member_id": "m", "instance_id": None, "rack_id": None, "member_epoch": 4, "client_id": "c", "client_host": "/h", "subscribed_topic_names": ["t"],
              "subscribed_topic_regex": None, "assignment": assigned(1), "target_assignment": assigned(1, 0), "member_type": 1}
    group = {"group_id": "g", "group_state": "Reconciling", "group_epoch": 5, "assignment_epoch": 5, "assignor_name": "uniform", "members": [member],
             "authorized_operations": 0}
    verdict = call.classify(answer(Api.CONSUMER_GROUP_DESCRIBE, version, groups=[group]))
    assert isinstance(verdict, Done)
    assert (verdict.result.type, verdict.result.state, verdict.result.assignor, verdict.result.epoch) == ("consumer", "Reconciling", "uniform", 5)
    assert verdict.result.members == (GroupMember("m", None, "c", "/h", (TWO,), (ONE, TWO)),)


@pytest.mark.parametrize("version", versions(Api.DESCRIBE_GROUPS))
@pytest.mark.parametrize(("protocol_type", "data", "assignment"), [
    ("consumer", encode_assignment(Assignment((TWO, ONE))), (ONE, TWO)), ("consumer", b"", ()), ("consumer", b"\xff\xff", ()), ("connect", b"\0\1", ())])
def test_a_classic_member_has_what_its_leader_assigned_if_that_can_be_read(version: int, protocol_type: str, data: bytes, assignment: tuple[Any, ...]) -> None:
    member = {"member_id": "m", "group_instance_id": "i", "client_id": "c", "client_host": "/h", "member_metadata": b"", "member_assignment": data}
    group = {"group_id": "g", "group_state": "Stable", "protocol_type": protocol_type, "protocol_data": "range", "members": [member], "authorized_operations": 0}
    call = describe_classic_group_call("g", finish=ignore, deadline=None)
    verdict = call.classify(answer(Api.DESCRIBE_GROUPS, version, groups=[group]))
    assert isinstance(verdict, Done)
    assert (verdict.result.type, verdict.result.assignor, verdict.result.epoch) == ("classic", "range", None)
    assert verdict.result.members == (GroupMember("m", "i" if version >= 4 else None, "c", "/h", assignment),)


@pytest.mark.parametrize(("make", "least"), [(describe_consumer_group_call, 0), (describe_classic_group_call, 3)])
@pytest.mark.parametrize("asked", [True, False])
def test_a_group_is_described_with_what_its_user_may_do_where_that_is_asked(make: Any, least: int, asked: bool) -> None:
    call = make("g", operations=asked, finish=ignore, deadline=None)
    assert (call.versions.low if call.versions else 0) == (least if asked else 0)
    group = {"group_id": "g", "group_state": "Empty", "protocol_type": "", "protocol_data": "", "group_epoch": 1, "assignment_epoch": 1, "assignor_name": "",
             "members": [], "authorized_operations": 1 << AclOperation.READ if asked else NOT_ASKED}
    for version in range(least, SPOKEN[call.api].high + 1):
        assert body(call, version).include_authorized_operations is asked
        verdict = call.classify(answer(call.api, version, groups=[group]))
        assert verdict.result.authorized_operations == ({AclOperation.READ} if asked else None)


def test_a_group_that_does_not_exist_is_an_error_of_its_own_whatever_the_broker_says_of_it() -> None:
    def verdict(**said: Any) -> object:
        group = {"group_id": "g", "group_state": "", "protocol_type": "", "protocol_data": "", "members": [], "authorized_operations": 0, **said}
        return describe_classic_group_call("g", finish=ignore, deadline=None).classify(answer(Api.DESCRIBE_GROUPS, 6, groups=[group]))

    assert isinstance(verdict(group_state="Dead"), GroupIdNotFoundError)
    assert isinstance(verdict(error_code=NOT_FOUND), GroupIdNotFoundError)
    assert isinstance(verdict(error_code=NOT_ALLOWED), GroupAuthorizationError)
    moved = verdict(error_code=NOT_COORDINATOR)
    assert isinstance(moved, Again)
    assert moved.elsewhere


@pytest.mark.parametrize("version", versions(Api.DELETE_GROUPS))
def test_a_group_with_members_is_not_deleted(version: int) -> None:
    call = delete_group_call("g", finish=ignore, deadline=None)
    assert body(call, version).groups_names == ("g",)
    assert call.classify(answer(Api.DELETE_GROUPS, version, results=[{"group_id": "g"}])) == Done(None)
    assert isinstance(call.classify(answer(Api.DELETE_GROUPS, version, results=[{"group_id": "g", "error_code": NOT_EMPTY}])), GroupNotEmptyError)


@pytest.mark.parametrize("stable", [True, False])
@pytest.mark.parametrize("version", [each for each in versions(Api.OFFSET_FETCH) if each >= 2])
def test_all_offsets_are_asked_for_by_naming_none(version: int, stable: bool) -> None:
    call = all_committed_call("g", stable=stable, finish=ignore, deadline=None)
    read = body(call, version)
    assert getattr(read, "require_stable", stable) is stable
    assert (read.groups[0].topics if version >= 8 else read.topics) is None
    parts = [{"partition_index": 0, "committed_offset": 7, "committed_leader_epoch": 3, "metadata": "x"},
             {"partition_index": 1, "committed_offset": -1, "committed_leader_epoch": -1, "metadata": None}]
    topics = [{"name": "t", "partitions": parts}]
    fields = {"groups": [{"group_id": "g", "topics": topics}]} if version >= 8 else {"topics": topics}
    assert call.classify(answer(Api.OFFSET_FETCH, version, **fields)) == Done({ONE: OffsetAndMetadata(7, "x", 3 if version >= 5 else None)})


def test_each_partition_whose_offset_is_deleted_has_its_own_outcome() -> None:
    call = delete_offsets_call("g", [ONE, TWO], finish=ignore, deadline=None)
    (topic,) = body(call, 0).topics
    assert [part.partition_index for part in topic.partitions] == [0, 1]
    parts = [{"partition_index": 0}, {"partition_index": 1, "error_code": SUBSCRIBED}]
    verdict = call.classify(answer(Api.OFFSET_DELETE, 0, topics=[{"name": "t", "partitions": parts}]))
    assert isinstance(verdict, Done)
    assert verdict.result[ONE] is None
    assert isinstance(verdict.result[TWO], GroupSubscribedToTopicError)


def test_a_lag_is_never_below_0_and_unknown_without_a_commit_or_an_end() -> None:
    gone = TopicPartition("gone", 0)
    committed = {ONE: OffsetAndMetadata(3), TWO: None, gone: OffsetAndMetadata(1)}
    assert lags(committed, {ONE: 5, TWO: 5}) == {ONE: 2, TWO: None, gone: None}
    assert lags({ONE: OffsetAndMetadata(9)}, {ONE: 5}) == {ONE: 0}


# ---- members that are removed ----------------------------------------------------------------------------------------

STATIC, OTHER, UNKNOWN_MEMBER = Removal("", "static"), Removal("m"), 25


def removing() -> Call:
    return remove_members_call("g", [STATIC, OTHER], "it hangs", finish=ignore, deadline=None)


def test_static_members_are_removed_by_their_instance_id_and_others_by_their_member_id() -> None:
    call = removing()
    assert (call.target, call.versions and call.versions.low) == (Coordinator("g"), 3)
    read = body(call, 5)
    assert [(each.member_id, each.group_instance_id, each.reason) for each in read.members] == [("", "static", "it hangs"), ("m", None, "it hangs")]
    members = [GroupMember("m-7", "static", "c", "/h", ()), GroupMember("m", None, "c", "/h", ())]
    assert [Removal.of(each) for each in members] == [STATIC, OTHER]


def test_each_removed_member_has_its_own_outcome() -> None:
    rows = [{"member_id": "", "group_instance_id": "static", "error_code": UNKNOWN_MEMBER}, {"member_id": "m", "group_instance_id": None, "error_code": 0}]
    verdict = removing().classify(answer(Api.LEAVE_GROUP, 5, error_code=0, members=rows))
    assert isinstance(verdict, Done)
    assert isinstance(verdict.result[STATIC], UnknownMemberIdError)
    assert "group 'g' has no group instance id 'static': it has left" in str(verdict.result[STATIC])
    assert verdict.result[OTHER] is None
    assert isinstance(removing().classify(answer(Api.LEAVE_GROUP, 5, error_code=NOT_COORDINATOR, members=[])), Again)


def test_each_offset_that_is_stored_has_its_own_outcome_and_a_moved_coordinator_is_asked_again() -> None:
    def classified(*codes: int) -> Any:
        parts = [{"partition_index": number, "error_code": code} for number, code in enumerate(codes)]
        call = alter_offsets_call("g", {ONE: OffsetAndMetadata(1), TWO: OffsetAndMetadata(2)}, finish=ignore, deadline=None)
        return call.classify(answer(Api.OFFSET_COMMIT, 9, topics=[{"name": "t", "partitions": parts}]))

    assert classified(0, 0) == Done({ONE: None, TWO: None})
    found = classified(0, 3)
    assert found.result[ONE] is None
    assert isinstance(found.result[TWO], UnknownTopicOrPartitionError)
    assert isinstance(classified(0, 16), Again)
    assert isinstance(classified(0, 14), Again)
    assert isinstance(classified(0, 25).result[TWO], UnknownMemberIdError)
