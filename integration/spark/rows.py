"""Rows of a DataFrame as records: which columns mean what, and one task's rows into its worker's producer.

`check_columns` runs on the driver, before any task; `write_rows` in tasks. Independent of queries and batches.
"""
from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Final

from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, IntegerType, StringType, StructType, TimestampType,
)

from pyclient.errors import ApplicationRecoverableError, AuthenticationError, ConfigurationError, KafkaError, MetadataTimeoutError
from pyclient.integration.spark.context import task_name
from pyclient.integration.spark.options import SinkOptions
from pyclient.integration.spark.producers import shared_producer

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.producer.facade import Producer

log = logging.getLogger(__name__)

_TEXT: Final = (StringType, BinaryType)
COLUMNS: Final[dict[str, tuple[tuple[type[DataType], ...], str]]] = {
    "topic": ((StringType,), "a string"),
    "value": (_TEXT, "a string or binary"),
    "key": (_TEXT, "a string or binary"),
    "partition": ((IntegerType,), "an int"),
    "timestamp": ((TimestampType,), "a timestamp"),
    "headers": ((ArrayType,), "an array<struct<key: string, value: binary>>"),
}
OF_THE_SOURCE: Final = frozenset({"offset", "timestampType"})
"""Columns that reading gives and writing has no use for: a topic can be copied without a select."""


# ---- on the driver --------------------------------------------------------------------------------------------------


def check_columns(schema: StructType, options: SinkOptions) -> None:
    """Whether rows of *schema* can be written.

    Raises:
        ConfigurationError: a column is missing, unknown or of a wrong type.
    """
    names = schema.fieldNames()
    for field in schema.fields:
        if field.name in COLUMNS:
            _check_type(field.name, field.dataType)
        elif field.name not in OF_THE_SOURCE:
            raise _unknown(field.name)
    if "value" not in names:
        raise ConfigurationError(f"there is no column value, only {', '.join(names)}: every record needs one (it may be null)")
    if options.topic is None and "topic" not in names:
        raise ConfigurationError("nothing says which topic to write to: set the option topic, or add a column topic", option="topic")


def used_columns(names: Iterable[str], options: SinkOptions) -> list[str]:
    """The columns that go into records."""
    unused = {*OF_THE_SOURCE, *(() if options.topic is None else ("topic",)), *(() if options.include_headers else ("headers",))}
    return [name for name in names if name not in unused]


def _check_type(name: str, kind: DataType) -> None:
    allowed, words = COLUMNS[name]
    good = isinstance(kind, allowed)
    if good and isinstance(kind, ArrayType):
        pair = kind.elementType
        good = isinstance(pair, StructType) and [(each.name, each.dataType) for each in pair.fields] == [
            ("key", StringType()), ("value", BinaryType())]
    if not good:
        raise ConfigurationError(f"the column {name} is {kind.simpleString()}, but must be {words}: cast it")


def _unknown(name: str) -> ConfigurationError:
    alike = difflib.get_close_matches(name, COLUMNS, n=1)
    hint = f" (did you mean {alike[0]}?)" if alike else ""
    return ConfigurationError(
        f"the column {name} is no part of a record{hint}: select {', '.join(COLUMNS)}, and pack other columns into value, as with "
        "to_json(struct(*))")


# ---- in a task ------------------------------------------------------------------------------------------------------


def write_rows(batches: Iterator[pa.RecordBatch], options: SinkOptions) -> int:
    """Write every row and wait until all are acknowledged; the number of rows. Reads its input to the end.

    Raises:
        DeliveryError: records were not acknowledged.
        KafkaError: a row cannot be written; names its number within the task and its topic.
    """
    with shared_producer(**options.client) as producer:
        written = send_rows(producer, batches, options)
    log.info("%s: %d records written", task_name(), written)
    return written


def send_rows(producer: Producer, batches: Iterable[pa.RecordBatch], options: SinkOptions) -> int:
    """Send every row; the number of rows. Reads its input to the end.

    Raises:
        KafkaError: a row cannot be written; names its number within the task and its topic.
    """
    written = 0
    for batch in batches:
        _send_batch(producer, batch, options, written)
        written += batch.num_rows
    return written


def _send_batch(producer: Producer, batch: pa.RecordBatch, options: SinkOptions, before: int) -> None:
    """Queue the rows of a batch; *before* is the number of rows that the task has sent before it."""
    rows = _with_bytes(batch.select(used_columns(batch.schema.names, options)))
    names = rows.schema.names
    try:
        rejected = producer.send_arrow(options.topic, rows, topic_column="topic" if "topic" in names else None,
                                       partition_column="partition" if "partition" in names else None).rejected()
    except MetadataTimeoutError as error:
        raise _row_error(before, options.topic, error) from error
    for row, cause in rejected.items():  # the first one says enough
        if isinstance(cause, (AuthenticationError, ApplicationRecoverableError)):
            raise cause  # no row is to blame
        raise _row_error(before + row, rows.column("topic")[row].as_py() if "topic" in names else options.topic, cause) from cause


def _row_error(row: int, topic: str | None, error: KafkaError) -> KafkaError:
    cause = "the column topic is null" if topic is None else error.__cause__ or error
    return KafkaError(f"row {row} of this task, for topic {topic!r}, cannot be written: {cause}")


def _with_bytes(rows: pa.RecordBatch) -> pa.RecordBatch:
    """Key and value as bytes, also for serializers. Strings are UTF-8 in Arrow, so nothing is copied."""
    import pyarrow as pa

    for name in {"key", "value"}.intersection(rows.schema.names):
        column = rows.column(name)
        large = pa.types.is_large_string(column.type) or pa.types.is_large_binary(column.type)
        rows = rows.set_column(rows.schema.get_field_index(name), name, column.cast(pa.large_binary() if large else pa.binary()))
    return rows
