"""Holds back Python's signal handlers in the main thread while it leads a reactor.

A handler may raise between any two steps of interpreted code (Ctrl-C), which would leave the client's state half
changed; or it may call the client, and wait for a lock that its own thread holds. Other threads run no handlers.
"""
from __future__ import annotations

import signal
import threading
from typing import Any, Final, TypeAlias

import _signal  # type: ignore[import-not-found]  # module signal makes an enum of each argument and result, in twenty times the time

Held: TypeAlias = list[tuple[int, Any]]
SIGNALS: Final = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class DeferredSignals:
    """Between `hold` and `release` a signal is noted; its own handler runs at the end."""

    def __init__(self) -> None:
        self._noted: list[int] = []
        self._seen: list[Any] = []
        self._handlers: Held = []  # of `_seen`
        self._deferred: Held = []
        self._main = threading.main_thread().ident

    def hold(self) -> Held | None:
        """Defer all handlers; returns what `release` restores. None: this thread runs no handlers."""
        if threading.get_ident() != self._main:
            return None
        seen = list(map(_signal.getsignal, SIGNALS))
        if seen != self._seen:
            self._handlers = [(number, handler) for number, handler in zip(SIGNALS, seen, strict=True) if callable(handler)]
            self._seen = seen  # last: a handler may raise before
        held = self._deferred = self._handlers
        try:
            for number, _ in held:
                _signal.signal(number, self._note)
        except BaseException:  # a handler that was not deferred yet
            self.release(held)
            raise
        return held

    def release(self, held: Held | None) -> None:
        """Restore the handlers; those of signals that came meanwhile run now, and may raise."""
        if held is None:
            return
        try:
            for number, handler in held:
                _signal.signal(number, handler)
            self._deferred = []
            while self._noted:
                number = self._noted[0]
                del self._noted[0]  # not by pop(): Python looks for signals behind each call, and would lose this one
                _signal.raise_signal(number)
        except BaseException:
            self.release(held)
            raise

    def forked(self) -> None:
        """In a forked child, whose main thread was another one: restore what the parent's main thread deferred."""
        self._main = threading.main_thread().ident
        self._noted.clear()
        self.release(self._deferred)

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)
