"""A driver on a standalone cluster, and its tasks, which faults strike at named steps. Copied to where executors find
modules, so it imports nothing of the tests.

A fault is a file: ``driver-claimed`` ends the driver there, ``task-middle-freeze`` stops an executor in the middle of
the rows of a slot. It strikes once.
"""
from __future__ import annotations

import json
import os
import signal
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs

from pyclient.integration.spark import KafkaSink, exactly_once, register
from pyclient.integration.spark.markers import Marker
from pyclient.integration.spark.slots import SlotClients, SlotTask

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame

DRIVER_STEPS = ("planned", "half-claimed", "claimed", "collected", "marked", "written")
TASK_STEPS = ("first", "middle", "last", "committed")
TASK_KINDS = ("worker", "executor", "freeze", "driver")


def strikes(folder: Path, name: str) -> bool:
    """Whether the fault is there, and this process is the one that it strikes."""
    try:
        (folder / name).rename(folder / f"struck-{name}")
    except FileNotFoundError:
        return False
    return True


def end_driver(folder: Path) -> None:
    """Kill its processes, JVM and Python, from wherever this is called."""
    os.killpg(int((folder / "driver").read_text()), signal.SIGKILL)


# ---- in tasks -------------------------------------------------------------------------------------------------------


@attrs.frozen
class FaultyTask(SlotTask):
    folder: Path = attrs.field(kw_only=True)

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        self._strike("first")
        results = list(super().__call__(self._rows(batches)))
        self._strike("committed")
        yield from results

    def _rows(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for each in batches:
            for row in range(each.num_rows):  # so that there is a middle
                yield each.slice(row, 1)
                if row == 0:
                    self._strike("middle")
        self._strike("last")

    def _strike(self, step: str) -> None:
        kind = next((kind for kind in TASK_KINDS if strikes(self.folder, f"task-{step}-{kind}")), None)
        if kind == "driver":
            end_driver(self.folder)
        elif kind == "worker":
            os.kill(os.getpid(), signal.SIGKILL)
        elif kind == "executor":
            os.kill(executor(), signal.SIGKILL)
        elif kind == "freeze":
            (self.folder / f"frozen-{executor()}-{os.getpid()}").touch()
            os.kill(executor(), signal.SIGSTOP)
            os.kill(os.getpid(), signal.SIGSTOP)


def executor() -> int:
    """The JVM above the daemon that has forked this process."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1])


# ---- the driver -----------------------------------------------------------------------------------------------------


class Steps:
    """Ends the driver at a step: one of the claim in the first batch of a run, others in its second."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._seen: Counter[str] = Counter()

    def reach(self, step: str) -> None:
        self._seen[step] += 1
        if self._seen[step] >= (1 if "claimed" in step else 2) and strikes(self._folder, f"driver-{step}"):
            end_driver(self._folder)

    def patch(self) -> None:
        """Put the steps into the sink."""
        patched: Any = exactly_once
        sink: Any = exactly_once.ExactlyOnce
        claim, write_missing, commit = patched.claim, sink._write_missing, SlotClients.commit

        def claimed(*arguments: Any, **options: Any) -> int:
            slots: int = claim(*arguments, **options)
            self.reach("claimed")
            return slots

        def committed(clients: SlotClients, slot: int, marker: Marker) -> None:
            commit(clients, slot, marker)
            self.reach("half-claimed")

        def missing_written(*arguments: Any) -> None:
            self.reach("collected")
            write_missing(*arguments)
            self.reach("marked")

        patched.claim, sink._write_missing = claimed, missing_written
        clients: Any = SlotClients
        clients.commit = committed
        patched.SlotTask = lambda *arguments: FaultyTask(*arguments, folder=self._folder)


def main(wish: dict[str, Any]) -> None:
    """Read everything that is there, then end."""
    import cluster_job  # type: ignore[import-not-found] # by this name tasks find it

    folder = Path(wish["folder"])
    (folder / "driver").write_text(str(os.getpgid(0)))
    steps: Steps = cluster_job.Steps(folder)
    steps.patch()
    from pyspark.sql import SparkSession

    spark = SparkSession.builder.master(wish["master"]).config(map=wish["settings"]).getOrCreate()
    register(spark)
    sink = KafkaSink(wish["target"], bootstrap_servers=wish["servers"], delivery="exactly-once", transactional_id_prefix=wish["target"], slots=wish["slots"])

    def write(batch: DataFrame, number: int) -> None:
        steps.reach("planned")
        sink(batch, number)
        steps.reach("written")

    source = spark.readStream.format("pyclient").option("kafka.bootstrap.servers", wish["servers"]).options(**wish["source"]).load()
    rows = source.selectExpr("key", "value")
    rows.writeStream.foreachBatch(write).option("checkpointLocation", wish["checkpoint"]).trigger(availableNow=True).start().awaitTermination()
    spark.stop()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
