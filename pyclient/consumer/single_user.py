"""One user of a consumer at a time: a second one gets an error, not a queue."""
from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import TypeAlias

from pyclient.errors import ConcurrentUseError, IllegalStateError


Call: TypeAlias = tuple[object, FrameType]
"""The user, a thread's number or a task, and the frame of the consumer's method."""


class SingleUser:
    """``with single_user:`` around each call.

    A call by a rebalance listener is part of the call in which the listener runs. Ctrl-C may end a call between the
    lines that take and release the consumer: what was taken by a call that is no longer on the thread's stack counts
    as released.

    *check* raises when the consumer is closed; *user* returns the caller: a thread or a task.

    Raises:
        ConcurrentUseError: another thread or task is using the consumer.
    """

    __slots__ = ("_check", "_held", "_listener_user", "_user", "outside_listeners")

    def __init__(self, check: Callable[[], object], user: Callable[[], object]) -> None:
        self._check = check
        self._user = user
        self._held: dict[None, Call] = {}  # at most one; setdefault takes the consumer and says by whom, in one step
        self._listener_user: object = None  # the thread or task that runs a listener now
        self.outside_listeners = OutsideListeners(self)
        """The same for calls that a listener must not make."""

    def taken(self) -> bool:
        """Whether a call uses the consumer now."""
        return bool(self._held)

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
        self.enter(sys._getframe(1))

    def enter(self, frame: FrameType) -> None:
        """Let the call of this *frame* use the consumer, until `__exit__`."""
        self._check()
        if self._listener_user is not None and self.in_listener:  # the first alone is known without a call
            return
        call = (self._user(), frame)
        held = self._held.setdefault(None, call)
        if held is not call:
            if not was_interrupted(held, call):
                raise ConcurrentUseError("this consumer is being used by another thread or task: only wakeup() may be called meanwhile. "
                                         "Give each its own consumer.")
            self._held[None] = call
        try:
            self._check()  # `close` of another thread may have ended since the first look: a poll would wait for ever
        except BaseException:
            self._held.pop(None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listener_user is None or not self.in_listener:
            self._held.pop(None, None)


def was_interrupted(held: Call, call: Call) -> bool:
    """Whether *held* was a call of the same thread that is over, although it has not released the consumer.

    Tasks are not interrupted between two lines; only their calls may be suspended, off any stack.
    """
    (holder, before), (user, frame) = held, call
    if holder != user or not isinstance(user, int):
        return False
    above: FrameType | None = frame
    while above is not None and above is not before:
        above = above.f_back
    return above is None


class OutsideListeners:
    """`SingleUser` for calls that a listener must not make.

    Raises:
        IllegalStateError: a listener calls.
    """

    __slots__ = ("_single_user",)

    def __init__(self, single_user: SingleUser) -> None:
        self._single_user = single_user

    def __enter__(self) -> None:
        if self._single_user._listener_user is not None and self._single_user.in_listener:
            raise IllegalStateError("called inside a rebalance listener, which runs in the middle of a poll: there commit, seek and pause are "
                                    "allowed; call poll, subscribe, assign and close outside of the listener")
        self._single_user.enter(sys._getframe(1))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._single_user.__exit__(kind, error, trace)
