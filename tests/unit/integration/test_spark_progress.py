"""A query's lag from Spark's reports, stored for a group on the fake cluster, and what logs say of tasks; without a
Spark."""
from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator
from typing import Any, NamedTuple

import pytest
from pyspark import TaskContext
from pyspark.sql.streaming.listener import StreamingQueryProgress

from pyclient import Admin, TopicPartition
from pyclient.errors import ConfigurationError, GroupIdNotFoundError
from pyclient.integration.spark import LagListener, QueryLag
from pyclient.integration.spark.context import BATCH_ID, QUERY_ID, task_name
from pyclient.testing import FakeCluster

QUERY, RUN = "5f0c8a0e-0000-0000-0000-000000000001", "5f0c8a0e-0000-0000-0000-000000000002"
FIRST, SECOND = TopicPartition("orders", 0), TopicPartition("orders", 1)


class Event(NamedTuple):
    """What Spark calls a listener with."""

    progress: StreamingQueryProgress


def event(*sources: tuple[Any, Any], name: str | None = "orders-to-out", **more: Any) -> Any:
    """The report of batch 3, with the end and the latest offset of each source."""
    rates = {"inputRowsPerSecond": 1.0, "processedRowsPerSecond": 1.0}
    listed = [{"description": "python", "startOffset": "null", "endOffset": end, "latestOffset": latest, "numInputRows": 7, **rates} for end, latest in sources]
    given = {"id": QUERY, "runId": RUN, "name": name, "timestamp": "2026-01-01T00:00:00.000Z", "batchId": 3, "batchDuration": 5, "numInputRows": 7, **rates,
             "stateOperators": [], "sources": listed, "sink": {"description": "sink", "numOutputRows": 7}}
    return Event(StreamingQueryProgress.fromJson({**given, **more}))


def lag_of(found: Any) -> QueryLag:
    return QueryLag.of(found.progress)


ORDERS = ({"orders": {"0": 4, "1": 9}}, {"orders": {"0": 10, "1": 9}})


def test_lag_is_what_the_log_had_and_no_batch_has_read() -> None:
    lag = lag_of(event(ORDERS, ({"other": {"0": 1}}, {"other": {"0": 2}})))
    assert (lag.query_id, lag.run_id, lag.name, lag.batch_id, lag.rows) == (QUERY, RUN, "orders-to-out", 3, 7)
    assert lag.positions == {FIRST: 4, SECOND: 9, TopicPartition("other", 0): 1}
    assert lag.lags == {FIRST: 6, SECOND: 0, TopicPartition("other", 0): 1}
    assert lag.total == 7


@pytest.mark.parametrize("source", [("5", "5"), ({"logOffset": 0}, "null"), ("None", "None"), ("null", "null")])
def test_sources_that_are_no_topics_have_no_lag(source: tuple[Any, Any]) -> None:
    lag = lag_of(event(source, ORDERS))
    assert lag == lag_of(event(ORDERS))


def test_a_topic_created_again_has_no_lag_below_nothing() -> None:
    assert lag_of(event(({"orders": {"0": 9}}, {"orders": {"0": 2}}))).total == 0


def test_what_df_observe_has_counted_is_handed_on() -> None:
    assert lag_of(event(ORDERS, observedMetrics={"kafka": {"records": 7, "bytes": 70}})).observed == {"kafka": {"records": 7, "bytes": 70}}


def test_a_batch_is_logged_with_its_query_and_number_and_the_lag_of_each_partition(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    LagListener().onQueryProgress(event(ORDERS))
    assert f"query {QUERY} (orders-to-out), batch 3: 7 rows read, 6 records behind (orders-0: 6)" in caplog.messages


def test_a_users_function_that_fails_is_logged_and_later_batches_are_handed_on(caplog: pytest.LogCaptureFixture) -> None:
    seen: list[QueryLag] = []

    def take(lag: QueryLag) -> None:
        seen.append(lag)
        raise RuntimeError("no pager")

    listener = LagListener(take)
    listener.onQueryProgress(event(ORDERS))
    listener.onQueryProgress(event(ORDERS))
    assert len(seen) == 2
    assert "no pager" in caplog.text


# ---- offsets of a group ---------------------------------------------------------------------------------------------


@pytest.fixture
def listener(fake_cluster: FakeCluster) -> Iterator[LagListener]:
    fake_cluster.create_topic("orders", 2)
    made = LagListener(groups={"orders-to-out": "spark-orders"}, bootstrap_servers=fake_cluster.bootstrap_servers)
    yield made
    made.close()


def stored(fake: FakeCluster) -> dict[TopicPartition, int]:
    with Admin(bootstrap_servers=fake.bootstrap_servers) as admin, contextlib.suppress(GroupIdNotFoundError):
        return {tp: found.committed.offset for tp, found in admin.group_offsets("spark-orders").items() if found.committed is not None}
    return {}


def test_positions_are_stored_for_the_group_of_the_query(fake_cluster: FakeCluster, listener: LagListener) -> None:
    listener.onQueryProgress(event(ORDERS))
    listener.onQueryProgress(event(({"orders": {"0": 10, "1": 9}}, {"orders": {"0": 10, "1": 9}})))
    assert stored(fake_cluster) == {FIRST: 10, SECOND: 9}


@pytest.mark.parametrize("name", [None, "another"])
def test_other_queries_store_nothing(fake_cluster: FakeCluster, listener: LagListener, name: str | None) -> None:
    listener.onQueryProgress(event(ORDERS, name=name))
    assert stored(fake_cluster) == {}


def test_positions_that_cannot_be_stored_are_a_warning(listener: LagListener, caplog: pytest.LogCaptureFixture) -> None:
    listener.onQueryProgress(event(({"missing": {"0": 4}}, {"missing": {"0": 4}})))
    assert f"query {QUERY}, batch 3: its positions were not stored for the group spark-orders" in caplog.text


def test_groups_without_a_cluster_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_servers"):
        LagListener(groups={"a": "b"})


# ---- names of tasks -------------------------------------------------------------------------------------------------


@pytest.fixture
def task(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The context of a task, which ends with the test: where one is set, Spark refuses to start."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)
    context: Any = TaskContext()  # sets itself
    context._partitionId, context._attemptNumber, context._localProperties = 2, 1, {}
    return context


def test_a_tasks_log_names_query_batch_and_partition(task: Any) -> None:
    task._localProperties.update({QUERY_ID: QUERY, BATCH_ID: "3"})
    assert task_name() == f"query {QUERY}, batch 3, partition 2, attempt 1"


@pytest.mark.usefixtures("task")
def test_a_task_of_a_batch_query_is_named_by_its_partition() -> None:
    assert task_name() == "partition 2, attempt 1"
