"""Invariants of a group, evaluated throughout a run: ownership, commits, and that the group becomes stable."""
from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from pyclient.errors import CommitFailedError
from pyclient.records import TopicPartition
from pyclient.records.record import Record
from pyclient.testing.fake import view
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.view import MemberView
from pyclient.testing.simulation.facts import Key
from pyclient.testing.simulation.group_facts import GroupFacts, Member
from pyclient.testing.simulation.invariants import GROUPS, INVARIANTS, Judge, breach, holds

POLLS: Final = frozenset({"poll", "close", "unsubscribe"})
"""The calls within which a listener's methods run."""
NEWS_S: Final = 0.3
"""How long after a callback the coordinator knows of it: a heartbeat may have to be answered first."""
JOINS_PER_SECOND: Final = 20
"""Of one member: two at once after each rebalance, and a few with back-offs."""


def _facts(judge: Judge) -> GroupFacts:
    assert isinstance(judge.facts, GroupFacts)
    return judge.facts


def _members(judge: Judge) -> Sequence[MemberView]:
    """The group's members as its coordinator knows them."""
    groups = judge.world.kafka.part(Coordinator).groups
    return [member for name in judge.world.groups if name in groups for member in view.group(judge.world.kafka, groups[name]).members]


# --- who owns what ----------------------------------------------------------------------------------------------------


@holds("listener_called", "G10", GROUPS)
def callbacks_are_well_nested(judge: Judge, member: Member, what: str, partitions: Sequence[TopicPartition]) -> None:
    """One at a time, within a call of the user; assigned partitions were not owned, revoked or lost ones were."""
    if member.in_listener:
        raise breach(callbacks_are_well_nested, f"{member.name}: {what} is called while {member.in_listener} runs")
    if member.inside not in POLLS:
        raise breach(callbacks_are_well_nested, f"{member.name}: {what} is called inside {member.inside or 'nothing'}")
    wrong = [tp for tp in partitions if (tp in member.owned) == (what == "assigned")]
    if wrong or len(set(partitions)) < len(partitions):
        raise breach(callbacks_are_well_nested, f"{member.name}: {what} names {partitions}, and it owns {list(member.owned)}")


@holds("listener_called", "G02", GROUPS)
def a_partition_has_one_owner_in_a_generation(judge: Judge, member: Member, what: str, partitions: Sequence[TopicPartition]) -> None:
    """No two members of one generation own the same partition. Who is no member any more may not know it yet: a new
    coordinator may begin a generation again, without it."""
    if what != "assigned":
        return
    known = {each.id for each in _members(judge)}
    for other in _facts(judge).members.values():
        if other is member or other.group.identity.generation != member.group.identity.generation or other.group.identity.member_id not in known:
            continue
        both = [tp for tp in partitions if tp in other.group.owned]
        if both:
            raise breach(a_partition_has_one_owner_in_a_generation, f"{member.name} is given {both} in generation {member.group.identity.generation}, "
                         f"where {other.name} has them")


@holds("step", "G06", GROUPS)
def the_assignment_is_what_the_listener_was_given(judge: Judge, member: Member) -> None:
    """Between two calls, `assignment` is what the listener was given."""
    if set(member.owned) != member.consumer.assignment():
        raise breach(the_assignment_is_what_the_listener_was_given, f"{member.name} was given {sorted(member.owned)}, and has {sorted(member.consumer.assignment())}")


# --- records ----------------------------------------------------------------------------------------------------------


@holds("delivered", "G06", GROUPS)
def only_owners_get_records(judge: Judge, member: Member, record: Record) -> None:
    """No record of a partition is returned before its assigned callback, or after its revoked or lost one."""
    if TopicPartition(record.topic, record.partition) not in member.owned:
        raise breach(only_owners_get_records, f"{member.name} got offset {record.offset} of {record.topic}-{record.partition}, which it does not have")


@holds("delivered", "C01", GROUPS)
def no_record_of_a_paused_partition_is_returned(judge: Judge, member: Member, record: Record) -> None:
    """Between `pause` and `resume`, no record of a partition is returned."""
    if TopicPartition(record.topic, record.partition) in member.consumer.paused():
        raise breach(no_record_of_a_paused_partition_is_returned, f"{member.name} got offset {record.offset} of {record.topic}-{record.partition}, which it has paused")


@holds("delivered", "G06", GROUPS)
def no_record_of_a_topic_that_is_not_subscribed_is_returned(judge: Judge, member: Member, record: Record) -> None:
    """Once a member subscribes to other topics, no record of those before is returned, even if it owns partitions of
    them until the next rebalance.
    """
    if record.topic not in member.topics:
        raise breach(no_record_of_a_topic_that_is_not_subscribed_is_returned, f"{member.name} subscribes to {sorted(member.topics)} "
                     f"and got offset {record.offset} of {record.topic}-{record.partition}")


@holds("delivered", "C21", GROUPS)
def no_record_of_a_group_is_skipped(judge: Judge, member: Member, record: Record) -> None:
    """Offsets are consecutive. A new owner starts at or before the first unprocessed record, and not before the offset
    that was committed at its assignment."""
    facts, tp = _facts(judge), TopicPartition(record.topic, record.partition)
    key: Key = (record.topic, record.partition)
    if facts.tainted(key):
        return
    due = member.next.get(tp)
    if due is not None and record.offset != due and not facts.led_by_retention(key, due, record.offset):
        raise breach(no_record_of_a_group_is_skipped, f"{member.name} got offset {record.offset} of {tp} where {due} was next")
    if due is None and record.offset > facts.reached(key):
        raise breach(no_record_of_a_group_is_skipped, f"{member.name} begins at {record.offset} of {tp}, of which only what is before {facts.reached(key)} was processed")
    if due is None and record.offset < member.owned[tp]:
        raise breach(no_record_of_a_group_is_skipped, f"{member.name} begins at {record.offset} of {tp}; {member.owned[tp]} was committed before it was assigned")


@holds("returned to a member", "C21", GROUPS)
def the_position_of_a_member_is_behind_what_was_returned(judge: Judge, member: Member, tp: TopicPartition, position: int) -> None:
    """After a poll, and within an iteration, `position()` is behind the last record; further on where retention has
    overtaken it."""
    facts, key, due = _facts(judge), (tp.topic, tp.partition), member.next[tp]
    if not facts.tainted(key) and position != due and not facts.led_by_retention(key, due, position):
        raise breach(the_position_of_a_member_is_behind_what_was_returned, f"position() of {member.name} is {position} of {tp}, where {due} comes next")


# --- commits ----------------------------------------------------------------------------------------------------------


@holds("group committed", "C21", GROUPS)
def only_what_was_processed_is_committed(judge: Judge, tp: Key, offset: int) -> None:
    """Committed records are not read again, so they must have been processed."""
    facts = _facts(judge)
    if not facts.tainted(tp) and offset > facts.reached(tp):
        raise breach(only_what_was_processed_is_committed, f"offset {offset} of {tp} is committed, and only what is before {facts.reached(tp)} was processed")


@holds("group committed", "C24", GROUPS)
def a_committed_offset_never_goes_back(judge: Judge, tp: Key, offset: int) -> None:
    """No late commit of a former owner replaces the new owner's."""
    facts = _facts(judge)
    if not facts.tainted(tp) and offset < facts.highest.get(tp, -1):
        raise breach(a_committed_offset_never_goes_back, f"offset {offset} of {tp} is committed after {facts.highest[tp]}")


@holds("member committed", "C24", GROUPS)
def a_commit_belongs_to_the_present_assignment(judge: Judge, member: Member, tp: Key, offset: int) -> None:
    """A partition that went and came back is committed only after its records were returned again."""
    facts, partition = _facts(judge), TopicPartition(*tp)
    if partition not in member.owned or partition in member.next or facts.tainted(tp):
        return
    if offset > max(member.owned[partition], facts.latest_start[tp]):
        raise breach(a_commit_belongs_to_the_present_assignment, f"{member.name} commits {offset} of {partition}, of which it has no record since it was assigned")


@holds("committed within", "C21", GROUPS)
def a_commit_within_an_iteration_stores_the_current_record(judge: Judge, member: Member, record: Record) -> None:
    """Inside an iteration the current record counts as consumed."""
    facts, tp = _facts(judge), (record.topic, record.partition)
    if not facts.tainted(tp) and facts.highest.get(tp, -1) <= record.offset:
        raise breach(a_commit_within_an_iteration_stores_the_current_record, f"{member.name} commits after offset {record.offset} of {TopicPartition(*tp)}, "
                     f"and {facts.highest.get(tp)} is stored")


# --- coming to rest ---------------------------------------------------------------------------------------------------


@holds("stable", "G01", GROUPS)
def a_group_becomes_stable(judge: Judge) -> None:
    """Two session timeouts after the last fault, each partition has one owner and all members share one generation."""
    facts = _facts(judge)
    owners = Counter(tp for member in facts.members.values() for tp in member.owned)
    wrong = [tp for tp in facts.stored if owners[TopicPartition(*tp)] != 1]
    if wrong or len(facts.generations()) != 1:
        members = {member.name: (member.group.identity, member.group.state.name, sorted(member.owned)) for member in facts.members.values()}
        raise breach(a_group_becomes_stable, f"{wrong} have not one owner each: {members}")
    (facts.stable_generation,) = facts.generations()


@holds("stable", "G06", GROUPS)
def members_have_what_their_group_assigned(judge: Judge) -> None:
    """Members of a stable group keep nothing that they were not assigned again, and have all that they were."""
    assigned = {each.id: set(each.partitions) for each in _members(judge)}
    for member in _facts(judge).members.values():
        if set(member.owned) != assigned.get(member.group.identity.member_id, set()):
            raise breach(members_have_what_their_group_assigned, f"{member.name} has {sorted(member.owned)}, and was assigned {assigned}")


@holds("still stable", "G01", GROUPS)
def a_stable_group_stays_stable(judge: Judge) -> None:
    """Without an event, a stable group begins no new generation."""
    facts = _facts(judge)
    if facts.generations() != {facts.stable_generation}:
        raise breach(a_stable_group_stays_stable, f"it came to rest in generation {facts.stable_generation}, and its members are in {facts.generations()} now")


@holds("listener_called", "N05", GROUPS)
def no_member_loses_partitions_after_the_last_fault(judge: Judge, member: Member, what: str, partitions: Sequence[TopicPartition]) -> None:
    """After the last fault, members revoke in time what new members are assigned: no member loses a partition."""
    if what == "lost" and judge.world.loop.time() > _facts(judge).settled_from:
        raise breach(no_member_loses_partitions_after_the_last_fault, f"{member.name} has lost {partitions}")


# --- what members report to their coordinator -------------------------------------------------------------------------


@holds("heartbeat", "N05", GROUPS)
def a_partition_is_given_up_before_it_is_reported(judge: Judge, member: Member, body: Any) -> None:
    """The coordinator assigns to others what a heartbeat leaves out, so the listener was called before."""
    if body.topic_partitions is None or body.member_epoch <= 0:
        return
    names = judge.world.kafka.topics_by_id
    stated = {TopicPartition(names[each.topic_id].name, number) for each in body.topic_partitions for number in each.partitions}
    asked_for = next((each.revoking for each in _members(judge) if each.id == body.member_id and each.epoch == body.member_epoch), ())
    early = [tp for tp in asked_for if tp in member.owned and tp not in stated]
    if early:
        raise breach(a_partition_is_given_up_before_it_is_reported, f"{member.name} reports {early} as revoked, and still has them")


@holds("heartbeat", "N04", GROUPS)
def news_does_not_wait_for_the_heartbeat_interval(judge: Judge, member: Member, body: Any) -> None:
    """After the last fault, a member that has carried an assignment out states at once what it owns."""
    now, facts = judge.world.loop.time(), _facts(judge)
    if body.topic_partitions is not None and body.member_epoch > 0 and now > facts.settled_from and now > member.news_from + NEWS_S:
        raise breach(news_does_not_wait_for_the_heartbeat_interval, f"{member.name} states at {now:.3f} what it has had since {member.news_from:.3f}")


@holds("second", "G01", GROUPS)
def joins_are_bounded(judge: Judge) -> None:
    """A member that is refused joins again after a back-off."""
    second = _facts(judge).second
    for name, count in second.joins.items():
        if count > JOINS_PER_SECOND * (1 + second.starts[name]):
            raise breach(joins_are_bounded, f"{name} sent {count} JoinGroup requests in one second")


@holds("refused a member", "C25", GROUPS)
def a_stable_group_raises_no_error(judge: Judge, member: Member, error: BaseException) -> None:
    """While a group is stable, polls and commits raise nothing."""
    if _facts(judge).must_be_stable(judge.world.loop.time()):
        raise breach(a_stable_group_raises_no_error, f"{member.name} gets {error!r}")


@holds("refused a member", "C25", GROUPS)
def an_owners_commit_does_not_fail_because_of_the_group(judge: Judge, member: Member, error: BaseException) -> None:
    """A commit of the current owner does not fail because of the group."""
    if isinstance(error, CommitFailedError) and error.topic_partition in member.group.owned and member.group.identity.joined:
        raise breach(an_owners_commit_does_not_fail_because_of_the_group, f"{member.name} owns {error.topic_partition} and gets {error!r}")


@holds("group end", "C14", GROUPS)
def a_group_has_read_everything(judge: Judge) -> None:
    """After the last fault, every record is processed and committed."""
    facts = _facts(judge)
    for tp in facts.stored:
        if facts.reached(tp) < facts.end(tp):
            raise breach(a_group_has_read_everything, f"{tp} ends at {facts.end(tp)}, and was processed up to {facts.reached(tp)}")
        if facts.highest.get(tp, 0) < facts.done[tp] and not facts.tainted(tp):
            raise breach(a_group_has_read_everything, f"{tp} was processed up to {facts.done[tp]}, and committed up to {facts.highest.get(tp)}")


RULES_OF_GROUPS: Final = tuple(each for each in INVARIANTS.values() if each.family == GROUPS)
