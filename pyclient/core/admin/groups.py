"""Groups as calls: list, describe, delete; and their committed offsets: all of them, delete some."""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Final, NamedTuple

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.codec.consumer_protocol import decode_assignment
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.items import refused
from pyclient.core.admin.partitions import by_topic
from pyclient.core.calls import Again, Broker, Call, CallOutcome, Coordinator, Done, Finish
from pyclient.core.group.classic_calls import BATCHED_SINCE, REASON_LIMIT
from pyclient.core.group.coordinator import NO_MEMBER, refusal
from pyclient.core.group.offsets import commit_call, read_all_committed
from pyclient.descriptions.acls import NOT_ASKED, operations_of
from pyclient.descriptions.groups import GroupDescription, GroupListing, GroupMember
from pyclient.errors import (
    GroupIdNotFoundError, KafkaError, ProtocolError, UnknownMemberIdError, UnknownServerError, UnknownTopicOrPartitionError,
)
from pyclient.records import OffsetAndMetadata, TopicPartition

STATES_SINCE: Final = 4
TYPES_SINCE: Final = 5
"""Versions of ListGroups that can filter."""
CONSUMERS: Final = "consumer"
DEAD: Final = "Dead"
ALL_OFFSETS_SINCE: Final = 2
OPERATIONS_SINCE: Final = 3
"""The first version of DescribeGroups with authorized operations (KIP-430)."""


class Removal(NamedTuple):
    """A member to remove: a static one by its group instance id, others by their member id."""

    member_id: str
    group_instance_id: str | None = None

    @classmethod
    def of(cls, member: GroupMember) -> Removal:
        """A static member is removed whatever its member id is by then."""
        return cls(member.member_id) if member.group_instance_id is None else cls(NO_MEMBER, member.group_instance_id)

    def __str__(self) -> str:
        return f"member {self.member_id!r}" if self.group_instance_id is None else f"group instance id {self.group_instance_id!r}"


def list_groups_call(*, node: int, states: Sequence[str], types: Sequence[str], finish: Finish, deadline: float | None) -> Call:
    """The groups that a broker coordinates, as `GroupListing`."""
    least = TYPES_SINCE if types else STATES_SINCE if states else 0

    def fields(version: int) -> dict[str, object]:
        return {"states_filter": list(states), "types_filter": list(types)}

    def classify(message: Any) -> CallOutcome:
        return refused(Api.LIST_GROUPS, message) or Done([GroupListing(each.group_id, each.protocol_type, getattr(each, "group_state", None), _type(each)) for each in message.groups])

    return Call(what=f"listing the groups of node {node}", api=Api.LIST_GROUPS, target=Broker(node), fields=fields, classify=classify, finish=finish,
                deadline=deadline, versions=VersionRange(least, SPOKEN[Api.LIST_GROUPS].high) if least else None)


def describe_consumer_group_call(group: str, *, operations: bool = False, finish: Finish, deadline: float | None) -> Call:
    """A group of the KIP-848 protocol; GroupIdNotFoundError if there is none, or it is a classic one."""
    def classify(message: Any) -> CallOutcome:
        described = _only(message.groups, group)
        if described.error_code:
            return refusal(Api.CONSUMER_GROUP_DESCRIBE, described.error_code, group, message=described.error_message)
        members = tuple(_consumer_member(each) for each in described.members)
        return Done(GroupDescription(group, CONSUMERS, described.group_state, described.assignor_name, members, described.group_epoch, call.node,
                                     operations_of(described.authorized_operations)))

    call = Call(what=f"describing group {group!r}", api=Api.CONSUMER_GROUP_DESCRIBE, target=Coordinator(group), classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"group_ids": [group], "include_authorized_operations": operations})
    return call


def describe_classic_group_call(group: str, *, operations: bool = False, finish: Finish, deadline: float | None) -> Call:
    """A classic group; GroupIdNotFoundError if there is none."""
    def classify(message: Any) -> CallOutcome:
        described = _only(message.groups, group)
        if described.error_code:
            return refusal(Api.DESCRIBE_GROUPS, described.error_code, group, message=getattr(described, "error_message", None))
        if described.group_state == DEAD:  # what brokers before 4.0 say of a group that does not exist
            return GroupIdNotFoundError(f"group {group!r} does not exist")
        members = tuple(_classic_member(each, described.protocol_type) for each in described.members)
        return Done(GroupDescription(group, "classic", described.group_state, described.protocol_data, members, coordinator=call.node,
                                     authorized_operations=operations_of(getattr(described, "authorized_operations", NOT_ASKED))))

    call = Call(what=f"describing group {group!r}", api=Api.DESCRIBE_GROUPS, target=Coordinator(group), classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"groups": [group], "include_authorized_operations": operations},
                versions=VersionRange(OPERATIONS_SINCE, SPOKEN[Api.DESCRIBE_GROUPS].high) if operations else None)
    return call


def remove_members_call(group: str, members: Sequence[Removal], reason: str, *, finish: Finish, deadline: float | None) -> Call:
    """Make members leave, as their coordinator sees it; the result maps each to None or its error (KIP-345)."""
    rows = [{"member_id": each.member_id, "group_instance_id": each.group_instance_id, "reason": reason[:REASON_LIMIT]} for each in members]

    def classify(message: Any) -> CallOutcome:
        if message.error_code:
            return refusal(Api.LEAVE_GROUP, message.error_code, group)
        found = {Removal(each.member_id, each.group_instance_id): each.error_code for each in message.members}
        return Done({each: _not_removed(each, code, group) if code else None for each, code in found.items()})

    return Call(what=f"removing {len(rows)} members of group {group!r}", api=Api.LEAVE_GROUP, target=Coordinator(group), classify=classify, finish=finish,
                deadline=deadline, fields=lambda version: {"group_id": group, "members": rows},
                versions=VersionRange(BATCHED_SINCE, SPOKEN[Api.LEAVE_GROUP].high))


def _not_removed(member: Removal, code: int, group: str) -> KafkaError:
    if code == UnknownMemberIdError.code:  # what the class says is for that member itself
        return UnknownMemberIdError(f"group {group!r} has no {member}: it has left, its session has ended, or the name is wrong; describe_groups "
                                    f"shows the members, list_groups the groups. [{UnknownMemberIdError.name}]")
    return error_of(Api.LEAVE_GROUP, code, f"{member}, group {group!r}", group=group)


def delete_group_call(group: str, *, finish: Finish, deadline: float | None) -> Call:
    """Delete a group with its offsets; the result is None."""
    def classify(message: Any) -> CallOutcome:
        code = next((each.error_code for each in message.results if each.group_id == group), UnknownServerError.code)
        return refusal(Api.DELETE_GROUPS, code or 0, group) if code else Done(None)

    return Call(what=f"deleting group {group!r}", api=Api.DELETE_GROUPS, target=Coordinator(group), classify=classify, finish=finish, deadline=deadline,
                fields=lambda version: {"groups_names": [group]})


def all_committed_call(group: str, *, stable: bool, finish: Finish, deadline: float | None) -> Call:
    """Everything that a group has committed: `OffsetAndMetadata` by partition. *stable*: as in `committed_call`."""
    def fields(version: int) -> dict[str, object]:
        if version >= 8:
            return {"groups": [{"group_id": group, "topics": None}], "require_stable": stable}
        return {"group_id": group, "topics": None, "require_stable": stable}

    return Call(what=f"looking up all offsets of group {group!r}", api=Api.OFFSET_FETCH, target=Coordinator(group), fields=fields,
                classify=lambda message: read_all_committed(group, message), finish=finish, deadline=deadline,
                versions=VersionRange(ALL_OFFSETS_SINCE, SPOKEN[Api.OFFSET_FETCH].high))


def alter_offsets_call(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], *, finish: Finish, deadline: float | None) -> Call:
    """Store offsets for a group without members; the result maps each partition to None or its error."""
    def classify(message: Any) -> CallOutcome:
        answers: dict[TopicPartition, Any] = {}
        for tp, code in [(TopicPartition(topic.name, part.partition_index), part.error_code) for topic in message.topics for part in topic.partitions]:
            found = refusal(Api.OFFSET_COMMIT, code, group, tp) if code else None
            if isinstance(found, Again) and not isinstance(found.error, UnknownTopicOrPartitionError):
                return found
            answers[tp] = found.error if isinstance(found, Again) else found
        return Done(answers)

    call = commit_call(group, offsets, finish, deadline)
    call.classify = classify
    return call


def delete_offsets_call(group: str, partitions: Collection[TopicPartition], *, finish: Finish, deadline: float | None) -> Call:
    """Delete committed offsets; the result maps each partition to None or its error."""
    wanted = [{"name": name, "partitions": each} for name, each in by_topic((tp, {"partition_index": tp.partition}) for tp in partitions).items()]

    def classify(message: Any) -> CallOutcome:
        if message.error_code:
            return refusal(Api.OFFSET_DELETE, message.error_code, group)
        codes = {TopicPartition(topic.name, part.partition_index): part.error_code for topic in message.topics for part in topic.partitions}
        return Done({tp: error_of(Api.OFFSET_DELETE, code, f"group {group!r}", group=group, tp=tp) if code else None for tp, code in codes.items()})

    return Call(what=f"deleting {len(partitions)} offsets of group {group!r}", api=Api.OFFSET_DELETE, target=Coordinator(group), classify=classify,
                finish=finish, deadline=deadline, fields=lambda version: {"group_id": group, "topics": wanted})


def _only(groups: Iterable[Any], group: str) -> Any:
    found = next((each for each in groups if each.group_id == group), None)
    if found is None:
        raise ProtocolError(f"the response lacks group {group!r}")
    return found


def _type(listed: Any) -> str | None:
    found = getattr(listed, "group_type", None)
    return found.lower() if found else None


def _consumer_member(member: Any) -> GroupMember:
    return GroupMember(member.member_id, member.instance_id, member.client_id, member.client_host, _assigned(member.assignment),
                       _assigned(member.target_assignment))


def _assigned(assignment: Any) -> tuple[TopicPartition, ...]:
    return tuple(sorted(TopicPartition(topic.topic_name, number) for topic in assignment.topic_partitions for number in topic.partitions))


def _classic_member(member: Any, protocol_type: str) -> GroupMember:
    data = bytes(member.member_assignment) if protocol_type == CONSUMERS else b""
    return GroupMember(member.member_id, getattr(member, "group_instance_id", None), member.client_id, member.client_host, _decoded(data))


def _decoded(data: bytes) -> tuple[TopicPartition, ...]:
    """What a member's leader has assigned; nothing while the group rebalances, or where the format is not Kafka's."""
    try:
        return tuple(sorted(decode_assignment(data).partitions)) if data else ()
    except ProtocolError:
        return ()


def lags(committed: Mapping[TopicPartition, Any], ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
    """The records between each committed offset and its end; None where nothing is committed or no end is known."""
    return {tp: None if position is None or tp not in ends else max(0, ends[tp] - position.offset) for tp, position in committed.items()}
