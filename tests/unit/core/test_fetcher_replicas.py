"""Fetches from the replica in our rack instead of the leader (C09), and when they go to the leader again."""
from __future__ import annotations

import pytest

from pyclient.codec.apis import Api
from pyclient.core.fetching.preferred_replicas import REACH_LIMIT, PreferredReplicas
from pyclient.records import TopicPartition
from tests.unit.core.fetching import A0, A1, A2, NOT_LEADER, OUT_OF_RANGE, Fetching, offsets_of, batch, gives, settle_metadata
from tests.unit.core.world import Sent, answer, topic, view

LEASE = 300.0
NOT_AVAILABLE = 78
SESSION = 77


@pytest.fixture
def fetching() -> Fetching:
    return Fetching()


def goes_near(fetching: Fetching, *partitions: TopicPartition, replica: int = 3) -> Sent:
    """These are read, their leader names the replica, and the next fetch goes to it."""
    fetching.reads(*partitions)
    gives(fetching.fetches(), {tp: {"preferred_read_replica": replica} for tp in partitions})
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (replica, dict.fromkeys(partitions, 0))
    return sent


def test_C09_requests_name_our_rack_and_the_replica_that_the_leader_names_is_read(fetching: Fetching) -> None:
    fetching.reads(A0)
    sent = fetching.fetches()
    assert (sent.node, sent.body.rack_id) == (1, "r1")
    gives(sent, {A0: {"preferred_read_replica": 3}})
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (3, {A0: 0})
    gives(sent, {A0: batch(0)})
    assert fetching.fetches().node == 3
    assert fetching.offsets() == [0]


def test_C09_only_the_partition_that_the_leader_names_one_for_is_read_elsewhere(fetching: Fetching) -> None:
    fetching.reads(A0, A1)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 3}, A1: b""}, session_id=SESSION)
    sent = {each.node: each for each in fetching.turn()}
    assert {node: offsets_of(each) for node, each in sent.items()} == {3: {A0: 0}, 1: {}}
    assert [part for each in sent[1].body.forgotten_topics_data for part in each.partitions] == [0]


def test_C09_after_the_lease_fetches_go_to_the_leader_again(fetching: Fetching) -> None:
    sent = goes_near(fetching, A0, A1)
    fetching.world.after(LEASE - 1)
    gives(sent, {A0: b""}, session_id=5)
    sent = fetching.fetches()
    assert sent.node == 3
    fetching.world.after(1)
    assert fetching.turn() == []  # no other node gets a fetch of the same partition
    gives(sent, {A0: batch(0)}, session_id=5)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (1, {A0: 1, A1: 0})
    gives(sent, {A0: {"preferred_read_replica": 3}})
    assert {each.node for each in fetching.turn()} == {1, 3}


@pytest.mark.parametrize("offset", [0, 7])
def test_C09_an_offset_out_of_a_followers_range_is_fetched_from_the_leader_and_nothing_is_reset(fetching: Fetching, offset: int) -> None:
    sent = goes_near(fetching, A0)
    if offset:
        gives(sent, {A0: batch(0, 7)})
        sent = fetching.fetches()
    gives(sent, {A0: OUT_OF_RANGE})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (1, {A0: offset})
    gives(sent, {A0: OUT_OF_RANGE})
    if offset:
        assert fetching.turn()[0].node == 1  # C11: it may be the epoch that is not known
    else:
        assert fetching.looks_up()[1] == {A0: -2}


BEHIND: dict[str, object] = {"diverging_epoch": {"epoch": 0, "end_offset": 3}}


@pytest.mark.parametrize("contradiction", [BEHIND, OUT_OF_RANGE], ids=["a diverging epoch", "out of range"])
def test_C09_what_a_follower_says_of_the_logs_end_is_asked_of_the_leader_which_does_not_hear_our_rack(
        fetching: Fetching, contradiction: int | dict[str, object]) -> None:
    sent = goes_near(fetching, A0)
    gives(sent, {A0: batch(0, 7)})
    gives(fetching.fetches(), {A0: contradiction})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent), sent.body.rack_id) == (1, {A0: 7}, "")
    gives(sent, {A0: batch(7)})
    assert fetching.offsets() == [*range(8)]
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent), sent.body.rack_id) == (1, {A0: 8}, "r1")


@pytest.mark.parametrize("contradiction", [BEHIND, OUT_OF_RANGE], ids=["a diverging epoch", "out of range"])
def test_C09_a_follower_that_becomes_the_leader_is_asked_again_for_what_it_said_before(
        fetching: Fetching, contradiction: int | dict[str, object]) -> None:
    sent = goes_near(fetching, A0)
    gives(sent, {A0: batch(0, 7)})
    sent = fetching.fetches()
    fetching.knows(topic("a", sent.node, 1, 2, epoch=1), topic("b", 2))
    gives(sent, {A0: contradiction})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    again = fetching.fetches()
    assert (again.node, offsets_of(again)) == (sent.node, {A0: 7})
    assert fetching.offsets() == [*range(7)]


def test_C11_a_log_that_was_cut_is_believed_to_the_leader_after_a_follower_has_said_so(fetching: Fetching) -> None:
    sent = goes_near(fetching, A0)
    gives(sent, {A0: batch(0, 7)})
    gives(fetching.fetches(), {A0: BEHIND})
    fetching.world.after(1.0)
    gives(fetching.fetches(), {A0: BEHIND})
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent), sent.body.rack_id) == (1, {A0: 0}, "r1")  # nothing of it was returned


@pytest.mark.parametrize("given_up", [True, False])
def test_C09_leaders_hear_our_rack_again_after_a_lease_or_when_the_doubted_partition_is_given_up(fetching: Fetching, given_up: bool) -> None:
    gives(goes_near(fetching, A0, A1), {A0: OUT_OF_RANGE})
    fetching.fetcher.pause([A0])
    fetching.world.after(1.0)
    if given_up:
        fetching.fetcher.assign([A1, A2], fetching.world.now)
        fetching.fetcher.seek(A2, 0)
    else:
        fetching.world.after(LEASE)
    assert {each.body.rack_id for each in fetching.turn()} == {"r1"}


def test_C09_a_follower_and_a_leader_that_never_agree_cause_no_busy_loop(fetching: Fetching) -> None:
    sent = goes_near(fetching, A0)
    for pause in (1, 2, 4):
        gives(sent, {A0: OUT_OF_RANGE})
        assert fetching.turn() == []
        assert fetching.fetcher.next_deadline() == fetching.world.now + pause
        fetching.world.after(pause)
        gives(fetching.fetches(), {A0: {"preferred_read_replica": 3}})
        sent = fetching.fetches()
        assert sent.node == 3


@pytest.mark.parametrize("code", [NOT_LEADER, NOT_AVAILABLE, 9, 56, 74, 3, -1])
def test_C09_any_error_of_a_follower_ends_the_lease_and_the_leader_is_fetched_from_after_a_pause(fetching: Fetching, code: int) -> None:
    sent = goes_near(fetching, A0)
    gives(sent, {A0: code})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (1, {A0: 0})


def test_C09_a_partition_that_comes_back_to_its_leader_is_still_in_an_unchanged_session(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 3}}, session_id=SESSION)
    gives(fetching.fetches(), {A0: NOT_LEADER})
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (sent.node, sent.body.session_epoch, offsets_of(sent), fetching.fetcher.in_flight) == (1, 1, {}, [A0])


def test_C09_an_offset_out_of_the_range_of_one_that_leads_no_more_is_fetched_from_the_leader(fetching: Fetching) -> None:
    fetching.reads(A0)
    sent = fetching.fetches()
    fetching.knows(topic("a", 2, 1, 2, epoch=1), topic("b", 2))
    assert fetching.turn() == []
    gives(sent, {A0: OUT_OF_RANGE})
    assert fetching.turn() == []
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (2, {A0: 0})


@pytest.mark.parametrize("lost", [True, False])
def test_C09_after_a_lost_connection_fetches_go_to_the_leader(fetching: Fetching, lost: bool) -> None:
    sent = goes_near(fetching, A0, A1)
    sent.is_lost() if lost else sent.is_not_sent()
    fetching.world.after(1.0)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (1, {A0: 0, A1: 0})


def test_C09_a_new_leader_ends_the_lease(fetching: Fetching) -> None:
    gives(goes_near(fetching, A0), {A0: b""})
    replica_fetch = fetching.fetches()
    fetching.knows(topic("a", 2, 1, 2, epoch=1), topic("b", 2))
    gives(replica_fetch, {A0: batch(0)})
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (2, {A0: 1})


def test_C09_the_same_leader_in_a_new_epoch_ends_the_lease(fetching: Fetching) -> None:
    gives(goes_near(fetching, A0), {A0: b""})
    replica_fetch = fetching.fetches()
    fetching.knows(topic("a", 1, 1, 2, epoch=1), topic("b", 2))
    gives(replica_fetch, {A0: b""})
    assert fetching.fetches().node == 1


@pytest.mark.parametrize("how", ["not a broker any more", "offline"])
def test_C09_a_replica_that_goes_offline_ends_the_lease(fetching: Fetching, how: str) -> None:
    replica_fetch = goes_near(fetching, A0)
    if how == "offline":
        set_offline(fetching, 3)
    else:
        fetching.knows(nodes=(1, 2))
    assert fetching.turn() == []
    gives(replica_fetch, {A0: batch(0)})
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (1, {A0: 1})


def test_C09_another_view_of_the_same_cluster_ends_nothing(fetching: Fetching) -> None:
    replica_fetch = goes_near(fetching, A0)
    fetching.knows()
    gives(replica_fetch, {A0: batch(0)})
    assert fetching.fetches().node == 3


@pytest.mark.parametrize("replica", [9, 3])
def test_C09_an_unknown_or_offline_replica_gets_no_fetch_and_causes_no_busy_loop(fetching: Fetching, replica: int) -> None:
    set_offline(fetching, 3)
    fetching.reads(A0)
    settle_metadata(fetching)
    set_offline(fetching, 3)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": replica}})
    assert fetching.turn() == []
    fetching.world.after(64.0)
    assert fetching.world.turn(fetching.metadata)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent)) == (1, {A0: 0})


def test_C09_a_leader_that_names_itself_gets_the_next_fetch(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 1}})
    assert fetching.fetches().node == 1


def test_C09_records_beside_the_name_of_a_replica_are_taken(fetching: Fetching) -> None:
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 3, "records": batch(0)}})
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent), fetching.offsets()) == (3, {A0: 1}, [0])


def test_C09_a_follower_that_cannot_be_reached_is_given_up_and_leaders_do_not_hear_our_rack_for_a_while(fetching: Fetching) -> None:
    fetching.world.nodes = {1, 2}
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 3}})
    assert fetching.turn() == []
    assert 3 in fetching.world.wished
    assert fetching.fetcher.next_deadline() == fetching.world.now + REACH_LIMIT
    fetching.world.after(REACH_LIMIT - 1)
    assert fetching.turn() == []
    fetching.world.after(1)
    sent = fetching.fetches()
    assert (sent.node, offsets_of(sent), sent.body.rack_id) == (1, {A0: 0}, "")
    assert fetching.fetcher.next_deadline() is None
    fetching.world.after(LEASE)
    gives(sent, {A0: batch(0)})
    assert fetching.fetches().body.rack_id == "r1"


def test_C09_a_follower_that_can_be_reached_in_time_gets_the_fetch(fetching: Fetching) -> None:
    fetching.world.nodes = {1, 2}
    fetching.reads(A0)
    gives(fetching.fetches(), {A0: {"preferred_read_replica": 3}})
    assert fetching.turn() == []
    fetching.world.after(REACH_LIMIT / 2)
    fetching.world.nodes = {1, 2, 3}
    sent = fetching.fetches()
    assert (sent.node, sent.body.rack_id) == (3, "r1")
    fetching.world.after(REACH_LIMIT)
    fetching.turn()
    gives(sent, {A0: batch(0)})
    assert fetching.fetches().node == 3


def test_C09_a_leader_that_cannot_be_reached_is_waited_for(fetching: Fetching) -> None:
    fetching.world.nodes = {2}
    fetching.reads(A0, A2)
    gives(fetching.fetches(), {A2: {"preferred_read_replica": 3}})
    assert fetching.turn() == []
    fetching.world.after(REACH_LIMIT)
    assert [each.node for each in fetching.turn()] == [2]
    assert fetching.fetcher.next_deadline() is None


def test_C09_what_is_given_up_holds_no_lease(fetching: Fetching) -> None:
    replica_fetch = goes_near(fetching, A0)
    fetching.fetcher.assign([], fetching.world.now)
    gives(replica_fetch, {A0: batch(0)})
    fetching.reads(A0)
    assert fetching.fetches().node == 1


def test_leases_end_one_by_one_and_a_new_one_begins_its_own_time() -> None:
    cluster = Fetching().metadata.cluster
    replicas = PreferredReplicas("r1", LEASE)
    for number, tp in enumerate((A0, A1, A2)):
        assert replicas.begin(tp, 3, cluster, 10.0 * number)
    assert replicas.begin(A0, 3, cluster, 15.0)
    assert (len(replicas), replicas.of(A0), replicas.of(TopicPartition("b", 0))) == (3, 3, None)
    assert replicas.expire(LEASE + 9) == []
    assert replicas.expire(LEASE + 14) == [A1]
    assert replicas.expire(LEASE + 20) == [A2, A0]
    replicas.end(A0)
    assert len(replicas) == 0


def test_a_lease_belongs_to_one_leader_even_of_brokers_that_send_no_epochs() -> None:
    fetching = Fetching()
    fetching.knows(topic("a", 1, 1, 2, epoch=-1))
    replicas = PreferredReplicas("r1", LEASE)
    assert replicas.begin(A0, 3, fetching.metadata.cluster, 0.0)
    assert replicas.begin(A1, 1, fetching.metadata.cluster, 0.0)
    assert len(replicas) == 1  # the leader needs none
    assert replicas.follow(fetching.metadata.cluster) == []
    fetching.knows(topic("a", 2, 1, 2, epoch=-1))
    assert replicas.follow(fetching.metadata.cluster) == [A0]


def set_offline(fetching: Fetching, replica: int) -> None:
    """The cluster says that a replica of a-0 is offline, in no new epoch."""
    reported = topic("a", 1, 1, 2)
    reported["partitions"][0]["offline_replicas"] = [replica]  # type: ignore[index]
    fetching.metadata.hint(fetching.metadata.cluster.updated(answer(Api.METADATA, 13, **view(reported, topic("b", 2)))))
