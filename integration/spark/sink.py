"""Writes DataFrames to Kafka, in the tasks that hold their rows: `KafkaSink` for foreachBatch, and the format's
writers.

The writers deliver at least once: Spark repeats a failed task with all its records.
"""
from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import attrs
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from typing_extensions import Unpack

from pyclient.errors import ConfigurationError
from pyclient.integration.spark.columns import one_row
from pyclient.integration.spark.context import QUERY_ID, property_of
from pyclient.integration.spark.markers import ACCEPT, FAIL
from pyclient.integration.spark.options import SinkOptions
from pyclient.integration.spark.producers import pickled
from pyclient.integration.spark.rows import check_columns, used_columns, write_rows

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame
    from pyspark.sql.types import StructType

    from pyclient.config import ProducerConfig
    from pyclient.option_types import ProducerOptions

log = logging.getLogger(__name__)

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
SLOTS: Final = 8
MOST_SLOTS: Final = 1000
TRANSACTION_TIMEOUT_MS: Final = 900_000
"""As long as a broker allows by default (transaction.max.timeout.ms): a slot's share of a batch is one transaction."""
_NAME: Final = re.compile(r"[A-Za-z0-9._-]{1,200}")
"""The marker topic is named after it."""


class KafkaSink:
    """Writes each micro-batch to Kafka: ``df.writeStream.foreachBatch(KafkaSink("out", bootstrap_servers=...))``.

    Takes the columns ``value`` and, if there, ``key`` (strings or bytes), ``topic``, ``partition``, ``headers`` and
    ``timestamp``; *topic* overrides the column. Any output mode. *config* and *options* are those of
    `pyclient.Producer`.
    Records are written by the tasks that hold them; a batch returns when all are acknowledged.

    *delivery*: ``"at-least-once"``, because Spark repeats a failed task or batch, or ``"exactly-once"`` for readers
    with ``isolation_level=read_committed``. The latter needs *transactional_id_prefix*, a name of the query that no
    other has. Rows are divided among *slots*, each with a transaction of its own, ``prefix-0`` …; *marker_topic*
    (default: the prefix and ``-markers``) holds the last batch of each. *new_checkpoint* is ``"fail"`` or ``"accept"``:
    what to do when markers are another query's or missing.

    Raises:
        ConfigurationError: an option or a column of a batch is wrong, or an option cannot be sent to tasks.
    """

    def __init__(self, topic: str | None = None, config: Mapping[str, object] | None = None, /, *, delivery: str = AT_LEAST_ONCE,
                 transactional_id_prefix: str | None = None, slots: int | None = None, marker_topic: str | None = None, new_checkpoint: str = FAIL,
                 **options: Unpack[ProducerOptions]) -> None:
        from pyclient.config import ProducerConfig  # here: a task gets the sink's options, and its producer checks them

        client: dict[str, Any] = {**(config or {}), **options}
        given = ProducerConfig.parse(config, {**options})
        if not given.bootstrap_servers:
            raise ConfigurationError('bootstrap_servers is missing: KafkaSink("topic", bootstrap_servers="host:9092")',
                                     option="bootstrap_servers")
        pickled(client)
        own = {"transactional_id_prefix": transactional_id_prefix, "slots": slots, "marker_topic": marker_topic}
        _check_delivery(delivery, own, new_checkpoint, given)
        self._options = SinkOptions(topic=topic, client=client)
        self._write: Callable[[DataFrame, int], None] = self._write_at_least_once
        if delivery == EXACTLY_ONCE:
            from pyclient.integration.spark.exactly_once import ExactlyOnce  # here: tasks that write at least once do without
            from pyclient.integration.spark.slots import SlotOptions

            prefix = str(transactional_id_prefix)
            timeout = {} if "transaction_timeout_ms" in given.given else {"transaction_timeout_ms": TRANSACTION_TIMEOUT_MS}
            sink = attrs.evolve(self._options, client={**client, **timeout})
            self._write = ExactlyOnce(SlotOptions(sink=sink, prefix=prefix, marker_topic=marker_topic or f"{prefix}-markers"), slots or SLOTS, new_checkpoint)

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Write one batch; what foreachBatch calls. Waits until every record is acknowledged."""
        check_columns(batch.schema, self._options)
        self._write(batch, batch_id)

    def _write_at_least_once(self, batch: DataFrame, batch_id: int) -> None:
        columns = used_columns(batch.columns, self._options)
        counts = batch.select(*columns).mapInArrow(_Task(self._options), "records bigint").collect()  # one number per task
        log.info("query %s, batch %d: %d records written by %d tasks", property_of(batch, QUERY_ID), batch_id, sum(count.records for count in counts), len(counts))


@attrs.frozen
class _Task:
    """What the tasks of `KafkaSink` run: rows in, their number out."""

    options: SinkOptions

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa

        yield one_row({"records": pa.int64()}, write_rows(batches, self.options))


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


def _check_delivery(delivery: str, own: Mapping[str, object], new_checkpoint: str, client: ProducerConfig) -> None:
    if delivery not in (AT_LEAST_ONCE, EXACTLY_ONCE):
        raise ConfigurationError(f"delivery={delivery!r} is not known: use {AT_LEAST_ONCE!r} or {EXACTLY_ONCE!r}", option="delivery")
    if client.transactional_id is not None:
        raise ConfigurationError(f"transactional_id belongs to one producer, and each task has one: use delivery={EXACTLY_ONCE!r} with transactional_id_prefix",
                                 option="transactional_id")
    if delivery == EXACTLY_ONCE:
        _check_slots(own, new_checkpoint)
        return
    for name, value in {**own, "new_checkpoint": None if new_checkpoint == FAIL else new_checkpoint}.items():
        if value is not None:
            raise ConfigurationError(f"{name} is for delivery={EXACTLY_ONCE!r}, and this sink delivers {AT_LEAST_ONCE}", option=name)


def _check_slots(own: Mapping[str, Any], new_checkpoint: str) -> None:
    prefix, slots = own["transactional_id_prefix"], own["slots"]
    if not isinstance(prefix, str) or not _NAME.fullmatch(prefix):
        raise ConfigurationError(
            f"transactional_id_prefix={prefix!r} is no name for this query: delivery={EXACTLY_ONCE!r} needs one that no other query has and that stays the same "
            "for as long as its checkpoint is used, of at most 200 letters, digits, '.', '_' and '-'", option="transactional_id_prefix")
    if slots is not None and (not isinstance(slots, int) or isinstance(slots, bool) or not 1 <= slots <= MOST_SLOTS):
        raise ConfigurationError(f"slots={slots!r} is not allowed: expected a whole number from 1 to {MOST_SLOTS}", option="slots")
    if new_checkpoint not in (FAIL, ACCEPT):
        raise ConfigurationError(f"new_checkpoint={new_checkpoint!r} is not known: use {FAIL!r} or {ACCEPT!r}", option="new_checkpoint")


def _log_written(messages: Sequence[WriterCommitMessage | None], what: str) -> None:
    log.info("%d records %s", sum(each.records for each in messages if isinstance(each, Written)), what)
