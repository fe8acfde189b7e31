"""A Kafka client: producer, consumer and admin, sync and async; ``help('pyclient.Producer')`` and so on.

Names are loaded when first used: the pytest plugin imports this package in every test run of its users.
"""
from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyclient._version import __version__ as __version__
    from pyclient.admin.facade import Admin, AsyncAdmin
    from pyclient.buffers.deliveries import Deliveries
    from pyclient.buffers.delivery import Delivery
    from pyclient.buffers.records_view import Records
    from pyclient.consumer.async_facade import AsyncConsumer
    from pyclient.consumer.facade import Consumer
    from pyclient.descriptions.cluster import ClusterDescription
    from pyclient.descriptions.topics import NewPartitions, NewTopic, PartitionDescription, TopicDescription
    from pyclient.errors import KafkaError
    from pyclient.producer.facade import AsyncProducer, Producer
    from pyclient.records import (
        ConsumerGroupMetadata,
        Node,
        OffsetAndMetadata,
        OffsetAndTimestamp,
        RecordMetadata,
        SubscriptionPattern,
        TimestampType,
        TopicPartition,
    )
    from pyclient.records.record import Record

_HOMES: Final = {
    "Admin": "pyclient.admin.facade",
    "AsyncAdmin": "pyclient.admin.facade",
    "AsyncConsumer": "pyclient.consumer.async_facade",
    "AsyncProducer": "pyclient.producer.facade",
    "ClusterDescription": "pyclient.descriptions.cluster",
    "Consumer": "pyclient.consumer.facade",
    "ConsumerGroupMetadata": "pyclient.records",
    "Deliveries": "pyclient.buffers.deliveries",
    "Delivery": "pyclient.buffers.delivery",
    "KafkaError": "pyclient.errors",
    "NewPartitions": "pyclient.descriptions.topics",
    "NewTopic": "pyclient.descriptions.topics",
    "Node": "pyclient.records",
    "OffsetAndMetadata": "pyclient.records",
    "OffsetAndTimestamp": "pyclient.records",
    "PartitionDescription": "pyclient.descriptions.topics",
    "Producer": "pyclient.producer.facade",
    "Record": "pyclient.records.record",
    "RecordMetadata": "pyclient.records",
    "Records": "pyclient.buffers.records_view",
    "SubscriptionPattern": "pyclient.records",
    "TimestampType": "pyclient.records",
    "TopicDescription": "pyclient.descriptions.topics",
    "TopicPartition": "pyclient.records",
    "__version__": "pyclient._version",
}

__all__ = [
    "Admin",
    "AsyncAdmin",
    "AsyncConsumer",
    "AsyncProducer",
    "ClusterDescription",
    "Consumer",
    "ConsumerGroupMetadata",
    "Deliveries",
    "Delivery",
    "KafkaError",
    "NewPartitions",
    "NewTopic",
    "Node",
    "OffsetAndMetadata",
    "OffsetAndTimestamp",
    "PartitionDescription",
    "Producer",
    "Record",
    "RecordMetadata",
    "Records",
    "SubscriptionPattern",
    "TimestampType",
    "TopicDescription",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_HOMES})
