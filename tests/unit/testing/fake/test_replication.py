from __future__ import annotations

import math
from random import Random
from typing import Any

import pytest

from pyclient.errors import IllegalStateError
from pyclient.testing.fake.epochs import Epochs
from pyclient.testing.fake.partition import NOBODY
from tests.unit.testing.fake.cluster_driver import Plane, batch, produced


def lagging(ms: float = 100, **settings: Any) -> Plane:
    """A cluster whose followers fetch late, settled."""
    plane = Plane(replica_lag_ms=ms, **settings)
    plane.advance(min(3 * ms / 1000, 1))
    return plane


def test_without_lag_every_replica_has_and_commits_everything_at_once() -> None:
    with Plane() as plane:
        plane.produce(batch(3), acks=1)
        assert plane.ends() == plane.marks() == {1: 3, 2: 3, 3: 3}


def test_followers_fetch_late_and_learn_the_high_watermark_one_fetch_later() -> None:
    with lagging() as plane:
        plane.produce(acks=1)
        assert plane.ends() == {1: 1, 2: 0, 3: 0}
        plane.advance(0.11)
        assert plane.ends() == {1: 1, 2: 1, 3: 1}
        assert plane.marks() == {1: 1, 2: 0, 3: 0}
        plane.advance(0.11)
        assert plane.marks() == {1: 1, 2: 1, 3: 1}
        assert plane.loop.next_timer is None  # nobody fetches for nothing


def test_a_dead_replica_holds_the_high_watermark_until_the_controller_notices() -> None:
    with Plane(failure_detection_ms=500) as plane:
        plane.kill(3)
        plane.produce(acks=1)
        assert plane.marks()[1] == 0
        assert plane.partition.isr == [1, 2, 3]
        plane.advance(0.6)
        assert plane.partition.isr == [1, 2]
        assert plane.marks()[1] == 1


def test_a_dead_leader_is_named_until_the_controller_notices() -> None:
    with Plane(failure_detection_ms=500) as plane:
        plane.kill(1)
        assert plane.partition.leader == 1
        plane.advance(0.6)
        assert (plane.partition.leader, plane.partition.leader_epoch, plane.partition.isr) == (2, 1, [2, 3])


def test_a_leader_back_before_anybody_noticed_has_lost_its_place_all_the_same() -> None:
    with Plane(failure_detection_ms=500) as plane:
        plane.kill(1)
        plane.restart(1)
        assert plane.partition.leader == 2
        assert sorted(plane.partition.isr) == [1, 2, 3]
        plane.advance(1)
        assert plane.partition.leader_epoch == 1


def test_a_restarted_follower_catches_up_and_is_in_sync_again() -> None:
    with Plane() as plane:
        plane.kill(2)
        plane.produce(batch(4))
        assert plane.ends()[2] == 0
        plane.restart(2)
        assert plane.ends()[2] == plane.marks()[2] == 4
        assert plane.partition.isr == [1, 2, 3]


def test_a_follower_that_missed_nothing_is_in_sync_again_all_the_same() -> None:
    with lagging() as plane:
        plane.kill(2)
        assert plane.partition.isr == [1, 3]
        plane.restart(2)
        plane.advance(0.2)
        assert plane.partition.isr == [1, 2, 3]


def test_nothing_is_fetched_from_a_dead_leader_that_nobody_misses_yet() -> None:
    with lagging(failure_detection_ms=5000) as plane:
        plane.produce(acks=1)
        plane.kill(1)
        plane.advance(1)
        assert plane.ends() == {1: 1, 2: 0, 3: 0}


def test_a_follower_that_hangs_leaves_the_isr_and_the_rest_goes_on() -> None:
    with lagging(replica_lag_time_max_ms=10_000) as plane:
        plane.do(lambda: plane.partition.set_lag(math.inf))
        task = plane.producing(timeout_ms=60_000)
        plane.advance(9)
        assert not task.done()
        plane.advance(2)
        assert plane.partition.isr == [1]
        assert int(produced(task.result()).error_code) == 0
        plane.do(lambda: plane.partition.set_lag(0))
        assert sorted(plane.partition.isr) == [1, 2, 3]


def test_an_old_leader_comes_back_without_what_it_alone_had() -> None:
    with lagging() as plane:
        plane.produce(at=1)
        plane.advance(1)
        plane.produce(at=2, acks=1)
        plane.kill(1)
        plane.advance(1)
        assert plane.partition.leader == 2
        plane.produce(at=3, broker=2)
        plane.restart(1)
        plane.advance(1)
        assert plane.values(1) == plane.values(2) == [1, 3]
        assert [(facts["broker"], facts["end"], facts["lost_to"]) for facts in plane.told("truncated")] == [(1, 1, 2)]


def test_logs_that_diverged_twice_agree_with_the_last_leader() -> None:
    """Each broker alone writes in an epoch of its own; steps through the epochs find where they part."""
    with lagging(unclean_leader_election_enable=True) as plane:
        plane.produce(at=1, timeout_ms=5000)
        plane.advance(1)
        for broker, stamp in ((1, 2), (2, 3), (3, 4), (1, 5), (2, 6)):
            plane.kill(*(each for each in plane.kafka.alive if each != broker))
            plane.restart(*({broker} - set(plane.kafka.alive)))
            assert plane.partition.leader == broker
            plane.produce(batch(2, at=stamp), broker=broker, acks=1)
        plane.restart(1)
        plane.restart(3)
        plane.advance(2)
        assert plane.values(1) == plane.values(2) == plane.values(3)
        assert plane.values(2)[-1] == 6
        assert len(set(map(str, (plane.partition.log_of(each).epochs.entries[:-1] for each in (1, 3))))) == 1


def test_replicas_agree_whatever_happens() -> None:
    """The law of replication, in random histories: when all is quiet, all logs are the leader's."""
    for seed in range(40):
        random = Random(seed)
        with lagging(random.choice((0, 50)), unclean_leader_election_enable=random.random() < 0.5) as plane:
            _live_through(plane, random)
            plane.restart(*plane.partition.offline)
            plane.advance(5)
            assert plane.partition.leader != NOBODY
            logs = [plane.partition.log_of(each) for each in (1, 2, 3)]
            assert len({(each.start, each.end, each.high_watermark) for each in logs}) == 1, seed
            assert len({b"".join(batch.data for batch in each.batches) for each in logs}) == 1, seed
            assert sorted(plane.partition.isr) == [1, 2, 3]


def _live_through(plane: Plane, random: Random) -> None:
    for stamp in range(30):
        alive, partition = plane.kafka.alive, plane.partition
        what = random.randrange(6)
        if what <= 2 and partition.leader in alive:
            plane.produce(batch(random.randrange(1, 4), at=stamp), broker=partition.leader, acks=1)
        elif what == 3 and alive:
            plane.kill(random.choice(alive), lose_tail=random.random() < 0.5)
        elif what == 4 and partition.offline:
            plane.restart(random.choice(partition.offline))
        elif what == 5 and (able := [each for each in partition.isr if each in alive]):
            plane.lead(random.choice(able))
        plane.advance(random.choice((0, 0.03, 0.06, 0.2)))


def test_what_is_committed_survives_clean_elections() -> None:
    for seed in range(20):
        with lagging(50) as plane:
            _check_committed_survives(plane, Random(seed), seed)


def _check_committed_survives(plane: Plane, random: Random, seed: int) -> None:
    kept: list[bytes] = []

    def keep(event: str, facts: object) -> None:
        if event == "high watermark":
            kept.extend(each.data for each in plane.partition.committed()[len(kept):])

    plane.kafka.listeners.append(keep)
    _live_through(plane, random)
    plane.restart(*plane.partition.offline)
    plane.advance(5)
    assert [each.data for each in plane.partition.committed()][:len(kept)] == kept, seed
    assert kept


# ---- elections ---------------------------------------------------------------------------------------------------------


def test_nobody_leads_when_no_in_sync_replica_lives() -> None:
    with Plane() as plane:
        plane.kill(2, 3, 1)
        assert (plane.partition.leader, plane.partition.isr) == (NOBODY, [1])
        plane.restart(2)
        assert plane.partition.leader == NOBODY  # it may lack what 1 acknowledged
        plane.restart(1)
        assert plane.partition.leader == 1
        assert plane.partition.isr == [1, 2]


def test_an_unclean_election_loses_what_was_acknowledged() -> None:
    with Plane(unclean_leader_election_enable=True) as plane:
        plane.produce(at=1)
        plane.kill(2)
        plane.kill(3)
        assert int(plane.produce(at=2).error_code) == 0
        plane.kill(1)
        plane.restart(2)
        assert plane.partition.leader == 2
        assert plane.told("leader")[-1]["clean"] is False
        plane.restart(1)
        assert plane.values(1) == [1]


def test_a_topic_may_allow_unclean_elections_for_itself() -> None:
    with Plane(config={"unclean.leader.election.enable": "true"}) as plane:
        plane.kill(2, 3, 1)
        plane.restart(3)
        assert plane.partition.leader == 3


def test_a_forced_unclean_election_takes_a_replica_that_hangs() -> None:
    with lagging(replica_lag_time_max_ms=1000) as plane:
        plane.produce(at=1, timeout_ms=5000)
        plane.do(lambda: plane.partition.set_lag(math.inf))
        plane.produce(at=2, timeout_ms=5000)
        plane.do(lambda: plane.partition.elect_unclean(3))
        plane.do(lambda: plane.partition.set_lag(0))
        assert plane.values(1) == plane.values(3) == [1]
        assert sorted(plane.partition.isr) == [1, 2, 3]


def test_leadership_moves_to_live_in_sync_replicas_only() -> None:
    with Plane() as plane:
        plane.kill(2)
        with pytest.raises(IllegalStateError, match="broker 2 cannot lead t-0: in sync are \\[1, 3\\]"):
            plane.partition.move_leader(2)
        plane.lead(3)
        plane.lead(3)
        assert (plane.partition.leader, plane.partition.leader_epoch) == (3, 1)


def test_the_preferred_replica_leads_again_when_asked_to() -> None:
    with Plane() as plane:
        plane.kill(1)
        assert plane.do(plane.partition.elect_preferred) is False
        plane.restart(1)
        assert plane.do(plane.partition.elect_preferred) is True
        assert plane.partition.leader == 1


def test_a_killed_leader_may_lose_its_tail() -> None:
    with lagging() as plane:
        plane.produce(at=1)
        plane.produce(at=2, acks=1)
        plane.kill(2, 3)
        plane.kill(1, lose_tail=True)
        assert plane.values(1) == [1, 2]  # alone in sync, it had committed it
        plane.restart(1)
        plane.restart(2)
        plane.advance(1)
        plane.produce(at=3, acks=1)
        plane.kill(1, lose_tail=True)
        assert plane.values(1) == [1, 2]


def test_too_few_in_sync_replicas_commit_nothing() -> None:
    with Plane(config={"min.insync.replicas": "3"}) as plane:
        plane.kill(3)
        plane.produce(acks=1)
        assert plane.marks()[1] == 0
        plane.restart(3)
        assert plane.marks()[1] == 1


def test_a_deleted_topic_leaves_nothing_due() -> None:
    plane = Plane(replica_lag_ms=100, failure_detection_ms=100)
    plane.produce(acks=1)
    plane.kill(3)
    before = plane.loop.next_timer
    plane.do(lambda: plane.kafka.delete_topic("t"))
    plane.advance(0)
    assert (before is not None, plane.loop.next_timer) == (True, None)
    plane.loop.close()


def test_whoever_waits_for_a_topic_is_told_when_it_is_deleted() -> None:
    with Plane(replica_lag_ms=math.inf) as plane:
        task = plane.producing(timeout_ms=9000)
        plane.advance(0.1)
        plane.do(lambda: plane.kafka.delete_topic("t"))
        plane.advance(0.1)
        assert int(produced(task.result()).error_code) == 6
        plane.do(lambda: plane.kafka.create_topic("t"))


# ---- retention ---------------------------------------------------------------------------------------------------------


def test_the_oldest_batches_go_when_there_are_too_many_bytes() -> None:
    with Plane(log_retention_bytes=1000) as plane:
        for _ in range(20):
            plane.produce(batch(value=bytes(200)))
        log = plane.partition.log
        assert log.size <= 1000
        assert log.end - log.start == len(log.batches) == 3
        assert plane.told("retention")[-1]["start"] == log.start
        assert {plane.partition.log_of(each).start for each in (1, 2, 3)} == {log.start}


def test_what_is_not_committed_is_kept_whatever_its_size() -> None:
    with lagging(math.inf, log_retention_bytes=1000) as plane:
        for _ in range(20):
            assert int(plane.produce(batch(value=bytes(200)), acks=1).error_code) == 0
        assert plane.partition.log.start == 0


def test_a_follower_behind_the_leaders_start_begins_there() -> None:
    with Plane() as plane:
        plane.kill(3)
        plane.produce(batch(5))
        plane.do(lambda: plane.partition.begin_at(5))
        plane.restart(3)
        assert (plane.partition.log_of(3).start, plane.ends()[3]) == (5, 5)


# ---- epochs ------------------------------------------------------------------------------------------------------------


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
