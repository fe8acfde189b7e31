"""Who may commit offsets to the fake's coordinators, and what is found afterwards."""
from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.testing.fake.handlers.producer_ids import BLOCK, fresh_id
from tests.unit.testing.fake.classic_members import ClassicMembers

SUBSCRIBED_TO_T = struct.pack(">hih1si", 0, 1, 1, b"t", -1)


@pytest.fixture
def members() -> Iterator[ClassicMembers]:
    with ClassicMembers() as found:
        yield found


def test_anybody_commits_to_a_group_without_members(members: ClassicMembers) -> None:
    assert members.commit(5) == 0
    assert members.committed() == (0, {("t", 0): 5})


def test_only_members_of_the_current_generation_commit_to_a_group_that_has_some(members: ClassicMembers) -> None:
    (member,) = members.stable(None)
    assert members.commit(5) == 25
    assert members.commit(5, member="nobody", generation=1) == 25
    assert members.commit(5, member=member, generation=0) == 22
    assert members.commit(5, member=member, generation=1) == 0
    assert members.committed() == (0, {("t", 0): 5})


@pytest.mark.parametrize(("version", "code"), [(8, 22), (9, 69)])
def test_a_generation_of_a_group_that_is_not_there_is_refused(members: ClassicMembers, version: int, code: int) -> None:
    assert members.commit(5, member="somebody", generation=3, version=version) == code


def test_nobody_commits_between_joining_and_the_assignment(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    joins = [members.joining(members.id()), members.joining(first)]
    members.soon()
    assert members.commit(5, member=first, generation=2) == 27
    assert [each.done() for each in joins] == [True, True]


def test_members_commit_while_others_are_waited_for(members: ClassicMembers) -> None:
    (first,) = members.stable(None)
    members.joining(members.id())
    members.soon()
    assert members.commit(5, member=first, generation=1) == 0


def test_each_partition_is_answered_for_itself(members: ClassicMembers) -> None:
    assert members.commit(5, topic="missing") == 3
    assert members.commit(5, partition=7) == 3
    assert [members.commit(5, note="n" * 4097), members.commit(6, note="n" * 4096)] == [12, 0]
    assert members.committed() == (0, {("t", 0): 6})


def test_topics_are_known_by_id_since_version_10(members: ClassicMembers) -> None:
    def commit(topic_id: Any) -> Any:
        return members.call(Api.OFFSET_COMMIT, 10, {
            "group_id": "g", "generation_id_or_member_epoch": -1, "member_id": "", "group_instance_id": None, "topics": [
                {"topic_id": topic_id, "partitions": [{"partition_index": 0, "committed_offset": 5, "committed_leader_epoch": 0,
                                                       "committed_metadata": None}]}]}).topics[0]
    other = members.do(lambda: members.kafka.create_topic("other"))
    members.do(lambda: members.kafka.delete_topic("other"))
    assert [int(commit(each).partitions[0].error_code) for each in (other.id, members.topic.id)] == [100, 0]
    (found,) = members.call(Api.OFFSET_FETCH, 10, {"require_stable": False, "groups": [
        {"group_id": "g", "member_id": None, "member_epoch": -1, "topics": None}]}).groups
    assert [(each.topic_id, each.partitions[0].committed_offset) for each in found.topics] == [(members.topic.id, 5)]


def test_offsets_that_are_asked_for_and_not_there_are_minus_one(members: ClassicMembers) -> None:
    for version in (1, 5, 8, 9):
        topics = [{"name": "t", "partition_indexes": [0, 9]}]
        fields = {"require_stable": False, "group_id": "unknown", "topics": topics,
                  "groups": [{"group_id": "unknown", "member_id": None, "member_epoch": -1, "topics": topics}]}
        answer = members.call(Api.OFFSET_FETCH, version, fields, members.kafka.coordinator(0, "unknown"))
        found = (answer.groups[0] if version >= 8 else answer).topics[0].partitions
        assert [(each.committed_offset, int(each.error_code), each.metadata) for each in found] == [(-1, 0, ""), (-1, 0, "")]


def test_a_deleted_topic_takes_its_offsets_with_it(members: ClassicMembers) -> None:
    members.commit(5)
    members.do(lambda: members.kafka.delete_topic("t"))
    assert members.committed() == (0, {})
    members.do(lambda: members.kafka.create_topic("t"))


def test_offsets_of_topics_that_members_read_are_not_deleted(members: ClassicMembers) -> None:
    def delete() -> int:
        answer = members.call(Api.OFFSET_DELETE, 0, {"group_id": "g", "topics": [{"name": "t", "partitions": [{"partition_index": 0}]}]})
        return int(answer.error_code or answer.topics[0].partitions[0].error_code)
    assert delete() == 69
    (member,) = members.stable(None, protocols=(("range", SUBSCRIBED_TO_T),))
    members.commit(5, member=member, generation=1)
    assert (delete(), members.committed()) == (86, (0, {("t", 0): 5}))
    members.leave((member, None))
    assert (delete(), members.committed()) == (0, (0, {}))


def test_every_producer_gets_an_id_nobody_had_also_from_another_broker_and_after_a_restart(members: ClassicMembers) -> None:
    def fresh(broker: int, producer_id: int = -1, epoch: int = -1) -> int:
        answer = members.call(Api.INIT_PRODUCER_ID, 5, {"transactional_id": None, "transaction_timeout": 1000, "producer_id": producer_id,
                                                     "producer_epoch": epoch}, broker)
        assert (answer.error_code, answer.producer_epoch) == (0, 0)
        return int(answer.producer_id)
    first = [fresh(1), fresh(1), fresh(2), fresh(1, 0, 5)]
    members.kill(1)
    members.restart(1)
    assert [*first, fresh(1)] == [0, 1, 1000, 2, 2000]


def test_a_broker_takes_another_block_when_its_ids_are_used_up(members: ClassicMembers) -> None:
    assert [fresh_id(members.kafka, 1) for _ in range(BLOCK + 1)] == list(range(BLOCK + 1))
    assert fresh_id(members.kafka, 2) == 2 * BLOCK


@pytest.mark.parametrize(("transactional_id", "producer_id", "epoch", "code"),
                         [(None, -1, 3, 42), (None, 7, -1, 42), ("", -1, -1, 42), ("tx", -1, -1, 35)])
def test_ids_that_cannot_be_had_are_refused(members: ClassicMembers, transactional_id: str | None, producer_id: int, epoch: int, code: int) -> None:
    answer = members.call(Api.INIT_PRODUCER_ID, 5, {"transactional_id": transactional_id, "transaction_timeout": 1000,
                                                 "producer_id": producer_id, "producer_epoch": epoch})
    assert (int(answer.error_code), answer.producer_id) == (code, -1)
