"""One user of a consumer at a time: a second one gets an error, not a queue."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from pyclient.errors import ConcurrentUseError, IllegalStateError


class SingleUser:
    """``with single_user:`` around each call.

    A call by a rebalance listener is part of the call in which the listener runs.

    *check* raises when the consumer is closed; *user* returns the caller: a thread or a task.

    Raises:
        ConcurrentUseError: another thread or task is using the consumer.
    """

    __slots__ = ("_busy", "_check", "_listener_user", "_user", "outside_listeners")

    def __init__(self, check: Callable[[], object], user: Callable[[], object]) -> None:
        self._check = check
        self._user = user
        self._busy = threading.Lock()
        self._listener_user: object = None  # the thread or task that runs a listener now
        self.outside_listeners = OutsideListeners(self)
        """The same for calls that a listener must not make."""

    def taken(self) -> bool:
        """Whether a call uses the consumer now."""
        return self._busy.locked()

    @property
    def in_listener(self) -> bool:
        """Whether the caller is a listener."""
        return self._listener_user is not None and self._listener_user == self._user()

    @contextmanager
    def as_listener(self) -> Iterator[None]:
        """Around a call of the user's listener."""
        self._listener_user = self._user()
        try:
            yield
        finally:
            self._listener_user = None

    # No generators here: every poll enters and exits.
    def __enter__(self) -> None:
        self._check()
        if not self.in_listener and not self._busy.acquire(blocking=False):
            raise ConcurrentUseError("this consumer is being used by another thread or task: only wakeup() may be called meanwhile. "
                                     "Give each its own consumer.")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.in_listener:
            self._busy.release()


class OutsideListeners:
    """`SingleUser` for calls that a listener must not make.

    Raises:
        IllegalStateError: a listener calls.
    """

    __slots__ = ("_single_user",)

    def __init__(self, single_user: SingleUser) -> None:
        self._single_user = single_user

    def __enter__(self) -> None:
        if self._single_user.in_listener:
            raise IllegalStateError("called inside a rebalance listener, which runs in the middle of a poll: there commit, seek and pause are "
                                    "allowed; call poll, subscribe, assign and close outside of the listener")
        self._single_user.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._single_user.__exit__(kind, error, trace)
