"""A log that was cut back after it was read: noticed by its leader epochs, reported, never silently read on (C11)."""
from __future__ import annotations

import logging

import pytest

from pyclient.buffers.collect import collect
from pyclient.core.fetching.lookups import EARLIEST, LATEST
from pyclient.core.fetching.positions import Event, FromEpoch, Phase, Position
from pyclient.codec.batches import read_batches
from pyclient.errors import KafkaError, LogTruncationError, OffsetOutOfRangeError
from pyclient.records import OffsetAndMetadata, TopicPartition
from tests.unit.core.fetching import A0, OUT_OF_RANGE, Fetching, offsets_of, batch, gives, settle_metadata
from tests.unit.core.world import Sent


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def epochs(sent: Sent) -> list[int]:
    """The last fetched epochs of a fetch."""
    return [part.last_fetched_epoch for each in sent.body.topics for part in each.partitions]


def parts_at(epoch: int, end: int) -> dict[str, object]:
    """What a leader says whose log has *epoch* up to *end*, and not what the reader has read."""
    return {"diverging_epoch": {"epoch": epoch, "end_offset": end}}


def reads(fetching: Fetching, *written: tuple[int, int, int]) -> None:
    """Fetches these (offset, count, epoch)."""
    if A0 not in fetching.fetcher.positions:
        fetching.reads(A0, at=written[0][0])
    for offset, count, epoch in written:
        gives(fetching.fetches(), {A0: batch(offset, count, leader_epoch=epoch)})


def diverges(fetching: Fetching, epoch: int, end: int) -> None:
    gives(fetching.fetches(), {A0: parts_at(epoch, end)})


# --- requests and commits ---------------------------------------------------------------------------------------------


def test_C11_a_fetch_names_the_epoch_of_the_last_batch_before_its_offset(fetching: Fetching) -> None:
    reads(fetching, (5, 3, 2))
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 8}, [2])


def test_C11_control_batches_count_for_the_epoch_though_they_are_not_handed_out() -> None:
    fetching = Fetching()
    fetching.reads(A0, at=0)
    gives(fetching.fetches(), {A0: batch(0, leader_epoch=1) + batch(1, control=True, transactional=True, producer_id=1, producer_epoch=0, leader_epoch=4)})
    assert epochs(fetching.fetches()) == [4]
    assert collect(fetching.buffer, 100, None).next_offsets() == {A0: OffsetAndMetadata(2, leader_epoch=4)}


def test_C11_after_a_seek_or_a_reset_the_epoch_is_not_known(fetching: Fetching) -> None:
    reads(fetching, (5, 3, 2))
    fetching.fetcher.seek(A0, 7)
    sent = fetching.fetches()
    assert epochs(sent) == [-1]
    gives(sent, {A0: batch(7, leader_epoch=2)})
    fetching.fetcher.reset(A0, EARLIEST, fetching.world.now)
    fetching.found(A0, 3)
    assert epochs(fetching.fetches()) == [-1]


def test_C20_a_committed_epoch_is_named_by_the_first_fetch() -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.committed_lookups[0][1](A0, OffsetAndMetadata(40, "", 6), None)
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 40}, [6])


@pytest.mark.parametrize("committed", [OffsetAndMetadata(0, "", 6), OffsetAndMetadata(40), 40])
def test_C20_without_an_epoch_or_a_record_before_it_a_commit_has_none_to_name(committed: OffsetAndMetadata | int) -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.committed_lookups[0][1](A0, committed, None)
    assert epochs(fetching.fetches()) == [-1]


def test_C20_positions_carry_the_epoch_of_what_was_handed_out(fetching: Fetching) -> None:
    reads(fetching, (0, 2, 1), (2, 2, 3))
    assert collect(fetching.buffer, 1, None).next_offsets() == {A0: OffsetAndMetadata(1, leader_epoch=1)}
    assert collect(fetching.buffer, 2, None).next_offsets() == {A0: OffsetAndMetadata(3, leader_epoch=3)}
    assert collect(fetching.buffer, 9, None).next_offsets() == {A0: OffsetAndMetadata(4, leader_epoch=3)}


# --- with a policy ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("policy", [EARLIEST, LATEST])
def test_C11_reading_goes_back_to_where_the_logs_part_and_says_so(policy: int, caplog: pytest.LogCaptureFixture) -> None:
    fetching = Fetching(reset=policy)
    reads(fetching, (0, 10, 0))
    assert fetching.offsets() == [*range(10)]
    with caplog.at_level(logging.WARNING):
        diverges(fetching, 0, 6)
    (line,) = caplog.messages
    assert all(word in line for word in ("a-0", "offset 6", "epoch 0"))
    assert collect(fetching.buffer, 9, None).next_offsets() == {A0: OffsetAndMetadata(6, leader_epoch=0)}
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 6}, [0])
    gives(sent, {A0: batch(6, 2, leader_epoch=1)})
    assert fetching.offsets() == [6, 7]


def test_C11_an_epoch_history_of_0_from_0_and_1_from_120_parts_at_120_though_the_other_log_goes_on_under_epoch_0(fetching: Fetching) -> None:
    reads(fetching, (0, 120, 0), (120, 10, 1))
    assert len(fetching.offsets()) == 130
    diverges(fetching, 0, 150)
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 120}, [0])


def test_C11_what_is_buffered_of_the_part_that_was_cut_off_is_dropped(fetching: Fetching) -> None:
    reads(fetching, (0, 5, 0), (5, 5, 1))
    assert [offset for _, offset, _ in fetching.values()] == [*range(10)]
    reads(fetching, (10, 5, 1))
    diverges(fetching, 0, 5)
    assert fetching.offsets() == []
    assert offsets_of(fetching.fetches()) == {A0: 5}


@pytest.mark.parametrize("policy", [EARLIEST, None])
def test_C11_what_the_user_has_not_got_is_not_skipped_and_no_loss_is_reported_to_who_lost_nothing(
        policy: int | None, caplog: pytest.LogCaptureFixture) -> None:
    fetching = Fetching(reset=policy)
    reads(fetching, (0, 10, 0))
    assert [record.offset for record in collect(fetching.buffer, 4, None)] == [0, 1, 2, 3]
    with caplog.at_level(logging.WARNING):
        diverges(fetching, 0, 8)
    assert caplog.messages == []
    assert fetching.offsets() == []
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 4}, [0])
    gives(sent, {A0: batch(4, 4, leader_epoch=0) + batch(8, 2, leader_epoch=1)})
    assert fetching.offsets() == [4, 5, 6, 7, 8, 9]


def test_C11_an_entry_that_is_being_handed_out_counts_as_unread(fetching: Fetching) -> None:
    reads(fetching, (0, 10, 0))
    entry = fetching.buffer.take()
    assert entry is not None
    diverges(fetching, 0, 8)
    fetching.buffer.give_back(entry)
    assert fetching.offsets() == []
    assert offsets_of(fetching.fetches()) == {A0: 0}


def test_C11_a_commit_whose_record_was_cut_off_begins_before_it() -> None:
    fetching = Fetching(group=True)
    fetching.fetcher.assign([A0], fetching.world.now)
    fetching.committed_lookups[0][1](A0, OffsetAndMetadata(40, "", 6), None)
    diverges(fetching, 4, 60)  # where epoch 6 began is not known: not above the last record that was read of it
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 39}, [-1])


# --- without ----------------------------------------------------------------------------------------------------------


def test_C11_without_a_policy_poll_raises_until_a_seek() -> None:
    fetching = Fetching(reset=None)
    reads(fetching, (0, 5, 0), (5, 5, 1))
    fetching.offsets()
    diverges(fetching, 0, 7)
    for _ in range(3):
        error = fetching.raises()
        assert isinstance(error, LogTruncationError)
        assert isinstance(error, OffsetOutOfRangeError)
        assert (error.topic_partition, error.offset, error.divergent_offset, error.leader_epoch) == (A0, 10, 5, 0)
        assert all(word in str(error) for word in ("a-0", "offset 5", "epoch 0", "seek() to 5"))
        assert fetching.turn() == []
    fetching.fetcher.seek(A0, 5)
    assert offsets_of(fetching.fetches()) == {A0: 5}
    assert fetching.offsets() == []


# --- what proves no loss ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("undefined", [(-1, -1), (-1, 3), (2, -1)])
def test_C11_an_undefined_epoch_is_no_report_of_a_loss(undefined: tuple[int, int]) -> None:
    fetching = Fetching(reset=None)
    reads(fetching, (0, 5, 3))
    gives(fetching.fetches(), {A0: {**parts_at(*undefined), "records": batch(5, leader_epoch=3)}})
    assert fetching.offsets() == [0, 1, 2, 3, 4, 5]


def test_C11_an_offset_is_called_out_of_range_only_when_that_was_said_without_an_epoch() -> None:
    fetching = Fetching(reset=None)
    reads(fetching, (0, 5, 3))
    fetching.offsets()
    gives(fetching.fetches(), {A0: OUT_OF_RANGE})
    sent = fetching.fetches()
    assert (offsets_of(sent), epochs(sent)) == ({A0: 5}, [-1])
    gives(sent, {A0: OUT_OF_RANGE})
    error: KafkaError = fetching.raises()
    assert type(error) is OffsetOutOfRangeError


def test_C11_a_divergence_that_is_none_causes_no_busy_loop(fetching: Fetching) -> None:
    reads(fetching, (0, 5, 3))
    settle_metadata(fetching)
    fetching.offsets()
    diverges(fetching, 3, 5)
    assert fetching.turn() == []
    fetching.world.after(64.0)
    assert offsets_of(fetching.fetches()) == {A0: 5}


def test_C11_an_answer_that_a_seek_overtook_says_nothing_of_the_new_position() -> None:
    fetching = Fetching(reset=None)
    reads(fetching, (0, 5, 3))
    sent = fetching.fetches()
    fetching.fetcher.seek(A0, 2)
    gives(sent, {A0: parts_at(2, 0)})
    assert fetching.offsets() == []
    assert offsets_of(fetching.fetches()) == {A0: 2}


# --- the history of a position ----------------------------------------------------------------------------------------


def read(*written: tuple[int, int, int]) -> Position:
    position = Position(TopicPartition("a", 0), 1)
    position.found(written[0][0])
    for offset, count, epoch in written:
        (one,) = read_batches(batch(offset, count, leader_epoch=epoch))
        position.read([one], one.next_offset)
    return position


def test_C11_a_history_has_an_entry_for_each_change_of_the_epoch() -> None:
    position = read((0, 2, 0), (2, 2, 0), (4, 2, 3), (6, 1, 3))
    assert (position.history, position.epoch, position.offset) == ([FromEpoch(0, 0), FromEpoch(4, 3)], 3, 7)
    assert read((0, 2, -1)).history == []


@pytest.mark.parametrize(("epoch", "end", "at"), [
    (2, 130, 130),  # the epochs agree, theirs ended earlier
    (0, 80, 80),  # theirs left epoch 0 before ours did
    (0, 150, 120),  # ours left it before theirs did
    (1, 125, 125), (1, 110, 110), (1, 200, 128),
])
def test_C11_the_point_of_divergence_is_the_earlier_end_of_the_last_common_epoch(epoch: int, end: int, at: int) -> None:
    position = read((0, 120, 0), (120, 8, 1), (128, 8, 2))
    assert position.divergence(epoch, end) == at


def test_C11_going_back_forgets_what_was_read_behind() -> None:
    position = read((0, 120, 0), (120, 8, 1), (128, 8, 2))
    position.advance(Event.DIVERGED)
    position.back_to(120)
    assert (position.offset, position.epoch, position.phase) == (120, 0, Phase.FETCHING)
