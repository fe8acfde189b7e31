"""Writes DataFrames to Kafka, in the tasks that hold their rows: `KafkaSink` for foreachBatch, and the format's
writers.

Delivery is at least once: Spark repeats a failed task with all its records.
"""
from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from typing_extensions import Unpack

from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError, UnsupportedFeatureError
from pyclient.integration.spark.options import SinkOptions
from pyclient.integration.spark.producers import pickled
from pyclient.integration.spark.rows import check_columns, used_columns, write_rows
from pyclient.option_types import ProducerOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

log = logging.getLogger(__name__)

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"


class KafkaSink:
    """Writes each micro-batch to Kafka: ``df.writeStream.foreachBatch(KafkaSink("out", bootstrap_servers=...))``.

    Takes the columns ``value`` and, if there, ``key`` (strings or bytes), ``topic``, ``partition``, ``headers`` and
    ``timestamp``; *topic* overrides the column. Any output mode. *config* and *options* are those of
    `pyclient.Producer`.
    Records are written by the tasks that hold them; a batch returns when all are acknowledged. At least once: Spark
    repeats a failed task or batch.

    Raises:
        ConfigurationError: an option or a column of a batch is wrong, or an option cannot be sent to tasks.
        UnsupportedFeatureError: ``delivery="exactly-once"``, which this release does not support yet.
    """

    def __init__(self, topic: str | None = None, config: Mapping[str, object] | None = None, /, *, delivery: str = AT_LEAST_ONCE,
                 **options: Unpack[ProducerOptions]) -> None:
        _check_delivery(delivery)
        client: dict[str, Any] = {**(config or {}), **options}
        if not ProducerConfig.parse(config, {**options}).bootstrap_servers:
            raise ConfigurationError('bootstrap_servers is missing: KafkaSink("topic", bootstrap_servers="host:9092")',
                                     option="bootstrap_servers")
        pickled(client)
        self._options = SinkOptions(topic=topic, client=client)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch; what foreachBatch calls. Waits until every record is acknowledged."""
        check_columns(batch.schema, self._options)
        columns = used_columns(batch.columns, self._options)
        counts = batch.select(*columns).mapInArrow(_Task(self._options), "records bigint").collect()  # one number per task
        log.info("batch %d: %d records written by %d tasks", batch_id, sum(count.records for count in counts), len(counts))


@attrs.frozen
class _Task:
    """What the tasks of `KafkaSink` run: rows in, their number out."""

    options: SinkOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield pa.RecordBatch.from_pydict({"records": pa.array([write_rows(batches, self.options)], pa.int64())})


@attrs.define
class Written(WriterCommitMessage):
    """A task's result for the driver."""

    records: int


class BatchWriter(DataSourceArrowWriter):
    """For ``df.write.format("pyclient")``."""

    def __init__(self, options: SinkOptions, schema: StructType, *, overwrite: bool) -> None:
        if overwrite:
            raise ConfigurationError('a topic cannot be overwritten, only appended to: write with .mode("append")')
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # Spark's own base says Row
        """Write the rows of one task; returns when all are acknowledged."""
        return Written(write_rows(iterator, self._options))

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """All tasks ended well. Their records are in the topic already."""
        _log_written(messages, "written")

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        """The job failed; what its tasks have written stays."""
        _log_written(messages, "written by tasks of a job that failed; they stay in the topic")


class StreamWriter(DataSourceStreamArrowWriter):
    """For ``df.writeStream.format("pyclient")``: each batch is appended, in every output mode that Spark allows."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_columns(schema, options)
        self._options = options

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:  # type: ignore[override]  # Spark's own base says Row
        """Write the rows of one task; returns when all are acknowledged."""
        return Written(write_rows(iterator, self._options))

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """All tasks of a batch ended well. Their records are in the topic already."""
        _log_written(messages, f"written by batch {batchId}")

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:
        """A batch failed; what its tasks have written stays, and is written again when the batch is repeated."""
        _log_written(messages, f"written by batch {batchId}, which failed and will be repeated")


def _check_delivery(delivery: str) -> None:
    if delivery == EXACTLY_ONCE:
        raise UnsupportedFeatureError(
            f"delivery={EXACTLY_ONCE!r} needs transactions, which come in a later release. Until then use {AT_LEAST_ONCE!r} and "
            "put an id into each record, so that readers can drop duplicates", option="delivery")
    if delivery != AT_LEAST_ONCE:
        raise ConfigurationError(f"delivery={delivery!r} is not known: use {AT_LEAST_ONCE!r}", option="delivery")


def _log_written(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    log.info("%d records %s", sum(each.records for each in messages if isinstance(each, Written)), what)
