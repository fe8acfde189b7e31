"""Records exchanged with other clients on a real broker: codecs, partitions, headers."""
from __future__ import annotations

import uuid
import warnings
from typing import Any

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from pyclient import Producer
from pyclient.testing import LocalCluster
from tests.kafka import make_topic, read

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # it reads its own version by a deprecated function
    from kafka import KafkaConsumer, KafkaProducer
    from kafka.structs import TopicPartition as PythonPartition

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
KAFKA_PYTHON_CODECS = ("none", "gzip")  # each other codec needs a library that is not installed here
HEADERS: list[Any] = [("trace", b"1"), ("none", None)]
VALUES = [b"value %d " % n * 10 for n in range(500)]
PARTITIONS = 13


def by_us(cluster: LocalCluster, topic: str, codec: Any) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type=codec) as producer:
        for value in VALUES:
            producer.send(topic, value, b"key", headers=HEADERS)


@pytest.mark.parametrize("codec", CODECS)
def test_B03_librdkafka_reads_what_we_write(kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    make_topic(kafka_cluster, topic)
    by_us(kafka_cluster, topic, codec)
    reader = ConfluentConsumer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "group.id": uuid.uuid4().hex,
                                "enable.auto.commit": False, "check.crcs": True})
    reader.assign([ConfluentPartition(topic, 0, 0)])
    found: list[Any] = []
    while len(found) < len(VALUES):
        messages = reader.consume(len(VALUES), 20)
        assert messages
        found += messages
    reader.close()
    assert [message.value() for message in found] == VALUES
    assert found[0].headers() == HEADERS
    assert found[0].key() == b"key"


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_B03_kafka_python_reads_what_we_write(kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    make_topic(kafka_cluster, topic)
    by_us(kafka_cluster, topic, codec)
    reader = KafkaConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest")
    reader.assign([PythonPartition(topic, 0)])
    found: list[Any] = []
    while len(found) < len(VALUES):
        polled = reader.poll(20_000)
        assert polled
        found += [record for records in polled.values() for record in records]
    reader.close()
    assert [record.value for record in found] == VALUES
    assert list(found[0].headers) == HEADERS


@pytest.mark.parametrize("codec", CODECS)
def test_B03_we_read_what_librdkafka_writes(kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    writer = ConfluentProducer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "compression.type": codec})
    for value in VALUES:
        writer.produce(topic, value, b"key", partition=0, headers=HEADERS)
    assert writer.flush(30) == 0
    records = read(kafka_cluster, partitions, len(VALUES))
    assert [record.value for record in records] == VALUES
    assert list(records[0].headers) == HEADERS


@pytest.mark.parametrize("codec", KAFKA_PYTHON_CODECS)
def test_B03_we_read_what_kafka_python_writes(kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    writer = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers, compression_type=None if codec == "none" else codec)
    for value in VALUES:
        writer.send(topic, value, key=b"key", partition=0)
    writer.flush(30)
    writer.close()
    assert [record.value for record in read(kafka_cluster, partitions, len(VALUES))] == VALUES


@pytest.mark.parametrize("codec", CODECS)
def test_B02_we_read_what_java_writes(kafka_cluster: LocalCluster, topic: str, codec: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    done = kafka_cluster.run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", 300, "--record-size", 100, "--throughput", -1,
        "--command-property", f"bootstrap.servers={kafka_cluster.bootstrap_servers}", f"compression.type={codec}")
    assert done.returncode == 0, done.stderr
    assert [len(record.value or b"") for record in read(kafka_cluster, partitions, 300)] == [100] * 300


def test_a_key_goes_to_the_partition_that_javas_hash_chooses_in_the_other_clients(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic, PARTITIONS)
    keys = [b"", *(bytes([n % 256]) * n for n in range(1, 40)), *(uuid.uuid4().bytes for _ in range(60))]
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        ours = {key: producer.send(topic, b"x", key).partition for key in keys}
    theirs: dict[Any, Any] = {}
    writer = ConfluentProducer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "partitioner": "murmur2"})
    for key in keys:
        writer.produce(topic, b"x", key, on_delivery=lambda error, message: theirs.update({message.key(): message.partition()}))
    assert writer.flush(30) == 0
    python = KafkaProducer(bootstrap_servers=kafka_cluster.bootstrap_servers)
    sent = {key: python.send(topic, b"x", key=key) for key in keys}
    also = {key: each.get(30).partition for key, each in sent.items()}
    python.close()
    assert ours == also
    del theirs[b""], ours[b""]  # librdkafka takes an empty key for none
    assert ours == theirs
