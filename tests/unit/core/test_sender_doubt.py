"""The errors of records that were given up say "not stored" only where that is certain."""
from __future__ import annotations

from collections.abc import Callable

import pytest

from pyclient.errors import DisconnectError
from tests.unit.core.test_sender import DELIVERY_TIMEOUT, NOT_LEADER, TOPIC_AUTHORIZATION, Producing, produced
from tests.unit.core.world import Sent

REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, UNKNOWN_SERVER_ERROR = 7, 20, -1
OPEN: dict[str, Callable[[Sent], object]] = {
    "no answer": lambda sent: sent.is_lost(),
    "an answer without the partition": lambda sent: produced(sent, leave_out=frozenset({0})),
    **{f"error {code}": lambda sent, code=code: produced(sent, {0: code})  # type: ignore[misc]
       for code in (REQUEST_TIMED_OUT, NOT_ENOUGH_REPLICAS_AFTER_APPEND, UNKNOWN_SERVER_ERROR)},
}
CERTAIN: dict[str, Callable[[Sent], object]] = {
    "a fatal error": lambda sent: produced(sent, {0: TOPIC_AUTHORIZATION}),
    "a refusal that may pass": lambda sent: produced(sent, {0: NOT_LEADER}),
}


@pytest.mark.parametrize("end", OPEN.values(), ids=OPEN.keys())
def test_P17_the_error_of_a_record_in_doubt_says_that_it_may_be_stored(end: Callable[[Sent], object]) -> None:
    world = Producing(1, retries=0)
    delivery = world.send()
    end(world.turn()[0])
    assert "1 record may or may not be stored; given up after 1 attempt: " in str(delivery.exception(0))


@pytest.mark.parametrize("end", CERTAIN.values(), ids=CERTAIN.keys())
def test_P17_the_error_of_a_refused_record_says_not_stored(end: Callable[[Sent], object]) -> None:
    world = Producing(1, retries=0)
    delivery = world.send()
    end(world.turn()[0])
    assert "1 record was not stored after 1 attempt: " in str(delivery.exception(0))


def test_P17_a_refusal_does_not_end_the_doubt_of_an_earlier_attempt() -> None:
    world = Producing(1)
    delivery = world.send()
    world.turn()[0].is_lost()
    (again,) = world.after(10)
    produced(again, {0: TOPIC_AUTHORIZATION})
    assert "may or may not be stored; given up after 2 attempts" in str(delivery.exception(0))


def test_P18_the_error_of_an_expired_unsent_record_says_not_stored() -> None:
    world = Producing(-1)
    delivery = world.send()
    world.turn()
    world.after(DELIVERY_TIMEOUT)
    assert "0 attempts); its partition has no leader. It was not stored." in str(delivery.exception(0))


@pytest.mark.parametrize("answered", [True, False])
def test_P18_an_expired_record_in_flight_or_without_response_may_be_stored(answered: bool) -> None:
    world = Producing(1)
    delivery = world.send()
    (sent,) = world.turn()
    if answered:
        sent.is_lost(DisconnectError("the broker is gone."))
        world.world.nodes = set()
    world.after(DELIVERY_TIMEOUT)
    assert "It may or may not be stored. Check" in str(delivery.exception(0))
    assert ".." not in str(delivery.exception(0))
