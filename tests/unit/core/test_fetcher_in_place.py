"""A usual response to a fetch that is handled without a turn, and what is left to the turns.

`test_fetcher_any_events.py` mixes both ways under any events.
"""
from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from pyclient.buffers.fetch_buffer import Chunk
from pyclient.core.fetching.empty_responses import AT_ONCE
from pyclient.records import TopicPartition
from tests.unit.core.fetching import A0, A1, A2, B0, FORBIDDEN, MEMORY, PARTITION_BYTES, Fetching, batch, gives, marker, offsets_of, repeat
from tests.unit.core.world import Sent, topic

SESSION = 7


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def waits(fetching: Fetching, *partitions: Any) -> Sent:
    """The session of node 1 has begun, and its next fetch is under way."""
    fetching.reads(*(partitions or (A0, A1)))
    gives(fetching.fetches(), dict.fromkeys(partitions or (A0, A1), b""), session_id=SESSION)
    return fetching.fetches()


def test_the_records_are_returned_and_what_follows_is_fetched(fetching: Fetching) -> None:
    sent = waits(fetching)
    for offset in range(0, 30, 3):
        following = repeat(fetching, sent, A0, batch(offset, 3), SESSION)
        assert following is not None
        assert following.body.session_epoch == sent.body.session_epoch + 1
        assert offsets_of(following) == {A0: offset + 3}
        assert fetching.offsets() == [offset, offset + 1, offset + 2]
        sent = following
    assert not fetching.turn()
    assert fetching.fetcher.high_watermark(A0) == 1000


def test_it_is_as_if_the_turns_had_done_it() -> None:
    """Two fetchers, one answered in place: whatever follows, each sends the same, and returns the same."""
    in_place, by_turns = Fetching(), Fetching()
    there, here = waits(in_place), waits(by_turns)
    for offset, tp in [(0, A0), (0, A1), (None, A0), (1, A1), (None, A0), (None, A0), (1, A0), (2, A0)]:
        for each in in_place, by_turns:
            each.world.after(0.3)
        records = b"" if offset is None else batch(offset, leader_epoch=offset)
        following = repeat(in_place, there, tp, records, SESSION)
        gives(here, {tp: {"records": records, "high_watermark": 1000}} if records else {}, session_id=SESSION)
        assert following is not None
        there, here = following, by_turns.fetches()
        assert there.body == here.body
        assert (there.request.timeout, there.request.held) == (here.request.timeout, here.request.held)
        assert in_place.values() == by_turns.values()
        assert in_place.fetcher.high_watermark(tp) == by_turns.fetcher.high_watermark(tp) == 1000
        assert in_place.fetcher.fetches.reserved == by_turns.fetcher.fetches.reserved
    gives(there, {A0: FORBIDDEN}, session_id=SESSION)
    gives(here, {A0: FORBIDDEN}, session_id=SESSION)
    assert str(in_place.raises()) == str(by_turns.raises())
    assert [each.body for each in in_place.turn()] == [each.body for each in by_turns.turn()]


def chunk(fetching: Fetching) -> Chunk:
    position = fetching.fetcher.positions[A0]
    return Chunk(A0, position.generation, 0, [], 0, 10)


LEFT: dict[str, Callable[[Fetching], object]] = {
    "another partition was paused": lambda each: each.fetcher.pause([A1]),
    "another partition was sought": lambda each: each.fetcher.seek(A1, 9),
    "the partition was sought": lambda each: each.fetcher.seek(A0, 0),
    "a partition was given up": lambda each: each.fetcher.assign([A0], each.world.now),
    "a partition was added": lambda each: each.reads(A0, A1, A2),
    "a leader has moved": lambda each: each.knows(topic("a", 1, 3, 2, epoch=5), topic("b", 2)),
    "data of the partition is buffered": lambda each: each.buffer.put(chunk(each)),
    "the consumer closes": lambda each: list(each.fetcher.session_close.requests(lambda node, use: 1)),
    "the buffer is nearly full": lambda each: setattr(each.fetcher.fetches, "reserved", 2 * MEMORY),
}


@pytest.mark.parametrize("change", LEFT)
def test_after_a_change_the_response_is_left_to_a_turn(fetching: Fetching, change: str) -> None:
    sent = waits(fetching)
    LEFT[change](fetching)
    assert repeat(fetching, sent, A0, batch(0), SESSION) is None


def test_a_partition_that_is_read_from_a_near_replica_is_left_to_a_turn(fetching: Fetching) -> None:
    """Turns look whether its time is over."""
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 3}, A1: b""}, session_id=SESSION)
    leader, replica = fetching.turn()
    gives(replica, {A0: b""}, session_id=SESSION + 1)
    replica = fetching.fetches()
    assert (leader.node, replica.node, leader.body.session_epoch, replica.body.session_epoch) == (1, 3, 1, 1)
    assert repeat(fetching, replica, A0, batch(0), SESSION + 1) is None


def test_a_partition_that_was_full_and_is_drained_is_left_to_a_turn(fetching: Fetching) -> None:
    """It has to be named again."""
    sent = waits(fetching)
    for offset in (0, 1):
        gives(sent, {A1: batch(offset)}, session_id=SESSION)
        sent = fetching.fetches()
    gives(sent, {A0: batch(0)}, session_id=SESSION)
    sent = fetching.fetches()
    assert len(fetching.values()) == 3
    assert repeat(fetching, sent, A0, batch(1), SESSION) is None
    gives(sent, {A0: batch(1)}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A0: 2, A1: 2}


def test_a_partition_that_is_drained_while_a_response_is_handled_is_named_again(fetching: Fetching) -> None:
    """By the user's thread, while the loop's own handles the response."""
    sent = waits(fetching)
    for offset in (0, 1):
        gives(sent, {A1: batch(offset)}, session_id=SESSION)
        sent = fetching.fetches()
    fetching.buffer.on_data = fetching.values
    following = repeat(fetching, sent, A0, batch(0), SESSION)
    assert following is not None
    gives(following, {}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A1: 2}


def session_of(node: int) -> int:
    return SESSION + node


def waits_at_two_nodes(fetching: Fetching) -> dict[int, Sent]:
    """The sessions of A0 at node 1 and A2 at node 2 have begun, and the next fetch of each is under way."""
    fetching.reads(A0, A2)
    for sent, tp in zip(fetching.turn(), (A0, A2), strict=True):
        gives(sent, {tp: b""}, session_id=session_of(sent.node))
    return {sent.node: sent for sent in fetching.turn()}


def test_a_node_of_which_nothing_is_read_any_more_does_not_count(fetching: Fetching) -> None:
    sent = waits_at_two_nodes(fetching)
    assert repeat(fetching, sent[1], A0, b"", session_of(1)) is None, "it came early"
    fetching.fetcher.pause([A2])
    assert repeat(fetching, sent[1], A0, batch(0), session_of(1)) is None, "the other fetch is under way"
    gives(sent[2], {}, session_id=session_of(2))
    assert not fetching.turn()
    following = repeat(fetching, sent[1], A0, batch(0), session_of(1))
    assert following is not None
    fetching.fetcher.resume([A2])
    assert repeat(fetching, following, A0, batch(1), session_of(1)) is None


def test_the_only_partition_of_a_node_that_was_full_and_is_drained_is_left_to_a_turn(fetching: Fetching) -> None:
    sent = waits_at_two_nodes(fetching)
    for offset in (0, 1):
        gives(sent[2], {A2: batch(offset)}, session_id=session_of(2))
        sent.update({each.node: each for each in fetching.turn()})
    assert fetching.offsets() == [0, 1]
    assert repeat(fetching, sent[1], A0, batch(0), session_of(1)) is None
    assert [offsets_of(each) for each in fetching.turn()] == [{A2: 2}]


def test_what_was_served_stands_last_when_all_partitions_are_requested_again(fetching: Fetching) -> None:
    following = repeat(fetching, waits(fetching), A0, batch(0), SESSION)
    assert following is not None
    following.is_lost()
    fetching.world.after(64.0)
    assert list(offsets_of(fetching.fetches()).items()) == [(A1, 0), (A0, 1)]


def test_a_fetch_that_begins_a_session_is_left_to_a_turn(fetching: Fetching) -> None:
    fetching.reads(A0)
    assert repeat(fetching, fetching.fetches(), A0, batch(0), SESSION) is None


def test_a_broker_without_room_for_a_session_is_left_to_a_turn(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: b""}, session_id=0)
    assert repeat(fetching, fetching.fetches(), A0, batch(0), 0) is None


UNUSUAL: dict[str, tuple[TopicPartition, bytes, int]] = {
    "another session": (A0, batch(0), SESSION + 1),
    "a partition that was not requested": (A2, batch(0), SESSION),
    "a topic that was not requested": (B0, batch(0), SESSION),
    "records before the position": (A0, batch(0, 3), SESSION),
    "records before the position, and after": (A0, batch(0) + batch(5), SESSION),
    "a batch that is cut off": (A0, batch(5)[:-1], SESSION),
    "a control batch": (A0, marker(5, 1, 0), SESSION),
    "a control batch behind records": (A0, batch(5) + marker(6, 1, 0), SESSION),
    "damage": (A0, batch(5)[:16] + b"\7" + batch(5)[17:], SESSION),
}


@pytest.mark.parametrize("case", UNUSUAL)
def test_an_unusual_response_changes_nothing_in_place(fetching: Fetching, case: str) -> None:
    tp, records, session = UNUSUAL[case]
    fetching.reads(A0, A1, at=5)
    gives(fetching.fetches(), {A0: b"", A1: b""}, session_id=SESSION)
    sent = fetching.fetches()
    assert repeat(fetching, sent, tp, records, session) is None
    gives(sent, {A0: batch(5, 2)}, session_id=SESSION)
    assert offsets_of(fetching.fetches()) == {A0: 7}
    assert fetching.offsets() == [5, 6]


def test_C27_early_responses_without_data_are_left_to_turns_which_pause(fetching: Fetching) -> None:
    sent = waits(fetching)
    fetching.world.after(0.24)
    assert repeat(fetching, sent, A0, b"", SESSION) is None
    fetching.world.after(0.02)
    assert repeat(fetching, sent, A0, b"", SESSION) is not None


def test_C27_records_that_come_in_place_end_a_row_of_early_responses(fetching: Fetching) -> None:
    sent = waits(fetching)
    for _ in range(AT_ONCE - 1):
        gives(sent, {}, session_id=SESSION)
        sent = fetching.fetches()
    following = repeat(fetching, sent, A0, batch(0), SESSION)
    assert following is not None
    gives(following, {}, session_id=SESSION)
    assert fetching.turn(), "else the node would have a pause now"


def test_partitions_of_the_same_number_are_not_mistaken_for_each_other(fetching: Fetching) -> None:
    fetching.knows(topic("a", 1), topic("b", 1))
    sent = waits(fetching, A0, B0)
    for offset in range(3):
        for tp in (A0, B0):
            following = repeat(fetching, sent, tp, batch(offset), SESSION)
            assert following is not None
            assert offsets_of(following) == {tp: offset + 1}
            assert fetching.offsets() == [offset]
            sent = following


def test_the_room_of_a_fetch_in_place_is_given_back() -> None:
    fetching = Fetching(buffer_memory=2 * PARTITION_BYTES + 300)
    sent = waits(fetching, A0)
    for offset in range(50):
        following = repeat(fetching, sent, A0, batch(offset), SESSION)
        assert following is not None
        assert following.body.max_bytes == 2 * PARTITION_BYTES + 300 - fetching.buffer.bytes
        assert fetching.offsets() == [offset]
        sent = following
    assert fetching.fetcher.fetches.reserved == PARTITION_BYTES


def test_too_little_room_is_left_to_a_turn() -> None:
    fetching = Fetching(buffer_memory=PARTITION_BYTES)
    assert repeat(fetching, waits(fetching, A0), A0, batch(0), SESSION) is None
