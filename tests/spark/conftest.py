"""One Spark for all tests of the session, and short ways to read and write with it."""
from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from pyclient.integration.spark import register
from pyclient.integration.spark.java_home import prepare_environment
from pyclient.testing import LocalCluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


TOKENS = "tokens_of_a_test"
"""The module that Spark's options may name."""


@pytest.fixture(scope="session")
def modules(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where tests put modules that every process of Spark can import, as if they were installed."""
    return tmp_path_factory.mktemp("modules")


@pytest.fixture(scope="session")
def spark(modules: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Two cores, and up to three attempts of a task: the retries that users have are part of what is tested."""
    prepare_environment(local=True)
    from pyspark.sql import SparkSession

    scratch = tmp_path_factory.mktemp("spark")
    settings: dict[str, bool | float | int | str | None] = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",  # starts fast, which is most of a test
        "spark.local.dir": str(scratch),
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.warehouse.dir": str(scratch / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    with pytest.MonkeyPatch.context() as patch:
        path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
        patch.setenv("PYTHONPATH", path)
        patch.setenv("PYCLIENT_ALLOW_IMPORTS", TOKENS)
        session = SparkSession.builder.master("local[2,3]").appName("tests").config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("OFF")  # what fails is raised in Python; many tests make things fail
    register(session)
    yield session
    session.stop()


Load = Callable[..., "DataFrame"]


@pytest.fixture
def batch(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> Load:
    """``batch(endingOffsets=...)``: the test's topic as a table."""
    def load(**options: str) -> DataFrame:
        reader = spark.read.format("pyclient").option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
        return reader.options(**({"subscribe": topic} | options)).load()

    return load


@pytest.fixture
def stream(spark: SparkSession, kafka_cluster: LocalCluster, topic: str) -> Load:
    """``stream(maxOffsetsPerTrigger="10")``: the test's topic as a stream, from its beginning."""
    def load(**options: str) -> DataFrame:
        reader = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", kafka_cluster.bootstrap_servers)
        return reader.options(**({"subscribe": topic, "startingOffsets": "earliest"} | options)).load()

    return load


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A place for a query's checkpoint."""
    return (tmp_path / "checkpoint").as_uri()
