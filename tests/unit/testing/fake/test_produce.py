from __future__ import annotations

import struct
from typing import Any

import pytest

from pyclient.codec.batches import read_batches
from pyclient.codec.crc import crc32c
from tests.unit.testing.fake.cluster_driver import WALL_MS, ClusterDriver, batch, idempotent, produced



def patched(data: bytes, at: int, form: str, value: int, *, sum_again: bool = True) -> bytes:
    out = bytearray(data)
    struct.pack_into(form, out, at, value)
    if sum_again:
        struct.pack_into(">I", out, 17, crc32c(bytes(out[21:])))
    return bytes(out)


DAMAGE: list[tuple[str, bytes, int]] = [
    ("a size that is none", patched(batch(), 8, ">i", 5), 2),
    ("an offset of its own", patched(batch(), 0, ">q", 4, sum_again=False), 87),
    ("fewer records than offsets", patched(batch(2), 57, ">i", 1), 87),
    ("fewer offsets than records", patched(batch(2), 23, ">i", 0), 87),
    ("more offsets than records", patched(batch(2), 23, ">i", 5), 87),
    ("no records", patched(batch(2), 57, ">i", 0), 87),
    ("a control batch", patched(batch(), 21, ">h", 0x20), 87),
    ("a transaction without id", idempotent(0, transactional=True), 53),
    ("records that are none", patched(batch(), 61, ">b", -3), 87),
    ("a codec that is none", patched(batch(), 21, ">h", 5), -1),
    ("gzip that is none", patched(batch(), 21, ">h", 1), -1),
]


@pytest.mark.parametrize(("data", "code"), [each[1:] for each in DAMAGE], ids=[each[0] for each in DAMAGE])
def test_an_invalid_batch_is_rejected_with_a_brokers_error_code(data: bytes, code: int) -> None:
    with ClusterDriver() as driver:
        assert int(driver.produce(data).error_code) == code
        assert driver.partition.log.end == 0


def test_zstd_needs_version_7() -> None:
    with ClusterDriver() as driver:
        assert int(driver.produce(batch(compression="zstd"), version=6).error_code) == 76
        assert int(driver.produce(batch(compression="zstd"), version=7).error_code) == 0


def test_the_brokers_time_replaces_the_records() -> None:
    with ClusterDriver(config={"message.timestamp.type": "LogAppendTime"}) as driver:
        driver.advance(2.5)
        answer = driver.produce(batch(at=-77))
        assert int(answer.log_append_time.timestamp() * 1000) == WALL_MS + 2500
        (record,) = read_batches(driver.partition.committed()[0].data)[0].records("t", 0)
        assert record.timestamp == WALL_MS + 2500


def test_a_topic_may_have_its_records_compressed_by_the_broker() -> None:
    with ClusterDriver(config={"compression.type": "gzip"}) as driver:
        driver.produce(idempotent(4, count=50, compression="lz4"))
        driver.produce(idempotent(54))
        first, second = (read_batches(each.data)[0] for each in driver.partition.committed())
        assert [each.compression.name for each in (first, second)] == ["GZIP", "GZIP"]
        assert (first.base_sequence, first.producer_id, len(first.records("t", 0))) == (4, 7, 50)
        assert second.base_offset == 50


def test_a_header_that_lies_about_the_newest_timestamp_is_corrected() -> None:
    with ClusterDriver() as driver:
        driver.produce(patched(batch(at=3), 35, ">q", WALL_MS + 999))
        stored = driver.partition.committed()[0]
        assert stored.max_timestamp == WALL_MS + 3
        read_batches(stored.data)[0].open()  # its CRC is right


def test_kafkas_own_topics_are_not_for_clients_to_write() -> None:
    with ClusterDriver() as driver:
        driver.topic.internal = True
        assert int(driver.produce().error_code) == 17


# ---- acks=all --------------------------------------------------------------------------------------------------------


def test_too_few_in_sync_replicas_take_nothing_with_acks_all_and_everything_with_acks_1() -> None:
    with ClusterDriver(min_insync_replicas=2) as driver:
        driver.kill(2)
        driver.kill(3)
        assert int(driver.produce().error_code) == 19
        assert int(driver.produce(acks=1).error_code) == 0
        assert driver.ends()[1] == 1
        assert driver.partition.committed() == []


def test_acks_all_waits_for_the_slowest_in_sync_replica() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        task = driver.producing()
        driver.advance(0.05)
        assert not task.done()
        driver.advance(0.06)
        assert int(produced(task.result()).error_code) == 0


def test_acks_all_sees_a_commit_that_happened_before_it_waited() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        task = driver.producing(idle=0.5)  # as when the task that waits has yet to begin
        driver.advance(0.51)
        assert int(produced(task.result()).error_code) == 0


def test_acks_all_times_out_with_the_records_offset() -> None:
    with ClusterDriver(replica_lag_ms=5000) as driver:
        driver.advance(20)
        driver.produce(acks=1)
        answer = driver.produce(timeout_ms=300)
        assert (int(answer.error_code), answer.base_offset) == (7, 1)


def test_acks_all_at_a_deposed_leader_ends_with_an_error() -> None:
    with ClusterDriver(replica_lag_ms=5000) as driver:
        driver.advance(20)
        task = driver.producing()
        driver.advance(0.1)
        driver.lead(2)
        driver.advance(0.1)
        assert int(produced(task.result()).error_code) == 6


def test_records_committed_while_replicas_became_too_few_are_answered_as_such() -> None:
    with ClusterDriver(replica_lag_ms=100, min_insync_replicas=2) as driver:
        driver.advance(1)
        task = driver.producing()

        def commit_then_shrink() -> None:
            driver.partition.log.high_watermark = 1
            driver.partition.isr = [1]
            driver.partition.committed_to(1)
        driver.do(commit_then_shrink)
        driver.advance(0.05)
        assert int(produced(task.result()).error_code) == 20


# ---- idempotent producers --------------------------------------------------------------------------------------------


def sent(driver: ClusterDriver, *batches: bytes, broker: int = 1) -> list[tuple[int, int]]:
    answers: list[Any] = [driver.produce(each, broker=broker) for each in batches]
    return [(int(each.error_code), each.base_offset) for each in answers]


def test_a_new_leader_knows_the_producers_from_its_log() -> None:
    with ClusterDriver() as driver:
        sent(driver, idempotent(0), idempotent(1))
        driver.lead(2)
        assert sent(driver, idempotent(1), idempotent(3), idempotent(2), broker=2) == [(0, 1), (45, -1), (0, 2)]


def test_truncated_batches_are_removed_from_the_producer_state() -> None:
    with ClusterDriver(replica_lag_ms=1000) as driver:
        driver.advance(5)
        driver.produce(idempotent(0), timeout_ms=9000)
        driver.advance(5)
        driver.produce(idempotent(1), acks=1)
        driver.lead(2)
        assert sent(driver, idempotent(1, at=9), broker=2)[0][1] == 1
        driver.advance(5)
        driver.lead(1)
        assert [each[:2] for each in driver.partition.log.producers.known[7].written] == [(0, 0), (1, 1)]
        assert driver.values(1) == [0, 9]


def test_a_producer_silent_for_long_is_forgotten() -> None:
    with ClusterDriver(producer_id_expiration_ms=60_000, producer_id_expiration_check_interval_ms=1000) as driver:
        sent(driver, idempotent(0))
        driver.advance(61)
        assert sent(driver, idempotent(9, at=61_000)) == [(0, 1)]
        driver.advance(61)
        sent(driver, idempotent(0, producer=8, at=122_000))
        assert list(driver.partition.log.producers.known) == [8]


def test_a_producer_of_old_records_is_known_until_the_next_look() -> None:
    with ClusterDriver(producer_id_expiration_ms=60_000, producer_id_expiration_check_interval_ms=10_000) as driver:
        driver.advance(100)
        assert sent(driver, idempotent(0, at=0), idempotent(0, at=0), idempotent(9, at=0)) == [(0, 0), (0, 0), (45, -1)]
        driver.advance(11)
        assert sent(driver, idempotent(9, at=0)) == [(0, 1)]
