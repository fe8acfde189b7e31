"""Defers exceptions from outside while a step runs interpreted code: of signal handlers, and of other threads.

Between any two lines of Python they could be raised, and leave what the step changes half changed.
"""
from __future__ import annotations

from typing import Any, NamedTuple

from pyclient.reactor.deferred_exceptions import DeferredExceptions
from pyclient.reactor.deferred_signals import DeferredSignals, Held


class _Deferred(NamedTuple):
    exceptions: DeferredExceptions
    signals: Held | None


class Guard:
    """Of one reactor."""

    def __init__(self) -> None:
        self._signals = DeferredSignals()

    def hold(self) -> _Deferred:
        """Defer both in this thread, until `release`."""
        exceptions = DeferredExceptions()
        exceptions.__enter__()
        try:
            return _Deferred(exceptions, self._signals.hold())
        except BaseException:
            exceptions.__exit__(None, None, None)
            raise

    def release(self, deferred: Any) -> None:
        """Raise what has come meanwhile."""
        try:
            deferred.exceptions.__exit__(None, None, None)
        finally:
            self._signals.release(deferred.signals)

    def forked(self) -> None:
        """In a forked child: what the parent deferred is deferred no longer."""
        self._signals.forked()
