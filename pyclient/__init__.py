"""A Kafka client: producer, consumer and admin, sync and async. ``docs/internals.md`` tells how it works."""
from __future__ import annotations

from pyclient.admin import Admin, AsyncAdmin
from pyclient.buffers.delivery import Delivery
from pyclient.buffers.fetched import Records
from pyclient.codec.record import Record
from pyclient.consumer import AsyncConsumer, Consumer
from pyclient.errors import KafkaError
from pyclient.producer import AsyncProducer, Producer
from pyclient.records import (
    ClusterDescription,
    NewTopic,
    Node,
    OffsetAndMetadata,
    OffsetAndTimestamp,
    PartitionDescription,
    RecordMetadata,
    TimestampType,
    TopicDescription,
    TopicPartition,
)

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "ClusterDescription",
    "Consumer",
    "Delivery",
    "KafkaError",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "Producer",
    "Record",
    "RecordMetadata",
    "Records",
    "TimestampType",
    "TopicDescription",
    "TopicPartition",
]
