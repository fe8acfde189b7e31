"""Topics as a stream of strings: ``python -m examples.spark_sql.strings localhost:9092 subscribe topic1,topic2``.

``subscribe`` takes topics, ``subscribePattern`` a regular expression of whole names, such as ``topic.*``.
"""
from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyclient.integration.spark import register
from pyclient.integration.spark.java_home import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def strings(spark: SparkSession, servers: str, how: str, topics: str) -> DataFrame:
    """Key and value of every record as text, and where it stands."""
    stream = (
        spark.readStream.format("pyclient")
        .option("kafka.bootstrap.servers", servers)
        .option(how, topics)
        .option("startingOffsets", "earliest")
        .load()
    )
    return stream.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "topic", "partition", "offset")


def main(servers: str, how: str, topics: str) -> None:
    """Print the records until Ctrl-C."""
    prepare_environment()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("strings").getOrCreate()
    register(spark)
    strings(spark, servers, how, topics).writeStream.format("console").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
