"""Topics of interest by id (N09): when their names are requested; and by name (M01): which a request is about."""
from __future__ import annotations

from uuid import UUID

import pytest
from tenacity import wait_none

from pyclient.codec.apis import Api
from pyclient.core.backoff import WaitPolicy
from pyclient.core.metadata import Metadata
from pyclient.core.topic_interest import PINNED, TopicInterest
from tests.unit.core.world import MAX_AGE, Sent, World, make_metadata, topic, topic_id, view

A, B = topic_id("a"), topic_id("b")
UNKNOWN_TOPIC, UNKNOWN_TOPIC_ID = 3, 100


class Client:
    """A Metadata manager that knows its brokers."""

    def __init__(self, metadata: Metadata | None = None) -> None:
        self.world = World()
        self.metadata = metadata or make_metadata()
        self.asks().reply(**view())

    def asks(self, after: float = 0.0) -> Sent:
        """The one request that comes then."""
        self.world.after(after)
        (sent,) = self.world.turn(self.metadata)
        assert sent.api is Api.METADATA
        return sent

    def rests(self, seconds: float = 0.0) -> None:
        self.world.after(seconds)
        assert self.world.turn(self.metadata) == []


def unknown(*ids: UUID) -> list[dict[str, object]]:
    return [{"name": None, "topic_id": each, "error_code": UNKNOWN_TOPIC_ID, "partitions": []} for each in ids]


def ids(sent: Sent) -> list[UUID | None]:
    return [each.topic_id for each in sent.body.topics]


def names(sent: Sent) -> list[str | None]:
    return [each.name for each in sent.body.topics]


def test_N09_an_id_is_asked_for_at_once_and_its_topic_is_in_the_view() -> None:
    client = Client()
    client.metadata.identify([A])
    sent = client.asks()
    assert (ids(sent), names(sent)) == ([A], [None])
    sent.reply(**view(topic("a", 1, 2)))
    assert client.metadata.cluster.names == {A: "a"}
    assert client.metadata.usable("a") is not None
    client.rests(MAX_AGE - 1)


def test_N09_an_id_that_is_known_is_not_asked_for() -> None:
    client = Client()
    client.metadata.want("a", client.world.now)
    client.asks().reply(**view(topic("a", 1)))
    client.metadata.identify([A])
    client.rests()


def test_N09_ids_and_names_are_not_asked_for_in_one_request_since_brokers_leave_the_names_out_then() -> None:
    client = Client()
    client.metadata.want("b", client.world.now)
    client.metadata.identify([A])
    first = client.asks()
    assert names(first) == [None]
    first.reply(**view(topic("a", 1)))
    assert names(client.asks()) == ["b"]


def test_N09_an_unknown_id_is_requested_with_growing_pauses() -> None:
    client = Client()
    client.metadata.identify([A])
    sent = client.asks()
    for pause in (1.0, 2.0, 4.0):
        sent.reply(**view(*unknown(A)))
        client.rests()
        assert client.metadata.next_deadline() == client.world.now + pause
        client.rests(pause - 0.1)
        sent = client.asks(0.1)
    sent.is_lost()
    client.rests(7.9)
    client.asks(0.1)


def test_N09_another_id_does_not_wait_for_the_pause_of_the_first_one() -> None:
    client = Client()
    client.metadata.identify([A])
    client.asks().reply(**view(*unknown(A)))
    client.rests()
    client.metadata.identify([A, B])
    sent = client.asks()
    assert set(ids(sent)) == {A, B}
    sent.reply(**view(topic("b", 1), *unknown(A)))
    client.rests()
    assert ids(client.asks(1.0)) == [A]


def test_N09_an_id_that_is_no_longer_wanted_is_not_requested() -> None:
    client = Client()
    client.metadata.identify([A])
    client.asks().reply(**view(*unknown(A)))
    client.metadata.identify([])
    client.rests(100.0)


def test_N09_an_id_that_is_not_known_does_not_make_the_other_topics_older_or_younger() -> None:
    client = Client()
    due = client.metadata.next_deadline()
    client.metadata.identify([A])
    client.asks().reply(**view(*unknown(A)))
    client.metadata.identify([])
    assert client.metadata.next_deadline() == due


def test_N09_unknown_ids_and_unknown_names_do_not_delay_each_other_even_without_a_pause() -> None:
    always = Metadata(max_age=MAX_AGE, max_idle=1000.0, rebootstrap_after=None, request_timeout=30.0, backoff=WaitPolicy(wait_none()),
                      create_topics=False, on_update=lambda cluster: None)
    client = Client(always)
    client.metadata.identify([A])
    client.metadata.want("missing", client.world.now)
    asked = []
    for _ in range(6):
        (request,) = client.metadata.poll(client.world.now, client.world)
        sent = Sent(client.world, request)
        client.world.in_flight.append(sent)
        asked.append(sent.body.topics[0].name)
        sent.reply(**view(*(unknown(A) if asked[-1] is None else [topic("missing", error=UNKNOWN_TOPIC)])))
    assert asked == [None, "missing"] * 3


@pytest.mark.parametrize("version", [1, 9, 11])
def test_N09_a_broker_that_takes_no_ids_is_not_asked(version: int) -> None:
    client = Client()
    client.metadata.identify([A])
    sent = client.asks()
    assert sent.request.versions is not None
    assert version not in sent.request.versions
    assert 12 in sent.request.versions


# --- topics by name --------------------------------------------------------------------------------------------------


def test_topics_are_new_until_a_request_was_about_them() -> None:
    interest = TopicInterest(max_idle=10.0)
    interest.want("b", 0.0)
    interest.want("a", 0.0)
    assert (interest.unrequested, interest.take_new(), interest.unrequested) == (True, ["a", "b"], False)


def test_a_pinned_topic_is_dropped_with_its_last_owner() -> None:
    interest = TopicInterest(max_idle=10.0)
    interest.pin(["a", "b"], "reader")
    interest.pin(["b"], "other")
    interest.pin([], "reader")
    assert interest.used == {"b": PINNED}
    interest.pin([], "other")
    assert (interest.used, interest.take_new()) == ({}, [])


def test_a_full_request_drops_idle_topics_but_no_pinned_ones() -> None:
    interest = TopicInterest(max_idle=10.0)
    interest.want("idle", 0.0)
    interest.want("used", 5.0)
    interest.pin(["pinned"], "reader")
    assert interest.take_all(11.0) == ["pinned", "used"]


def test_the_first_request_about_every_topic_is_due_at_once() -> None:
    interest = TopicInterest(max_idle=10.0)
    interest.follow_all(True)
    assert (interest.unrequested, interest.take_all(0.0), interest.unrequested) == (True, None, False)
    interest.follow_all(True)
    assert not interest.unrequested
    interest.follow_all(False)
    assert interest.take_all(0.0) == []
