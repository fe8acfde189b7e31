"""One user of a consumer at a time: a second one gets an error, not a queue."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import TracebackType

from pyclient.errors import ConcurrentUseError, IllegalStateError


class SingleUser:
    """``with alone:`` around each call. What a rebalance listener calls is part of the call that it runs in.

    *check* raises when nothing may be called any more; *user* tells who calls: a thread or a task.

    Raises:
        ConcurrentUseError: another one uses the consumer now.
    """

    __slots__ = ("_busy", "_check", "_listening", "_user", "outside_listeners")

    def __init__(self, check: Callable[[], object], user: Callable[[], object]) -> None:
        self._check = check
        self._user = user
        self._busy = threading.Lock()
        self._listening: object = None  # who runs a listener now
        self.outside_listeners = OutsideListeners(self)
        """The same for calls that a listener may not make."""

    def taken(self) -> bool:
        """Whether somebody uses the consumer now."""
        return self._busy.locked()

    @property
    def in_listener(self) -> bool:
        """Whether a listener calls."""
        return self._listening is not None and self._listening == self._user()

    @contextmanager
    def as_listener(self) -> Iterator[None]:
        """The user's listener runs."""
        self._listening = self._user()
        try:
            yield
        finally:
            self._listening = None

    # No generators here: every poll comes by.
    def __enter__(self) -> None:
        self._check()
        if not self.in_listener and not self._busy.acquire(blocking=False):
            raise ConcurrentUseError("this consumer is being used by another thread or task: only wakeup() may be called meanwhile. "
                                "Give each its own consumer.")

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if not self.in_listener:
            self._busy.release()


class OutsideListeners:
    """`SingleUser`, and not in a listener.

    Raises:
        IllegalStateError: a listener calls.
    """

    __slots__ = ("_single_user",)

    def __init__(self, alone: SingleUser) -> None:
        self._single_user = alone

    def __enter__(self) -> None:
        if self._single_user.in_listener:
            raise IllegalStateError("inside a rebalance listener the consumer is in the middle of a poll: commit, seek and pause there, but leave "
                               "poll, subscribe, assign and close to the code around")
        self._single_user.__enter__()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._single_user.__exit__(kind, error, trace)
