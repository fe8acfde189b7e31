"""What Spark itself takes for a Python source: constant Arrow batches with the source's columns, and no broker.

No source in Python can be faster. Lives in a module, since Spark's workers import it.
"""
from __future__ import annotations

import functools
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from pyclient.integration.spark.columns import arrow_schema, spark_schema

if TYPE_CHECKING:
    import pyarrow as pa

MANY: Final = 36_000
"""Rows of a batch: about as many as a fetch of our source brings."""
PARTITIONS: Final = 4


class Floor(DataSource):
    """``format("floor")``: so many *records*, in a stream *perBatch* of them at a time."""

    @classmethod
    def name(cls) -> str:
        return "floor"

    def schema(self) -> StructType:
        return spark_schema(headers=False)

    def reader(self, schema: StructType) -> DataSourceReader:
        return FloorReader(int(self.options["records"]))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        return FloorStream(int(self.options["records"]), int(self.options["perBatch"]))


class FloorReader(DataSourceReader):
    def __init__(self, records: int) -> None:
        self._records = records

    def partitions(self) -> list[InputPartition]:
        return divided(self._records)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return constant(partition.value)


class FloorStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, records: int, per_batch: int) -> None:
        self._records = records
        self._per_batch = per_batch

    def initialOffset(self) -> dict[str, Any]:
        return {"row": 0}

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._per_batch) if self._per_batch else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing comes later."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else self._records
        return {"row": min(start["row"] + most, self._records)}

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return divided(end["row"] - start["row"])

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return constant(partition.value)


def divided(rows: int) -> list[InputPartition]:
    """As many tasks as the benchmark's topic has partitions."""
    return [InputPartition(rows // PARTITIONS + (number < rows % PARTITIONS)) for number in range(PARTITIONS)]


def constant(rows: int | None) -> Iterator[pa.RecordBatch]:
    whole = one_batch()
    for start in range(0, rows or 0, MANY):
        yield whole.slice(0, min(MANY, (rows or 0) - start))


@functools.cache
def one_batch() -> pa.RecordBatch:
    """Keys and values as the benchmark's topic has them."""
    import pyarrow as pa

    schema = arrow_schema(headers=False)
    columns: dict[str, list[Any]] = {"key": [b"%d" % row for row in range(MANY)], "value": [b"%100d" % row for row in range(MANY)], "topic": ["floor"] * MANY,
               "partition": [0] * MANY, "offset": list(range(MANY)), "timestamp": [0] * MANY, "timestampType": [0] * MANY}
    return pa.RecordBatch.from_pydict(columns, schema=schema)
