# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""One user of a consumer at a time: a second one gets an error, not a queue."""
from __future__ import annotations

import asyncio
import sys
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Final, TypeAlias

from pyclient.errors import ConcurrentUseError, IllegalStateError
from pyclient.held_lock import EmptiedAtExit, Held


Call: TypeAlias = tuple[object, FrameType]
"""The user, a thread's number or a task, and the frame of the consumer's method."""
CALLER: Final = int(__file__.endswith(".py"))
"""How many frames above the innermost one a caller's is: compiled functions have none."""


class SingleUser:
    """``with single_user:`` around each call.

    A call by a rebalance listener is part of the call in which the listener runs. Ctrl-C may end a call between the
    lines that take and release the consumer: what was taken by a call that has ended counts as released, in every
    thread.

    *check* raises when the consumer is closed; *user* returns the caller: a thread or a task.

    Raises:
        ConcurrentUseError: another thread or task is using the consumer.
    """

    __slots__ = ("_check", "_held", "_listener", "_user", "as_listener", "outside_listeners")

    def __init__(self, check: Callable[[], object], user: Callable[[], object]) -> None:
        self._check = check
        self._user = user
        self._held: dict[None, Call] = {}  # at most one; setdefault takes the consumer and says by whom, in one step
        self._listener: Call | None = None  # the thread or task that runs a listener now
        self.as_listener = AsListener(self)
        """Around a call of the user's listener."""
        self.outside_listeners = OutsideListeners(self)
        """The same for calls that a listener must not make."""

    def taken(self) -> bool:
        """Whether a call uses the consumer now."""
        return bool(self._held)

    @property
    def in_listener(self) -> bool:
        """Whether the caller is a listener."""
        listener = self._listener
        return listener is not None and listener[0] == self._user() and not is_over(listener)

    def listens(self, frame: FrameType | None) -> None:
        """The call of this *frame* runs a listener now; None: no more."""
        self._listener = None if frame is None else (self._user(), frame)

    # No generators here: every poll enters and exits.
    def __enter__(self) -> None:
        self.enter(sys._getframe(CALLER))

    def enter(self, frame: FrameType) -> None:
        """Let the call of this *frame* use the consumer, until `__exit__`."""
        self._check()
        if self._listener is not None and self.in_listener:  # the first alone is known without a call
            return
        call = (self._user(), frame)
        while (held := self._held.setdefault(None, call)) is not call:
            if not is_over(held):
                raise ConcurrentUseError("this consumer is being used by another thread or task: only wakeup() may be called meanwhile. "
                                         "Give each its own consumer.")
            self._release(held)
        try:
            self._check()  # `close` of another thread may have ended since the first look: a poll would wait for ever
        except BaseException:
            self._held.pop(None, None)
            raise

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if self._listener is None or not self.in_listener:
            self._held.pop(None, None)

    def _release(self, held: Call) -> None:
        """What an interrupted call held. Not what another thread, which saw that too, has taken meanwhile."""
        with Held(_releasing):
            if self._held.get(None) is held:
                del self._held[None]


_releasing = threading.Lock()


def is_over(call: Call) -> bool:
    """Whether a call has ended: it returned, or an exception left it. A task's counts once the task has ended.

    Its calls may be suspended, off any stack, and of such a one the frame must not be cleared.
    """
    user, frame = call
    if not isinstance(user, int):
        return isinstance(user, asyncio.Task) and user.done()
    try:
        # One step for other threads. To look for the frame on the thread's stack takes several: the stack changes
        # between them, and a generator that yields then leads nowhere. Of an ended call it drops variables.
        frame.clear()
    except RuntimeError:  # it is being executed
        return False
    return True


class AsListener:
    """Around a call of a listener. Not a generator: Ctrl-C inside `contextmanager` would leave it suspended."""

    __slots__ = ("_single_user",)

    def __init__(self, single_user: SingleUser) -> None:
        self._single_user = single_user

    def __enter__(self) -> None:
        self._single_user.listens(sys._getframe(CALLER))

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._single_user.listens(None)


class OutsideListeners(EmptiedAtExit):
    """`SingleUser` for calls that a listener must not make. Releases the consumer in one step: a poll returns then.

    Raises:
        IllegalStateError: a listener calls.
    """

    __slots__ = ("_single_user",)

    def __init__(self, single_user: SingleUser) -> None:
        super().__init__(single_user._held)
        self._single_user = single_user

    def __enter__(self) -> dict[None, Call]:
        """Returns what is emptied at the end."""
        if self._single_user._listener is not None and self._single_user.in_listener:
            raise IllegalStateError("called inside a rebalance listener, which runs in the middle of a poll: there commit, seek and pause are "
                                    "allowed; call poll, subscribe, assign and close outside of the listener")
        self._single_user.enter(sys._getframe(CALLER))
        return self._single_user._held
