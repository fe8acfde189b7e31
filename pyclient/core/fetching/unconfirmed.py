"""Partitions that the user assigned and that no view of the cluster has shown yet (C13).

Knows views of the cluster; knows no positions. Rule: only an answer to a question that is newer than the assignment
says that a partition is missing, for it may have been added a moment before.
"""
from __future__ import annotations

from collections.abc import Iterable, Iterator

from pyclient.core.fetching.fetch_errors import no_partition, no_topic
from pyclient.core.metadata import Metadata
from pyclient.core.outages import PATIENCE
from pyclient.errors import KafkaError, UnknownTopicOrPartitionError
from pyclient.records import TopicPartition


class Unconfirmed:
    """Since when each of them was assigned."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._since: dict[TopicPartition, float] = {}  # in order, so that a run can be repeated exactly

    def expect(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The user has named these. A view without them is refreshed: they may be new."""
        named = dict.fromkeys(partitions, now)
        self._since.update(named)
        if any((topic := self._metadata.usable(tp.topic)) and tp.partition >= len(topic.partitions) for tp in named):
            self._metadata.request_update()

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not assigned any more."""
        self._since.pop(tp, None)

    def missing(self) -> Iterator[tuple[TopicPartition, KafkaError]]:
        """Those that the newest view does not show. Called once for each view: they may be added yet."""
        for tp, since in list(self._since.items()):
            topic = self._metadata.usable(tp.topic)
            if topic is None:
                if self._is_missing(tp.topic, since):
                    yield tp, no_topic(tp)
            elif tp.partition < len(topic.partitions):
                del self._since[tp]
            elif self._metadata.asked_at < since:
                self._metadata.request_update()
            else:
                yield tp, no_partition(tp, len(topic.partitions))

    def _is_missing(self, topic: str, since: float) -> bool:
        """As in Java, a topic that reading may create is waited for. Polls raise it when the log shows it."""
        known = self._metadata.cluster.topics.get(topic)
        return (known is not None and known.error == UnknownTopicOrPartitionError.code
                and not self._metadata.creates_topics and self._metadata.asked_at >= since + PATIENCE)
