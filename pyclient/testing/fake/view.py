"""Views of the model for tests: records, groups and offsets as plain values, with checked names."""
from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from pyclient.codec.batches import read_batches
from pyclient.codec.encode import encode_batch
from pyclient.errors import IllegalStateError
from pyclient.partitioners import murmur2_partition
from pyclient.records import Header, OffsetAndMetadata, RecordMetadata, TopicPartition
from pyclient.records.record import Record
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.coordinator import AnyGroup, Coordinator
from pyclient.testing.fake.handlers.topics import name_problem
from pyclient.testing.fake.model.group import Member
from pyclient.testing.fake.model.heartbeats import ConsumerMembership
from pyclient.testing.fake.model.membership import Membership
from pyclient.testing.fake.model.kafka import Kafka, Topic
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.reconciliation import ConsumerMember, Place
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.subscription import Malformed, assigned
from pyclient.testing.fake.model.topic_config import check

Content = tuple[int | None, bytes | None, bytes | None, Sequence[Header]]
"""Timestamp, key, value, headers."""


class MemberView(NamedTuple):
    """A member of a group."""

    id: str
    client_id: str
    instance_id: str | None
    """Its ``group.instance.id``."""
    partitions: tuple[TopicPartition, ...]
    """Its assignment; in a classic group empty during a rebalance and for members that are not consumers."""
    epoch: int = -1
    """Member epoch, in a KIP-848 group."""
    revoking: tuple[TopicPartition, ...] = ()
    """Partitions it has to revoke and has not confirmed yet, in a KIP-848 group; no other member has them."""
    target: tuple[TopicPartition, ...] = ()
    """Target assignment, in a KIP-848 group."""


class GroupView(NamedTuple):
    """A group's current state; ``state`` is spelled as in Kafka's tools."""

    id: str
    state: str
    generation: int
    """In a KIP-848 group its epoch."""
    protocol: str | None
    """In a KIP-848 group the server-side assignor."""
    leader: str | None
    members: tuple[MemberView, ...]
    type: str = "classic"
    """"classic", or "consumer" (KIP-848)."""
    assignment_epoch: int = -1
    """In a KIP-848 group the group epoch of the target assignment."""

    @property
    def owners(self) -> dict[TopicPartition, str]:
        """Partition → id of the member that may use it now, unconfirmed revocations included."""
        return {place: each.id for each in self.members for place in (*each.partitions, *each.revoking)}


# ---- topics ----------------------------------------------------------------------------------------------------------


def create_topic(kafka: Kafka, name: str, partitions: int, replication_factor: int | None, config: dict[str, str]) -> None:
    """Raises ValueError when a broker would refuse it."""
    problem = name_problem(name)
    if problem is not None:
        raise ValueError(f"topic name: {problem}")
    if name in kafka.topics:
        raise ValueError(f"topic {name!r} exists already")
    if partitions < 1:
        raise ValueError(f"partitions={partitions}: a topic has at least one")
    if replication_factor is not None and not 1 <= replication_factor <= len(kafka.brokers):
        raise ValueError(f"replication_factor={replication_factor}: there are {len(kafka.brokers)} brokers")
    check(config)
    kafka.create_topic(name, partitions, replication_factor=replication_factor, config=config)


def partitions(kafka: Kafka, topic: str, index: int | None) -> list[Partition]:
    """One partition of a topic, or all. Raises ValueError when there is none."""
    found = _topic(kafka, topic)
    if index is None:
        return found.partitions
    if not 0 <= index < len(found.partitions):
        raise ValueError(f"topic {topic!r} has no partition {index}: it has {len(found.partitions)}")
    return [found.partitions[index]]


def _topic(kafka: Kafka, name: str) -> Topic:
    found = kafka.topics.get(name)
    if found is None:
        raise ValueError(f"there is no topic {name!r}: there are {sorted(kafka.topics) or 'none'}")
    return found


# ---- records ---------------------------------------------------------------------------------------------------------


def produce(kafka: Kafka, topic: str, index: int | None, content: Content) -> RecordMetadata:
    """Append a record at the leader."""
    timestamp, key, value, headers = content
    moment = kafka.wall() if timestamp is None else timestamp
    if index is None and key is not None:
        index = murmur2_partition(key, len(_topic(kafka, topic).partitions))
    partition = partitions(kafka, topic, index or 0)[0]
    if partition.leader == NO_LEADER:
        raise IllegalStateError(f"{partition.name} has no leader: none of its brokers runs")
    try:
        done = partition.write(partition.leader, encode_batch([(moment, key, value, headers)], base_timestamp=moment), all_in_sync=True)
    except RefusalError as refused:
        raise IllegalStateError(f"{partition.name} refuses the record with error {refused.code}: {refused.message or ''}") from None
    return RecordMetadata(topic, partition.index, done.base_offset, moment if done.append_time < 0 else done.append_time)


def records(partition: Partition) -> Iterator[Record]:
    """The committed records; not those of aborted transactions."""
    log = partition.log
    aborted = {(each.producer_id, each.first_offset, each.last_offset) for each in log.aborted(log.start, log.high_watermark)}
    for batch in partition.committed():
        lost = any(batch.is_transactional and batch.producer_id == producer and first <= batch.base_offset <= last
                   for producer, first, last in aborted)
        if not batch.is_control and not lost:
            for opened in read_batches(batch.data):
                yield from (each for each in opened.iter_records(partition.topic.name, partition.index) if each.offset >= log.start)


def begin_at(partition: Partition, offset: int) -> None:
    """Raises ValueError when the offset is not committed."""
    try:
        partition.begin_at(offset)
    except RefusalError:
        raise ValueError(f"offset {offset} of {partition.name}: it is above the high watermark, {partition.log.high_watermark}") from None


# ---- groups ----------------------------------------------------------------------------------------------------------


def group(kafka: Kafka, found: AnyGroup) -> GroupView:
    """The group as a test sees it."""
    if isinstance(found, ConsumerGroup):
        return GroupView(found.id, found.state.value, found.epoch, found.assignor, None,
                         tuple(_consumer(kafka, found, each) for each in found.members.values()), found.kind, found.assignment_epoch)
    return GroupView(found.id, found.state.value, found.generation, found.protocol, found.leader,
                     tuple(_member(each) for each in found.members.values()))


def _member(member: Member) -> MemberView:
    try:
        mine = assigned(member.assignment)
    except Malformed:
        mine = ()
    return MemberView(member.id, member.client_id, member.instance, mine)


def _consumer(kafka: Kafka, group: ConsumerGroup, member: ConsumerMember) -> MemberView:
    return MemberView(member.id, member.client_id, member.instance, _places(kafka, member.assigned), member.epoch,
                      _places(kafka, member.revoking), _places(kafka, group.targets.get(member.id, ())))


def _places(kafka: Kafka, places: Iterable[Place]) -> tuple[TopicPartition, ...]:
    known = ((kafka.topics_by_id.get(topic), index) for topic, index in places)
    return tuple(sorted(TopicPartition(topic.name, index) for topic, index in known if topic is not None))


def committed(kafka: Kafka, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
    """A group's offsets."""
    found = kafka.part(Coordinator).groups.get(group_id)
    return {TopicPartition(*key): OffsetAndMetadata(each.offset, each.metadata, each.leader_epoch if each.leader_epoch >= 0 else None)
            for key, each in (found.offsets if found is not None else {}).items()}


def expire(kafka: Kafka, group_id: str, name: str) -> None:
    """Expire a member. Raises ValueError when there is no such group or member."""
    found = _group(kafka, group_id)
    member_id = _member_named(found, name)
    if isinstance(found, ConsumerGroup):
        kafka.part(ConsumerMembership).expire(found, member_id)
    else:
        kafka.part(Membership).expire(found, member_id)


def _group(kafka: Kafka, group_id: str) -> AnyGroup:
    groups = kafka.part(Coordinator).groups
    if group_id not in groups:
        raise ValueError(f"there is no group {group_id!r}: there are {sorted(groups) or 'none'}")
    return groups[group_id]


def _member_named(found: AnyGroup, name: str) -> str:
    """The id of a member by one of its names. Raises ValueError unless exactly one member has it."""
    if name in found.members:
        return name
    named = [each.id for each in found.members.values() if name in (each.instance, each.client_id)]
    if len(named) != 1:
        raise ValueError(f"{len(named)} members of {found.id!r} are called {name!r}; the ids are {sorted(found.members) or 'none'}")
    return named[0]


def set_password(kafka: Kafka, user: str, password: str | None) -> None:
    """Change who may log in."""
    if kafka.users is None:
        raise IllegalStateError("this cluster has no logins: create it with sasl={user: password}")
    if password is None:
        kafka.users.pop(user, None)
    else:
        kafka.users[user] = password
