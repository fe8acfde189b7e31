"""What an assignor gets and returns: the cluster, a group's members, and the partitions that each is assigned."""
from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pyclient.descriptions.topics import PartitionDescription
from pyclient.records import NO_GENERATION, Node, TopicPartition


class ClusterView(NamedTuple):
    """What an assignor sees of the cluster: the partitions of every subscribed topic, and the brokers by node id.

    A subscribed topic that does not exist, or is not known yet, is not in ``topics``.
    """

    topics: Mapping[str, Sequence[PartitionDescription]]
    nodes: Mapping[int, Node] = {}

    def racks(self, partition: PartitionDescription) -> frozenset[str]:
        """The racks that hold a replica of *partition*, as far as brokers report their racks."""
        found = (self.nodes[replica].rack for replica in partition.replicas if replica in self.nodes)
        return frozenset(rack for rack in found if rack is not None)


class MemberView(NamedTuple):
    """What an assignor sees of one member: its topics, and what it owned in which generation (KIP-429, KIP-792).

    All of it comes from the member, which may be any client, so check it: topics may be unknown or repeated; partitions
    may have several owners, negative numbers, or no longer exist; ``user_data`` may be of another format. ``owned`` is
    empty in an eager rebalance. ``generation`` is -1 from clients that do not send it. ``instance_id`` is that of a
    static member (KIP-345), ``rack`` is the member's (KIP-881).
    """

    topics: tuple[str, ...]
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    instance_id: str | None = None
    rack: str | None = None
    user_data: bytes | None = None


class Assignment(NamedTuple):
    """The partitions of one member; ``user_data`` is passed to it unchanged."""

    partitions: tuple[TopicPartition, ...]
    user_data: bytes | None = None
