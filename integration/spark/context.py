"""Where code runs, for logs: the query, batch and partition of a task, and the query of a batch on the driver."""
from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUERY_ID: Final = "sql.streaming.queryId"
RUN_ID: Final = "spark.jobGroup.id"
BATCH_ID: Final = "streaming.sql.batchId"
"""Local properties of Spark while it runs a batch."""


def task_name() -> str:
    """``query 7c1f…, batch 3, partition 2, attempt 0``; a batch query's task has no query and batch."""
    from pyspark import TaskContext

    task = TaskContext.get()
    if task is None:
        return "no task"
    query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
    streaming = "" if query is None else f"query {query}, batch {batch}, "
    return f"{streaming}partition {task.partitionId()}, attempt {task.attemptNumber()}"


def in_task() -> bool:
    """Whether this is a task, and so a worker process of Spark's."""
    from pyspark import TaskContext

    return TaskContext.get() is not None


def property_of(frame: DataFrame, name: str) -> str | None:
    """A local property of the job that calls foreachBatch; None in Spark Connect, which does not say."""
    session: Any = frame.sparkSession
    context = getattr(session, "_sc", None)
    found: str | None = None if context is None else context.getLocalProperty(name)
    return found
