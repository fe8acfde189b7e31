"""Which offset may be committed while records are done in any order."""
from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from pyclient import OffsetAndMetadata, TopicPartition
from pyclient.core.done_offsets import DoneOffsets

TP = TopicPartition("t", 0)


class Model:
    """What was returned and is not done, one by one."""

    def __init__(self) -> None:
        self.open: set[int] = set()
        self.end = 0

    def position(self) -> int:
        return min(self.open, default=self.end)


@st.composite
def histories(draw: st.DrawFn) -> list[tuple[str, list[int], int]]:
    """Polls over a log with holes, each with the position behind it, and offsets that are done, known or not."""
    steps: list[tuple[str, list[int], int]] = []
    at = 0
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from(["poll", "done", "done", "again", "forget"]))
        if kind == "poll":
            offsets = sorted(draw(st.sets(st.integers(at, at + 8))))
            at = draw(st.integers(max([at, *(each + 1 for each in offsets)]), at + 12))
            steps.append((kind, offsets, at))
        elif kind == "done":
            steps.append((kind, draw(st.lists(st.integers(0, at + 2), max_size=8)), at))
        else:
            steps.append((kind, [], at))
    return steps


def poll_returns(done: DoneOffsets, offsets: list[int], end: int) -> None:
    done.returned(TP, [(each, each + 1) for each in offsets], OffsetAndMetadata(end))


@given(histories())
def test_the_position_is_the_first_returned_offset_that_is_not_done(history: list[tuple[str, list[int], int]]) -> None:
    done, model = DoneOffsets(), Model()
    for kind, offsets, end in history:
        if kind == "poll":
            poll_returns(done, offsets, end)
            model.open.update(offsets)
            model.end = end
        elif kind == "again":  # Ctrl-C came before the user had them
            poll_returns(done, sorted(model.open), end)
            model.end = end
        elif kind == "forget":
            done.forget(TP)
            model = Model()
        for offset in offsets if kind == "done" else ():
            position = done.done(TP, offset)
            assert (position is not None) == (offset in model.open)
            model.open.discard(offset)
            assert position is None or position.offset == model.position()
        assert done.waits == bool(model.open)


def test_memory_grows_with_the_gaps_and_not_with_the_records() -> None:
    done = DoneOffsets()
    for begin in range(0, 100_000, 500):
        done.returned(TP, [(begin, begin + 500)], OffsetAndMetadata(begin + 500))
    for offset in range(1, 2_000):
        done.done(TP, offset)
    assert done._open[TP].ranges == [(0, 1), (2_000, 100_000)]


def test_all_done_is_the_end_of_what_was_read_with_its_leader_epoch() -> None:
    """Behind markers of transactions and compacted records, so that no lag is left."""
    done = DoneOffsets()
    end = OffsetAndMetadata(9, leader_epoch=3)
    done.returned(TP, [(0, 1), (4, 5)], end)
    assert done.done(TP, 0) == OffsetAndMetadata(4)
    assert done.done(TP, 4) == end
