"""What the leader of a classic group does besides being a member: shares partitions out, and watches the topics (G07, G08).

The assignor runs elsewhere (*offload*), for it may take seconds; heartbeats go on meanwhile. Knows no requests.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.consumer_protocol import decode_subscription, encode_assignment
from pyclient.core.cluster import Cluster, Topic
from pyclient.core.group.classic_calls import Joined
from pyclient.core.group.assignors import COOPERATIVE, GroupAssignors
from pyclient.core.metadata import Metadata, check_topic_name
from pyclient.errors import IllegalStateError, InconsistentGroupProtocolError, KafkaError, ProtocolError, UnknownTopicOrPartitionError
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView
from pyclient.records import Node, TopicPartition

_log = logging.getLogger(__name__)
_COOPERATIVE_STICKY: Final = "cooperative-sticky"
PIN: Final = "leader of the group"
Offload: TypeAlias = Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None]
"""Runs the first function elsewhere, and calls the second on the loop with its result, or its error."""
Tell: TypeAlias = Callable[[Joined, Mapping[str, bytes], BaseException | None], None]
Shape: TypeAlias = Mapping[str, tuple[Any, ...]]
"""What of each topic an assignment depends on."""


@attrs.frozen
class Generation:
    """One generation that this member leads; *tell* wants everybody's assignment, once. Without it they keep what they have."""

    joined: Joined
    assignor: Assignor
    members: Mapping[str, MemberView]
    tell: Tell | None

    @property
    def topics(self) -> frozenset[str]:
        """What anybody subscribes to."""
        return frozenset(topic for member in self.members.values() for topic in member.topics)

    @property
    def racked(self) -> bool:
        """Whether any member says where it is: else racks matter to nobody."""
        return any(member.rack is not None for member in self.members.values())


class GroupLeader:
    """The leader's work, one generation after the other."""

    def __init__(self, strategies: GroupAssignors, metadata: Metadata, offload: Offload) -> None:
        self._strategies = strategies
        self._metadata = metadata
        self._offload = offload
        self._generation: Generation | None = None
        self._shape: Shape | None = None  # for which the partitions were shared out; None: they are not yet, or it is not known
        self._inherits = False  # they were before this member came back: what it is to find out
        self._inherited: Collection[TopicPartition] | None = None
        self._nodes: dict[int, Node] = {}  # every broker ever seen: one that is down has not moved to another rack

    def begin(self, joined: Joined, tell: Tell) -> None:
        """Lead this generation: *tell* is called, now or later, with everybody's assignment or why there is none; with nothing to share out, never."""
        assignor = self._strategies.find(joined.assignor)
        if assignor is None:
            tell(joined, {}, InconsistentGroupProtocolError(f"the group has chosen {joined.assignor!r}, which this member did not offer"))
            return
        members = {member: _readable(member, instance, data) for member, (instance, data) in joined.members.items()}
        self._generation = Generation(joined, assignor, members, None if joined.skips_assignment else tell)
        self._shape, self._inherits, self._inherited = None, joined.skips_assignment, None
        self._metadata.pin(_nameable(self._generation.topics), PIN)

    def inherit(self, joined: Joined, shared: Collection[TopicPartition] | None) -> None:
        """What was shared out in a generation that began before this member came back to lead it; None: there is no telling."""
        if self._generation is not None and self._generation.joined is joined:
            self._inherits, self._inherited = False, shared

    def end(self) -> None:
        """Be the leader no more."""
        self._generation = self._shape = None
        self._metadata.pin((), PIN)

    def go_on(self) -> bool:
        """Share out as soon as all topics are known; True when that was done before, and of other partitions than there are."""
        self._remember(self._metadata.cluster)
        current = self._generation
        if current is None or self._shape is not None or self._inherits:
            return False
        if not all(_known(self._metadata.cluster, topic) for topic in _nameable(current.topics)):
            return False
        self._shape = self._shaped(current) if self._inherited is None else self._shaped_of(current, self._inherited)
        if current.tell is None:
            return self.changed()
        self._share_out(current, current.tell)
        return False

    def changed(self) -> bool:
        """Whether partitions have come or gone, or moved to other racks, since they were shared out."""
        self._remember(self._metadata.cluster)
        return self._generation is not None and self._shape is not None and self._shaped(self._generation) != self._shape

    def _share_out(self, current: Generation, tell: Tell) -> None:
        view = self._view(current)

        def work() -> dict[str, bytes]:
            shares = current.assignor.assign(view, current.members)
            _check(current, shares, cooperative=self._strategies.cooperative)
            return {member: encode_assignment(shares.get(member, Assignment(()))) for member in current.members}

        self._offload(work, lambda result, error: tell(current.joined, result or {}, error))

    def _view(self, current: Generation) -> ClusterView:
        topics = self._metadata.cluster.topics
        return ClusterView({topic: topics[topic].describe().partitions for topic in sorted(current.topics) if _there(topics.get(topic))},
                           dict(self._nodes))

    def _shaped(self, current: Generation) -> Shape:
        view = self._view(current)
        return {topic: tuple(view.racks(part) if current.racked else None for part in parts) for topic, parts in view.topics.items()}

    def _shaped_of(self, current: Generation, shared: Collection[TopicPartition]) -> Shape:
        """What `_shaped` would be if there were just the partitions that were shared out."""
        view = self._view(current)
        racks = {TopicPartition(topic, part.partition): view.racks(part) if current.racked else None for topic, parts in view.topics.items() for part in parts}
        shape: dict[str, list[Any]] = {topic: [] for topic in view.topics}
        for where in sorted(shared):
            shape.setdefault(where.topic, []).append(racks.get(where))
        return {topic: tuple(parts) for topic, parts in shape.items()}

    def _remember(self, cluster: Cluster) -> None:
        self._nodes.update(cluster.nodes)


def _readable(member: str, instance: str | None, data: bytes) -> MemberView:
    """One member's damaged bytes must not keep the others from reading: it gets nothing."""
    try:
        return decode_subscription(data, instance)
    except ProtocolError as error:
        _log.error("member %s gets no partitions: %s", member, error)
        return MemberView((), instance_id=instance)


def _nameable(topics: Iterable[str]) -> list[str]:
    """Without names that no request can carry: one member's must not keep the others' topics from being asked for."""
    return [name for name in sorted(topics) if _can_be_asked(name)]


def _can_be_asked(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _there(topic: Topic | None) -> bool:
    """A view keeps what was known of a topic that brokers do not find; to a group it is gone."""
    return topic is not None and bool(topic.partitions) and topic.error != UnknownTopicOrPartitionError.code


def _known(cluster: Cluster, name: str) -> bool:
    topic = cluster.topics.get(name)
    return topic is not None and (bool(topic.partitions) or bool(topic.error))


def _check(current: Generation, shares: Mapping[str, Assignment], *, cooperative: bool) -> None:
    """What an assignor of users may get wrong, and the group must not be told.

    Raises:
        IllegalStateError: names the assignor, and what it did.
    """
    name = current.assignor.name
    strangers = sorted(set(shares) - set(current.members))
    if strangers:
        raise IllegalStateError(f"assignor {name!r} gave partitions to {', '.join(strangers)}, not of this group: give to its members only")
    for member, share in shares.items():
        astray = [where for where in share.partitions if where.topic not in current.members[member].topics]
        if astray:
            raise IllegalStateError(f"assignor {name!r} gave {astray[0]} to member {member}, which does not subscribe to its topic")
    if cooperative and COOPERATIVE in current.assignor.protocols and name != _COOPERATIVE_STICKY:
        _check_moves(current, shares)


def _check_moves(current: Generation, shares: Mapping[str, Assignment]) -> None:
    """KIP-429: a partition may go to a new owner only when its old one has given it up, in a rebalance of its own."""
    newest = max((member.generation for member in current.members.values()), default=-1)
    owners = {where: member for member, view in current.members.items() if view.generation == newest for where in view.owned}
    for member, share in shares.items():
        for where in share.partitions:
            owner = owners.get(where, member)
            if owner != member:
                raise IllegalStateError(
                    f"assignor {current.assignor.name!r} moved {where} from {owner} to {member} at once: a cooperative one leaves it out, "
                    'and gives it in the next rebalance, or says protocols = ("eager",)')
