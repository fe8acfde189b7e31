"""A fetch session as a pure thing: what each request says of it, and what every answer makes of it (C07, C08)."""
from __future__ import annotations

from types import SimpleNamespace
from typing import Any
from uuid import UUID

import attrs
import pytest

from pyclient.core.fetching.requests import fetch_fields
from pyclient.core.fetching.sessions import FINAL, FULL, LAST_EPOCH, Asking, Session, Wish, following
from pyclient.errors import error_for
from pyclient.records import TopicPartition
from tests.unit.core.fetching import LIMITS
from tests.unit.core.world import topic_id

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
SESSION = 77
NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR, OTHER = 70, 71, 106, -1


@attrs.define
class Reader:
    """A session, and what its user wants now."""

    session: Session = attrs.field(factory=Session)
    wishes: dict[TopicPartition, Wish] = attrs.field(factory=dict)

    def wants(self, *partitions: TopicPartition, offset: int = 0, **more: Any) -> None:
        for tp in partitions:
            self.wishes[tp] = wish(tp, offset, **more)
            self.session.want(tp)

    def leaves(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.wishes.pop(tp)
            self.session.leave(tp)

    def asks(self) -> Asking:
        asking = self.session.next(self.wishes.get)
        assert asking is not None
        return asking

    def begins(self, *partitions: TopicPartition) -> None:
        """A session with these."""
        self.wants(*partitions)
        self.asks()
        self.session.answered(says(*partitions))


def wish(tp: TopicPartition, offset: int = 0, **more: Any) -> Wish:
    return Wish(**{"offset": offset, "generation": 1, "leader_epoch": 3, "last_epoch": -1, "topic_id": topic_id(tp.topic), **more})


def says(*partitions: TopicPartition, session: int | None = SESSION, by_name: bool = False, ids: dict[str, UUID] | None = None) -> Any:
    """A response with these; a version without sessions when *session* is None."""
    topics = [SimpleNamespace(partitions=[SimpleNamespace(partition_index=tp.partition)],
                              **({"topic": tp.topic} if by_name else {"topic_id": (ids or {}).get(tp.topic, topic_id(tp.topic))}))
              for tp in partitions]
    return SimpleNamespace(responses=topics, **({} if session is None else {"session_id": session}))


def fields(asking: Asking, version: int) -> dict[str, Any]:
    return fetch_fields(asking, LIMITS, rack="", max_bytes=1, wait=0)(version)


@pytest.fixture
def reader() -> Reader:
    return Reader()


# --- what a request says ---------------------------------------------------------------------------------------------


def test_C07_the_first_request_names_every_partition_in_the_order_in_which_they_came(reader: Reader) -> None:
    reader.wants(A1, B0, A0)
    asking = reader.asks()
    assert (asking.id, asking.epoch, list(asking.wishes)) == (0, FULL, [A1, B0, A0])


def test_C07_after_that_only_what_is_new_or_wanted_otherwise_is_named_and_what_is_not_wanted_is_forgotten(reader: Reader) -> None:
    reader.begins(A0, A1, A2)
    reader.wants(A1, offset=5)
    reader.wants(B0)
    reader.leaves(A2)
    asking = reader.asks()
    assert (asking.id, asking.epoch, dict(asking.wishes)) == (SESSION, 1, {A1: wish(A1, 5), B0: wish(B0)})
    assert asking.forgets(by_id=True) == [(A2, wish(A2))]
    reader.session.answered(says())
    asking = reader.asks()
    assert (asking.epoch, dict(asking.wishes), asking.forgets(by_id=True)) == (2, {}, [])


@pytest.mark.parametrize("change", ["offset", "generation", "leader_epoch", "last_epoch"])
def test_C07_every_change_of_a_wish_is_sent(reader: Reader, change: str) -> None:
    reader.begins(A0, A1)
    reader.wants(A0, **{change: 9})
    assert list(reader.asks().wishes) == [A0]


def test_C07_what_is_wanted_as_it_was_is_not_sent_again(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.wants(A0)
    assert not reader.asks().wishes


def test_C07_what_is_left_and_wanted_again_before_the_next_request_stays(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.leaves(A0)
    reader.wants(A0)
    asking = reader.asks()
    assert (dict(asking.wishes), dict(asking.forgotten)) == ({}, {})


def test_C07_what_is_wanted_and_left_before_it_was_sent_was_never_there(reader: Reader) -> None:
    reader.begins(A0)
    reader.wants(B0)
    reader.leaves(B0)
    asking = reader.asks()
    assert (dict(asking.wishes), dict(asking.forgotten)) == ({}, {})


def test_C07_while_nothing_would_be_read_nothing_is_asked_and_what_is_to_be_forgotten_waits(reader: Reader) -> None:
    assert not reader.session.reads
    assert reader.session.next(reader.wishes.get) is None
    reader.begins(A0, A1)
    reader.leaves(A0, A1)
    assert not reader.session.reads
    assert reader.session.next(reader.wishes.get) is None
    reader.wants(B0)
    assert reader.session.reads
    asking = reader.asks()
    assert (asking.epoch, list(asking.wishes), list(asking.forgotten)) == (1, [B0], [A0, A1])


def test_C07_what_proves_not_to_be_wanted_when_it_is_asked_about_is_forgotten(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.session.want(A0)
    reader.session.want(B0)
    del reader.wishes[A0]
    asking = reader.asks()
    assert (dict(asking.wishes), list(asking.forgotten)) == ({}, [A0])
    reader.session.want(A1)
    del reader.wishes[A1]
    assert reader.session.next(reader.wishes.get) is None
    reader.wants(B0)
    assert list(reader.asks().forgotten) == [A1]


def test_C07_what_was_served_goes_to_the_end_of_the_next_full_request(reader: Reader) -> None:
    reader.begins(A0, A1, A2)
    reader.wants(A0, offset=1)
    assert list(reader.asks().wishes) == [A0]
    reader.session.renew()
    assert list(reader.asks().wishes) == [A1, A2, A0]


def test_C07_epochs_begin_again_at_1_after_the_last_one(reader: Reader) -> None:
    reader.begins(A0)
    reader.session.epoch = LAST_EPOCH
    assert reader.asks().epoch == 2**31 - 1
    reader.session.answered(says())
    assert reader.asks().epoch == following(0) == 1


# --- topics and their ids --------------------------------------------------------------------------------------------

NEW_ID = UUID(int=5)


def test_C07_a_topic_with_another_id_is_forgotten_by_the_old_one_and_sent_by_the_new_one(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.wants(A0, topic_id=NEW_ID)
    asking = reader.asks()
    body = fields(asking, 17)
    assert [each["topic_id"] for each in body["topics"]] == [NEW_ID]
    assert body["forgotten_topics_data"] == [{"topic_id": topic_id("a"), "partitions": [0]}]


def test_C07_by_name_a_recreated_topic_is_not_forgotten_for_the_broker_would_drop_the_new_one(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.wants(A0, topic_id=NEW_ID)
    reader.leaves(A1)
    body = fields(reader.asks(), 12)
    assert [each["topic"] for each in body["topics"]] == ["a"]
    assert body["forgotten_topics_data"] == [{"topic": "a", "partitions": [1]}]


def test_C08_topics_are_named_by_id_while_all_of_the_session_have_one(reader: Reader) -> None:
    reader.wants(A0, B0)
    asking = reader.asks()
    assert not asking.by_name
    assert [each["topic_id"] for each in fields(asking, 13)["topics"]] == [topic_id("a"), topic_id("b")]
    assert [each["topic"] for each in fields(asking, 12)["topics"]] == ["a", "b"]


@pytest.mark.parametrize("in_request", [True, False])
def test_C08_one_topic_without_an_id_in_request_or_session_and_all_go_by_name(reader: Reader, in_request: bool) -> None:
    reader.wants(B0, topic_id=None)
    if in_request:
        reader.wants(A0)
    assert reader.asks().by_name
    reader.session.answered(says(B0, *[A0][:in_request], by_name=True))
    reader.wants(A0, offset=2)
    asking = reader.asks()
    assert (asking.by_name, asking.epoch, list(asking.wishes)) == (True, 1, [A0])


def test_C08_a_topic_without_an_id_ends_a_session_by_id_and_one_by_name_ends_when_all_have_ids(reader: Reader) -> None:
    reader.begins(A0)
    reader.wants(B0, topic_id=None)
    asking = reader.asks()
    assert (asking.by_name, asking.id, asking.epoch, list(asking.wishes)) == (True, SESSION, FULL, [A0, B0])
    reader.session.answered(says(A0, B0, session=78, by_name=True))
    assert reader.asks().by_name
    reader.session.answered(says(session=78))
    reader.wants(B0)
    asking = reader.asks()
    assert (asking.by_name, asking.id, asking.epoch, list(asking.wishes)) == (False, 78, FULL, [A0, B0])


def test_C07_a_broker_that_proves_too_old_for_sessions_is_sent_everything(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.wants(A0, offset=1)
    asking = reader.asks()
    assert [part["partition"] for topic in fields(asking, 7)["topics"] for part in topic["partitions"]] == [0]
    assert [part["partition"] for topic in fields(asking, 6)["topics"] for part in topic["partitions"]] == [1, 0]


# --- what answers make of it -----------------------------------------------------------------------------------------


def test_an_answer_is_read_by_what_was_asked(reader: Reader) -> None:
    reader.wants(A0, B0, offset=4)
    reader.asks()
    reader.wants(A0, offset=9)  # a seek meanwhile
    reported = reader.session.answered(says(B0, A0))
    assert [(tp, wish.offset, part.partition_index) for tp, wish, part in reported] == [(B0, 4, 0), (A0, 4, 0)]


@pytest.mark.parametrize("by_name", [True, False])
def test_C07_a_full_answer_that_misses_a_partition_or_has_a_stranger_ends_the_session_that_it_gives(reader: Reader, by_name: bool) -> None:
    for partitions in ([A0], [A0, A1, B0], [A0, B0]):
        reader = Reader()
        reader.wants(A0, A1)
        reader.asks()
        reported = reader.session.answered(says(*partitions, by_name=by_name))
        assert [tp for tp, _, _ in reported] == [tp for tp in partitions if tp != B0]
        asking = reader.asks()
        assert (asking.id, asking.epoch, list(asking.wishes)) == (SESSION, FULL, [A0, A1])


def test_C07_an_incremental_answer_with_a_stranger_begins_another_session(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.asks()
    reported = reader.session.answered(says(B0, A1))
    assert [tp for tp, _, _ in reported] == [A1]
    asking = reader.asks()
    assert (asking.id, asking.epoch, list(asking.wishes)) == (SESSION, FULL, [A0, A1])


def test_C07_another_id_of_the_topic_is_a_stranger(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.asks()
    assert reader.session.answered(says(A0, ids={"a": NEW_ID})) == []
    assert reader.asks().epoch == FULL


def test_C07_the_old_id_of_a_recreated_topic_is_a_stranger(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.wants(A0, topic_id=NEW_ID)
    reader.asks()
    assert [tp for tp, _, _ in reader.session.answered(says(A0, A1))] == [A1]


def test_C07_an_empty_full_answer_of_a_broker_that_throttles_changes_nothing(reader: Reader) -> None:
    reader.wants(A0)
    reader.asks()
    assert reader.session.answered(says(session=0)) == []
    asking = reader.asks()
    assert (asking.id, asking.epoch, list(asking.wishes)) == (0, FULL, [A0])


@pytest.mark.parametrize("session", [0, None])
def test_C07_a_broker_without_room_or_too_old_for_sessions_is_asked_for_everything_each_time(reader: Reader, session: int | None) -> None:
    reader.wants(A0, A1)
    for _ in range(3):
        asking = reader.asks()
        assert (asking.id, asking.epoch, list(asking.wishes)) == (0, FULL, [A0, A1])
        reader.session.answered(says(A0, A1, session=session))
    reader.leaves(A0)
    asking = reader.asks()
    assert (list(asking.wishes), fields(asking, 17)["topics"][0]["partitions"][0]["partition"]) == ([A1], 1)


@pytest.mark.parametrize(("given", "asked"), [(0, 0), (78, SESSION)])
def test_C07_a_session_that_the_broker_ends_or_confuses_is_followed_by_another(reader: Reader, given: int, asked: int) -> None:
    reader.begins(A0, A1)
    reader.asks()
    reader.session.answered(says(A0, session=given))
    asking = reader.asks()
    assert (asking.id, asking.epoch, list(asking.wishes)) == (asked, FULL, [A0, A1])


@pytest.mark.parametrize(("code", "asked"), [(NOT_FOUND, 0), (INVALID_EPOCH, SESSION), (TOPIC_ID_ERROR, SESSION)])
def test_C07_after_a_session_error_everything_is_asked_for_in_a_new_one_and_one_that_may_live_is_ended(
        reader: Reader, code: int, asked: int) -> None:
    reader.begins(A0, A1)
    reader.wants(A0, offset=1)
    reader.asks()
    assert reader.session.refused(error_for(code))
    asking = reader.asks()
    assert (asking.id, asking.epoch, dict(asking.wishes)) == (asked, FULL, {A1: wish(A1), A0: wish(A0, 1)})


def test_C07_another_error_is_none_of_the_session(reader: Reader) -> None:
    reader.begins(A0)
    reader.asks()
    assert not reader.session.refused(error_for(OTHER))
    assert (reader.session.id, reader.session.epoch) == (SESSION, 1)


def test_C07_when_it_is_unknown_what_the_broker_processed_a_new_session_ends_the_old_one(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.leaves(A0)
    reader.asks()
    reader.session.renew()
    reader.wants(B0)
    reader.leaves(A1)
    asking = reader.asks()
    assert (asking.id, asking.epoch, list(asking.wishes), asking.forgets(by_id=True)) == (SESSION, FULL, [B0], [])


def test_C07_the_end_of_a_session_is_its_last_epoch_and_names_nothing(reader: Reader) -> None:
    assert reader.session.farewell() is None
    reader.begins(A0)
    asking = reader.session.farewell()
    assert asking is not None
    body = fields(asking, 17)
    assert (body["session_id"], body["session_epoch"], body["topics"], body["forgotten_topics_data"]) == (SESSION, FINAL, [], [])
    assert FINAL == -1


def test_a_session_says_what_it_is(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.wants(B0)
    reader.leaves(A1)
    assert repr(reader.session) == "<Session 77 epoch 1: 2 partitions, 1 to add or change, 1 to forget>"


def test_topics_that_nothing_is_read_of_any_more_are_not_remembered(reader: Reader) -> None:
    reader.begins(A0)
    for number in range(5):
        tp = TopicPartition(f"t{number}", 0)
        reader.wants(tp)
        reader.asks()
        reader.session.answered(says())
        reader.leaves(tp)
    reader.asks()
    assert reader.session.answered(says(TopicPartition("t3", 0))) == []
    assert list(reader.session.partitions) == [A0]
