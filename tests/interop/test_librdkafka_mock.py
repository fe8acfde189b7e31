"""librdkafka's mock cluster as a broker: another implementation of the protocol, with faults of its own.

It refuses a newer ApiVersions in the wrong encoding, and writes a byte too many after some answers.
"""
from __future__ import annotations

import itertools
import logging
from collections.abc import Iterator

import pytest

from pyclient import Admin, Consumer, Producer, TopicPartition

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka brings the mock cluster: pip install 'pyclient-kafka[peers]'")


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """The address of a mock cluster with one broker, which exists as long as the client that runs it."""
    owner = confluent.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "x:1", "log_level": 0})
    brokers = owner.list_topics(timeout=20).brokers
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    owner.flush(1)


def test_the_mock_cluster_is_described(mock_cluster: str) -> None:
    with Admin(bootstrap_servers=mock_cluster) as admin:
        assert len(admin.describe_cluster(timeout=20).nodes) == 1


@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_M08_records_pass_through_a_broker_that_refuses_ApiVersions_in_the_wrong_encoding(
        mock_cluster: str, topic: str, codec: str, caplog: pytest.LogCaptureFixture) -> None:
    sent = [b"%d" % n for n in range(1000)]
    with Producer({"compression.type": codec}, bootstrap_servers=mock_cluster) as producer:
        deliveries = [producer.send(topic, value, partition=0) for value in sent]
        assert deliveries[-1].result(20).offset == 999
    with Consumer(bootstrap_servers=mock_cluster, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        found = [record.value for record in itertools.islice(consumer, len(sent))]
        assert found == sent
        assert consumer.end_offsets([TopicPartition(topic, 0)]) == {TopicPartition(topic, 0): 1000}
    assert not [record for record in caplog.records if record.name.startswith("pyclient") and record.levelno >= logging.WARNING]


def test_the_other_client_reads_what_this_one_wrote(mock_cluster: str, topic: str) -> None:
    with Producer(bootstrap_servers=mock_cluster, compression_type="lz4") as producer:
        producer.send(topic, b"value", key=b"key", headers=[("h", b"1"), ("null", None)], partition=0)
    other = confluent.Consumer({"bootstrap.servers": mock_cluster, "group.id": "other", "log_level": 0})
    try:
        other.assign([confluent.TopicPartition(topic, 0, 0)])
        message = other.poll(20)
        assert message is not None
        assert (message.error(), message.key(), message.value()) == (None, b"key", b"value")
        assert message.headers() == [("h", b"1"), ("null", None)]
    finally:
        other.close()
