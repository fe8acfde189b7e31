"""Partitions that the user assigned and that no view of the cluster has shown yet (C13).

Independent of positions. Rule: only an answer to a question that is newer than the assignment
says that a partition is missing, for it may have been added a moment before. Polls raise that once for each assignment,
as the log says it: the user may read other partitions meanwhile.
"""
from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator

from pyclient.core.fetching.fetch_errors import no_partition, no_topic
from pyclient.core.metadata import Metadata
from pyclient.core.outages import REPORTED_AFTER
from pyclient.errors import KafkaError, UnknownTopicOrPartitionError
from pyclient.records import TopicPartition

_log = logging.getLogger(__name__)


class Unconfirmed:
    """Since when each of them was assigned, and which of them are reported as missing."""

    def __init__(self, metadata: Metadata) -> None:
        self._metadata = metadata
        self._since: dict[TopicPartition, float] = {}  # in order, so that a run can be repeated exactly
        self._reported: dict[TopicPartition, bool] = {}
        """Those that polls raise; whether the log has them too. It has missing topics by `pyclient.core.outages`."""

    def expect(self, partitions: Iterable[TopicPartition], now: float) -> None:
        """The user has named these. A view without them is refreshed: they may be new."""
        named = dict.fromkeys(partitions, now)
        self._since.update(named)
        if any((topic := self._metadata.usable(tp.topic)) and tp.partition >= len(topic.partitions) for tp in named):
            self._metadata.request_update()

    def forget(self, tp: TopicPartition) -> None:
        """The partition is not assigned any more."""
        self._since.pop(tp, None)
        self._reported.pop(tp, None)

    def newly_missing(self) -> Iterator[tuple[TopicPartition, KafkaError]]:
        """Those that the newest view is the first not to show. Called once for each view: they may be added yet."""
        for tp in list(self._since):
            if self._is_confirmed(tp):
                self._confirm(tp)
            elif tp not in self._reported and (error := self.error(tp)) is not None:
                self._reported[tp] = self._metadata.usable(tp.topic) is not None
                if self._reported[tp]:
                    _log.warning("%s", error.message)
                yield tp, error

    def error(self, tp: TopicPartition) -> KafkaError | None:
        """That a partition is missing; None if it is there, or if that is not known yet."""
        since, topic = self._since.get(tp), self._metadata.usable(tp.topic)
        if since is None or self._is_confirmed(tp):
            return None
        if topic is None:
            return no_topic(tp) if self._lacks_topic(tp.topic, since) else None
        if self._metadata.asked_at < since:
            self._metadata.request_update()
            return None
        return no_partition(tp, len(topic.partitions))

    def _is_confirmed(self, tp: TopicPartition) -> bool:
        topic = self._metadata.usable(tp.topic)
        return topic is not None and tp.partition < len(topic.partitions)

    def _confirm(self, tp: TopicPartition) -> None:
        if self._reported.get(tp):
            _log.warning("%s exists now, and is read", tp)
        self.forget(tp)

    def _lacks_topic(self, topic: str, since: float) -> bool:
        """As in Java, a topic that reading may create is waited for. Polls raise it when the log shows it."""
        known = self._metadata.cluster.topics.get(topic)
        return (known is not None and known.error == UnknownTopicOrPartitionError.code
                and not self._metadata.creates_topics and self._metadata.asked_at >= since + REPORTED_AFTER)
