from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from pyclient.errors import IllegalStateError
from pyclient.testing.fake.model.epochs import Epochs
from pyclient.testing.fake.model.elections import NO_LEADER
from tests.unit.testing.fake.cluster_driver import ClusterDriver, batch, produced


def lagging(ms: float = 100, **settings: Any) -> ClusterDriver:
    """A cluster whose followers fetch late, settled."""
    driver = ClusterDriver(replica_lag_ms=ms, **settings)
    driver.advance(min(3 * ms / 1000, 1))
    return driver


def test_without_lag_every_replica_has_and_commits_everything_at_once() -> None:
    with ClusterDriver() as driver:
        driver.produce(batch(3), acks=1)
        assert driver.ends() == driver.marks() == {1: 3, 2: 3, 3: 3}


def test_followers_fetch_late_and_learn_the_high_watermark_one_fetch_later() -> None:
    with lagging() as driver:
        driver.produce(acks=1)
        assert driver.ends() == {1: 1, 2: 0, 3: 0}
        driver.advance(0.11)
        assert driver.ends() == {1: 1, 2: 1, 3: 1}
        assert driver.marks() == {1: 1, 2: 0, 3: 0}
        driver.advance(0.11)
        assert driver.marks() == {1: 1, 2: 1, 3: 1}
        assert driver.loop.next_timer is None  # no follower fetches without need


def test_a_dead_replica_holds_the_high_watermark_until_the_controller_notices() -> None:
    with ClusterDriver(failure_detection_ms=500) as driver:
        driver.kill(3)
        driver.produce(acks=1)
        assert driver.marks()[1] == 0
        assert driver.partition.isr == [1, 2, 3]
        driver.advance(0.6)
        assert driver.partition.isr == [1, 2]
        assert driver.marks()[1] == 1


def test_a_dead_leader_is_named_until_the_controller_notices() -> None:
    with ClusterDriver(failure_detection_ms=500) as driver:
        driver.kill(1)
        assert driver.partition.leader == 1
        driver.advance(0.6)
        assert (driver.partition.leader, driver.partition.leader_epoch, driver.partition.isr) == (2, 1, [2, 3])


def test_a_leader_back_before_anybody_noticed_has_lost_its_place_all_the_same() -> None:
    with ClusterDriver(failure_detection_ms=500) as driver:
        driver.kill(1)
        driver.restart(1)
        assert driver.partition.leader == 2
        assert sorted(driver.partition.isr) == [1, 2, 3]
        driver.advance(1)
        assert driver.partition.leader_epoch == 1


def test_a_restarted_follower_catches_up_and_is_in_sync_again() -> None:
    with ClusterDriver() as driver:
        driver.kill(2)
        driver.produce(batch(4))
        assert driver.ends()[2] == 0
        driver.restart(2)
        assert driver.ends()[2] == driver.marks()[2] == 4
        assert driver.partition.isr == [1, 2, 3]


def test_a_follower_that_missed_nothing_is_in_sync_again_all_the_same() -> None:
    with lagging() as driver:
        driver.kill(2)
        assert driver.partition.isr == [1, 3]
        driver.restart(2)
        driver.advance(0.2)
        assert driver.partition.isr == [1, 2, 3]


def test_nothing_is_fetched_from_a_dead_leader_before_the_controller_notices() -> None:
    with lagging(failure_detection_ms=5000) as driver:
        driver.produce(acks=1)
        driver.kill(1)
        driver.advance(1)
        assert driver.ends() == {1: 1, 2: 0, 3: 0}


def test_a_stuck_follower_leaves_the_isr() -> None:
    with lagging(replica_lag_time_max_ms=10_000) as driver:
        driver.do(lambda: driver.partition.set_lag(math.inf))
        task = driver.producing(timeout_ms=60_000)
        driver.advance(9)
        assert not task.done()
        driver.advance(2)
        assert driver.partition.isr == [1]
        assert int(produced(task.result()).error_code) == 0
        driver.do(lambda: driver.partition.set_lag(0))
        assert sorted(driver.partition.isr) == [1, 2, 3]


def test_one_follower_may_lag_while_the_others_do_not() -> None:
    with ClusterDriver(replica_lag_time_max_ms=10_000) as driver:
        driver.do(lambda: driver.partition.set_lag(math.inf, 3))
        driver.produce(acks=1)
        assert (driver.ends(), driver.marks()) == ({1: 1, 2: 1, 3: 0}, {1: 0, 2: 0, 3: 0})
        driver.advance(11)
        assert (driver.partition.isr, driver.marks()) == ([1, 2], {1: 1, 2: 1, 3: 0})
        driver.do(lambda: driver.partition.set_lag(0, 3))
        assert (driver.partition.isr, driver.marks()) == ([1, 2, 3], {1: 1, 2: 1, 3: 1})


def test_a_follower_that_lost_the_end_of_its_log_copies_it_again() -> None:
    with ClusterDriver() as driver:
        for _ in range(4):
            driver.produce()
        driver.kill(3)
        driver.do(lambda: driver.partition.set_lag(math.inf, 3))
        driver.do(lambda: driver.partition.cut(3, 1))
        driver.restart(3)
        assert (driver.ends(), driver.marks(), driver.partition.known_end(3)) == ({1: 4, 2: 4, 3: 1}, {1: 4, 2: 4, 3: 1}, -1)
        driver.do(lambda: driver.partition.set_lag(0, 3))
        assert (driver.values(3), driver.partition.known_end(3)) == (driver.values(1), 4)


def test_only_the_log_of_a_broker_that_is_down_can_be_cut() -> None:
    with ClusterDriver() as driver, pytest.raises(IllegalStateError, match="broker 3 runs: kill it before its log of t-0 is cut"):
        driver.do(lambda: driver.partition.cut(3, 0))


def test_followers_learn_what_a_smaller_isr_commits() -> None:
    with ClusterDriver(failure_detection_ms=5000) as driver:
        driver.kill(2)
        driver.produce(acks=1)
        assert (driver.ends()[3], driver.marks()[3]) == (1, 0)
        driver.advance(6)
        assert (driver.partition.isr, driver.marks()[1], driver.marks()[3]) == ([1, 3], 1, 1)


def test_a_dead_leader_takes_no_follower_out_of_the_isr() -> None:
    with lagging(failure_detection_ms=5000, replica_lag_time_max_ms=1000) as driver:
        driver.do(lambda: driver.partition.set_lag(math.inf))
        driver.produce(acks=1)
        driver.kill(1)
        driver.advance(3)
        assert driver.partition.isr == [1, 2, 3]
        driver.advance(3)
        assert driver.partition.leader == 2


def test_an_old_leader_comes_back_without_what_it_alone_had() -> None:
    with lagging() as driver:
        driver.produce(at=1)
        driver.advance(1)
        driver.produce(at=2, acks=1)
        driver.kill(1)
        driver.advance(1)
        assert driver.partition.leader == 2
        driver.produce(at=3, broker=2)
        driver.restart(1)
        driver.advance(1)
        assert driver.values(1) == driver.values(2) == [1, 3]
        assert [(facts["broker"], facts["end"], facts["lost_to"]) for facts in driver.reported("truncated")] == [(1, 1, 2)]


def test_logs_that_diverged_twice_agree_with_the_last_leader() -> None:
    """Each broker alone writes in an epoch of its own; steps through the epochs find where they part."""
    with lagging(unclean_leader_election_enable=True) as driver:
        driver.produce(at=1, timeout_ms=5000)
        driver.advance(1)
        for broker, stamp in ((1, 2), (2, 3), (3, 4), (1, 5), (2, 6)):
            driver.kill(*(each for each in driver.kafka.alive if each != broker))
            driver.restart(*({broker} - set(driver.kafka.alive)))
            assert driver.partition.leader == broker
            driver.produce(batch(2, at=stamp), broker=broker, acks=1)
        driver.restart(1)
        driver.restart(3)
        driver.advance(2)
        assert driver.values(1) == driver.values(2) == driver.values(3)
        assert driver.values(2)[-1] == 6
        assert len(set(map(str, (driver.partition.log_of(each).epochs.entries[:-1] for each in (1, 3))))) == 1


def test_replicas_agree_whatever_happens() -> None:
    """The law of replication, in random histories: when all is quiet, all logs are the leader's."""
    for seed in range(40):
        random = Random(seed)
        with lagging(random.choice((0, 50)), unclean_leader_election_enable=random.random() < 0.5) as driver:
            _live_through(driver, random)
            driver.restart(*driver.partition.offline)
            driver.advance(5)
            assert driver.partition.leader != NO_LEADER
            logs = [driver.partition.log_of(each) for each in (1, 2, 3)]
            assert len({(each.start, each.end, each.high_watermark) for each in logs}) == 1, seed
            assert len({b"".join(batch.data for batch in each.batches) for each in logs}) == 1, seed
            assert sorted(driver.partition.isr) == [1, 2, 3]


def _live_through(driver: ClusterDriver, random: Random) -> None:
    for stamp in range(30):
        alive, partition = driver.kafka.alive, driver.partition
        what = random.randrange(6)
        if what <= 2 and partition.leader in alive:
            driver.produce(batch(random.randrange(1, 4), at=stamp), broker=partition.leader, acks=1)
        elif what == 3 and alive:
            driver.kill(random.choice(alive), lose_tail=random.random() < 0.5)
        elif what == 4 and partition.offline:
            driver.restart(random.choice(partition.offline))
        elif what == 5 and (able := [each for each in partition.isr if each in alive]):
            driver.lead(random.choice(able))
        driver.advance(random.choice((0, 0.03, 0.06, 0.2)))


def test_committed_records_survive_clean_elections() -> None:
    for seed in range(20):
        with lagging(50) as driver:
            _check_committed_survives(driver, Random(seed), seed)


def _check_committed_survives(driver: ClusterDriver, random: Random, seed: int) -> None:
    kept: list[bytes] = []

    def keep(event: str, facts: object) -> None:
        if event == "high watermark":
            kept.extend(each.data for each in driver.partition.committed()[len(kept):])

    driver.kafka.listeners.append(keep)
    _live_through(driver, random)
    driver.restart(*driver.partition.offline)
    driver.advance(5)
    assert [each.data for each in driver.partition.committed()][:len(kept)] == kept, seed
    assert kept


# ---- elections -------------------------------------------------------------------------------------------------------


def test_there_is_no_leader_without_a_live_in_sync_replica() -> None:
    with ClusterDriver() as driver:
        driver.kill(2, 3, 1)
        assert (driver.partition.leader, driver.partition.isr) == (NO_LEADER, [1])
        driver.restart(2)
        assert driver.partition.leader == NO_LEADER  # it may lack what 1 acknowledged
        driver.restart(1)
        assert driver.partition.leader == 1
        assert driver.partition.isr == [1, 2]


def test_an_unclean_election_loses_acknowledged_records() -> None:
    with ClusterDriver(unclean_leader_election_enable=True) as driver:
        driver.produce(at=1)
        driver.kill(2)
        driver.kill(3)
        assert int(driver.produce(at=2).error_code) == 0
        driver.kill(1)
        driver.restart(2)
        assert driver.partition.leader == 2
        assert driver.reported("leader")[-1]["clean"] is False
        driver.restart(1)
        assert driver.values(1) == [1]


def test_a_topic_may_allow_unclean_elections_for_itself() -> None:
    with ClusterDriver(config={"unclean.leader.election.enable": "true"}) as driver:
        driver.kill(2, 3, 1)
        driver.restart(3)
        assert driver.partition.leader == 3


def test_a_forced_unclean_election_chooses_a_stuck_replica() -> None:
    with lagging(replica_lag_time_max_ms=1000) as driver:
        driver.produce(at=1, timeout_ms=5000)
        driver.do(lambda: driver.partition.set_lag(math.inf))
        driver.produce(at=2, timeout_ms=5000)
        driver.do(lambda: driver.partition.elections.elect_unclean(3))
        driver.do(lambda: driver.partition.set_lag(0))
        assert driver.values(1) == driver.values(3) == [1]
        assert sorted(driver.partition.isr) == [1, 2, 3]


def test_leadership_moves_to_live_in_sync_replicas_only() -> None:
    with ClusterDriver() as driver:
        driver.kill(2)
        with pytest.raises(IllegalStateError, match="broker 2 cannot lead t-0: in sync are \\[1, 3\\]"):
            driver.partition.elections.move_leader(2)
        driver.lead(3)
        driver.lead(3)
        assert (driver.partition.leader, driver.partition.leader_epoch) == (3, 1)


def test_a_preferred_election_restores_the_first_replica() -> None:
    with ClusterDriver() as driver:
        driver.kill(1)
        assert driver.do(driver.partition.elections.elect_preferred) is False
        driver.restart(1)
        assert driver.do(driver.partition.elections.elect_preferred) is True
        assert driver.partition.leader == 1


def test_a_killed_leader_may_lose_its_tail() -> None:
    with lagging() as driver:
        driver.produce(at=1)
        driver.produce(at=2, acks=1)
        driver.kill(2, 3)
        driver.kill(1, lose_tail=True)
        assert driver.values(1) == [1, 2]  # alone in sync, it had committed it
        driver.restart(1)
        driver.restart(2)
        driver.advance(1)
        driver.produce(at=3, acks=1)
        driver.kill(1, lose_tail=True)
        assert driver.values(1) == [1, 2]


def test_too_few_in_sync_replicas_commit_nothing() -> None:
    with ClusterDriver(config={"min.insync.replicas": "3"}) as driver:
        driver.kill(3)
        driver.produce(acks=1)
        assert driver.marks()[1] == 0
        driver.restart(3)
        assert driver.marks()[1] == 1


def test_a_deleted_topic_leaves_nothing_due() -> None:
    driver = ClusterDriver(replica_lag_ms=100, failure_detection_ms=100)
    driver.produce(acks=1)
    driver.kill(3)
    before = driver.loop.next_timer
    driver.do(lambda: driver.kafka.delete_topic("t"))
    driver.advance(0)
    assert (before is not None, driver.loop.next_timer) == (True, None)
    driver.loop.close()


def test_a_waiting_produce_ends_when_its_topic_is_deleted() -> None:
    with ClusterDriver(replica_lag_ms=math.inf) as driver:
        task = driver.producing(timeout_ms=9000)
        driver.advance(0.1)
        driver.do(lambda: driver.kafka.delete_topic("t"))
        driver.advance(0.1)
        assert int(produced(task.result()).error_code) == 6
        driver.do(lambda: driver.kafka.create_topic("t"))


# ---- retention -------------------------------------------------------------------------------------------------------


def test_the_oldest_batches_go_when_there_are_too_many_bytes() -> None:
    with ClusterDriver(log_retention_bytes=1000) as driver:
        for _ in range(20):
            driver.produce(batch(value=bytes(200)))
        log = driver.partition.log
        assert log.size <= 1000
        assert log.end - log.start == len(log.batches) == 3
        assert driver.reported("retention")[-1]["start"] == log.start
        assert {driver.partition.log_of(each).start for each in (1, 2, 3)} == {log.start}


def test_uncommitted_records_are_kept_whatever_their_size() -> None:
    with lagging(math.inf, log_retention_bytes=1000) as driver:
        for _ in range(20):
            assert int(driver.produce(batch(value=bytes(200)), acks=1).error_code) == 0
        assert driver.partition.log.start == 0


def test_a_follower_behind_the_leaders_start_begins_there() -> None:
    with ClusterDriver() as driver:
        driver.kill(3)
        driver.produce(batch(5))
        driver.do(lambda: driver.partition.begin_at(5))
        driver.restart(3)
        assert (driver.partition.log_of(3).start, driver.ends()[3]) == (5, 5)


# ---- epochs ----------------------------------------------------------------------------------------------------------


def test_an_epoch_ends_where_the_next_known_one_begins() -> None:
    epochs = Epochs()
    for epoch, offset in ((1, 0), (3, 10), (6, 25)):
        epochs.assign(epoch, offset)
    ends = {epoch: tuple(epochs.end_of(epoch, 40)) for epoch in (-1, 0, 1, 2, 3, 5, 6, 7)}
    assert ends == {-1: (-1, -1), 0: (0, 0), 1: (1, 10), 2: (1, 10), 3: (3, 25), 5: (3, 25), 6: (6, 40), 7: (-1, -1)}


def test_an_epoch_without_records_is_replaced_by_the_next() -> None:
    epochs = Epochs()
    for epoch, offset in ((0, 0), (1, 5), (2, 5)):
        epochs.assign(epoch, offset)
    assert [tuple(each) for each in epochs.entries] == [(0, 0), (2, 5)]


def test_epochs_follow_the_ends_of_their_log() -> None:
    epochs = Epochs()
    for epoch, offset in ((0, 0), (1, 5), (2, 9)):
        epochs.assign(epoch, offset)
    epochs.begin_at(7)
    assert [tuple(each) for each in epochs.entries] == [(1, 7), (2, 9)]
    epochs.truncate(9)
    assert [tuple(each) for each in epochs.entries] == [(1, 7)]
