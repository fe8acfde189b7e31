"""Back-off: KIP-580's formula, and any tenacity wait as a function of failures."""
from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tenacity import RetryCallState, wait_exception, wait_fixed, wait_incrementing
from tenacity.wait import wait_base

from pyclient.core.backoff import ExponentialBackoff, WaitPolicy
from pyclient.errors import DisconnectError, KafkaError


@given(failures=st.integers(1, 10_000), seed=st.integers(), initial=st.floats(0.001, 10), maximum=st.floats(0.001, 100))
def test_each_wait_is_within_a_fifth_of_the_doubled_term_and_never_above_the_maximum(
        failures: int, seed: int, initial: float, maximum: float) -> None:
    bound = max(initial, maximum)
    term = min(initial * 2 ** min(failures - 1, 62), bound)
    wait = ExponentialBackoff(initial, maximum, Random(seed)).after(failures)
    assert 0.8 * term * 0.999 <= wait <= min(1.2 * term * 1.001, bound)


def test_the_same_seed_gives_the_same_waits() -> None:
    one, other = (ExponentialBackoff(0.1, 1.0, Random(7)) for _ in range(2))
    assert [one.after(n) for n in range(1, 20)] == [other.after(n) for n in range(1, 20)]


def test_waits_of_clients_that_failed_together_differ() -> None:
    backoff = ExponentialBackoff(0.1, 1.0, Random(7))
    assert len({backoff.after(1) for _ in range(20)}) == 20


def test_a_maximum_below_the_initial_wait_is_raised_to_it() -> None:
    assert 0.8 <= ExponentialBackoff(1.0, 0.1, Random(1)).after(9) <= 1.0


def test_the_first_failure_and_none_at_all_wait_the_initial_time() -> None:
    backoff = ExponentialBackoff(1.0, 100.0, Random(1))
    assert all(0.8 <= backoff.after(failures) <= 1.2 for failures in (-3, 0, 1))


def test_any_tenacity_wait_is_a_policy() -> None:
    assert WaitPolicy(wait_fixed(3)).after(5) == 3.0
    assert [WaitPolicy(wait_incrementing(start=1, increment=2)).after(n) for n in (1, 2, 3)] == [1.0, 3.0, 5.0]


def test_a_wait_may_look_at_the_error_and_there_is_always_one() -> None:
    policy = WaitPolicy(wait_exception(lambda error: 5.0 if isinstance(error, ConnectionError) else 1.0))
    assert [policy.after(1, DisconnectError("x")), policy.after(1, KafkaError("x")), policy.after(1)] == [5.0, 1.0, 1.0]


class Broken(wait_base):
    def __init__(self, gives: float | None) -> None:
        self.gives = gives

    def __call__(self, retry_state: RetryCallState) -> float:
        if self.gives is None:
            raise LookupError("a user's mistake")
        return self.gives


@pytest.mark.parametrize("gives", [None, -1.0, float("nan"), float("inf")])
def test_a_wait_that_returns_no_time_is_logged_once_and_the_default_is_used(gives: float | None, caplog: pytest.LogCaptureFixture) -> None:
    policy = WaitPolicy(Broken(gives), ExponentialBackoff(1.0, 100.0, Random(1)))
    assert all(0.8 <= policy.after(1) <= 1.2 for _ in range(3))
    assert [record.getMessage().count("Broken") for record in caplog.records] == [1]
