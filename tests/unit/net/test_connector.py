"""The tasks that connect: back-offs, failures, and when a refusal is final. A coroutine replaces each attempt."""
from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random

import pytest

from pyclient.core.backoff import ExponentialBackoff
from pyclient.core.connection import Event, Reconnects
from pyclient.core.manager import Use
from pyclient.errors import AuthenticationError, DisconnectError
from pyclient.metrics import Metrics
from pyclient.net.connect import ConnectAttempt
from pyclient.net.connection import AnswerListener, Connection
from pyclient.net.connector import Connector
from pyclient.net.node_connections import ClosingConnections, NodeConnections
from pyclient.net.node_failures import NodeFailures
from pyclient.net.request_metrics import RequestMetrics
from pyclient.net.security import Security
from pyclient.records import Node
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import CancelledError, Event as Gate, all_done, sleep
from pyclient.runtime.network import SocketNetwork, SocketOptions
from tests.reactors import idle_portal, run_in_task

NOW = 100.0
REFUSED = AuthenticationError("the password is wrong")


class FixedSecurity(Security):
    """Credentials that change, or do not."""

    changes = False

    def may_change(self, refusal: AuthenticationError) -> bool:
        return self.changes


class ChangingSecurity(FixedSecurity):
    changes = True


class Rig:
    """A connector whose attempts do what the test says."""

    def __init__(self, reactor: Reactor, monkeypatch: pytest.MonkeyPatch, security: Security | None = None) -> None:
        self.reactor = reactor
        self.refusals: list[AuthenticationError] = []
        self.changes = 0
        self.failures = NodeFailures(lambda: NOW, lambda _error: None)
        self.attempt: Callable[[], Awaitable[Connection]] = ready
        self.connector = Connector(
            reactor, SocketNetwork(), SocketOptions(), security or FixedSecurity(), clock=lambda: NOW, request_timeout=30.0,
            make_connection=lambda *_: connection(), closing=ClosingConnections(reactor), failures=self.failures,
            metrics=RequestMetrics(Metrics(samples=2, window_s=30), list), on_change=self._changed, on_refused=self.refusals.append)
        reconnects = Reconnects(ExponentialBackoff(1.0, 8.0, Random(1)), ExponentialBackoff(10.0, 30.0, Random(2)))
        self.node = NodeConnections(Node(1, "b1", 9092), reconnects, {})
        monkeypatch.setattr(ConnectAttempt, "connect", lambda _attempt: self.attempt())

    def _changed(self) -> None:
        self.changes += 1

    async def connect(self) -> None:
        """One attempt, from its start to its end; a back-off is over."""
        self.node.reconnects.not_before = 0.0
        self.connector.connect(self.node, Use.CONTROL)
        await all_done(self.reactor, list(self.connector.tasks))


def connection() -> Connection:
    return Connection("b1", None, reactor=idle_portal().reactor, clock=lambda: NOW, max_frame=100, on_change=lambda: None, on_quiet=lambda: None, on_lost=lambda *_: None,
                      answers=AnswerListener())


async def ready() -> Connection:
    return connection()


def raises(error: BaseException) -> Callable[[], Awaitable[Connection]]:
    async def attempt() -> Connection:
        raise error
    return attempt


def test_a_connection_that_is_ready_belongs_to_its_node_and_use(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(reactor: Reactor) -> None:
        here = Rig(reactor, monkeypatch)
        await here.connect()
        assert list(here.node.connections) == [Use.CONTROL]
        assert (here.node.tasks, here.changes) == ({}, 1)

    run_in_task(test)


def test_during_the_back_off_the_node_is_only_marked_as_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(reactor: Reactor) -> None:
        here = Rig(reactor, monkeypatch)
        here.node.reconnects.failed(NOW)
        here.connector.connect(here.node, Use.CONTROL)
        assert here.node.wanted
        assert not here.connector.tasks

    run_in_task(test)


@pytest.mark.parametrize(("error", "expected"), [
    (DisconnectError("no route"), "no route"),
    (ZeroDivisionError("a defect"), "connecting to b1:9092 raised ZeroDivisionError"),
    (CancelledError(), "a function for tokens or passwords, or a mechanism, raised CancelledError"),
])
def test_whatever_an_attempt_raises_the_next_one_waits(monkeypatch: pytest.MonkeyPatch, error: BaseException, expected: str) -> None:
    async def test(reactor: Reactor) -> None:
        here = Rig(reactor, monkeypatch)
        here.attempt = raises(error)
        await here.connect()
        assert expected in str(here.failures.by_address["b1:9092"])
        assert not here.node.reconnects.allowed(NOW)
        assert (here.node.tasks, here.refusals, here.changes) == ({}, [], 1)

    run_in_task(test)


@pytest.mark.parametrize(("security", "accepted", "final"), [
    (FixedSecurity(), False, True), (FixedSecurity(), True, True), (ChangingSecurity(), False, True), (ChangingSecurity(), True, False)])
def test_a_refusal_is_final_unless_accepted_credentials_may_change(
        monkeypatch: pytest.MonkeyPatch, security: Security, accepted: bool, final: bool) -> None:
    async def test(reactor: Reactor) -> None:
        here = Rig(reactor, monkeypatch, security)
        if accepted:
            await here.connect()
        here.attempt = raises(REFUSED)
        await here.connect()
        assert here.refusals == ([REFUSED] if final else [])

    run_in_task(test)


def test_a_connection_that_closed_as_soon_as_it_was_ready_is_not_used_and_reconnecting_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    async def closed() -> Connection:
        made = connection()
        made.advance(Event.LOST)
        return made

    async def test(reactor: Reactor) -> None:
        here = Rig(reactor, monkeypatch)
        here.attempt = closed
        await here.connect()
        assert not here.node.connections
        assert not here.node.reconnects.allowed(NOW)

    run_in_task(test)


def test_closing_cancels_the_attempts_and_waits_for_them(monkeypatch: pytest.MonkeyPatch) -> None:
    async def test(reactor: Reactor) -> None:
        async def never() -> Connection:
            await Gate(reactor).wait()
            raise AssertionError

        here = Rig(reactor, monkeypatch)
        here.attempt = never
        here.connector.connect(here.node, Use.CONTROL)
        await sleep(reactor, 0)
        await here.connector.close()
        assert not here.connector.tasks
        assert not here.failures.by_address, "being cancelled is no failure"

    run_in_task(test)
