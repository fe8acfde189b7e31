"""Transactions of pyclient, confluent-kafka and Java on one broker: each reads the others', and the offsets in them."""
from __future__ import annotations

import itertools
import uuid
from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final, NamedTuple, Protocol

import pytest
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import KafkaError as ConfluentError
from confluent_kafka import KafkaException
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from pyclient import Producer, TopicPartition
from pyclient.errors import KafkaTimeoutError
from pyclient.testing import LocalCluster
from tests.broker.durability.numbering import Found
from tests.broker.durability.verifiers import by_java, by_us
from tests.kafka import consumer, make_topic, markers_written, numbers, produce

CODECS: Final = ("none", "gzip", "snappy", "lz4", "zstd")
SIZE: Final = 20
"""Records of a batch."""
LIMIT_S: Final = 30


class Writer(Protocol):
    """A transactional producer, of whichever client."""

    def begin(self) -> None:
        """Open a transaction."""

    def write(self, partition: int, values: Sequence[bytes]) -> None:
        """Store a batch."""

    def end(self, *, commit: bool) -> None:
        """Commit or abort."""

    def close(self) -> None:
        """End the producer."""


class Ours:
    """With pyclient."""

    def __init__(self, cluster: LocalCluster, topic: str, codec: Any) -> None:
        self._topic = topic
        self._producer = Producer(bootstrap_servers=cluster.bootstrap_servers, transactional_id=uuid.uuid4().hex, compression_type=codec, linger_ms=50)
        self._producer.init_transactions()
        self.begin = self._producer.begin_transaction
        self.close = self._producer.close

    def write(self, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.send(self._topic, value, partition=partition)
        self._producer.flush()

    def end(self, *, commit: bool) -> None:
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)()


class Confluents:
    """With confluent-kafka."""

    def __init__(self, cluster: LocalCluster, topic: str, codec: str) -> None:
        self._topic = topic
        self._producer = ConfluentProducer({"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": uuid.uuid4().hex, "compression.type": codec})
        self._producer.init_transactions(LIMIT_S)
        self.begin = self._producer.begin_transaction

    def write(self, partition: int, values: Sequence[bytes]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, partition=partition)
        assert self._producer.flush(LIMIT_S) == 0

    def end(self, *, commit: bool) -> None:
        (self._producer.commit_transaction if commit else self._producer.abort_transaction)(LIMIT_S)

    def close(self) -> None:
        """It ends with the object."""


class Written(NamedTuple):
    """A topic with one partition per codec, and the values in the order of their offsets."""

    cluster: LocalCluster
    topic: str
    committed: list[list[bytes]]
    stored: list[list[bytes]]

    @property
    def partitions(self) -> list[TopicPartition]:
        return [TopicPartition(self.topic, number) for number in range(len(CODECS))]


def interleave(first: Writer, second: Writer, plain: Producer, at: TopicPartition) -> tuple[list[bytes], list[bytes]]:
    """Transactions of two producers that overlap, and records outside of any; returns what is committed and all."""
    committed, stored, number = list[bytes](), list[bytes](), itertools.count()

    def write(writer: Writer, *, kept: bool) -> None:
        values = [b"%d of %d " % (next(number), at.partition) * 5 for _ in range(SIZE)]
        writer.write(at.partition, values)
        stored.extend(values)
        committed.extend(values if kept else ())

    first.begin()
    write(first, kept=True)
    second.begin()
    write(second, kept=False)
    outside = b"outside"
    plain.send(at.topic, outside, partition=at.partition).result(LIMIT_S)
    stored.append(outside)
    committed.append(outside)
    write(first, kept=True)
    write(second, kept=False)
    second.end(commit=False)
    second.begin()
    write(second, kept=True)
    first.end(commit=True)
    first.begin()
    write(first, kept=False)
    second.end(commit=True)
    first.end(commit=False)
    return committed, stored


@pytest.fixture(scope="module")
def written(_kafka_clusters: Any) -> Written:
    """Of each two producers whose transactions overlap one is ours and one confluent's, in turn."""
    cluster: LocalCluster = _kafka_clusters.get(1, {})
    topic = f"transactions-{uuid.uuid4().hex}"
    partitions = make_topic(cluster, topic, len(CODECS))
    found = Written(cluster, topic, [], [])
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as plain:
        for tp, codec in zip(partitions, CODECS, strict=True):
            with closing(Ours(cluster, topic, codec)) as ours, closing(Confluents(cluster, topic, codec)) as theirs:
                pair: tuple[Writer, Writer] = (theirs, ours) if tp.partition % 2 else (ours, theirs)
                committed, stored = interleave(*pair, plain, tp)
                found.committed.append(committed)
                found.stored.append(stored)
    markers_written(cluster, partitions)
    return found


def by_confluent(cluster: LocalCluster, topic: str, partitions: int, isolation: str) -> list[Found]:
    """What confluent-kafka reads up to the end of each partition."""
    reader: Any = ConfluentConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
                                "isolation.level": isolation, "enable.partition.eof": True, "check.crcs": True})
    with closing(reader):
        reader.assign([ConfluentPartition(topic, partition, 0) for partition in range(partitions)])
        found, ended = list[Found](), set[int]()
        while len(ended) < partitions:
            message = reader.poll(LIMIT_S)
            assert message is not None, f"only {sorted(ended)} of {partitions} partitions came to an end"
            if message.error() is None:
                found.append(Found(message.partition(), message.offset(), message.value()))
            else:
                assert message.error().code() == ConfluentError._PARTITION_EOF, message.error()
                ended.add(message.partition())
        return found


def values(found: list[Found], partitions: int) -> list[list[bytes]]:
    """The values of each partition, in the order they were read."""
    return [[each.value for each in found if each.partition == partition] for partition in range(partitions)]


def test_C05_aborted_records_are_read_by_no_client_at_read_committed(written: Written) -> None:
    cluster, topic, count = written.cluster, written.topic, len(CODECS)
    assert values(by_us(cluster, written.partitions), count) == written.committed
    assert values(by_confluent(cluster, topic, count, "read_committed"), count) == written.committed
    assert values(by_java(cluster, topic, count, committed=sum(map(len, written.committed))), count) == written.committed


def test_C05_aborted_records_are_read_by_each_client_at_read_uncommitted(written: Written) -> None:
    cluster, count = written.cluster, len(CODECS)
    assert values(by_us(cluster, written.partitions, "read_uncommitted"), count) == written.stored
    assert values(by_confluent(cluster, written.topic, count, "read_uncommitted"), count) == written.stored


# ---- Java's producers ------------------------------------------------------------------------------------------------


def test_we_read_what_java_copied_in_transactions_and_see_its_offsets(kafka_cluster: LocalCluster, topic: str) -> None:
    """Java's copier aborts a third of its transactions and copies their records again."""
    count, target = 300, f"{topic}-out"
    source, partitions = make_topic(kafka_cluster, topic), make_topic(kafka_cluster, target)
    produce(kafka_cluster, topic, numbers(count))
    done = kafka_cluster.run_tool(
        "org.apache.kafka.tools.TransactionalMessageCopier", "--broker-list", kafka_cluster.bootstrap_servers, "--input-topic", topic,
        "--input-partition", 0, "--output-topic", target, "--consumer-group", topic, "--transactional-id", topic, "--transaction-size", 6,
        "--enable-random-aborts", "--use-group-metadata")
    assert done.returncode == 0, done.stderr
    markers_written(kafka_cluster, partitions)
    assert [found.value for found in by_us(kafka_cluster, partitions)] == numbers(count)
    assert len(by_us(kafka_cluster, partitions, "read_uncommitted")) > count
    assert our_offset(kafka_cluster, source[0]) == confluents_offset(kafka_cluster, source[0]) == count


def test_we_read_what_java_compressed_in_transactions(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    done = kafka_cluster.run_tool(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", topic, "--num-records", 3000, "--record-size", 100, "--throughput", -1,
        "--transactional-id", topic, "--transaction-duration-ms", 20, "--command-property", f"bootstrap.servers={kafka_cluster.bootstrap_servers}",
        "compression.type=zstd")
    assert done.returncode == 0, done.stderr
    markers_written(kafka_cluster, partitions)
    assert [len(found.value) for found in by_us(kafka_cluster, partitions)] == [100] * 3000


# ---- offsets ---------------------------------------------------------------------------------------------------------


def our_offset(cluster: LocalCluster, tp: TopicPartition, timeout: float = LIMIT_S) -> int | None:
    """The offset that the group of the topic's name has committed, as we see it."""
    with consumer(cluster, group_id=tp.topic, enable_auto_commit=False, isolation_level="read_committed") as looker:
        found = looker.committed([tp], timeout=timeout)[tp]
    return found.offset if found else None


def confluents_offset(cluster: LocalCluster, tp: TopicPartition, timeout: float = LIMIT_S) -> int:
    """The same, as confluent-kafka sees it."""
    with closing(confluents_member(cluster, tp.topic)) as looker:
        [found] = looker.committed([ConfluentPartition(*tp)], timeout)
    assert found.error is None, found.error
    return int(found.offset)


def javas_offset(cluster: LocalCluster, tp: TopicPartition) -> int:
    """The same, as Java's tool prints it."""
    done = cluster.run_tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--bootstrap-server", cluster.bootstrap_servers,
                            "--describe", "--group", tp.topic, "--offsets")
    assert done.returncode == 0, done.stderr
    [row] = [line.split() for line in done.stdout.splitlines() if line.startswith(tp.topic)]
    return int(row[3])


def confluents_member(cluster: LocalCluster, group: str) -> Any:
    return ConfluentConsumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": group, "enable.auto.commit": False})


def test_T04_offsets_in_our_transaction_are_seen_by_the_others_once_it_is_committed(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with (Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, transactional_id=topic) as producer,
          consumer(kafka_cluster, group_id=topic, enable_auto_commit=False) as member):
        producer.init_transactions()
        for offset, commit in ((5, True), (7, False)):
            producer.begin_transaction()
            producer.send_offsets({tp: offset}, member.group_metadata())
            with pytest.raises(KafkaException, match="_TIMED_OUT"):
                confluents_offset(kafka_cluster, tp, timeout=0.5)
            if commit:
                producer.commit_transaction()
            else:
                producer.abort_transaction()
            assert our_offset(kafka_cluster, tp) == confluents_offset(kafka_cluster, tp) == 5
        assert javas_offset(kafka_cluster, tp) == 5


def test_T04_offsets_in_confluents_transaction_are_seen_by_us_once_it_is_committed(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    producer = ConfluentProducer({"bootstrap.servers": kafka_cluster.bootstrap_servers, "transactional.id": topic})
    producer.init_transactions(LIMIT_S)
    with closing(confluents_member(kafka_cluster, topic)) as member:
        for offset, end in ((5, producer.commit_transaction), (7, producer.abort_transaction)):
            producer.begin_transaction()
            producer.send_offsets_to_transaction([ConfluentPartition(*tp, offset)], member.consumer_group_metadata(), LIMIT_S)
            with pytest.raises(KafkaTimeoutError, match="UNSTABLE_OFFSET_COMMIT"):
                our_offset(kafka_cluster, tp, timeout=0.5)
            end(LIMIT_S)
            assert our_offset(kafka_cluster, tp) == confluents_offset(kafka_cluster, tp) == 5
