"""A fetch session: what each request names, and how responses and errors change it (C07, C08)."""
from __future__ import annotations

from typing import Any
from uuid import UUID

import attrs
import pytest

from pyclient.codec.fetch import FetchResponse, PartitionRequest
from pyclient.core.fetching.sessions import FINAL, FULL, LAST_EPOCH, SessionRequest, Session, following
from pyclient.errors import error_for
from pyclient.records import TopicPartition
from tests.unit.core.fetching import request_of, response_with
from tests.unit.core.world import topic_id

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
SESSION = 77
NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR, OTHER = 70, 71, 106, -1


@attrs.define
class Reader:
    """A session, and what to request of its partitions now."""

    session: Session = attrs.field(factory=Session)
    requests: dict[TopicPartition, PartitionRequest] = attrs.field(factory=dict)

    def add(self, *partitions: TopicPartition, offset: int = 0, **more: Any) -> None:
        for tp in partitions:
            self.requests[tp] = partition_request(tp, offset, **more)
            self.session.add(tp)

    def remove(self, *partitions: TopicPartition) -> None:
        for tp in partitions:
            self.requests.pop(tp)
            self.session.remove(tp)

    def next_request(self) -> SessionRequest:
        request = self.session.next_request(self.requests.get)
        assert request is not None
        return request

    def begins(self, *partitions: TopicPartition) -> None:
        """A session with these."""
        self.add(*partitions)
        self.next_request()
        self.session.on_response(response(*partitions))


def partition_request(tp: TopicPartition, offset: int = 0, **more: Any) -> PartitionRequest:
    return PartitionRequest(**{"offset": offset, "generation": 1, "leader_epoch": 3, "last_epoch": -1, "topic_id": topic_id(tp.topic).bytes, **more})


def response(*partitions: TopicPartition, session: int | None = SESSION, by_name: bool = False, ids: dict[str, UUID] | None = None) -> FetchResponse:
    """A response with these; a version without sessions when *session* is None."""
    version = 6 if session is None else 12 if by_name else 17
    topics: dict[UUID | str, list[int]] = {}
    for tp in partitions:
        topics.setdefault((ids or {}).get(tp.topic, topic_id(tp.topic)) if version > 12 else tp.topic, []).append(tp.partition)
    return response_with(version, topics, session_id=session or 0)


@pytest.fixture
def reader() -> Reader:
    return Reader()


# --- requests --------------------------------------------------------------------------------------------------------


def test_C07_the_first_request_names_every_partition_in_the_order_in_which_they_came(reader: Reader) -> None:
    reader.add(A1, B0, A0)
    request = reader.next_request()
    assert (request.id, request.epoch, list(request.partitions)) == (0, FULL, [A1, B0, A0])


def test_C07_later_requests_name_only_new_and_changed_partitions_and_forget_removed_ones(reader: Reader) -> None:
    reader.begins(A0, A1, A2)
    reader.add(A1, offset=5)
    reader.add(B0)
    reader.remove(A2)
    request = reader.next_request()
    assert (request.id, request.epoch, dict(request.partitions)) == (SESSION, 1, {A1: partition_request(A1, 5), B0: partition_request(B0)})
    assert request.forgets(True) == [(A2, partition_request(A2))]
    reader.session.on_response(response())
    request = reader.next_request()
    assert (request.epoch, dict(request.partitions), request.forgets(True)) == (2, {}, [])


@pytest.mark.parametrize("change", ["offset", "generation", "leader_epoch", "last_epoch"])
def test_C07_every_change_of_what_is_requested_is_sent(reader: Reader, change: str) -> None:
    reader.begins(A0, A1)
    reader.add(A0, **{change: 9})
    assert list(reader.next_request().partitions) == [A0]


def test_C07_an_unchanged_partition_is_not_sent_again(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.add(A0)
    assert not reader.next_request().partitions


def test_C07_a_partition_removed_and_added_again_before_the_next_request_stays(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.remove(A0)
    reader.add(A0)
    request = reader.next_request()
    assert (dict(request.partitions), dict(request.forgotten)) == ({}, {})


def test_C07_a_partition_added_and_removed_before_a_request_is_never_sent(reader: Reader) -> None:
    reader.begins(A0)
    reader.add(B0)
    reader.remove(B0)
    request = reader.next_request()
    assert (dict(request.partitions), dict(request.forgotten)) == ({}, {})


def test_C07_without_partitions_to_read_there_is_no_request_and_removals_wait(reader: Reader) -> None:
    assert not reader.session.reads()
    assert reader.session.next_request(reader.requests.get) is None
    reader.begins(A0, A1)
    reader.remove(A0, A1)
    assert not reader.session.reads()
    assert reader.session.next_request(reader.requests.get) is None
    reader.add(B0)
    assert reader.session.reads()
    request = reader.next_request()
    assert (request.epoch, list(request.partitions), list(request.forgotten)) == (1, [B0], [A0, A1])


def test_C07_a_partition_without_a_request_is_forgotten(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.session.add(A0)
    reader.session.add(B0)
    del reader.requests[A0]
    request = reader.next_request()
    assert (dict(request.partitions), list(request.forgotten)) == ({}, [A0])
    reader.session.add(A1)
    del reader.requests[A1]
    assert reader.session.next_request(reader.requests.get) is None
    reader.add(B0)
    assert list(reader.next_request().forgotten) == [A1]


def test_C07_partitions_served_last_are_last_in_the_next_full_request(reader: Reader) -> None:
    reader.begins(A0, A1, A2)
    reader.add(A0, offset=1)
    assert list(reader.next_request().partitions) == [A0]
    reader.session.renew()
    assert list(reader.next_request().partitions) == [A1, A2, A0]


def test_C07_epochs_begin_again_at_1_after_the_last_one(reader: Reader) -> None:
    reader.begins(A0)
    reader.session.epoch = LAST_EPOCH
    assert reader.next_request().epoch == 2**31 - 1
    reader.session.on_response(response())
    assert reader.next_request().epoch == following(0) == 1


# --- topics and their ids --------------------------------------------------------------------------------------------

NEW_ID = UUID(int=5)


def test_C07_a_topic_with_another_id_is_forgotten_by_the_old_one_and_sent_by_the_new_one(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.add(A0, topic_id=NEW_ID.bytes)
    request = reader.next_request()
    body = request_of(reader.session, request, 17)
    assert [each.topic_id for each in body.topics] == [NEW_ID]
    assert [(each.topic_id, each.partitions) for each in body.forgotten_topics_data] == [(topic_id("a"), (0,))]


def test_C07_by_name_a_recreated_topic_is_not_forgotten_for_the_broker_would_drop_the_new_one(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.add(A0, topic_id=NEW_ID.bytes)
    reader.remove(A1)
    body = request_of(reader.session, reader.next_request(), 12)
    assert [each.topic for each in body.topics] == ["a"]
    assert [(each.topic, each.partitions) for each in body.forgotten_topics_data] == [("a", (1,))]


def test_C08_topics_are_named_by_id_while_all_of_the_session_have_one(reader: Reader) -> None:
    reader.add(A0, B0)
    request = reader.next_request()
    assert not request.by_name
    assert [each.topic_id for each in request_of(reader.session, request, 13).topics] == [topic_id("a"), topic_id("b")]
    assert [each.topic for each in request_of(reader.session, request, 12).topics] == ["a", "b"]


@pytest.mark.parametrize("in_request", [True, False])
def test_C08_one_topic_without_an_id_in_request_or_session_and_all_go_by_name(reader: Reader, in_request: bool) -> None:
    reader.add(B0, topic_id=None)
    if in_request:
        reader.add(A0)
    assert reader.next_request().by_name
    reader.session.on_response(response(B0, *[A0][:in_request], by_name=True))
    reader.add(A0, offset=2)
    request = reader.next_request()
    assert (request.by_name, request.epoch, list(request.partitions)) == (True, 1, [A0])


def test_C08_a_topic_without_an_id_ends_a_session_by_id_and_one_by_name_ends_when_all_have_ids(reader: Reader) -> None:
    reader.begins(A0)
    reader.add(B0, topic_id=None)
    request = reader.next_request()
    assert (request.by_name, request.id, request.epoch, list(request.partitions)) == (True, SESSION, FULL, [A0, B0])
    reader.session.on_response(response(A0, B0, session=78, by_name=True))
    assert reader.next_request().by_name
    reader.session.on_response(response(session=78))
    reader.add(B0)
    request = reader.next_request()
    assert (request.by_name, request.id, request.epoch, list(request.partitions)) == (False, 78, FULL, [A0, B0])


def test_C07_a_broker_that_proves_too_old_for_sessions_gets_all_partitions(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.add(A0, offset=1)
    request = reader.next_request()
    assert [part.partition for topic in request_of(reader.session, request, 7).topics for part in topic.partitions] == [0]
    assert [part.partition for topic in request_of(reader.session, request, 6).topics for part in topic.partitions] == [1, 0]


# --- responses ------------------------------------------------------------------------------------------------------


def test_C07_a_response_is_matched_with_what_was_requested(reader: Reader) -> None:
    reader.add(A0, B0, offset=4)
    reader.next_request()
    reader.add(A0, offset=9)  # a seek meanwhile
    reported = reader.session.on_response(response(B0, A0))
    assert [(tp, requested.offset, data.partition_index) for tp, requested, data in reported] == [(B0, 4, 0), (A0, 4, 0)]


@pytest.mark.parametrize("by_name", [True, False])
def test_C07_a_full_response_with_a_missing_or_an_unexpected_partition_ends_its_session(reader: Reader, by_name: bool) -> None:
    for partitions in ([A0], [A0, A1, B0], [A0, B0]):
        reader = Reader()
        reader.add(A0, A1)
        reader.next_request()
        reported = reader.session.on_response(response(*partitions, by_name=by_name))
        assert [tp for tp, _, _ in reported] == [tp for tp in partitions if tp != B0]
        request = reader.next_request()
        assert (request.id, request.epoch, list(request.partitions)) == (SESSION, FULL, [A0, A1])


def test_C07_an_unexpected_partition_in_an_incremental_response_begins_another_session(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.next_request()
    reported = reader.session.on_response(response(B0, A1))
    assert [tp for tp, _, _ in reported] == [A1]
    request = reader.next_request()
    assert (request.id, request.epoch, list(request.partitions)) == (SESSION, FULL, [A0, A1])


def test_C07_another_id_of_the_topic_is_unexpected(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.next_request()
    assert reader.session.on_response(response(A0, ids={"a": NEW_ID})) == []
    assert reader.next_request().epoch == FULL


def test_C07_the_old_id_of_a_recreated_topic_is_unexpected(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.add(A0, topic_id=NEW_ID.bytes)
    reader.next_request()
    assert [tp for tp, _, _ in reader.session.on_response(response(A0, A1))] == [A1]


def test_C07_an_empty_full_response_of_a_broker_that_throttles_changes_nothing(reader: Reader) -> None:
    reader.add(A0)
    reader.next_request()
    assert reader.session.on_response(response(session=0)) == []
    request = reader.next_request()
    assert (request.id, request.epoch, list(request.partitions)) == (0, FULL, [A0])


@pytest.mark.parametrize("session", [0, None])
def test_C07_a_broker_without_room_or_too_old_for_sessions_gets_all_partitions_each_time(reader: Reader, session: int | None) -> None:
    reader.add(A0, A1)
    for _ in range(3):
        request = reader.next_request()
        assert (request.id, request.epoch, list(request.partitions)) == (0, FULL, [A0, A1])
        reader.session.on_response(response(A0, A1, session=session))
    reader.remove(A0)
    request = reader.next_request()
    assert (list(request.partitions), request_of(reader.session, request, 17).topics[0].partitions[0].partition) == ([A1], 1)


@pytest.mark.parametrize(("session_id", "next_id"), [(0, 0), (78, SESSION)])
def test_C07_a_response_without_or_with_another_session_id_begins_another_session(reader: Reader, session_id: int, next_id: int) -> None:
    reader.begins(A0, A1)
    reader.next_request()
    reader.session.on_response(response(A0, session=session_id))
    request = reader.next_request()
    assert (request.id, request.epoch, list(request.partitions)) == (next_id, FULL, [A0, A1])


@pytest.mark.parametrize(("code", "next_id"), [(NOT_FOUND, 0), (INVALID_EPOCH, SESSION), (TOPIC_ID_ERROR, SESSION)])
def test_C07_after_a_session_error_a_full_request_begins_a_new_session_and_ends_one_that_may_be_alive(
        reader: Reader, code: int, next_id: int) -> None:
    reader.begins(A0, A1)
    reader.add(A0, offset=1)
    reader.next_request()
    assert reader.session.on_error(error_for(code))
    request = reader.next_request()
    assert (request.id, request.epoch, dict(request.partitions)) == (next_id, FULL, {A1: partition_request(A1), A0: partition_request(A0, 1)})


def test_C07_another_error_does_not_change_the_session(reader: Reader) -> None:
    reader.begins(A0)
    reader.next_request()
    assert not reader.session.on_error(error_for(OTHER))
    assert (reader.session.id, reader.session.epoch) == (SESSION, 1)


def test_C07_when_it_is_unknown_what_the_broker_processed_a_new_session_ends_the_old_one(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.remove(A0)
    reader.next_request()
    reader.session.renew()
    reader.add(B0)
    reader.remove(A1)
    request = reader.next_request()
    assert (request.id, request.epoch, list(request.partitions), request.forgets(True)) == (SESSION, FULL, [B0], [])


def test_C07_the_closing_request_has_the_final_epoch_and_names_nothing(reader: Reader) -> None:
    assert reader.session.closing_request() is None
    reader.begins(A0)
    request = reader.session.closing_request()
    assert request is not None
    body = request_of(reader.session, request, 17)
    assert (body.session_id, body.session_epoch, body.topics, body.forgotten_topics_data) == (SESSION, FINAL, (), ())
    assert FINAL == -1


def test_the_repr_shows_id_epoch_and_changes(reader: Reader) -> None:
    reader.begins(A0, A1)
    reader.add(B0)
    reader.remove(A1)
    assert repr(reader.session) == "<Session 77 epoch 1: 2 partitions, 1 to add or change, 1 to forget>"


def test_topics_without_partitions_are_not_remembered(reader: Reader) -> None:
    reader.begins(A0)
    for number in range(5):
        tp = TopicPartition(f"t{number}", 0)
        reader.add(tp)
        reader.next_request()
        reader.session.on_response(response())
        reader.remove(tp)
    reader.next_request()
    assert reader.session.on_response(response(TopicPartition("t3", 0))) == []
    assert list(reader.session.partitions) == [A0]
