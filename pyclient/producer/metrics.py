# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""Metrics of a producer's batches: sent, stored and failed, in total and by topic.

Updated per request and per batch, never per record.
"""
from __future__ import annotations

from collections.abc import Callable

from pyclient.buffers.batch import Batch
from pyclient.buffers.batch_counters import RequestCounters, TopicCounters
from pyclient.clocks import seconds_of
from pyclient.core.sending.sender import BatchListener
from pyclient.errors import KafkaError
from pyclient.metrics import (
    BATCH_SIZE, BATCH_SPLITS, BATCHES, COMPRESSION, RECORD_BYTES, RECORD_QUEUE_TIME, RECORD_SIZE, RECORDS_FAILED, RECORDS_PER_REQUEST, RECORDS_RETRIED,
    RECORDS_SENT, Metrics,
)
from pyclient.records import TopicPartition


class BatchMetrics(BatchListener):
    """Counts batches and their records for the metrics."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self.requests = RequestCounters(metrics.total(BATCHES), metrics.windows(RECORDS_PER_REQUEST))
        self._batch_size = metrics.windows(BATCH_SIZE)
        self._queue_time = metrics.windows(RECORD_QUEUE_TIME)
        self._record_size = metrics.windows(RECORD_SIZE)
        self._topics: dict[str, TopicCounters] = {}

    def of(self, topic: str) -> TopicCounters:
        """The figures of a topic."""
        found = self._topics.get(topic)
        return self._made(topic) if found is None else found

    def _made(self, topic: str) -> TopicCounters:
        made = self._topics[topic] = TopicCounters(
            self._metrics.total(RECORDS_SENT, topic), self._metrics.total(RECORD_BYTES, topic), self._metrics.windows(COMPRESSION, topic),
            self._batch_size, self._queue_time, self._record_size)
        return made

    def sent(self, batches: list[Batch]) -> None:
        """As `BatchListener.sent`."""
        now = seconds_of(self._clock)
        count = 0
        for batch in batches:
            count += self._sent(batch, now)
        self.requests.sent(len(batches), count, now)

    def _sent(self, batch: Batch, now: float) -> int:
        self.of(batch.queue.topic).sent(batch, now)
        if batch.attempts > 1:
            self._metrics.add(RECORDS_RETRIED, batch.count, batch.queue.topic)
        return batch.count

    def stored(self, batch: Batch) -> None:
        """As `BatchListener.stored`."""
        self.of(batch.queue.topic).stored(batch.count)

    def split(self, batch: Batch) -> None:
        """As `BatchListener.split`."""
        self._metrics.add(BATCH_SPLITS)

    def failed(self, tp: TopicPartition, count: int, _error: KafkaError) -> None:
        """*count* records of this partition failed.

        The topic is empty for records of a bulk that were refused because they had none.
        """
        self._metrics.add(RECORDS_FAILED, count, *([tp.topic] if tp.topic else []))
