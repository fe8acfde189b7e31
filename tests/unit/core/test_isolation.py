"""read_committed: batches of aborted transactions are left out (C05)."""
from __future__ import annotations

from typing import NamedTuple

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
