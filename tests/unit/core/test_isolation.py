"""read_committed: batches of aborted transactions are left out (C05)."""
from __future__ import annotations

import itertools
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.batches import RecordBatch, read_batches
from pyclient.codec.encode import encode_batch
from pyclient.core.fetching.isolation import committed_only

ABORT, COMMIT = 0, 1


class Aborted(NamedTuple):
    producer_id: int
    first_offset: int


def data(offset: int, producer: int, count: int = 1, *, transactional: bool = True) -> bytes:
    return encode_batch([(0, None, b"v", None)] * count, base_offset=offset, producer_id=producer, producer_epoch=0,
                        base_sequence=0, transactional=transactional)


def marker(offset: int, producer: int, kind: int) -> bytes:
    key = b"\0\0" + kind.to_bytes(2, "big")
    return encode_batch([(0, key, b"\0" * 6, None)], base_offset=offset, producer_id=producer, producer_epoch=0,
                        transactional=True, control=True)


def left(log: list[bytes], *aborted: Aborted) -> list[int]:
    batches: list[RecordBatch] = read_batches(b"".join(log))
    return [batch.base_offset for batch in committed_only(batches, aborted)]


def test_C05_the_batches_of_an_aborted_transaction_are_left_out() -> None:
    log = [data(0, 7), data(1, 8), marker(2, 7, ABORT), data(3, 7), marker(4, 7, COMMIT), marker(5, 8, COMMIT)]
    assert left(log, Aborted(7, 0)) == [1, 3]


def test_C05_an_aborted_list_that_is_not_sorted_is_as_good() -> None:
    log = [data(0, 7), marker(1, 7, ABORT), data(2, 8), marker(3, 8, ABORT), data(4, 7), marker(5, 7, ABORT), data(6, 9), marker(7, 9, COMMIT)]
    reported = [Aborted(7, 4), Aborted(8, 2), Aborted(7, 0)]
    assert all(left(log, *order) == [6] for order in itertools.permutations(reported))


def test_C05_control_batches_are_never_kept() -> None:
    assert left([marker(0, 7, COMMIT), marker(1, 7, ABORT), data(2, 7), marker(3, 7, COMMIT)]) == [2]


def test_C05_what_a_producer_commits_after_an_abort_is_kept() -> None:
    assert left([data(0, 7), marker(1, 7, ABORT), data(2, 7), marker(3, 7, COMMIT)], Aborted(7, 0)) == [2]


def test_C05_batches_outside_a_transaction_are_kept_even_of_a_producer_that_aborts() -> None:
    log = [data(0, 7), data(1, 7, transactional=False), marker(2, 7, ABORT)]
    assert left(log, Aborted(7, 0)) == [1]


def test_C05_a_transaction_that_begins_within_a_batch_takes_the_whole_batch() -> None:
    assert left([data(0, 7, count=5), marker(5, 7, ABORT)], Aborted(7, 4)) == []


def test_C05_an_aborted_transaction_that_begins_behind_a_batch_does_not_hide_it() -> None:
    log = [data(0, 7), marker(1, 7, COMMIT), data(2, 7), marker(3, 7, ABORT)]
    assert left(log, Aborted(7, 2)) == [0]


def test_C05_a_transaction_whose_start_lies_before_the_answer_is_hidden_and_its_missing_marker_tolerated() -> None:
    assert left([data(10, 7), data(11, 8)], Aborted(7, 3)) == [11]


def test_C05_a_marker_of_a_producer_that_has_nothing_here_is_tolerated() -> None:
    assert left([marker(0, 5, ABORT), data(1, 7)]) == [1]


@given(actions=st.lists(st.tuples(st.integers(1, 3), st.sampled_from(["data", "plain", "commit", "abort"])), max_size=25), data_=st.data())
def test_C05_exactly_the_data_of_aborted_transactions_is_missing(actions: list[tuple[int, str]], data_: st.DataObject) -> None:
    log, aborted, fates = history(actions)
    assert left(log, *data_.draw(st.permutations(aborted))) == [offset for offset, kept in fates.items() if kept]


def history(actions: list[tuple[int, str]]) -> tuple[list[bytes], list[Aborted], dict[int, bool]]:
    """A log of these actions, its aborted transactions, and whether each data batch is to be read. Open ones commit."""
    log: list[bytes] = []
    aborted: list[Aborted] = []
    fates: dict[int, bool] = {}
    open_: dict[int, list[int]] = {}
    for offset, (producer, action) in enumerate(actions):
        if action in ("data", "plain"):
            log.append(data(offset, producer, transactional=action == "data"))
            fates[offset] = True
            if action == "data":
                open_.setdefault(producer, []).append(offset)
            continue
        log.append(marker(offset, producer, ABORT if action == "abort" else COMMIT))
        of_it = open_.pop(producer, [])
        if action == "abort" and of_it:
            aborted.append(Aborted(producer, of_it[0]))
            fates.update(dict.fromkeys(of_it, False))
    return log, aborted, fates
