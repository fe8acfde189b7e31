"""What a group's leader, its coordinator or another member can cost a member: requests, partitions and lines of the log
are bounded, in virtual time (G09, G11, N04, N11).
"""
from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from pyclient.codec.apis import Api
from pyclient.core.group import assigned, leader, reconciliation
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.classic_member import State
from pyclient.records import TopicPartition
from tests.unit.core.consumer_groups import INTERVAL, ConsumerHarness
from tests.unit.core.fetching import A0, A1, Fetching
from tests.unit.core.groups import MEMBER, REBALANCING, ClassicHarness, MemberHarness, OneByOne, subscription_of, tps
from tests.unit.core.world import Sent

FENCED_EPOCH = 110
STRANGE = TopicPartition("strange", 0)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.levelno >= logging.WARNING]


def requests_within(member: MemberHarness, seconds: float, answer: Callable[[Sent], None]) -> int:
    """How many requests a member sends to a coordinator that answers each at once, and whose user always polls."""
    end, count = member.world.now + seconds, 0
    while member.world.now < end and count < 10_000:
        handled = carry_out(member)
        sent = member.turn()
        for each in sent:
            answer(each)
        count += len(sent)
        if not sent and not handled and member.group.change is None:
            deadlines = [each for each in (member.group.next_deadline(), member.calls.next_deadline()) if each is not None]
            assert min(deadlines) > member.world.now, "a deadline in the past: the loop would spin"
            member.world.after(min(*deadlines, end) - member.world.now)
    return count


def carry_out(member: MemberHarness) -> bool:
    member.group.polled_at = member.world.now
    member.group.polled()
    change = member.group.change
    if change is not None:
        assert member.group.begin(change)
        member.group.complete(change)
    return change is not None


def classic_answer(member: ClassicHarness, assignment: Callable[[int], tuple[TopicPartition, ...]]) -> Callable[[Sent], None]:
    """A coordinator whose leader makes this assignment of the n-th generation."""
    joins = 0

    def answer(sent: Sent) -> None:
        nonlocal joins
        if sent.api is Api.JOIN_GROUP:
            joins += 1
            member.reply_joined(sent, generation=joins)
        elif sent.api is Api.SYNC_GROUP:
            member.reply_assignment(sent, *assignment(joins))
        else:
            sent.reply(error_code=REBALANCING if joins == 1 else 0)

    return answer


# ---- assignments that are wrong, or do not converge -----------------------------------------------------------------


@pytest.mark.parametrize("protocols", [("eager",), ("cooperative",)])
def test_G11_topics_not_subscribed_to_cause_few_joins_and_warnings(protocols: tuple[str, ...], caplog: pytest.LogCaptureFixture) -> None:
    member = ClassicHarness(OneByOne(protocols=protocols))
    member.subscribes()
    requests = requests_within(member, 3600, classic_answer(member, lambda _: (*tps(0), STRANGE)))
    assert requests < 1300  # a heartbeat each three seconds, and few joins
    assert set(member.group.owned) == set(tps(0))
    assert member.group.state is State.STABLE
    assert 2 <= len(warnings(caplog)) < 8
    assert "the assignment holds topics that are not subscribed to: 'strange'" in warnings(caplog)[0]


def test_G11_the_first_wrong_assignment_is_followed_by_a_join_at_once() -> None:
    """The leader may not have known the newest subscription; after that there is a pause."""
    member = ClassicHarness()
    member.receives_assignment(*tps(0), STRANGE)
    member.carries_out(ChangeKind.ASSIGNED, *tps(0))
    member.turn()
    member.carries_out(ChangeKind.REVOKED, *tps(0))
    join = member.sends(Api.JOIN_GROUP)
    assert "not subscribed to: 'strange'" in join.body.reason
    member.reply_joined(join, generation=2)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0), STRANGE)
    member.carries_out(ChangeKind.ASSIGNED, *tps(0))
    member.sends_nothing()
    assert member.group.state is State.STABLE


def test_G11_another_subscription_ends_the_pause() -> None:
    member = ClassicHarness()
    member.subscribes()
    requests_within(member, 600, classic_answer(member, lambda _: (*tps(0), STRANGE)))
    member.subscribes("t", "strange")
    member.turn()
    carry_out(member)
    assert member.sends(Api.JOIN_GROUP).body.reason == "the subscription has changed"


def test_G11_a_topic_that_was_subscribed_to_when_the_member_joined_is_no_mistake(caplog: pytest.LogCaptureFixture) -> None:
    member = ClassicHarness()
    member.subscribes("t", "u")
    member.polls()
    join = member.sends(Api.JOIN_GROUP)
    member.subscribes("t")
    member.reply_joined(join)
    member.reply_assignment(member.sends(Api.SYNC_GROUP), *tps(0), *tps(0, name="u"))
    member.carries_out(ChangeKind.ASSIGNED, *tps(0))
    assert warnings(caplog) == []


def test_G11_assignments_that_never_converge_cause_few_joins_and_one_warning(caplog: pytest.LogCaptureFixture) -> None:
    member = ClassicHarness(OneByOne(protocols=("cooperative",)))
    member.subscribes()
    requests = requests_within(member, 600, classic_answer(member, lambda joins: tps(joins % 2)))
    assert requests < 200 + 2 * 70  # heartbeats, and joins with the test's longest back-off of some ten seconds
    (line,) = warnings(caplog)
    assert "4 assignments in a row moved partitions to other members" in line


def test_N04_a_coordinator_with_another_assignment_in_each_response_gets_few_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    member = ConsumerHarness()
    member.subscribes()
    turns = 0

    def answer(sent: Sent) -> None:
        nonlocal turns
        turns += 1
        member.reply_assignment(sent, *tps(turns % 4))

    assert requests_within(member, 600, answer) < 20 + 600 / INTERVAL * 4
    (line,) = warnings(caplog)
    assert "20 heartbeats in a row had news for the coordinator" in line


def test_N04_a_coordinator_that_fences_each_heartbeat_gets_few(caplog: pytest.LogCaptureFixture) -> None:
    member = ConsumerHarness()
    member.subscribes()

    def answer(sent: Sent) -> None:
        if sent.body.member_epoch == 0:
            member.reply_assignment(sent, *tps(0))
        else:
            member.reply_error(sent, FENCED_EPOCH)

    assert requests_within(member, 600, answer) < 20 + 600 / INTERVAL * 4
    assert len(warnings(caplog)) < 300


def test_N03_a_tiny_interval_is_not_taken() -> None:
    member = ConsumerHarness()
    member.subscribes()
    assert requests_within(member, 10, lambda sent: member.reply_heartbeat(sent, interval=0.001)) < 130


# ---- partitions that do not exist -----------------------------------------------------------------------------------


@pytest.fixture
def small_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(assigned, "MOST_UNKNOWN", 10)
    monkeypatch.setattr(reconciliation, "MOST_UNKNOWN", 10)
    monkeypatch.setattr(assigned, "MOST_ASSIGNED", 1000)
    monkeypatch.setattr(reconciliation, "MOST_ASSIGNED", 1000)


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("kind", [ClassicHarness, ConsumerHarness])
def test_G09_N11_few_partitions_that_do_not_exist_are_accepted(kind: type[ClassicHarness | ConsumerHarness], caplog: pytest.LogCaptureFixture) -> None:
    member = kind()
    member.receives_assignment(*tps(*range(100)))
    change = member.group.change
    assert change is not None
    assert len(change.partitions) == 4 + 10
    assert set(tps(*range(4))) < set(change.partitions)
    (line,) = warnings(caplog)
    assert "86 assigned partitions are left out: metadata does not show them" in line


@pytest.mark.usefixtures("small_limits")
@pytest.mark.parametrize("kind", [ClassicHarness, ConsumerHarness])
def test_G09_N11_partitions_that_metadata_shows_are_accepted_up_to_the_limit_of_a_cluster(kind: type[ClassicHarness | ConsumerHarness]) -> None:
    member = kind()
    member.metadata_shows(t=2000)
    member.receives_assignment(*tps(*range(900)))
    assert member.group.change is not None
    assert len(member.group.change.partitions) == 900
    other = kind()
    other.metadata_shows(t=2000)
    other.receives_assignment(*tps(*range(1500)))
    assert other.group.change is not None
    assert len(other.group.change.partitions) == 1000


@pytest.mark.usefixtures("small_limits")
def test_N11_what_was_left_out_is_assigned_once_metadata_shows_it() -> None:
    member = ConsumerHarness()
    member.receives_assignment(*tps(*range(100)))
    carry_out(member)
    member.reply_heartbeat(member.heartbeat(), epoch=member.epoch)
    member.metadata_shows(t=100)
    member.turn()
    carry_out(member)
    assert set(member.group.owned) == set(tps(*range(100)))


@pytest.mark.usefixtures("small_limits")
def test_G09_the_member_joins_again_for_what_was_left_out() -> None:
    member = ClassicHarness(OneByOne(protocols=("cooperative",)))
    member.receives_assignment(*tps(*range(100)))
    carry_out(member)
    assert "86 assigned partitions are left out" in member.sends(Api.JOIN_GROUP).body.reason


@pytest.mark.usefixtures("small_limits")
def test_N11_few_ids_without_a_name_are_looked_up() -> None:
    member = ConsumerHarness()
    member.receives_assignment(*(TopicPartition(f"unknown-{number}", 0) for number in range(100)))
    sent = [len(each.body.topics) for each in member.world.turn(member.metadata)]
    assert sent == [10]


# ---- subscriptions of other members ---------------------------------------------------------------------------------


def test_G09_a_subscription_of_very_many_topics_is_cut(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(leader, "MOST_TOPICS_OF_OTHERS", 20)
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    many = [f"x{number:03}" for number in range(300)]
    member.reply_joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: subscription_of(), "evil\n": subscription_of(*many, "t")})
    member.sends_nothing()
    asked = member.requested_topics()
    assert asked is not None
    assert len(asked) == 21
    member.metadata_shows(t=4, **dict.fromkeys(many[:20], 1))
    assert {each.member_id for each in member.sends(Api.SYNC_GROUP).body.assignments} == {MEMBER, "evil\n"}
    (line,) = warnings(caplog)
    assert "its members subscribe to 300 topics that this leader does not read itself; 20 of them are assigned. Member evil  subscribes to 301" in line


def test_G09_topics_of_its_own_are_not_limited(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setattr(leader, "MOST_TOPICS_OF_OTHERS", 20)
    member = ClassicHarness()
    own = [f"x{number:03}" for number in range(300)]
    member.subscribes(*own)
    member.polls()
    member.reply_joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: subscription_of(*own), "b": subscription_of(*own)})
    member.metadata_shows(**dict.fromkeys(own, 1))
    member.sends(Api.SYNC_GROUP)
    assert warnings(caplog) == []


def test_a_leader_that_waits_for_topics_looks_for_them_once_in_each_view(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in each turn of the loop: with many topics that took all of its time."""
    member = ClassicHarness()
    member.subscribes()
    member.polls()
    looks = 0
    original = leader._is_known

    def is_known(*arguments: object) -> bool:
        nonlocal looks
        looks += 1
        return original(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(leader, "_is_known", is_known)
    member.reply_joined(member.sends(Api.JOIN_GROUP), leader=MEMBER, members={MEMBER: subscription_of(), "b": subscription_of("x")})
    for _ in range(50):
        member.sends_nothing()
    assert looks <= 2


def test_positions_of_new_partitions_are_looked_up_with_one_request() -> None:
    """One for each would be two thousand for an assignment at the limit."""
    fetching = Fetching(group=True)
    fetching.fetcher.add([A0, A1], 0.0, held=True)
    fetching.fetcher.release([A0, A1], 0.0)
    assert [list(partitions) for partitions, _ in fetching.committed_lookups] == [[A0, A1]]
