"""Connections to real brokers: what is negotiated, what breaks, what heals."""
from __future__ import annotations

import pytest

from pyclient import Producer
from pyclient.testing import FaultProxy, LocalCluster
from tests.kafka import first_address, make_topic, read


def test_several_bootstrap_addresses_of_which_one_works_are_enough(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    servers = f"127.0.0.1:1,broker.invalid:9092,{kafka_cluster.bootstrap_servers}"
    with Producer(bootstrap_servers=servers) as producer:
        producer.send(topic, b"found")
    assert read(kafka_cluster, partitions, 1)[0].value == b"found"
