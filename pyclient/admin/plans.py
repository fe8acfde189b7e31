"""Plans of replicas, and the rate at which they are carried out."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from pyclient.admin.calls import BlockingCalls, outcomes, raise_failed
from pyclient.admin.configs import AsyncConfigCalls
from pyclient.admin.given import brokers as brokers_of
from pyclient.admin.given import mapping, names
from pyclient.admin.replicas import AsyncReplicaCalls
from pyclient.admin.routing import by_broker
from pyclient.admin.topics import AsyncTopicCalls, described
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.configs import alter_configs_call, by_node, changes_by_node, describe_configs_call
from pyclient.core.admin.plans import Placement, Racks, spread, with_factors, without
from pyclient.core.admin.throttles import beginning, ending, own_values, resources_of
from pyclient.core.cluster import Cluster
from pyclient.descriptions.configs import ConfigResource
from pyclient.descriptions.replicas import LogDir, ReassignmentPlan, ReplicationThrottle
from pyclient.errors import BrokerNotAvailableError, KafkaError, PartialFailureError, RetriableError
from pyclient.records import TopicPartition

AWAY: Final = (RetriableError, BrokerNotAvailableError)
"""Errors of a broker that cannot be asked now; plans do without its answer."""


class AsyncPlanCalls(AsyncTopicCalls, AsyncConfigCalls, AsyncReplicaCalls):
    """Calls of `AsyncAdmin` that plan where replicas shall lie. None of them moves anything."""

    async def plan_replication_factors(self, factors: Mapping[str, int], *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Raise or lower the numbers of replicas of topics; leaders stay, new replicas use racks that have none first.

        *factors* maps a topic to the number of replicas that it shall have.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidReplicationFactorError: there are not so many brokers. UnknownTopicOrPartitionError, …
        """
        given = mapping(factors, "factors", '{"orders": 3}')
        wanted = {topic: _at_least_one(f"the replication factor of topic {topic!r}", factor) for topic, factor in given.items()}
        return await self._plan(list(wanted), lambda placed, racks: with_factors(placed, racks, wanted), timeout)

    async def plan_without_brokers(self, brokers: Iterable[int], topics: Iterable[str] | None = None, *,
                                   timeout: float | None = OPTION) -> ReassignmentPlan:
        """Move the replicas of *topics* (None: of all, Kafka's own too) off *brokers* that shall be stopped for long.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidReplicationFactorError: too few brokers would be left. UnknownTopicOrPartitionError, …
        """
        leaving = frozenset(brokers_of(brokers))
        return await self._plan(topics, lambda placed, racks: without(placed, racks, leaving), timeout)

    async def plan_even_replicas(self, topics: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Spread replicas of *topics* (None: of all, Kafka's own too) over racks and brokers, and preferred leaders.

        Numbers of replicas are compared, not their sizes.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, …
        """
        return await self._plan(topics, spread, timeout)

    async def plan_throttle(self, plan: ReassignmentPlan, bytes_per_second: int, *, timeout: float | None = OPTION) -> ReplicationThrottle:
        """A limit of *bytes_per_second* for what each broker sends and receives for *plan*; changes nothing yet.

        It has what the cluster has set now, which `end_throttle` restores: `write_throttle` keeps it in a file, should
        the program end in between. Only brokers that run are limited.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …: for a single resource; PartialFailureError: for several.
        """
        if not isinstance(plan, ReassignmentPlan):
            raise TypeError(f"expected a ReassignmentPlan, as plan_even_replicas makes, got {type(plan).__name__}")
        rate, left = _at_least_one("bytes_per_second", bytes_per_second), self._left_of(timeout)
        wanted = resources_of(plan, (await self._describe([], left())).nodes)
        return ReplicationThrottle(plan, rate, outcomes(list(wanted), await self._own_values(wanted, left), what="resource"))

    async def throttle_replication(self, throttle: ReplicationThrottle, *, timeout: float | None = OPTION) -> None:
        """Begin the limit *throttle* of `plan_throttle`, before `alter_partition_reassignments`.

        As ``kafka-reassign-partitions.sh --throttle`` does, it sets ``leader.replication.throttled.rate`` and
        ``follower.…`` of brokers, and adds the replicas to ``….throttled.replicas`` of the topics.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …: for a single resource; PartialFailureError: for several.
        """
        await self.alter_configs(beginning(_throttle(throttle)), timeout=timeout)

    async def end_throttle(self, throttle: ReplicationThrottle, *, timeout: float | None = OPTION) -> None:
        """End the limit *throttle*, when `list_partition_reassignments` is empty: rates and lists are again as they
        were before it.

        What somebody else has set since stays as it is. Nothing is lost by a second call, nor by one after a limit that
        has begun in part, or not at all.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            BrokerNotAvailableError: a broker does not run; call again when it does. ClusterAuthorizationError,
                UnknownTopicOrPartitionError, …: for a single resource; PartialFailureError: for several.
        """
        left = self._left_of(timeout)
        throttle = _throttle(throttle)
        found = await self._own_values({resource: tuple(values) for resource, values in throttle.before.items()}, left)
        changes = ending(throttle, {resource: values for resource, values in found.items() if not isinstance(values, KafkaError)})
        nodes = changes_by_node(changes, of_controllers=self._core.of_controllers)
        answers = await by_broker(self._core, nodes, lambda node, those, finish, deadline: alter_configs_call(
            {each: changes[each] for each in those}, node=node, validate_only=False, finish=finish, deadline=deadline), left())
        as_they_were = {resource: each for resource, each in found.items() if resource not in changes}
        raise_failed(list(throttle.before), {**as_they_were, **answers}, what="resource")

    async def _own_values(self, wanted: Mapping[ConfigResource, tuple[str, ...]], left: Callable[[], float | None]) -> dict[ConfigResource, Any]:
        """What is set at each resource itself, by name, or its error."""
        names = sorted({name for those in wanted.values() for name in those})
        answers = await by_broker(self._core, by_node(wanted), lambda node, those, finish, deadline: describe_configs_call(
            those, node=node, names=names, synonyms=True, documentation=False, finish=finish, deadline=deadline), left())
        return {resource: each if isinstance(each, KafkaError) else own_values(each, wanted[resource]) for resource, each in answers.items()}

    async def _plan(self, topics: Iterable[str] | None, make: Callable[[Placement, Racks], Placement], timeout: float | None) -> ReassignmentPlan:
        left = self._left_of(timeout)
        wanted = None if topics is None else names(topics, "topics")
        cluster = await self._describe(wanted, left())
        topics_of = described(cluster, list(cluster.topics) if wanted is None else wanted)
        placed = {TopicPartition(name, part.partition): part.replicas for name, topic in topics_of.items() for part in topic.partitions}
        after = make(placed, {node.id: node.rack for node in cluster.nodes.values()})
        before = {tp: placed[tp] for tp in after}
        return ReassignmentPlan(before, after, await self._sizes(before, cluster, left()))

    async def _sizes(self, placed: Placement, cluster: Cluster, timeout: float | None) -> dict[TopicPartition, int]:
        """The bytes of the largest replica of each partition; brokers that cannot be asked leave theirs out."""
        brokers = sorted({broker for replicas in placed.values() for broker in replicas if broker in cluster.nodes})
        try:
            found: Mapping[int, Mapping[str, LogDir]] = await self.describe_log_dirs(brokers, partitions=placed, timeout=timeout) if brokers else {}
        except PartialFailureError as partly:
            if not all(isinstance(error, AWAY) for error in partly.errors.values()):
                raise
            found = partly.results
        except AWAY:  # the only broker
            found = {}
        sizes: dict[TopicPartition, int] = {}
        for directory in (each for directories in found.values() for each in directories.values()):
            for tp, replica in directory.replicas.items():
                sizes[tp] = max(replica.size, sizes.get(tp, 0))
        return sizes


class PlanCalls(BlockingCalls):
    """Calls of `Admin` that plan where replicas shall lie."""

    _admin: AsyncPlanCalls

    def plan_replication_factors(self, factors: Mapping[str, int], *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Raise or lower the numbers of replicas of topics; leaders stay, new replicas use racks that have none first.

        *factors* maps a topic to the number of replicas that it shall have.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidReplicationFactorError: there are not so many brokers. UnknownTopicOrPartitionError, …
        """
        return self._call(lambda: self._admin.plan_replication_factors(factors, timeout=timeout))

    def plan_without_brokers(self, brokers: Iterable[int], topics: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Move the replicas of *topics* (None: of all, Kafka's own too) off *brokers* that shall be stopped for long.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            InvalidReplicationFactorError: too few brokers would be left. UnknownTopicOrPartitionError, …
        """
        return self._call(lambda: self._admin.plan_without_brokers(brokers, topics, timeout=timeout))

    def plan_even_replicas(self, topics: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Spread replicas of *topics* (None: of all, Kafka's own too) over racks and brokers, and preferred leaders.

        Numbers of replicas are compared, not their sizes.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError, …
        """
        return self._call(lambda: self._admin.plan_even_replicas(topics, timeout=timeout))

    def plan_throttle(self, plan: ReassignmentPlan, bytes_per_second: int, *, timeout: float | None = OPTION) -> ReplicationThrottle:
        """A limit of *bytes_per_second* for what each broker sends and receives for *plan*; changes nothing yet.

        It has what the cluster has set now, which `end_throttle` restores: `write_throttle` keeps it in a file, should
        the program end in between. Only brokers that run are limited.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …: for a single resource; PartialFailureError: for several.
        """
        return self._call(lambda: self._admin.plan_throttle(plan, bytes_per_second, timeout=timeout))

    def throttle_replication(self, throttle: ReplicationThrottle, *, timeout: float | None = OPTION) -> None:
        """Begin the limit *throttle* of `plan_throttle`, before `alter_partition_reassignments`.

        As ``kafka-reassign-partitions.sh --throttle`` does, it sets ``leader.replication.throttled.rate`` and
        ``follower.…`` of brokers, and adds the replicas to ``….throttled.replicas`` of the topics.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            ClusterAuthorizationError, …: for a single resource; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.throttle_replication(throttle, timeout=timeout))

    def end_throttle(self, throttle: ReplicationThrottle, *, timeout: float | None = OPTION) -> None:
        """End the limit *throttle*, when `list_partition_reassignments` is empty: rates and lists are again as they
        were before it.

        What somebody else has set since stays as it is. Nothing is lost by a second call, nor by one after a limit that
        has begun in part, or not at all.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            BrokerNotAvailableError: a broker does not run; call again when it does. ClusterAuthorizationError,
                UnknownTopicOrPartitionError, …: for a single resource; PartialFailureError: for several.
        """
        self._call(lambda: self._admin.end_throttle(throttle, timeout=timeout))


def _throttle(given: object) -> ReplicationThrottle:
    if not isinstance(given, ReplicationThrottle):
        raise TypeError(f"expected a ReplicationThrottle, which plan_throttle makes, got {type(given).__name__}")
    return given


def _at_least_one(what: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError(f"{what} is {given!r}: expected a whole number of 1 or more")
    return given
