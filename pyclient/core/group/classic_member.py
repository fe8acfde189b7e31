"""A member of a classic group: joins, syncs, sends heartbeats, leaves (G01–G10).

The state table comes first. The leader's own work is in `leader`, when heartbeats are sent in `classic_heartbeat`. Runs
on the client's reactor and never blocks: what the user's thread has to do is a `Change`, and until it has done it the
member waits and stays alive. Independent of sockets and clocks.

Rule: a response counts only in the generation in which its request was sent (G02).
"""
from __future__ import annotations

import enum
import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyclient.core.backoff import Backoff
from pyclient.core.calls import Call, Calls, Finish
from pyclient.core.group.assigned import accepted_of
from pyclient.core.group.assignors import GroupAssignors
from pyclient.core.group.changes import Change, ChangeKind
from pyclient.core.group.classic_calls import Joined, MemberIdAssigned, join_call, leave_call, sync_call
from pyclient.core.group.classic_heartbeat import ClassicHeartbeat
from pyclient.core.group.coordinator import GroupOptions, Identity
from pyclient.core.group.leader import GroupLeader
from pyclient.core.group.membership import Membership
from pyclient.core.group.rejoin import JoinBackoff, RejoinPause
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Ready, Request, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.transitions import Transitions
from pyclient.errors import (
    AuthorizationError, FencedInstanceIdError, GroupMaxSizeReachedError, IllegalGenerationError, InconsistentGroupProtocolError,
    InvalidGroupIdError, InvalidSessionTimeoutError, KafkaError, RebalanceInProgressError, UnknownMemberIdError,
    UnsupportedVersionError,
)
from pyclient.records import TopicPartition
from pyclient.redaction import in_one_line

_log = logging.getLogger(__name__)


class State(enum.Enum):
    """The member's place in the protocol (G01)."""

    OUT = "not a member; the next poll joins if there is a subscription"
    REVOKING = "the user's thread gives partitions up before the member joins"
    JOINING = "waits for the other members to join"
    ASSIGNING = "as the leader, assigns partitions to the members"
    SYNCING = "waits for its assignment"
    TAKING_OVER = "the user's thread carries the assignment out"
    STABLE = "reads the partitions assigned to it"
    FAILED = "cannot be a member with this configuration"


class Event(enum.Enum):
    """What can happen to a member."""

    REJOIN = "it has to join again, and may have to give partitions up first"
    LOST = "the group went on without it: its partitions are lost"
    REVOKED = "it is ready to join"
    LEADS = "all have joined, and it is the leader"
    FOLLOWS = "all have joined, and another member leads, or the assignments stay as they are"
    ASSIGNMENTS_MADE = "the assignments of all members are known"
    ASSIGNED = "its assignment has arrived"
    TAKEN_OVER = "the user's thread has carried the assignment out"
    LEFT = "it leaves, or the user has not polled for too long"
    REFUSED = "the group does not accept it"


SENDS_HEARTBEATS: Final = frozenset({State.REVOKING, State.ASSIGNING, State.SYNCING, State.TAKING_OVER, State.STABLE})
"""While it is joining, the waiting JoinGroup request shows that the member is alive."""
REFUSES_COMMITS: Final = frozenset({State.ASSIGNING, State.SYNCING})
"""The coordinator accepts no commits until all members have their assignment."""

CLASSIC: Final[Transitions[State, Event]] = Transitions("classic member", {
    (State.OUT, Event.REJOIN): State.REVOKING,
    (State.REVOKING, Event.REVOKED): State.JOINING,
    (State.JOINING, Event.LEADS): State.ASSIGNING,
    (State.JOINING, Event.FOLLOWS): State.SYNCING,
    (State.ASSIGNING, Event.ASSIGNMENTS_MADE): State.SYNCING,
    (State.SYNCING, Event.ASSIGNED): State.TAKING_OVER,
    (State.TAKING_OVER, Event.TAKEN_OVER): State.STABLE,
    **{(state, Event.REJOIN): State.REVOKING for state in (State.JOINING, State.ASSIGNING, State.SYNCING, State.STABLE)},
    **{(state, Event.LOST): State.REVOKING for state in (State.REVOKING, State.JOINING, State.ASSIGNING, State.SYNCING,
                                                        State.TAKING_OVER, State.STABLE)},
    **{(state, Event.LEFT): State.OUT for state in State},
    **{(state, Event.REFUSED): State.FAILED for state in State if state not in (State.OUT, State.FAILED)},
})

AT_ONCE: Final = 2
"""Attempts to join without a pause: the second one with the member id that the first one received."""
_LOST: Final = (UnknownMemberIdError, IllegalGenerationError)
"""The group went on without the member."""
_FATAL: Final = (
    FencedInstanceIdError, InconsistentGroupProtocolError, InvalidSessionTimeoutError, InvalidGroupIdError, GroupMaxSizeReachedError,
    AuthorizationError, UnsupportedVersionError,
)
"""Joining again without a change would not help, or would harm other members: a fenced instance would fence its
successor (G03).
"""
_ABOUT_THE_MEMBER: Final = (*_LOST, FencedInstanceIdError)
"""Errors of a commit that concern membership.

Others concern the offsets: after losing the right to one topic the member still reads the others.
"""


class ClassicMember(Membership):
    """The manager of one consumer's membership. *notify_user* is called when the user's thread has something to do."""

    state: State

    def __init__(self, options: GroupOptions, assignors: GroupAssignors, calls: Calls, metadata: Metadata, leader: GroupLeader, *,
                 backoff: Backoff, notify_user: Callable[[], None]) -> None:
        super().__init__(options, calls, metadata, backoff, notify_user)
        self._assignors = assignors
        self._leader = leader
        self.state = State.OUT
        self.identity = Identity()
        self._rejoin_reason = ""  # why it must join again once it is stable
        self._offered: frozenset[str] = frozenset()  # the topics in the last JoinGroup
        self._rejoin_pause = RejoinPause(options, backoff)
        self._reason = "joining for the first time"  # JoinGroup sends it to the coordinator
        self._request: Call | None = None  # JoinGroup or SyncGroup in flight
        self._join_backoff = JoinBackoff(backoff)
        self._heartbeat = ClassicHeartbeat(options, calls, self._on_heartbeat)

    # ---- what the user wants ----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""
        super().subscribe(subscription)
        if self.state is State.FAILED:
            self._advance(Event.LEFT)
        self._rejoin_when_stable("the subscription has changed")

    def enforce_rebalance(self, reason: str) -> None:
        """Join again once the member is stable, so that the group's leader assigns again."""
        self._rejoin_when_stable(reason)

    @property
    def wants_poll(self) -> bool:
        """Whether the user's next poll has to call `polled`."""
        return (self.state is State.OUT or (self.state is State.FAILED and self._may_retry)) and bool(self._topics)

    def polled(self) -> None:
        """The user polls: join, or join again after the user was away (G04) or, after a pause, when a right was
        missing.
        """
        if self.wants_poll:
            if self.state is State.FAILED:
                self._advance(Event.LEFT)
                self._join_backoff.failed()
            self._advance(Event.REJOIN)
            self._lose_all()

    def complete(self, change: Change, error: BaseException | None = None) -> None:
        """The user's thread has carried out *change*; an error of the listener changes nothing here (G10)."""
        if self._changes.complete(change):
            self._next_change()

    # ---- commits ----------------------------------------------------------------------------------------------------

    @property
    def accepts_commits(self) -> bool:
        """Whether the coordinator may accept commits now; while it does not, waiting helps."""
        return self.state not in REFUSES_COMMITS

    @property
    def generation_in_doubt(self) -> bool:
        """Whether the next generation may have begun without this member knowing."""
        return self.state is State.JOINING

    def on_commit_refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit: it may know more about this member than the heartbeats have reported (C25).
        """
        if sent_as != self.identity or self.state not in SENDS_HEARTBEATS:
            return
        if isinstance(error, RebalanceInProgressError):
            self._on_rebalance()
        elif isinstance(error, _ABOUT_THE_MEMBER):
            self._on_heartbeat_error(error)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """Its requests are calls, so it emits none itself."""
        if self.state in (State.OUT, State.FAILED):
            return ()
        self._check_topics()
        if self._leader.assign_when_ready():
            self._rejoin_when_stable("partitions were added or removed while their leader was away")
        if self._poll_overdue(now):
            self._expire()
        elif self.state is State.STABLE and (reason := self._rejoin_reason or self._rejoin_pause.due(now)):
            self._rejoin(reason)
        if self.state is State.JOINING and self._request is None and self._join_backoff.over(now):
            self._join()
        if self._sends_heartbeats:
            self._heartbeat.poll(now, self.identity)
        return ()

    def next_deadline(self) -> float | None:
        """The next heartbeat, the end of a pause, or of the user's time to poll."""
        if self.state in (State.OUT, State.FAILED):
            return None
        heartbeat = self._heartbeat.next_deadline() if self._sends_heartbeats else None
        pause = self._rejoin_pause.ends_at if self.state is State.STABLE else None
        return earliest(heartbeat, self._join_backoff.ends_at, pause, self._poll_deadline)

    # ---- joining ----------------------------------------------------------------------------------------------------

    def _rejoin_when_stable(self, reason: str) -> None:
        """Join again, but not before it is stable: a request that waits for the other members cannot be cancelled."""
        if self.state is not State.OUT:
            self._rejoin_reason = self._rejoin_reason or reason

    def _rejoin(self, reason: str) -> None:
        """Give up what may not be kept, then join: all partitions, or cooperatively those of topics not subscribed to
        any more (G06).
        """
        self._rejoin_reason, self._reason = "", reason
        self._rejoin_pause.end()
        self._advance(Event.REJOIN)
        kept = self.topics if self._assignors.cooperative else frozenset[str]()
        revoked = tuple(tp for tp in self.owned if tp.topic not in kept)
        if revoked:
            self._changes.add(Change(ChangeKind.REVOKED, revoked))
        self._next_change()

    def _all_completed(self) -> None:
        if self.state is State.REVOKING:
            self._advance(Event.REVOKED)
        elif self.state is State.TAKING_OVER:
            self._advance(Event.TAKEN_OVER)

    def _join(self) -> None:
        self._offered = self.topics
        protocols = self._assignors.subscriptions(self.topics, tuple(self.owned), self.identity.generation)
        self._submit(join_call(self._options, self.identity, protocols, self._reason, self._on_joined))

    def _submit(self, call: Call) -> None:
        self._request = call
        self._calls.submit(call)

    def _on_joined(self, response: MemberIdAssigned | Joined, error: BaseException | None) -> None:
        self._request = None
        if error is not None:
            self._on_join_error(error)
        elif isinstance(response, MemberIdAssigned):
            self.identity = Identity(member_id=response.member_id)
            self._join_backoff.failed(AT_ONCE)
        else:
            self._begin_generation(response)

    def _on_join_error(self, error: BaseException) -> None:
        if isinstance(error, (*_LOST, RebalanceInProgressError)):
            self._join_backoff.failed(AT_ONCE)
        if isinstance(error, _LOST):
            self._lose(error)
        elif isinstance(error, RebalanceInProgressError):
            self._rejoin("the group is rebalancing")
        else:
            self._fail(error)

    def _begin_generation(self, joined: Joined) -> None:
        if self._assignors.cooperative and self._options.instance_id is not None and not self.identity.joined:
            # KIP-345: a static member that comes back gets its old assignment without a rebalance. If it had given
            # partitions up just before, no other member starts the rebalance that assigns them.
            self._rejoin_when_stable("a static member came back")
        self.identity = joined.identity
        self._heartbeat.restart()
        if joined.leads and not joined.skips_assignment:
            self._advance(Event.LEADS)
        else:
            self._advance(Event.FOLLOWS)
            self._sync(joined, {})
        if joined.leads:
            self._leader.begin(joined, self._on_assignments)
        else:
            self._leader.end()

    def _on_assignments(self, joined: Joined, assignments: Mapping[str, bytes], error: BaseException | None) -> None:
        if self.state is not State.ASSIGNING:
            return
        if error is None:
            self._advance(Event.ASSIGNMENTS_MADE)
            self._sync(joined, assignments)
        else:
            self._fail(error)

    def _sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> None:
        self._submit(sync_call(self._options, joined, assignments, lambda response, error: self._on_synced(joined, response, error)))

    def _on_synced(self, joined: Joined, response: bytes, error: BaseException | None) -> None:
        self._request = None
        if error is not None:
            self._on_join_error(error)
            return
        try:
            assigned = self._assignors.assigned(joined.assignor, response, joined.identity.generation)
        except Exception as damaged:  # noqa: BLE001 the leader or the assignor made it
            self._fail(damaged)
        else:
            self._take_over(assigned)

    def _take_over(self, assigned: tuple[TopicPartition, ...]) -> None:
        """G06, G09. A topic that was in the JoinGroup is no mistake of the leader: the member has
        unsubscribed since, and joins again in any case.
        """
        checked = accepted_of(assigned, self._offered | self.topics, self._metadata.cluster)
        accepted = dict.fromkeys(tp for tp in checked.accepted if tp.topic in self.topics)
        revoked = tuple(tp for tp in self.owned if tp not in accepted)
        self._rejoin_pause.assigned(checked.wrong, revokes=bool(revoked))
        self._join_backoff.succeeded()
        self._advance(Event.ASSIGNED)
        if revoked:
            self._changes.add(Change(ChangeKind.REVOKED, revoked))
        self._changes.add(Change(ChangeKind.ASSIGNED, tuple(tp for tp in accepted if tp not in self.owned)))
        self._next_change()

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    @property
    def _sends_heartbeats(self) -> bool:
        return self.state in SENDS_HEARTBEATS and self.identity.joined

    def _on_heartbeat(self, sent_as: Identity, error: BaseException | None) -> bool:
        """Returns whether nothing is to be done because of it."""
        if sent_as != self.identity or self.state not in SENDS_HEARTBEATS:
            return False
        if error is None:
            return True
        if isinstance(error, RebalanceInProgressError):
            self._on_rebalance()
        else:
            self._on_heartbeat_error(error)
        return False

    def _on_rebalance(self) -> None:
        if self.state is State.STABLE:
            self._rejoin("the group is rebalancing")

    def _on_heartbeat_error(self, error: BaseException) -> None:
        if isinstance(error, _LOST):
            self._lose(error)
        elif isinstance(error, _FATAL):
            self._fail(error)
        else:
            _log.warning("group %r: a heartbeat was refused: %s", self._options.group_id, self._said(error))

    # ---- losing everything ------------------------------------------------------------------------------------------

    def _lose(self, cause: BaseException) -> None:
        """The group went on without this member: it joins again, and its partitions are lost."""
        _log.warning("group %r: member %s lost its partitions and joins again: %s", self._options.group_id, in_one_line(self.identity.member_id) or "without an id", self._said(cause))
        self._cancel()
        self.identity = Identity() if isinstance(cause, UnknownMemberIdError) else self.identity.without_generation()
        self._reason = "the group went on without this member"
        self._advance(Event.LOST)
        self._lose_all()

    def _depart(self, reason: str, finish: Finish, deadline: float | None, leaves: bool | None = None) -> None:
        """G05: a static member sends no request, unless it *leaves*."""
        left, self.identity = self.identity, Identity()
        self._cancel()
        self._leader.end()
        self._rejoin_reason = ""
        self._rejoin_pause.end()
        self._join_backoff.cancel()
        self._advance(Event.LEFT)
        if left.member_id and (self._options.instance_id is None if leaves is None else leaves):
            self._calls.submit(leave_call(self._options, left, reason, finish, deadline))
        else:
            finish(None, None)

    def _cancel(self) -> None:
        if self._request is not None:
            self._calls.cancel(self._request)
        self._request = None
        self._leader.cancel_lookup()
        self._heartbeat.cancel()

    def _fail(self, error: BaseException) -> None:
        """Report the error to the user. What waiting may cure is tried again after a pause."""
        self._cancel()
        if isinstance(error, _FATAL):
            self._refuse(error)
        else:
            _log.warning("group %r: %s", self._options.group_id, self._said(error))
            self._error = error
            self._join_backoff.failed()
            self._rejoin("joining again after a failure")
        self._notify_user()

    def _refuse(self, error: BaseException) -> None:
        self._fail_with(error)
        # A missing right may be granted again: with a new member id the group would wait until the session of the old
        # one times out.
        self.identity = self.identity.without_generation() if isinstance(error, AuthorizationError) else Identity()
        self._leader.end()
        self._advance(Event.REFUSED)
        self._lose_all()

    def _advance(self, event: Event) -> None:
        self.state = CLASSIC.after(self.state, event)
        _log.debug("group %r: %s, now: %s", self._options.group_id, event.value, self.state.value)

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def _check_topics(self) -> None:
        before = self.topics
        if not self._follow_metadata():
            return
        if self.topics != before:
            self._rejoin_when_stable("the pattern matches other topics")
        elif self._leader.topics_changed():
            self._rejoin_when_stable("the topics have changed")
