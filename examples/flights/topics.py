"""Both ends of the job: writes every flight to the topic ``flights``, reads the newest value of each key of ``delays``.
"""
from __future__ import annotations

import json
import secrets
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from examples.flights.data import CarrierMonth, Delays, Row, flight
from pyclient import Admin, Consumer, NewTopic, Producer, TopicPartition
from pyclient.errors import KafkaTimeoutError, PartialFailureError, TopicExistsError

PARTITIONS: Final = 6
SILENCE_S: Final = 60.0
SHOWN_EVERY: Final = 5_000

Advance = Callable[[int], None]


class Names(NamedTuple):
    """The topics of one run."""

    flights: str
    delays: str


def create(bootstrap: str) -> Names:
    """Create the topics ``flights`` and ``delays``, with a suffix if the cluster has some from an earlier run."""
    names = Names("flights", "delays")
    with Admin(bootstrap_servers=bootstrap) as admin:
        while set(names) & set(admin.list_topics()) or not _created(admin, names):
            ending = secrets.token_hex(3)
            names = Names(f"flights-{ending}", f"delays-{ending}")
    return names


def _created(admin: Admin, names: Names) -> bool:
    """False when another program has created them first."""
    try:
        admin.create_topics([NewTopic(names.flights, PARTITIONS), NewTopic(names.delays, PARTITIONS)])
    except PartialFailureError as error:
        if all(isinstance(each, TopicExistsError) for each in error.errors.values()):
            return False
        raise
    return True


def produce(bootstrap: str, topic: str, given: Iterable[Row], advance: Advance) -> int:
    """Send every flight as JSON, key = carrier; returns their number when all are acknowledged."""
    count = 0
    with Producer(bootstrap_servers=bootstrap, compression_type="zstd", linger_ms=20) as producer:
        for count, row in enumerate(given, 1):
            producer.send(topic, json.dumps(flight(row)).encode(), key=row["carrier"].encode())
            if count % SHOWN_EVERY == 0:
                advance(SHOWN_EVERY)
    advance(count % SHOWN_EVERY)
    return count


def records_in(bootstrap: str, topic: str) -> int:
    """How many records the topic holds, by its offsets."""
    with Consumer(bootstrap_servers=bootstrap) as consumer:
        partitions = _partitions(bootstrap, topic)
        ends, begins = consumer.end_offsets(partitions), consumer.beginning_offsets(partitions)
    return sum(ends[tp] - begins[tp] for tp in partitions)


def newest(bootstrap: str, topic: str) -> dict[CarrierMonth, Delays]:
    """Read the topic to its end: the last value of each key."""
    found: dict[bytes | None, bytes | None] = {}
    with Consumer(bootstrap_servers=bootstrap, auto_offset_reset="earliest") as consumer:
        partitions = _partitions(bootstrap, topic)
        reached, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
        consumer.assign(partitions)
        while any(reached[tp] < end for tp, end in ends.items()):
            records = consumer.poll(SILENCE_S)
            if not records:
                raise KafkaTimeoutError(f"{topic} ends at {ends}, but nothing came for {SILENCE_S:g} s at {reached}")
            found.update((record.key, record.value) for record in records)
            reached.update(records.positions())
    return dict(_parsed(value) for value in found.values() if value is not None)


def _parsed(value: bytes) -> tuple[CarrierMonth, Delays]:
    fields: dict[str, Any] = json.loads(value)
    return (fields["carrier"], fields["month"]), Delays(*(fields[name] for name in Delays._fields))


def _partitions(bootstrap: str, topic: str) -> list[TopicPartition]:
    with Admin(bootstrap_servers=bootstrap) as admin:
        return [TopicPartition(topic, each.partition) for each in admin.describe_topics([topic])[topic].partitions]
