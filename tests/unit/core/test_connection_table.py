"""The life of a connection: every row of the table, nothing else; and when a node may be tried again."""
from __future__ import annotations

import itertools
from datetime import timedelta
from random import Random
from types import SimpleNamespace

import pytest

from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.connection import CONNECTION, STAGGER, Event, Reconnects, State, Throttle, next_attempt_at

S, E = State, Event
ROWS = {  # written from the design, not from the table
    (S.CONNECTING, E.OPENED): S.VERSIONS,
    (S.CONNECTING, E.OPENED_FOR_TLS): S.TLS,
    (S.TLS, E.SECURED): S.VERSIONS,
    (S.VERSIONS, E.AGREED): S.READY,
    (S.VERSIONS, E.AGREED_FOR_SASL): S.AUTHENTICATING,
    (S.AUTHENTICATING, E.AUTHENTICATED): S.READY,
    (S.READY, E.SESSION_ENDING): S.REAUTHENTICATING,
    (S.REAUTHENTICATING, E.AUTHENTICATED): S.READY,
    (S.READY, E.RETIRED): S.DRAINING,
    (S.REAUTHENTICATING, E.RETIRED): S.DRAINING,
    (S.DRAINING, E.DRAINED): S.CLOSED,
    (S.CONNECTING, E.LOST): S.CLOSED,
    (S.TLS, E.LOST): S.CLOSED,
    (S.VERSIONS, E.LOST): S.CLOSED,
    (S.AUTHENTICATING, E.LOST): S.CLOSED,
    (S.READY, E.LOST): S.CLOSED,
    (S.REAUTHENTICATING, E.LOST): S.CLOSED,
    (S.DRAINING, E.LOST): S.CLOSED,
}


@pytest.mark.parametrize(("pair", "after"), ROWS.items(), ids=str)
def test_every_row_of_the_table_is_taken(pair: tuple[State, Event], after: State) -> None:
    assert CONNECTION.after(*pair) is after


def test_the_table_has_no_other_row() -> None:
    assert CONNECTION.rows == ROWS


def test_a_closed_connection_stays_closed() -> None:
    assert not [pair for pair in ROWS if pair[0] is S.CLOSED]


def reconnects() -> Reconnects:
    return Reconnects(ExponentialBackoff(0.1, 10.0, Random(1)), ExponentialBackoff(10.0, 30.0, Random(1)))


def test_M05_each_failure_in_a_row_waits_longer_before_the_next_try() -> None:
    node = reconnects()
    waits = []
    for _ in range(5):
        node.failed(50.0)
        waits.append(node.not_before - 50.0)
        assert not node.allowed(50.0)
        assert not node.allowed(node.not_before - 0.001)
        assert node.allowed(node.not_before)
    assert all(later > sooner for sooner, later in itertools.pairwise(waits))
    assert all(0.8 * 0.1 * 2**n <= wait <= 1.2 * 0.1 * 2**n for n, wait in enumerate(waits))


def test_M05_the_wait_is_over_at_once_after_a_success() -> None:
    node = reconnects()
    for _ in range(6):
        node.failed(50.0)
    node.succeeded()
    assert node.allowed(50.0)
    node.failed(60.0)
    assert node.not_before - 60.0 <= 0.12


def test_M05_the_set_up_timeout_grows_with_failures_to_reach_a_node_up_to_its_maximum() -> None:
    node = reconnects()
    assert 8.0 <= node.setup_timeout() <= 12.0
    node.failed(0.0, reached=False)
    assert 16.0 <= node.setup_timeout() <= 24.0
    for _ in range(9):
        node.failed(0.0, reached=False)
    assert 24.0 <= node.setup_timeout() <= 30.0
    node.succeeded()
    assert 8.0 <= node.setup_timeout() <= 12.0


def test_M05_the_set_up_timeout_does_not_grow_when_the_peer_accepts_connections() -> None:
    node = reconnects()
    for _ in range(9):
        node.failed(0.0, reached=True)
    assert 8.0 <= node.setup_timeout() <= 12.0


def test_a_new_node_may_be_tried_at_once() -> None:
    assert reconnects().allowed(0.0)


def test_the_repr_shows_failures_and_time() -> None:
    node = reconnects()
    node.failed(1.0)
    assert repr(node) == f"<Reconnects 1 failures, not before {node.not_before:.3f}>"


def test_M04_one_more_attempt_starts_a_stagger_after_the_newest() -> None:
    assert next_attempt_at([]) == 0.0
    assert next_attempt_at([10.0]) == 10.0 + STAGGER
    assert next_attempt_at([12.0, 10.0, 11.0]) == 12.0 + STAGGER


def test_M09_a_throttle_lasts_for_the_time_of_the_last_response_that_has_one() -> None:
    throttle = Throttle()
    assert throttle.deadline() is None
    assert throttle.apply(10.0, SimpleNamespace(throttle_time=timedelta(seconds=5))) == 5.0
    assert throttle.apply(11.0, SimpleNamespace(throttle_time=timedelta())) == 0.0
    assert throttle.apply(11.0, object()) == 0.0
    throttle.expire(14.9)
    assert throttle.deadline() == 15.0


def test_M09_the_end_of_a_throttle_stays_a_deadline_until_it_is_noted() -> None:
    throttle = Throttle()
    throttle.apply(10.0, SimpleNamespace(throttle_time=timedelta(seconds=5)))
    assert throttle.deadline() == 15.0, "whatever the time is"
    throttle.expire(15.0)
    assert throttle.deadline() is None
    throttle.apply(16.0, SimpleNamespace(throttle_time=timedelta(seconds=1)))
    assert throttle.deadline() == 17.0
