"""Plans of replicas, and the rate at which they are carried out."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

from pyclient.admin.calls import BlockingCalls
from pyclient.admin.configs import AsyncConfigCalls
from pyclient.admin.topics import AsyncTopicCalls
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.plans import Placement, Racks, spread, throttled_replicas, with_factors, without
from pyclient.descriptions.configs import ConfigChange, ConfigResource, ConfigValue
from pyclient.descriptions.replicas import ReassignmentPlan
from pyclient.records import TopicPartition

RATES: Final = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")


class AsyncPlanCalls(AsyncTopicCalls, AsyncConfigCalls):
    """Calls of `AsyncAdmin` that plan where replicas shall lie. None of them moves anything."""

    async def plan_replication_factors(self, factors: Mapping[str, int], *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Raise or lower the numbers of replicas of topics; leaders stay, new replicas use racks that have none first.

        Raises:
            InvalidReplicationFactorError: there are not so many brokers. UnknownTopicOrPartitionError, …
        """
        wanted = {topic: _factor(topic, factor) for topic, factor in factors.items()}
        return await self._plan(list(wanted), lambda placed, racks: with_factors(placed, racks, wanted), timeout)

    async def plan_without_brokers(self, brokers: Iterable[int], topics: Iterable[str] | None = None, *,
                                   timeout: float | None = OPTION) -> ReassignmentPlan:
        """Move the replicas of *topics* (None: of all) off brokers that shall be stopped for long.

        Raises:
            InvalidReplicationFactorError: too few brokers would be left. UnknownTopicOrPartitionError, …
        """
        leaving = frozenset(brokers)
        return await self._plan(topics, lambda placed, racks: without(placed, racks, leaving), timeout)

    async def plan_even_replicas(self, topics: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """Spread the replicas of *topics* (None: of all) over all racks and brokers, and preferred leaders with them.

        Numbers of replicas are compared, not their sizes.

        Raises:
            UnknownTopicOrPartitionError, …
        """
        return await self._plan(topics, spread, timeout)

    async def throttle_replication(self, plan: ReassignmentPlan, bytes_per_second: int | None, *, timeout: float | None = OPTION) -> None:
        """Limit what each broker sends and receives for the replicas of *plan*; None ends the limit.

        Set it before `alter_partition_reassignments`, end it when `list_partition_reassignments` is empty: like
        ``kafka-reassign-partitions.sh --throttle`` it sets ``leader.replication.throttled.rate`` and ``follower.…`` of
        the brokers that run, and adds the replicas to ``….throttled.replicas`` of the topics. The end removes these
        rates, also ones that were set before.

        Raises:
            ClusterAuthorizationError, …: for a single resource; PartialFailureError: for several.
        """
        if bytes_per_second is not None and bytes_per_second < 1:
            raise ValueError(f"bytes_per_second={bytes_per_second}: at least 1, or None to end the limit")
        left = self._left_of(timeout)
        alive = (await self._describe([], left())).nodes
        brokers = sorted({broker for placed in (plan.before, plan.after) for replicas in placed.values() for broker in replicas if broker in alive})
        rate = ConfigChange.delete() if bytes_per_second is None else bytes_per_second
        change = ConfigChange.append if bytes_per_second is not None else ConfigChange.subtract
        changes: dict[ConfigResource, Mapping[str, ConfigValue | ConfigChange]] = {
            ConfigResource.broker(broker): dict.fromkeys(RATES, rate) for broker in brokers}
        for topic, lists in throttled_replicas(plan.before, plan.after).items():
            changes[ConfigResource.topic(topic)] = {name: change(",".join(replicas)) for name, replicas in lists.items()}
        await self.alter_configs(changes, timeout=left())

    async def _plan(self, topics: Iterable[str] | None, make: Callable[[Placement, Racks], Placement], timeout: float | None) -> ReassignmentPlan:
        left = self._left_of(timeout)
        wanted = None if topics is None else list(topics)
        described = await self.describe_topics(await self.list_topics(timeout=left()) if wanted is None else wanted, timeout=left())
        cluster = await self._describe([], left())
        placed = {TopicPartition(name, part.partition): part.replicas for name, topic in described.items() for part in topic.partitions}
        after = make(placed, {node.id: node.rack for node in cluster.nodes.values()})
        return ReassignmentPlan({tp: placed[tp] for tp in after}, after)


class PlanCalls(BlockingCalls):
    """Calls of `Admin` that plan where replicas shall lie."""

    _admin: AsyncPlanCalls

    def plan_replication_factors(self, factors: Mapping[str, int], *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """As `AsyncAdmin.plan_replication_factors`."""
        return self._call(lambda: self._admin.plan_replication_factors(factors, timeout=timeout))

    def plan_without_brokers(self, brokers: Iterable[int], topics: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """As `AsyncAdmin.plan_without_brokers`."""
        return self._call(lambda: self._admin.plan_without_brokers(brokers, topics, timeout=timeout))

    def plan_even_replicas(self, topics: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> ReassignmentPlan:
        """As `AsyncAdmin.plan_even_replicas`."""
        return self._call(lambda: self._admin.plan_even_replicas(topics, timeout=timeout))

    def throttle_replication(self, plan: ReassignmentPlan, bytes_per_second: int | None, *, timeout: float | None = OPTION) -> None:
        """As `AsyncAdmin.throttle_replication`."""
        self._call(lambda: self._admin.throttle_replication(plan, bytes_per_second, timeout=timeout))


def _factor(topic: str, given: object) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or given < 1:
        raise ValueError(f"a replication factor of {given!r} for topic {topic!r}: expected a whole number of 1 or more")
    return given
