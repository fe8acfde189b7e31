"""The readers of ``format("pyclient")``: which offset ranges make a batch. The records are read by `reading`.

A stream's methods run in one process of the driver for the whole query, except ``read``: that runs in tasks on a
pickled copy, so open clients are not pickled. Spark has several processes for one query, and each imports this module:
so clients are imported where they are opened.
"""
from __future__ import annotations

import logging
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

from pyclient.errors import ConfigurationError, OffsetOutOfRangeError, UnknownTopicOrPartitionError
from pyclient.integration.spark.columns import spark_schema
from pyclient.integration.spark.offsets import DATA_LOSS, Json, OffsetRange, Offsets, divided, from_json, limited, records_between, to_json
from pyclient.integration.spark.options import Bound, SourceOptions
from pyclient.records import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from pyclient.integration.spark.topics import Topics

log = logging.getLogger(__name__)


class BatchReader(DataSourceReader):
    """Reads once, from the starting to the ending offsets as they are when the query is planned."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options.for_batch()
        _check_schema(schema, options)

    def partitions(self) -> list[InputPartition]:
        """One task per partition, or more as minPartitions and maxRecordsPerPartition ask."""
        from pyclient.integration.spark.topics import Topics

        options = self._options
        assert options.starting is not None
        assert options.ending is not None
        with Topics(options) as topics:
            partitions = topics.partitions()
            begin = topics.at(options.starting, partitions, side="starting")
            end = topics.at(options.ending, partitions, side="ending")
            _check_order(begin, end, topics.latest(partitions))
            begin = _without_lost(begin, end, topics.earliest(partitions), options)
        return _tasks(begin, end, options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return _read(partition, self._options)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what comes, in micro-batches of fixed offset ranges that Spark's checkpoint remembers."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options.for_stream()
        _check_schema(schema, options)
        self._open: Topics | None = None
        self._target: Offsets | None = None
        self._latest: Offsets | None = None
        self._anchor: Json | None = None
        self._last_batch: float | None = None
        """When the last batch was planned, on the clock that never goes back."""

    def initialOffset(self) -> Json:
        """Where a new query begins. Spark asks again when it repeats the first batch."""
        starting = self._options.starting or Bound(otherwise=0)
        topics = self._topics()
        initial = to_json(topics.at(starting, topics.partitions(), side="starting"))
        if starting.moves or self._options.late_start_is_latest:
            # "latest" changes with time, and Spark's checkpoint holds only the ends of batches. So the first batch is
            # empty: it ends where it begins, and its end is in the checkpoint.
            self._anchor = initial
        return initial

    def getDefaultReadLimit(self) -> ReadLimit:
        """What maxOffsetsPerTrigger asks."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def prepareForTriggerAvailableNow(self) -> None:
        """Fix the offsets at which this run ends."""
        self._target = self._look()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; *start* itself when there is nothing new."""
        if self._anchor is not None:
            anchor, self._anchor = self._anchor, None
            if start == anchor:
                return start
        latest = self._look() if self._target is None else self._target
        begin = self._begin(from_json(start), latest)
        latest = {tp: self._not_before(tp, begin[tp], end) for tp, end in latest.items()}
        if self._target is None and self._waits(begin, latest):
            return start
        self._last_batch = time.monotonic()
        end = limited(begin, latest, limit.max_rows) if isinstance(limit, ReadMaxRows) else latest
        found = to_json(end)
        return start if found == start else found

    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The end of the logs as last seen: Spark shows it in a query's progress."""
        return None if self._latest is None else to_json(self._latest)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of one batch; the same for a batch that is repeated."""
        ends = from_json(end)
        begin = self._begin(from_json(start), ends)
        filled = [tp for tp in ends if begin[tp] < ends[tp]]
        earliest = self._existing_earliest(filled)
        begin = _without_lost({tp: begin[tp] for tp in earliest}, ends, earliest, self._options)
        return _tasks(begin, ends, self._options)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The records of one task."""
        return _read(partition, self._options)

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing to do: the position is kept in Spark's checkpoint."""

    def stop(self) -> None:
        """Close the driver's clients."""
        topics, self._open = self._open, None
        if topics is not None:
            topics.close()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_open": None}

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _topics(self) -> Topics:
        if self._open is None:
            from pyclient.integration.spark.topics import Topics

            self._open = Topics(self._options)
        return self._open

    def _waits(self, begin: Offsets, latest: Offsets) -> bool:
        """Whether the next batch waits for more records. The first one never does."""
        least, last = self._options.min_offsets, self._last_batch
        return least is not None and last is not None and time.monotonic() - last < self._options.max_delay and records_between(begin, latest) < least

    def _look(self) -> Offsets:
        topics = self._topics()
        self._latest = topics.latest(topics.partitions())
        return self._latest

    def _begin(self, start: Offsets, ends: Mapping[TopicPartition, int]) -> Offsets:
        """Where a batch begins in each of *ends*: partitions found later begin at their earliest offset."""
        self._check_none_vanished(start, ends)
        new = [tp for tp in ends if tp not in start]
        return {**{tp: start[tp] for tp in ends if tp in start}, **self._topics().earliest(new)}

    def _check_none_vanished(self, start: Offsets, ends: Mapping[TopicPartition, int]) -> None:
        gone = sorted(set(start) - set(ends))
        if gone:
            self._lost(UnknownTopicOrPartitionError, f"{', '.join(map(str, gone))} were read before and do not exist any more")

    def _not_before(self, tp: TopicPartition, begin: int, end: int) -> int:
        """*end*, unless the log ends before *begin*: then the topic was created again, and is read from its
        beginning."""
        if end >= begin:
            return end
        self._lost(OffsetOutOfRangeError, f"{tp} was read up to offset {begin} and now ends at {end}: the topic seems to have been created again")
        return self._topics().earliest([tp])[tp]

    def _existing_earliest(self, partitions: list[TopicPartition]) -> Offsets:
        """Where the logs begin, of those that still exist: a batch may be repeated long after it was planned."""
        exist = set(self._topics().partitions()) if partitions else set()
        gone = [tp for tp in partitions if tp not in exist]
        if gone:
            self._lost(UnknownTopicOrPartitionError, f"{', '.join(map(str, gone))} are part of this batch and do not exist any more")
        return self._topics().earliest(tp for tp in partitions if tp in exist)

    def _lost(self, kind: type[OffsetOutOfRangeError | UnknownTopicOrPartitionError], what: str) -> None:
        if self._options.fail_on_data_loss:
            raise kind(f"{what}. If that is so on purpose, set failOnDataLoss=false.")
        log.warning("%s: going on without, for failOnDataLoss=false", what)


def _check_schema(schema: StructType, options: SourceOptions) -> None:
    ours = spark_schema(headers=options.include_headers)
    if schema != ours:
        raise ConfigurationError(f"the columns are {ours.simpleString()}: leave .schema(...) out, and select or cast them after load()")


def _check_order(begin: Offsets, end: Offsets, latest: Offsets) -> None:
    """A batch whose offsets cannot be read is refused before any task waits for them."""
    for tp in begin:
        if end[tp] > latest[tp]:
            raise ConfigurationError(f"the ending offset {end[tp]} of {tp} is behind the end of its log, {latest[tp]}",
                                     option="endingOffsets")
        if begin[tp] > end[tp]:
            raise ConfigurationError(f"the starting offset {begin[tp]} of {tp} is behind the ending one, {end[tp]}",
                                     option="startingOffsets")


def _without_lost(begin: Offsets, end: Mapping[TopicPartition, int], earliest: Offsets, options: SourceOptions) -> Offsets:
    """*begin*, moved to where the logs begin now; what lay between is lost."""
    lost = {tp: offset for tp, offset in begin.items() if offset < min(earliest[tp], end[tp])}
    if not lost:
        return begin
    listed = ", ".join(f"{tp} {offset} to {min(earliest[tp], end[tp]) - 1}" for tp, offset in sorted(lost.items()))
    if options.fail_on_data_loss:
        raise OffsetOutOfRangeError(f"these offsets are not in the log any more: {listed}. {DATA_LOSS}")
    log.warning("these offsets are not in the log any more: %s; going on without, for failOnDataLoss=false", listed)
    return {tp: max(offset, earliest[tp]) for tp, offset in begin.items()}


def _tasks(begin: Offsets, end: Mapping[TopicPartition, int], options: SourceOptions) -> list[InputPartition]:
    ranges = [OffsetRange(tp, begin[tp], end[tp]) for tp in sorted(begin) if begin[tp] < end[tp]]
    parts = divided(ranges, at_least=options.min_partitions, most_records=options.max_records)
    return [InputPartition(part) for part in parts]


def _read(partition: InputPartition, options: SourceOptions) -> Iterator[pa.RecordBatch]:
    if partition.value is None:  # Spark gives an empty partition to a batch that planned none
        return iter(())
    from pyclient.integration.spark.reading import read_range

    return read_range(partition.value, options)
