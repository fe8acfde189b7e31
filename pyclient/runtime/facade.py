"""What the sync and async facades share: left-out timeouts, refusing to pickle, deadlines."""
from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NoReturn


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
    """Seconds until *deadline*, never negative."""
    return max(0.0, deadline - clock())


class Unpicklable:
    """A client: it has threads and sockets, so it cannot travel to another process."""

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError(
            f"a {type(self).__name__} cannot be pickled: it has threads and sockets. Open one in each process; in Spark tasks "
            "use pyclient.integration.spark.shared_producer, which keeps one per worker.")
