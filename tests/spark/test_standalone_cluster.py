"""The exactly-once sink on a standalone cluster of two workers: processes are killed and frozen at each named step of a
batch, and Java counts what was written.

Takes minutes: `make proof` runs it, or ``pytest -m proof tests/spark``.
"""
from __future__ import annotations

import itertools
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any, NamedTuple

import pyspark
import pytest

from pyclient import Producer
from pyclient.integration.spark.java_home import prepare_environment
from pyclient.integration.spark.worker_python import local_python
from pyclient.testing import LocalCluster
from tests.broker.durability.verifiers import by_java, by_us
from tests.kafka import make_topic
from tests.spark import cluster_job
from tests.waiting import eventually, is_running

ROWS, PER_BATCH = 240, 16
LIMIT_S = 1500
HOSTS = ("127.0.0.1", "127.0.0.2")
SETTINGS = {
    "spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1", "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC", "spark.executor.memory": "512m", "spark.executor.cores": "1",
    "spark.ui.enabled": "false", "spark.ui.showConsoleProgress": "false", "spark.task.maxFailures": "8",
    # A frozen executor is given up after 20 s.
    "spark.executor.heartbeatInterval": "2s", "spark.network.timeout": "20s", "spark.network.timeoutInterval": "2s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "20000",
}
DRIVER_ENDS = [*(f"driver-{step}" for step in cluster_job.DRIVER_STEPS), "task-middle-driver", "task-committed-driver"]
TASK_FAULTS = ["task-first-executor", "task-middle-executor", "task-last-executor", "task-committed-executor", "task-last-freeze", "task-middle-worker",
               "task-committed-worker"]


class Standalone(NamedTuple):
    """A master and two workers of one core, each on a host of its own as far as Spark knows."""

    master: str
    environment: dict[str, str]


@pytest.fixture
def standalone(tmp_path: Path) -> Iterator[Standalone]:
    prepare_environment()
    modules = tmp_path / "modules"
    modules.mkdir()
    shutil.copy(cluster_job.__file__, modules / "cluster_job.py")
    path = os.pathsep.join(filter(None, (str(modules), os.environ.get("PYTHONPATH"))))
    environment = {**os.environ, "PYTHONPATH": path, "PYSPARK_PYTHON": str(local_python()), "SPARK_WORKER_DIR": str(tmp_path / "work"), "SPARK_DAEMON_MEMORY": "256m"}
    with ExitStack() as ends:
        port = free_port()
        start(ends, environment, tmp_path / "master.log", "master.Master", "--host", HOSTS[0], "--port", str(port), "--webui-port", "0")
        for host in HOSTS:
            start(ends, environment, tmp_path / f"{host}.log", "worker.Worker", "--host", host, "--cores", "1", "--memory", "1g", "--webui-port", "0",
                  f"spark://{HOSTS[0]}:{port}")
        eventually(lambda: all("Successfully registered" in (tmp_path / f"{host}.log").read_text() for host in HOSTS), LIMIT_S)
        yield Standalone(f"spark://{HOSTS[0]}:{port}", environment)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOSTS[0], 0))
        port: int = probe.getsockname()[1]
        return port


def start(ends: ExitStack, environment: dict[str, str], log: Path, name: str, *arguments: str) -> None:
    """A process of the cluster, killed with all that it has started."""
    spark_class = Path(pyspark.__file__).parent / "bin" / "spark-class"
    with log.open("wb") as output:
        process = subprocess.Popen([spark_class, f"org.apache.spark.deploy.{name}", *arguments], env=environment, stdout=output, stderr=output, start_new_session=True)

    def end() -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()

    ends.callback(end)


@pytest.mark.proof
@pytest.mark.timeout(3600)
def test_each_row_is_committed_once_whatever_dies_at_whichever_step(standalone: Standalone, kafka_cluster: LocalCluster, topic: str, tmp_path: Path) -> None:
    source, target = make_topic(kafka_cluster, topic, 4), make_topic(kafka_cluster, f"{topic}-out", 3)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        for number in range(ROWS):
            producer.send(topic, b"%d" % number, b"%d" % (number % 23), partition=number % len(source))
    folder = tmp_path / "faults"
    folder.mkdir()
    runs = 0
    for driver_end, fault in itertools.zip_longest(DRIVER_ENDS, TASK_FAULTS):
        for name in filter(None, (driver_end, fault)):
            (folder / name).touch()
        code, log = run(standalone, kafka_cluster, topic, folder, tmp_path, runs)
        assert code == -signal.SIGKILL, f"run {runs} with {driver_end}: {code}\n{log}"
        runs += 1
    code, log = run(standalone, kafka_cluster, topic, folder, tmp_path, runs)
    assert code == 0, log
    assert waiting(folder) == [], "every fault has struck"
    wake(folder)
    expected = list(range(ROWS))
    assert sorted(int(each.value) for each in by_us(kafka_cluster, target)) == expected
    assert sorted(int(each.value) for each in by_java(kafka_cluster, f"{topic}-out", len(target), ROWS)) == expected


def run(standalone: Standalone, kafka: LocalCluster, topic: str, folder: Path, scratch: Path, number: int) -> tuple[int, str]:
    """A driver from its start to its end, with another parallelism and partitioning than the one before."""
    wish: dict[str, Any] = {
        "folder": str(folder), "master": standalone.master, "servers": kafka.bootstrap_servers, "target": f"{topic}-out", "slots": 2 + number % 3,
        "settings": {**SETTINGS, "spark.sql.shuffle.partitions": str(1 + number % 4)},
        "source": {"subscribe": topic, "startingOffsets": "earliest", "maxOffsetsPerTrigger": str(PER_BATCH), "minPartitions": str(1 + number % 7)},
        "checkpoint": (scratch / "checkpoint").as_uri()}
    log = scratch / f"driver-{number}.log"
    with log.open("wb") as output:
        code = subprocess.run([sys.executable, "-m", "cluster_job", json.dumps(wish)], env=standalone.environment, stdout=output, stderr=output, timeout=LIMIT_S,
                              start_new_session=True, check=False, cwd=scratch).returncode
    return code, log.read_text(errors="replace")[-6000:]


def waiting(folder: Path) -> list[str]:
    """Faults that have not struck."""
    return sorted(each.name for each in folder.iterdir() if each.name.startswith(("driver-", "task-")))


def wake(folder: Path) -> None:
    """Let frozen executors go on, and wait until they have ended: what they write now must not count."""
    pids = [int(pid) for each in folder.iterdir() if (found := re.fullmatch(r"frozen-(\d+)-(\d+)", each.name)) for pid in found.groups()]
    assert pids
    for pid in filter(is_running, pids):
        os.kill(pid, signal.SIGCONT)
    eventually(lambda: not any(map(is_running, pids)), LIMIT_S)
