"""What the fetcher does about errors, leaders that move, and damage (C06, C10, C12, C13, M03)."""
from __future__ import annotations

from uuid import UUID

import pytest

from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.core.fetching.positions import Phase
from pyclient.errors import (
    DisconnectError, CorruptRecordError, OffsetOutOfRangeError, RecordTooLargeError,
    UnsupportedVersionError, error_for,
)
from pyclient.records import TopicPartition
from tests.unit.core.fetching import (
    A0, A1, A2, FORBIDDEN, CORRUPT, FENCED_EPOCH, NOT_LEADER, OUT_OF_RANGE, Fetching, offsets_of, batch, gives, settle_metadata,
)
from tests.unit.core.world import brokers, topic, view


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def test_M03_a_topic_that_is_granted_after_it_was_refused_is_read(fetching: Fetching) -> None:
    granted = TopicPartition("c", 0)
    fetching.fetcher.assign([granted], fetching.world.now)
    (metadata,) = fetching.world.turn(fetching.metadata)
    metadata.reply(**view(topic("c", error=FORBIDDEN)))
    assert fetching.turn() == []
    assert type(fetching.raises()) is type(error_for(FORBIDDEN))
    fetching.world.after(4.0)
    (metadata,) = fetching.world.turn(fetching.metadata)
    metadata.reply(**view(topic("c", 1)))
    assert fetching.looks_up()[1] == {granted: EARLIEST}


UNKNOWN_ID = 100

# --- errors ----------------------------------------------------------------------------------------------------------

RETRIED = [NOT_LEADER, 9, 56, FENCED_EPOCH, 78, 3, 100, 103, 75, -1]
"""Leader moved, replica or storage gone, epoch fenced or unknown, offset not yet there, topic unknown, any other."""


@pytest.mark.parametrize("code", RETRIED)
def test_C13_an_error_that_may_pass_is_tried_again_ever_later_and_not_raised(fetching: Fetching, code: int) -> None:
    fetching.reads(A0)
    for pause in (1, 2, 4):
        gives(fetching.fetches(), {A0: code})
        assert fetching.turn() == []
        assert fetching.fetcher.next_deadline() == fetching.world.now + pause
        fetching.world.after(pause)
    gives(fetching.fetches(), {A0: batch(0)})
    assert fetching.values() == [(A0, 0, b"0")]
    gives(fetching.fetches(), {A0: code})
    assert fetching.fetcher.next_deadline() == fetching.world.now + 1


@pytest.mark.parametrize("code", [NOT_LEADER, 56, -1])
def test_C13_a_new_view_of_the_cluster_does_not_end_the_rest_of_a_failed_partition(fetching: Fetching, code: int) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: code})
    for leader in (3, 2):
        fetching.knows(topic("a", 1, 1, 2), topic("b", leader), nodes=(1, 2, 3, leader + 2))
        assert fetching.turn() == []
        assert fetching.fetcher.next_deadline() == fetching.world.now + 1
    fetching.world.after(1.0)
    gives(fetching.fetches(), {A0: batch(0)})


@pytest.mark.parametrize("code", [NOT_LEADER, 9, 56, FENCED_EPOCH, 78, 3, 100, 103])
def test_C13_an_error_that_says_the_leader_moved_refreshes_metadata_and_fetches_from_the_new_leader(fetching: Fetching, code: int) -> None:
    fetching.reads(A0)
    settle_metadata(fetching)
    gives(fetching.fetches(), {A0: code})
    fetching.world.after(64.0)
    (metadata,) = fetching.world.turn(fetching.metadata)
    metadata.reply(**view(topic("a", 3, 1, 2, epoch=1), topic("b", 2)))
    assert fetching.fetches().node == 3


@pytest.mark.parametrize("code", [FORBIDDEN, CORRUPT])
def test_C13_authorization_and_corruption_are_raised_and_stop_no_other_partition(fetching: Fetching, code: int) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: code, A1: batch(0)})
    sent = fetching.fetches()
    assert offsets_of(sent) == {A1: 1}
    error = fetching.raises()
    assert isinstance(error, type(error_for(code)))
    assert "a-0" in str(error)
    assert fetching.values() == [(A1, 0, b"0")]
    fetching.world.after(1.0)
    assert fetching.turn() == []
    gives(sent, {A1: b""})
    assert offsets_of(fetching.fetches()) == {A0: 0, A1: 1}  # who is granted it meanwhile reads on


@pytest.mark.parametrize("how", ["lost", "not sent", "of the whole request"])
def test_C13_a_fetch_that_failed_is_repeated_after_a_pause(fetching: Fetching, how: str) -> None:
    fetching.reads(A0)
    sent = fetching.fetches()
    if how == "lost":
        sent.is_lost()
    elif how == "not sent":
        sent.is_not_sent(DisconnectError("gone"))
    else:
        gives(sent, {}, error_code=-1)
    assert fetching.turn() == []
    assert fetching.values() == []
    fetching.world.after(1.0)
    assert offsets_of(fetching.fetches()) == {A0: 0}


def test_M15_a_broker_without_a_common_version_is_an_error_of_its_partitions(fetching: Fetching) -> None:
    fetching.reads(A0)
    fetching.fetches().is_not_sent(UnsupportedVersionError("too old"))
    assert isinstance(fetching.raises(), UnsupportedVersionError)


def test_C12_a_response_that_names_a_newer_leader_moves_the_fetch_there_at_once(fetching: Fetching) -> None:
    fetching.knows(topic("a", 1, 1, 2, epoch=4), topic("b", 2))
    fetching.reads(A0)
    hint = {"error_code": NOT_LEADER, "current_leader": {"leader_id": 9, "leader_epoch": 5}}
    gives(fetching.fetches(), {A0: hint}, node_endpoints=brokers(9))
    fetching.world.nodes.add(9)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent), sent.body.topics[0].partitions[0].current_leader_epoch) == (9, {A0: 0}, 5)


@pytest.mark.parametrize(("leader", "epoch"), [(2, 4), (2, 3), (8, 5), (-1, -1)])
def test_C12_a_hint_that_is_not_newer_or_without_an_address_is_ignored(fetching: Fetching, leader: int, epoch: int) -> None:
    fetching.knows(topic("a", 1, 1, 2, epoch=4), topic("b", 2))
    fetching.reads(A0)
    hint = {"error_code": NOT_LEADER, "current_leader": {"leader_id": leader, "leader_epoch": epoch}}
    gives(fetching.fetches(), {A0: hint})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    assert fetching.fetches().node == 1


def test_a_partition_follows_its_leader_that_metadata_names(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0)})
    fetching.knows(topic("a", 3, 1, 2, epoch=1), topic("b", 2))
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (3, {A0: 1})


def test_a_partition_without_a_leader_waits_for_one_and_holds_up_no_other(fetching: Fetching) -> None:
    fetching.knows(topic("a", -1, 1, 2, epoch=1), topic("b", 2))
    fetching.reads(A0, A1)
    assert offsets_of(fetching.fetches()) == {A1: 0}
    assert fetching.turn() == []
    fetching.knows(topic("a", 2, 1, 2, epoch=2), topic("b", 2))
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (2, {A0: 0})


def test_a_leader_that_is_not_ready_holds_up_no_other(fetching: Fetching) -> None:
    fetching.world.nodes = {2}
    fetching.reads(A0, A2)
    assert offsets_of(fetching.fetches()) == {A2: 0}
    fetching.world.nodes = {1}
    assert offsets_of(fetching.fetches()) == {A0: 0}


def test_M03_a_topic_error_that_waiting_cannot_cure_is_raised_once_for_each_response_that_has_it() -> None:
    fetching = Fetching()
    fetching.reads(TopicPartition("c", 0))
    assert fetching.turn() == []
    for _ in range(2):
        fetching.knows(topic("a", 1), topic("c", error=FORBIDDEN))
        fetching.turn()
        assert type(fetching.raises()) is type(error_for(FORBIDDEN))
        assert fetching.values() == []
    fetching.knows(topic("a", 1), topic("c", 1))
    (sent,) = fetching.turn()
    assert sent.node == 1


# --- out of range, damage --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [EARLIEST, LATEST, 1234])
def test_C10_a_position_the_log_does_not_hold_is_reset_by_the_policy(policy: int) -> None:
    fetching = Fetching(reset=policy)
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    sent, times = fetching.looks_up()
    assert times == {A0: policy}
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 80, "timestamp": -1}]}])
    fetching.turn()
    fetching.world.after(1.0)
    assert [offsets_of(each) for each in fetching.world.in_flight or fetching.turn()] == [{A0: 80}]


@pytest.mark.parametrize(("found", "distance"), [(80, "offset 80: 30 records ahead, which skips"), (51, "offset 51: 1 record ahead"), (0, "offset 0: 50 records back")])
def test_C10_a_reset_is_logged_with_from_to_why_and_how_many_records_that_is(
        fetching: Fetching, caplog: pytest.LogCaptureFixture, found: int, distance: str) -> None:
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    fetching.found(A0, found)
    (logged,) = caplog.records
    assert logged.levelname == "WARNING"
    assert "a-0: offset 50 is not in the log, so auto_offset_reset continues" in logged.getMessage()
    assert distance in logged.getMessage()


def test_C10_a_position_that_the_user_asked_for_is_no_reset_to_warn_of(fetching: Fetching, caplog: pytest.LogCaptureFixture) -> None:
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    fetching.fetcher.reset(A0, LATEST, fetching.world.now)
    fetching.found(A0, 80)
    assert caplog.records == []


NEW_ID = UUID(int=5)


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_C15_a_position_means_nothing_in_a_recreated_topic_and_is_reset_by_the_policy(policy: int, caplog: pytest.LogCaptureFixture) -> None:
    fetching = Fetching(reset=policy)
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0, 10)})
    gives(fetching.fetches(), {A0: UNKNOWN_ID})
    fetching.knows(topic("a", 1, 1, 2, id=NEW_ID), topic("b", 2))
    fetching.world.after(1.0)
    sent, times = fetching.looks_up()
    assert times == {A0: policy}
    assert fetching.offsets() == list(range(10))  # what was read of the old one
    sent.reply(topics=[{"name": "a", "partitions": [{"partition_index": 0, "offset": 3, "timestamp": -1}]}])
    fetching.world.after(2.0)
    (fetch,) = fetching.turn()
    assert [(each.topic_id, part.fetch_offset) for each in fetch.body.topics for part in each.partitions] == [(NEW_ID, 3)]
    assert "topic 'a' was deleted and created again" in caplog.text


def test_C15_without_a_policy_a_recreated_topic_is_raised_until_a_seek() -> None:
    fetching = Fetching(reset=None)
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: UNKNOWN_ID})
    fetching.knows(topic("a", 1, 1, 2, id=NEW_ID), topic("b", 2))
    fetching.world.after(1.0)
    assert fetching.turn() == []
    for _ in range(2):
        error = fetching.raises()
        assert isinstance(error, OffsetOutOfRangeError)
        assert "created again" in str(error)
    fetching.fetcher.seek(A0, 0)
    (fetch,) = fetching.turn()
    assert [each.topic_id for each in fetch.body.topics] == [NEW_ID]


def test_C10_records_fetched_before_are_handed_out_first(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0, 2)})
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    fetching.found(A0, 80)
    assert fetching.offsets() == [0, 1]


def test_C10_without_a_policy_it_is_raised_with_the_offset_until_a_seek() -> None:
    fetching = Fetching(reset=None)
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    assert fetching.turn() == []
    for _ in range(2):
        error = fetching.raises()
        assert isinstance(error, OffsetOutOfRangeError)
        assert all(word in str(error) for word in ("50", "a-0", "seek"))
    assert fetching.fetcher.positions[A0].phase is Phase.STUCK
    fetching.fetcher.seek(A0, 60)
    assert fetching.values() == []
    assert offsets_of(fetching.fetches()) == {A0: 60}


def test_C10_an_offset_that_is_refused_again_and_again_is_not_fetched_at_the_networks_speed(fetching: Fetching) -> None:
    fetching.reads(A0, at=50)
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    for pause in (1, 2, 4):
        fetching.found(A0, 50)
        assert fetching.turn() == []
        assert fetching.values() == []
        fetching.world.after(pause)
        gives(fetching.fetches(), {A0: OUT_OF_RANGE})


def test_C06_damaged_data_is_raised_with_its_offset_until_a_seek_after_what_came_before_it(fetching: Fetching) -> None:
    fetching.reads(A0)
    damaged = bytearray(batch(2))
    damaged[16] = 1  # an old format
    gives(fetching.fetches(), {A0: batch(0, 2) + bytes(damaged)})
    gives(fetching.fetches(), {A0: bytes(damaged)})
    assert fetching.turn() == []
    assert fetching.offsets() == [0, 1]
    for _ in range(2):
        error = fetching.raises()
        assert isinstance(error, CorruptRecordError)
        assert all(word in str(error) for word in ("a-0", "offset 2", "seek"))
    assert fetching.turn() == []
    fetching.fetcher.seek(A0, 3)
    assert offsets_of(fetching.fetches()) == {A0: 3}


def test_a_batch_that_does_not_come_whole_is_an_error_and_fetched_ever_more_slowly(fetching: Fetching) -> None:
    fetching.reads(A0)
    for pause in (1, 2, 4):
        gives(fetching.fetches(), {A0: batch(0)[:-1]})
        assert fetching.turn() == []
        error = fetching.raises()
        assert isinstance(error, RecordTooLargeError)
        assert "max_partition_fetch_bytes=1000" in str(error)
        fetching.world.after(pause)


def test_a_batch_cut_off_after_whole_ones_is_fetched_next(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: batch(0) + batch(1, 5)[:-1]})
    assert offsets_of(fetching.fetches()) == {A0: 1}
    assert fetching.offsets() == [0]


def test_data_that_lies_before_the_position_is_not_fetched_at_the_networks_speed(fetching: Fetching) -> None:
    fetching.reads(A0, at=5)
    gives(fetching.fetches(), {A0: batch(0, 5)})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    assert offsets_of(fetching.fetches()) == {A0: 5}


# ---- partitions and topics that were assigned and do not exist ------------------------------------------------------

B1 = TopicPartition("b", 1)
NO_TOPIC = TopicPartition("c", 0)
UNKNOWN_TOPIC = 3


def refreshes(fetching: Fetching, *topics: dict[str, object]) -> None:
    """Metadata is requested now, and the answer is this."""
    (sent,) = fetching.world.turn(fetching.metadata)
    sent.reply(**view(*topics))
    fetching.turn()


def test_C13_an_older_view_does_not_say_that_a_partition_is_missing(fetching: Fetching) -> None:
    (older,) = fetching.world.turn(fetching.metadata)
    fetching.world.after(1.0)
    fetching.reads(B1)
    assert fetching.turn() == []
    older.reply(**view(topic("a", 1, 1, 2), topic("b", 2)))
    assert fetching.turn() == []
    assert fetching.values() == []
    fetching.world.after(1.0)
    (sent,) = fetching.world.turn(fetching.metadata)
    sent.reply(**view(topic("a", 1, 1, 2), topic("b", 2, 2)))
    assert offsets_of(fetching.fetches()) == {B1: 0}
    assert fetching.values() == []


def test_C13_a_fresh_view_without_an_assigned_partition_is_an_error_of_poll(fetching: Fetching) -> None:
    fetching.reads(B1)
    refreshes(fetching, topic("a", 1, 1, 2), topic("b", 2))
    assert "topic 'b' has 1 partition, counted from 0" in str(fetching.raises())


def test_C13_a_missing_partition_is_raised_and_logged_once_and_read_when_it_is_added(fetching: Fetching, caplog: pytest.LogCaptureFixture) -> None:
    fetching.reads(B1)
    refreshes(fetching, topic("a", 1, 1, 2), topic("b", 2))
    assert "b-1 was assigned and does not exist" in str(fetching.raises())
    for _ in range(3):
        fetching.world.after(64.0)
        refreshes(fetching, topic("a", 1, 1, 2), topic("b", 2))
        assert fetching.values() == []
    assert [line.partition(":")[0] for line in caplog.messages] == ["b-1 was assigned and does not exist"]
    assert "b-1 was assigned and does not exist" in str(fetching.fetcher.why_unknown(B1))
    fetching.world.after(64.0)
    (sent,) = fetching.world.turn(fetching.metadata)
    sent.reply(**view(topic("a", 1, 1, 2), topic("b", 2, 2)))
    assert offsets_of(fetching.fetches()) == {B1: 0}
    assert caplog.messages[1:] == ["b-1 exists now, and is read"]
    assert fetching.fetcher.why_unknown(B1) is None


def test_C13_a_missing_partition_that_is_assigned_again_is_raised_again(fetching: Fetching) -> None:
    for _ in range(2):
        fetching.reads(B1)
        refreshes(fetching, topic("a", 1, 1, 2), topic("b", 2))
        assert "b-1 was assigned" in str(fetching.raises())
        fetching.fetcher.remove([B1])
        fetching.world.after(64.0)


def test_C13_an_assigned_topic_that_does_not_exist_is_an_error_of_poll_after_two_seconds(fetching: Fetching) -> None:
    fetching.reads(NO_TOPIC)
    for later in (1.0, 64.0):
        refreshes(fetching, topic("c", error=UNKNOWN_TOPIC))
        assert fetching.values() == []
        fetching.world.after(later)
    refreshes(fetching, topic("c", error=UNKNOWN_TOPIC))
    assert "c-0 was assigned and does not exist: there is no topic 'c'" in str(fetching.raises())
    fetching.world.after(64.0)
    (sent,) = fetching.world.turn(fetching.metadata)
    sent.reply(**view(topic("c", 1)))
    assert fetching.fetches().node == 1


def test_C13_a_topic_that_reading_may_create_is_waited_for(fetching: Fetching) -> None:
    fetching.metadata.creates_topics = True
    fetching.reads(NO_TOPIC)
    for _ in range(8):
        refreshes(fetching, topic("c", error=UNKNOWN_TOPIC))
        assert fetching.values() == []
        fetching.world.after(64.0)
