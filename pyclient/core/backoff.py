"""Retry back-off: KIP-580's exponential back-off with jitter, or a tenacity wait of the user's.

The random generator is an argument: tenacity's jitter draws from the global one, which a simulation cannot repeat.
tenacity is loaded only for a user who gives one of its waits: it takes longer than half of this client.
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from pyclient.errors import RetriableError

if TYPE_CHECKING:
    from random import Random

    from tenacity import RetryCallState
    from tenacity.wait import wait_base

_log = logging.getLogger(__name__)
GROWTH: Final = 2
JITTER: Final = 0.2


class Backoff:
    """How long to wait after failures."""

    def after(self, failures: int, error: BaseException | None = None) -> float:
        """Seconds to wait after this many failures in a row (≥ 1); *error* is the last one."""
        raise NotImplementedError


class ExponentialBackoff(Backoff):
    """``initial × 2^(attempt-1) × (1 ± 20 %)``, at most *maximum*; both in seconds."""

    def __init__(self, initial: float, maximum: float, random: Random) -> None:
        self.initial = initial
        self.maximum = max(initial, maximum)
        self._random = random

    def after(self, failures: int, error: BaseException | None = None) -> float:
        """As `Backoff.after`; the error makes no difference."""
        exponent = min(max(failures, 1) - 1, 62)
        term: float = min(self.initial * GROWTH**exponent, self.maximum)
        return min(term * self._random.uniform(1 - JITTER, 1 + JITTER), self.maximum)


class WaitPolicy(Backoff):
    """A tenacity wait as a function of the number of failures.

    *usual* is used instead if it raises or returns no valid time.
    """

    def __init__(self, wait: wait_base, usual: ExponentialBackoff | None = None) -> None:
        self._wait = wait
        self._usual = usual
        self._reported = False

    def after(self, failures: int, error: BaseException | None = None) -> float:
        """As `Backoff.after`."""
        try:
            return _seconds(self._wait(_state(failures, error)))
        except Exception:  # a user's error must not leave the request unfinished
            if self._usual is None:
                raise
            self._report_once()
            return self._usual.after(failures)

    def _report_once(self) -> None:
        if not self._reported:
            self._reported = True
            _log.exception(
                "retry_backoff %r did not return a number of seconds; retry_backoff_ms is used instead. This is logged once.", self._wait)


def _state(failures: int, error: BaseException | None) -> RetryCallState:
    from tenacity import RetryCallState

    state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]
    state.attempt_number = max(failures, 1)  # a request that was never written has 0; tenacity counts from 1
    failure = error or RetriableError("no final response yet")
    state.set_exception((type(failure), failure, None))
    return state


def _seconds(waited: float) -> float:
    seconds = float(waited)
    if not 0 <= seconds < float("inf"):
        raise ValueError(f"expected a number of seconds >= 0, got {seconds}")
    return seconds
