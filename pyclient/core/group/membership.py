"""A consumer's membership of a group, by either protocol: what the consumer may call, and the half that both protocols
share.

Decisions are made in steps of the client's reactor and nothing here blocks. Rule: whenever the user's thread has a
change to carry out or an error to raise, *notify_user* is called.
"""
from __future__ import annotations

import abc
import enum
import logging
from collections.abc import Callable, Iterable

from pyclient.core.backoff import Backoff
from pyclient.core.calls import Calls, Finish
from pyclient.core.group.changes import Change, ChangeQueue
from pyclient.core.group.coordinator import GroupOptions, Identity
from pyclient.core.group.subscription import Subscription, TopicSubscription
from pyclient.core.manager import Manager, Ready, Request
from pyclient.core.metadata import Metadata
from pyclient.errors import AuthorizationError, KafkaError, said_of
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)


class Membership(Manager, abc.ABC):
    """One consumer's membership; a manager. The subclasses are the two group protocols.

    All belongs to the client's reactor, except `polling`, `polled_at`, `wants_poll` and `failure`, which the user's
    thread uses too.
    """

    identity: Identity
    state: enum.Enum
    """A state of the protocol's table."""

    def __init__(self, options: GroupOptions, calls: Calls, metadata: Metadata, backoff: Backoff, notify_user: Callable[[], None]) -> None:
        self.needs_poll = False  # neither the fetcher nor its responses change anything of it
        self._options = options
        self._calls = calls
        self._metadata = metadata
        self._backoff = backoff
        self._notify_user = notify_user
        self.failure: BaseException | None = None
        """Why this consumer cannot be a member, until it subscribes again."""
        self._error: BaseException | None = None
        self.polling = False
        """Set by the user's thread while it waits in poll."""
        self.polled_at = 0.0
        """Set by the user's thread: when its last poll ended."""
        self._topics = TopicSubscription(metadata)
        self._changes = ChangeQueue()

    # ---- the manager ------------------------------------------------------------------------------------------------

    @abc.abstractmethod
    def poll(self, now: float, ready: Ready) -> Iterable[Request]:
        """See `Manager`."""

    @abc.abstractmethod
    def next_deadline(self) -> float | None:
        """See `Manager`."""

    # ---- the topics -------------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""
        self._topics.subscription = subscription
        self.failure = None
        self._resolve()

    @property
    def subscribed(self) -> bool:
        """Whether there is a subscription; false again after `leave`. Any thread may ask."""
        return bool(self._topics)

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to; of a pattern those that match it now."""
        return self._topics.topics

    def may_read(self, topic: str) -> bool:
        """Whether *topic* is subscribed to, as far as the client can decide."""
        return self._topics.may_include(topic)

    def _resolve(self) -> None:
        """Resolve the subscription in the newest view."""
        self._topics.resolve()

    def _follow_metadata(self) -> bool:
        """Resolve the subscription again if the view has changed, and report topics that cannot be read; whether it has
        changed.
        """
        if not self._topics.view_changed():
            return False
        self._resolve()
        error = self._topics.topic_error(self.topics)
        if error is not None:
            self._report(error)
        return True

    @abc.abstractmethod
    def enforce_rebalance(self, reason: str) -> None:
        """Make the group assign its partitions again.

        Raises:
            IllegalStateError: the broker assigns them, and takes no such request.
        """

    # ---- the user's polls -------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def wants_poll(self) -> bool:
        """Whether the user's next poll has to call `polled`."""

    @abc.abstractmethod
    def polled(self) -> None:
        """The user polls."""

    @property
    def _poll_deadline(self) -> float | None:
        """The end of max_poll_interval_ms; None while the user waits in poll."""
        return None if self.polling else self.polled_at + self._options.rebalance_timeout

    def _poll_overdue(self, now: float) -> bool:
        deadline = self._poll_deadline
        return deadline is not None and now >= deadline

    def _expire(self) -> None:
        """G04, N08: leave, so that others get the partitions of a user that does not poll.

        The next poll joins again.
        """
        _log.warning("group %r: no poll for %.0f s (max_poll_interval_ms): leaving the group until the next one. Process fewer records per "
                     "poll, or raise it.", self._options.group_id, self._options.rebalance_timeout)
        self._changes.withdraw()
        self._depart("no poll within max_poll_interval_ms", _ignore, None)
        self._notify_user()

    # ---- changes ----------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> dict[TopicPartition, int]:
        """The partitions of the user's thread, each with the number of the assignment that added it.

        A partition that was lost and assigned again has another number than before.
        """
        return self._changes.owned

    @property
    def change(self) -> Change | None:
        """What the user's thread has to carry out next; None while it is carrying out a change."""
        return self._changes.due

    @property
    def begun(self) -> Change | None:
        """The change that the user's thread has begun and not completed."""
        return self._changes.begun

    def begin(self, change: Change) -> bool:
        """The user's thread begins *change*; False when it was withdrawn meanwhile."""
        return self._changes.begin(change)

    @abc.abstractmethod
    def complete(self, change: Change, error: BaseException | None = None) -> None:
        """The user's thread has carried out *change*; its listener raised *error*."""

    def _lose_all(self) -> None:
        self._changes.lose()
        self._next_change()

    def _next_change(self) -> None:
        """Notify the user of the next change, or go on when all changes are carried out."""
        if self._changes.due is not None:
            self._notify_user()
        elif not self._changes:
            self._all_completed()

    @abc.abstractmethod
    def _all_completed(self) -> None:
        """The user's thread has no changes left."""

    # ---- errors -----------------------------------------------------------------------------------------------------

    def take_error(self) -> BaseException | None:
        """What poll has to raise: an error once, a lasting `failure` each time."""
        error, self._error = self._error, None
        return error or self.failure

    def _said(self, error: BaseException) -> str:
        """The error in a line that begins with the group."""
        return said_of(f"group {self._options.group_id!r}", error)

    def _report(self, error: BaseException) -> None:
        self._error = error
        self._notify_user()

    def _fail_with(self, error: BaseException) -> None:
        """Stop being a member until the next `subscribe`; for a missing right, which may be granted, until the next
        poll.
        """
        if isinstance(error, AuthorizationError):
            self._report(error)
        else:
            self.failure = error

    @property
    def _may_retry(self) -> bool:
        """Whether a failed member may join again: poll has raised the error, and the user polls all the same."""
        return self.failure is None and self._error is None

    # ---- commits ----------------------------------------------------------------------------------------------------

    @property
    @abc.abstractmethod
    def accepts_commits(self) -> bool:
        """Whether the coordinator may accept commits now; while it does not, waiting helps."""

    @property
    @abc.abstractmethod
    def generation_in_doubt(self) -> bool:
        """Whether the next generation may have begun without this member knowing."""

    @abc.abstractmethod
    def on_commit_refused(self, error: KafkaError, sent_as: Identity) -> None:
        """The coordinator refused a commit: it may know more about this member than the heartbeats have reported (C25).
        """

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def leave(self, reason: str, finish: Finish, deadline: float | None, *, leaves: bool | None = None) -> None:
        """Leave permanently; the user's thread must have given its partitions up before.

        *leaves*, as `_depart`.
        """
        self.drop_subscription()
        self._depart(reason, finish, deadline, leaves)
        self._resolve()

    def drop_subscription(self) -> None:
        """Subscribe to nothing, without a request: for clients that no broker accepts any more."""
        self._topics.subscription = Subscription()
        self._changes.clear()

    @abc.abstractmethod
    def _depart(self, reason: str, finish: Finish, deadline: float | None, leaves: bool | None = None) -> None:
        """Stop being a member. *finish* is called when the coordinator knows, or at once when no request is needed.

        *leaves* (KIP-1092): True: the group assigns the partitions to others at once; False: it keeps them until the
        session ends; None: as True, but a static member keeps its place.
        """


def _ignore(result: object, error: BaseException | None) -> None:
    """For requests without a waiter."""
