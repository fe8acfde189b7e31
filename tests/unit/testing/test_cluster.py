"""The choice of a backend, and errors of misuse; brokers run in tests/broker and tests/containers."""
from __future__ import annotations

from typing import Any

import pytest

from pyclient.testing import LocalCluster, LocalClusterError, NotControllableError
from pyclient.testing import cluster as cluster_module
from pyclient.testing.backend import Wanted, tail
from pyclient.testing.cluster import MODES, Mode
from pyclient.testing.common.errors import BrokerStartError
from pyclient.testing.external import ExternalCluster, parse_addresses

WANTED = Wanted(1, "4.3.1", {}, 60.0)


def chosen(mode: Mode, engine: bool, monkeypatch: pytest.MonkeyPatch, **environment: str) -> str:
    """The kind that is taken, with the three ways of running brokers replaced by their names."""
    monkeypatch.setattr(cluster_module, "_external", lambda wanted, bootstrap: f"external {bootstrap}")
    monkeypatch.setattr(cluster_module, "_containers", lambda wanted: "container")
    monkeypatch.setattr(cluster_module, "_embedded", lambda wanted: "embedded")
    monkeypatch.setattr("pyclient.testing.engine.engine_answers", lambda: engine)
    return str(cluster_module._chosen(mode, WANTED, environment))


def test_a_running_cluster_comes_first(monkeypatch: pytest.MonkeyPatch) -> None:
    found = chosen("auto", True, monkeypatch, PYCLIENT_BOOTSTRAP="host:1", PYCLIENT_BROKERS="container")
    assert found == "external host:1"


@pytest.mark.parametrize(("engine", "kind"), [(True, "container"), (False, "embedded")])
def test_containers_are_taken_when_an_engine_answers(engine: bool, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen("auto", engine, monkeypatch) == kind


@pytest.mark.parametrize("kind", ["container", "embedded"])
@pytest.mark.parametrize("engine", [True, False])
def test_the_environment_decides_between_containers_and_java(kind: str, engine: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen("auto", engine, monkeypatch, PYCLIENT_BROKERS=kind) == kind


@pytest.mark.parametrize("mode", ["embedded", "container"])
def test_a_mode_given_in_code_wins_over_the_environment(mode: Mode, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(mode, True, monkeypatch, PYCLIENT_BOOTSTRAP="host:1", PYCLIENT_BROKERS="container") == mode


def test_an_unknown_kind_in_the_environment_names_the_known_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ValueError, match="'docker' is unknown: embedded or container"):
        chosen("auto", True, monkeypatch, PYCLIENT_BROKERS="docker")


def test_the_error_of_external_without_an_address_names_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYCLIENT_BOOTSTRAP", raising=False)
    with pytest.raises(LocalClusterError, match="PYCLIENT_BOOTSTRAP"):
        LocalCluster(mode="external").open()


@pytest.mark.parametrize("brokers", [0, -1, 10])
def test_a_number_of_brokers_out_of_range_is_refused(brokers: int) -> None:
    with pytest.raises(ValueError, match=f"brokers={brokers} is not between 1 and 9"):
        LocalCluster(brokers)


def test_an_unknown_mode_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ValueError, match=", ".join(MODES)):
        LocalCluster(mode="docker")  # type: ignore[arg-type]  # what a user may write


def test_the_error_of_a_stopped_cluster_names_the_remedy() -> None:
    cluster = LocalCluster()
    assert repr(cluster) == "<LocalCluster: not running>"
    with pytest.raises(LocalClusterError, match="with LocalCluster"):
        _ = cluster.bootstrap_servers
    cluster.close()


def test_a_failed_start_shows_the_end_of_the_log() -> None:
    failed = BrokerStartError("broker 1 ended", tail("\n".join(map(str, range(100))), 3))
    assert str(failed) == "broker 1 ended\n--- end of the broker's log ---\n97\n98\n99"


def test_brokers_of_an_external_cluster_are_not_stopped() -> None:
    cluster = ExternalCluster(WANTED, "host:1")
    for act in (cluster.stop, cluster.kill, cluster.start, cluster.pause, cluster.resume, cluster.disconnect,
                cluster.connect, cluster.logs, cluster.data_dir):
        with pytest.raises(NotControllableError, match="Unset PYCLIENT_BOOTSTRAP"):
            act(1)


@pytest.mark.parametrize(("text", "parsed"), [
    ("a:1", [("a", 1)]), (" a:1 , b:2,", [("a", 1), ("b", 2)]), ("[::1]:9092", [("::1", 9092)]),
])
def test_addresses_are_separated_by_commas(text: str, parsed: list[tuple[str, int]]) -> None:
    assert parse_addresses(text) == parsed


@pytest.mark.parametrize("text", ["", "host", "host:", ":1", "host:port"])
def test_an_address_without_host_or_port_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="host:port"):
        parse_addresses(text)


def test_features_are_flags_of_the_formatter() -> None:
    assert WANTED._replace(features={"transaction.version": 1}).format_flags == ["--feature", "transaction.version=1"]


def test_log_directories_lie_beside_the_first_one() -> None:
    assert [WANTED._replace(log_dirs=count).folders("/data") for count in (1, 3)] == ["/data", "/data,/data-2,/data-3"]
    with pytest.raises(ValueError, match="log_dirs=0"):
        LocalCluster(log_dirs=0)


@pytest.mark.parametrize("wanted", [{"features": {"transaction.version": 1}}, {"log_dirs": 2}])
def test_features_and_log_directories_of_a_running_cluster_are_refused(wanted: dict[str, Any]) -> None:
    with pytest.raises(NotControllableError, match=f"{next(iter(wanted))}= belongs to brokers made here.*host:1"):
        ExternalCluster(WANTED._replace(**wanted), "host:1").open()
