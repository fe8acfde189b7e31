"""The cluster: its brokers, its features and the quorum of its controllers, as `Admin` returns them."""
from __future__ import annotations

import enum
from typing import NamedTuple
from uuid import UUID

from pyclient.descriptions.acls import AclOperation
from pyclient.records import Node


class ClusterDescription(NamedTuple):
    """The cluster's id, its live brokers (fenced ones too if those were asked for) and the node id of the controller
    (None while unknown).

    ``authorized_operations`` are what this client's user may do with the cluster; None when they were not asked for.
    """

    cluster_id: str | None
    nodes: tuple[Node, ...]
    controller: int | None
    authorized_operations: frozenset[AclOperation] | None = None


class FeatureChange(enum.IntEnum):
    """How the level of a feature may change, by Kafka's number (KIP-584)."""

    UPGRADE = 1
    """To a higher level only."""
    SAFE_DOWNGRADE = 2
    """To a lower one too, if no metadata is lost by that."""
    UNSAFE_DOWNGRADE = 3
    """To a lower one too, even if metadata is lost."""


class FeatureRange(NamedTuple):
    """The levels of a feature that a broker supports (KIP-584), and the level that is finalized; 0: it is off."""

    lowest: int
    highest: int
    finalized: int


class VoterEndpoint(NamedTuple):
    """Where the other controllers reach a voter: the name of a listener for controllers, with its host and port."""

    name: str
    host: str
    port: int


class QuorumReplica(NamedTuple):
    """A controller or broker that follows the metadata log (KIP-595).

    ``lag`` is in records of that log. The times are seconds since 1970, of the leader's clock: of the newest fetch, and
    when everything had been fetched. Both are None of the leader itself, and where brokers do not say (before 3.3).
    ``directory_id`` is that of its log directory; None where voters cannot be changed (``kraft.version`` 0, KIP-853).
    ``endpoints`` are known of voters.
    """

    node_id: int
    log_end_offset: int
    lag: int
    last_fetched_at: float | None
    last_caught_up_at: float | None
    directory_id: UUID | None = None
    endpoints: tuple[VoterEndpoint, ...] = ()


class Quorum(NamedTuple):
    """Who votes on the metadata log, who only follows it, and the leader: the active controller."""

    leader: int | None
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
