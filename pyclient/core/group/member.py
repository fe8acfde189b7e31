"""What a member of a group is to its user, whichever its protocol: what it reads, what the user has to carry out, be told of, or has kept waiting.

Knows no states and no requests: when something happens to the member, and what its coordinator hears of it, is the business of who inherits.
Rule: whatever the user's thread has to do, or to raise, comes with `on_news`.
"""
from __future__ import annotations

import abc
import logging
from collections.abc import Callable

from pyclient.core.backoff import WaitPolicy
from pyclient.core.calls import Calls, Finish
from pyclient.core.group.changes import Changes
from pyclient.core.group.membership import Change, GroupOptions
from pyclient.core.group.subscribed import TopicSubscription
from pyclient.core.group.subscription import Subscription
from pyclient.core.metadata import Metadata
from pyclient.errors import AuthorizationError
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)


class Member(abc.ABC):
    """The half of a `Membership` that both protocols have in common. *on_news* is called when the user's thread has something to do."""

    def __init__(self, options: GroupOptions, calls: Calls, metadata: Metadata, backoff: WaitPolicy, on_news: Callable[[], None]) -> None:
        self._options = options
        self._calls = calls
        self._metadata = metadata
        self._backoff = backoff
        self._on_news = on_news
        self.failure: BaseException | None = None
        """Why this cannot be a member, until it subscribes anew."""
        self._trouble: BaseException | None = None
        self.polling = False
        """The user's thread waits in poll; it says so itself."""
        self.polled_at = 0.0
        self._subscribed = TopicSubscription(options.group_id, metadata)
        self._changes = Changes()

    # ---- the topics -------------------------------------------------------------------------------------------------

    def subscribe(self, subscription: Subscription) -> None:
        """Read what *subscription* names from the next rebalance on; the first poll joins."""
        self._subscribed.subscription = subscription
        self.failure = None
        self._resolve()

    @property
    def topics(self) -> frozenset[str]:
        """The topics subscribed to, of a pattern those that match it now."""
        return self._subscribed.topics

    @abc.abstractmethod
    def _resolve(self) -> None:
        """Find the topics in the newest view."""

    def _follow_metadata(self) -> bool:
        """Look at a view that is new, and tell the user of topics that cannot be read; whether there was one."""
        if not self._subscribed.looks_anew():
            return False
        self._resolve()
        trouble = self._subscribed.trouble(self.topics)
        if trouble is not None:
            self._tell(trouble)
        return True

    # ---- changes ----------------------------------------------------------------------------------------------------

    @property
    def owned(self) -> dict[TopicPartition, int]:
        """What the user's thread was given, and by which of its assignments: a partition that comes back is another one."""
        return self._changes.owned

    @property
    def change(self) -> Change | None:
        """What the user's thread has to carry out next, unless it is at it."""
        return self._changes.due

    def begin(self, change: Change) -> bool:
        """The user's thread begins with *change*; False when it is not to be done any more."""
        return self._changes.begin(change)

    def _lose_all(self) -> None:
        self._changes.lose()
        self._go_on()

    def _go_on(self) -> None:
        """There are changes to carry out, or the user's thread is at one, or there are no more."""
        if self._changes.due is not None:
            self._on_news()
        elif not self._changes:
            self._all_carried_out()

    @abc.abstractmethod
    def _all_carried_out(self) -> None:
        """Nothing waits for the user's thread any more."""

    # ---- trouble ----------------------------------------------------------------------------------------------------

    def _fail_with(self, error: BaseException) -> None:
        """Be no member: until it subscribes anew, or, where a right is missing, which may be granted, until it polls again."""
        if isinstance(error, AuthorizationError):
            self._tell(error)
        else:
            self.failure = error

    @property
    def _is_forgiven(self) -> bool:
        """Whether who failed may try again: the user knows why, and polls all the same."""
        return self.failure is None and self._trouble is None

    def take_trouble(self) -> BaseException | None:
        """What the user is to be told by poll: once, or each time for what lasts."""
        trouble, self._trouble = self._trouble, None
        return trouble or self.failure

    def _tell(self, trouble: BaseException) -> None:
        self._trouble = trouble
        self._on_news()

    # ---- leaving ----------------------------------------------------------------------------------------------------

    def leave(self, reason: str, finish: Finish, deadline: float | None) -> None:
        """Leave for good; partitions must have been given up. What a static member says is the protocol's business."""
        self._subscribed.subscription = Subscription()
        self._changes.clear()
        self._depart(reason, finish, deadline)
        self._resolve()

    @property
    def _away_at(self) -> float | None:
        """When the user has not polled for too long; never while it waits in poll."""
        return None if self.polling else self.polled_at + self._options.rebalance_timeout

    def _away(self, now: float) -> bool:
        away_at = self._away_at
        return away_at is not None and now >= away_at

    def _expire(self) -> None:
        """G04, N08: who does not poll does not read: others get its partitions. Joins again with the next poll."""
        _log.warning("group %r: no poll for %.0f s (max_poll_interval_ms): leaving the group until the next one. Process fewer records per "
                     "poll, or raise it.", self._options.group_id, self._options.rebalance_timeout)
        self._changes.withdraw()
        self._depart("no poll within max_poll_interval_ms", _unheard, None)
        self._on_news()

    @abc.abstractmethod
    def _depart(self, reason: str, finish: Finish, deadline: float | None) -> None:
        """Be no member any more; *finish* when the coordinator knows, at once where it need not be told."""


def _unheard(result: object, error: BaseException | None) -> None:
    """Nobody waits for it."""
