"""When the view of the cluster is refreshed: states, back-off and age (M01)."""
from __future__ import annotations

import pytest
from tenacity import wait_exponential

from pyclient.core.backoff import WaitPolicy
from pyclient.core.metadata_refresh import REFRESH, Event, RefreshTimer, State
from pyclient.core.transitions import TABLES
from pyclient.errors import DisconnectError, IllegalTransitionError

MAX_AGE = 300.0


@pytest.fixture
def timer() -> RefreshTimer:
    """One whose view is fresh since 0; back-offs are 1, 2, 4 ... seconds."""
    timer = RefreshTimer(max_age=MAX_AGE, backoff=WaitPolicy(wait_exponential()))
    assert timer.is_due(0.0)
    timer.sent()
    timer.answered(0.0, partial=False, news=True, complete=True)
    return timer


def test_the_table_is_listed_for_the_sweep() -> None:
    assert TABLES["metadata refresh"] is REFRESH


def test_a_fresh_view_is_refreshed_at_its_age(timer: RefreshTimer) -> None:
    assert (timer.is_due(MAX_AGE - 1), timer.is_due(MAX_AGE), timer.deadline()) == (False, True, MAX_AGE)


def test_a_stale_view_is_refreshed_after_the_back_off(timer: RefreshTimer) -> None:
    timer.want_update()
    assert (timer.is_due(0.5), timer.is_due(1.0), timer.deadline()) == (False, True, 1.0)


def test_a_wish_during_a_request_outlives_its_answer(timer: RefreshTimer) -> None:
    timer.sent()
    timer.want_update()
    assert timer.in_flight
    timer.answered(10.0, partial=False, news=True, complete=True)
    assert (timer.state, timer.deadline()) == (State.STALE, 11.0)


def test_failures_answers_without_news_and_incomplete_answers_make_the_back_off_longer(timer: RefreshTimer) -> None:
    timer.sent()
    timer.failed(0.0, DisconnectError())
    assert (timer.state, timer.deadline()) == (State.STALE, 1.0)
    timer.sent()
    timer.answered(1.0, partial=False, news=False, complete=True)
    timer.want_update()
    assert timer.deadline() == 3.0
    timer.sent()
    timer.answered(3.0, partial=False, news=True, complete=False)
    assert (timer.state, timer.deadline()) == (State.STALE, 7.0)
    timer.sent()
    timer.answered(7.0, partial=False, news=True, complete=True)
    timer.want_update()
    assert timer.deadline() == 8.0


def test_a_partial_answer_leaves_the_age_as_it_is(timer: RefreshTimer) -> None:
    assert timer.allows_partial(10.0)
    timer.sent()
    timer.answered(10.0, partial=True, news=True, complete=True)
    assert timer.deadline() == MAX_AGE


@pytest.mark.parametrize("wanted", [True, False])
def test_a_stale_or_aged_view_is_refreshed_as_a_whole(timer: RefreshTimer, wanted: bool) -> None:
    if wanted:
        timer.want_update()
    assert not timer.allows_partial(1.0 if wanted else MAX_AGE)


def test_an_update_wanted_now_skips_the_back_off(timer: RefreshTimer) -> None:
    timer.sent()
    timer.failed(5.0, None)
    timer.want_update_now(5.0)
    assert timer.is_due(5.0)


@pytest.mark.parametrize("state", [State.FRESH, State.STALE])
@pytest.mark.parametrize("event", [Event.COMPLETE, Event.INCOMPLETE])
def test_an_answer_without_a_request_is_a_defect(state: State, event: Event) -> None:
    with pytest.raises(IllegalTransitionError):
        REFRESH.after(state, event)
