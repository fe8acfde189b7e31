from __future__ import annotations

import math
from typing import Any

import pytest

from pyclient.codec.apis import Api
from pyclient.testing.fake.handlers.sessions import EVICTABLE_AFTER_S, following, sessions_of
from tests.unit.testing.fake.cluster_driver import ClusterDriver, batch, fetch_fields

SIZE = len(batch())


def filled(count: int = 3, **options: Any) -> ClusterDriver:
    """A cluster with so many batches of one record."""
    driver = ClusterDriver(**options)
    for each in range(count):
        driver.produce(at=each, acks=1)
    return driver


# ---- how bytes are cut -----------------------------------------------------------------------------------------------


def test_consumers_see_nothing_from_the_high_watermark_on() -> None:
    with ClusterDriver(replica_lag_ms=math.inf) as driver:
        driver.produce(acks=1)
        found = driver.read(0)
        assert (bytes(found.records), found.high_watermark, int(found.error_code)) == (b"", 0, 0)
        assert int(driver.read(1).error_code) == 0  # between high watermark and end is no error
        assert int(driver.read(2).error_code) == 1


# ---- waiting ---------------------------------------------------------------------------------------------------------


def begin(driver: ClusterDriver, offset: int, *, idle: float = 0, **options: Any) -> Any:
    task = driver.begin(Api.FETCH, 12, fetch_fields(offset, **options), idle=idle)
    driver.advance(0.01)
    return task


def test_a_long_poll_sees_records_that_arrived_before_it_waited() -> None:
    with ClusterDriver() as driver:
        task = begin(driver, 0, wait_ms=500, idle=0.1)
        driver.produce()
        driver.advance(0.11)
        assert len(task.result().responses[0].partitions[0].records) == SIZE


def test_a_long_poll_ends_at_once_when_the_leader_changes() -> None:
    with ClusterDriver() as driver:
        task = driver.begin(Api.FETCH, 16, _by_id(driver, wait_ms=500))
        driver.advance(0.01)
        driver.lead(2)
        driver.advance(0.01)
        answer = task.result()
        found = answer.responses[0].partitions[0]
        assert (int(found.error_code), found.current_leader.leader_id, found.current_leader.leader_epoch) == (74, 2, 1)
        assert [each.node_id for each in answer.node_endpoints] == [2]


def _by_id(driver: ClusterDriver, **options: Any) -> dict[str, object]:
    """A fetch that names its topic by id."""
    wish = {"partition": 0, "current_leader_epoch": 0, "fetch_offset": 0, "last_fetched_epoch": -1, "log_start_offset": -1,
            "partition_max_bytes": 1 << 20}
    return {**fetch_fields(0, **options), "topics": [{"topic_id": driver.topic.id, "partitions": [wish]}]}


def test_errors_are_answered_without_waiting() -> None:
    with ClusterDriver() as driver:
        for options in ({"topics": {"nope": [0]}}, {"epoch": 3}, {"last_epoch": 9}):
            assert begin(driver, 0, wait_ms=500, **options).done()


# ---- epochs ----------------------------------------------------------------------------------------------------------


def test_another_leader_epoch_is_fenced_or_unknown() -> None:
    with ClusterDriver() as driver:
        driver.lead(2)
        codes = [int(driver.read(0, broker=2, epoch=epoch).error_code) for epoch in (0, 1, 2)]
        assert codes == [74, 0, 75]


def test_a_reader_of_lost_records_gets_the_diverging_epoch() -> None:
    with ClusterDriver(unclean_leader_election_enable=True) as driver:
        driver.produce(at=1)
        driver.kill(2)
        driver.produce(batch(4, at=2))
        driver.kill(3)
        driver.kill(1)
        driver.restart(2)
        driver.produce(batch(9, at=3), broker=2)
        found = driver.read(5, broker=2, last_epoch=0)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset, bytes(found.records)) == (0, 1, b"")
        assert driver.read(1, broker=2, last_epoch=0).diverging_epoch.end_offset == -1
        assert int(driver.read(1, broker=2, last_epoch=9).error_code) == 1


# ---- followers -------------------------------------------------------------------------------------------------------


def test_a_follower_serves_what_it_knows_to_be_committed_since_version_11() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        driver.produce(acks=1)
        driver.advance(0.11)
        assert len(driver.read(0, broker=2).records) == 0
        driver.advance(0.11)
        assert len(driver.read(0, broker=2).records) == SIZE
        assert int(driver.read(0, broker=2, version=10).error_code) == 6


def test_a_long_poll_at_a_follower_ends_when_it_learns_that_records_are_committed() -> None:
    with ClusterDriver(replica_lag_ms=100) as driver:
        driver.advance(1)
        task = driver.begin(Api.FETCH, 12, fetch_fields(0, wait_ms=900), broker=2)
        driver.produce()
        driver.advance(0.3)
        assert len(task.result().responses[0].partitions[0].records) == SIZE


def test_readers_are_sent_to_the_replica_in_their_rack() -> None:
    with filled(racks=("a", "b", "b"), replica_selector_class="rack") as driver:
        assert [driver.read(0, rack=rack).preferred_read_replica for rack in ("a", "b", "c", "")] == [-1, 3, -1, -1]
        assert bytes(driver.read(0, rack="b").records) == b""
        assert bytes(driver.read(0, rack="b", broker=3).records)
        driver.kill(3)
        assert driver.read(0, rack="b").preferred_read_replica == 2


def test_readers_are_sent_to_a_replica_once_the_leader_knows_that_it_has_the_offset() -> None:
    with ClusterDriver(racks=("a", "b", "c"), replica_selector_class="rack", replica_lag_ms=100) as driver:
        driver.advance(1)
        driver.produce(acks=1)
        driver.advance(0.11)
        assert driver.read(1, rack="b").preferred_read_replica == 2
        driver.lead(3)
        assert driver.read(0, broker=3, rack="b").preferred_read_replica == -1
        driver.advance(0.11)
        assert driver.read(0, broker=3, rack="b").preferred_read_replica == 2


def test_a_follower_that_is_behind_its_reader_says_where_its_log_ends() -> None:
    with filled() as driver:
        driver.kill(2)
        driver.do(lambda: driver.partition.cut(2, 1))
        driver.do(lambda: driver.partition.set_lag(math.inf, 2))
        driver.restart(2)
        found = driver.read(3, broker=2, last_epoch=0)
        assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset, bytes(found.records)) == (0, 1, b"")
        assert int(driver.read(3, broker=2).error_code) == 1
        assert bytes(driver.read(1, broker=2).records) == b""


# ---- sessions --------------------------------------------------------------------------------------------------------


def topics_in(answer: Any) -> list[str]:
    return [each.topic for each in answer.responses]


def test_a_session_reports_a_new_log_start_and_last_stable_offset() -> None:
    with filled() as driver:
        name = driver.fetch(3, session=(0, 0)).session_id
        driver.do(lambda: driver.partition.begin_at(2))
        assert [topics_in(driver.fetch(3, session=(name, each), topics={})) for each in (1, 2)] == [["t"], []]
        _write_transactional(driver, 9)
        assert [topics_in(driver.fetch(3, session=(name, each), topics={}, isolation=1)) for each in (3, 4)] == [["t"], []]


def test_a_partition_that_had_records_is_read_last_the_next_time() -> None:
    with ClusterDriver() as driver:
        driver.do(lambda: driver.kafka.create_topic("u", 1))
        name = driver.fetch(0, session=(0, 0), topics={"t": [0], "u": [0]}).session_id
        driver.produce()
        driver.fetch(0, session=(name, 1), topics={})
        session = sessions_of(driver.kafka, 1)._sessions[name]
        assert [topic for topic, _ in session.partitions] == ["u", "t"]


def test_a_long_poll_whose_session_went_on_without_it_is_out_of_turn() -> None:
    with filled() as driver:
        name = driver.fetch(3, session=(0, 0)).session_id
        overtaken = begin(driver, 3, session=(name, 1), topics={}, wait_ms=100)
        assert int(driver.fetch(3, session=(name, 2), topics={}).error_code) == 0
        driver.advance(0.2)
        assert (int(overtaken.result().error_code), overtaken.result().session_id) == (71, name)


def test_a_session_without_partitions_ends() -> None:
    with filled() as driver:
        name = driver.fetch(0, session=(0, 0)).session_id
        assert driver.fetch(0, session=(name, 1), topics={}, forgotten={"t": [0]}).session_id == 0
        assert int(driver.fetch(0, session=(name, 2), topics={}).error_code) == 70


def test_sessions_are_lost_with_their_broker() -> None:
    with filled() as driver:
        name = driver.fetch(0, session=(0, 0)).session_id
        driver.kill(1)
        driver.restart(1)
        assert int(driver.fetch(0, session=(name, 1), topics={}).error_code) == 70


def test_without_a_free_slot_there_is_no_session_until_one_is_stale() -> None:
    with filled(max_incremental_fetch_session_cache_slots=1) as driver:
        name = driver.fetch(0, session=(0, 0)).session_id
        assert driver.fetch(0, session=(0, 0)).session_id == 0
        driver.advance(EVICTABLE_AFTER_S + 1)
        another = driver.fetch(0, session=(0, 0)).session_id
        assert another not in (0, name)


def test_an_old_session_makes_room_for_a_larger_one() -> None:
    with filled(max_incremental_fetch_session_cache_slots=1) as driver:
        name = driver.fetch(0, session=(0, 0), topics={"t": [0], "u": [0]}).session_id
        driver.advance(EVICTABLE_AFTER_S - 1)
        driver.fetch(0, session=(name, 1), topics={})
        driver.advance(2)
        driver.fetch(0, session=(name, 2), topics={})
        assert driver.fetch(0, session=(0, 0), topics={"t": [0], "u": [0]}).session_id == 0
        assert driver.fetch(0, session=(0, 0), topics={"t": [0], "u": [0, 1]}).session_id != 0
        assert len(sessions_of(driver.kafka, 1)) == 1


def test_a_session_belongs_to_names_or_to_ids() -> None:
    with filled() as driver:
        name = driver.fetch(0, session=(0, 0)).session_id
        fields = {**fetch_fields(0, session=(name, 1)), "topics": []}
        assert int(driver.call(Api.FETCH, 13, fields).error_code) == 106


def test_session_epochs_go_on_with_1_after_the_last() -> None:
    assert [following(each) for each in (0, 1, 2**31 - 1)] == [1, 2, 1]


# ---- transactions ----------------------------------------------------------------------------------------------------


def test_read_committed_stops_at_an_open_transaction_and_lists_aborted_ones() -> None:
    with ClusterDriver() as driver:
        driver.produce(at=1)
        _write_transactional(driver, 2)
        driver.produce(at=3)
        found = driver.read(0, isolation=1)
        assert (found.last_stable_offset, len(found.records), found.aborted_transactions) == (1, SIZE, ())
        assert driver.list(-1, isolation=1).offset == 1
        assert driver.read(0).aborted_transactions is None
        driver.do(lambda: driver.partition.write_marker(1, 7, 0, commits=False, coordinator_epoch=0))
        found = driver.read(0, isolation=1)
        assert found.last_stable_offset == found.high_watermark == 4
        assert [(each.producer_id, each.first_offset) for each in found.aborted_transactions] == [(7, 1)]
        assert driver.read(4, isolation=1).aborted_transactions == ()


def test_a_committed_transaction_is_stable_when_its_marker_is_committed() -> None:
    with ClusterDriver(replica_lag_ms=math.inf) as driver:
        _write_transactional(driver, 1)
        driver.do(lambda: driver.partition.write_marker(1, 7, 0, commits=True, coordinator_epoch=0))
        log = driver.partition.log
        log.high_watermark = 1
        assert log.last_stable == 0
        log.high_watermark = 2
        assert log.last_stable == 2
        assert log.aborted(0, 2) == []


def _write_transactional(driver: ClusterDriver, stamp: int) -> None:
    data = batch(at=stamp, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    driver.do(lambda: driver.partition.write(1, data, all_in_sync=False))


# ---- versions --------------------------------------------------------------------------------------------------------


def _asked_by(driver: ClusterDriver, version: int) -> dict[str, object]:
    return fetch_fields(0) if version < 13 else _by_id(driver)


@pytest.mark.parametrize("version", range(4, 19))
def test_every_version_of_fetch_is_answered_and_refused(version: int) -> None:
    with filled(1) as driver:
        assert len(driver.call(Api.FETCH, version, _asked_by(driver, version)).responses[0].partitions[0].records) == SIZE
        frame = driver.begin(Api.FETCH, version, {**_asked_by(driver, version), "topics": []})
        assert driver.loop.run_until_complete(frame).responses == ()
        refused = driver.refused(Api.FETCH, version, _asked_by(driver, version), code=6)
        codes = [int(each.error_code) for topic in refused.responses for each in topic.partitions]
        assert codes == ([6] if version < 7 else [])
        assert int(getattr(refused, "error_code", 6)) == 6


@pytest.mark.parametrize(("api", "version"), [
    *((Api.PRODUCE, each) for each in range(3, 14)), *((Api.LIST_OFFSETS, each) for each in range(1, 12)),
    *((Api.OFFSET_FOR_LEADER_EPOCH, each) for each in range(2, 5)), *((Api.DELETE_RECORDS, each) for each in range(3)),
])
def test_every_version_of_the_data_plane_is_answered_and_refused(api: Api, version: int) -> None:
    with filled(1) as driver:
        fields = _smallest(driver, api, version)
        for answer, code in ((driver.call(api, version, fields), 0), (driver.refused(api, version, fields, code=6), 6)):
            (topic,) = getattr(answer, "topics", None) or answer.responses
            (found,) = getattr(topic, "partitions", None) or topic.partition_responses
            assert int(found.error_code) == code


def _smallest(driver: ClusterDriver, api: Api, version: int) -> dict[str, object]:
    """A request for the one partition, with what any version needs."""
    if api is Api.PRODUCE:
        topic = {"topic_id": driver.topic.id} if version >= 13 else {"name": "t"}
        return {"transactional_id": None, "acks": -1, "timeout": 0,
                "topic_data": [{**topic, "partition_data": [{"index": 0, "records": batch()}]}]}
    wish = {"partition_index": 0, "partition": 0, "current_leader_epoch": -1, "timestamp": -1, "leader_epoch": 0, "offset": 0}
    return {"replica_id": -1, "isolation_level": 0, "timeout": 0, "topics": [{"name": "t", "topic": "t", "partitions": [wish]}]}
