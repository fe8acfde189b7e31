"""The columns of the source, the same as those of Spark's own Kafka source, for Spark and for Arrow.

Rule: both say exactly the same, nullability included, for Spark refuses batches that differ in anything.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql.types import (
    ArrayType, BinaryType, DataType, IntegerType, LongType, StringType, StructField, StructType, TimestampType,
)

from pyclient.errors import SerializationError

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.buffers.records_view import Records

HEADERS: DataType = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def spark_schema(*, headers: bool) -> StructType:
    """The columns as Spark declares them."""
    columns: list[tuple[str, DataType]] = [
        ("key", BinaryType()),
        ("value", BinaryType()),
        ("topic", StringType()),
        ("partition", IntegerType()),
        ("offset", LongType()),
        ("timestamp", TimestampType()),
        ("timestampType", IntegerType()),
    ]
    if headers:
        columns.append(("headers", HEADERS))
    return StructType([StructField(name, kind) for name, kind in columns])


def arrow_schema(*, headers: bool) -> pa.Schema:
    """The same columns as Arrow's."""
    import pyarrow as pa

    columns: list[tuple[str, pa.DataType]] = [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", pa.timestamp("us", tz="UTC")),
        ("timestampType", pa.int32()),
    ]
    if headers:
        pair = pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())])
        columns.append(("headers", pa.list_(pa.field("element", pair))))
    return pa.schema([pa.field(name, kind) for name, kind in columns])


def one_row(columns: Mapping[str, pa.DataType], *values: int) -> pa.RecordBatch:
    """What a task returns to the driver: a row of whole numbers and booleans, little-endian.

    Made of buffers: ``pa.array`` imports pandas, 0.3 s of CPU in each worker.
    """
    import pyarrow as pa

    buffers = [pa.py_buffer(int(value).to_bytes(8, "little", signed=True)) for value in values]
    arrays = [pa.Array.from_buffers(kind, 1, [None, buffer]) for kind, buffer in zip(columns.values(), buffers, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def table_for_spark(records: Records, *, headers: bool) -> pa.Table:
    """*records* in the columns of the source; a record's time in microseconds, as Spark counts.

    Raises:
        SerializationError: a timestamp is beyond what Spark's type can hold.
    """
    import pyarrow as pa

    table = records.to_arrow(headers=headers).rename_columns(_renamed(headers=headers))
    wanted = arrow_schema(headers=headers)
    try:
        return table.select(wanted.names).cast(wanted)
    except pa.ArrowInvalid as error:
        offsets = f"{records[0].offset} to {records[-1].offset}"
        raise SerializationError(
            f"a record between offsets {offsets} has a timestamp that Spark's microseconds cannot hold ({error}): "
            "let the query start after it", topic_partition=records.partitions()[0]) from None


def _renamed(*, headers: bool) -> list[str]:
    """Spark's names for the columns of `Records.to_arrow`, in its order."""
    names = ["topic", "partition", "offset", "timestamp", "timestampType", "key", "value"]
    return [*names, "headers"] if headers else names
