"""Services that are upgraded one instance at a time: classic and KIP-848 members in one group, in virtual time."""
from __future__ import annotations

import struct
from collections.abc import Collection, Iterator


import pytest

from pyclient.errors import ConfigurationError
from pyclient.records import TopicPartition
from pyclient.testing.fake.model.consumer_group import ConsumerGroup
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.group import Group, State
from pyclient.testing.fake.model.settings import Settings
from pyclient.testing.fake.model.subscription import OversizedError, Subscription, assigned, notes, read_subscription, written
from tests.unit.testing.fake.classic_members import REBALANCE_S, SESSION_S, SOON_S
from tests.unit.testing.fake.consumer_members import ConsumerMembers


@pytest.fixture
def members() -> Iterator[ConsumerMembers]:
    with ConsumerMembers() as found:
        yield found


def said(owned: Collection[int] = (), version: int = 1) -> bytes:
    """A classic consumer's subscription to ``t``, with what it has."""
    mine = struct.pack(f">ih1si{len(owned)}i", 1, 1, b"t", len(owned), *owned) if owned else struct.pack(">i", 0)
    return struct.pack(">hih1si", version, 1, 1, b"t", -1) + mine


def given(*indexes: int) -> bytes:
    return written([TopicPartition("t", index) for index in indexes], 1)


def protocols(owned: Collection[int] = ()) -> tuple[tuple[str, bytes], ...]:
    return (("range", said(owned)),)


def classic(members: ConsumerMembers, *instances: str) -> list[str]:
    """Classic members that share ``t`` evenly; their ids."""
    joins = [members.joining(instance=each, protocols=protocols()) for each in instances]
    answers = [members.answer(each) for each in joins]
    names, generation = [each.member_id for each in answers], answers[0].generation_id
    each = 4 // len(names)
    share = {name: given(*range(place * each, place * each + each)) for place, name in enumerate(names)}
    syncs = [members.syncing(name, generation, share if name == members.group.leader else None, instance=instance)
             for name, instance in zip(names, instances, strict=True)]
    for task in syncs:
        members.answer(task)
    return names


# ---- up --------------------------------------------------------------------------------------------------------------


def test_members_that_wait_in_the_classic_group_must_rejoin_after_an_upgrade(members: ConsumerMembers) -> None:
    first, second = classic(members, "i", "j")
    waiting = members.joining(first, instance="i", protocols=protocols())
    members.soon()
    members.enter("new")
    assert members.answer(waiting).error_code == 27
    assert list(members.consumers.members) == [first, second, "new"]


def test_a_rejected_member_does_not_upgrade_the_group(members: ConsumerMembers) -> None:
    (old,) = classic(members, "i")
    assert members.enter("new", None, subscribed_topic_regex="(").error_code == 128
    assert isinstance(members.group, Group)
    assert members.classic_heartbeat(old, 1, instance="i") == 0


@pytest.mark.parametrize(("assignment", "kind", "code"), [
    (b"as", "consumer", 69), (b"assignment", "consumer", -1), (given(0)[:-4] + b"\0\0\0\1x", "consumer", 69), (b"", "connect", 69)])
def test_groups_of_something_else_than_pure_consumers_are_not_upgraded(members: ConsumerMembers, assignment: bytes, kind: str, code: int) -> None:
    joined = members.join(instance="i", protocols=protocols(), kind=kind)
    members.sync(joined.member_id, 1, {joined.member_id: assignment}, instance="i", kind=kind)
    assert members.enter("new").error_code == code
    assert isinstance(members.group, Group)


@pytest.mark.parametrize(("policy", "up", "down", "classic_join"), [
    ("bidirectional", 0, True, 0), ("upgrade", 0, False, 0), ("downgrade", 69, True, 0), ("disabled", 69, False, 23)])
def test_the_policy_decides_which_conversions_are_allowed(policy: str, up: int, down: bool, classic_join: int) -> None:
    with ConsumerMembers(group_consumer_migration_policy=policy) as members:
        classic(members, "i")
        assert members.enter("new").error_code == up
    with ConsumerMembers(group_consumer_migration_policy=policy) as members:
        members.enter("new")
        assert members.join(instance="i", protocols=protocols()).error_code == classic_join
        members.heartbeat("new", -1)
        assert isinstance(members.kafka.part(Coordinator).groups["g"], Group) is down


def test_a_policy_that_is_none_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="group_consumer_migration_policy"):
        Settings.parse({"group.consumer.migration.policy": "sideways"})


def test_a_group_too_large_is_not_upgraded() -> None:
    with ConsumerMembers(group_consumer_max_size=1) as members:
        classic(members, "i", "j")
        assert members.enter("new").error_code == 69


# ---- time ------------------------------------------------------------------------------------------------------------


def mixed(members: ConsumerMembers) -> str:
    """A classic member that has all, and a new one that waits for its part."""
    (old,) = classic(members, "i")
    members.enter("new")
    return old


def test_a_classic_members_session_expires_after_its_own_timeout(members: ConsumerMembers) -> None:
    mixed(members)
    members.advance(SESSION_S - SOON_S)
    assert len(members.consumers.members) == 2
    members.advance(2 * SOON_S)
    assert list(members.consumers.members) == ["new"]


def test_a_member_that_does_not_rejoin_in_time_is_removed(members: ConsumerMembers) -> None:
    old = mixed(members)
    for _ in range(3):
        assert members.classic_heartbeat(old, 1, instance="i") == 27
        members.advance(REBALANCE_S / 3 + SOON_S)
    assert list(members.consumers.members) == ["new"]


def test_a_member_that_does_not_sync_in_time_is_removed(members: ConsumerMembers) -> None:
    members.enter("new")
    name = members.join(instance="i", protocols=protocols()).member_id
    for _ in range(3):
        members.advance(REBALANCE_S / 4)
        assert members.classic_heartbeat(name, 3, instance="i") == 0
    members.advance(REBALANCE_S / 4 + SOON_S)
    assert members.classic_heartbeat(name, 3, instance="i") == 25


def test_the_group_moves_with_its_classic_members(members: ConsumerMembers) -> None:
    old = mixed(members)
    members.do(lambda: members.kafka.move_coordinator("g", 2))
    assert members.classic_heartbeat(old, 1, instance="i") == 16
    assert members.classic_heartbeat(old, 1, instance="i", broker=2) == 27
    members.advance(SESSION_S - SOON_S)
    assert len(members.consumers.members) == 2


# ---- downgrade -------------------------------------------------------------------------------------------------------


def test_the_group_is_downgraded_when_the_last_new_member_expires(members: ConsumerMembers) -> None:
    old = mixed(members)
    members.join(old, protocols=protocols((0, 1, 2, 3)), instance="i")
    for _ in range(7):
        members.sync(old, 1, instance="i")
        members.advance(SESSION_S * 0.9)
        members.classic_heartbeat(old, 1, instance="i")
        if isinstance(members.kafka.part(Coordinator).groups["g"], Group):
            break
        members.join(old, protocols=protocols((0, 1, 2, 3)), instance="i")
    assert isinstance(members.group, Group)
    assert list(members.group.members) == [old]


def test_a_downgraded_group_watches_its_members(members: ConsumerMembers) -> None:
    mixed(members)
    members.heartbeat("new", -1)
    members.advance(REBALANCE_S + SESSION_S)
    assert members.group.state is State.EMPTY


def test_no_timer_of_the_group_before_is_left(members: ConsumerMembers) -> None:
    mixed(members)
    members.heartbeat("new", -1)
    members.advance(3600)
    assert members.reported("defect") == []


def test_a_mixed_group_in_which_all_leave_is_empty_and_stays_what_it_is(members: ConsumerMembers) -> None:
    old = mixed(members)
    assert members.leave((old, "i"), ("new", None)) == [0, 0]
    assert isinstance(members.consumers, ConsumerGroup)
    assert members.consumers.is_empty


# ---- bytes -----------------------------------------------------------------------------------------------------------


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
    with pytest.raises(OversizedError):
        assigned(data)
