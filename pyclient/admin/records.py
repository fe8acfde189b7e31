"""Records of partitions: their offsets, and deleting them."""
from __future__ import annotations

import datetime
from collections.abc import Mapping
from typing import Any, Final, Literal, TypeAlias

from pyclient.admin.calls import AsyncCalls, BlockingCalls, outcomes
from pyclient.admin.given import by_partition
from pyclient.admin.routing import ToLeader, by_leader
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.records import by_version, delete_records_call, list_offsets_call
from pyclient.descriptions.offsets import ListedOffset, OffsetSpec
from pyclient.reactor.tasks import gather
from pyclient.records import TopicPartition

Specs: TypeAlias = Mapping[TopicPartition, OffsetSpec | int | datetime.datetime]
IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
ISOLATION: Final[Mapping[str, int]] = {"read_uncommitted": 0, "read_committed": 1}
ALL: Final = -1
INT64_MAX: Final = 2**63 - 1


class AsyncRecordCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern records and offsets."""

    async def list_offsets(self, specs: Specs, *, isolation_level: IsolationLevel = "read_uncommitted",
                           timeout: float | None = OPTION) -> dict[TopicPartition, ListedOffset | None]:
        """The offset of each partition of *specs* by its `OffsetSpec`, or the first one at or after a time.

        A time is in milliseconds since 1970 or a datetime with a time zone. None: the partition has no such record.

        With the *isolation_level* ``read_committed`` the latest offset is the last stable one.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationError, UnsupportedVersionError, …: for a single partition;
                PartialFailureError: for several.
        """
        if isolation_level not in ISOLATION:
            raise ValueError(f"isolation_level is {isolation_level!r}: expected read_uncommitted or read_committed")
        wanted = {tp: _spec(tp, spec) for tp, spec in by_partition(specs, "OffsetSpec.LATEST").items()}
        return outcomes(list(wanted), await self._listed(wanted, ISOLATION[isolation_level], self._limit(timeout)), what="partition")

    async def _listed(self, specs: Mapping[TopicPartition, int], isolation: int, limit: float | None) -> dict[TopicPartition, Any]:
        """The `ListedOffset`, None, or the `KafkaError` of each partition."""
        parts = [by_leader(self._core, part, _listing(part, isolation), limit, what="listing offsets") for part in by_version(specs)]
        return {tp: answer for part in await gather(self._core.reactor, parts) for tp, answer in part.items()}

    async def delete_records(self, before: Mapping[TopicPartition, int], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """Delete the records *before* an offset of each partition (-1: all there are); returns the new first offsets.

        Deleted records cannot be brought back. Positions of consumers before them are reset, as ``auto_offset_reset``
        says. A topic that is only compacted refuses it (PolicyViolationError).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            OffsetOutOfRangeError: the offset is behind the end of the log.
            UnknownTopicOrPartitionError, TopicAuthorizationError, …: for a single partition; PartialFailureError: for
                several.
        """
        limit = self._limit(timeout)
        wanted = {tp: _offset(tp, offset) for tp, offset in by_partition(before, "5000").items()}
        answers = await by_leader(self._core, wanted, lambda node, those, finish, deadline: delete_records_call(
            {tp: wanted[tp] for tp in those}, node=node, timeout=self._broker_limit(limit), finish=finish, deadline=deadline),
            limit, what="deleting records")
        return outcomes(list(wanted), answers, what="partition")


class RecordCalls(BlockingCalls):
    """Calls of `Admin` that concern records and offsets."""

    _admin: AsyncRecordCalls

    def list_offsets(self, specs: Specs, *, isolation_level: IsolationLevel = "read_uncommitted",
                     timeout: float | None = OPTION) -> dict[TopicPartition, ListedOffset | None]:
        """The offset of each partition of *specs* by its `OffsetSpec`, or the first one at or after a time.

        A time is in milliseconds since 1970 or a datetime with a time zone. None: the partition has no such record.

        With the *isolation_level* ``read_committed`` the latest offset is the last stable one.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, TopicAuthorizationError, UnsupportedVersionError, …: for a single partition;
                PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.list_offsets(specs, isolation_level=isolation_level, timeout=timeout))

    def delete_records(self, before: Mapping[TopicPartition, int], *, timeout: float | None = OPTION) -> dict[TopicPartition, int]:
        """Delete the records *before* an offset of each partition (-1: all there are); returns the new first offsets.

        Deleted records cannot be brought back. Positions of consumers before them are reset, as ``auto_offset_reset``
        says. A topic that is only compacted refuses it (PolicyViolationError).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            OffsetOutOfRangeError: the offset is behind the end of the log.
            UnknownTopicOrPartitionError, TopicAuthorizationError, …: for a single partition; PartialFailureError: for
                several.
        """
        return self._call(lambda: self._admin.delete_records(before, timeout=timeout))


def _listing(specs: Mapping[TopicPartition, int], isolation: int) -> ToLeader:
    return lambda node, those, finish, deadline: list_offsets_call(
        {tp: specs[tp] for tp in those}, node=node, isolation=isolation, finish=finish, deadline=deadline)


def _spec(tp: TopicPartition, given: object) -> int:
    if isinstance(given, datetime.datetime):
        if given.tzinfo is None:
            raise ValueError(f"the time for {tp} has no time zone: write datetime(..., tzinfo=timezone.utc)")
        return max(0, int(given.timestamp() * 1000))  # a negative number is an OffsetSpec for brokers
    if isinstance(given, OffsetSpec) or (isinstance(given, int) and not isinstance(given, bool) and 0 <= given <= INT64_MAX):
        return int(given)
    raise TypeError(f"{given!r} for {tp}: expected an OffsetSpec, milliseconds since 1970, or a datetime with a time zone")


def _offset(tp: TopicPartition, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not ALL <= given <= INT64_MAX:
        raise ValueError(f"{given!r} for {tp}: expected the offset before which records are deleted, or -1 for all")
    return given
