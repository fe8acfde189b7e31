"""Metrics of a producer's batches: sent, stored and failed, in total and by topic.

Updated per request and per batch, never per record.
"""
from __future__ import annotations

from collections.abc import Callable

from pyclient.buffers.batch import Batch
from pyclient.core.sending.sender import BatchListener
from pyclient.metrics import (
    BATCH_SIZE, BATCH_SPLITS, BATCHES, COMPRESSION, RECORD_BYTES, RECORD_QUEUE_TIME, RECORD_SIZE, RECORDS_FAILED, RECORDS_PER_REQUEST, RECORDS_RETRIED,
    RECORDS_SENT, Metric, Metrics,
)
from pyclient.records import TopicPartition


class BatchMetrics(BatchListener):
    """Counts batches and their records for the metrics."""

    def __init__(self, metrics: Metrics, clock: Callable[[], float]) -> None:
        self._metrics = metrics
        self._clock = clock

    def sent(self, batches: list[Batch]) -> None:
        """As `BatchListener.sent`."""
        now = self._clock()
        self._metrics.add(BATCHES, len(batches))
        self._metrics.sample(RECORDS_PER_REQUEST, sum(batch.count for batch in batches), now)
        self._each(BATCH_SIZE, [batch.size for batch in batches], now)
        self._each(RECORD_QUEUE_TIME, [(now - batch.created) * 1000 for batch in batches], now)
        self._metrics.samples(RECORD_SIZE, sum(batch.appended for batch in batches), sum(batch.count for batch in batches),
                              max(batch.largest for batch in batches), now)
        for topic, own in _by_topic(batches).items():
            self._sent_to(topic, own, now)

    def _sent_to(self, topic: str, batches: list[Batch], now: float) -> None:
        self._metrics.add(RECORD_BYTES, sum(batch.size for batch in batches), topic)
        self._each(COMPRESSION, [len(batch.payload or b"") / batch.appended for batch in batches], now, topic)
        again = sum(batch.count for batch in batches if batch.attempts > 1)
        if again:
            self._metrics.add(RECORDS_RETRIED, again, topic)

    def _each(self, metric: Metric, values: list[float], now: float, *labels: str) -> None:
        self._metrics.samples(metric, sum(values), len(values), max(values), now, *labels)

    def stored(self, batch: Batch) -> None:
        """As `BatchListener.stored`."""
        self._metrics.add(RECORDS_SENT, batch.count, batch.queue.topic)

    def split(self, batch: Batch) -> None:
        """As `BatchListener.split`."""
        self._metrics.add(BATCH_SPLITS)

    def failed(self, tp: TopicPartition, count: int) -> None:
        """*count* records of this partition failed.

        The topic is empty for records of a bulk that were refused because they had none.
        """
        self._metrics.add(RECORDS_FAILED, count, *([tp.topic] if tp.topic else []))


def _by_topic(batches: list[Batch]) -> dict[str, list[Batch]]:
    found: dict[str, list[Batch]] = {}
    for batch in batches:
        found.setdefault(batch.queue.topic, []).append(batch)
    return found
