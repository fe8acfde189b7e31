"""Groups and their offsets, on real brokers: classic ones and those of KIP-848."""
from __future__ import annotations

import asyncio
import datetime
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from pyclient import Admin, AsyncAdmin, Consumer, ConsumerGroupMetadata, OffsetAndMetadata, Producer, TopicPartition
from pyclient.admin import GroupOffset, OffsetReset, OffsetSpec, read_offsets, write_offsets
from pyclient.errors import GroupIdNotFoundError, GroupNotEmptyError, GroupSubscribedToTopicError, KafkaTimeoutError, PartialFailureError, UnknownMemberIdError, UnknownTopicOrPartitionError
from pyclient.testing import LocalCluster
from tests.kafka import WRITTEN_AT, make_topic
from tests.waiting import eventually

COUNT = 5


@pytest.fixture
def tps(kafka_cluster: LocalCluster, topic: str) -> list[TopicPartition]:
    """Two partitions, the first with five records."""
    made = make_topic(kafka_cluster, topic, 2)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for number in range(COUNT):
            producer.send(topic, b"x", partition=0, timestamp=WRITTEN_AT + number)
    return made


@pytest.fixture
def admin(kafka_cluster: LocalCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=kafka_cluster.bootstrap_servers) as made:
        yield made


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_with_a_member_is_listed_and_described_and_refuses_changes(
        kafka_cluster: LocalCluster, admin: Admin, topic: str, tps: list[TopicPartition], protocol: Literal["classic", "consumer"]) -> None:
    with Consumer(topics=[topic], bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic, group_protocol=protocol, client_id="me",
                  auto_offset_reset="earliest") as consumer:
        eventually(lambda: consumer.poll(0.1) is not None and len(consumer.assignment()) == 2)
        consumer.commit({tps[0]: 2})
        eventually(lambda: consumer.poll(0.1) is not None and admin.describe_groups([topic])[topic].state == "Stable")
        (listed,) = [group for group in admin.list_groups(types=[protocol], states=["Stable"]) if group.group_id == topic]
        assert (listed.state, listed.type, listed.protocol_type) == ("Stable", protocol, "consumer")
        described = admin.describe_groups([topic])[topic]
        assert described.type == protocol
        assert (described.epoch is None) == (protocol == "classic")
        (member,) = described.members
        assert (member.client_id, member.assignment) == ("me", tuple(tps))
        assert member.target == (None if protocol == "classic" else tuple(tps))
        with pytest.raises(GroupNotEmptyError, match="stop them first"):
            admin.alter_group_offsets(topic, {tps[0]: 1})
        with pytest.raises(GroupNotEmptyError, match="stop them first"):
            admin.reset_group_offsets(topic, OffsetSpec.EARLIEST, dry_run=True)
        with pytest.raises(GroupNotEmptyError):
            admin.delete_groups([topic])
        with pytest.raises(GroupSubscribedToTopicError):
            admin.delete_group_offsets(topic, [tps[0]])
        assert admin.group_offsets(topic)[tps[0]].committed is not None


def test_offsets_are_looked_at_reset_and_deleted_with_the_group(admin: Admin, topic: str, tps: list[TopicPartition]) -> None:
    first, second = tps
    admin.alter_group_offsets(topic, {first: OffsetAndMetadata(2, "of mine"), second: 0})
    assert admin.group_offsets(topic) == {first: GroupOffset(OffsetAndMetadata(2, "of mine"), 5, 3), second: GroupOffset(OffsetAndMetadata(0), 0, 0)}
    assert admin.group_offsets(topic, [first], lag=False) == {first: GroupOffset(OffsetAndMetadata(2, "of mine"), None, None)}

    def after(to: OffsetSpec | datetime.timedelta | int | None = None, *, shift_by: int | None = None) -> int:
        return admin.reset_group_offsets(topic, to, shift_by=shift_by, partitions=[first])[first].after

    assert admin.reset_group_offsets(topic, OffsetSpec.LATEST, dry_run=True) == {first: OffsetReset(2, 5), second: OffsetReset(0, 0)}
    assert admin.group_offsets(topic)[first].lag == 3
    assert admin.reset_group_offsets(topic, OffsetSpec.LATEST)[first] == OffsetReset(2, 5)
    assert admin.group_offsets(topic)[first].lag == 0
    assert after(shift_by=-1) == 4
    assert after(shift_by=-100) == 0
    assert after(shift_by=100) == 5
    assert after(to=WRITTEN_AT + 3) == 3
    assert after(to=WRITTEN_AT + 99) == 5
    assert after(to=datetime.timedelta(0)) == 5
    assert after(to=datetime.timedelta(days=1)) == 0
    assert admin.reset_group_offsets(topic, datetime.datetime.fromtimestamp((WRITTEN_AT + 1) / 1000, datetime.timezone.utc))[first].after == 1
    admin.delete_group_offsets(topic, [second])
    assert list(admin.group_offsets(topic)) == [first]
    admin.delete_groups([topic])
    with pytest.raises(GroupIdNotFoundError, match="does not exist, so it has committed nothing"):
        admin.group_offsets(topic)


def test_offsets_of_an_open_transaction_are_waited_for_where_an_offset_is_relied_on(
        kafka_cluster: LocalCluster, admin: Admin, topic: str, tps: list[TopicPartition]) -> None:
    first = tps[0]
    admin.alter_group_offsets(topic, {first: 1})
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=topic) as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send_offsets({first: 3}, ConsumerGroupMetadata(topic))
            assert admin.group_offsets(topic)[first].committed == OffsetAndMetadata(1)
            for partitions in (None, [first]):
                with pytest.raises(KafkaTimeoutError):
                    admin.group_offsets(topic, partitions, require_stable=True, timeout=0.5)
            with pytest.raises(KafkaTimeoutError):
                admin.reset_group_offsets(topic, shift_by=1, timeout=0.5)
    assert admin.group_offsets(topic, require_stable=True, timeout=20)[first].committed == OffsetAndMetadata(3)
    assert admin.reset_group_offsets(topic, shift_by=1)[first] == OffsetReset(3, 4)


def test_offsets_of_partitions_whose_end_is_not_known_are_still_seen(admin: Admin, topic: str, tps: list[TopicPartition]) -> None:
    absent = TopicPartition(topic, 9)
    admin.alter_group_offsets(topic, {tps[0]: 2})
    assert admin.group_offsets(topic, [tps[0], absent]) == {tps[0]: GroupOffset(OffsetAndMetadata(2), 5, 3), absent: GroupOffset(None, None, None)}


def test_each_group_has_its_own_outcome(kafka_cluster: LocalCluster, topic: str, tps: list[TopicPartition]) -> None:
    async def main() -> None:
        async with AsyncAdmin(bootstrap_servers=kafka_cluster.bootstrap_servers) as admin:
            await admin.alter_group_offsets(topic, {tps[0]: 1})
            with pytest.raises(PartialFailureError) as failed:
                await admin.describe_groups([topic, f"{topic}-nowhere"])
            assert isinstance(failed.value.errors[f"{topic}-nowhere"], GroupIdNotFoundError)
            assert failed.value.results[topic].state == "Empty"
            with pytest.raises(GroupIdNotFoundError):
                await admin.delete_groups([f"{topic}-nowhere"])

    asyncio.run(main())


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_each_member_to_remove_has_its_own_outcome(
        kafka_cluster: LocalCluster, admin: Admin, topic: str, tps: list[TopicPartition], protocol: Literal["classic", "consumer"]) -> None:
    with Consumer(topics=[topic], bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic, group_protocol=protocol, client_id="me",
                  group_instance_id="static") as consumer:
        eventually(lambda: consumer.poll(0.1) is not None and len(consumer.assignment()) == len(tps))
        assert [each.group_instance_id for each in admin.describe_groups([topic])[topic].members] == ["static"]
        with pytest.raises(PartialFailureError) as failed:
            admin.remove_members(topic, ["static", "no-such"])
        assert failed.value.results == {"static": None}
        assert isinstance(failed.value.errors["no-such"], UnknownMemberIdError)


def test_all_members_are_removed_when_none_is_named(
        kafka_cluster: LocalCluster, admin: Admin, topic: str, tps: list[TopicPartition]) -> None:
    with Consumer(topics=[topic], bootstrap_servers=kafka_cluster.bootstrap_servers, group_id=topic, group_protocol="classic") as consumer:
        eventually(lambda: consumer.poll(0.1) is not None and len(consumer.assignment()) == len(tps))
        described = admin.describe_groups([topic])[topic]
        assert described.coordinator == 1
        admin.remove_members(topic)
        assert not {each.member_id for each in admin.describe_groups([topic])[topic].members} & {each.member_id for each in described.members}


def test_offsets_go_into_a_file_and_into_another_group(admin: Admin, topic: str, tps: list[TopicPartition], tmp_path: Path) -> None:
    admin.alter_group_offsets(topic, {tps[0]: 2, tps[1]: 0})
    write_offsets(tmp_path / "offsets.csv", admin.group_offsets(topic))
    admin.alter_group_offsets(f"{topic}-copy", read_offsets(tmp_path / "offsets.csv"))
    assert [each.committed for each in admin.group_offsets(f"{topic}-copy").values()] == [OffsetAndMetadata(2), OffsetAndMetadata(0)]


def test_of_several_offsets_those_of_unknown_topics_are_named_and_the_others_stored(admin: Admin, topic: str, tps: list[TopicPartition]) -> None:
    unknown = TopicPartition(f"{topic}-none", 0)
    with pytest.raises(PartialFailureError) as failed:
        admin.alter_group_offsets(topic, {tps[0]: 3, unknown: 1})
    assert failed.value.results == {tps[0]: None}
    assert isinstance(failed.value.errors[unknown], UnknownTopicOrPartitionError)
    assert {tp: each.committed and each.committed.offset for tp, each in admin.group_offsets(topic).items()} == {tps[0]: 3}
