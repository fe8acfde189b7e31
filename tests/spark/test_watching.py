"""`LagListener` in Spark: the reports of a query that runs, and the offsets of its group."""
from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from pyclient import Admin, TopicPartition
from pyclient.integration.spark import LagListener, QueryLag
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, produce
from tests.spark.conftest import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LIMIT_S = 180


@pytest.fixture
def seen() -> list[QueryLag]:
    return []


@pytest.fixture
def listener(spark: SparkSession, kafka_cluster: LocalCluster, topic: str, seen: list[QueryLag]) -> Iterator[LagListener]:
    """Stores the positions of the query ``copies``."""
    def take(lag: QueryLag) -> None:
        if lag.name == "copies":  # reports of the queries of other tests may come late
            seen.append(lag)

    made = LagListener(take, groups={"copies": f"spark-{topic}"}, bootstrap_servers=kafka_cluster.bootstrap_servers)
    spark.streams.addListener(made)
    yield made
    spark.streams.removeListener(made)
    made.close()


@pytest.mark.usefixtures("listener")
def test_after_each_batch_of_a_query_its_lag_is_reported_and_its_positions_are_stored(
        stream: Load, kafka_cluster: LocalCluster, topic: str, checkpoint: str, seen: list[QueryLag]) -> None:
    from pyspark.sql import functions as fn

    first, second = make_topic(kafka_cluster, topic, 2)
    produce(kafka_cluster, topic, [b"%d" % number for number in range(10)])
    counted = stream(maxOffsetsPerTrigger="6").observe("kafka", fn.count("*").alias("records"), fn.max("offset").alias("last"))
    query = counted.writeStream.format("noop").queryName("copies").option("checkpointLocation", checkpoint).trigger(availableNow=True).start()
    assert query.awaitTermination(LIMIT_S)
    eventually(lambda: len(seen) == 2, LIMIT_S)
    assert [(lag.name, lag.batch_id, lag.rows, lag.positions, lag.lags) for lag in seen] == [
        ("copies", 0, 6, {first: 6, second: 0}, {first: 4, second: 0}), ("copies", 1, 4, {first: 10, second: 0}, {first: 0, second: 0})]
    assert [lag.observed for lag in seen] == [{"kafka": {"records": 6, "last": 5}}, {"kafka": {"records": 4, "last": 9}}]
    assert {lag.query_id for lag in seen} == {str(query.id)}
    assert stored(kafka_cluster, f"spark-{topic}") == {first: 10, second: 0}


def stored(cluster: LocalCluster, group: str) -> dict[TopicPartition, int]:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        return {tp: found.committed.offset for tp, found in admin.group_offsets(group).items() if found.committed is not None}
