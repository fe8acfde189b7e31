"""A job that one properties file describes: master, application, brokers, topic, view, and the SQL text to run.

    spark-submit --properties-file orders.properties examples/spark_sql/from_properties.py
    python examples/spark_sql/from_properties.py orders.properties

Each new row of the query's result is written to the console. Names begin with ``spark.``: spark-submit ignores others.
"""
from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from pyclient.integration.spark import register
from pyclient.integration.spark.java_home import prepare_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OURS: Final = "spark.job."
"""What this job is about: servers, topic, view, sql; ``trigger=once`` ends it with what the topic holds."""


def properties(text: str) -> dict[str, str]:
    """Lines ``name=value``, ``name: value`` or ``name value``, as spark-submit reads them; ``#`` begins a comment."""
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    pairs = [re.split(r"\s*[=:\s]\s*", line, maxsplit=1) for line in lines if line and not line.startswith("#")]
    return {pair[0]: pair[1] for pair in pairs}


def start(spark: SparkSession) -> StreamingQuery:
    """The query that the session's settings describe."""
    def setting(name: str) -> str:
        return str(spark.conf.get(OURS + name))

    records = (
        spark.readStream.format("pyclient")
        .option("kafka.bootstrap.servers", setting("servers"))
        .option("subscribe", setting("topic"))
        .option("startingOffsets", "earliest")
        .load()
    )
    records.selectExpr("CAST(key AS STRING)", "CAST(value AS STRING)", "timestamp").createOrReplaceTempView(setting("view"))
    writer = spark.sql(setting("sql")).writeStream.outputMode("append").format("console").option("truncate", False)
    once = spark.conf.get(OURS + "trigger", "") == "once"
    return writer.trigger(availableNow=True).start() if once else writer.start()


def main(file: str | None = None) -> None:
    """Run the job; without *file* its settings come from spark-submit."""
    given: dict[str, bool | float | int | str | None] = {**properties(Path(file).read_text())} if file is not None else {}
    prepare_environment(local=str(given.get("spark.master")).startswith("local"))
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.config(map=given).getOrCreate()
    register(spark)
    start(spark).awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
