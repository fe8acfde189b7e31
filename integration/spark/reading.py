"""One task's work: read exactly one range of offsets and hand it on in Arrow batches.

Runs on executors. Rules: it ends when the position reaches the end of the range; offsets without a record (compaction,
transactions) are skipped; ending early is an error. A worker process keeps its consumer for the next task, unless a
task fails; between two tasks it fetches nothing.
"""
from __future__ import annotations

import bisect
import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final

from pyclient.consumer.facade import Consumer
from pyclient.errors import KafkaTimeoutError, OffsetOutOfRangeError
from pyclient.integration.spark.columns import table_for_spark
from pyclient.integration.spark.context import task_name
from pyclient.integration.spark.offsets import DATA_LOSS, OffsetRange
from pyclient.integration.spark.options import SourceOptions, with_defaults
from pyclient.integration.spark.producers import borrowed

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.buffers.records_view import Records

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
"""Longest wait in one poll: a range may end with offsets that hold no record, which poll waits through."""


MANY: Final = 20_000
"""Offsets of a range that is read in larger fetches, which make larger batches. Behind a smaller range they would bring
records that are not part of it."""
LARGE_FETCH: Final = {"max.partition.fetch.bytes": str(2 * 2**20)}
"""Larger buffers are returned to the system after each batch, and each page is cleared when it is used again."""


def read_range(wanted: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """The records of *wanted* in the columns of the source.

    Raises:
        OffsetOutOfRangeError: part of it is not in the log any more, and ``failOnDataLoss`` is on.
        KafkaTimeoutError: nothing came for ``kafkaConsumer.pollTimeoutMs``.
    """
    client = client_options(wanted, options)
    with borrowed({**client, "client": "reader"}, lambda: Consumer(**client)) as consumer:
        consumer.assign([wanted.tp])
        consumer.seek(wanted.tp, wanted.start)
        for records in _polled(consumer, wanted, options):
            yield from _batches(records, wanted, options)
        consumer.assign([])
    log.info("%s: %s read", task_name(), wanted)


def client_options(wanted: OffsetRange, options: SourceOptions) -> Mapping[str, Any]:
    """The consumer's options; what the user sets is left as it is."""
    return with_defaults(options.client, LARGE_FETCH) if len(wanted) >= MANY else options.client


def _polled(consumer: Consumer, wanted: OffsetRange, options: SourceOptions) -> Iterator[Records]:
    """What each poll brings, until the position is at the end of *wanted*."""
    position, silent_since = wanted.start, time.monotonic()
    while position < wanted.end:
        try:
            records = consumer.poll(LOOK_S)
        except OffsetOutOfRangeError as error:
            reached = _after_the_hole(consumer, wanted, position, options, error)
        else:
            if records:
                yield records
            reached = consumer.position(wanted.tp)  # polls pass over offsets without records, too
        if reached > position:
            position, silent_since = reached, time.monotonic()
        elif time.monotonic() - silent_since > options.poll_timeout:
            raise KafkaTimeoutError(
                f"no records of {wanted} came for {options.poll_timeout:g} s; position {position}. Is the leader up? Was the log cut "
                "short? kafkaConsumer.pollTimeoutMs is how long a task waits.", topic_partition=wanted.tp)


def _after_the_hole(consumer: Consumer, wanted: OffsetRange, position: int, options: SourceOptions, error: OffsetOutOfRangeError) -> int:
    """Where reading goes on when *position* is not in the log, if data may be lost."""
    begin = consumer.beginning_offsets([wanted.tp])[wanted.tp]
    if begin <= position < consumer.end_offsets([wanted.tp])[wanted.tp]:  # it is: the topic was created again since this process read it
        consumer.seek(wanted.tp, position)
        return position
    gone_until = min(begin, wanted.end) if begin > position else wanted.end
    what = f"offsets {position} to {gone_until - 1} of {wanted.tp} are not in the log any more"
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(f"{what}: {DATA_LOSS}", topic_partition=wanted.tp) from error
    log.warning("%s: going on without them, for failOnDataLoss=false", what)
    if gone_until < wanted.end:
        consumer.seek(wanted.tp, gone_until)
    return gone_until


def _batches(records: Records, wanted: OffsetRange, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    """*records* as batches, without those behind the range."""
    if records[-1].offset >= wanted.end:
        records = records[: bisect.bisect_left(records, wanted.end, key=lambda record: record.offset)]
    if records:
        yield from table_for_spark(records, headers=options.include_headers).to_batches()
