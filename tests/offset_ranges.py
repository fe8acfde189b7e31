"""Ranges of offsets as a task of Spark reads them, beside a plain consumer; on the fake cluster and on brokers."""
from __future__ import annotations

import itertools
import random
from typing import Final, Literal, TypeAlias

from pyclient import Consumer, Producer, TopicPartition
from pyclient.integration.spark.offsets import OffsetRange
from pyclient.integration.spark.options import SourceOptions
from pyclient.integration.spark.reading import read_range

Level: TypeAlias = Literal["read_committed", "read_uncommitted"]
LEVELS: Final[tuple[Level, Level]] = ("read_committed", "read_uncommitted")
AT_ONCE: Final = ("3", "500")
"""max.poll.records"""
Read: TypeAlias = list[tuple[int, bytes | None]]


def fill(servers: str, topic: str, partitions: int, seed: int) -> None:
    """Transactions of a few records each, some of them aborted: their ends, and what was aborted, are gaps."""
    chance = random.Random(seed)
    with Producer(bootstrap_servers=servers, transactional_id=f"{topic}-{seed}") as producer:
        producer.init_transactions()
        for number in range(40):
            producer.begin_transaction()
            for place in range(chance.randint(1, 9)):
                producer.send(topic, b"%d.%d" % (number, place), partition=chance.randrange(partitions))
            if chance.random() < 0.25:
                producer.flush()  # so that the log has what is aborted
                producer.abort_transaction()
            else:
                producer.commit_transaction()


def compare(servers: str, topic: str, partitions: int, count: int, seed: int) -> None:
    """Each of *count* ranges holds what a plain consumer reads there, at the same isolation level."""
    chance = random.Random(seed)
    everything = {(tp, level): plain(servers, tp, level) for tp, level in itertools.product([TopicPartition(topic, each) for each in range(partitions)], LEVELS)}
    for _ in range(count):
        (tp, level), (records, end) = chance.choice(list(everything.items()))
        first = chance.randint(0, end)
        wanted = OffsetRange(tp, first, chance.randint(first, end))
        options = {"kafka.bootstrap.servers": servers, "subscribe": topic, "kafka.isolation.level": level, "kafka.max.poll.records": chance.choice(AT_ONCE)}
        assert in_range(wanted, options) == [each for each in records if wanted.start <= each[0] < wanted.end], f"seed {seed}: {wanted} {options}"


def plain(servers: str, tp: TopicPartition, level: Level) -> tuple[Read, int]:
    """All records of a partition, and where it ends."""
    found: Read = []
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", isolation_level=level) as consumer:
        consumer.assign([tp])
        end = consumer.end_offsets([tp])[tp]
        while consumer.position(tp) < end:
            found += [(record.offset, record.value) for record in consumer.poll(1)]
    return found, end


def in_range(wanted: OffsetRange, options: dict[str, str]) -> Read:
    """What a task reads."""
    found: Read = []
    for batch in read_range(wanted, SourceOptions.parse(options)):
        offsets: list[int] = batch.column("offset").to_pylist()  # type: ignore[assignment] # no nulls
        found += zip(offsets, batch.column("value").to_pylist(), strict=True)
    return found
