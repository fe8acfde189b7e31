"""Bulks: what comes out of the batches is what went in, wherever memory, sizes and partitions cut it."""
from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import BatchState
from pyclient.buffers.delivery import Observer
from pyclient.buffers.pool import Waiter
from pyclient.buffers.rows import CHUNK
from pyclient.codec.batches import read_batches
from pyclient.codec.encode import encode_headers
from pyclient.errors import BulkDeliveryError, KafkaError, RecordRejectedError, RecordTooLargeError
from pyclient.partitioners.murmur2 import Murmur2Partitioner, murmur2_partition
from tests.unit.buffers.accumulators import WALL_MS, Clock, accumulator, topic_of
from tests.unit.buffers.bulks import rows_of, send_many, wait_in_line
from tests.unit.buffers.test_accumulator import AccumulatorRules, noise

KEY_HASH = Murmur2Partitioner().key_hash()
"""None where partitioners run as plain Python: then a producer, too, chooses for each record."""


def by_key(keys: Sequence[bytes | None], count: int) -> dict[str, Any]:
    if KEY_HASH is not None:
        return {"key_hash": KEY_HASH}
    return {"partitions": [-1 if key is None else murmur2_partition(key, count) for key in keys]}


class BulkRules(AccumulatorRules):
    """The machine of single records, with bulks among them."""

    @rule(sizes=st.lists(st.none() | st.integers(0, 400) | st.integers(0, 9_000) | st.integers(19_000, 25_000), max_size=30),
          partition=st.integers(-1, 2), keyed=st.booleans(), later=st.lists(st.integers(-50, 50) | st.just(2**40), min_size=30, max_size=30),
          stamped=st.booleans(), headers=st.booleans())
    def append_many(self, sizes: list[int | None], partition: int, keyed: bool, later: list[int], stamped: bool, headers: bool) -> None:
        values = [None if size is None else noise(size) for size in sizes]
        stamps = [WALL_MS + delta for delta in later[: len(values)]] if stamped else None
        keys = [None if at % 3 == 0 else f"key {at}".encode() for at in range(len(values))] if keyed else None
        pairs: list[Any] = [[("n", b"%d" % at)] if headers and at % 2 else [] for at in range(len(values))]
        deliveries = send_many(
            self.buffers, Observer(), values, partition=partition, keys=keys, stamps=stamps, starved=refuse_the_rest,
            headers=[encode_headers(each) if each else None for each in pairs] if headers else None,
            **(by_key(keys, 3) if keys and partition < 0 else {}))
        assert len(deliveries) == len(values)
        for at, (value, delivery) in enumerate(zip(values, deliveries, strict=True)):
            key = keys[at] if keys else None
            if delivery.partition < 0:
                assert isinstance(delivery.exception(0), (RecordTooLargeError, KafkaError))
                continue
            assert value is None or len(value) <= self.LARGEST
            assert partition in (-1, delivery.partition)
            assert partition >= 0 or key is None or delivery.partition == murmur2_partition(key, 3)
            queue = self.queues[delivery.partition]
            self.sent[queue].append((stamps[at] if stamps else WALL_MS, key, value, pairs[at]))
            self.deliveries[queue].append(delivery)


def refuse_the_rest(rows: Any) -> None:
    while rows.position is not None:
        rows.reject(KafkaError("no memory"))


TestBulk = BulkRules.TestCase
TestBulk.settings = settings(max_examples=60, stateful_step_count=40)


def written(buffers: Accumulator) -> dict[int, list[bytes]]:
    """What the batches of each partition hold, in order, byte for byte."""
    out: dict[int, list[bytes]] = {}
    buffers.flush_open()
    for queue in topic_of(buffers).queues:
        while (batch := buffers.head(queue)) is not None:
            buffers.seal(batch)
            out.setdefault(queue.partition, []).append(b"".join(bytes(piece) for piece in batch.pieces()))
            buffers.release(batch)
    return out


def values_of(batches: list[bytes]) -> list[bytes | None]:
    return [record.value for data in batches for read in read_batches(data) for record in read.records("orders", 0)]


@given(sizes=st.lists(st.integers(0, 3_000), max_size=60), partition=st.sampled_from([-1, 1]))
@settings(max_examples=60)
def test_a_bulk_makes_the_same_batches_as_single_records(sizes: list[int], partition: int) -> None:
    one, many = (accumulator(Clock(), batch_size=4_000) for _ in range(2))
    values = [noise(size) for size in sizes]
    for value in values:
        assert one.append(topic_of(one), partition, WALL_MS, None, value, None) is not None
    send_many(many, Observer(), values, partition=partition)
    assert written(one) == written(many)
    assert many.pool.used == 0


def test_P30_keyed_records_go_where_murmur2_of_the_key_says_and_keep_their_order() -> None:
    buffers = accumulator(Clock(), batch_size=2_000, partitions=4)
    keys = [b"k%d" % (at % 97) for at in range(3 * CHUNK)]
    values = [b"%d" % at for at in range(3 * CHUNK)]
    deliveries = send_many(buffers, Observer(), values, keys=keys, **by_key(keys, 4))
    assert [each.partition for each in deliveries] == [murmur2_partition(key, 4) for key in keys]
    for partition, batches in written(buffers).items():
        assert values_of(batches) == [value for key, value in zip(keys, values, strict=True) if murmur2_partition(key, 4) == partition]


def test_P31_records_without_a_key_stick_to_a_partition_for_a_batch_then_to_another() -> None:
    buffers = accumulator(Clock(), batch_size=4_000, partitions=4)
    deliveries = send_many(buffers, Observer(), [b"x" * 100] * 2_000)
    partitions = [each.partition for each in deliveries]
    switches = [at for at in range(1, 2_000) if partitions[at] != partitions[at - 1]]
    assert len(set(partitions)) == 4
    assert min(later - before for before, later in itertools.pairwise(switches)) > 4_000 // 137 - 1


def test_a_rejected_record_affects_no_other_and_its_error_has_its_index() -> None:
    buffers = accumulator(Clock(), max_request_size=5_000)
    observer = Observer()
    values: list[Any] = [b"a", b"x" * 6_000, b"b", 7, None]
    deliveries = send_many(buffers, observer, values, partition=0)
    assert values_of(written(buffers)[0]) == [b"a", b"b", None]
    assert observer.take_failures()[0] == 2, "counted though not looked at"
    assert isinstance(deliveries[1].exception(0), RecordTooLargeError)
    refused = deliveries[3].exception(0)
    assert isinstance(refused, RecordRejectedError)
    assert isinstance(refused.__cause__, TypeError)
    assert "record 3" in str(refused)


def test_a_bulk_without_records_is_done() -> None:
    deliveries = send_many(accumulator(Clock()), Observer(), [])
    assert deliveries.done()
    assert len(deliveries.result(0)) == 0
    assert deliveries.result(0).offsets().tolist() == []


def test_records_for_a_partition_that_no_longer_exists_are_rejected() -> None:
    buffers = accumulator(Clock(), partitions=3)
    deliveries = send_many(buffers, Observer(), [b"a", b"b"], partitions=[5, 1])
    assert isinstance(deliveries[0].exception(0), RecordRejectedError)
    assert deliveries[1].partition == 1


def test_the_lock_is_released_after_each_batch_also_when_no_batch_fills() -> None:
    """Another thread waits for the lock while one batch is written at most; the loop's wake-ups show it."""
    buffers = accumulator(Clock(), memory=2_000_000, batch_size=10_000, partitions=50, linger=1000)
    woken: list[int] = []
    rows = rows_of(buffers, Observer())
    buffers.on_ready = lambda: woken.append(rows.position or CHUNK)
    rows.load(0, [b"x" * 400] * CHUNK, None, None, None, [at % 50 for at in range(CHUNK)], None, -1, WALL_MS)
    assert buffers.append_rows(rows)
    first_two = woken[:2]
    assert first_two[1] - first_two[0] <= 10_000 // 400 + 1


def test_P03_a_bulk_waits_its_turn_and_takes_only_what_it_was_granted() -> None:
    buffers = accumulator(Clock(), memory=8_192, batch_size=4_096)
    observer = Observer()
    granted: list[str] = []
    values = [b"%04d" % at + b"x" * 500 for at in range(100)]
    out: list[bytes] = []
    queue = topic_of(buffers).queues[0]

    def drain(rows: Any) -> None:
        def settle(waiter: Any) -> None:
            while waiter.grant is None:
                buffers.take_ready(200.0)
                batch = buffers.head(queue)
                assert batch is not None, "it waits though nothing takes memory"
                if batch.state is BatchState.SEALING:
                    buffers.seal(batch)
                out.append(b"".join(bytes(piece) for piece in batch.pieces()))
                buffers.release(batch)

        wait_in_line(buffers, rows, settle, lambda: granted.append("bulk"))

    send_many(buffers, observer, values, partition=0, starved=drain)
    assert granted
    assert values_of(out + written(buffers)[0]) == values
    assert buffers.pool.used == 0
    assert buffers.pool.waiting == 0


def test_memory_granted_for_one_record_is_not_used_for_a_larger_one_behind_it() -> None:
    """The grant was sized for the record that waited; when that one found room elsewhere, the grant goes back."""
    buffers = accumulator(Clock(), memory=100_000, batch_size=2_048)
    topic = topic_of(buffers)
    rows = rows_of(buffers, Observer())
    rows.load(0, [b"s", b"x" * 30_000], None, None, None, None, None, 0, WALL_MS)

    def meanwhile(waiter: Any) -> None:
        assert waiter.grant is not None
        buffers.append(topic, 0, WALL_MS, None, b"another thread's", None)

    wait_in_line(buffers, rows, meanwhile, lambda: None)
    assert values_of(written(buffers)[0]) == [b"another thread's", b"s", b"x" * 30_000]
    assert buffers.pool.used == 0


def test_deliveries_know_each_records_offset_partition_and_timestamp() -> None:
    buffers = accumulator(Clock(), batch_size=1_000, partitions=3)
    stamps = [1_000 + at * 7 for at in range(300)]
    values = [b"%d" % at for at in range(300)]
    deliveries = send_many(buffers, Observer(), values, keys=values, stamps=stamps, **by_key(values, 3))
    assert not deliveries.done()
    base = {0: 0, 1: 10_000, 2: 20_000}
    for batch in buffers.flush_open():
        batch.result.complete(base[batch.queue.partition])
        base[batch.queue.partition] += batch.count
    assert deliveries.done()
    delivered = deliveries.result(0)
    assert [each.timestamp for each in delivered] == stamps == delivered.timestamps().tolist()
    assert delivered.offsets().tolist() == [each.offset for each in delivered]
    assert delivered.partitions().tolist() == [each.partition for each in delivered] == [each.partition for each in deliveries]
    assert delivered[-1] == deliveries[299].result(0)
    for partition in range(3):
        offsets = [each.offset for each in delivered if each.partition == partition]
        assert offsets == list(range(10_000 * partition, 10_000 * partition + len(offsets)))
    with pytest.raises(IndexError, match="record 300 of 300"):
        deliveries[300]


def test_failures_of_batches_are_ranges_of_indexes_and_count_as_seen_once() -> None:
    observer = Observer()
    buffers = accumulator(Clock(), batch_size=2_000, observer=observer)
    deliveries = send_many(buffers, observer, [b"x" * 100] * 40, partition=0)
    first, *others = buffers.flush_open()
    first.result.fail(KafkaError("broken"))
    for batch in others:
        batch.result.complete(5)
    assert deliveries[3].exception(0) is not None
    with pytest.raises(BulkDeliveryError, match=rf"{first.count} of 40 records .*\(0 to {first.count - 1}: broken\)") as failed:
        deliveries.result(0)
    assert list(failed.value.errors) == list(range(first.count))
    assert str(failed.value.errors[2]) == "broken"
    assert 39 not in failed.value.errors
    assert observer.take_failures() == (0, {})
    deliveries.exception(0)
    assert observer.take_failures() == (0, {})


def test_P20_each_record_of_a_split_batch_has_its_own_outcome() -> None:
    observer = Observer()
    buffers = accumulator(Clock(), observer=observer)
    deliveries = send_many(buffers, observer, [b"%d" % at for at in range(10)], partition=0)
    (batch,) = buffers.flush_open()
    first, second, third = batch.result.split([4, 3, 3])
    first.complete(100)
    second.fail(KafkaError("too large"))
    third.fail(KafkaError("some"), {1: KafkaError("no key")})
    failed = deliveries.exception(0)
    assert failed is not None
    assert {at: str(cause) for at, cause in failed.errors.items()} == {
        4: "too large", 5: "too large", 6: "too large", 7: "some", 8: "no key", 9: "some"}
    assert observer.take_failures() == (0, {})
    assert deliveries[3].result(0).offset == 103


def test_P20_columns_have_the_offsets_of_the_parts() -> None:
    observer = Observer()
    buffers = accumulator(Clock())
    deliveries = send_many(buffers, observer, [b"%d" % at for at in range(5)], partition=0)
    (batch,) = buffers.flush_open()
    first, second = batch.result.split([2, 3])
    first.complete(100)
    second.complete(200, 777)
    delivered = deliveries.result(0)
    assert delivered.offsets().tolist() == [each.offset for each in delivered] == [100, 101, 200, 201, 202]
    assert delivered.timestamps().tolist() == [each.timestamp for each in delivered] == [WALL_MS, WALL_MS, 777, 777, 777]


def test_P03_a_bulk_requests_no_more_than_a_quarter_of_the_memory_beyond_its_next_record() -> None:
    buffers = accumulator(Clock(), memory=131_072, batch_size=131_072)
    rows = rows_of(buffers, Observer())
    rows.load(0, [b"x" * 1000] * 1000, None, None, None, None, None, 0, WALL_MS)
    waiter = Waiter(lambda: None)
    buffers.wait_rows(rows, waiter)
    assert waiter.size <= 131_072 // 4
    buffers.leave(waiter)


def test_without_keys_a_bulk_waits_for_batches_as_large_as_it_fills_instead_of_leaving_in_small_ones() -> None:
    buffers = accumulator(Clock(), memory=65_536, batch_size=16_384)
    held = buffers.pool.take(57_344)  # what is left is less than a batch
    assert held is not None
    rows = rows_of(buffers, Observer())
    rows.load(0, [b"x" * 1000] * 20, None, None, None, None, None, -1, WALL_MS)
    assert not buffers.append_rows(rows, None)
    assert (rows.position, buffers.pool.used) == (0, 57_344)
    buffers.pool.give(held)
    assert buffers.append_rows(rows, None)
    assert max(map(len, itertools.chain(*written(buffers).values()))) > 15_000


def test_a_chunk_of_unequal_columns_is_refused_before_it_is_read() -> None:
    rows = rows_of(accumulator(Clock()), Observer())
    with pytest.raises(ValueError, match="3 values and 2 of something else"):
        rows.load(0, [b"x"] * 3, [b"k"] * 2, None, None, None, None, 0, WALL_MS)
