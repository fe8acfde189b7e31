# cython: language_level=3, boundscheck=False, wraparound=False, initializedcheck=False, freethreading_compatible=True
"""Counts the batches that are sent and stored: what the metrics of a producer say of them.

Independent of names of metrics. Any thread may call it.
"""
import cython
from cython.cimports.pyclient.buffers.batch import Batch
from cython.cimports.pyclient.metric_values import Total, Windows


@cython.final
@cython.cclass
class RequestCounters:
    """Of all Produce requests: batches, and records in a request. The fields are declared in batch_counters.pxd."""

    def __init__(self, batches: Total, records: Windows) -> None:
        self._batches = batches
        self._records = records

    @cython.ccall
    def sent(self, batches: cython.longlong, records: cython.longlong, now: cython.double) -> cython.void:
        """A request with *batches* batches of *records* records was written."""
        self._batches.add(batches)
        self._records.add(records, 1, records, now)


@cython.final
@cython.cclass
class TopicCounters:
    """Of one topic's batches; sizes and times are shared by all topics. Fields: batch_counters.pxd."""

    def __init__(self, stored: Total, sent_bytes: Total, compression: Windows, batch_size: Windows, queue_time: Windows, record_size: Windows) -> None:
        self._stored = stored
        self._bytes = sent_bytes
        self._compression = compression
        self._batch_size = batch_size
        self._queue_time = queue_time
        self._record_size = record_size

    @cython.ccall
    def sent(self, batch: Batch, now: cython.double) -> cython.void:
        """The batch goes to the network."""
        payload: cython.double = 0 if batch.payload is None else len(batch.payload)
        size: cython.double = batch.size
        waited: cython.double = (now - batch.created) * 1000
        ratio: cython.double = payload / batch._at
        self._batch_size.add(size, 1, size, now)
        self._queue_time.add(waited, 1, waited, now)
        self._record_size.add(batch._at, batch.count, batch.largest, now)
        self._bytes.add(size)
        self._compression.add(ratio, 1, ratio, now)

    @cython.ccall
    def stored(self, records: cython.longlong) -> cython.void:
        """The broker has stored *records* records."""
        self._stored.add(records)
