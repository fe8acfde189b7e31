"""Groups: list, describe, delete; their committed offsets and lag: look at, change, reset, delete."""
from __future__ import annotations

import datetime
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeAlias, TypeVar

from pyclient.admin.calls import BlockingCalls, outcomes, raise_failed
from pyclient.admin.given import by_partition, known
from pyclient.admin.given import partitions as partitions_of
from pyclient.admin.records import INT64_MAX, ISOLATION, AsyncRecordCalls
from pyclient.admin.routing import attempted, each
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.groups import (
    Removal, all_committed_call, alter_offsets_call, delete_group_call, delete_offsets_call, describe_classic_group_call, describe_consumer_group_call, lags, list_groups_call,
    remove_members_call,
)
from pyclient.core.calls import Call, Finish
from pyclient.core.group.coordinator import NO_MEMBER
from pyclient.core.group.offsets import committed_call
from pyclient.descriptions.groups import GroupDescription, GroupListing, GroupMember, GroupOffset, OffsetReset
from pyclient.descriptions.offsets import ListedOffset, OffsetSpec
from pyclient.errors import (
    GroupIdNotFoundError, GroupNotEmptyError, KafkaError, UnknownMemberIdError, UnknownTopicOrPartitionError, UnsupportedVersionError,
)
from pyclient.reactor.tasks import sleep
from pyclient.records import OffsetAndMetadata, TopicPartition

T = TypeVar("T")
Offsets: TypeAlias = Mapping[TopicPartition, OffsetAndMetadata | int]
Place: TypeAlias = OffsetSpec | datetime.datetime | int
Goal: TypeAlias = Place | datetime.timedelta
STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Empty", "Dead", "Assigning", "Reconciling", "NotReady")
TYPES: Final = ("classic", "consumer", "share", "streams")
NEW_TOPIC_S: Final = 5.0
"""How long a topic may be unknown to the coordinator that stores an offset of it."""
UNKNOWN: Final = UnknownTopicOrPartitionError("not asked yet")
NO_SUCH_GROUP = (GroupIdNotFoundError, UnsupportedVersionError)
"""What a broker answers to ConsumerGroupDescribe where a group is classic, or where it knows classic groups only."""


class AsyncGroupCalls(AsyncRecordCalls):
    """Calls of `AsyncAdmin` that concern groups."""

    async def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = OPTION) -> list[GroupListing]:
        """The groups of all brokers, by name; only those in one of *states* and of one of *types*, if any are given.

        States are Kafka's (``Stable``, ``Empty``, ``PreparingRebalance`` …; KIP-518), types are ``classic``,
        ``consumer`` (KIP-848), ``share`` and ``streams``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            PartialFailureError: some brokers did not answer; ``results`` has the groups of the others, by node id.
        """
        left, wanted = self._left_of(timeout), (known(states, "states", STATES), known(types, "types", TYPES))
        cluster = await self._describe([], left())

        def ask(node: int) -> Any:
            return lambda finish, deadline: list_groups_call(node=node, states=wanted[0], types=wanted[1], finish=finish, deadline=deadline)

        answers = await each(self._core, {node: ask(node) for node in cluster.nodes}, left())
        found = outcomes(list(cluster.nodes), answers, what="broker")
        return sorted({group.group_id: group for groups in found.values() for group in groups}.values())

    async def describe_groups(self, group_ids: Iterable[str], *, include_authorized_operations: bool = False,
                              timeout: float | None = OPTION) -> dict[str, GroupDescription]:
        """The groups *group_ids* with their members and what these have; classic groups and those of KIP-848.

        With *include_authorized_operations* also what this client's user may do with each.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupIdNotFoundError, GroupAuthorizationError, …: for a single group; PartialFailureError: for several.
        """
        wanted, left = _group_ids(group_ids), self._left_of(timeout)
        asked = {"operations": include_authorized_operations}
        answers = await each(self._core, {group: _described(describe_consumer_group_call, group, **asked) for group in wanted}, left())
        classic = [group for group, answer in answers.items() if isinstance(answer, NO_SUCH_GROUP)]
        answers |= await each(self._core, {group: _described(describe_classic_group_call, group, **asked) for group in classic}, left())
        return outcomes(wanted, answers, what="group")

    async def remove_members(self, group_id: str, members: Iterable[GroupMember | str] | None = None, *, reason: str = "an admin removed the member",
                             timeout: float | None = OPTION) -> None:
        """Remove *members* from the group *group_id*; None: all of them.

        Members are those of `describe_groups`, or the ``group.instance.id`` of static ones. Their partitions go to the
        others at once. A member that still runs joins again; for one that is gone this saves the wait until its session
        ends (KIP-345). *reason* is logged by the broker (KIP-800).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownMemberIdError: the group has no such member. GroupIdNotFoundError, GroupAuthorizationError, …: for a
                single member; PartialFailureError: for several, by member id or group instance id.
        """
        group, left = _group_id(group_id), self._left_of(timeout)
        if isinstance(members, str | GroupMember):
            raise TypeError(f"expected a list of members, got one: write [{members!r}]")
        if not isinstance(reason, str):
            raise TypeError(f"reason is {reason!r}: expected str")
        chosen = (await self.describe_groups([group], timeout=left()))[group].members if members is None else members
        wanted = list(dict.fromkeys(_removal(each) for each in chosen))
        if wanted:
            answers = await self._core.call(
                lambda finish, deadline: remove_members_call(group, wanted, reason, finish=finish, deadline=deadline), left())
            raise_failed([_name(each) for each in wanted], {_name(each): answer for each, answer in answers.items()}, what="member")

    async def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = OPTION) -> None:
        """Delete the groups *group_ids*, which must have no members, with their committed offsets.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupNotEmptyError: it has members. GroupIdNotFoundError, GroupAuthorizationError, …: for a single group;
                PartialFailureError: for several.
        """
        wanted = _group_ids(group_ids)
        raise_failed(wanted, await each(self._core, {group: _described(delete_group_call, group) for group in wanted}, self._limit(timeout)), what="group")

    async def group_offsets(self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, lag: bool = True,
                            require_stable: bool = False, timeout: float | None = OPTION) -> dict[TopicPartition, GroupOffset]:
        """What the group *group_id* has committed, for *partitions* or for all that it has committed; with *lag* also
        the lags.

        With *require_stable* it waits for transactions that have sent offsets of the group (KIP-447): choose it where
        you rely on an offset, as for an export. Otherwise the offsets may be replaced when such a transaction ends.
        Where the end of a log cannot be had within the time (no leader, the topic was deleted), it and the lag are
        None.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupIdNotFoundError: there is no such group.
            KafkaTimeoutError: with *require_stable*, a transaction is still open.
            GroupAuthorizationError, …
        """
        left, group = self._left_of(timeout), _group_id(group_id)
        committed = await self._committed(group, partitions, left(), stable=require_stable)
        if all(each is None for each in committed.values()) and await self._found(group, left()) is None:
            raise _no_group(group)
        listed = await self._listed(dict.fromkeys(committed, OffsetSpec.LATEST), ISOLATION["read_uncommitted"], left()) if lag and committed else {}
        ends = {tp: end.offset for tp, end in listed.items() if isinstance(end, ListedOffset)}
        behind = lags(committed, ends)
        return {tp: GroupOffset(position, ends.get(tp), behind[tp]) for tp, position in committed.items()}

    async def alter_group_offsets(self, group_id: str, offsets: Offsets, *, timeout: float | None = OPTION) -> None:
        """Store *offsets* for the group *group_id*, which must have no members; they begin there when they join.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupNotEmptyError: it has members, whose commits would overwrite these: stop them first.
            UnknownTopicOrPartitionError, TopicAuthorizationError, …: for a single partition; PartialFailureError: for
                several. GroupAuthorizationError, …
        """
        group, left = _group_id(group_id), self._left_of(timeout)
        given = {tp: _position(tp, offset) for tp, offset in by_partition(offsets, "5000").items()}
        answers = await self._stored(group, given, left)
        if any(isinstance(answer, UnknownMemberIdError) for answer in answers.values()):
            raise _has_members(group)
        raise_failed(list(given), answers, what="partition")

    async def _stored(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata], left: Callable[[], float | None]) -> dict[TopicPartition, Any]:
        """None or the error of each offset. A new topic is waited for: coordinators learn of it later."""
        answers: dict[TopicPartition, Any] = dict.fromkeys(offsets, UNKNOWN)
        until, tries = self._core.clock() + NEW_TOPIC_S, 0
        while missing := {tp: offsets[tp] for tp, answer in answers.items() if isinstance(answer, UnknownTopicOrPartitionError)}:
            found = await attempted(self._core, _storing(group, missing), left())
            if isinstance(found, KafkaError) and len(missing) == len(offsets):
                raise found
            answers |= dict.fromkeys(missing, found) if isinstance(found, KafkaError) else found
            rest, pause, tries = left(), self._core.backoff.after(tries), tries + 1
            if self._core.clock() + pause > until or (rest is not None and rest <= pause):
                break
            if any(isinstance(answer, UnknownTopicOrPartitionError) for answer in answers.values()):
                await sleep(self._core.reactor, pause)
        return answers

    async def reset_group_offsets(self, group_id: str, to: Goal | None = None, *, shift_by: int | None = None,
                                  partitions: Iterable[TopicPartition] | None = None, dry_run: bool = False,
                                  timeout: float | None = OPTION) -> dict[TopicPartition, OffsetReset]:
        """Move what the group *group_id* has committed: *to* an `OffsetSpec` or a time, or by *shift_by* records.

        A time is in ms since the epoch, a datetime, or a timedelta, which is that long ago. *partitions* None means all
        that it has committed. Offsets stay within the log; a time behind the last record means its end. With *dry_run*
        nothing is stored, and the result says what would be. A group that does not exist gets the offsets of
        *partitions*, and exists from then on. Transactions that have sent offsets of the group are waited for: the end
        of one would replace those that are stored here.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupIdNotFoundError: there is no such group, and *partitions* are not given.
            GroupNotEmptyError: it has members: stop them first.
            KafkaTimeoutError: a transaction that has sent offsets is still open.
            UnknownTopicOrPartitionError, GroupAuthorizationError, …
        """
        if (to is None) == (shift_by is None):
            raise TypeError("give one of: to=OffsetSpec.EARLIEST, to=a time, or shift_by=-10")
        left, to = self._left_of(timeout), _since(to)
        described = await self._found(_group_id(group_id), left())
        if described is not None and described.members:
            raise _has_members(group_id)
        committed = await self._committed(group_id, partitions, left(), stable=True)
        if partitions is None and not committed and described is None:
            raise _no_offsets(group_id)
        first = await self._ends(committed, left(), OffsetSpec.EARLIEST)
        last = await self._ends(committed, left())
        goals = await self._goals(to, shift_by, committed, last, left())
        resets = {tp: OffsetReset(None if position is None else position.offset, min(max(goals[tp], first[tp]), last[tp])) for tp, position in committed.items()}
        if not dry_run and resets:
            await self.alter_group_offsets(group_id, {tp: reset.after for tp, reset in resets.items()}, timeout=left())
        return resets

    async def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> None:
        """Delete what the group *group_id* has committed for *partitions*, which its members must not read.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupSubscribedToTopicError: its members subscribe to the topic. GroupIdNotFoundError, …: for a single
                partition; PartialFailureError: for several.
        """
        group, wanted = _group_id(group_id), partitions_of(partitions)
        answers = await self._core.call(lambda finish, deadline: delete_offsets_call(group, wanted, finish=finish, deadline=deadline), self._limit(timeout))
        raise_failed(wanted, answers, what="partition")

    async def _found(self, group: str, timeout: float | None) -> GroupDescription | None:
        """The group; None if there is none."""
        try:
            return (await self.describe_groups([group], timeout=timeout))[group]
        except GroupIdNotFoundError:
            return None

    async def _committed(self, group: str, partitions: Iterable[TopicPartition] | None, timeout: float | None, *,
                         stable: bool) -> dict[TopicPartition, OffsetAndMetadata | None]:
        wanted = None if partitions is None else partitions_of(partitions)

        def ask(finish: Finish, deadline: float | None) -> Call:
            if wanted is None:
                return all_committed_call(group, stable=stable, finish=finish, deadline=deadline)
            return committed_call(group, wanted, finish, deadline, stable=stable)

        found: dict[TopicPartition, OffsetAndMetadata | None] = await self._core.call(ask, self._limit(timeout))
        return dict(sorted(found.items()))

    async def _ends(self, partitions: Iterable[TopicPartition], timeout: float | None, goal: Place = OffsetSpec.LATEST) -> dict[TopicPartition, int]:
        """The offset of each partition by one goal; those without such a record are left out."""
        specs = dict.fromkeys(partitions, goal)
        found = await self.list_offsets(specs, timeout=timeout) if specs else {}
        return {tp: listed.offset for tp, listed in found.items() if listed is not None}

    async def _goals(self, to: Place | None, shift_by: int | None, committed: Mapping[TopicPartition, OffsetAndMetadata | None],
                     last: Mapping[TopicPartition, int], timeout: float | None) -> Mapping[TopicPartition, int]:
        if to is None:
            missing = [tp for tp, position in committed.items() if position is None]
            if missing:
                raise ValueError(f"nothing is committed for {missing[0]}, so it cannot be shifted")
            return {tp: position.offset + (shift_by or 0) for tp, position in committed.items() if position is not None}
        found = await self._ends(committed, timeout, to)
        return {tp: found.get(tp, last[tp]) for tp in committed}


class GroupCalls(BlockingCalls):
    """Calls of `Admin` that concern groups."""

    _admin: AsyncGroupCalls

    def list_groups(self, *, states: Iterable[str] = (), types: Iterable[str] = (), timeout: float | None = OPTION) -> list[GroupListing]:
        """The groups of all brokers, by name; only those in one of *states* and of one of *types*, if any are given.

        States are Kafka's (``Stable``, ``Empty``, ``PreparingRebalance`` …; KIP-518), types are ``classic``,
        ``consumer`` (KIP-848), ``share`` and ``streams``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            PartialFailureError: some brokers did not answer; ``results`` has the groups of the others, by node id.
        """
        return self._call(lambda: self._admin.list_groups(states=states, types=types, timeout=timeout))

    def describe_groups(self, group_ids: Iterable[str], *, include_authorized_operations: bool = False,
                        timeout: float | None = OPTION) -> dict[str, GroupDescription]:
        """The groups *group_ids* with their members and what these have; classic groups and those of KIP-848.

        With *include_authorized_operations* also what this client's user may do with each.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupIdNotFoundError, GroupAuthorizationError, …: for a single group; PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.describe_groups(group_ids, include_authorized_operations=include_authorized_operations, timeout=timeout))

    def remove_members(self, group_id: str, members: Iterable[GroupMember | str] | None = None, *, reason: str = "an admin removed the member",
                       timeout: float | None = OPTION) -> None:
        """Remove *members* from the group *group_id*; None: all of them.

        Members are those of `describe_groups`, or the ``group.instance.id`` of static ones. Their partitions go to the
        others at once. A member that still runs joins again; for one that is gone this saves the wait until its session
        ends (KIP-345). *reason* is logged by the broker (KIP-800).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownMemberIdError: the group has no such member. GroupIdNotFoundError, GroupAuthorizationError, …: for a
                single member; PartialFailureError: for several, by member id or group instance id.
        """
        self._call(lambda: self._admin.remove_members(group_id, members, reason=reason, timeout=timeout))

    def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = OPTION) -> None:
        """Delete the groups *group_ids*, which must have no members, with their committed offsets.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupNotEmptyError: it has members. GroupIdNotFoundError, GroupAuthorizationError, …: for a single group;
                PartialFailureError: for several.
        """
        self._call(lambda: self._admin.delete_groups(group_ids, timeout=timeout))

    def group_offsets(self, group_id: str, partitions: Iterable[TopicPartition] | None = None, *, lag: bool = True,
                      require_stable: bool = False, timeout: float | None = OPTION) -> dict[TopicPartition, GroupOffset]:
        """What the group *group_id* has committed, for *partitions* or for all that it has committed; with *lag* also
        the lags.

        With *require_stable* it waits for transactions that have sent offsets of the group (KIP-447): choose it where
        you rely on an offset, as for an export. Otherwise the offsets may be replaced when such a transaction ends.
        Where the end of a log cannot be had within the time (no leader, the topic was deleted), it and the lag are
        None.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupIdNotFoundError: there is no such group.
            KafkaTimeoutError: with *require_stable*, a transaction is still open.
            GroupAuthorizationError, …
        """
        return self._call(lambda: self._admin.group_offsets(group_id, partitions, lag=lag, require_stable=require_stable, timeout=timeout))

    def alter_group_offsets(self, group_id: str, offsets: Offsets, *, timeout: float | None = OPTION) -> None:
        """Store *offsets* for the group *group_id*, which must have no members; they begin there when they join.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupNotEmptyError: it has members, whose commits would overwrite these: stop them first.
            UnknownTopicOrPartitionError, TopicAuthorizationError, …: for a single partition; PartialFailureError: for
                several. GroupAuthorizationError, …
        """
        self._call(lambda: self._admin.alter_group_offsets(group_id, offsets, timeout=timeout))

    def reset_group_offsets(self, group_id: str, to: Goal | None = None, *, shift_by: int | None = None,
                            partitions: Iterable[TopicPartition] | None = None, dry_run: bool = False,
                            timeout: float | None = OPTION) -> dict[TopicPartition, OffsetReset]:
        """Move what the group *group_id* has committed: *to* an `OffsetSpec` or a time, or by *shift_by* records.

        A time is in ms since the epoch, a datetime, or a timedelta, which is that long ago. *partitions* None means all
        that it has committed. Offsets stay within the log; a time behind the last record means its end. With *dry_run*
        nothing is stored, and the result says what would be. A group that does not exist gets the offsets of
        *partitions*, and exists from then on. Transactions that have sent offsets of the group are waited for: the end
        of one would replace those that are stored here.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupIdNotFoundError: there is no such group, and *partitions* are not given.
            GroupNotEmptyError: it has members: stop them first.
            KafkaTimeoutError: a transaction that has sent offsets is still open.
            UnknownTopicOrPartitionError, GroupAuthorizationError, …
        """
        return self._call(lambda: self._admin.reset_group_offsets(
            group_id, to, shift_by=shift_by, partitions=partitions, dry_run=dry_run, timeout=timeout))

    def delete_group_offsets(self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = OPTION) -> None:
        """Delete what the group *group_id* has committed for *partitions*, which its members must not read.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            GroupSubscribedToTopicError: its members subscribe to the topic. GroupIdNotFoundError, …: for a single
                partition; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.delete_group_offsets(group_id, partitions, timeout=timeout))


def _has_members(group: str) -> GroupNotEmptyError:
    return GroupNotEmptyError(f"group {group!r} has members, which commit offsets of their own: stop them first")


def _no_group(group: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"group {group!r} does not exist, so it has committed nothing: check its name (list_groups). [{GroupIdNotFoundError.name}]")


def _no_offsets(group: str) -> GroupIdNotFoundError:
    return GroupIdNotFoundError(f"group {group!r} does not exist, so it has no offsets to move: check its name (list_groups), or name the partitions= "
                                f"whose offsets a new group shall have. [{GroupIdNotFoundError.name}]")


def _since(goal: Goal | None) -> Place | None:
    if not isinstance(goal, datetime.timedelta):
        return goal
    if goal < datetime.timedelta(0):
        raise ValueError(f"to={goal}: a duration counts from now into the past, so it is not negative")
    return max(0, time.time_ns() // 1_000_000 - goal // datetime.timedelta(milliseconds=1))  # may reach back behind 1970, and behind year 1


def _removal(given: object) -> Removal:
    if isinstance(given, GroupMember):
        return Removal.of(given)
    if not isinstance(given, str) or not given:
        raise TypeError(f"expected a GroupMember of describe_groups or a group instance id as str, got {type(given).__name__}: {given!r}")
    return Removal(NO_MEMBER, given)


def _name(removal: Removal) -> str:
    return removal.group_instance_id or removal.member_id


def _storing(group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> Any:
    return lambda finish, deadline: alter_offsets_call(group, offsets, finish=finish, deadline=deadline)


def _described(make: Any, group: str, **asked: bool) -> Any:
    return lambda finish, deadline: make(group, **asked, finish=finish, deadline=deadline)


def _group_ids(given: Iterable[object]) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"expected a list of group ids, got the str {given!r}: write [{given!r}]")
    return list(dict.fromkeys(_group_id(group) for group in given))


def _group_id(given: object) -> str:
    if not isinstance(given, str) or not given:
        raise TypeError(f"expected a group id as str that is not empty, got {given!r}")
    return given


def _position(tp: TopicPartition, given: object) -> OffsetAndMetadata:
    offset: object = given.offset if isinstance(given, OffsetAndMetadata) else given
    if isinstance(offset, bool) or not isinstance(offset, int) or not 0 <= offset <= INT64_MAX:
        raise ValueError(f"{given!r} for {tp}: expected an offset of 0 or more")
    return given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(offset)
