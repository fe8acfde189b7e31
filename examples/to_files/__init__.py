"""Topics into Parquet files, each record once: ``python -m examples.to_files localhost:9092 topic folder``."""
from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.readwriter import DataStreamWriter


def writer(spark: SparkSession, servers: str, topics: str, folder: str, **options: str) -> DataStreamWriter:
    """Writes *topics* to ``folder/data/topic=…/day=…``; ``folder/checkpoint`` says how far it is.

    *options* are those of the source, such as ``maxOffsetsPerTrigger``, which limits the size of files.
    """
    records = (
        spark.readStream.format("pyclient")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topics)
        .option("startingOffsets", "earliest")
        .options(**options)
        .load()
    )
    rows = records.selectExpr("topic", "to_date(timestamp) AS day", "partition", "offset", "timestamp", "key", "value")
    return (
        rows.writeStream.format("parquet")
        .partitionBy("topic", "day")
        .option("path", f"{folder}/data")
        .option("checkpointLocation", f"{folder}/checkpoint")
    )
