"""How long to wait before trying again: KIP-580's exponential back-off with jitter, as a tenacity wait.

The random generator is given: tenacity's own jitter draws from the global one, which no simulation could repeat.
"""
from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tenacity import RetryCallState
from tenacity.wait import wait_base

if TYPE_CHECKING:
    from random import Random

GROWTH: Final = 2
JITTER: Final = 0.2


class ExponentialBackoff(wait_base):
    """``initial × 2^(attempt-1) × (1 ± 20 %)``, at most *maximum*; both in seconds."""

    def __init__(self, initial: float, maximum: float, random: Random) -> None:
        self.initial = initial
        self.maximum = max(initial, maximum)
        self._random = random

    def __call__(self, retry_state: RetryCallState) -> float:
        return self.after(retry_state.attempt_number)

    def after(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row (≥ 1)."""
        exponent = min(max(failures, 1) - 1, 62)
        term: float = min(self.initial * GROWTH**exponent, self.maximum)
        return min(term * self._random.uniform(1 - JITTER, 1 + JITTER), self.maximum)


class WaitPolicy:
    """Any tenacity wait as a function of the number of failures."""

    def __init__(self, wait: wait_base) -> None:
        self._wait = wait

    def after(self, failures: int) -> float:
        """Seconds to wait after this many failures in a row (≥ 1)."""
        state = RetryCallState(None, None, (), {})  # type: ignore[arg-type]
        state.attempt_number = max(failures, 1)  # a request that was never written counts as no attempt
        return float(self._wait(state))
