"""Replicas: elect leaders, move partitions between brokers, look into log directories."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyclient.admin.calls import AsyncCalls, BlockingCalls, outcomes, raise_failed
from pyclient.admin.given import brokers as brokers_of
from pyclient.admin.given import by_partition, mapping
from pyclient.admin.given import partitions as partitions_of
from pyclient.admin.routing import by_broker, each
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.replicas import (
    Replica, alter_log_dirs_call, alter_reassignments_call, describe_log_dirs_call, elect_leaders_call, list_reassignments_call,
)
from pyclient.core.admin.routing import missing
from pyclient.core.calls import Call, Finish
from pyclient.descriptions.replicas import ElectionType, LogDir, Reassignment
from pyclient.records import TopicPartition


class AsyncReplicaCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern replicas."""

    async def elect_leaders(self, partitions: Iterable[TopicPartition] | None = None, election: ElectionType = ElectionType.PREFERRED, *,
                            timeout: float | None = OPTION) -> dict[TopicPartition, bool]:
        """Elect leaders of *partitions* (None: of all); returns which partitions have a new one.

        With None, partitions that need no election may be left out of the result.

        *election* takes the first replica if it is in sync (PREFERRED), or any that is alive, at the loss of records
        (UNCLEAN, only where a partition has no leader).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            PreferredLeaderNotAvailableError: the first replica is not in sync. EligibleLeadersNotAvailableError: no
                replica is alive. UnknownTopicOrPartitionError, ClusterAuthorizationError, …: for a single partition;
                PartialFailureError: for several.
        """
        wanted, kind, limit = None if partitions is None else partitions_of(partitions), ElectionType(election), self._limit(timeout)
        answers: dict[TopicPartition, Any] = await self._core.call(lambda finish, deadline: elect_leaders_call(
            wanted, kind, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit)
        return outcomes(sorted(answers) if wanted is None else wanted, answers, what="partition")

    async def alter_partition_reassignments(self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = OPTION) -> None:
        """Begin to move partitions to the brokers in *replicas*, whose first one is preferred as leader; None cancels.

        Returns when the controller has taken them: `list_partition_reassignments` has those that are still under way.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidReplicaAssignmentError: a broker that does not exist, or twice. NoReassignmentInProgressError:
                nothing to cancel. UnknownTopicOrPartitionError, ClusterAuthorizationError, …: for a single partition;
                PartialFailureError: for several.
        """
        wanted, limit = {tp: _brokers(tp, those) for tp, those in by_partition(replicas, "[1, 2]").items()}, self._limit(timeout)
        if wanted:
            answers = await self._core.call(lambda finish, deadline: alter_reassignments_call(
                wanted, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit)
            raise_failed(list(wanted), answers, what="partition")

    async def list_partition_reassignments(self, partitions: Iterable[TopicPartition] | None = None, *,
                                           timeout: float | None = OPTION) -> dict[TopicPartition, Reassignment]:
        """Those of *partitions* (None: of all) that are being moved.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …
        """
        wanted, limit = None if partitions is None else partitions_of(partitions), self._limit(timeout)
        found: dict[TopicPartition, Reassignment] = await self._core.call(lambda finish, deadline: list_reassignments_call(
            wanted, timeout=self._broker_limit(limit), finish=finish, deadline=deadline), limit)
        return dict(sorted(found.items()))

    async def alter_replica_log_dirs(self, directories: Mapping[Replica, str], *, timeout: float | None = OPTION) -> None:
        """Move replicas to other log directories of their brokers: *directories* has the absolute path of the new one
        by topic, partition and broker (KIP-113).

        Returns when the brokers have begun to copy: `describe_log_dirs` has a replica in both directories until it has
        been copied, in the new one with ``is_future``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            LogDirNotFoundError: the broker has no such directory. KafkaStorageError: the directory has failed.
                ReplicaNotAvailableError: the broker has no such replica now; should it get one, it will be put there.
                BrokerNotAvailableError, ClusterAuthorizationError, …: for a single replica; PartialFailureError: for
                several.
        """
        wanted, limit = _directories(directories), self._limit(timeout)
        brokers: dict[int | None, list[Replica]] = {}
        for replica in wanted:
            brokers.setdefault(replica[2], []).append(replica)

        def ask(node: int | None, those: Sequence[Replica], finish: Finish, deadline: float | None) -> Call:
            return alter_log_dirs_call(those[0][2], {replica: wanted[replica] for replica in those}, finish=finish, deadline=deadline)

        raise_failed(list(wanted), await by_broker(self._core, brokers, ask, limit), what="replica")

    async def describe_log_dirs(self, brokers: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None,
                                timeout: float | None = OPTION) -> dict[int, dict[str, LogDir]]:
        """The log directories of *brokers* (None: of all) by node id and path; with the replicas in each, or those of
        *partitions*.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, BrokerNotAvailableError, …: for a single broker; PartialFailureError: for
                several.
        """
        left, those = self._left_of(timeout), None if partitions is None else partitions_of(partitions)
        cluster = await self._describe([], left())
        wanted = sorted(cluster.nodes) if brokers is None else list(dict.fromkeys(brokers_of(brokers)))

        def ask(node: int) -> Any:
            return lambda finish, deadline: describe_log_dirs_call(node, those, finish=finish, deadline=deadline)

        absent: dict[int, Any] = missing({node: [node] for node in wanted}, cluster.nodes)
        return outcomes(wanted, absent | await each(self._core, {node: ask(node) for node in wanted if node not in absent}, left()), what="broker")


class ReplicaCalls(BlockingCalls):
    """Calls of `Admin` that concern replicas."""

    _admin: AsyncReplicaCalls

    def elect_leaders(self, partitions: Iterable[TopicPartition] | None = None, election: ElectionType = ElectionType.PREFERRED, *,
                      timeout: float | None = OPTION) -> dict[TopicPartition, bool]:
        """Elect leaders of *partitions* (None: of all); returns which partitions have a new one.

        With None, partitions that need no election may be left out of the result.

        *election* takes the first replica if it is in sync (PREFERRED), or any that is alive, at the loss of records
        (UNCLEAN, only where a partition has no leader).

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            PreferredLeaderNotAvailableError: the first replica is not in sync. EligibleLeadersNotAvailableError: no
                replica is alive. UnknownTopicOrPartitionError, ClusterAuthorizationError, …: for a single partition;
                PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.elect_leaders(partitions, election, timeout=timeout))

    def alter_partition_reassignments(self, replicas: Mapping[TopicPartition, Sequence[int] | None], *, timeout: float | None = OPTION) -> None:
        """Begin to move partitions to the brokers in *replicas*, whose first one is preferred as leader; None cancels.

        Returns when the controller has taken them: `list_partition_reassignments` has those that are still under way.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidReplicaAssignmentError: a broker that does not exist, or twice. NoReassignmentInProgressError:
                nothing to cancel. UnknownTopicOrPartitionError, ClusterAuthorizationError, …: for a single partition;
                PartialFailureError: for several.
        """
        self._call(lambda: self._admin.alter_partition_reassignments(replicas, timeout=timeout))

    def list_partition_reassignments(self, partitions: Iterable[TopicPartition] | None = None, *,
                                     timeout: float | None = OPTION) -> dict[TopicPartition, Reassignment]:
        """Those of *partitions* (None: of all) that are being moved.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …
        """
        return self._call(lambda: self._admin.list_partition_reassignments(partitions, timeout=timeout))

    def alter_replica_log_dirs(self, directories: Mapping[Replica, str], *, timeout: float | None = OPTION) -> None:
        """Move replicas to other log directories of their brokers: *directories* has the absolute path of the new one
        by topic, partition and broker (KIP-113).

        Returns when the brokers have begun to copy: `describe_log_dirs` has a replica in both directories until it has
        been copied, in the new one with ``is_future``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            LogDirNotFoundError: the broker has no such directory. KafkaStorageError: the directory has failed.
                ReplicaNotAvailableError: the broker has no such replica now; should it get one, it will be put there.
                BrokerNotAvailableError, ClusterAuthorizationError, …: for a single replica; PartialFailureError: for
                several.
        """
        self._call(lambda: self._admin.alter_replica_log_dirs(directories, timeout=timeout))

    def describe_log_dirs(self, brokers: Iterable[int] | None = None, *, partitions: Iterable[TopicPartition] | None = None,
                          timeout: float | None = OPTION) -> dict[int, dict[str, LogDir]]:
        """The log directories of *brokers* (None: of all) by node id and path; with the replicas in each, or those of
        *partitions*.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, BrokerNotAvailableError, …: for a single broker; PartialFailureError: for
                several.
        """
        return self._call(lambda: self._admin.describe_log_dirs(brokers, partitions=partitions, timeout=timeout))


def _directories(given: object) -> dict[Replica, str]:
    found = mapping(given, "directories", '{("orders", 0, 1): "/data/2"}')
    wrong = [item for item in found.items() if not _is_replica(item[0]) or not isinstance(item[1], str)]
    if wrong:
        raise TypeError(f'directories has {wrong[0][0]!r}: {wrong[0][1]!r}; expected a path by topic, partition and broker, as ("orders", 0, 1): "/data/2"')
    return dict(found)


def _is_replica(given: object) -> bool:
    return isinstance(given, tuple) and [type(each) for each in given] == [str, int, int]


def _brokers(tp: TopicPartition, given: Sequence[int] | None) -> list[int] | None:
    if given is None:
        return None
    found = brokers_of(given, f"the list of {tp}")
    if not found:
        raise ValueError(f"no brokers are given for {tp}; None cancels a reassignment")
    return found
