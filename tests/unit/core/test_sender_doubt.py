"""What is told of records that were given up: not stored is said only where it is certain."""
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
    "a refusal for good": lambda sent: produced(sent, {0: TOPIC_AUTHORIZATION}),
    "a refusal that may pass": lambda sent: produced(sent, {0: NOT_LEADER}),
}


@pytest.mark.parametrize("end", OPEN.values(), ids=OPEN.keys())
def test_P17_a_record_that_may_be_stored_is_not_told_to_be_lost(end: Callable[[Sent], object]) -> None:
    world = Producing(1, retries=0)
    delivery = world.send()
    end(world.turn()[0])
    assert "1 records may or may not be stored; given up after 1 attempt: " in str(delivery.exception(0))


@pytest.mark.parametrize("end", CERTAIN.values(), ids=CERTAIN.keys())
def test_P17_a_record_that_was_refused_is_told_to_be_lost(end: Callable[[Sent], object]) -> None:
    world = Producing(1, retries=0)
    delivery = world.send()
    end(world.turn()[0])
    assert "1 records were not stored after 1 attempt: " in str(delivery.exception(0))


def test_P17_the_doubt_that_one_attempt_left_is_not_taken_away_by_the_refusal_of_a_later_one() -> None:
    world = Producing(1)
    delivery = world.send()
    world.turn()[0].is_lost()
    (again,) = world.after(10)
    produced(again, {0: TOPIC_AUTHORIZATION})
    assert "may or may not be stored; given up after 2 attempts" in str(delivery.exception(0))


def test_P18_a_record_that_never_left_is_told_to_be_lost_when_its_time_is_up() -> None:
    world = Producing(-1)
    delivery = world.send()
    world.turn()
    world.after(DELIVERY_TIMEOUT)
    assert "0 attempts); its partition has no leader. They were not stored." in str(delivery.exception(0))


@pytest.mark.parametrize("answered", [True, False])
def test_P18_a_record_under_way_or_without_an_answer_may_be_stored_when_its_time_is_up(answered: bool) -> None:
    world = Producing(1)
    delivery = world.send()
    (sent,) = world.turn()
    if answered:
        sent.is_lost(DisconnectError("the broker is gone."))
        world.world.nodes = set()
    world.after(DELIVERY_TIMEOUT)
    assert "They may or may not be stored. Check" in str(delivery.exception(0))
    assert ".." not in str(delivery.exception(0))
