"""A consumer group of KIP-848: members, epochs and target assignment. No I/O, no clock.

There are three epochs. The group epoch grows when members or topics change. The assignment epoch follows when a target
assignment is computed, each member epoch when it has revoked (see `reconciliation`). Requests and timers: `heartbeats`.
"""
from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Final, NamedTuple, Self, TypeAlias
from uuid import UUID

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.group import Committed
from pyclient.testing.fake.model.patterns import InvalidPatternError, matcher
from pyclient.testing.fake.model.reconciliation import Aim, ConsumerMember, MemberState, Place, reconciled
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.server_assignors import ASSIGNORS, DEFAULT, Subscriber

JOINS: Final = 0
LEAVES: Final = -1
LEAVES_FOR_NOW: Final = -2
"""Values that members send in place of an epoch; the last is also kept for a static member that left temporarily."""


class ConsumerState(enum.Enum):
    """Values are Kafka's names of the states."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    RECONCILING = "Reconciling"
    STABLE = "Stable"
    DEAD = "Dead"


class TopicView(NamedTuple):
    """A topic as a group sees it; a change of it makes a new target assignment necessary."""

    id: UUID
    partitions: int


Catalog: TypeAlias = Mapping[str, TopicView]
"""All topics there are, by name."""


class Matched(NamedTuple):
    """What a regular expression matched when it was last resolved."""

    topics: tuple[str, ...]
    at: float
    """Time of that, in the coordinator's seconds."""


@attrs.frozen(kw_only=True)
class HeartbeatRequest:
    """A ConsumerGroupHeartbeat of a member that joins or stays; None means unchanged."""

    member_id: str
    epoch: int
    instance: str | None = None
    rack: str | None = None
    rebalance_timeout_ms: int = -1
    topics: tuple[str, ...] | None = None
    pattern: str | None = None
    assignor: str | None = None
    owned: tuple[Place, ...] | None = None
    client_id: str = ""
    host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether every field is set, as after an error."""
        return self.rebalance_timeout_ms != -1 and (self.topics is not None or self.pattern is not None) and self.owned is not None


class Moment(NamedTuple):
    """The coordinator's view when a request arrives."""

    topics: Catalog
    now: float = 0.0
    """In the coordinator's seconds."""
    most: int = 2**31 - 1
    """Largest number of members."""
    interval_s: float = 0.0
    """Shortest time between two target assignments."""


class HeartbeatResponse(NamedTuple):
    """Answer to a heartbeat."""

    member: ConsumerMember
    assignment: tuple[Place, ...] | None
    """The member's new assignment; None when unchanged."""


@attrs.define(eq=False)
class ConsumerGroup:
    """A group; members are in the order of joining."""

    kind: ClassVar = "consumer"
    """Kafka's name of this group type."""
    protocol_type: ClassVar = "consumer"
    id: str
    epoch: int = 1
    """Group epoch; brokers before 4.3 start with 0."""
    assignment_epoch: int = 1
    """The group epoch that `targets` belong to."""
    shared_at: float = -math.inf
    """When `targets` were computed, in the coordinator's seconds."""
    members: dict[str, ConsumerMember] = attrs.field(factory=dict)
    statics: dict[str, str] = attrs.field(factory=dict)
    """``group.instance.id`` → member id."""
    targets: Mapping[str, tuple[Place, ...]] = attrs.field(factory=dict)
    """Target assignment by member id."""
    topics: Mapping[str, TopicView] = attrs.field(factory=dict)
    """The subscribed topics, as of the group epoch."""
    patterns: dict[str, Matched] = attrs.field(factory=dict)
    """The members' regular expressions that were resolved."""
    offsets: dict[tuple[str, int], Committed] = attrs.field(factory=dict)
    """By topic and partition, as in a classic group."""
    is_outdated: bool = True
    """Topics may have changed; always true after a move to another coordinator."""
    has_new_topics: bool = True
    """Topics were created since the regular expressions were resolved."""
    is_deleted: bool = False

    @property
    def state(self) -> ConsumerState:
        """Derived from the epochs."""
        if self.is_deleted:
            return ConsumerState.DEAD
        if not self.members:
            return ConsumerState.EMPTY
        if self.epoch > self.assignment_epoch:
            return ConsumerState.ASSIGNING
        done = all(each.is_reconciled(self.assignment_epoch) for each in self.members.values())
        return ConsumerState.STABLE if done else ConsumerState.RECONCILING

    @property
    def is_empty(self) -> bool:
        """Whether it has no members."""
        return not self.members

    @property
    def generation(self) -> int:
        """The equivalent of a classic group's generation."""
        return self.epoch

    def end(self) -> None:
        """An admin deleted it."""
        self.is_deleted = True

    @property
    def assignor(self) -> str:
        """The assignor that most members request; the broker's default when none does."""
        votes = Counter(each.assignor for each in self.members.values() if each.assignor is not None)
        return max(votes, key=votes.__getitem__, default=DEFAULT)

    def owners(self) -> dict[Place, str]:
        """The member that may use each partition; it stays the owner until it confirmed the revocation."""
        return {place: each.id for each in self.members.values() for place in each.holds}

    def restored(self) -> Self:
        """The group as another coordinator loads it: everything but timers is persistent."""
        return attrs.evolve(self, members=dict(self.members), statics=dict(self.statics), patterns=dict(self.patterns), is_outdated=True, has_new_topics=True)

    def take_over(self, members: Iterable[ConsumerMember], catalog: Catalog) -> None:
        """Start with the members of a classic group; their assignments are the target."""
        for each in members:
            self._enter(each)
        self.targets = {each.id: tuple(each.assigned) for each in self.members.values()}
        self.topics = self._seen(catalog)

    # ---- a heartbeat -------------------------------------------------------------------------------------------------

    def heartbeat(self, request: HeartbeatRequest, moment: Moment) -> HeartbeatResponse:
        """A member joins, returns or stays. The answer has its assignment when that changed or the request was full.

        Raises:
            RefusalError: the heartbeat is rejected; the group is unchanged.
        """
        self.check_size(request.member_id, moment)
        old = self._sender(request)
        member = _updated(old, request)
        if member.pattern != old.pattern and member.pattern and not self._subscribers(member.pattern):
            check_pattern(member.pattern)
        bumps = self.epoch == 0 or set(member.topics) != set(old.topics) or self._pattern_matters(old, member)
        after = self._go_on(old, member, request.owned, moment, bumps=bumps)
        includes = request.epoch == JOINS or request.is_full or after.assigned != old.assigned
        return HeartbeatResponse(after, tuple(after.assigned) if includes else None)

    def let_in(self, old: ConsumerMember, member: ConsumerMember, owned: tuple[Place, ...], moment: Moment) -> ConsumerMember:
        """A classic member joins or rejoins; *old* is its previous state. Never raises."""
        bumps = self.epoch == 0 or set(member.topics) != set(old.topics) or member.pattern != old.pattern
        return self._go_on(old, member, owned, moment, bumps=bumps)

    def check_size(self, member_id: str, moment: Moment) -> None:
        """Raises RefusalError when the group is full and this is not a member."""
        if len(self.members) >= moment.most and member_id not in self.members:
            raise RefusalError(ErrorCode.group_max_size_reached, f"The consumer group has reached its maximum capacity of {moment.most} members.")

    def _go_on(self, old: ConsumerMember, member: ConsumerMember, owned: tuple[Place, ...] | None, moment: Moment, *,
               bumps: bool) -> ConsumerMember:
        """Apply a member's new state: epochs, target and current assignment."""
        self._enter(member)
        self._forget_pattern(old.pattern)
        if bumps or self.is_outdated:
            self._look(moment.topics, bumps=bumps)
        if self.epoch > self.assignment_epoch and moment.now >= self.shared_at + moment.interval_s:
            self._share(moment)
        resubscribed = set(member.topics) != set(old.topics) or member.pattern != old.pattern
        return self._reconcile(member, owned, moment.topics, resubscribed=resubscribed)

    def _sender(self, request: HeartbeatRequest) -> ConsumerMember:
        """The sender before this request; a new member or replaced static member is not in the group yet."""
        if request.instance is None:
            return self.newcomer(request.member_id) if request.epoch == JOINS else _in_epoch(self.member(request.member_id), request)
        if request.epoch != JOINS:
            return _in_epoch(self.static_member(request.member_id, request.instance), request)
        before = self.static_of(request.instance)
        if before is not None and before.epoch != LEAVES_FOR_NOW and before.classic is None:
            raise RefusalError(ErrorCode.unreleased_instance_id, f"Static member {request.member_id} with instance id {request.instance} cannot join the group "
                                                  f"because the instance id is owned by {before.id} member.")
        return self.newcomer(request.member_id, before)

    def newcomer(self, member_id: str, instead_of: ConsumerMember | None = None) -> ConsumerMember:
        """The member that joins with this id: a known one, a static member's successor, or a new one."""
        if instead_of is not None:
            return attrs.evolve(instead_of, id=member_id, epoch=0, previous_epoch=0)
        return self.members.get(member_id) or ConsumerMember(id=member_id)

    def static_of(self, instance: str | None) -> ConsumerMember | None:
        """The member with this instance id, if there is one."""
        return self.members.get(self.statics.get(instance or "", ""))

    def member(self, member_id: str) -> ConsumerMember:
        """Raises RefusalError when there is no such member."""
        if member_id not in self.members:
            raise RefusalError(ErrorCode.unknown_member_id, f"Member {member_id} is not a member of group {self.id}.")
        return self.members[member_id]

    def static_member(self, member_id: str, instance: str) -> ConsumerMember:
        """Raises RefusalError when no member, or another one, has this instance id."""
        if instance not in self.statics:
            raise RefusalError(ErrorCode.unknown_member_id, f"Instance id {instance} is unknown.")
        if self.statics[instance] != member_id:
            raise RefusalError(ErrorCode.fenced_instance_id, f"Static member {member_id} with instance id {instance} was fenced by member "
                                              f"{self.statics[instance]}.")
        return self.members[member_id]

    def _enter(self, member: ConsumerMember) -> None:
        """Add a member, or replace the static member with its instance id."""
        before = self.statics.get(member.instance or "", member.id)
        if before != member.id:
            self.members = {member.id if key == before else key: each for key, each in self.members.items()}
            self.targets = {member.id if key == before else key: places for key, places in self.targets.items()}
        self.members[member.id] = member
        if member.instance is not None:
            self.statics[member.instance] = member.id

    def _reconcile(self, member: ConsumerMember, owned: tuple[Place, ...] | None, catalog: Catalog, *, resubscribed: bool) -> ConsumerMember:
        held = self.owners()
        aim = Aim(epoch=self.assignment_epoch, places=self.targets.get(member.id, ()), topics=self._topic_ids(member, catalog),
                  owned=owned, is_held=held.__contains__)
        self.members[member.id] = after = reconciled(member, aim, resubscribed=resubscribed)
        return after

    def has_for(self, member: ConsumerMember) -> bool:
        """Whether all partitions it waits for are free."""
        held = self.owners()
        return member.state is MemberState.UNRELEASED_PARTITIONS and not any(
            place in held for place in self.targets.get(member.id, ()) if place not in member.assigned)

    # ---- topics ------------------------------------------------------------------------------------------------------

    def is_subscribed_to(self, topic: str) -> bool:
        """Whether a member names the topic, or a regular expression has matched it."""
        return any(topic in each.topics for each in self.members.values()) or any(topic in each.topics for each in self.patterns.values())

    def on_topic_change(self, topic: str, *, is_new: bool) -> None:
        """A topic was created, deleted or changed; mark the group outdated if it is subscribed."""
        self.is_outdated |= self.is_subscribed_to(topic)
        self.has_new_topics |= is_new

    def _topic_names(self, member: ConsumerMember) -> Iterable[str]:
        matched = self.patterns.get(member.pattern)
        return dict.fromkeys([*member.topics, *(matched.topics if matched is not None else ())])

    def _topic_ids(self, member: ConsumerMember, catalog: Catalog) -> tuple[UUID, ...]:
        return tuple(catalog[name].id for name in self._topic_names(member) if name in catalog)

    def _look(self, catalog: Catalog, *, bumps: bool) -> None:
        """Refresh the subscribed topics; the group epoch grows when they changed or *bumps* is set."""
        seen = self._seen(catalog)
        if bumps or seen != self.topics:
            self.epoch += 1
        self.topics = seen
        self.is_outdated = False

    def _seen(self, catalog: Catalog) -> dict[str, TopicView]:
        names = {name for each in self.members.values() for name in self._topic_names(each)}
        return {name: catalog[name] for name in sorted(names) if name in catalog}

    def _share(self, moment: Moment) -> None:
        """Compute the target assignment for the current group epoch."""
        subscribers = {each.id: Subscriber(self._topic_ids(each, moment.topics), self.targets.get(each.id, ()), each.instance)
                  for each in self.members.values()}
        self.targets = ASSIGNORS[self.assignor](subscribers, {each.id: each.partitions for each in moment.topics.values()})
        self.assignment_epoch, self.shared_at = self.epoch, moment.now

    # ---- regular expressions -----------------------------------------------------------------------------------------

    def _subscribers(self, pattern: str) -> int:
        return sum(each.pattern == pattern for each in self.members.values())

    def _pattern_matters(self, old: ConsumerMember, member: ConsumerMember) -> bool:
        """Whether the new pattern is resolved already; otherwise the epoch grows when it is resolved."""
        return member.pattern != old.pattern and (not member.pattern or member.pattern in self.patterns)

    def _forget_pattern(self, pattern: str) -> None:
        if not self._subscribers(pattern):
            self.patterns.pop(pattern, None)

    def wants_match(self, now: float, least_s: float, most_s: float) -> bool:
        """Whether to resolve the patterns: not too often, and only for a new pattern, a new topic or age."""
        wanted = {each.pattern for each in self.members.values() if each.pattern}
        last = max((each.at for each in self.patterns.values()), default=-math.inf)
        return bool(wanted) and now > last + least_s and (not wanted <= self.patterns.keys() or self.has_new_topics or now > last + most_s)

    def match(self, catalog: Catalog, now: float) -> None:
        """Resolve every pattern again; the group epoch grows when a result changed."""
        changed, self.has_new_topics = False, False
        for pattern in dict.fromkeys(each.pattern for each in self.members.values() if each.pattern):
            known = self.patterns.get(pattern, Matched((), now))
            fits = matcher(pattern)
            self.patterns[pattern] = found = Matched(tuple(sorted(name for name in catalog if fits(name))), now)
            changed |= found.topics != known.topics
        self._look(catalog, bumps=changed)

    # ---- leaving -----------------------------------------------------------------------------------------------------

    def leave_for_now(self, member: ConsumerMember) -> None:
        """A static member leaves temporarily and keeps its partitions, as if assigned since epoch 0."""
        self.members[member.id] = attrs.evolve(member, epoch=LEAVES_FOR_NOW, assigned=dict.fromkeys(member.assigned, 0), revoking={})

    def remove(self, gone: Iterable[ConsumerMember], catalog: Catalog) -> None:
        """Remove members permanently. Their partitions are reassigned at another member's next heartbeat."""
        for member in gone:
            del self.members[member.id]
            if member.instance is not None and self.statics.get(member.instance) == member.id:
                del self.statics[member.instance]
            self._forget_pattern(member.pattern)
        self.targets = {key: places for key, places in self.targets.items() if key in self.members}
        self._look(catalog, bumps=True)

    # ---- offsets -----------------------------------------------------------------------------------------------------

    def check_epoch(self, member_id: str, epoch: int) -> None:
        """Check that a member fetches offsets in its own epoch.

        Raises:
            RefusalError: it is in another epoch, or is not a member.
        """
        member = self.member(member_id)
        if member.epoch != epoch:
            raise _stale(member)

    def check_commit(self, member_id: str, epoch: int, places: Iterable[Place]) -> None:
        """A commit may name an older epoch, but none before the partitions were assigned (KIP-1251, since 4.3).

        Raises:
            RefusalError: the epoch is wrong, or it is not a member; no partition is committed.
        """
        member = self.member(member_id)
        late = epoch < member.epoch and any(epoch < member.holds.get(each, member.epoch) for each in places)
        if epoch > member.epoch or late:
            raise _stale(member)


def _updated(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """The member with the request's fields; None leaves a field unchanged."""
    fields: dict[str, Any] = {name: getattr(request, name) for name in ("instance", "rack", "topics", "pattern", "assignor")}
    if request.rebalance_timeout_ms != -1:
        fields["rebalance_timeout_ms"] = request.rebalance_timeout_ms
    return attrs.evolve(member, client_id=request.client_id, host=request.host, classic=None, **{name: value for name, value in fields.items() if value is not None})


def _in_epoch(member: ConsumerMember, request: HeartbeatRequest) -> ConsumerMember:
    """Accept the previous epoch when the member owns only assigned partitions: the last response may have been lost."""
    late = request.epoch == member.previous_epoch and request.owned is not None and all(each in member.assigned for each in request.owned)
    if request.epoch == member.epoch or (request.epoch < member.epoch and late):
        return member
    than = "greater" if request.epoch > member.epoch else "smaller"
    raise RefusalError(ErrorCode.fenced_member_epoch, f"The consumer group member has a {than} member epoch ({request.epoch}) than the one known by the group "
                                       f"coordinator ({member.epoch}). The member must abandon all its partitions and rejoin.")


def _stale(member: ConsumerMember) -> RefusalError:
    return RefusalError(ErrorCode.stale_member_epoch if member.classic is None else ErrorCode.illegal_generation)


def check_pattern(pattern: str) -> None:
    """Raises RefusalError when RE2 rejects the pattern."""
    try:
        matcher(pattern)
    except InvalidPatternError as invalid:
        raise RefusalError(ErrorCode.invalid_regular_expression,
                      f"SubscribedTopicRegex `{pattern}` is not a valid regular expression: {invalid}.") from None
