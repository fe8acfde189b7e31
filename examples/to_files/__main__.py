"""The program: a file for each topic, day and task every minute, until Ctrl-C."""
from __future__ import annotations

import sys

from examples.to_files import writer
from pyclient.integration.spark import register
from pyclient.integration.spark.java_home import prepare_environment


def main(servers: str, topics: str, folder: str) -> None:
    """Run until Ctrl-C."""
    prepare_environment()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.appName("to files").getOrCreate()
    register(spark)
    writer(spark, servers, topics, folder).trigger(processingTime="1 minute").start().awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
