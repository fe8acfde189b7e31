"""Readers of whole topics: Java's console consumer, which needs no compiler, librdkafka's consumer, and ours."""
from __future__ import annotations

import subprocess
import tempfile
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any, Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from pyclient import TopicPartition as OurPartition
from pyclient.testing import LocalCluster
from pyclient.testing.jvm import TOOL_HEAP, prepare_jvm
from tests.broker.durability.numbering import Found
from tests.kafka import consumer
from tests.waiting import eventually

TIMEOUT_S: Final = 300
CONSOLE: Final = "org.apache.kafka.tools.consumer.ConsoleConsumer"
NOT_YET: Final = (KafkaError.NOT_LEADER_FOR_PARTITION, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.OFFSET_NOT_AVAILABLE,
                  KafkaError.UNKNOWN_TOPIC_OR_PART)
"""Errors that brokers return for a moment after a partition has got a leader."""
PRINTED: Final = ("print.partition=true", "print.offset=true", "print.key=false", "print.value=true")


def by_java(cluster: LocalCluster, topic: str, partitions: int, committed: int | None = None) -> list[Found]:
    """All records of a topic as Java's consumer prints them, each partition's in the order it read them.

    With transactions offsets do not count records: *committed* says how many it is to read, at read_committed.
    """
    expected = sum(high - low for low, high in ends(cluster, topic, partitions).values()) if committed is None else committed
    isolation = "read_uncommitted" if committed is None else "read_committed"
    if not expected:
        return []
    with tempfile.TemporaryDirectory(prefix="pyclient-witness-") as name:
        folder = Path(name)
        printed = folder / "printed"
        command = prepare_jvm(cluster.version).command(
            CONSOLE, "--bootstrap-server", cluster.bootstrap_servers, "--topic", topic, "--from-beginning", "--max-messages", str(expected),
            "--timeout-ms", "30000", "--isolation-level", isolation, "--command-property", "enable.auto.commit=false",
            *(word for each in PRINTED for word in ("--formatter-property", each)), logs=folder, flags=TOOL_HEAP)
        with printed.open("wb") as out:
            run = subprocess.run(command, stdout=out, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, timeout=TIMEOUT_S, check=False,
                                 env=prepare_jvm(cluster.version).environment())
        assert run.returncode == 0, run.stderr
        found = list(map(_parsed, printed.read_bytes().splitlines()))
    assert len(found) == expected, run.stderr
    return found


def by_us(cluster: LocalCluster, partitions: list[OurPartition], isolation: str = "read_committed") -> list[Found]:
    """All records of partitions as our consumer reads them, up to the last stable offset."""
    found = list[Found]()
    with consumer(cluster, isolation_level=isolation) as reader:
        reader.assign(partitions)
        ends = reader.end_offsets(partitions)
        while any(reader.position(tp) < end for tp, end in ends.items()):
            found += [Found(record.partition, record.offset, record.value or b"") for record in reader.poll(1)]
    return found


def _parsed(line: bytes) -> Found:
    partition, offset, value = line.split(b"\t", 2)
    return Found(int(partition.removeprefix(b"Partition:")), int(offset.removeprefix(b"Offset:")), value)


def by_librdkafka(cluster: LocalCluster, topic: str, partitions: int) -> list[Found]:
    """All records of a topic as confluent-kafka reads them, checksums verified."""
    limits = ends(cluster, topic, partitions)
    with closing(_consumer(cluster)) as reader:
        reader.assign([TopicPartition(topic, partition, low) for partition, (low, _) in limits.items()])
        expected = sum(high - low for low, high in limits.values())
        return list(_read(reader, expected))


def _read(reader: Any, expected: int) -> Iterator[Found]:
    left = expected
    while left:
        messages = reader.consume(min(left, 10_000), 30)
        assert messages, f"{left} of {expected} records did not arrive"
        for message in messages:
            assert message.error() is None, message.error()
            yield Found(message.partition(), message.offset(), message.value())
        left -= len(messages)


def ends(cluster: LocalCluster, topic: str, partitions: int) -> dict[int, tuple[int, int]]:
    """First and next offset of each partition, from leaders that know that they lead, and their high watermark."""
    with closing(_consumer(cluster)) as reader:
        found: dict[int, tuple[int, int]] = {}

        def known() -> bool:
            for partition in range(partitions):
                if partition not in found and (limits := _ends(reader, TopicPartition(topic, partition))):
                    found[partition] = limits
            return len(found) == partitions

        eventually(known, 60)
        return found


def _ends(reader: Any, tp: TopicPartition) -> tuple[int, int] | None:
    try:
        limits: tuple[int, int] = reader.get_watermark_offsets(tp, timeout=30)
    except KafkaException as refused:
        if refused.args[0].code() not in NOT_YET:
            raise
        return None
    return limits


def _consumer(cluster: LocalCluster) -> Any:
    return Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": uuid.uuid4().hex, "enable.auto.commit": False,
                     "check.crcs": True, "auto.offset.reset": "error"})


WITNESSES: Final[dict[str, Callable[[LocalCluster, str, int], list[Found]]]] = {"java": by_java, "librdkafka": by_librdkafka}
