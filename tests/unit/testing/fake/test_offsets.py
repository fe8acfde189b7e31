from __future__ import annotations

import math

from tests.unit.testing.fake.cluster_driver import WALL_MS, ClusterDriver, batch


def test_a_time_is_found_at_the_first_record_that_is_not_older() -> None:
    with ClusterDriver() as driver:
        for stamp in (10, 5, 30, 20):
            driver.produce(batch(at=stamp, compression="lz4"))
        found = {each: driver.list(WALL_MS + each).offset for each in (0, 10, 11, 30, 31)}
        assert found == {0: 0, 10: 0, 11: 2, 30: 2, 31: -1}
        assert driver.list(WALL_MS + 11).timestamp == WALL_MS + 30


def test_the_newest_record_is_found_wherever_it_is() -> None:
    with ClusterDriver() as driver:
        assert driver.list(-3).offset == -1
        for stamp in (10, 30, 20):
            driver.produce(at=stamp)
        assert (driver.list(-3).offset, driver.list(-3).timestamp) == (1, WALL_MS + 30)


def test_uncommitted_records_are_not_found() -> None:
    with ClusterDriver(replica_lag_ms=math.inf) as driver:
        driver.produce(acks=1)
        assert [driver.list(each).offset for each in (-1, WALL_MS, -3)] == [0, -1, -1]
        assert driver.list(-1, replica=-2).offset == 1


def test_a_new_leader_answers_no_end_before_it_knows_what_is_committed() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        driver.produce(acks=1)
        driver.advance(0.11)  # the followers have it, and do not know that it is committed
        driver.lead(2)
        assert [int(driver.list(-1, broker=2, version=each).error_code) for each in (4, 5)] == [5, 78]
        assert int(driver.list(WALL_MS, broker=2).error_code) == 78
        assert int(driver.list(-2, broker=2).error_code) == 0
        driver.advance(0.11)
        assert driver.list(-1, broker=2).offset == 1


def test_each_epoch_has_its_end_offset() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(3))
        driver.lead(2)
        driver.lead(3)
        driver.produce(batch(2), broker=3)
        assert [driver.epoch_end(each, broker=3) for each in (-1, 0, 1, 2, 3)] == [
            (0, -1, -1), (0, 0, 3), (0, 0, 3), (0, 2, 5), (0, -1, -1)]


# ---- DeleteRecords ---------------------------------------------------------------------------------------------------


def deleted(driver: ClusterDriver, offset: int, broker: int = 1) -> tuple[int, int]:
    answer = driver.loop.run_until_complete(driver.deleting(offset, broker=broker)).topics[0].partitions[0]
    return int(answer.error_code), answer.low_watermark


def test_deletion_ends_when_the_slowest_live_replica_has_deleted() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        driver.produce(batch(5))
        driver.advance(1)
        task = driver.deleting(5)
        driver.advance(0.05)
        assert not task.done()
        driver.advance(0.06)
        assert task.result().topics[0].partitions[0].low_watermark == 5


def test_deletion_that_replicas_do_not_follow_times_out() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        driver.produce(batch(5))
        driver.advance(1)
        driver.do(lambda: driver.partition.set_lag(math.inf))
        assert deleted(driver, 5) == (7, -1)
