"""What concerns brokers in containers: faults of the network, the image, and who cleans up after whom."""
from __future__ import annotations

import contextlib
import json
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import docker
import docker.errors
import pytest

from pyclient.testing import BrokerStartError, ContainersUnavailableError, LocalCluster
from pyclient.testing import containers as containers_module
from pyclient.testing import image as image_module
from pyclient.testing.containers import LABEL, OWNER_LABEL
from pyclient.testing.owners import Owner
from pyclient.testing.ports import reserve_ports
from pyclient.testing.probe import metadata, poll, produce
from tests.kafka import make_topic
from tests.waiting import eventually

TOOLS = "org.apache.kafka.tools"

PROGRAM = """
import json, sys
from pyclient.testing import LocalCluster
with LocalCluster(mode="container") as cluster:
    print(json.dumps(cluster._backend._owner.name), flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def engine() -> Iterator[Any]:
    client = docker.from_env()
    yield client
    client.close()


def owned_by(engine: Any, owner: str) -> list[Any]:
    return containers_module.labelled(engine, f"{OWNER_LABEL}={owner}")


def owner_of(cluster: LocalCluster) -> str:
    return str(cluster._backend._owner.name)  # type: ignore[union-attr]  # the owner itself is meant


@contextlib.contextmanager
def running_elsewhere() -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A program with a cluster, in a process of its own, and its owner's name."""
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        try:
            yield program, json.loads(program.stdout.readline())
        finally:
            program.kill()


def leader_of(cluster: LocalCluster, topic: str, without: int) -> int:
    """The leader of partition 0, as a broker other than *without* reports; -1 for *without* itself, for none, and while
    the broker does not know of the topic.
    """
    address = next((node.host, node.port) for node in cluster.nodes if node.id != without)
    leaders = [int(part.leader_id) for part in metadata(address, (topic,)).topics[0].partitions]
    return -1 if leaders in ([], [without]) else leaders[0]


def append_through(survivors: dict[int, tuple[str, int]], topic: str) -> None:
    """Append a record; brokers learn of a new leader, even themselves, at different times."""
    poll(lambda limit_s: produce(survivors, topic, limit_s), time.monotonic() + 60, alive=lambda: None)


@pytest.fixture(scope="module")
def three() -> Iterator[LocalCluster]:
    """Three brokers, all of them well again after each test."""
    with LocalCluster(3, mode="container", startup_timeout=240) as cluster:  # they elect late where others use the cores
        yield cluster


@pytest.mark.parametrize("fault", ["kill", "pause", "disconnect", "stop"])
def test_leadership_moves_away_from_a_broker_that_is_lost_and_it_catches_up_when_it_is_back(
    three: LocalCluster, topic: str, fault: str
) -> None:
    make_topic(three, topic, replicas=3)
    three.wait_in_sync()
    addresses = {node.id: (node.host, node.port) for node in three.nodes}
    eventually(lambda: leader_of(three, topic, without=0) > 0, limit_s=60)
    lost = leader_of(three, topic, without=0)
    lose, regain = {
        "kill": (three.kill, three.start), "stop": (three.stop, three.start),
        "pause": (three.pause, three.resume), "disconnect": (three.disconnect, three.connect),
    }[fault]
    lose(lost)
    try:
        eventually(lambda: leader_of(three, topic, without=lost) > 0, limit_s=60)
        append_through({node_id: address for node_id, address in addresses.items() if node_id != lost}, topic)
    finally:
        regain(lost)  # or the next test would meet two brokers
    three.wait_in_sync()


def test_one_broker_is_ready_and_leaves_no_container_network_or_folder(engine: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    with LocalCluster(mode="container") as cluster:
        owner = owner_of(cluster)
        assert cluster.kind == "container"
        assert cluster.data_dir().is_dir()
        assert len(owned_by(engine, owner)) == 2
    assert not owned_by(engine, owner)
    assert not list(tmp_path.glob("pyclient-containers-*"))
    assert not list(tmp_path.glob("pyclient-owners-*/*"))


def test_brokers_listen_on_the_loopback_interface_only(engine: Any) -> None:
    with LocalCluster(mode="container") as cluster:
        [container] = [thing for thing in owned_by(engine, owner_of(cluster)) if hasattr(thing, "kill")]
        container.reload()
        published = [binding for bindings in container.ports.values() for binding in bindings or ()]
        assert [(binding["HostIp"], int(binding["HostPort"])) for binding in published] == [("127.0.0.1", cluster.nodes[0].port)]


@pytest.mark.parametrize("ended_by", [signal.SIGKILL, signal.SIGTERM, signal.SIGINT])
def test_nothing_is_left_when_the_program_is_ended_by_a_signal(engine: Any, ended_by: signal.Signals) -> None:
    with running_elsewhere() as (program, owner):
        assert owned_by(engine, owner)
        program.send_signal(ended_by)
        eventually(lambda: not owned_by(engine, owner), limit_s=60)


def test_leftovers_of_the_dead_are_removed_at_the_next_start_and_those_of_the_living_stay(engine: Any) -> None:
    owner = Owner()
    living = engine.networks.create("pyclient-test-living", labels={LABEL: "test", OWNER_LABEL: owner.name})
    dead_owner = subprocess.run(
        [sys.executable, "-c", "from pyclient.testing.owners import Owner; print(Owner().name)"],
        capture_output=True, text=True, check=True).stdout.strip()
    dead = engine.networks.create("pyclient-test-dead", labels={LABEL: "test", OWNER_LABEL: dead_owner})
    try:
        containers_module.remove_leftovers(engine)
        names = {network.name for network in engine.networks.list()}
        assert "pyclient-test-living" in names
        assert "pyclient-test-dead" not in names
    finally:
        owner.end()
        living.remove()
        with contextlib.suppress(docker.errors.NotFound):
            dead.remove()


def test_a_taken_port_is_replaced(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as occupant:
        taken = occupant.getsockname()[1]
        draws = iter([(taken,)])
        real = reserve_ports
        monkeypatch.setattr(containers_module, "reserve_ports", lambda count: next(draws, None) or real(count))
        with LocalCluster(mode="container") as cluster:
            assert cluster.nodes[0].port != taken


def test_a_refused_setting_fails_the_start_with_the_brokers_own_words_and_leaves_nothing(
        engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    owners: list[Owner] = []

    def owner() -> Owner:
        owners.append(Owner())
        return owners[-1]

    monkeypatch.setattr(containers_module, "Owner", owner)
    with pytest.raises(BrokerStartError, match=r"num\.io\.threads") as failed:
        LocalCluster(mode="container", config={"num.io.threads": -3}).open()
    assert "num.io.threads" in failed.value.log_tail
    assert len(owners) == 1
    assert not owned_by(engine, owners[0].name)


def test_settings_with_dashes_and_underscores_reach_the_broker() -> None:
    config = {"listener.name.client.max.connections": 77, "num_partitions": 5, "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512"}
    with LocalCluster(mode="container", config=config) as cluster:
        described = cluster.run_tool("kafka.admin.ConfigCommand", "--bootstrap-server", cluster.bootstrap_servers, "--describe",
                                     "--entity-type", "brokers", "--entity-name", 1, "--all")
        assert "num.partitions=5 " in described.stdout
        assert "sasl.mechanism.inter.broker.protocol=SCRAM-SHA-512 " in described.stdout


def test_an_image_that_the_engine_lacks_and_cannot_pull_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_KAFKA_IMAGE", "localhost:1/no/such-image:1")
    with pytest.raises(ContainersUnavailableError, match=r"localhost:1/no/such-image:1 cannot be pulled"):
        LocalCluster(mode="container").open()


def test_an_image_is_built_here_when_none_is_there_and_none_can_be_pulled(engine: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(_client: Any, name: str) -> None:
        raise ContainersUnavailableError(f"the image {name} cannot be pulled: no network")

    monkeypatch.delenv("PYCLIENT_KAFKA_IMAGE", raising=False)
    monkeypatch.setattr(image_module, "_pull", unreachable)
    monkeypatch.setattr(image_module, "OWN_NAME", "pyclient-kafka-test-build")
    present = image_module._is_present
    monkeypatch.setattr(image_module, "_is_present", lambda client, name: "apache/" not in name and present(client, name))
    name = image_module.broker_image(engine, "4.3.1")
    try:
        assert name.startswith("pyclient-kafka-test-build:4.3.1-")
        monkeypatch.setenv("PYCLIENT_KAFKA_IMAGE", name)
        with LocalCluster(mode="container") as cluster:
            assert name in cluster.description
    finally:
        engine.images.remove(name, force=True)


def test_an_engine_that_does_not_answer_is_an_error_with_the_way_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(ContainersUnavailableError, match="PYCLIENT_BROKERS=embedded"):
        LocalCluster(mode="container").open()


def test_kafka_3_9_runs_too() -> None:
    with LocalCluster(mode="container", version="3.9.1") as cluster:
        features = cluster.run_tool(f"{TOOLS}.FeatureCommand", "--bootstrap-server", cluster.bootstrap_servers, "describe")
        assert "3.9-IV0" in features.stdout, features
