"""Several SQL texts on one topic of JSON, each a query of its own: one that fails does not stop the others.

    python -m examples.spark_sql.queries localhost:9092 topic "SELECT a, b FROM events" "SELECT c, d[0] FROM events"
"""
from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, TypeAlias

from pyclient.integration.spark import register
from pyclient.integration.spark.java_home import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

FIELDS: Final = "a STRING, b STRING, c DATE, d ARRAY<DOUBLE>"
"""Of records like ``{"a": "1", "b": "2", "c": "2018-01-08", "d": [23.9, 45]}``."""
VIEW: Final = "events"
Start: TypeAlias = "Callable[[DataFrame, int], StreamingQuery]"
"""Begins to write a query's rows somewhere; also gets its number."""


def declare(spark: SparkSession, servers: str, topic: str) -> None:
    """The topic as the temporary view `VIEW`, with the columns of `FIELDS`."""
    from pyspark.sql import functions as fn

    records = (
        spark.readStream.format("pyclient")
        .option("kafka.bootstrap.servers", servers)
        .option("subscribe", topic)
        .option("startingOffsets", "earliest")
        .load()
    )
    records.select(fn.from_json(fn.col("value").cast("string"), FIELDS).alias("event")).select("event.*").createOrReplaceTempView(VIEW)


def run(spark: SparkSession, texts: Iterable[str], start: Start) -> dict[str, Exception | None]:
    """Run the query of each text until all have ended; each text with its error, or None."""
    from pyspark.errors import AnalysisException, StreamingQueryException

    errors: dict[str, Exception | None] = {}
    queries: dict[str, StreamingQuery] = {}
    for number, text in enumerate(texts):
        try:
            queries[text] = start(spark.sql(text), number)
        except AnalysisException as error:  # no SQL, or of columns that are not there
            errors[text] = error
    while any(query.isActive for query in queries.values()):
        with contextlib.suppress(StreamingQueryException):  # asked of each query below
            spark.streams.awaitAnyTermination()
        spark.streams.resetTerminated()  # else the next call returns at once
    return errors | {text: query.exception() for text, query in queries.items()}


def to_console(rows: DataFrame, number: int) -> StreamingQuery:
    """Print a query's rows."""
    return rows.writeStream.queryName(f"query {number}").format("console").start()


def main(servers: str, topic: str, *texts: str) -> None:
    """Run the texts until all have failed, or Ctrl-C."""
    prepare_environment()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("queries").getOrCreate()
    register(spark)
    declare(spark, servers, topic)
    for text, error in run(spark, texts, to_console).items():
        print(f"{text}: {error or 'ended'}")


if __name__ == "__main__":
    main(*sys.argv[1:])
