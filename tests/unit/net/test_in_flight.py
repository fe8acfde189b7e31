"""Requests in flight: responses in order, deadlines, and outcomes when the connection is lost."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import Api
from pyclient.core.manager import Outcome, Request, Unknown, Use
from pyclient.errors import DisconnectError, ProtocolError
from pyclient.net.in_flight import MAX_CORRELATION_ID, InFlightRequests
from tests.reactors import idle_portal


def written(requests: InFlightRequests, outcomes: list[Outcome], *, now: float = 0.0, timeout: float = 30.0, end: int = 10,
            silence_timeout_s: float | None = None) -> None:
    requests.next_id()
    request = Request(node=1, use=Use.CONTROL, api=Api.METADATA, timeout=timeout, silence_timeout_s=silence_timeout_s, done=lambda _now, outcome: outcomes.append(outcome))
    requests.add(request, 9, now, end)


def test_M10_a_response_without_a_request_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="b1 sent a response although no request was in flight"):
        InFlightRequests("b1", idle_portal().reactor).answered(bytes(8), 0)


def test_M10_a_response_to_a_later_request_is_a_protocol_error() -> None:
    requests = InFlightRequests("b1", idle_portal().reactor)
    written(requests, [])
    written(requests, [])
    with pytest.raises(ProtocolError, match="b1 answered request 2, expected 1"):
        requests.answered((2).to_bytes(4, "big"), 100)


def test_P07_a_response_before_the_request_is_completely_written_is_a_protocol_error() -> None:
    requests = InFlightRequests("b1", idle_portal().reactor)
    written(requests, [], end=10)
    with pytest.raises(ProtocolError, match="before it was completely written"):
        requests.answered(memoryview((1).to_bytes(4, "big")), 9)


def test_M10_the_first_request_past_its_deadline_is_overdue() -> None:
    requests = InFlightRequests("b1", idle_portal().reactor)
    written(requests, [], timeout=50.0)
    written(requests, [], timeout=30.0)
    assert requests.deadline() == 30.0
    assert requests.overdue(29.9) is None
    overdue = requests.overdue(30.0)
    assert overdue is not None
    assert overdue.correlation_id == 2


def test_a_lost_connection_makes_every_outcome_unknown_once() -> None:
    requests, outcomes = InFlightRequests("b1", idle_portal().reactor), list[Outcome]()
    written(requests, outcomes)
    written(requests, outcomes)
    cause = DisconnectError("lost")
    assert (requests.fail(1.0, cause), requests.fail(2.0, cause)) == (2, 0)
    assert outcomes == [Unknown(cause), Unknown(cause)]
    assert requests.deadline() is None


def test_a_caller_that_waits_no_longer_gets_one_outcome_and_the_response_stays_due() -> None:
    requests, patient, hasty = InFlightRequests("b1", idle_portal().reactor), list[Outcome](), list[Outcome]()
    written(requests, patient)
    written(requests, hasty, silence_timeout_s=2.0)
    assert requests.deadline() == 2.0
    requests.give_up_late(1.9)
    assert not hasty
    requests.give_up_late(2.5)
    requests.give_up_late(9.0)
    (outcome,) = hasty
    assert isinstance(outcome, Unknown)
    assert str(outcome.cause) == "b1 has not answered Metadata within 2.5 s"
    assert (len(list(requests)), requests.deadline(), requests.overdue(29.0)) == (2, 30.0, None)
    assert requests.fail(31.0, DisconnectError("lost")) == 2
    assert (len(patient), len(hasty)) == (1, 1)


def test_correlation_ids_wrap_to_0_after_the_largest_int32() -> None:
    requests = InFlightRequests("b1", idle_portal().reactor)
    requests.correlation_id = MAX_CORRELATION_ID
    assert requests.next_id() == 0
