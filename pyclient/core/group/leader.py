"""The work of a classic group's leader besides being a member: assigns partitions to members, and watches the topics
(G07, G08).

The assignor runs on another thread (*offload*), because it may take seconds; heartbeats go on meanwhile.
"""
from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.consumer_protocol import decode_subscription, encode_assignment
from pyclient.core.calls import Call, Calls
from pyclient.core.cluster import Cluster, Topic
from pyclient.core.group.assignors import COOPERATIVE, GroupAssignors
from pyclient.core.group.classic_calls import Joined, describe_group_call
from pyclient.core.group.coordinator import GroupOptions
from pyclient.core.metadata import Metadata
from pyclient.core.topic_interest import check_topic_name
from pyclient.descriptions.assignments import Assignment, ClusterView, MemberView
from pyclient.errors import (
    IllegalStateError, InconsistentGroupProtocolError, KafkaError, ProtocolError, UnknownTopicOrPartitionError,
)
from pyclient.plugins import Assignor
from pyclient.records import Node, TopicPartition
from pyclient.redaction import in_one_line

_log = logging.getLogger(__name__)
_COOPERATIVE_STICKY: Final = "cooperative-sticky"
PIN: Final = "leader of the group"
MOST_TOPICS_OF_OTHERS: Final = 10_000
"""Topics that only other members subscribe to: each metadata request names them, and most may not exist."""
Offload: TypeAlias = Callable[[Callable[[], Any], Callable[[Any, BaseException | None], None]], None]
"""Runs the first function on another thread, and calls the second in a step with its result or its error."""
OnAssignments: TypeAlias = Callable[[Joined, Mapping[str, bytes], BaseException | None], None]
Layout: TypeAlias = Mapping[str, tuple[Any, ...]]
"""What an assignment depends on: of each topic its partitions, with their racks if any member has a rack."""


@attrs.frozen(slots=False)
class Generation:
    """One generation that this member leads.

    *topics* are what any member subscribes to. *on_assignments* receives the assignments, once; None: all members keep
    theirs.
    """

    joined: Joined
    assignor: Assignor
    members: Mapping[str, MemberView]
    topics: tuple[str, ...]
    on_assignments: OnAssignments | None

    @functools.cached_property
    def racked(self) -> bool:
        """Whether any member has a rack; otherwise racks do not matter."""
        return any(member.rack is not None for member in self.members.values())


class GroupLeader:
    """The leader's work, one generation after the other."""

    def __init__(self, options: GroupOptions, assignors: GroupAssignors, calls: Calls, metadata: Metadata, offload: Offload) -> None:
        self._options = options
        self._assignors = assignors
        self._calls = calls
        self._metadata = metadata
        self._offload = offload
        self._generation: Generation | None = None
        self._view_seen = 0  # the version of the view in which its topics were looked for last
        self._layout: Layout | None = None  # the one that was assigned; None: not assigned yet, or unknown
        self._inherits = False  # the assignments were made before this member came back, and are being looked up
        self._inherited: Collection[TopicPartition] | None = None
        self._lookup: Call | None = None
        self._nodes: dict[int, Node] = {}  # every broker ever seen: one that is down still has its rack

    def begin(self, joined: Joined, on_assignments: OnAssignments) -> None:
        """Lead this generation. *on_assignments* is called, now or later, with all assignments or an error.

        When the coordinator keeps the assignments (KIP-814), it is not called; they are looked up, as topics may have
        changed meanwhile.
        """
        self._generation = None
        assignor = self._assignors.find(joined.assignor)
        if assignor is None:
            on_assignments(joined, {}, InconsistentGroupProtocolError(
                f"the group has chosen {joined.assignor!r}, which this member did not offer"))
            return
        members = {member: _decoded(member, instance, data) for member, (instance, data) in joined.members.items()}
        members, topics = self._within_limit(members, members.get(joined.identity.member_id, MemberView(())).topics)
        keeps = joined.skips_assignment
        self._generation = Generation(joined, assignor, members, topics, None if keeps else on_assignments)
        self._view_seen = 0
        self._layout, self._inherits, self._inherited = None, keeps, None
        self._metadata.pin(topics, PIN)
        if keeps:
            self._look_up(joined)

    def end(self) -> None:
        """Stop being the leader."""
        self._generation = self._layout = None
        self._metadata.pin((), PIN)

    def cancel_lookup(self) -> None:
        """Forget the request for inherited assignments, if there is one."""
        if self._lookup is not None:
            self._calls.cancel(self._lookup)
            self._lookup = None

    def assign_when_ready(self) -> bool:
        """Assign partitions as soon as all topics are known.

        True when inherited assignments do not match the topics' partitions.
        """
        self._remember_nodes()
        current = self._generation
        if current is None or self._layout is not None or self._inherits or self._view_seen == self._metadata.cluster.version:
            return False
        self._view_seen = self._metadata.cluster.version
        if not all(_is_known(self._metadata.cluster, topic) for topic in current.topics):
            return False
        self._layout = self._layout_now(current) if self._inherited is None else self._layout_of(current, self._inherited)
        if current.on_assignments is None:
            return self.topics_changed()
        self._assign(current, current.on_assignments)
        return False

    def topics_changed(self) -> bool:
        """Whether partitions were added or removed, or moved to other racks, since they were assigned."""
        self._remember_nodes()
        return self._generation is not None and self._layout is not None and self._layout_now(self._generation) != self._layout

    def _within_limit(self, members: dict[str, MemberView], own: Collection[str]) -> tuple[dict[str, MemberView], tuple[str, ...]]:
        """The members without the topics above the limit (G09), and the topics that are left.

        Every topic stays in the view of the cluster, so other members must not add them without end.
        """
        mine = set(own)
        others = {topic for member in members.values() for topic in member.topics if topic not in mine}
        if len(others) <= MOST_TOPICS_OF_OTHERS:
            return members, _valid_names(mine | others)
        kept = mine.union(sorted(others)[:MOST_TOPICS_OF_OTHERS])
        most = max(members, key=lambda each: len(members[each].topics))
        _log.warning("group %r: its members subscribe to %d topics that this leader does not read itself; %d of them are assigned. Member %s "
                     "subscribes to %d", self._options.group_id, len(others), MOST_TOPICS_OF_OTHERS, in_one_line(most), len(members[most].topics))
        return {member: view._replace(topics=tuple(filter(kept.__contains__, view.topics))) for member, view in members.items()}, _valid_names(kept)

    def _look_up(self, joined: Joined) -> None:
        """G08: while the leader was away, no member noticed which partitions were added or removed."""
        def described(assigned: frozenset[TopicPartition] | None, error: BaseException | None) -> None:
            self._lookup = None
            if assigned is None:
                _log.info("group %r: the assignments made before this leader came back are not known, and taken to cover all partitions: %s",
                          self._options.group_id, error or "the group rebalances, or has an assignment that cannot be decoded")
            if self._generation is not None and self._generation.joined is joined:
                self._inherits, self._inherited = False, assigned

        self.cancel_lookup()
        self._lookup = describe_group_call(self._options, described)
        self._calls.submit(self._lookup)

    def _assign(self, current: Generation, on_assignments: OnAssignments) -> None:
        """Run the assignor. Its assignments count only in their own generation.

        Generation numbers are no proof of that: a coordinator that moves forgets a generation without assignments, and
        uses its number again.
        """
        view = self._view(current)

        def work() -> dict[str, bytes]:
            assignments = current.assignor.assign(view, current.members)
            _check(current, assignments, cooperative=self._assignors.cooperative)
            return {member: encode_assignment(assignments.get(member, Assignment(()))) for member in current.members}

        def assigned(result: dict[str, bytes] | None, error: BaseException | None) -> None:
            if self._generation is current:
                on_assignments(current.joined, result or {}, error)

        self._offload(work, assigned)

    def _view(self, current: Generation) -> ClusterView:
        topics = self._metadata.cluster.topics
        return ClusterView({topic: topics[topic].describe().partitions for topic in current.topics if _exists(topics.get(topic))},
                           dict(self._nodes))

    def _layout_now(self, current: Generation) -> Layout:
        view = self._view(current)
        return {topic: tuple(view.racks(each) if current.racked else None for each in partitions) for topic, partitions in view.topics.items()}

    def _layout_of(self, current: Generation, assigned: Collection[TopicPartition]) -> Layout:
        """What `_layout_now` would be if only the *assigned* partitions existed."""
        view = self._view(current)
        racks = {TopicPartition(topic, each.partition): view.racks(each) if current.racked else None
                 for topic, partitions in view.topics.items() for each in partitions}
        layout: dict[str, list[Any]] = {topic: [] for topic in view.topics}
        for tp in sorted(assigned):
            layout.setdefault(tp.topic, []).append(racks.get(tp))
        return {topic: tuple(each) for topic, each in layout.items()}

    def _remember_nodes(self) -> None:
        self._nodes.update(self._metadata.cluster.nodes)


def _decoded(member: str, instance: str | None, data: bytes) -> MemberView:
    """A member's subscription.

    One that cannot be decoded gets no partitions, and does not keep the other members from reading.
    """
    try:
        return decode_subscription(data, instance)
    except ProtocolError as error:
        _log.error("member %s gets no partitions: %s", in_one_line(member), error)
        return MemberView((), instance_id=instance)


def _valid_names(topics: Iterable[str]) -> tuple[str, ...]:
    """Without names that no request can carry: one such name must not keep the other topics out of the metadata
    request.
    """
    return tuple(name for name in sorted(topics) if _is_valid(name))


def _is_valid(name: str) -> bool:
    try:
        check_topic_name(name)
    except KafkaError:
        return False
    return True


def _exists(topic: Topic | None) -> bool:
    """A view keeps what it knew of a topic that brokers do not find; for a group that topic does not exist."""
    return topic is not None and bool(topic.partitions) and topic.error != UnknownTopicOrPartitionError.code


def _is_known(cluster: Cluster, name: str) -> bool:
    topic = cluster.topics.get(name)
    return topic is not None and (bool(topic.partitions) or bool(topic.error))


def _check(current: Generation, assignments: Mapping[str, Assignment], *, cooperative: bool) -> None:
    """Reject what a user's assignor may get wrong before the group receives it.

    Raises:
        IllegalStateError: names the assignor and its mistake.
    """
    name = current.assignor.name
    strangers = sorted(set(assignments) - set(current.members))
    if strangers:
        raise IllegalStateError(f"assignor {name!r} assigned partitions to {', '.join(strangers)}, not a member of this group: "
                                "assign to the given members only")
    for member, assignment in assignments.items():
        unwanted = [tp for tp in assignment.partitions if tp.topic not in current.members[member].topics]
        if unwanted:
            raise IllegalStateError(f"assignor {name!r} assigned {unwanted[0]} to member {member}, which does not subscribe to its topic")
    if cooperative and COOPERATIVE in current.assignor.protocols and name != _COOPERATIVE_STICKY:
        _check_moves(current, assignments)


def _check_moves(current: Generation, assignments: Mapping[str, Assignment]) -> None:
    """KIP-429: a partition may be assigned to a new owner only in the rebalance after the one in which its old owner
    gave it up.
    """
    newest = max((member.generation for member in current.members.values()), default=-1)
    owners = {tp: member for member, view in current.members.items() if view.generation == newest for tp in view.owned}
    for member, assignment in assignments.items():
        for tp in assignment.partitions:
            owner = owners.get(tp, member)
            if owner != member:
                raise IllegalStateError(
                    f"assignor {current.assignor.name!r} moved {tp} from {owner} to {member} in one rebalance: a cooperative assignor leaves "
                    'it unassigned first and assigns it in the next rebalance. Or set protocols = ("eager",)')
