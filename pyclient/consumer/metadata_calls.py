"""What a consumer knows of topics besides their records: names, numbers of partitions, ends of logs."""
from __future__ import annotations

from typing import TypeVar

from pyclient.client.facade_base import OPTION
from pyclient.codec.apis import Api
from pyclient.consumer.arguments import as_partition
from pyclient.consumer.facade_base import ConsumerBase
from pyclient.core.acl_errors import error_of
from pyclient.core.admin.topics import metadata_call
from pyclient.core.cluster import Cluster
from pyclient.core.topic_interest import check_topic_name
from pyclient.errors import UnknownTopicOrPartitionError
from pyclient.records import TopicPartition
from pyclient.runtime.steps import Step, Steps, WaitFor

T = TypeVar("T")


class ClusterSteps(ConsumerBase):
    """What the calls of both consumers do. Their requests do not change what is read, and create no topic."""

    def _list_topics(self, internal: bool, timeout: float | None) -> Steps[Step, list[str]]:
        cluster = yield from self._cluster(None, timeout)
        return sorted(name for name, topic in cluster.topics.items() if internal or not topic.internal)

    def _partitions_for(self, topic: str, timeout: float | None) -> Steps[Step, int]:
        cluster = yield from self._cluster([topic], timeout)
        known = cluster.topics.get(topic)
        if known is None or known.error:
            code = UnknownTopicOrPartitionError.code if known is None else known.error
            raise error_of(Api.METADATA, code, f"topic {topic!r}", topics=[topic])
        return len(known.partitions)

    def _cluster(self, topics: list[str] | None, timeout: float | None) -> Steps[Step, Cluster]:
        found: Cluster = yield WaitFor(lambda: self._core.call(
            lambda finish, deadline: metadata_call(topics, finish=finish, deadline=deadline), timeout))
        return found

    def _high_watermark(self, partition: TopicPartition) -> int | None:
        tp = as_partition(partition)
        self._open_core()
        self._core.check_assigned(tp)
        return self._core.fetcher.high_watermark(tp)


class MetadataCalls(ClusterSteps):
    """Calls of `Consumer` about topics."""

    def list_topics(self, *, internal: bool = False, timeout: float | None = OPTION) -> list[str]:
        """The names of all topics that this client may describe, sorted; with *internal*, Kafka's internal ones too.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        limit = self._timeout(timeout)
        with self._single_user:
            return self._drive(self._list_topics(internal, limit))

    def partitions_for(self, topic: str, *, timeout: float | None = OPTION) -> int:
        """The number of partitions of *topic*, as its brokers say now. Creates nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        check_topic_name(topic)
        limit = self._timeout(timeout)
        with self._single_user:
            return self._drive(self._partitions_for(topic, limit))

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The end of the log of *partition*, as the last fetch showed it; None before the first one. Never waits.

        The offset after the last record that is replicated. `end_offsets` asks the brokers.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._high_watermark(partition)

    def _drive(self, steps: Steps[Step, T]) -> T:
        raise NotImplementedError


class AsyncMetadataCalls(ClusterSteps):
    """Calls of `AsyncConsumer` about topics."""

    async def list_topics(self, *, internal: bool = False, timeout: float | None = OPTION) -> list[str]:
        """The names of all topics that this client may describe, sorted; with *internal*, Kafka's internal ones too.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.
        """
        return await self._drive(self._list_topics(internal, self._timeout(timeout)))

    async def partitions_for(self, topic: str, *, timeout: float | None = OPTION) -> int:
        """The number of partitions of *topic*, as its brokers say now. Creates nothing.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            UnknownTopicOrPartitionError: there is no such topic.
        """
        check_topic_name(topic)
        return await self._drive(self._partitions_for(topic, self._timeout(timeout)))

    def high_watermark(self, partition: TopicPartition) -> int | None:
        """The end of the log of *partition*, as the last fetch showed it; None before the first one. Never waits.

        The offset after the last record that is replicated. `end_offsets` asks the brokers.

        Raises:
            IllegalStateError: the partition is not assigned.
        """
        return self._high_watermark(partition)

    async def _drive(self, steps: Steps[Step, T]) -> T:
        raise NotImplementedError
