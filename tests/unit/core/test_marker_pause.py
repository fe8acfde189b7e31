"""The first request of a transaction leaves when the markers of the last one are probably written."""
from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.core.transactions.marker_pause import MarkerPause

AGAIN_S = 0.02
"""A broker asks the coordinator again after so long."""
TRIP_S = 0.001


def too_early(pause: MarkerPause, now: float = 0.0) -> None:
    pause.ended(now, TRIP_S)
    pause.answered(TRIP_S + AGAIN_S, refused=False)


def in_time(pause: MarkerPause, now: float = 0.0) -> None:
    pause.ended(now, TRIP_S)
    pause.answered(TRIP_S, refused=False)


def test_there_is_no_pause_until_a_transaction_came_too_early() -> None:
    pause = MarkerPause()
    for now in range(1, 100):
        in_time(pause, now)
        assert (pause.due, pause.pause) == (now, 0.0)
    too_early(pause, 100.0)
    pause.ended(200.0, TRIP_S)
    assert pause.due == 200.0 + pause.pause > 200.0


def test_a_refusal_by_CONCURRENT_TRANSACTIONS_came_too_early_however_soon_it_came() -> None:
    pause = MarkerPause()
    pause.ended(1.0, TRIP_S)
    pause.answered(TRIP_S, refused=True)
    assert pause.pause > 0


@pytest.mark.parametrize("end_s", [0.001, 0.05, 1.0])
def test_an_answer_that_takes_as_long_as_that_of_EndTxn_is_in_time(end_s: float) -> None:
    pause = MarkerPause()
    pause.ended(1.0, end_s)
    pause.answered(end_s + 0.0149, refused=False)
    assert pause.pause == 0.0
    pause.ended(1.0, end_s)
    pause.answered(end_s + 0.0151, refused=False)
    assert pause.pause > 0


def test_the_pause_grows_with_each_that_comes_too_early_and_is_given_up_when_it_is_of_no_use() -> None:
    pause, found = MarkerPause(), [0.0]
    while not found[1:] or found[-1]:
        too_early(pause)
        found.append(pause.pause)
    assert found[:-1] == sorted(set(found[:-1]))
    assert 0.010 < found[-2] <= 0.016


def test_the_pause_gets_shorter_while_none_comes_too_early() -> None:
    pause = MarkerPause()
    for _ in range(6):
        too_early(pause)
    before = pause.pause
    for _ in range(128):
        in_time(pause)
    assert 0.3 * before < pause.pause < 0.4 * before


def test_only_the_first_answer_of_a_transaction_counts() -> None:
    pause = MarkerPause()
    in_time(pause)
    pause.answered(1.0, refused=False)
    pause.stored(9.0)
    assert pause.pause == 0.0


def test_the_time_of_a_Produce_request_is_that_of_the_first_one() -> None:
    pause = MarkerPause()
    pause.ended(1.0, TRIP_S)
    pause.left(5.0)
    pause.left(5.1)
    pause.stored(5.01)
    assert pause.pause == 0.0
    pause.ended(6.0, TRIP_S)
    pause.left(7.0)
    pause.left(7.1)
    pause.stored(7.11)
    assert pause.pause > 0


def test_after_InitProducerId_nothing_is_waited_for() -> None:
    pause = MarkerPause()
    too_early(pause)
    learned = pause.pause
    pause.ended(10.0, TRIP_S)
    pause.clear()
    pause.answered(1.0, refused=False)
    assert (pause.due, pause.pause) == (0.0, learned)
    too_early(pause)
    assert pause.pause > learned > 0


@given(written_s=st.floats(0.0, 0.1), send_s=st.floats(0.0, 0.005))
def test_whatever_the_broker_takes_for_markers_little_is_lost_and_a_short_time_is_found(written_s: float, send_s: float) -> None:
    """Markers are written *written_s* after the answer to EndTxn; the user sends for *send_s*."""
    pause, now, spent = MarkerPause(), 0.0, []
    for _ in range(400):
        ended = now
        now = max(now + send_s, pause.due)
        left = now
        pause.left(left)
        while now < ended + written_s:
            now += AGAIN_S
        now += TRIP_S
        pause.stored(now)
        now += TRIP_S
        pause.ended(now, TRIP_S)
        spent.append(now - ended - 2 * TRIP_S)
    without = send_s
    while without < written_s:
        without += AGAIN_S
    mean = sum(spent) / len(spent)
    assert mean <= without + 0.007
    if written_s < 0.008:
        assert mean <= max(1.6 * written_s, send_s) + 0.0015
