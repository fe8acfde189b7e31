"""Metrics of a producer's batches: sent, stored and failed, in total and by topic.

Updated per request and per batch, never per record.
"""
from __future__ import annotations

from collections.abc import Callable

from pyclient.buffers.batch import Batch
from pyclient.core.sending.sender import BatchListener
from pyclient.errors import KafkaError
from pyclient.metrics import (
    BATCH_SIZE, BATCH_SPLITS, BATCHES, COMPRESSION, RECORD_BYTES, RECORD_QUEUE_TIME, RECORD_SIZE, RECORDS_FAILED, RECORDS_PER_REQUEST, RECORDS_RETRIED,
    RECORDS_SENT, Metrics,
)
from pyclient.records import TopicPartition


class _OfTopic:
    """The values of one topic."""

    __slots__ = ("bytes", "compression", "stored")

    def __init__(self, metrics: Metrics, topic: str) -> None:
        self.bytes = metrics.total(RECORD_BYTES, topic)
        self.stored = metrics.total(RECORDS_SENT, topic)
        self.compression = metrics.windows(COMPRESSION, topic)


class BatchMetrics(BatchListener):
    """Counts batches and their records for the metrics."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock
        self._batches = metrics.total(BATCHES)
        self._records = metrics.windows(RECORDS_PER_REQUEST)
        self._batch_size = metrics.windows(BATCH_SIZE)
        self._queue_time = metrics.windows(RECORD_QUEUE_TIME)
        self._record_size = metrics.windows(RECORD_SIZE)
        self._topics: dict[str, _OfTopic] = {}

    def sent(self, batches: list[Batch]) -> None:
        """As `BatchListener.sent`."""
        now = self._clock()
        count = 0
        for batch in batches:
            count += batch.count
            self._sent(batch, now)
        self._batches.add(len(batches))
        self._records.add(count, 1, count, now)

    def _sent(self, batch: Batch, now: float) -> None:
        size, waited = batch.size, (now - batch.created) * 1000
        self._batch_size.add(size, 1, size, now)
        self._queue_time.add(waited, 1, waited, now)
        self._record_size.add(batch.appended, batch.count, batch.largest, now)
        topic = self._topics.get(batch.queue.topic) or self._of(batch.queue.topic)
        topic.bytes.add(size)
        ratio = len(batch.payload or b"") / batch.appended
        topic.compression.add(ratio, 1, ratio, now)
        if batch.attempts > 1:
            self._metrics.add(RECORDS_RETRIED, batch.count, batch.queue.topic)

    def _of(self, topic: str) -> _OfTopic:
        made = self._topics[topic] = _OfTopic(self._metrics, topic)
        return made

    def stored(self, batch: Batch) -> None:
        """As `BatchListener.stored`."""
        topic = self._topics.get(batch.queue.topic) or self._of(batch.queue.topic)
        topic.stored.add(batch.count)

    def split(self, batch: Batch) -> None:
        """As `BatchListener.split`."""
        self._metrics.add(BATCH_SPLITS)

    def failed(self, tp: TopicPartition, count: int, _error: KafkaError) -> None:
        """*count* records of this partition failed.

        The topic is empty for records of a bulk that were refused because they had none.
        """
        self._metrics.add(RECORDS_FAILED, count, *([tp.topic] if tp.topic else []))
