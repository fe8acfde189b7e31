"""LocalCluster's promises, on whichever brokers it finds: Java processes or containers."""
from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Callable
from functools import partial

import pytest

from pyclient.testing import BrokerStartError, LocalCluster
# the raw protocol, not the client under test
from pyclient.testing.probe import NotReadyError, metadata, poll, produce
from pyclient.testing.pytest_plugin import ClusterFactory

TOOLS = "org.apache.kafka.tools"


def topics_of(cluster: LocalCluster) -> set[str]:
    return {topic.name for node in cluster.nodes for topic in metadata((node.host, node.port)).topics}


def test_when_the_block_begins_a_java_producer_is_acknowledged_at_once(kafka_cluster: LocalCluster, topic: str) -> None:
    done = kafka_cluster.run_tool(
        f"{TOOLS}.VerifiableProducer", "--bootstrap-server", kafka_cluster.bootstrap_servers, "--topic", topic,
        "--max-messages", 10, "--acks", -1)
    events = [json.loads(line) for line in done.stdout.splitlines()]
    assert done.returncode == 0, done.stderr
    assert sum(event["name"] == "producer_send_success" for event in events) == 10


def test_users_see_no_topic_they_did_not_create(local_cluster: ClusterFactory) -> None:
    assert topics_of(local_cluster()) == set()


def test_the_fixture_shares_one_cluster(kafka_cluster: LocalCluster, request: pytest.FixtureRequest) -> None:
    assert request.getfixturevalue("_kafka_clusters").get(1, {}) is kafka_cluster
    assert kafka_cluster.nodes[0].id == 1


@pytest.mark.kafka(num_partitions=4)
def test_the_marker_gives_a_cluster_with_its_settings(kafka_cluster: LocalCluster, topic: str) -> None:
    server = ("--bootstrap-server", kafka_cluster.bootstrap_servers)
    kafka_cluster.run_tool(f"{TOOLS}.TopicCommand", *server, "--create", "--topic", topic)
    described = kafka_cluster.run_tool(f"{TOOLS}.TopicCommand", *server, "--describe", "--topic", topic)
    assert "PartitionCount: 4" in described.stdout, described


def test_what_a_broker_wrote_is_in_its_data_folder(kafka_cluster: LocalCluster, topic: str) -> None:
    kafka_cluster.run_tool(
        f"{TOOLS}.VerifiableProducer", "--bootstrap-server", kafka_cluster.bootstrap_servers, "--topic", topic,
        "--max-messages", 3)
    segment = kafka_cluster.data_dir() / f"{topic}-0" / "00000000000000000000.log"
    dumped = kafka_cluster.run_tool(f"{TOOLS}.DumpLogSegments", "--deep-iteration", "--files", segment)
    assert dumped.stdout.count("isvalid: true") >= 1, dumped


def test_a_tool_that_takes_too_long_is_ended(kafka_cluster: LocalCluster, topic: str) -> None:
    with pytest.raises(subprocess.TimeoutExpired):
        kafka_cluster.run_tool(
            f"{TOOLS}.VerifiableProducer", "--bootstrap-server", kafka_cluster.bootstrap_servers, "--topic", topic,
            "--throughput", 1, timeout=1.5)


def test_the_log_has_the_brokers_lines(kafka_cluster: LocalCluster) -> None:
    assert "Kafka Server started" in kafka_cluster.logs()


def test_an_unknown_broker_is_an_error_that_lists_the_known_ones(kafka_cluster: LocalCluster) -> None:
    with pytest.raises(ValueError, match=r"no broker 7: the node ids are \[1\]"):
        kafka_cluster.kill(7)


@pytest.mark.parametrize("end", ["kill", pytest.param("stop", marks=pytest.mark.embedded)])
def test_a_broker_ended_and_started_again_keeps_address_and_data(local_cluster: ClusterFactory, topic: str, end: str) -> None:
    cluster = local_cluster()
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    cluster.run_tool(f"{TOOLS}.VerifiableProducer", *server, "--topic", topic, "--max-messages", 5, "--acks", -1)
    before = cluster.nodes
    (cluster.kill if end == "kill" else cluster.stop)()
    with pytest.raises(OSError, match=r"refused|reset|timed out"):
        metadata((before[0].host, before[0].port))
    cluster.start()
    cluster.wait_in_sync()
    offsets = cluster.run_tool(f"{TOOLS}.GetOffsetShell", *server, "--topic", topic)
    assert cluster.nodes == before
    assert f"{topic}:0:5" in offsets.stdout


def test_a_paused_broker_is_silent_until_it_is_resumed(local_cluster: ClusterFactory, topic: str) -> None:
    cluster = local_cluster()
    server = ("--bootstrap-server", cluster.bootstrap_servers)
    cluster.run_tool(f"{TOOLS}.TopicCommand", *server, "--create", "--topic", topic)
    cluster.pause()
    with pytest.raises(TimeoutError):
        cluster.wait_in_sync(timeout=0.5)
    cluster.resume()
    cluster.wait_in_sync()
    assert topic in topics_of(cluster)


@pytest.mark.kafka(brokers=3)
def test_three_brokers_replicate_what_is_acknowledged(kafka_cluster: LocalCluster, topic: str) -> None:
    server = ("--bootstrap-server", kafka_cluster.bootstrap_servers)
    created = kafka_cluster.run_tool(
        f"{TOOLS}.TopicCommand", *server, "--create", "--topic", topic, "--replication-factor", 3, "--partitions", 3)
    assert created.returncode == 0, created
    addresses = {node.id: (node.host, node.port) for node in kafka_cluster.nodes}
    assert sorted(addresses) == [1, 2, 3]
    eventually(lambda limit_s: produce(addresses, topic, limit_s))
    for address in addresses.values():
        eventually(partial(expect_replicas, address, topic))


def expect_replicas(address: tuple[str, int], topic: str, limit_s: float) -> None:
    """A broker learns of a new topic a moment after the controller has made it."""
    [found] = metadata(address, (topic,), limit_s=limit_s).topics
    in_sync = [set(part.isr_nodes) for part in found.partitions]
    if in_sync != [{1, 2, 3}] * 3:
        raise NotReadyError(f"in sync: {in_sync}")


def eventually(attempt: Callable[[float], None]) -> None:
    poll(attempt, time.monotonic() + 60, alive=lambda: None)


@pytest.mark.embedded  # tests/containers has such a test of its own
def test_the_others_go_on_while_one_of_three_is_killed_and_it_comes_back(local_cluster: ClusterFactory, topic: str) -> None:
    cluster = local_cluster(brokers=3)
    survivors = ",".join(f"{node.host}:{node.port}" for node in cluster.nodes[1:])
    cluster.kill(1)
    produced = cluster.run_tool(
        f"{TOOLS}.VerifiableProducer", "--bootstrap-server", survivors, "--topic", topic, "--max-messages", 20,
        "--acks", -1, timeout=120)
    assert produced.stdout.count("producer_send_success") == 20, produced
    with pytest.raises(TimeoutError, match="not ready in time"):
        cluster.wait_in_sync(timeout=0.0)
    cluster.start(1)
    cluster.wait_in_sync()


def test_a_given_cluster_is_used_as_it_is(kafka_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_BOOTSTRAP", kafka_cluster.bootstrap_servers)
    with LocalCluster() as found:
        assert found.kind == "external"
        assert found.nodes == kafka_cluster.nodes
        assert kafka_cluster.bootstrap_servers in found.description
    assert metadata((kafka_cluster.nodes[0].host, kafka_cluster.nodes[0].port)).brokers, "still running"


def test_a_given_cluster_that_is_too_small_is_refused(kafka_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_BOOTSTRAP", kafka_cluster.bootstrap_servers)
    with pytest.raises(BrokerStartError, match="3 brokers are needed"):
        LocalCluster(3).open()


def test_a_given_cluster_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYCLIENT_BOOTSTRAP", "127.0.0.1:1")
    with pytest.raises(BrokerStartError, match=r"127\.0\.0\.1:1.*refused.*unset PYCLIENT_BOOTSTRAP"):
        LocalCluster(startup_timeout=0.2).open()


def test_a_setting_that_kafka_refuses_fails_the_start_with_the_brokers_own_words(local_cluster: ClusterFactory) -> None:
    with pytest.raises(BrokerStartError, match=r"num\.io\.threads"):
        local_cluster(num_io_threads=-3)
