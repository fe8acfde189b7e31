"""The heartbeats of a member under the consumer protocol (KIP-848): when the next one is due, and what it has to state
(N03, N04).

Independent of states: the member polls it only in those that send heartbeats. Rule: after a failed heartbeat the next
one states everything, as the coordinator may or may not have processed the failed one.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from pyclient.core.backoff import Backoff
from pyclient.core.calls import Call, Calls, Finish
from pyclient.core.group.consumer_calls import HeartbeatFields, SubscriptionFields, leave_call
from pyclient.core.group.coordinator import HEARTBEATS_IN_A_SESSION, GroupOptions, silence_of_a_coordinator
from pyclient.core.group.reconciliation import TopicIdPartition


_log = logging.getLogger(__name__)
MOST_EARLY: Final = 20
"""Heartbeats in a row without a wait: a reconciliation has a few steps, and each needs one."""
LEAST_INTERVAL: Final = 0.1
"""Seconds; brokers allow no shorter interval than this."""


class ConsumerHeartbeat:
    """One heartbeat at a time: each interval, at once when there is news, later after a failure."""

    def __init__(self, options: GroupOptions, calls: Calls, backoff: Backoff) -> None:
        self._options = options
        self._calls = calls
        self._backoff = backoff
        self.subscription = SubscriptionFields()
        """What the member subscribes to now."""
        self._confirmed: SubscriptionFields | None = None
        self._epoch_outdated = False
        self._call: Call | None = None
        self.interval = options.heartbeat_interval
        """Seconds, as the coordinator set it last."""
        self._sent_at = 0.0
        self._failures = 0
        self._pause: float | None = None  # a pause of at least so many seconds begins with the next poll
        self._not_before = 0.0  # the end of the pause
        self._early = 0  # heartbeats in a row that did not wait for the interval

    # ---- what it states ---------------------------------------------------------------------------------------------

    @property
    def in_sync(self) -> bool:
        """Whether the last heartbeat succeeded, so that the coordinator's next assignment is relative to what it knows.
        """
        return self._confirmed is not None

    def fields(self, owned: frozenset[TopicIdPartition], *, acknowledges: bool) -> HeartbeatFields:
        """What has changed since the last successful heartbeat, or everything; *owned* also when it *acknowledges* an
        assignment.
        """
        now, before = self.subscription, self._confirmed
        return HeartbeatFields(
            full=before is None,
            topics=now.topics if before is None or now.topics != before.topics else None,
            pattern=now.pattern if before is None or now.pattern != before.pattern else None,
            owned=owned if before is None or acknowledges else None)

    def epoch_outdated(self) -> None:
        """A refused commit shows that there is a newer epoch: the next heartbeat fetches it."""
        self._epoch_outdated = True

    # ---- when it is sent --------------------------------------------------------------------------------------------

    def next_deadline(self, *, acknowledges: bool) -> float | None:
        """When the next one is due; None while one is in flight.

        N04: news for the coordinator does not wait for the interval; after a failure the pause comes first.
        """
        if self._call is not None:
            return None
        has_news = self._confirmed != self.subscription or self._epoch_outdated or acknowledges
        return self._not_before if has_news else max(self._not_before, self._sent_at + self.interval)

    def poll(self, now: float, make_call: Callable[[], Call], *, acknowledges: bool) -> None:
        """Submit the call of *make_call* if it is due."""
        if self._pause is not None:
            backoff = min(self._backoff.after(self._failures), self.interval)  # a longer pause could end the session
            self._not_before = now + max(self._pause, backoff)
            self._pause = None
        due = self.next_deadline(acknowledges=acknowledges)
        if due is None or now < due:
            return
        if self._is_too_early(now):
            return
        self._sent_at, self._epoch_outdated = now, False
        self._call = make_call()
        self._call.timeout = silence_of_a_coordinator(self._options.request_timeout, HEARTBEATS_IN_A_SESSION * self.interval)
        self._calls.submit(self._call)

    def _is_too_early(self, now: float) -> bool:
        """N04: a coordinator with news in each response, or one that fences each member, must not cause a heartbeat for
        each.
        """
        if self._not_before > self._sent_at:
            return False  # it has waited
        if now >= self._sent_at + self.interval:
            self._early = 0
            return False
        self._early += 1
        if self._early <= MOST_EARLY:
            return False
        if self._early == MOST_EARLY + 1:
            _log.warning("group %r: %d heartbeats in a row had news for the coordinator; the next ones wait", self._options.group_id, MOST_EARLY)
        self._not_before = now + min(self._backoff.after(self._early - MOST_EARLY), self.interval)
        return True

    # ---- its outcome ------------------------------------------------------------------------------------------------

    def succeeded(self, subscription: SubscriptionFields, interval: float) -> None:
        """The coordinator knows *subscription*, and sets the *interval*; one that is not positive means the configured
        one.
        """
        self._call = None
        self._confirmed, self._failures = subscription, 0
        self.interval = max(interval, LEAST_INTERVAL) if interval > 0 else self._options.heartbeat_interval

    def unconfirmed(self) -> None:
        """The call has ended, and the coordinator may or may not know what was stated."""
        self._call = self._confirmed = None

    def back_off(self, at_least: float = 0.0) -> None:
        """Begin a pause with the next poll: longer with each failure in a row, and at least so many seconds."""
        self._failures += 1
        self._pause = at_least

    def resume(self) -> None:
        """End the pause."""
        self._pause, self._not_before = None, 0.0

    def reset(self) -> None:
        """Forget the heartbeat in flight, and what the coordinator knows."""
        if self._call is not None:
            self._calls.cancel(self._call)
        self._call = self._confirmed = None
        self._failures, self._epoch_outdated = 0, False
        self.resume()


class Registration:
    """Whether the coordinator may count this as a member, and the request that takes it out of the group."""

    def __init__(self, options: GroupOptions, calls: Calls, member_id: str) -> None:
        self._options = options
        self._calls = calls
        self._member_id = member_id
        self._leave_call: Call | None = None
        self.exists = False
        """Whether the coordinator may count this as a member.

        After a heartbeat without a response this is not certain.
        """

    @property
    def holds_instance_id(self) -> bool:
        """Whether the coordinator may reserve the instance id for this registration, and so refuse a join with it."""
        return self.exists and self._options.instance_id is not None

    def release_call(self, finish: Finish) -> Call:
        """Leave with the same member id, so that a static member can join again."""
        return leave_call(self._options, self._member_id, finish, None)

    def leave(self, finish: Finish, deadline: float | None, leaves: bool | None = None) -> None:
        """Leave the group, as `Membership._depart`; without a registration no request is needed."""
        if not self.exists or (leaves is False and not self.holds_instance_id):
            self.exists = False
            finish(None, None)
            return

        def left(result: object, error: BaseException | None) -> None:
            self._leave_call = None
            finish(result, error)

        self.exists = False
        self._leave_call = leave_call(self._options, self._member_id, left, deadline, permanently=bool(leaves))
        self._calls.submit(self._leave_call)

    def cancel_leave(self) -> None:
        """Do not send the leave request again: it would take out the member that joins now."""
        if self._leave_call is not None:
            self.exists = True
            self._calls.cancel(self._leave_call)
            self._leave_call.finish(None, None)
