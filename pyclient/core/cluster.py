"""Views of the cluster: immutable snapshots, and how a Metadata response makes the next one.

Knows brokers, topics, leaders and epochs; does not know when to request them. Rule: a partition's leader epoch never
decreases unless its topic was created again (M02).
"""
from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

import attrs

from pyclient.config.addresses import LONGEST_HOST, is_usable
from pyclient.descriptions.acls import NOT_ASKED, operations_of
from pyclient.descriptions.topics import PartitionDescription, TopicDescription
from pyclient.records import NO_LEADER_EPOCH, Node, TopicPartition
from pyclient.redaction import in_one_line

NO_NODE: Final = -1
MOST_NODES: Final = 10_000
"""More than any cluster has; hints of leaders add no others."""


@attrs.frozen
class Partition:
    """A partition as of the newest response; *leader* is None while it has none."""

    number: int
    leader: int | None
    epoch: int
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline: tuple[int, ...] = ()

    def describe(self) -> PartitionDescription:
        """The public form."""
        return PartitionDescription(self.number, self.leader, self.epoch, self.replicas, self.isr, self.offline)


@attrs.frozen
class Topic:
    """A topic with its partitions by number, or the broker's error code for it."""

    name: str
    id: UUID | None = None
    partitions: tuple[Partition, ...] = ()
    error: int = 0
    internal: bool = False
    operations: int = NOT_ASKED
    """A bit set: what this client's user may do with it."""
    id_bytes: bytes | None = attrs.field(init=False, eq=False, repr=False)
    """The id as requests carry it."""

    @id_bytes.default
    def _bytes_of_id(self) -> bytes | None:
        return None if self.id is None else self.id.bytes

    @property
    def available(self) -> tuple[int, ...]:
        """The partitions that have a leader."""
        return tuple(part.number for part in self.partitions if part.leader is not None)

    def describe(self) -> TopicDescription:
        """The public form."""
        return TopicDescription(self.name, self.id, self.internal, tuple(part.describe() for part in self.partitions),
                                operations_of(self.operations))


@attrs.frozen
class Cluster:
    """One consistent view. It never changes: a new one, with a higher *version*, replaces it."""

    version: int = 0
    id: str | None = None
    nodes: Mapping[int, Node] = attrs.field(factory=dict)
    controller: int | None = None
    topics: Mapping[str, Topic] = attrs.field(factory=dict)
    names: Mapping[UUID, str] = attrs.field(factory=dict)
    unusable: frozenset[str] = frozenset()
    """Brokers left out because of their address, as texts for the log."""

    def partition(self, tp: TopicPartition) -> Partition | None:
        """The partition; None when its topic or number is unknown."""
        topic = self.topics.get(tp.topic)
        if topic is None or not 0 <= tp.partition < len(topic.partitions):
            return None
        return topic.partitions[tp.partition]

    def leader(self, tp: TopicPartition) -> int | None:
        """The node id of the partition's leader; None while it is unknown, absent, or not among the known brokers."""
        partition = self.partition(tp)
        return partition.leader if partition is not None and partition.leader in self.nodes else None

    def updated(self, answer: Any, *, everything: bool = False, but: Collection[str] = ()) -> Cluster:
        """The view after a Metadata response. With *everything*, topics missing in it are removed, except *but*: those
        were not requested."""
        topics = {name: topic for name, topic in self.topics.items() if not everything or name in but}
        for each in answer.topics:
            name = each.name or self.names.get(each.topic_id)
            if name is not None and (name.isprintable() or each.error_code):  # no topic has such a name, but it would get into logs
                topics[name] = _merged(self.topics.get(name), _topic(name, each))
        return self._with(answer, topics)

    def of_controllers(self, answer: Any) -> Cluster:
        """The view after a DescribeCluster response of controllers; they know of no topics."""
        return self._with(answer, dict(self.topics), "broker_id")

    def moved(self, tp: TopicPartition, leader: int, epoch: int, node: Node | None = None) -> Cluster:
        """The view after a hint of a newer leader (KIP-951); this view if the hint is not newer or incomplete (C12)."""
        topic, known = self.topics.get(tp.topic), self.partition(tp)
        new = node is not None and self.nodes.get(node.id) != node and len(self.nodes) < MOST_NODES
        nodes = MappingProxyType({**self.nodes, node.id: node}) if node is not None and new else self.nodes
        if topic is None or known is None or epoch <= known.epoch or leader not in nodes:
            return self
        parts = list(topic.partitions)
        parts[tp.partition] = attrs.evolve(known, leader=leader, epoch=epoch)
        topics = {**self.topics, topic.name: attrs.evolve(topic, partitions=tuple(parts))}
        return attrs.evolve(
            self, version=self.version + 1, topics=MappingProxyType(topics), nodes=nodes)

    def _with(self, answer: Any, topics: dict[str, Topic], number: str = "node_id") -> Cluster:
        nodes = nodes_of(answer.brokers, number)
        controller = getattr(answer, "controller_id", NO_NODE)
        return Cluster(
            version=self.version + 1,
            id=getattr(answer, "cluster_id", None) or self.id,
            nodes=MappingProxyType(nodes),
            controller=controller if controller in nodes else None,
            topics=MappingProxyType(topics),
            names=_names(topics),
            unusable=frozenset(_shown(each, getattr(each, number)) for each in answer.brokers if getattr(each, number) not in nodes),
        )


def nodes_of(answers: Iterable[Any], number: str = "node_id") -> dict[int, Node]:
    """The brokers of a response by their ids, which it calls *number*, without those that no client can connect to.

    A host may hold anything, and a port above 65535 would be another one. Ids below 0 are bootstrap addresses.
    """
    return {getattr(each, number): Node(getattr(each, number), each.host, each.port, getattr(each, "rack", None), getattr(each, "is_fenced", False))
            for each in answers if getattr(each, number) >= 0 and is_usable(each.host, each.port)}


def _shown(broker: Any, number: int) -> str:
    return f"{in_one_line(broker.host, LONGEST_HOST)}:{broker.port} (node {number})"


def _names(topics: Mapping[str, Topic]) -> Mapping[UUID, str]:
    return MappingProxyType({topic.id: topic.name for topic in topics.values() if topic.id is not None})


def _topic(name: str, answer: Any) -> Topic:
    parts = sorted((_partition(each) for each in answer.partitions), key=lambda part: part.number)
    usable = parts if [part.number for part in parts] == list(range(len(parts))) else []
    return Topic(name, getattr(answer, "topic_id", None), tuple(usable), int(answer.error_code), answer.is_internal,
                 getattr(answer, "topic_authorized_operations", NOT_ASKED))


def _partition(answer: Any) -> Partition:
    return Partition(
        answer.partition_index,
        answer.leader_id if answer.leader_id >= 0 else None,
        getattr(answer, "leader_epoch", NO_LEADER_EPOCH),
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(getattr(answer, "offline_replicas", ())),
    )


def _merged(old: Topic | None, new: Topic) -> Topic:
    """The newer of two answers about a topic, partition by partition."""
    if old is None or (old.id is not None and new.id is not None and old.id != new.id):
        return new  # created again: epochs start over
    if new.error:  # an answer with an error has neither id nor partitions: keep the known ones
        return attrs.evolve(new, id=old.id, partitions=old.partitions)
    return attrs.evolve(new, id=new.id or old.id, partitions=tuple(_newer(old.partitions, part) for part in new.partitions))


def _newer(known: tuple[Partition, ...], answered: Partition) -> Partition:
    before = known[answered.number] if answered.number < len(known) else None
    stale = before is not None and NO_LEADER_EPOCH < answered.epoch < before.epoch
    return before if before is not None and stale else answered
