"""Replicas: elect leaders, move partitions between brokers, look into log directories."""
from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pyclient.admin.calls import AsyncCalls, BlockingCalls, outcomes, raise_failed
from pyclient.admin.given import brokers as brokers_of
from pyclient.admin.given import by_partition
from pyclient.admin.given import partitions as partitions_of
from pyclient.admin.routing import each
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.replicas import alter_reassignments_call, describe_log_dirs_call, elect_leaders_call, list_reassignments_call
from pyclient.core.admin.routing import missing
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

        absent: dict[int, Any] = missing({node: [node] for node in wanted}, cluster)
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


def _brokers(tp: TopicPartition, given: Sequence[int] | None) -> list[int] | None:
    if given is None:
        return None
    found = brokers_of(given, f"the list of {tp}")
    if not found:
        raise ValueError(f"no brokers are given for {tp}; None cancels a reassignment")
    return found
