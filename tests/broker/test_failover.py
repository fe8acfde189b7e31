"""Brokers that die, freeze and come back under load: nothing acknowledged is lost, and order is kept."""
from __future__ import annotations

from pyclient import Producer
from pyclient.testing.pytest_plugin import ClusterFactory
from tests.kafka import make_topic, read


def test_a_producer_goes_on_after_its_only_broker_was_killed_and_started_again(local_cluster: ClusterFactory, topic: str) -> None:
    cluster = local_cluster()
    partitions = make_topic(cluster, topic)
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.send(topic, b"before").result(20)
        cluster.kill()
        waiting = producer.send(topic, b"while")
        cluster.start()
        waiting.result(20)
        producer.send(topic, b"after").result(20)
    assert [record.value for record in read(cluster, partitions, 3)] == [b"before", b"while", b"after"]
