"""Groups that are not there, and members that are not in one: what an operator reads. Resets stay within the log."""
from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timedelta, timezone

import pytest

from pyclient import Admin, Consumer, TopicPartition
from pyclient.admin import GroupMember, OffsetReset, OffsetSpec
from pyclient.admin.groups import Goal
from pyclient.errors import GroupIdNotFoundError, PartialFailureError, UnknownMemberIdError
from pyclient.testing import FakeCluster
from pyclient.testing.fake.model.profiles import NEWEST

ORDERS = TopicPartition("orders", 0)
BEFORE_1970 = datetime(1960, 1, 1, tzinfo=timezone.utc)


@pytest.fixture(params=["3.9", NEWEST])
def cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """Brokers before 4.0 describe a group that is not there as dead, later ones refuse to."""
    with FakeCluster(version=request.param) as made:
        made.create_topic("orders")
        made.produce("orders", b"x")
        yield made


@pytest.fixture
def admin(cluster: FakeCluster) -> Iterator[Admin]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as made:
        yield made


@pytest.mark.parametrize("dry_run", [True, False])
def test_a_reset_of_all_offsets_of_a_group_that_is_not_there_names_it_and_the_way_out(cluster: FakeCluster, admin: Admin, dry_run: bool) -> None:
    with pytest.raises(GroupIdNotFoundError, match=r"group 'bills' does not exist.*list_groups.*partitions="):
        admin.reset_group_offsets("bills", OffsetSpec.LATEST, dry_run=dry_run)
    with pytest.raises(GroupIdNotFoundError, match="'bills'"):
        admin.reset_group_offsets("bills", shift_by=1, dry_run=dry_run)
    assert "bills" not in cluster.groups()


def test_a_reset_of_named_partitions_makes_a_group_that_is_not_there(admin: Admin) -> None:
    reset = {ORDERS: OffsetReset(None, 1)}
    assert admin.reset_group_offsets("bills", OffsetSpec.LATEST, partitions=[]) == {}
    assert admin.reset_group_offsets("bills", OffsetSpec.LATEST, partitions=[ORDERS], dry_run=True) == reset
    assert admin.list_groups() == []
    assert admin.reset_group_offsets("bills", OffsetSpec.LATEST, partitions=[ORDERS]) == reset
    assert [each.group_id for each in admin.list_groups()] == ["bills"]


@pytest.mark.parametrize(("to", "shift_by", "after"), [
    (OffsetSpec.EARLIEST, None, 6), (OffsetSpec.LATEST, None, 10), (0, None, 6), (9_999_999_999_999, None, 10),
    (BEFORE_1970, None, 6), (timedelta(days=30_000), None, 6), (timedelta(days=800_000), None, 6), (timedelta(0), None, 10),
    (None, -5, 6), (None, -1, 7), (None, 5, 10)])
def test_a_reset_stays_within_a_log_that_does_not_begin_at_0(
        cluster: FakeCluster, admin: Admin, to: Goal | None, shift_by: int | None, after: int) -> None:
    for number in range(9):
        cluster.produce("orders", b"%d" % number)
    admin.alter_group_offsets("bills", {ORDERS: 8})
    cluster.advance_retention("orders", 0, 6)
    assert admin.reset_group_offsets("bills", to, shift_by=shift_by) == {ORDERS: OffsetReset(8, after)}
    assert cluster.committed("bills")[ORDERS].offset == after


@pytest.mark.parametrize(("to", "shift_by"), [(OffsetSpec.EARLIEST, None), (OffsetSpec.LATEST, None), (0, None), (None, 1)])
def test_a_reset_in_an_empty_log_is_where_its_next_record_will_be(
        cluster: FakeCluster, admin: Admin, to: OffsetSpec | int | None, shift_by: int | None) -> None:
    admin.alter_group_offsets("bills", {ORDERS: 0})
    cluster.produce("orders", b"y")
    cluster.advance_retention("orders", 0, 2)
    assert admin.reset_group_offsets("bills", to, shift_by=shift_by) == {ORDERS: OffsetReset(0, 2)}


def test_a_reset_of_a_group_that_has_committed_nothing_changes_nothing(cluster: FakeCluster, admin: Admin) -> None:
    with Consumer(topics=["orders"], group_id="bills", bootstrap_servers=cluster.bootstrap_servers, enable_auto_commit=False) as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
    assert admin.reset_group_offsets("bills", OffsetSpec.LATEST) == {}


@pytest.mark.parametrize("partitions", [None, [ORDERS]])
def test_the_offsets_of_a_group_that_is_not_there_are_an_error(admin: Admin, partitions: list[TopicPartition] | None) -> None:
    with pytest.raises(GroupIdNotFoundError, match=r"group 'bills' does not exist, so it has committed nothing: .*list_groups"):
        admin.group_offsets("bills", partitions)


def test_a_group_that_has_committed_nothing_has_no_offsets(cluster: FakeCluster, admin: Admin) -> None:
    with Consumer(topics=["orders"], group_id="bills", bootstrap_servers=cluster.bootstrap_servers, enable_auto_commit=False) as consumer:
        while not consumer.assignment():
            consumer.poll(0.1)
        assert admin.group_offsets("bills") == {}
        assert admin.group_offsets("bills", [ORDERS])[ORDERS].committed is None


@pytest.mark.parametrize(("member", "named"), [
    ("belt-9", "group instance id 'belt-9'"), (GroupMember("m-9", None, "c", "/h", ()), "member 'm-9'")])
def test_a_member_that_cannot_be_removed_is_named_with_what_an_operator_does(admin: Admin, member: GroupMember | str, named: str) -> None:
    admin.alter_group_offsets("bills", {ORDERS: 0})
    for group in ("bills", "nowhere"):
        with pytest.raises(UnknownMemberIdError, match=f"group '{group}' has no {named}: .*describe_groups") as caught:
            admin.remove_members(group, [member])
        assert "poll" not in str(caught.value).lower()


def test_of_several_members_each_that_cannot_be_removed_is_named(admin: Admin) -> None:
    with pytest.raises(PartialFailureError, match="has no group instance id 'belt-8'.*has no group instance id 'belt-9'"):
        admin.remove_members("nowhere", ["belt-8", "belt-9"])
