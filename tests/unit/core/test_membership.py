"""Both protocols offer the consumer the same: it need not know which one it uses."""
from __future__ import annotations

import pytest

from pyclient.core.group.changes import Changes
from pyclient.core.group.classic import ClassicGroup
from pyclient.core.group.consumer import ConsumerGroup
from pyclient.core.group.membership import Change, ChangeKind, Membership
from tests.unit.core.consumer_groups import Consumer
from tests.unit.core.groups import Member, parts

ASSIGNED, REVOKED, LOST = ChangeKind.ASSIGNED, ChangeKind.REVOKED, ChangeKind.LOST


def public(group: object) -> set[str]:
    return {name for name in dir(group) if not name.startswith("_")}


def test_members_of_both_protocols_have_one_surface() -> None:
    groups: tuple[Membership, ...] = (Member().group, Consumer().group)
    assert [type(each) for each in groups] == [ClassicGroup, ConsumerGroup]
    assert public(groups[0]) == public(groups[1]) >= {name for name in public(Membership) if not name.startswith("_")}


@pytest.fixture
def changes() -> Changes:
    return Changes()


def carry_out(changes: Changes) -> Change:
    change = changes.due
    assert change is not None
    assert changes.begin(change)
    assert changes.due is None
    assert changes.end(change)
    return change


def test_changes_are_carried_out_one_after_the_other(changes: Changes) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)))
    changes.add(Change(REVOKED, parts(0)))
    later = Change(ASSIGNED, parts(2))
    changes.add(later)
    assert not changes.begin(later)
    assert [carry_out(changes).kind for _ in range(3)] == [ASSIGNED, REVOKED, ASSIGNED]
    assert list(changes.owned) == [*parts(1), *parts(2)]
    assert not changes


def test_what_is_given_up_is_owned_until_that_is_done_and_what_is_lost_is_not(changes: Changes) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)), Change(REVOKED, parts(0)), Change(LOST, parts(1)))
    carry_out(changes)
    for kept in (parts(0, 1), ()):
        change = changes.due
        assert change is not None
        changes.begin(change)
        assert tuple(changes.owned) == kept
        changes.end(change)


def test_what_was_not_begun_is_withdrawn_and_what_was_goes_on(changes: Changes) -> None:
    first, second = Change(ASSIGNED, parts(0)), Change(ASSIGNED, parts(1))
    changes.add(first, second)
    changes.begin(first)
    changes.withdraw()
    assert not changes.begin(second)
    assert changes.end(first)
    assert not changes


def test_who_loses_all_is_told_of_what_it_still_has_when_it_is_done_with_what_it_is_at(changes: Changes) -> None:
    changes.add(Change(ASSIGNED, parts(0, 1)), Change(REVOKED, parts(0)), Change(ASSIGNED, parts(2)))
    carry_out(changes)
    change = changes.due
    assert change is not None
    changes.begin(change)
    changes.lose()
    assert changes.due is None
    changes.end(change)
    lost = carry_out(changes)
    assert (lost.kind, lost.partitions) == (LOST, parts(1))
    changes.lose()
    assert not changes


def test_what_is_ended_after_all_was_cleared_changes_nothing(changes: Changes) -> None:
    change = Change(ASSIGNED, parts(0))
    changes.add(change)
    changes.begin(change)
    changes.clear()
    assert not changes.end(change)
    assert not changes.owned
