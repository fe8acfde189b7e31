from __future__ import annotations

import math

from pyclient.codec.apis import Api
from tests.unit.testing.fake.cluster_driver import WALL_MS, ClusterDriver, batch


def test_ends_of_a_log_are_found_by_their_names() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(3))
        driver.produce(batch(2))
        driver.do(lambda: driver.partition.begin_at(1))
        assert [(driver.list(each).offset, driver.list(each).timestamp, driver.list(each).leader_epoch) for each in (-1, -2, -4, -5)] == [
            (5, -1, 0), (1, -1, 0), (1, -1, 0), (-1, -1, -1)]


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


def test_what_is_not_committed_is_not_found() -> None:
    with ClusterDriver(replica_lag_ms=math.inf) as driver:
        driver.produce(acks=1)
        assert [driver.list(each).offset for each in (-1, WALL_MS, -3)] == [0, -1, -1]
        assert driver.list(-1, replica=-2).offset == 1


def test_a_debugging_replica_is_answered_by_followers_too() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(2))
        assert (driver.list(-1, broker=2, replica=-2).offset, int(driver.list(-1, broker=2).error_code)) == (2, 6)


def test_timestamps_with_a_meaning_need_the_version_that_gave_it() -> None:
    with ClusterDriver() as driver:
        codes = {(stamp, version): int(driver.list(stamp, version=version).error_code)
                 for stamp, versions in ((-3, (6, 7)), (-4, (7, 8)), (-5, (8, 9)), (-9, (9,))) for version in versions}
        assert codes == {(-3, 6): 35, (-3, 7): 0, (-4, 7): 35, (-4, 8): 0, (-5, 8): 35, (-5, 9): 0, (-9, 9): 35}


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


def test_only_the_leader_in_the_right_epoch_is_asked() -> None:
    with ClusterDriver() as driver:
        driver.lead(2)
        assert [int(driver.list(-1, broker=broker, epoch=epoch).error_code) for broker, epoch in ((1, -1), (2, 0), (2, 2), (2, 1))] == [6, 74, 75, 0]
        assert [driver.epoch_end(0, broker=broker, current=epoch)[0] for broker, epoch in ((1, -1), (2, 0), (2, 2), (2, 1))] == [6, 74, 75, 0]


def test_the_end_of_each_epoch_is_told() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(3))
        driver.lead(2)
        driver.lead(3)
        driver.produce(batch(2), broker=3)
        assert [driver.epoch_end(each, broker=3) for each in (-1, 0, 1, 2, 3)] == [
            (0, -1, -1), (0, 0, 3), (0, 0, 3), (0, 2, 5), (0, -1, -1)]


def test_a_partition_named_twice_is_an_invalid_request_answered_once() -> None:
    with ClusterDriver() as driver:
        wish = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        fields = {"replica_id": -1, "isolation_level": 0, "timeout": 0, "topics": [{"name": "t", "partitions": [wish, wish]}]}
        answer = driver.call(Api.LIST_OFFSETS, 9, fields)
        assert [int(each.error_code) for each in answer.topics[0].partitions] == [42]


# ---- DeleteRecords ----------------------------------------------------------------------------------------------------


def deleted(driver: ClusterDriver, offset: int, broker: int = 1) -> tuple[int, int]:
    answer = driver.loop.run_until_complete(driver.deleting(offset, broker=broker)).topics[0].partitions[0]
    return int(answer.error_code), answer.low_watermark


def test_records_are_deleted_up_to_an_offset_that_is_committed() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(5))
        driver.produce(batch(5))
        assert [deleted(driver, each) for each in (3, 2, 11, -2, -1)] == [(0, 3), (0, 3), (1, -1), (1, -1), (0, 10)]
        assert deleted(driver, 1, broker=2) == (6, -1)
        assert {driver.partition.log_of(each).start for each in (1, 2, 3)} == {10}


def test_a_batch_that_a_deletion_divides_is_kept_and_not_read_below_it() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(5))
        deleted(driver, 3)
        assert len(driver.partition.log.batches) == 1
        assert int(driver.read(2).error_code) == 1
        assert int(driver.read(3).error_code) == 0
        assert driver.list(WALL_MS).offset == 3


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


def test_a_compacted_topic_deletes_no_records() -> None:
    with ClusterDriver(config={"cleanup.policy": "compact"}) as driver:
        assert deleted(driver, 0) == (44, -1)
