"""What the simulation of Admin does: one operation each, on subjects of its own, and what must be so if it succeeds."""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyclient import NewTopic, TopicPartition
from pyclient.admin import ConfigResource, FencedProducer, OffsetSpec
from pyclient.codec.encode import encode_batch
from pyclient.errors import PartialFailureError
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.group import Committed, Group, Member, State
from pyclient.testing.fake.model.transaction_coordinator import TransactionCoordinator
from pyclient.testing.fake.model.transactions import Producer, Transaction
from pyclient.testing.fake.model.transactions import State as TransactionState

if TYPE_CHECKING:
    from tests.simulation.test_admin_seeds import Scene

RECORDS: Final = 5
LONG_MS: Final = 600_000
"""Longer than any run: no session and no transaction times out."""


class Step(NamedTuple):
    """An operation, and what must be so for each subject that it reports as done."""

    call: Callable[[float], Awaitable[Any]]
    """Does it, with a timeout."""
    is_so: Callable[[Any, Any], bool]
    """Of a subject and its result."""
    subjects: tuple[Any, ...]


def create_topics(scene: Scene) -> Step:
    names = (scene.name("new"), scene.name("new"))
    return Step(lambda limit: scene.admin.create_topics([NewTopic(name, 3, 2) for name in names], timeout=limit),
                lambda name, _: scene.cluster.topics().get(name) == 3, names)


def delete_topics(scene: Scene) -> Step:
    names = (scene.topic(), scene.topic())
    return Step(lambda limit: scene.admin.delete_topics(names, timeout=limit), lambda name, _: name not in scene.cluster.topics(), names)


def create_partitions(scene: Scene) -> Step:
    names = (scene.topic(), scene.topic())
    return Step(lambda limit: scene.admin.create_partitions(dict.fromkeys(names, 4), timeout=limit), lambda name, _: scene.cluster.topics()[name] == 4, names)


def alter_configs(scene: Scene) -> Step:
    name = scene.topic()
    return Step(lambda limit: scene.admin.alter_configs({ConfigResource.topic(name): {"retention.ms": 12345}}, timeout=limit),
                lambda name, _: scene.world.kafka.topics[name].config["retention.ms"] == "12345", (name,))


def delete_records(scene: Scene) -> Step:
    topic = scene.topic()
    partitions = tuple(TopicPartition(topic, number) for number in (0, 1))
    for tp in partitions:
        for _ in range(RECORDS):
            scene.cluster.produce(topic, b"x", partition=tp.partition)
    return Step(lambda limit: scene.admin.delete_records(dict.fromkeys(partitions, -1), timeout=limit),
                lambda tp, low: low == RECORDS and not scene.cluster.records(tp.topic, tp.partition), partitions)


def list_offsets(scene: Scene) -> Step:
    topic = scene.topic()
    partitions = tuple(TopicPartition(topic, number) for number in (0, 1))
    for tp in partitions:
        scene.cluster.produce(topic, b"x", partition=tp.partition)
    return Step(lambda limit: scene.admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.LATEST), timeout=limit), lambda _, found: found.offset == 1, partitions)


def alter_group_offsets(scene: Scene) -> Step:
    group, tp = scene.name("group"), TopicPartition(scene.topic(), 0)
    return Step(lambda limit: scene.admin.alter_group_offsets(group, {tp: 7}, timeout=limit), lambda tp, _: scene.cluster.committed(group)[tp].offset == 7, (tp,))


# ---- groups ----------------------------------------------------------------------------------------------------------


def group(scene: Scene, *committed: TopicPartition, instance: str | None = None) -> str:
    """A group with offsets, and perhaps one static member."""
    keeper = scene.world.kafka.part(Coordinator)
    made = Group(scene.name("group"))
    if instance is not None:
        made = Group(made.id, State.STABLE, generation=1, protocol_type="consumer", protocol="range")
        made.add(Member(id=f"{instance}-id", instance=instance, client_id="c", host="h", session_timeout_ms=LONG_MS, rebalance_timeout_ms=LONG_MS,
                        protocol_type="consumer", protocols=(("range", b""),)))
    keeper.put(made)
    made.save()
    for tp in committed:
        keeper.commit(made, (tp.topic, tp.partition), Committed(3, -1, ""), None)
    return made.id


def delete_groups(scene: Scene) -> Step:
    names = (group(scene), group(scene))
    return Step(lambda limit: scene.admin.delete_groups(names, timeout=limit), lambda name, _: name not in scene.cluster.groups(), names)


def remove_members(scene: Scene) -> Step:
    instance = scene.name("instance")
    name = group(scene, instance=instance)
    return Step(lambda limit: scene.admin.remove_members(name, [instance], timeout=limit), lambda _, __: not scene.cluster.groups()[name].members, (instance,))


def delete_group_offsets(scene: Scene) -> Step:
    topic = scene.topic()
    partitions = tuple(TopicPartition(topic, number) for number in (0, 1))
    name = group(scene, *partitions)
    return Step(lambda limit: scene.admin.delete_group_offsets(name, partitions, timeout=limit),
                lambda tp, _: tp not in scene.cluster.committed(name), partitions)


def reset_group_offsets(scene: Scene) -> Step:
    tp = TopicPartition(scene.topic(), 0)
    for _ in range(RECORDS):
        scene.cluster.produce(tp.topic, b"x", partition=0)
    name = group(scene, tp)
    return Step(lambda limit: scene.admin.reset_group_offsets(name, OffsetSpec.LATEST, timeout=limit),
                lambda tp, reset: scene.cluster.committed(name)[tp].offset == reset.after == RECORDS, (tp,))


def group_offsets(scene: Scene) -> Step:
    tp = TopicPartition(scene.topic(), 0)
    name = group(scene, tp)
    return Step(lambda limit: scene.admin.group_offsets(name, lag=False, timeout=limit), lambda _, found: found.committed.offset == 3, (tp,))


def describe_groups(scene: Scene) -> Step:
    instance = scene.name("instance")
    names = (group(scene, instance=instance), group(scene))
    return Step(lambda limit: scene.admin.describe_groups(names, timeout=limit),
                lambda name, found: [each.group_instance_id for each in found.members] == [instance] * (name == names[0]), names)


def list_groups(scene: Scene) -> Step:
    async def listed(limit: float) -> list[str]:
        return [each.group_id for each in await scene.admin.list_groups(timeout=limit)]
    return in_list(scene, group(scene), listed)


# ---- transactions ----------------------------------------------------------------------------------------------------


def transaction(scene: Scene, *, forgotten: bool = False) -> tuple[str, TopicPartition, Transaction]:
    """A transactional id whose transaction is open, with a record in a partition.

    With *forgotten* its coordinator knows nothing of it.
    """
    kafka, name, tp = scene.world.kafka, scene.name("transaction"), TopicPartition(scene.topic(), 0)
    keeper = kafka.part(TransactionCoordinator)
    made = Transaction(name, 1_000_000 + len(keeper.transactions) + scene.random.randrange(1_000_000), LONG_MS, epoch=0)
    if not forgotten:
        made.add(Producer(made.producer_id, 0), [(tp.topic, 0)], kafka.wall())
        keeper.transactions[name] = made
        keeper.homes.put(name)
    partition = kafka.partition(tp.topic, 0)
    assert partition is not None
    partition.write(partition.leader, encode_batch([(kafka.wall(), None, b"x", ())], base_timestamp=kafka.wall(), producer_id=made.producer_id, producer_epoch=0,
                                                   base_sequence=0, transactional=True), all_in_sync=True)
    return name, tp, made


def is_open(scene: Scene, tp: TopicPartition, producer_id: int) -> bool:
    partition = scene.world.kafka.partition(tp.topic, tp.partition)
    assert partition is not None
    return partition.log.producers.opened_at(producer_id) is not None


def abort_transaction(scene: Scene) -> Step:
    _, tp, made = transaction(scene, forgotten=True)
    return Step(lambda limit: scene.admin.abort_transaction(tp, 0, timeout=limit), lambda tp, _: not is_open(scene, tp, made.producer_id), (tp,))


def fence_producers(scene: Scene) -> Step:
    name, _, made = transaction(scene)

    def is_so(name: str, fenced: FencedProducer) -> bool:
        now = scene.world.kafka.part(TransactionCoordinator).transactions[name]
        return made.epoch > 0 and now.state is TransactionState.EMPTY and now.producer == (fenced.producer_id, fenced.producer_epoch)

    return Step(lambda limit: scene.admin.fence_producers([name], timeout=limit), is_so, (name,))


def describe_transactions(scene: Scene) -> Step:
    name, tp, _ = transaction(scene)
    return Step(lambda limit: scene.admin.describe_transactions([name], timeout=limit),
                lambda _, found: (found.state, found.partitions) == ("Ongoing", (tp,)), (name,))


def describe_producers(scene: Scene) -> Step:
    _, tp, made = transaction(scene)
    return Step(lambda limit: scene.admin.describe_producers([tp], timeout=limit),
                lambda _, found: [(each.producer_id, each.transaction_start_offset) for each in found] == [(made.producer_id, 0)], (tp,))


def list_transactions(scene: Scene) -> Step:
    async def listed(limit: float) -> list[str]:
        return [each.transactional_id for each in await scene.admin.list_transactions(states=["Ongoing"], timeout=limit)]
    return in_list(scene, transaction(scene)[0], listed)


def in_list(scene: Scene, name: str, listed: Callable[[float], Awaitable[list[str]]]) -> Step:
    """A list of all brokers has *name*, unless coordinators moved meanwhile: to one that had answered already."""
    async def call(limit: float) -> dict[str, bool]:
        before = scene.moves
        try:
            return {name: name in await listed(limit) or scene.moves > before}
        except PartialFailureError as partly:
            raise next(iter(partly.errors.values())) from None
    return Step(call, lambda _, is_listed: is_listed, (name,))


KINDS: Final[tuple[Callable[[Scene], Step], ...]] = (
    create_topics, delete_topics, create_partitions, alter_configs, delete_records, list_offsets, alter_group_offsets, delete_groups, remove_members,
    delete_group_offsets, reset_group_offsets, group_offsets, describe_groups, list_groups, abort_transaction, fence_producers, describe_transactions,
    describe_producers, list_transactions)
