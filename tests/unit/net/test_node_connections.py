"""The connections of one node, the choice among nodes, and what failures mean for a node (`NodeFailures`)."""
from __future__ import annotations

from random import Random

import pytest

from pyclient.codec.apis import Api
from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.connection import Reconnects, Usage
from pyclient.core.manager import Use
from pyclient.errors import DisconnectError, KafkaError
from pyclient.net.connection import AnswerListener, Connection, Ending
from pyclient.net.node_connections import ClosingConnections, NodeConnections, least_loaded, longest_untried
from pyclient.net.node_failures import NodeFailures
from pyclient.records import Node
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Task, sleep
from tests.reactors import idle_portal, run_in_task

NOW = 100.0
CAUSE = DisconnectError("b1 closed the connection")


class FakeConnection(Connection):
    """A connection whose readiness and load are set."""

    def __init__(self, in_flight: int = 0, *, ready: bool = True) -> None:
        super().__init__("b1", None, reactor=idle_portal().reactor, clock=lambda: NOW, max_frame=100, on_change=lambda: None, on_quiet=lambda: None, on_lost=lambda *_: None,
                         answers=AnswerListener())
        self._is_ready, self._load = ready, in_flight

    def accepts_requests(self) -> bool:
        return self._is_ready

    def count_in_flight(self) -> int:
        return self._load


def node(number: int = 1, connection: Connection | None = None) -> NodeConnections:
    reconnects = Reconnects(ExponentialBackoff(1.0, 8.0, Random(1)), ExponentialBackoff(10.0, 30.0, Random(2)))
    made = NodeConnections(Node(number, f"b{number}", 9092), reconnects, {Use.CONTROL: 2})
    if connection is not None:
        made.connections[Use.CONTROL] = connection
    return made


# ---- NodeConnections ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("connection", "slots"), [
    (None, 0), (FakeConnection(ready=False), 0), (FakeConnection(0), 2), (FakeConnection(1), 1), (FakeConnection(3), 0)])
def test_free_slots_are_those_of_a_ready_connection(connection: Connection | None, slots: int) -> None:
    assert node(connection=connection).free_slots(Use.CONTROL) == slots


def test_a_use_without_a_limit_has_one_slot() -> None:
    made = node()
    made.connections[Use.FETCH] = FakeConnection()
    assert made.free_slots(Use.FETCH) == 1


def test_a_failed_attempt_moves_on_to_the_next_address_and_waits() -> None:
    made = node()
    assert made.usable(NOW)
    made.failed(NOW, reached=True)
    assert made.first_address == 1
    assert not made.usable(NOW)
    assert made.next_deadline(540.0, NOW, 2.0) is None, "it is not wanted"
    made.wanted = True
    assert made.next_deadline(540.0, NOW, 2.0) == made.reconnects.not_before


def test_M04_the_least_loaded_node_is_a_ready_one_with_free_slots() -> None:
    busy, full, closed, free = (node(number, FakeConnection(load, ready=ready)) for number, load, ready in [
        (1, 1, True), (2, 2, True), (3, 0, False), (4, 0, True)])
    assert least_loaded([busy, full, closed, free], Use.CONTROL, Random(1), NOW) is free
    assert least_loaded([busy, full, closed], Use.CONTROL, Random(1), NOW) is busy
    assert least_loaded([full, closed], Use.CONTROL, Random(1), NOW) is None


def test_M04_nodes_that_were_never_tried_come_first() -> None:
    tried, untried = node(1), node(2)
    tried.tried_at = NOW
    assert longest_untried([tried, untried], Random(1)) is untried


def test_waiting_for_closing_connections_ignores_the_others() -> None:
    async def test(reactor: Reactor) -> None:
        closing, first, second = ClosingConnections(reactor), FakeConnection(), FakeConnection()
        closing.close(first, CAUSE)
        closing.close(second, CAUSE)
        waiting = Task(reactor, closing.these_ended([first]))
        await sleep(reactor, 0)
        assert not waiting.done()
        closing.ended(first)
        await waiting
        assert list(closing) == [second]

    run_in_task(test)


# ---- NodeFailures ---------------------------------------------------------------------------------------------------


class Failures(NodeFailures):
    """Keeps what users learn of."""

    def __init__(self) -> None:
        self.reported: list[KafkaError] = []
        super().__init__(lambda: NOW, self.reported.append)


def ended(requests_lost: int = 0, *, by_peer: bool = True, usage: Usage = Usage.ANSWERED, unanswered: bool = False) -> Connection:
    connection = FakeConnection()
    connection.ending = Ending(CAUSE, by_peer, requests_lost)
    connection.usage, connection.wrote_unanswered = usage, unanswered
    return connection


@pytest.mark.parametrize(("connection", "reported", "waits"), [
    (ended(), False, False),                                     # M13: idle, as brokers close connections
    (ended(requests_lost=2), True, True),
    (ended(unanswered=True, usage=Usage.SENT), True, False),     # P22: acks=0
    (ended(usage=Usage.UNUSED), False, True),
], ids=["idle", "requests in flight", "acks=0", "unused"])
def test_what_a_lost_connection_means_for_its_node(connection: Connection, reported: bool, waits: bool) -> None:
    failures, lost_by = Failures(), node()
    failures.connection_lost(lost_by, connection, CAUSE)
    assert (failures.reported == [CAUSE]) == reported
    assert lost_by.reconnects.allowed(NOW) == (not waits)


@pytest.mark.parametrize(("before", "connection", "suspected"), [
    (None, ended(1, usage=Usage.SENT), True),
    (Api.API_VERSIONS, ended(1, usage=Usage.SENT), True),        # listeners answer it before a login
    (Api.METADATA, ended(1, usage=Usage.SENT), False),
    (None, ended(1, usage=Usage.ANSWERED), False),
    (None, ended(1, usage=Usage.SENT, by_peer=False), False),
])
def test_M16_a_login_may_be_required_if_no_broker_has_ever_answered(before: Api | None, connection: Connection, suspected: bool) -> None:
    failures, lost_by = Failures(), node()
    if before is not None:
        failures.answered(lost_by, before, 0.0)
    failures.connection_lost(lost_by, connection, CAUSE)
    assert lost_by.may_require_login == suspected


def test_the_report_has_bootstrap_addresses_without_a_connection_and_every_last_failure() -> None:
    failures, pending, failed, connected = Failures(), node(1), node(2), node(3, FakeConnection())
    failures.connecting_failed(failed, CAUSE)
    report = failures.report([pending, connected])
    assert {address: str(error) for address, error in report.items()} == {"b1:9092": "not tried yet", "b2:9092": str(CAUSE)}
    failures.connected(failed)
    assert set(failures.report([])) == set()


def test_only_the_first_failure_in_a_row_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    failures, failed = Failures(), node()
    with caplog.at_level("INFO", "pyclient"):
        for _ in range(3):
            failures.connecting_failed(failed, CAUSE)
        failures.connected(failed)
    assert [record.getMessage() for record in caplog.records] == [
        "connecting to b1:9092 failed (1 in a row): b1 closed the connection", "connected to b1:9092 again after 3 failures"]
