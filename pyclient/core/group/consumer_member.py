"""A member of a group under the consumer protocol (KIP-848): joins, sends heartbeats, reconciles, leaves (N01–N10).

The state table comes first. When heartbeats are sent is in `consumer_heartbeat`, what an assignment requires in
`reconciliation`. Runs in steps of the client's reactor and never blocks: what the user's thread has to do is a
`Change`; heartbeats go on meanwhile. Independent of sockets and clocks.

Rule: once a heartbeat states which partitions are owned, no new change begins before its response, because the
coordinator relies on it.
"""
from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

import attrs

from pyclient.core.backoff import Backoff
from pyclient.core.calls import Call, Calls, Finish
from pyclient.core.group.assigned import not_shown
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.consumer_calls import HeartbeatFields, HeartbeatResponse, SubscriptionFields, heartbeat_call
from pyclient.core.group.consumer_heartbeat import ConsumerHeartbeat, Registration
from pyclient.core.group.coordinator import GroupOptions, Identity
from pyclient.core.group.membership import Membership
from pyclient.core.group.reconciliation import Reconciliation
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Ready, Request, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.transitions import Transitions
from pyclient.errors import (
    AuthorizationError, FencedInstanceIdError, FencedMemberEpochError, GroupIdNotFoundError, GroupMaxSizeReachedError,
    IllegalStateError, InvalidGroupIdError, InvalidRegularExpressionError, InvalidRequestError, KafkaError, StaleMemberEpochError,
    TopicAuthorizationError, UnknownMemberIdError, UnreleasedInstanceIdError, UnsupportedAssignorError, UnsupportedVersionError,
)
from pyclient.redaction import in_one_line

if TYPE_CHECKING:
    from random import Random

_log = logging.getLogger(__name__)


class State(enum.Enum):
    """The member's place in the protocol (N02).

    There is no state for revoking before it leaves: the consumer does that before `leave`.
    """

    OUT = "not a member, or it has left, perhaps because the user did not poll; the next poll joins if there is a subscription"
    LOSING = "the user's thread learns that its partitions are lost, before the member joins"
    JOINING = "waits for the response to a heartbeat with epoch 0"
    RECONCILING = "the user's thread revokes and assigns partitions"
    LISTENER_FAILED = "the listener raised when partitions were assigned; the next poll assigns them again"
    ACKNOWLEDGING = "has carried the assignment out, and the coordinator does not know it yet"
    STABLE = "reads the partitions assigned to it"
    FAILED = "cannot be a member with this configuration"


class Event(enum.Enum):
    """What can happen to a member."""

    JOIN = "the user polls: it joins, or joins again"
    LOST = "the group went on without it: its partitions are lost"
    LOSS_COMPLETED = "the user's thread knows of every lost partition"
    JOINED = "the coordinator has accepted it"
    ASSIGNED = "there are partitions to revoke or to assign"
    LISTENER_RAISED = "the listener raised when partitions were assigned"
    LISTENER_RETRIED = "the user polls after the listener raised"
    RECONCILED = "it owns its assignment, as far as names of topics are known"
    ACKNOWLEDGED = "the coordinator knows what it owns"
    LEFT = "it leaves, or the user has not polled for too long"
    REFUSED = "the group does not accept it"


MEMBERS: Final = frozenset({State.RECONCILING, State.LISTENER_FAILED, State.ACKNOWLEDGING, State.STABLE})
"""The states with an epoch."""
SENDS_HEARTBEATS: Final = MEMBERS | {State.JOINING}

CONSUMER: Final[Transitions[State, Event]] = Transitions("consumer member", {
    (State.OUT, Event.JOIN): State.LOSING,
    (State.LOSING, Event.LOSS_COMPLETED): State.JOINING,
    (State.JOINING, Event.JOINED): State.STABLE,
    (State.STABLE, Event.ASSIGNED): State.RECONCILING,
    (State.RECONCILING, Event.LISTENER_RAISED): State.LISTENER_FAILED,
    (State.LISTENER_FAILED, Event.LISTENER_RETRIED): State.RECONCILING,
    (State.RECONCILING, Event.RECONCILED): State.ACKNOWLEDGING,
    (State.ACKNOWLEDGING, Event.ACKNOWLEDGED): State.STABLE,
    **{(state, Event.LOST): State.LOSING for state in State if state in MEMBERS},
    **{(state, Event.LEFT): State.OUT for state in State},
    **{(state, Event.REFUSED): State.FAILED for state in State if state in SENDS_HEARTBEATS},
})

_FENCED: Final = (FencedMemberEpochError, UnknownMemberIdError)
"""The group went on without this member: it joins again."""
_FATAL: Final = (
    FencedInstanceIdError, UnreleasedInstanceIdError, InvalidRequestError, UnsupportedAssignorError, InvalidRegularExpressionError,
    GroupMaxSizeReachedError, InvalidGroupIdError, AuthorizationError, UnsupportedVersionError,
)
"""Joining again without a change would not help, or would harm other members."""


class ConsumerMember(Membership):
    """The manager of one consumer's membership. *notify_user* is called when the user's thread has something to do."""

    state: State

    def __init__(self, options: GroupOptions, calls: Calls, metadata: Metadata, *, random: Random, backoff: Backoff,
                 notify_user: Callable[[], None]) -> None:
        super().__init__(options, calls, metadata, backoff, notify_user)
        self.state = State.OUT
        self.identity = Identity(member_id=str(UUID(int=random.getrandbits(128), version=4)))
        self._heartbeat = ConsumerHeartbeat(options, calls, backoff)
        self._registration = Registration(options, calls, self.identity.member_id)
        self._reconciliation = Reconciliation()
        self._left_out = 0
        # The subscription that was refused because it names a topic that the user may not describe.
        self._forbidden: SubscriptionFields | None = None

    # ---- what the user wants ----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""
        super().subscribe(subscription)
        if self.state is State.FAILED:
            self._advance(Event.LEFT)

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern those that match it now, or, if brokers match it, those of the
        assignment.
        """
        return self._topics.topics if not self._heartbeat.subscription.pattern else self._reconciliation.topics()

    @property
    def wants_poll(self) -> bool:
        """Whether the user's next poll has to call `polled`."""
        return self.state is State.LISTENER_FAILED or self._wants_to_join

    @property
    def _wants_to_join(self) -> bool:
        return (self.state is State.OUT or (self.state is State.FAILED and self._may_retry)) and bool(self._topics)

    def polled(self) -> None:
        """The user polls: join, join again after the user was away (N08) or, after a pause, when a right was missing,
        or call the listener again that raised (N06).
        """
        if self._wants_to_join:
            was_refused = self.state is State.FAILED
            if was_refused:
                self._advance(Event.LEFT)
            self._registration.cancel_leave()
            self._advance(Event.JOIN)
            self._start_over()
            if was_refused:
                self._heartbeat.back_off()
        elif self.state is State.LISTENER_FAILED:
            self._advance(Event.LISTENER_RETRIED)
            self._reconcile()

    def complete(self, change: Change, error: BaseException | None = None) -> None:
        """The user's thread has carried out *change*.

        Partitions are not owned if the listener raised when they were assigned (N06).
        """
        if change.kind is ChangeKind.ASSIGNED and error is not None:
            self._changes.drop(change.partitions)
        if self._changes.complete(change):
            if change.kind is ChangeKind.ASSIGNED and self.state is State.RECONCILING:
                self._assigned(error)
            self._next_change()

    def leave(self, reason: str, finish: Finish, deadline: float | None, *, leaves: bool | None = None) -> None:
        """Leave permanently, a static member temporarily; partitions must have been given up.

        The protocol carries no reason.
        """
        _log.debug("group %r: leaving: %s", self._options.group_id, reason)
        super().leave(reason, finish, deadline, leaves=leaves)

    def enforce_rebalance(self, reason: str) -> None:
        """Refused: the coordinator assigns whenever something changes."""
        raise IllegalStateError("enforce_rebalance: with group_protocol=consumer the broker assigns partitions, whenever members or topics change; "
                                "use a classic group, or change the subscription")

    # ---- commits ----------------------------------------------------------------------------------------------------

    @property
    def accepts_commits(self) -> bool:
        """In this protocol the coordinator always accepts commits, though it may want a newer epoch in them."""
        return True

    @property
    def generation_in_doubt(self) -> bool:
        """Never: here the epoch in a commit shows whether it is outdated."""
        return False

    def on_commit_refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit: it may know more about this member than the heartbeats have reported (C25,
        N10).
        """
        if sent_as != self.identity or self.state not in MEMBERS:
            return
        if isinstance(error, StaleMemberEpochError):
            self._heartbeat.epoch_outdated()
        elif isinstance(error, _FENCED):
            self._lose(error)
        elif isinstance(error, FencedInstanceIdError):
            self._refuse(error)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """Its requests are calls, so it emits none itself."""
        if self.state in (State.OUT, State.FAILED):
            return ()
        if self._follow_metadata():
            self._reconciliation.note_names(self._metadata.cluster.names)
            self._reconciliation.pending = True
        if self._poll_overdue(now):
            self._expire()
        if self._reconciliation.pending:
            self._reconcile()
        if self.state in SENDS_HEARTBEATS:
            self._heartbeat.poll(now, self._heartbeat_call, acknowledges=self._acknowledges)
        return ()

    def next_deadline(self) -> float | None:
        """The next heartbeat, the end of the coordinator's time to respond, or of the user's time to poll."""
        if self.state in (State.OUT, State.FAILED):
            return None
        heartbeat = self._heartbeat.next_deadline(acknowledges=self._acknowledges) if self.state in SENDS_HEARTBEATS else None
        return earliest(self._poll_deadline, heartbeat)

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    @property
    def _acknowledges(self) -> bool:
        return self.state is State.ACKNOWLEDGING

    def _heartbeat_call(self) -> Call:
        if self.state is State.JOINING and self._registration.holds_instance_id:
            return self._registration.release_call(self._on_released)
        fields = self._heartbeat.fields(self._reconciliation.with_ids(self.owned), acknowledges=self._acknowledges)
        if fields.owned is not None:
            self._changes.withdraw()
        self._registration.exists = True
        subscription = self._heartbeat.subscription
        return heartbeat_call(self._options, self.identity, fields,
                              lambda response, error: self._on_heartbeat(subscription, fields, response, error))

    def _on_heartbeat(self, subscription: SubscriptionFields, fields: HeartbeatFields, response: HeartbeatResponse,
                      error: BaseException | None) -> None:
        self._reconciliation.pending = True
        if error is None:
            self._heartbeat.succeeded(subscription, response.interval)
            self.identity = attrs.evolve(self.identity, generation=response.epoch)
            self._on_response(fields, response)
        else:
            self._heartbeat.unconfirmed()
            self._on_heartbeat_error(error, subscription)

    def _on_response(self, fields: HeartbeatFields, response: HeartbeatResponse) -> None:
        if self.state is State.JOINING:
            self._advance(Event.JOINED)
        elif self.state is State.ACKNOWLEDGING and fields.owned is not None:
            self._reconciliation.acknowledged()  # before the response sets a newer assignment
            self._advance(Event.ACKNOWLEDGED)
        if response.assignment is not None and self._reconciliation.set_assignment(response.assignment):
            self._changes.withdraw()
            self._reconciliation.note_names(self._metadata.cluster.names)
            self._metadata.identify(self._reconciliation.unnamed())

    def _on_released(self, _: object, error: BaseException | None) -> None:
        """The coordinator no longer reserves the instance id for the registration before."""
        self._heartbeat.unconfirmed()
        if error is None:
            self._registration.exists = False
        else:
            self._on_heartbeat_error(error)

    def _on_heartbeat_error(self, error: BaseException, subscription: SubscriptionFields | None = None) -> None:
        joining = self.state is State.JOINING
        if joining and getattr(error, "code", None) is not None:
            self._registration.exists = False  # the coordinator itself refused
        if isinstance(error, (*_FENCED, GroupIdNotFoundError)) and not joining:
            self._registration.exists = isinstance(error, FencedMemberEpochError)
            self._lose(error)
        elif isinstance(error, TopicAuthorizationError):
            self._on_forbidden_topic(error, subscription)
        elif isinstance(error, (*_FATAL, GroupIdNotFoundError)):
            self._refuse(error)
        else:
            self._back_off(error)
            if not isinstance(error, KafkaError) or not (error.retriable or isinstance(error, _FENCED)):
                self._report(error)  # waiting may not cure it

    def _on_forbidden_topic(self, error: BaseException, subscription: SubscriptionFields | None) -> None:
        """N07: for one topic that may not be described, the coordinator refuses the whole subscription.

        Metadata shows which topic it is, and the next heartbeat leaves it out. If metadata does not, the refusal itself
        is reported.
        """
        if subscription == self._forbidden:
            self._report(error)
        self._forbidden = subscription
        self._back_off(error, at_least=self._heartbeat.interval)
        self._metadata.request_update()

    def _back_off(self, error: BaseException, at_least: float = 0.0) -> None:
        _log.info("group %r: a heartbeat failed: %s", self._options.group_id, self._said(error))
        self._heartbeat.back_off(at_least)

    # ---- reconciliation ---------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """Begin the next change towards the newest assignment, if the member may begin one now (N05)."""
        if self.state not in (State.STABLE, State.RECONCILING) or self._changes or not self._heartbeat.in_sync:
            return
        change = self._reconciliation.next_change(self.owned, self._metadata.cluster)
        self._warn_of_limits()
        self._topics.keep(self._reconciliation.topics())
        if self.state is State.STABLE and (change is not None or self._reconciliation.unacknowledged):
            self._advance(Event.ASSIGNED)
        if change is not None:
            self._changes.add(change)
            self._notify_user()
        elif self.state is State.RECONCILING:
            self._advance(Event.RECONCILED)

    def _warn_of_limits(self) -> None:
        """N11: once for each number of partitions left out."""
        left_out, self._left_out = self._left_out, self._reconciliation.left_out
        if self._left_out > left_out:
            _log.warning("group %r: %s. They are read once it does", self._options.group_id, not_shown(self._left_out))

    def _assigned(self, error: BaseException | None) -> None:
        if error is None:
            self._reconciliation.assigned()
        else:
            self._advance(Event.LISTENER_RAISED)

    def _all_completed(self) -> None:
        if self.state is State.LOSING:
            self._advance(Event.LOSS_COMPLETED)
        else:
            self._reconciliation.pending = True
            self._reconcile()

    # ---- losing everything ------------------------------------------------------------------------------------------

    def _lose(self, cause: BaseException) -> None:
        """N07: the group went on without this member. It joins again at once, and its partitions are lost."""
        _log.warning("group %r: member %s lost its partitions and joins again: %s", self._options.group_id, in_one_line(self.identity.member_id), self._said(cause))
        self._advance(Event.LOST)
        self._start_over()

    def _start_over(self) -> None:
        self._forget()
        self._lose_all()

    def _forget(self) -> None:
        """Be in no epoch; forget assignment and heartbeats."""
        self._heartbeat.reset()
        self.identity = self.identity.without_generation()
        self._reconciliation.reset()
        self._metadata.identify(())

    def _depart(self, reason: str, finish: Finish, deadline: float | None, leaves: bool | None = None) -> None:
        self._forget()
        self._advance(Event.LEFT)
        self._registration.leave(finish, deadline, leaves)

    def _refuse(self, error: BaseException) -> None:
        self._fail_with(_with_advice(error, self._options.group_id, pattern=bool(self._heartbeat.subscription.pattern)))
        self._advance(Event.REFUSED)
        self._start_over()
        self._notify_user()

    def _advance(self, event: Event) -> None:
        self.state = CONSUMER.after(self.state, event)
        _log.debug("group %r: %s, now: %s", self._options.group_id, event.value, self.state.value)

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """Assigned topics stay in the view, too: the coordinator may know topics that match before the client does."""
        self._topics.resolve(self._reconciliation.topics())
        names = sorted(self._topics.describable)
        subscription = SubscriptionFields(tuple(names), str(self._topics.subscription.brokers_pattern or ""))
        self._heartbeat.subscription = subscription
        if self._forbidden not in (None, subscription):
            self._forbidden = None
            self._heartbeat.resume()


def _with_advice(error: BaseException, group: str, *, pattern: bool) -> BaseException:
    """The error with what the user can do, where the broker's message does not say it."""
    advised: KafkaError
    match error:
        case UnsupportedVersionError() if pattern:
            advised = UnsupportedVersionError(
                f"group {group!r}: these brokers do not support SubscriptionPattern. Subscribe to names or to a re.Pattern, or use Kafka 4.0 "
                "or newer.")
        case UnsupportedVersionError():
            advised = UnsupportedVersionError(
                f"group {group!r}: these brokers do not support the consumer group protocol (KIP-848). Set "
                'group_protocol="classic", or use Kafka 4.0 or newer.')
        case GroupIdNotFoundError():
            advised = GroupIdNotFoundError(
                f"group {group!r} has members that use the classic protocol, and cannot change to the consumer protocol while they are in it. "
                'Set group_protocol="classic", close those members, or see group.consumer.migration.policy of the brokers.')
        case _:
            return error
    advised.__cause__ = error
    return advised
