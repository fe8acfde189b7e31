"""What the sync and async facades share: left-out timeouts, refusing to pickle, deadlines."""
from __future__ import annotations

import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any, Final, NoReturn

from pyclient.errors import raisable
from pyclient.client.core import ClientCore


class _Option(float):
    """The type of `OPTION`: shows as the option's name in signatures."""

    def __repr__(self) -> str:
        return "<the option's>"


OPTION: Final[float] = _Option("nan")
"""A timeout that was left out: the option's value holds."""


def seconds(timeout: float | None, option_ms: int) -> float | None:
    """A timeout in seconds; left out it is the option's, None is no limit."""
    if timeout is OPTION:
        return option_ms / 1000
    if timeout is not None and not timeout >= 0:
        raise ValueError(f"timeout {timeout} is not a number of seconds ≥ 0; None means no limit")
    return timeout


def left(deadline: float, clock: Callable[[], float]) -> float:
    """Seconds until *deadline*, never negative, and not more than a lock can wait."""
    return min(max(0.0, deadline - clock()), threading.TIMEOUT_MAX)


def sooner(one: float | None, other: float | None) -> float | None:
    """The shorter of two waits; None is without end."""
    return min((each for each in (one, other) if each is not None), default=None)


class Facade:
    """What users hold: it cannot travel to another process, and says so when it is dropped without being closed."""

    _core: ClientCore

    def _open_core(self) -> ClientCore:
        if self._core.closed is not None:
            raise raisable(self._core.closed)
        return self._core

    def _forget(self) -> None:
        """It was collected unclosed: end in the background what it had."""
        raise NotImplementedError

    def _unclosed(self) -> str:
        """What the warning says is lost or left."""
        return f"unclosed {type(self).__name__}: use `with` or close()"

    def __del__(self) -> None:
        core = getattr(self, "_core", None)
        if core is None or core.closed is not None or core.loop is None:
            return  # never made, never opened, or closed
        warnings.warn(self._unclosed(), ResourceWarning, source=self, stacklevel=2)
        if not sys.is_finalizing():
            self._forget()

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: it has threads and sockets. Open one in each process; in Spark tasks "
            "use pyclient.integration.spark.shared_producer, which keeps one per worker.")


class AsyncFacade(Facade):
    """A facade whose core runs on the user's loop."""

    def _forget(self) -> None:
        """Let go of its connections there, if that loop still runs."""
        core, loop = self._core, self._core.loop
        if loop is not None and loop.is_running():
            loop.call_soon_threadsafe(lambda: loop.create_task(core.close(), name="pyclient ends an unclosed client"))
