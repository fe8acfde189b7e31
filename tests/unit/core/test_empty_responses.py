"""C27: a node that answers fetches at once and without data gets few of them, and one warning says so."""
from __future__ import annotations

import datetime
import logging
from collections.abc import Callable

import pytest

from pyclient.core.fetching.empty_responses import AT_ONCE
from tests.unit.core.fetching import A0, A1, A2, MAX_WAIT, NOT_LEADER, Fetching, batch, gives
from tests.unit.core.world import Sent


def fetches_within(fetching: Fetching, seconds: float, answer: Callable[[Sent], None], *, after: float = 0.0) -> int:
    """How many fetches are sent to a broker that answers each *after* so many seconds."""
    end, count = fetching.world.now + seconds, 0
    while fetching.world.now < end and count < 10_000:
        sent = fetching.turn()
        count += len(sent)
        if sent:
            fetching.world.after(after)
        for each in sent:
            answer(each)
        if not sent:
            deadline = fetching.fetcher.next_deadline()
            assert deadline is not None
            assert deadline > fetching.world.now, "a deadline in the past: the loop would spin"
            fetching.world.after(min(deadline, end) - fetching.world.now)
    return count


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.fixture
def fetching() -> Fetching:
    made = Fetching()
    made.reads(A0, A1)
    return made


@pytest.mark.parametrize("session", [0, 7])
@pytest.mark.parametrize("named", [(), (A0,), (A0, A1)], ids=["lacks all", "lacks one", "empty"])
def test_C27_fetches_answered_at_once_without_data_get_pauses(fetching: Fetching, named: tuple[object, ...], session: int, caplog: pytest.LogCaptureFixture) -> None:
    count = fetches_within(fetching, 600, lambda sent: gives(sent, dict.fromkeys(named, b""), session_id=session))  # type: ignore[arg-type]
    assert AT_ONCE < count < 100
    (line,) = warnings(caplog)
    assert line.startswith(f"node 1 answered {AT_ONCE + 1} fetches in a row at once and without data, although it may hold each for 0.5 s")


def test_C27_a_session_that_is_forgotten_each_time_gets_pauses(fetching: Fetching) -> None:
    full = True

    def answer(sent: Sent) -> None:
        nonlocal full
        gives(sent, {}, session_id=7) if full else gives(sent, {}, error_code=70)
        full = not full

    assert fetches_within(fetching, 600, answer) < 200


def test_C27_responses_that_were_held_are_followed_by_fetches_at_once(fetching: Fetching, caplog: pytest.LogCaptureFixture) -> None:
    assert fetches_within(fetching, 60, lambda sent: gives(sent, {A0: b"", A1: b""}), after=MAX_WAIT) == 120
    assert warnings(caplog) == []


def test_C27_data_ends_the_pauses(fetching: Fetching, caplog: pytest.LogCaptureFixture) -> None:
    fetches_within(fetching, 60, lambda sent: gives(sent, {A0: b"", A1: b""}))
    fetching.world.after(64.0)
    gives(fetching.fetches(), {A0: batch(0), A1: b""})
    assert fetching.offsets() == [0]
    for _ in range(AT_ONCE):
        gives(fetching.fetches(), {A0: b"", A1: b""})
    fetching.fetches()
    assert len(warnings(caplog)) == 1


def test_C27_other_nodes_are_fetched_from_during_a_pause() -> None:
    fetching = Fetching()
    fetching.reads(A0, A2)
    for _ in range(AT_ONCE + 1):
        for sent in fetching.turn():
            if sent.request.node == 1:
                gives(sent, {A0: b""})
    assert [sent for sent in fetching.turn() if sent.request.node == 1] == []
    (other,) = [sent for sent in fetching.world.in_flight if sent.request.node == 2]
    gives(other, {A2: batch(0)})
    assert [sent.request.node for sent in fetching.turn()] == [2]


@pytest.mark.parametrize("more", [{"throttle_time": datetime.timedelta(seconds=1)}, {"error": NOT_LEADER}], ids=["throttled", "error"])
def test_C27_a_reason_for_an_early_response_does_not_count(fetching: Fetching, more: dict[str, object], caplog: pytest.LogCaptureFixture) -> None:
    """Throttling and errors have pauses of their own."""
    error = more.pop("error", b"")
    for _ in range(3 * AT_ONCE):
        for sent in fetching.turn():
            gives(sent, {A0: error, A1: b""}, **more)  # type: ignore[dict-item]
        fetching.world.after(0.01)
    assert warnings(caplog) == []
