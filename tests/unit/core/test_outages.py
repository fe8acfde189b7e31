"""What is missing is logged once it has lasted two seconds, then rarely, and when it is back."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from pyclient.core.silence import LOGGED_AFTER
from pyclient.core.outages import CHECK_EVERY, REPORTED_AFTER, REMINDER, Outages, Throttling


class World:
    """A view of the cluster that the test changes, and a clock that it moves."""

    def __init__(self) -> None:
        self.wanting: list[str] = []
        view: type[Any] = SimpleNamespace
        self.metadata: Any = view(
            silent_since=None, settled=True, last_error=None, missing=lambda: self.wanting, cluster=SimpleNamespace(topics={}, nodes={}))
        self.causes: dict[str, BaseException] = {}
        self.now = 1000.0
        self.outages = Outages("producer", self.metadata, lambda: self.causes)
        self.ready: Any = None

    def pass_time(self, seconds: float) -> None:
        until = self.now + seconds
        while self.now < until:
            self.now = min(until, self.now + CHECK_EVERY)
            assert list(self.outages.poll(self.now, self.ready)) == []


@pytest.fixture
def world() -> World:
    return World()


def test_a_silent_cluster_is_named_after_two_seconds_then_rarely_and_when_it_answers(
        world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.metadata.silent_since, world.metadata.settled = world.now, False
    world.causes = {"b1:9092": ConnectionRefusedError("connection refused")}
    world.pass_time(REPORTED_AFTER - 0.1)
    assert not caplog.messages
    world.pass_time(0.1 + CHECK_EVERY)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("producer: no broker answered within 2.")
    assert "b1:9092: connection refused" in caplog.messages[0]
    world.pass_time(REMINDER - 5)
    assert len(caplog.messages) == 1
    world.pass_time(10)
    assert len(caplog.messages) == 2
    world.metadata.silent_since = None
    world.pass_time(5)
    assert caplog.messages[2:] == ["producer: brokers answer again, after 309 s"]
    assert {record.levelname for record in caplog.records} == {"WARNING"}


def test_where_brokers_are_known_one_that_hangs_is_no_outage_until_the_others_had_time(
        world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.metadata.cluster.nodes = {1: "b1:9092"}
    world.metadata.silent_since = world.now
    world.pass_time(LOGGED_AFTER - 0.1)
    world.metadata.silent_since = None
    world.pass_time(CHECK_EVERY)
    assert not caplog.messages
    world.metadata.silent_since = world.now
    world.pass_time(REPORTED_AFTER)
    world.metadata.silent_since = world.now  # answered, and silent again before the next look
    world.pass_time(LOGGED_AFTER - 0.1)
    assert not caplog.messages
    world.pass_time(0.1 + CHECK_EVERY)
    assert len(caplog.messages) == 1


def test_a_short_silence_is_not_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.metadata.silent_since = world.now
    world.pass_time(REPORTED_AFTER / 2)
    world.metadata.silent_since = None
    world.pass_time(10)
    assert not caplog.messages


def test_a_missing_topic_is_named_after_two_seconds_once_and_when_it_is_there(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.wanting = ["oders"]
    world.pass_time(REPORTED_AFTER)
    assert not caplog.messages  # first seen at the first look, a moment later
    world.pass_time(60)
    assert caplog.messages == ["producer: topic 'oders' does not exist (yet): create it, or check its name; it is used as soon as it exists"]
    world.wanting = []
    world.pass_time(2)
    assert caplog.messages[1:] == ["producer: topic 'oders' is there, after 62 s"]


def test_while_no_broker_answers_topics_are_not_called_missing(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.wanting, world.metadata.silent_since = ["orders"], world.now
    world.pass_time(60)
    assert not any("orders" in line for line in caplog.messages)


def test_nothing_is_due_while_nothing_is_missing(world: World) -> None:
    world.pass_time(2)
    assert world.outages.next_deadline() is None
    world.metadata.settled = False
    assert world.outages.next_deadline() == world.now + CHECK_EVERY


def test_long_throttling_is_logged_once_per_node_and_rarely(caplog: pytest.LogCaptureFixture) -> None:
    throttling = Throttling()
    for second in range(0, 40, 4):
        throttling.add("b1:9092 (node 1)", 2.0, 1000.0 + second)
    assert len(caplog.messages) == 1
    assert caplog.messages[0].startswith("b1:9092 (node 1) throttles this client: 10 s of pauses within a minute")
    throttling.add("b1:9092 (node 1)", 30.0, 1000.0 + REMINDER + 100)
    assert len(caplog.messages) == 2


def test_short_throttling_is_not_logged(caplog: pytest.LogCaptureFixture) -> None:
    throttling = Throttling()
    for minute in range(60):
        throttling.add("b1:9092 (node 1)", 5.0, 1000.0 + 60 * minute)
    assert not caplog.messages
