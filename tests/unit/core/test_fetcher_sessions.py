"""Fetch sessions of the fetcher: changes are sent, failed sessions begin again, all are closed (C02, C07, C08, C14)."""
from __future__ import annotations

from uuid import UUID

import attrs
import pytest

from pyclient.codec.apis import Api
from pyclient.core.fetching.sessions import FINAL, FULL
from pyclient.core.manager import Use
from pyclient.errors import DisconnectError
from pyclient.records import TopicPartition
from tests.unit.core.fetching import A0, A1, A2, B0, NOT_LEADER, OUT_OF_RANGE, Fetching, offsets_of, batch, gives, settle_metadata
from tests.unit.core.world import Sent, answer, topic, topic_id, view

SESSION = 77
NOT_FOUND, INVALID_EPOCH, TOPIC_ID_ERROR = 70, 71, 106
NEW_ID = UUID(int=5)


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def begins(fetching: Fetching, *partitions: TopicPartition) -> None:
    """A session with these; nothing came yet."""
    fetching.reads(*partitions)
    gives(fetching.fetches(), dict.fromkeys(partitions, b""), session_id=SESSION)
    gives(fetching.fetches(), {}, session_id=SESSION)


def of_session(sent: Sent) -> tuple[int, int]:
    return sent.body.session_id, sent.body.session_epoch


def forgets(sent: Sent) -> list[TopicPartition]:
    names = {topic_id(name): name for name in "ab"}
    return [TopicPartition(names[each.topic_id], number) for each in sent.body.forgotten_topics_data for number in each.partitions]


# --- what is sent ----------------------------------------------------------------------------------------------------


def test_C07_after_the_first_fetch_only_partitions_that_advanced_are_sent(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent)) == ((0, FULL), {A0: 0, A1: 0})
    gives(sent, {A0: batch(0), A1: b""}, session_id=SESSION)
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent), forgets(sent)) == ((SESSION, 1), {A0: 1}, [])
    gives(sent, {}, session_id=SESSION)
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent), forgets(sent)) == ((SESSION, 2), {}, [])
    gives(sent, {A1: batch(0)}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A1: 1}


def test_C02_each_node_has_a_session_of_its_own(fetching: Fetching) -> None:
    fetching.reads(A0, A2)
    first, second = fetching.turn()
    gives(first, {A0: b""}, session_id=1)
    gives(second, {A2: b""}, session_id=2)
    assert {each.node: of_session(each) for each in fetching.turn()} == {1: (1, 1), 2: (2, 1)}


def test_C02_what_waits_for_the_user_leaves_the_session_only_when_it_is_two_answers_deep_and_others_are_read(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    gives(fetching.fetches(), {A0: batch(0)}, session_id=SESSION)
    sent = fetching.fetches()
    assert (offsets_of(sent), forgets(sent)) == ({A0: 1}, [])
    gives(sent, {A0: batch(1)}, session_id=SESSION)
    sent = fetching.fetches()
    assert (offsets_of(sent), forgets(sent)) == ({}, [A0])
    fetching.values()
    assert fetching.turn() == []
    gives(sent, {}, session_id=SESSION)
    sent = fetching.fetches()
    assert (offsets_of(sent), forgets(sent)) == ({A0: 2}, [])


def test_C02_a_session_whose_only_partition_waits_for_the_user_rests_and_goes_on(fetching: Fetching) -> None:
    begins(fetching, A0)
    gives(fetching.fetches(), {A0: batch(0)}, session_id=SESSION)
    gives(fetching.fetches(), {A0: batch(1)}, session_id=SESSION)
    assert fetching.turn() == []
    fetching.values()
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent), forgets(sent)) == ((SESSION, 4), {A0: 2}, [])


@pytest.mark.parametrize("how", ["pause", "unassign", "reset"])
def test_C07_what_is_not_to_be_read_now_is_forgotten(fetching: Fetching, how: str) -> None:
    begins(fetching, A0, A1)
    if how == "pause":
        fetching.fetcher.pause([A0])
    elif how == "unassign":
        fetching.fetcher.assign([A1], fetching.world.now)
    else:
        fetching.fetcher.reset(A0, 1234, fetching.world.now)
    sent = next(each for each in fetching.turn() if each.request.use is Use.FETCH)
    assert (offsets_of(sent), forgets(sent)) == ({}, [A0])
    gives(sent, {}, session_id=SESSION)
    if how == "pause":
        fetching.fetcher.resume([A0])
    elif how == "unassign":
        fetching.reads(A1, A0)
    else:
        fetching.fetcher.seek(A0, 0)
    sent = next(each for each in fetching.turn() if each.request.use is Use.FETCH)
    assert offsets_of(sent)[A0] == 0
    assert forgets(sent) == []


def test_C03_a_seek_during_a_fetch_is_sent_next_and_the_response_is_dropped(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    late = fetching.fetches()
    fetching.fetcher.seek(A0, 40)
    assert fetching.turn() == []
    gives(late, {A0: batch(0), A1: batch(0)}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A0: 40, A1: 1}
    assert [tp for tp, _, _ in fetching.values()] == [A1]


def test_C13_a_partition_with_an_error_rests_outside_of_the_session(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    gives(fetching.fetches(), {A0: NOT_LEADER}, session_id=SESSION)
    sent = fetching.fetches()
    assert (offsets_of(sent), forgets(sent)) == ({}, [A0])
    fetching.world.after(1.0)
    gives(sent, {}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A0: 0}


def test_C10_a_position_out_of_range_leaves_the_session_until_it_is_found(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE}, session_id=SESSION)
    fetch, lookup = fetching.turn()
    assert forgets(fetch) == [A0]
    lookup.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 80, "timestamp": -1}]}])
    fetching.world.after(1.0)
    gives(fetch, {}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A0: 80}


def test_a_new_epoch_of_the_same_leader_is_sent(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    fetching.knows(topic("a", 1, 1, 2, epoch=6), topic("b", 2))
    sent = fetching.fetches()
    assert offsets_of(sent) == {A0: 0, A1: 0}
    assert {part.current_leader_epoch for each in sent.body.topics for part in each.partitions} == {6}
    gives(sent, {}, session_id=SESSION)
    fetching.knows(topic("a", 1, 1, 2, epoch=6), topic("b", 2))
    assert offsets_of(fetching.fetches()) == {}


def test_a_partition_without_a_leader_is_forgotten_and_sent_again_when_it_has_one(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    fetching.knows(topic("a", -1, 1, 2), topic("b", 2))
    sent = fetching.fetches()
    assert (offsets_of(sent), forgets(sent)) == ({}, [A0])
    gives(sent, {}, session_id=SESSION)
    fetching.knows(topic("a", 1, 1, 2), topic("b", 2))
    assert offsets_of(fetching.fetches()) == {A0: 0}


@pytest.mark.parametrize("epoch", [0, 1])
def test_a_partition_whose_leader_moves_is_forgotten_by_the_old_one_and_sent_to_the_new_one(fetching: Fetching, epoch: int) -> None:
    begins(fetching, A0, A1)
    fetching.knows(topic("a", 3, 1, 2, epoch=epoch), topic("b", 2))
    sent = {each.node: each for each in fetching.turn()}
    assert (offsets_of(sent[1]), forgets(sent[1])) == ({A1: 0} if epoch else {}, [A0])
    assert (of_session(sent[3]), offsets_of(sent[3])) == ((0, FULL), {A0: 0})


def test_C02_a_partition_whose_leader_moves_during_a_fetch_waits_for_the_response(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    old = fetching.fetches()
    fetching.knows(topic("a", 3, 1, 2, epoch=1), topic("b", 2))
    assert fetching.turn() == []
    assert set(fetching.fetcher.in_flight) == {A0, A1}
    gives(old, {A0: batch(0)}, session_id=SESSION)
    sent = {each.node: each for each in fetching.turn()}
    assert offsets_of(sent[3]) == {A0: 1}
    assert forgets(sent[1]) == [A0]


def test_C02_a_partition_not_yet_requested_of_the_old_leader_does_not_wait_for_it(fetching: Fetching) -> None:
    begins(fetching, A0)
    fetching.fetches()
    fetching.reads(A0, A1)
    assert fetching.turn() == []
    fetching.knows(topic("a", 1, 3, 2, epoch=1), topic("b", 2))
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (3, {A1: 0})


@pytest.mark.parametrize("ends", ["given up", "paused", "back"])
def test_C02_what_waits_for_an_answer_of_its_old_leader_may_be_wanted_otherwise_by_then(fetching: Fetching, ends: str) -> None:
    begins(fetching, A0, A1)
    old = fetching.fetches()
    fetching.knows(topic("a", 3, 1, 2, epoch=1), topic("b", 2))
    fetching.turn()
    if ends == "given up":
        fetching.fetcher.assign([A1], fetching.world.now)
    elif ends == "paused":
        fetching.fetcher.pause([A0])
    else:
        fetching.knows(topic("a", 1, 1, 2, epoch=2), topic("b", 2))
        fetching.turn()
    gives(old, {}, session_id=SESSION)
    sent = fetching.fetches()
    assert sent.node == 1
    assert (offsets_of(sent), forgets(sent)) == (({A0: 0, A1: 0}, []) if ends == "back" else ({A1: 0}, [A0]))


def test_C15_a_recreated_topic_leaves_the_session_under_its_old_id_and_comes_back_under_the_new_one(fetching: Fetching) -> None:
    fetching.knows(topic("a", 2, 1, 2), topic("b", 1))
    begins(fetching, A1, B0)
    fetching.knows(topic("a", 2, 1, 2, id=NEW_ID), topic("b", 1))
    fetch, lookup = fetching.turn()
    assert (offsets_of(fetch), forgets(fetch)) == ({}, [A1])
    lookup.reply(topics=[{"name": "a", "partitions": [{"partition_index": 1, "offset": 3, "timestamp": -1}]}])
    gives(fetch, {}, session_id=SESSION)
    fetching.world.after(2.0)
    sent = fetching.fetches()
    assert [(each.topic_id, part.fetch_offset) for each in sent.body.topics for part in each.partitions] == [(NEW_ID, 3)]


def test_C08_a_topic_without_an_id_ends_the_session_by_id(fetching: Fetching) -> None:
    begins(fetching, A0)
    known = fetching.metadata.cluster
    fetching.metadata.hint(attrs.evolve(known, topics={"a": known.topics["a"]}).updated(answer(Api.METADATA, 9, **view(topic("b", 1)))))
    fetching.reads(A0, B0)
    sent = fetching.fetches()
    assert (sent.version, of_session(sent), offsets_of(sent)) == (12, (SESSION, FULL), {A0: 0, B0: 0})


# --- what fails ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("code", "next_id"), [(NOT_FOUND, 0), (INVALID_EPOCH, SESSION), (TOPIC_ID_ERROR, SESSION)])
def test_C07_after_a_session_error_a_full_request_follows_at_once_and_nothing_is_raised(fetching: Fetching, code: int, next_id: int) -> None:
    begins(fetching, A0, A1)
    settle_metadata(fetching)
    gives(fetching.fetches(), {}, error_code=code)
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent)) == ((next_id, FULL), {A0: 0, A1: 0})
    gives(sent, {}, error_code=code)  # of a request that begins a session: not again at once
    assert fetching.turn() == []
    assert fetching.fetcher.next_deadline() == fetching.world.now + 1
    fetching.world.after(1.0)
    assert offsets_of(fetching.fetches()) == {A0: 0, A1: 0}
    assert fetching.values() == []


@pytest.mark.parametrize("how", ["lost", "not sent", "of the whole request"])
def test_C07_after_an_unknown_outcome_a_new_session_begins_and_ends_the_old_one(fetching: Fetching, how: str) -> None:
    begins(fetching, A0, A1)
    sent = fetching.fetches()
    if how == "lost":
        sent.is_lost()
    elif how == "not sent":
        sent.is_not_sent(DisconnectError("gone"))
    else:
        gives(sent, {}, error_code=-1)
    assert fetching.turn() == []
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent)) == ((SESSION, FULL), {A0: 0, A1: 0})


def test_C07_data_beside_an_unknown_partition_is_used_and_a_new_session_begins(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    gives(fetching.fetches(), {A0: batch(0), B0: batch(0)}, session_id=SESSION)
    assert [tp for tp, _, _ in fetching.values()] == [A0]
    sent = fetching.fetches()
    assert (of_session(sent), offsets_of(sent)) == ((SESSION, FULL), {A1: 0, A0: 1})


def test_C07_a_broker_without_room_gets_full_requests_with_unserved_partitions_first(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: batch(0), A1: b""})
    sent = fetching.fetches()
    assert (of_session(sent), list(offsets_of(sent).items())) == ((0, FULL), [(A1, 0), (A0, 1)])


# --- memory ----------------------------------------------------------------------------------------------------------


def test_C14_room_is_kept_for_all_that_a_session_may_send_not_for_what_is_sent() -> None:
    fetching = Fetching(max_bytes=50_000, buffer_memory=4000)
    fetching.reads(A0, A1, A2, B0)
    for _ in range(2):
        for each in fetching.turn():
            gives(each, dict.fromkeys(offsets_of(each), b""), session_id=each.node)
    first, second = fetching.turn()
    assert offsets_of(first) == offsets_of(second) == {}
    assert (first.body.max_bytes, second.body.max_bytes) == (4000, 2000)


# --- the end ---------------------------------------------------------------------------------------------------------


def parts(fetching: Fetching, *uses: Use) -> list[Sent]:
    """What the fetcher says as it ends, with open connections for *uses*."""
    sent = [Sent(fetching.world, request) for request in fetching.fetcher.session_close.requests(lambda node, use: int(use in uses))]
    fetching.world.in_flight += sent
    return sent


def test_C07_the_end_of_the_consumer_ends_its_sessions(fetching: Fetching) -> None:
    fetching.reads(A0, A2)
    for each in fetching.turn():
        gives(each, dict.fromkeys(offsets_of(each), b""), session_id=each.node * 10)
    sent = parts(fetching, Use.FETCH)
    assert [(each.node, each.request.use, of_session(each), offsets_of(each)) for each in sent] == [
        (1, Use.FETCH, (10, FINAL), {}), (2, Use.FETCH, (20, FINAL), {})]
    assert not fetching.fetcher.session_close.answered
    gives(sent[0], {})
    assert not fetching.fetcher.session_close.answered
    sent[1].is_lost()
    assert fetching.fetcher.session_close.answered


def test_C07_behind_a_fetch_that_is_under_way_its_end_would_wait_so_it_takes_another_connection_if_there_is_one(fetching: Fetching) -> None:
    begins(fetching, A0)
    in_flight = fetching.fetches()
    (sent,) = parts(fetching, Use.CONTROL, Use.FETCH)
    assert (sent.request.use, of_session(sent)) == (Use.CONTROL, (SESSION, FINAL))
    gives(sent, {})
    gives(in_flight, {A0: batch(0)}, session_id=SESSION)
    assert fetching.fetcher.session_close.answered


@pytest.mark.parametrize("uses", [(), (Use.FETCH,)])
def test_C07_without_a_free_connection_a_session_is_left_to_the_broker(fetching: Fetching, uses: tuple[Use, ...]) -> None:
    begins(fetching, A0)
    fetching.fetches()
    assert parts(fetching, *uses) == []
    assert fetching.fetcher.session_close.answered


def test_without_a_session_there_is_nothing_to_end(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: b""})
    assert parts(fetching, Use.FETCH) == []
    assert fetching.fetcher.session_close.answered


def test_after_its_end_the_fetcher_asks_for_nothing(fetching: Fetching) -> None:
    begins(fetching, A0, A1)
    gives(fetching.fetches(), {A0: NOT_LEADER}, session_id=SESSION)
    (sent,) = parts(fetching, Use.FETCH)
    assert fetching.turn() == []
    assert fetching.fetcher.next_deadline() is None
    assert parts(fetching, Use.FETCH) == []
    gives(sent, {})
    assert fetching.turn() == []
