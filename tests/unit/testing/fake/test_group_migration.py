"""Services that are upgraded one instance at a time: classic members and those of the new protocol (KIP-848) in one group, in virtual time."""
from __future__ import annotations

import struct
from collections.abc import Collection, Iterator


import pytest

from pyclient.errors import ConfigurationError
from pyclient.records import TopicPartition
from pyclient.testing.fake.consumer_group import ConsumerGroup
from pyclient.testing.fake.coordinator import Coordinator
from pyclient.testing.fake.group import Group, State
from pyclient.testing.fake.settings import Settings
from pyclient.testing.fake.subscription import Oversized, Subscription, assigned, notes, read_subscription, written
from tests.unit.testing.fake.classic_members import REBALANCE_S, SESSION_S, SOON_S
from tests.unit.testing.fake.consumer_members import Flock


@pytest.fixture
def flock() -> Iterator[Flock]:
    with Flock() as found:
        yield found


def said(owned: Collection[int] = (), version: int = 1) -> bytes:
    """A classic consumer's subscription to ``t``, with what it has."""
    mine = struct.pack(f">ih1si{len(owned)}i", 1, 1, b"t", len(owned), *owned) if owned else struct.pack(">i", 0)
    return struct.pack(">hih1si", version, 1, 1, b"t", -1) + mine


def given(*indexes: int) -> bytes:
    return written([TopicPartition("t", index) for index in indexes], 1)


def protocols(owned: Collection[int] = ()) -> tuple[tuple[str, bytes], ...]:
    return (("range", said(owned)),)


def shown(assignment: bytes) -> list[int]:
    return [each.partition for each in assigned(assignment)]


def classic(flock: Flock, *instances: str) -> list[str]:
    """Classic members that share ``t`` evenly; their ids."""
    joins = [flock.joining(instance=each, protocols=protocols()) for each in instances]
    answers = [flock.answer(each) for each in joins]
    names, generation = [each.member_id for each in answers], answers[0].generation_id
    each = 4 // len(names)
    share = {name: given(*range(place * each, place * each + each)) for place, name in enumerate(names)}
    syncs = [flock.syncing(name, generation, share if name == flock.group.leader else None, instance=instance)
             for name, instance in zip(names, instances, strict=True)]
    for task in syncs:
        flock.answer(task)
    return names


def rejoin(flock: Flock, name: str, owned: Collection[int], instance: str | None = None) -> tuple[int, list[int]]:
    """Join again and sync: the generation, and what it may use."""
    joined = flock.join(name, protocols=protocols(owned), instance=instance)
    assert joined.error_code == 0
    return int(joined.generation_id), shown(flock.sync(name, joined.generation_id, instance=instance).assignment)


# ---- up -----------------------------------------------------------------------------------------------------------------


def test_the_first_member_of_the_new_protocol_brings_it_and_the_others_go_on_step_by_step(flock: Flock) -> None:
    (old,) = classic(flock, "i")
    generation = flock.group.generation
    assert flock.given(flock.enter("new")) == []
    assert (flock.consumers.epoch, flock.consumers.members[old].epoch) == (generation + 1, generation)
    assert flock.commit(5, member=old, generation=generation, instance="i") == 0
    assert flock.beat(old, generation, instance="i") == 27
    assert rejoin(flock, old, (0, 1, 2, 3), "i") == (generation, [0, 1])
    assert flock.given(flock.pulse("new")) is None
    assert flock.beat(old, generation, instance="i") == 27
    assert rejoin(flock, old, (0, 1), "i") == (generation + 1, [0, 1])
    assert flock.beat(old, generation + 1, instance="i") == 0
    assert flock.given(flock.pulse("new")) == [2, 3]
    assert [each.member_type for each in flock.described().members] == [0, 1]


def test_who_waits_in_the_classic_group_is_told_to_join_again(flock: Flock) -> None:
    first, second = classic(flock, "i", "j")
    waiting = flock.joining(first, instance="i", protocols=protocols())
    flock.soon()
    flock.enter("new")
    assert flock.answer(waiting).error_code == 27
    assert list(flock.consumers.members) == [first, second, "new"]


def test_a_refused_member_upgrades_nobody(flock: Flock) -> None:
    (old,) = classic(flock, "i")
    assert flock.enter("new", None, subscribed_topic_regex="(").error_code == 128
    assert isinstance(flock.group, Group)
    assert flock.beat(old, 1, instance="i") == 0


@pytest.mark.parametrize(("assignment", "kind", "code"), [
    (b"as", "consumer", 69), (b"assignment", "consumer", -1), (given(0)[:-4] + b"\0\0\0\1x", "consumer", 69), (b"", "connect", 69)])
def test_groups_of_something_else_than_pure_consumers_are_not_upgraded(flock: Flock, assignment: bytes, kind: str, code: int) -> None:
    joined = flock.join(instance="i", protocols=protocols(), kind=kind)
    flock.sync(joined.member_id, 1, {joined.member_id: assignment}, instance="i", kind=kind)
    assert flock.enter("new").error_code == code
    assert isinstance(flock.group, Group)


@pytest.mark.parametrize(("policy", "up", "down", "guest"), [
    ("bidirectional", 0, True, 0), ("upgrade", 0, False, 0), ("downgrade", 69, True, 0), ("disabled", 69, False, 23)])
def test_the_policy_says_which_way_groups_may_go(policy: str, up: int, down: bool, guest: int) -> None:
    with Flock(group_consumer_migration_policy=policy) as flock:
        classic(flock, "i")
        assert flock.enter("new").error_code == up
    with Flock(group_consumer_migration_policy=policy) as flock:
        flock.enter("new")
        assert flock.join(instance="i", protocols=protocols()).error_code == guest
        flock.pulse("new", -1)
        assert isinstance(flock.kafka.part(Coordinator).groups["g"], Group) is down


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="group_consumer_migration_policy"):
        Settings.parse({"group.consumer.migration.policy": "sideways"})


def test_a_group_too_large_is_not_upgraded() -> None:
    with Flock(group_consumer_max_size=1) as flock:
        classic(flock, "i", "j")
        assert flock.enter("new").error_code == 69


# ---- classic members in a new group -------------------------------------------------------------------------------------


def test_a_dynamic_member_is_sent_back_with_its_id_first(flock: Flock) -> None:
    flock.enter("new")
    refused = flock.join(protocols=protocols())
    assert (refused.error_code, refused.generation_id) == (79, -1)
    joined = flock.join(refused.member_id, protocols=protocols())
    assert (joined.error_code, joined.generation_id, joined.leader, joined.members) == (0, 3, "", ())
    assert joined.protocol_name == "range"


def test_requests_that_do_not_fit_are_refused(flock: Flock) -> None:
    flock.enter("new")
    joined = flock.join(instance="i", protocols=protocols())
    assert [flock.beat(joined.member_id, 9, instance="i"), flock.beat("nobody", 3), flock.beat("new", 2)] == [22, 25, 25]
    assert flock.beat("nobody", 3, instance="i") == 82
    assert flock.sync(joined.member_id, 9, instance="i").error_code == 22
    assert flock.sync(joined.member_id, 3, instance="i", protocol="sticky").error_code == 23
    assert flock.join(instance="j", protocols=(("sticky", said()),)).error_code == 23
    assert flock.commit(5, member=joined.member_id, generation=9, instance="i") == 22


def test_who_waits_is_told_to_join_again_when_all_it_waits_for_is_free(flock: Flock) -> None:
    flock.enter("new")
    name = flock.join(instance="i", protocols=protocols()).member_id
    assert shown(flock.sync(name, 3, instance="i").assignment) == []
    flock.pulse("new")
    assert flock.beat(name, 3, instance="i") == 0
    flock.pulse("new", owned=(0, 1))
    assert flock.beat(name, 3, instance="i") == 27
    assert rejoin(flock, name, (), "i") == (3, [2, 3])
    assert flock.beat(name, 3, instance="i") == 0


def test_who_is_in_a_past_epoch_has_to_join_again_before_it_syncs(flock: Flock) -> None:
    (old,) = classic(flock, "i")
    flock.enter("new")
    assert flock.sync(old, 1, instance="i").error_code == 27


def test_a_classic_member_commits_with_any_version(flock: Flock) -> None:
    flock.enter("new")
    joined = flock.join(instance="i", protocols=protocols())
    assert flock.commit(5, member=joined.member_id, generation=3, instance="i", version=8) == 0


def test_a_static_member_that_comes_back_takes_its_place(flock: Flock) -> None:
    flock.enter("new")
    first = flock.join(instance="i", protocols=protocols()).member_id
    second = flock.join(instance="i", protocols=protocols()).member_id
    assert list(flock.consumers.members) == ["new", second]
    assert flock.beat(first, 3, instance="i") == 82


def test_a_static_member_of_the_new_protocol_takes_the_place_of_its_classic_self(flock: Flock) -> None:
    classic(flock, "i")
    assert flock.given(flock.enter("new", instance_id="i")) == [0, 1, 2, 3]
    assert list(flock.consumers.members) == ["new"]


# ---- time ---------------------------------------------------------------------------------------------------------------


def mixed(flock: Flock) -> str:
    """A classic member that has all, and a new one that waits for its part."""
    (old,) = classic(flock, "i")
    flock.enter("new")
    return old


def test_a_silent_classic_member_is_given_up_after_its_own_session_timeout(flock: Flock) -> None:
    mixed(flock)
    flock.advance(SESSION_S - SOON_S)
    assert len(flock.consumers.members) == 2
    flock.advance(2 * SOON_S)
    assert list(flock.consumers.members) == ["new"]


def test_who_does_not_join_again_in_time_is_given_up(flock: Flock) -> None:
    old = mixed(flock)
    for _ in range(3):
        assert flock.beat(old, 1, instance="i") == 27
        flock.advance(REBALANCE_S / 3 + SOON_S)
    assert list(flock.consumers.members) == ["new"]


def test_who_joined_and_does_not_sync_in_time_is_given_up(flock: Flock) -> None:
    flock.enter("new")
    name = flock.join(instance="i", protocols=protocols()).member_id
    for _ in range(3):
        flock.advance(REBALANCE_S / 4)
        assert flock.beat(name, 3, instance="i") == 0
    flock.advance(REBALANCE_S / 4 + SOON_S)
    assert flock.beat(name, 3, instance="i") == 25


def test_the_group_moves_with_its_classic_members(flock: Flock) -> None:
    old = mixed(flock)
    flock.do(lambda: flock.kafka.move_coordinator("g", 2))
    assert flock.beat(old, 1, instance="i") == 16
    assert flock.beat(old, 1, instance="i", broker=2) == 27
    flock.advance(SESSION_S - SOON_S)
    assert len(flock.consumers.members) == 2


# ---- and back -----------------------------------------------------------------------------------------------------------


def test_when_the_last_member_of_the_new_protocol_goes_the_others_rebalance_among_themselves(flock: Flock) -> None:
    old = mixed(flock)
    epoch = flock.consumers.epoch
    flock.pulse("new", -1)
    assert (flock.group.state, flock.group.generation) == (State.PREPARING, epoch)
    assert flock.beat(old, epoch, instance="i") == 27
    joined = flock.join(old, instance="i", protocols=protocols())
    assert (joined.generation_id, joined.leader) == (epoch + 1, old)


def test_the_same_when_it_is_given_up(flock: Flock) -> None:
    old = mixed(flock)
    flock.join(old, protocols=protocols((0, 1, 2, 3)), instance="i")
    for _ in range(7):
        flock.sync(old, 1, instance="i")
        flock.advance(SESSION_S * 0.9)
        flock.beat(old, 1, instance="i")
        if isinstance(flock.kafka.part(Coordinator).groups["g"], Group):
            break
        flock.join(old, protocols=protocols((0, 1, 2, 3)), instance="i")
    assert isinstance(flock.group, Group)
    assert list(flock.group.members) == [old]


def test_a_classic_member_that_takes_its_place_takes_its_partitions_without_a_rebalance(flock: Flock) -> None:
    flock.enter("new", instance_id="i")
    epoch = flock.consumers.epoch
    joined = flock.join(instance="i", protocols=protocols())
    assert (joined.error_code, joined.generation_id) == (0, epoch)
    assert (flock.group.state, flock.group.generation) == (State.STABLE, epoch)
    assert shown(flock.sync(joined.member_id, epoch, instance="i").assignment) == [0, 1, 2, 3]


def test_a_downgraded_group_watches_its_members(flock: Flock) -> None:
    mixed(flock)
    flock.pulse("new", -1)
    flock.advance(REBALANCE_S + SESSION_S)
    assert flock.group.state is State.EMPTY


def test_no_timer_of_the_group_before_is_left(flock: Flock) -> None:
    mixed(flock)
    flock.pulse("new", -1)
    flock.advance(3600)
    assert flock.told("defect") == []


def test_a_mixed_group_in_which_all_leave_is_empty_and_stays_what_it_is(flock: Flock) -> None:
    old = mixed(flock)
    assert flock.leave((old, "i"), ("new", None)) == [0, 0]
    assert isinstance(flock.consumers, ConsumerGroup)
    assert flock.consumers.is_empty


# ---- bytes --------------------------------------------------------------------------------------------------------------


def test_subscriptions_of_every_version_are_read() -> None:
    base = struct.pack(">ih1si2s", 1, 1, b"t", 2, b"xx")
    owned = struct.pack(">ih1sii", 1, 1, b"t", 1, 7)
    assert read_subscription(b"\0\0" + base) == Subscription(0, ("t",))
    assert read_subscription(b"\0\1" + base + owned) == Subscription(1, ("t",), (TopicPartition("t", 7),))
    assert read_subscription(b"\0\2" + base + owned + struct.pack(">i", 5)).owned == (TopicPartition("t", 7),)
    assert read_subscription(b"\0\3" + base + owned + struct.pack(">ih1s", 5, 1, b"r")).rack == "r"
    assert read_subscription(b"\0\3" + base + owned + struct.pack(">ih", 5, -1)).rack is None


def test_assignments_are_written_as_they_are_read() -> None:
    mine = [TopicPartition("t", 2), TopicPartition("u", 0), TopicPartition("t", 1)]
    assert assigned(written(mine, 3)) == (TopicPartition("t", 1), TopicPartition("t", 2), TopicPartition("u", 0))
    assert (assigned(b""), notes(b""), notes(written(mine, 0))) == ((), b"", b"")
    assert notes(written(mine, 0)[:-4] + struct.pack(">i2s", 2, b"hi")) == b"hi"


@pytest.mark.parametrize("data", [b"\0\0" + struct.pack(">i", 1000), b"\0\0" + struct.pack(">i", -1)])
def test_more_items_than_bytes_are_not_read(data: bytes) -> None:
    with pytest.raises(Oversized):
        assigned(data)


