"""Holds back Python's signal handlers in the main thread while it acts in place of a loop.

A handler may raise between any two steps of interpreted code (Ctrl-C), which would leave the client's state half
changed; or it may call the client, and wait for a loop that its own thread holds. Other threads run no handlers.
"""
from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import _signal  # type: ignore[import-not-found]  # module signal makes an enum of each argument and result, in twenty times the time

Held: TypeAlias = list[tuple[int, Any]]
SIGNALS: Final = sorted(signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP})


class DeferredSignals:
    """Between `hold` and `release` a signal calls *on_signal*; its own handler runs at the end."""

    def __init__(self, on_signal: Callable[[], None]) -> None:
        self._on_signal = on_signal
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
            self._seen = seen
            self._handlers = [(number, handler) for number, handler in zip(SIGNALS, seen, strict=True) if callable(handler)]
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
        except BaseException:
            self.release(held)
            raise
        self._deferred = []
        if self._noted:
            self._replay()

    def forked(self) -> None:
        """In a forked child, whose main thread was another one: restore what the parent's main thread deferred."""
        self._main = threading.main_thread().ident
        self._noted.clear()
        self.release(self._deferred)

    @property
    def noted(self) -> bool:
        """Whether a signal waits for `release`."""
        return bool(self._noted)

    def _note(self, number: int, _frame: object) -> None:
        self._noted.append(number)
        self._on_signal()

    def _replay(self) -> None:
        while self._noted:
            try:
                _signal.raise_signal(self._noted.pop(0))
            finally:
                self._replay()
