"""When a connection counts as silent, and how long a caller waits before it looks elsewhere."""
from __future__ import annotations

import pytest

from pyclient.core.silence import Silence, silence_timeout_s


def test_the_timeout_of_silence_is_short_doubles_with_each_failure_and_ends_at_the_request_timeout() -> None:
    assert [silence_timeout_s(30.0, failures) for failures in (0, 1, 2, 3, 4, 10**6)] == [2.0, 4.0, 8.0, 16.0, 30.0, 30.0]
    assert silence_timeout_s(4.0) == 1.0


def test_a_connection_is_silent_when_an_answer_is_due_for_long_enough() -> None:
    silence = Silence(2.0)
    assert silence.next_check(10.0) == 12.0
    assert not silence.is_silent(11.9, 10.0, 0)
    assert silence.is_silent(12.0, 10.0, 0)
    assert silence.since == 10.0
    assert silence.next_check(10.0) == 14.0, "once more after another while"


@pytest.mark.parametrize(("others", "look"), [(None, 12.0), (11.0, 12.0), (12.5, 12.5), (13.0, 13.0), (13.1, 12.0)])
def test_a_look_waits_a_while_for_something_else_to_do(others: float | None, look: float) -> None:
    assert Silence(2.0).next_check(10.0, others) == look


def test_a_connection_without_a_due_answer_is_not_silent() -> None:
    silence = Silence(2.0)
    silence.is_silent(12.0, 10.0, 0)
    assert silence.next_check(None) is None
    assert not silence.is_silent(13.0, None, 0)


@pytest.mark.parametrize("sign", ["an answer", "a part of one"])
def test_what_arrives_ends_the_silence(sign: str) -> None:
    silence = Silence(2.0)
    assert silence.is_silent(12.0, 10.0, 0)
    if sign == "an answer":
        silence.answered(12.5, 0)
    else:
        assert not silence.is_silent(12.5, 10.0, 1)
    assert silence.since is None
    assert silence.next_check(10.0) == 14.5
    assert silence.is_silent(14.5, 10.0, 1 if sign == "a part of one" else 0)


def test_the_next_answer_is_due_after_the_one_before() -> None:
    """Requests are answered one after the other: the second one does not wait since it was written."""
    silence = Silence(2.0)
    silence.answered(15.0, 70)
    assert not silence.is_silent(16.9, 10.0, 70)
    assert silence.is_silent(17.0, 10.0, 70)
