"""A member of a group of the next generation (KIP-848): joins, beats, reconciles, leaves (N01–N10). What it is told is in `reconciling`.

Runs on the client's loop and waits for nobody: what the user's thread has to do is a `Change`; heartbeats go on meanwhile. Knows no sockets
and no clock. Rule: who has said what it has begins with nothing else before it has an answer, for the coordinator takes it at its word.
"""
from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final
from uuid import UUID

import attrs

from pyclient.core.backoff import WaitPolicy
from pyclient.core.calls import Call, Calls, Finish
from pyclient.core.group.consumer_calls import Saying, Told, Wishes, beat_call, leave_call, say
from pyclient.core.group.consumer_state import BEATING, CONSUMER, MEMBERS, Event, State
from pyclient.core.group.member import Member
from pyclient.core.group.membership import Change, ChangeKind, GroupOptions, Identity
from pyclient.core.group.reconciliation import Reconciliation
from pyclient.core.group.subscription import Subscription
from pyclient.core.manager import Ready, Request, earliest
from pyclient.core.metadata import Metadata
from pyclient.errors import (
    AuthorizationError, FencedInstanceIdError, FencedMemberEpochError, GroupIdNotFoundError, GroupMaxSizeReachedError, InvalidGroupIdError,
    InvalidRegularExpressionError, InvalidRequestError, KafkaError, StaleMemberEpochError, TopicAuthorizationError, UnknownMemberIdError,
    UnreleasedInstanceIdError, UnsupportedAssignorError, UnsupportedVersionError,
)

if TYPE_CHECKING:
    from random import Random

_log = logging.getLogger(__name__)
_GONE_ON: Final = (FencedMemberEpochError, UnknownMemberIdError)
"""The group went on without this member: it joins again."""
_LASTING: Final = (
    FencedInstanceIdError, UnreleasedInstanceIdError, InvalidRequestError, UnsupportedAssignorError, InvalidRegularExpressionError,
    GroupMaxSizeReachedError, InvalidGroupIdError, AuthorizationError, UnsupportedVersionError,
)
"""Joining again as it is would not help, or harm others."""


class ConsumerGroup(Member):
    """The manager of one consumer's membership. *on_news* is called when the user's thread has something to do."""

    def __init__(self, options: GroupOptions, calls: Calls, metadata: Metadata, *, random: Random, backoff: WaitPolicy,
                 on_news: Callable[[], None]) -> None:
        super().__init__(options, calls, metadata, backoff, on_news)
        self.state = State.OUT
        self.identity = Identity(member_id=str(UUID(int=random.getrandbits(128), version=4)))
        self._wishes = Wishes()
        self._reconciling = Reconciliation()
        self._is_open = False  # there may be a step to take
        self._balked = False  # the listener raised when it was given partitions: once more with the next poll (N06)
        self._said: Wishes | None = None  # what the coordinator has heard; None: it has to be told everything
        self._known = False  # the coordinator may believe that this is a member
        self._pulse: Call | None = None
        self._farewell: Call | None = None
        self._interval = options.heartbeat_interval
        self._sent_at = 0.0
        self._silent_at: float | None = None  # when a coordinator that does not answer is looked up again
        self._failures = 0
        self._pausing: float | None = None  # before the next heartbeat, for so many seconds at least
        self._not_before = 0.0  # the end of the pause
        self._stale = False  # a commit told that there is a newer epoch
        self._forbidden: Wishes | None = None  # what was refused, as one of its topics may not be described

    # ---- what the user wants ----------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""
        super().subscribe(subscription)
        if self.state is State.FAILED:
            self._advance(Event.LEFT)

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern those that match it now, or, where brokers match it, those of which it has something."""
        return self._subscribed.topics if not self._wishes.pattern else self._reconciling.topics()

    @property
    def wants_poll(self) -> bool:
        """Whether a poll of the user has to be told by `polled`."""
        return self._balked or self._wants_to_join

    @property
    def _wants_to_join(self) -> bool:
        return bool(self._subscribed) and (self.state is State.OUT or (self.state is State.FAILED and self._is_forgiven))

    def polled(self) -> None:
        """The user polls: join, join again after having been away for too long (N08), after a pause when the right to do so was missing, or
        try again what the listener refused.
        """
        if self._wants_to_join:
            was_refused = self.state is State.FAILED
            if was_refused:
                self._advance(Event.LEFT)
            self._take_back_farewell()
            self._advance(Event.JOIN)
            self._start_over()
            if was_refused:
                self._failures, self._pausing = 1, 0.0
        elif self._balked:
            self._balked = False
            self._reconcile()

    def carried_out(self, change: Change, error: BaseException | None = None) -> None:
        """The user's thread is done with *change*. Partitions whose assignment the listener raised at are not owned after all (N06)."""
        if change.kind is ChangeKind.ASSIGNED and error is not None:
            self._changes.drop(change.partitions)
        if self._changes.end(change):
            self._was_done(change, error)
            self._go_on()

    def leave(self, reason: str, finish: Finish, deadline: float | None) -> None:
        """Leave for good, a static member for now; partitions must have been given up. The protocol has no place for the reason."""
        _log.debug("group %r: leaving: %s", self._options.group_id, reason)
        super().leave(reason, finish, deadline)

    # ---- commits ----------------------------------------------------------------------------------------------------

    @property
    def settled(self) -> bool:
        """Whether the coordinator takes commits: in this protocol always, though it may want a newer epoch in them."""
        return True

    @property
    def joining(self) -> bool:
        """Whether the next generation may have begun without this member knowing: here the epoch that a commit names tells."""
        return False

    def refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit: it may know more of this member than the heartbeats have told (C25, N10)."""
        if sent_as != self.identity or self.state not in MEMBERS:
            return
        if isinstance(error, StaleMemberEpochError):
            self._stale = True
        elif isinstance(error, _GONE_ON):
            self._lose(error)
        elif isinstance(error, FencedInstanceIdError):
            self._refuse(error)

    # ---- the manager ------------------------------------------------------------------------------------------------

    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """Its requests are calls, so it emits none itself."""
        if self.state in (State.OUT, State.FAILED):
            return ()
        if self._follow_metadata():
            self._is_open = True
        if self._away(now):
            self._expire()
        if self._is_open:
            self._reconcile()
        if self.state in BEATING:
            self._beat(now)
        return ()

    def next_deadline(self) -> float | None:
        """The next heartbeat, the end of the coordinator's time to answer, or of the user's time to poll."""
        if self.state in (State.OUT, State.FAILED):
            return None
        return earliest(self._away_at, self._next_beat() if self.state in BEATING else None)

    # ---- heartbeats -------------------------------------------------------------------------------------------------

    def _next_beat(self) -> float | None:
        if self._pulse is not None:
            return self._silent_at
        return self._not_before if self._urgent else max(self._not_before, self._sent_at + self._interval)

    @property
    def _urgent(self) -> bool:
        """N04: what the coordinator has to be told does not wait for the interval; what failed waits for the pause."""
        return self._said != self._wishes or self._stale or self.state is State.ACKNOWLEDGING

    def _beat(self, now: float) -> None:
        if self._pausing is not None:
            usual = self._backoff.after(self._failures)
            self._not_before = now + max(self._pausing, min(usual, self._interval))  # the session goes on
            self._pausing = None
        due = self._next_beat()
        if due is None or now < due:
            return
        self._silent_at = now + self._options.session_timeout
        if self._pulse is not None:
            self._calls.lose_coordinator(self._options.group_id)
        else:
            self._sent_at, self._stale = now, False
            self._pulse = self._heartbeat() if not self._is_held else leave_call(self._options, self.identity.member_id, self._released, None)
            self._calls.submit(self._pulse)

    def _heartbeat(self) -> Call:
        owned = self._reconciling.places(self.owned)
        saying = say(self._wishes, self._said, owned, owes=self.state is State.ACKNOWLEDGING)
        if saying.owned is not None:
            self._changes.withdraw()
        self._known = True
        wishes = self._wishes
        return beat_call(self._options, self.identity, saying, lambda answer, error: self._felt(wishes, saying, answer, error))

    def _felt(self, wishes: Wishes, saying: Saying, answer: Told, error: BaseException | None) -> None:
        self._pulse = None
        self._is_open = True
        if error is None:
            self._said, self._failures = wishes, 0
            self._interval = answer.interval if answer.interval > 0 else self._options.heartbeat_interval
            self.identity = attrs.evolve(self.identity, generation=answer.epoch)
            self._take_in(saying, answer)
        else:
            self._said = None  # the next answer tells what the member is to have, whatever this one would have told
            self._not_heard(error, wishes)

    def _take_in(self, saying: Saying, answer: Told) -> None:
        if self.state is State.JOINING:
            self._advance(Event.JOINED)
        elif self.state is State.ACKNOWLEDGING and saying.owned is not None:
            self._reconciling.heard()  # before this answer tells more
            self._advance(Event.ACKNOWLEDGED)
        if answer.assignment is not None and self._reconciling.aim(answer.assignment):
            self._changes.withdraw()
            self._metadata.identify(self._reconciling.nameless(self._metadata.cluster.names))

    def _not_heard(self, error: BaseException, wishes: Wishes | None = None) -> None:
        joining = self.state is State.JOINING
        if joining and getattr(error, "code", None) is not None:
            self._known = False  # refused for certain
        if isinstance(error, (*_GONE_ON, GroupIdNotFoundError)) and not joining:
            self._known = isinstance(error, FencedMemberEpochError)
            self._lose(error)
        elif isinstance(error, TopicAuthorizationError):
            self._hear_of_a_forbidden_topic(error, wishes)
        elif isinstance(error, (*_LASTING, GroupIdNotFoundError)):
            self._refuse(error)
        else:
            self._pause(error)

    def _hear_of_a_forbidden_topic(self, error: BaseException, wishes: Wishes | None) -> None:
        """One topic that may not be described, and the coordinator refuses everything: the metadata tell which, and it is left out (N07). The
        user is told of the refusal itself when they tell of none.
        """
        if wishes == self._forbidden:
            self._tell(error)
        self._forbidden = wishes
        self._rest(error, at_least=self._interval)
        self._metadata.request_update()

    def _pause(self, error: BaseException) -> None:
        """The user is told what waiting alone may not cure."""
        self._rest(error)
        if not isinstance(error, KafkaError) or not (error.retriable or isinstance(error, _GONE_ON)):
            self._tell(error)

    def _rest(self, error: BaseException, at_least: float = 0.0) -> None:
        _log.info("group %r: a heartbeat failed: %s", self._options.group_id, error)
        self._failures += 1
        self._pausing = at_least

    # ---- static members ---------------------------------------------------------------------------------------------

    @property
    def _is_held(self) -> bool:
        """Whether the coordinator may hold the instance id for this very member, and so not let it join."""
        return self.state is State.JOINING and self._known and self._options.instance_id is not None

    def _released(self, _: object, error: BaseException | None) -> None:
        self._pulse = None
        if error is None:
            self._known = False
        else:
            self._not_heard(error)

    # ---- reconciling ------------------------------------------------------------------------------------------------

    def _reconcile(self) -> None:
        """The next step towards what the coordinator told last, if it is time for one (N05)."""
        if self.state not in (State.STABLE, State.RECONCILING) or self._said is None or self._changes or self._balked:
            return
        self._is_open = False
        step = self._reconciling.step(self.owned, self._metadata.cluster.names)
        self._subscribed.keep(self._reconciling.topics())
        if self.state is State.STABLE and (step is not None or self._reconciling.is_unsaid):
            self._advance(Event.TOLD)
        if step is not None:
            self._changes.add(step)
            self._on_news()
        elif self.state is State.RECONCILING:
            self._advance(Event.RECONCILED)

    def _was_done(self, change: Change, error: BaseException | None) -> None:
        if change.kind is not ChangeKind.ASSIGNED or self.state is not State.RECONCILING:
            return
        if error is None:
            self._reconciling.assigned()
        else:
            self._balked = True

    def _all_carried_out(self) -> None:
        if self.state is State.LOSING:
            self._advance(Event.GONE)
        else:
            self._is_open = True
            self._reconcile()

    # ---- losing everything ------------------------------------------------------------------------------------------

    def _lose(self, cause: BaseException) -> None:
        """N07: the group goes on without this member: it joins anew at once, and what it had counts as lost."""
        _log.info("group %r: member %s joins anew: %s", self._options.group_id, self.identity.member_id, cause)
        self._advance(Event.LOST)
        self._start_over()

    def _start_over(self) -> None:
        self._forget()
        self._lose_all()

    def _forget(self) -> None:
        """Be in no epoch, as if nothing had been told or said."""
        if self._pulse is not None:
            self._calls.cancel(self._pulse)
        self._pulse = self._said = self._pausing = self._silent_at = None
        self._failures, self._not_before = 0, 0.0
        self._balked = self._stale = self._is_open = False
        self.identity = self.identity.without_generation()
        self._reconciling.start_over()
        self._metadata.identify(())

    def _depart(self, reason: str, finish: Finish, deadline: float | None) -> None:
        if self._stop():
            self._take_leave(finish, deadline)
        else:
            finish(None, None)

    def _take_leave(self, finish: Finish, deadline: float | None) -> None:
        def took_leave(result: object, error: BaseException | None) -> None:
            self._farewell = None
            finish(result, error)

        self._farewell = leave_call(self._options, self.identity.member_id, took_leave, deadline)
        self._calls.submit(self._farewell)

    def _take_back_farewell(self) -> None:
        """Else, sent once more, it would make this leave what it now joins."""
        if self._farewell is not None:
            self._known = True
            self._calls.cancel(self._farewell)
            self._farewell.finish(None, None)

    def _stop(self) -> bool:
        """Be no member any more; whether the coordinator has to be told."""
        known, self._known = self._known, False
        self._forget()
        self._advance(Event.LEFT)
        return known

    def _refuse(self, error: BaseException) -> None:
        self._fail_with(_with_advice(error, self._options.group_id, pattern=bool(self._wishes.pattern)))
        self._advance(Event.REFUSED)
        self._start_over()
        self._on_news()

    def _advance(self, event: Event) -> None:
        self.state = CONSUMER.after(self.state, event)
        _log.debug("group %r: %s, now: %s", self._options.group_id, event.value, self.state.value)

    # ---- metadata ---------------------------------------------------------------------------------------------------

    def _resolve(self) -> None:
        """What is assigned stays in the view, too: the coordinator may know topics that match before the client does."""
        self._subscribed.resolve(self._reconciling.topics())
        names = sorted(self._subscribed.described)  # the coordinator is told of them only when they change
        self._wishes = Wishes(tuple(names), str(self._subscribed.subscription.brokers_pattern or ""))
        if self._forbidden not in (None, self._wishes):
            self._forbidden = self._pausing = None
            self._not_before = 0.0


def _with_advice(error: BaseException, group: str, *, pattern: bool) -> BaseException:
    """What the user can do, where the broker's words cannot tell it."""
    told: KafkaError
    match error:
        case UnsupportedVersionError() if pattern:
            told = UnsupportedVersionError(
                f"group {group!r}: these brokers match no SubscriptionPattern. Subscribe to names or to a re.Pattern, or use Kafka 4.0 or newer.")
        case UnsupportedVersionError():
            told = UnsupportedVersionError(
                f"group {group!r}: these brokers do not coordinate groups of the next generation (KIP-848). Set "
                'group_protocol="classic", or use Kafka 4.0 or newer.')
        case GroupIdNotFoundError():
            told = GroupIdNotFoundError(
                f"group {group!r} has members that speak the classic protocol, and cannot become one of the next generation while they are in it. Set "
                'group_protocol="classic", end those members, or see group.consumer.migration.policy of the brokers.')
        case _:
            return error
    told.__cause__ = error
    return told
