"""A member of a classic group: joins, syncs, beats, leaves (G01–G10). The leader's own work is in `leading`.

Runs on the client's loop and waits for nobody: what the user's thread has to do is a `Change`, and until it has done it the group
stays where it is, alive. Knows no sockets and no clock. Rule: an answer counts only in the generation it was asked in (G02).
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyclient.core.backoff import WaitPolicy
from pyclient.core.calls import Call, Calls, Finish
from pyclient.core.group.classic_calls import Joined, KnownAs, heartbeat_call, join_call, leave_call, survey_call, sync_call
from pyclient.core.group.classic_state import BEATING, CLASSIC, UNSETTLED, Event, State
from pyclient.core.group.leader import GroupLeader
from pyclient.core.group.member import Member
from pyclient.core.group.membership import Change, ChangeKind, GroupOptions, Identity
from pyclient.core.group.assignors import GroupAssignors
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Ready, Request, earliest
from pyclient.core.metadata import Metadata
from pyclient.errors import (
    AuthorizationError, FencedInstanceIdError, GroupMaxSizeReachedError, IllegalGenerationError, InconsistentGroupProtocolError,
    InvalidGroupIdError, InvalidSessionTimeoutError, KafkaError, RebalanceInProgressError, UnknownMemberIdError, UnsupportedVersionError,
)
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)
AT_ONCE: Final = 2
"""Attempts to join without a pause: the second one with the id that the first one got."""
_ANEW: Final = (UnknownMemberIdError, IllegalGenerationError, RebalanceInProgressError)
_LASTING: Final = (
    FencedInstanceIdError, InconsistentGroupProtocolError, InvalidSessionTimeoutError, InvalidGroupIdError, GroupMaxSizeReachedError,
    AuthorizationError, UnsupportedVersionError,
)
"""Joining again as it is would not help, or harm others: a fenced instance would fence the one that took its place (G03)."""
_TELLING: Final = (UnknownMemberIdError, IllegalGenerationError, FencedInstanceIdError)
"""What a refused commit says of the member. Anything else is about the offsets: whose right to a topic is gone keeps reading the others."""


class ClassicGroup(Member):
    """The manager of one consumer's membership. *on_news* is called when the user's thread has something to do."""

    def __init__(self, options: GroupOptions, strategies: GroupAssignors, calls: Calls, metadata: Metadata, leading: GroupLeader, *,
                 backoff: WaitPolicy, on_news: Callable[[], None]) -> None:
        super().__init__(options, calls, metadata, backoff, on_news)
        self._strategies = strategies
        self._leading = leading
        self.state = State.OUT
        self.identity = Identity()
        self._again = ""  # why it must join again once it is stable
        self._reason = "joining for the first time"
        self._request: Call | None = None  # joining or syncing
        self._surveys: Call | None = None  # a leader that came back
        self._leads: Joined | None = None  # the generation that this leads
        self._failures = 0
        self._pausing = False  # before it joins again
        self._join_at: float | None = None  # the end of the pause
        self._pulse: Call | None = None
        self._beat_at: float | None = None
        self._alive_at: float | None = None  # when the coordinator gave a sign of life last
        self._alive = False  # it gave one since the last poll

    # ---- what the user wants ----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""
        super().subscribe(subscription)
        if self.state is State.FAILED:
            self._advance(Event.LEFT)
        self._join_again("the subscription has changed")

    @property
    def wants_poll(self) -> bool:
        """Whether a poll of the user has to be told by `polled`."""
        return bool(self._subscribed) and (self.state is State.OUT or (self.state is State.FAILED and self._is_forgiven))

    def polled(self) -> None:
        """The user polls: join, or join again after having been away for too long (G04), or after a pause when the right to do so was missing."""
        if self.wants_poll:
            if self.state is State.FAILED:
                self._advance(Event.LEFT)
                self._failures, self._pausing = self._failures + 1, True
            self._advance(Event.REJOIN)
            self._lose_all()

    def carried_out(self, change: Change, error: BaseException | None = None) -> None:
        """The user's thread is done with *change*; what the listener raised changes nothing here (G10)."""
        if self._changes.end(change):
            self._go_on()

    # ---- commits ----------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether the coordinator may take commits; while it does not, waiting helps."""
        return self.state not in UNSETTLED

    @property
    def joining(self) -> bool:
        """Whether the next generation may have begun without this member knowing."""
        return self.state is State.JOINING

    def refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit: it may know more of this member than the heartbeats have told (C25)."""
        if sent_as != self.identity or self.state not in BEATING:
            return
        if isinstance(error, RebalanceInProgressError):
            self._rebalancing()
        elif isinstance(error, _TELLING):
            self._on_pulse(error)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """Its requests are calls, so it emits none itself."""
        if self.state in (State.OUT, State.FAILED):
            return ()
        self._look_at_topics()
        if self._leading.go_on():
            self._join_again("partitions have come or gone while their leader was away")
        if self._alive or self._alive_at is None:
            self._alive, self._alive_at = False, now
        if self._away(now):
            self._expire()
        elif self.state is State.STABLE and self._again:
            self._rejoin(self._again)
        if self.state is State.JOINING and self._request is None:
            self._join_when_due(now)
        if self._beats:
            self._beat(now)
        return ()

    def next_deadline(self) -> float | None:
        """The next heartbeat, the end of a pause, or of the user's time to poll."""
        if self.state in (State.OUT, State.FAILED):
            return None
        return earliest(self._next_beat(), self._join_at, self._away_at)

    def _next_beat(self) -> float | None:
        """The next heartbeat; while one is under way, when the coordinator counts as lost."""
        if not self._beats:
            return None
        return self._beat_at if self._pulse is None or self._alive_at is None else self._alive_at + self._options.session_timeout

    # ---- joining ----------------------------------------------------------------------------------------------------

    @property
    def _beats(self) -> bool:
        return self.state in BEATING and self.identity.joined

    def _rejoin(self, reason: str) -> None:
        """First, what may not be kept is given up: everything, or cooperatively what is not subscribed to any more (G06)."""
        self._again, self._reason = "", reason
        self._advance(Event.REJOIN)
        kept = self.topics if self._strategies.cooperative else frozenset[str]()
        gone = tuple(where for where in self.owned if where.topic not in kept)
        if gone:
            self._changes.add(Change(ChangeKind.REVOKED, gone))
        self._go_on()

    def _all_carried_out(self) -> None:
        if self.state is State.GIVING_UP:
            self._advance(Event.GIVEN_UP)
        elif self.state is State.TAKING_OVER:
            self._advance(Event.TAKEN_OVER)

    def _join_when_due(self, now: float) -> None:
        if self._pausing:
            self._pausing, self._join_at = False, now + self._backoff.after(self._failures)
        if self._join_at is None or now >= self._join_at:
            self._join_at = None
            self._join()

    def _join(self) -> None:
        protocols = self._strategies.subscriptions(self.topics, tuple(self.owned), self.identity.generation)
        self._ask(join_call(self._options, self.identity, protocols, self._reason, self._joined))

    def _ask(self, call: Call) -> None:
        self._request = call
        self._calls.submit(call)

    def _joined(self, answer: KnownAs | Joined, error: BaseException | None) -> None:
        self._request = None
        if error is not None:
            self._not_joined(error)
        elif isinstance(answer, KnownAs):
            self.identity = Identity(member_id=answer.member_id)
            self._join_once_more()
        else:
            self._begin_generation(answer)

    def _join_once_more(self) -> None:
        """At once, but not at the network's speed should the coordinator say the same again and again."""
        self._failures += 1
        self._pausing = self._failures > AT_ONCE

    def _not_joined(self, error: BaseException) -> None:
        if isinstance(error, _ANEW):
            self._join_once_more()
        if isinstance(error, UnknownMemberIdError):
            self._lose(Identity(), error)
        elif isinstance(error, IllegalGenerationError):
            self._lose(self.identity.without_generation(), error)
        elif isinstance(error, RebalanceInProgressError):
            self._rejoin("the group is rebalancing")
        else:
            self._fail(error)

    def _begin_generation(self, joined: Joined) -> None:
        if self._strategies.cooperative and self._options.instance_id is not None and not self.identity.joined:
            # It is given what it had, without a rebalance (KIP-345): if it was about to bring on the one in which others get what it gave up,
            # nobody else will.
            self._join_again("a static member came back")
        self.identity = joined.identity
        self._beat_at, self._alive = None, True
        if joined.leads and not joined.skips_assignment:
            self._advance(Event.LEADS)
        else:
            self._advance(Event.FOLLOWS)
            self._sync(joined, {})
        self._leads = joined if joined.leads else None
        if joined.leads:
            self._leading.begin(joined, self._shared_out)
            if joined.skips_assignment:
                self._survey(joined)
        else:
            self._leading.end()

    def _survey(self, joined: Joined) -> None:
        """G08: nobody else has seen which partitions came or went while the leader was away."""
        def told(shared: frozenset[TopicPartition] | None, error: BaseException | None) -> None:
            self._surveys = None
            if shared is None:
                _log.info("group %r: what was shared out before this leader came back is not known, and taken for all there is: %s",
                          self._options.group_id, error or "the group rebalances, or has an assignment that cannot be read")
            self._leading.inherit(joined, shared)

        self._surveys = survey_call(self._options, told)
        self._calls.submit(self._surveys)

    def _shared_out(self, joined: Joined, assignments: Mapping[str, bytes], error: BaseException | None) -> None:
        """The leader's work is done; it counts only in its own generation. (Numbers come again: a coordinator that moves forgets one that was not shared out.)"""
        if self.state is not State.ASSIGNING or joined is not self._leads:
            return
        if error is None:
            self._advance(Event.SHARED_OUT)
            self._sync(joined, assignments)
        else:
            self._fail(error)

    def _sync(self, joined: Joined, assignments: Mapping[str, bytes]) -> None:
        self._ask(sync_call(self._options, joined, assignments, lambda answer, error: self._synced(joined, answer, error)))

    def _synced(self, joined: Joined, answer: bytes, error: BaseException | None) -> None:
        self._request = None
        if error is None:
            try:
                assigned = self._strategies.assigned(joined.assignor, answer, joined.identity.generation)
            except Exception as damaged:  # noqa: BLE001 of the leader's making, or the assignor's
                self._fail(damaged)
            else:
                self._take_over(assigned)
        else:
            self._not_joined(error)

    def _take_over(self, assigned: tuple[TopicPartition, ...]) -> None:
        """G06, G09."""
        ours = dict.fromkeys(where for where in assigned if where.topic in self.topics)
        if len(ours) < len(set(assigned)):
            self._join_again("the assignment holds topics that are not subscribed to")
        gone = tuple(where for where in self.owned if where not in ours)
        if gone:
            self._join_again("partitions were given up that others wait for")
        self._failures = 0
        self._advance(Event.ASSIGNED)
        if gone:
            self._changes.add(Change(ChangeKind.REVOKED, gone))
        self._changes.add(Change(ChangeKind.ASSIGNED, tuple(where for where in ours if where not in self.owned)))
        self._go_on()

    def _join_again(self, reason: str) -> None:
        """As soon as it is stable: a request that waits for the other members cannot be taken back."""
        if self.state is not State.OUT:
            self._again = self._again or reason

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def _beat(self, now: float) -> None:
        if self._alive_at is not None and now >= self._alive_at + self._options.session_timeout:
            self._calls.lose_coordinator(self._options.group_id)
            self._alive_at = now
        if self._beat_at is None:
            self._beat_at = now + self._options.heartbeat_interval
        if self._pulse is None and now >= self._beat_at:
            self._beat_at = now + self._options.heartbeat_interval
            sent_as = self.identity
            self._pulse = heartbeat_call(self._options, sent_as, lambda _, error: self._felt(sent_as, error))
            self._calls.submit(self._pulse)

    def _felt(self, sent_as: Identity, error: BaseException | None) -> None:
        self._pulse = None
        if sent_as != self.identity or self.state not in BEATING:
            return
        if error is None or isinstance(error, RebalanceInProgressError):
            self._alive = True
        if isinstance(error, RebalanceInProgressError):
            self._rebalancing()
        elif error is not None:
            self._on_pulse(error)

    def _rebalancing(self) -> None:
        if self.state is State.STABLE:
            self._rejoin("the group is rebalancing")

    def _on_pulse(self, error: BaseException) -> None:
        match error:
            case UnknownMemberIdError():
                self._lose(Identity(), error)
            case IllegalGenerationError():
                self._lose(self.identity.without_generation(), error)
            case _ if isinstance(error, _LASTING):
                self._fail(error)
            case _:
                _log.warning("group %r: a heartbeat was refused: %s", self._options.group_id, error)

    # ---- losing everything ------------------------------------------------------------------------------------------

    def _lose(self, identity: Identity, cause: BaseException) -> None:
        """The group goes on without this member: it joins anew, and what it had counts as lost."""
        _log.info("group %r: member %s joins anew: %s", self._options.group_id, self.identity.member_id or "without an id", cause)
        self._cancel()
        self.identity = identity
        self._reason = "the group went on without this member"
        self._advance(Event.LOST)
        self._lose_all()

    def _depart(self, reason: str, finish: Finish, deadline: float | None) -> None:
        """G05: a static member only stops."""
        left = self._stop()
        if left.member_id and self._options.instance_id is None:
            self._calls.submit(leave_call(self._options, left, reason, finish, deadline))
        else:
            finish(None, None)

    def _stop(self) -> Identity:
        """Be no member any more; who it was."""
        was, self.identity = self.identity, Identity()
        self._cancel()
        self._leading.end()
        self._again, self._pausing, self._join_at = "", False, None
        self._advance(Event.LEFT)
        return was

    def _cancel(self) -> None:
        for call in (self._request, self._pulse, self._surveys):
            if call is not None:
                self._calls.cancel(call)
        self._request = self._pulse = self._surveys = None
        self._beat_at = None

    def _fail(self, error: BaseException) -> None:
        """The user is told by poll; what waiting or trying again may cure is tried again after a pause."""
        self._cancel()
        if isinstance(error, _LASTING):
            self._refuse(error)
        else:
            _log.warning("group %r: %s", self._options.group_id, error)
            self._failures += 1
            self._trouble, self._pausing = error, True
            self._rejoin("joining again after a failure")
        self._on_news()

    def _refuse(self, error: BaseException) -> None:
        self._fail_with(error)
        # Whose right was taken away may get it back: under a new id the group would wait for the old one to rejoin until its session ends.
        self.identity = self.identity.without_generation() if isinstance(error, AuthorizationError) else Identity()
        self._leading.end()
        self._advance(Event.REFUSED)
        self._lose_all()

    def _advance(self, event: Event) -> None:
        self.state = CLASSIC.after(self.state, event)
        _log.debug("group %r: %s, now: %s", self._options.group_id, event.value, self.state.value)

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def _look_at_topics(self) -> None:
        before = self.topics
        if not self._follow_metadata():
            return
        if self.topics != before:
            self._join_again("the pattern matches other topics")
        elif self._leading.changed():
            self._join_again("the topics have changed")

    def _resolve(self) -> None:
        self._subscribed.resolve()
