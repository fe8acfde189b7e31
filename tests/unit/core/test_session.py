"""The lifetime of an authenticated session: when it ends, when it is renewed, and what a failed renewal changes."""
from __future__ import annotations

from random import Random

import pytest

from pyclient.core.session import LEAST_REST_S, RENEWAL_RETRY_S, Session


def session(lifetime: float | None, now: float = 100.0) -> Session:
    begun = Session()
    begun.begin(now, lifetime, Random(1))
    return begun


def test_a_session_without_a_lifetime_neither_ends_nor_is_renewed() -> None:
    unlimited = session(None)
    assert (unlimited.ends_at, unlimited.renew_at) == (None, None)
    assert not unlimited.is_over(1e9)
    assert not unlimited.renewal_is_due(1e9)


def test_a_session_is_renewed_before_it_ends_and_usable_until_its_rest() -> None:
    hour = session(3600.0)
    assert hour.renew_at is not None
    assert 100 + 0.85 * 3600 <= hour.renew_at <= 100 + 0.95 * 3600
    assert hour.renewal_is_due(hour.renew_at)
    assert not hour.is_over(100 + 3600 - LEAST_REST_S - 0.001)
    assert hour.is_over(100 + 3600 - LEAST_REST_S)


def test_a_renewal_that_has_started_is_not_due_again() -> None:
    hour = session(3600.0)
    hour.clear_renewal()
    assert not hour.renewal_is_due(1e9)


@pytest.mark.parametrize("remaining", [100.0, 2.0, 0.5])
def test_a_failed_renewal_is_tried_again_before_the_end(remaining: float) -> None:
    failing = session(3600.0)
    assert failing.ends_at is not None
    now = failing.ends_at - remaining
    assert failing.renewal_failed(now)
    assert failing.renew_at == min(now + max(RENEWAL_RETRY_S, remaining / 4), failing.ends_at)


@pytest.mark.parametrize("lifetime", [None, 10.0])
def test_a_failed_renewal_of_a_session_that_is_over_is_not_tried_again(lifetime: float | None) -> None:
    over = session(lifetime)
    assert not over.renewal_failed(1e9)
