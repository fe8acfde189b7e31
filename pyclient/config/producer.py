"""Options of the producer, and the rules between them."""
from __future__ import annotations

from typing import ClassVar

import attrs

from pyclient.config.client import ClientConfig
from pyclient.config.declaration import NotYet, Rule, option
from pyclient.config.kinds import INT32_MAX, INT64_MAX, PLUGIN, Acks, Bool, ByTopic, Choice, Int, Plugins, Text

CODEC = Choice(("none", "gzip", "snappy", "lz4", "zstd"))

NOT_YET = (
    NotYet("transaction_two_phase_commit_enable", lambda value: value is True, "Leave it out."),
)

RULES = (
    Rule(
        ("delivery_timeout_ms", "linger_ms", "request_timeout_ms"),
        lambda c: c.delivery_timeout_ms >= c.linger_ms + c.request_timeout_ms,
        "delivery_timeout_ms must be at least linger_ms + request_timeout_ms: raise it, or lower the other two",
        yields={
            "delivery_timeout_ms": lambda c: min(c.linger_ms + c.request_timeout_ms, INT32_MAX),
            "request_timeout_ms": lambda c: max(c.delivery_timeout_ms - c.linger_ms, min(c.delivery_timeout_ms, 1)),
            "linger_ms": lambda c: max(c.delivery_timeout_ms - c.request_timeout_ms, 0),
        },
    ),
    Rule(
        ("batch_size", "buffer_memory"),
        lambda c: c.batch_size <= c.buffer_memory,
        "batch_size must not exceed buffer_memory: no batch could ever be filled",
        yields={"batch_size": lambda c: c.buffer_memory, "buffer_memory": lambda c: c.batch_size},
    ),
    Rule(
        ("max_in_flight_requests_per_connection", "enable_idempotence"),
        lambda c: not c.enable_idempotence or c.max_in_flight_requests_per_connection <= 5,
        "an idempotent producer needs max_in_flight_requests_per_connection of 5 or less: brokers remember five batches",
        yields={"enable_idempotence": lambda _: False},
    ),
    Rule(
        ("acks", "enable_idempotence"),
        lambda c: not c.enable_idempotence or c.acks == -1,
        "an idempotent producer needs acks=all",
        yields={"enable_idempotence": lambda _: False},
    ),
    Rule(
        ("retries", "enable_idempotence"),
        lambda c: not c.enable_idempotence or c.retries > 0,
        "an idempotent producer needs retries above 0",
        yields={"enable_idempotence": lambda _: False},
    ),
    Rule(
        ("transactional_id", "enable_idempotence"),
        lambda c: c.transactional_id is None or c.enable_idempotence,
        "transactions need enable_idempotence=True",
        yields={"enable_idempotence": lambda _: True},
    ),
    Rule(
        ("transaction_timeout_ms", "transaction_two_phase_commit_enable"),
        lambda c: not (c.transaction_two_phase_commit_enable and "transaction_timeout_ms" in c.given),
        "with transaction_two_phase_commit_enable a transaction has no timeout: leave transaction_timeout_ms out",
    ),
)


@attrs.define(frozen=True, kw_only=True, repr=False)
class ProducerConfig(ClientConfig):
    """Options of `Producer` and `AsyncProducer`."""

    ROLE: ClassVar[str] = "producer"
    RULES: ClassVar[tuple[Rule, ...]] = RULES
    NOT_YET: ClassVar[tuple[NotYet, ...]] = NOT_YET

    key_serializer: object | None = option(
        "0.8", None, PLUGIN, "Serializes keys to bytes; None: keys are bytes.", importance="high", explicit=True)
    value_serializer: object | None = option(
        "0.8", None, PLUGIN, "Serializes values to bytes; None: values are bytes.", importance="high", explicit=True)
    allow_tombstones: bool = option(
        "pyclient", False, Bool(), "value_serializer may return None for a value that is not None: the record is a tombstone then. Else that "
        "is an error, such as of a serializer without `return`. Values of None are tombstones always.", importance="low")
    interceptors: tuple[object, ...] = option(
        "0.10", (), Plugins(), "See or change records before they are serialized, in this order, and see their delivery.",
        dotted="interceptor.classes", importance="low", explicit=True)

    acks: int = option(
        "0.8", -1, Acks(), "When a record counts as delivered: written by all in-sync replicas (all, -1), by the leader (1), or once sent (0).",
        importance="low")
    retries: int = option(
        "0.8", INT32_MAX, Int(), "How often a batch is sent again, within delivery_timeout_ms. Prefer that limit to this one.",
        importance="high", unit="")
    delivery_timeout_ms: int = option(
        "2.1", 120_000, Int(),
        "Longest time from send until the delivery succeeds or fails. If not set, raised to linger_ms + request_timeout_ms when that is more; if set "
        "to less, those of the two that are not set are lowered.")
    max_block_ms: int = option(
        "0.9", 60_000, Int(high=INT64_MAX), "Longest time send may wait for metadata, for space in buffer_memory and, in an AsyncProducer, for serializers that await, together.")
    enable_idempotence: bool = option(
        "0.11", True, Bool(),
        "Write each record exactly once and in order, in spite of retries. If not set, off when acks, retries or "
        "max_in_flight_requests_per_connection do not allow it.",
        importance="low")
    max_in_flight_requests_per_connection: int = option(
        "0.8", 5, Int(1), "Unanswered requests per broker; for an idempotent producer also batches per partition, at most 5. Order is kept "
        "with any number: without idempotence a partition has one batch in flight.",
        importance="low", unit="")

    buffer_memory: int = option(
        "0.8", 33_554_432, Int(1, INT64_MAX), "Bytes of records waiting to be sent; when the buffer is full, send waits.",
        importance="high", unit="B")
    batch_size: int = option(
        "0.8", 262_144, Int(),
        "Largest batch of records for one partition; 0 means one record per batch. 256 KiB (Java: 16 KiB): "
        "more records share the cost of a batch, and a small batch takes only the memory it fills.",
        unit="B")
    linger_ms: int = option(
        "0.8", 5, Int(high=INT64_MAX), "Longest wait for more records to fill a batch before it is sent.")
    max_request_size: int = option(
        "0.8", 1_048_576, Int(1),
        "Largest record and largest request; a single batch may always be sent. Brokers have limits of their own.", unit="B")

    compression_type: str = option(
        "0.8", "none", CODEC, "How batches are compressed; larger batches compress better.",
        importance="high")
    compression_by_topic: tuple[tuple[str, str], ...] = option(
        "pyclient", (), ByTopic(CODEC), "Compression of single topics; compression_type applies to all others.")
    compression_gzip_level: int = option(
        "3.8", -1, Int(1, 9, or_else=(-1,)), "1 is fastest, 9 compresses best, -1 is the library's default, 6.", unit="")
    compression_lz4_level: int = option("3.8", 9, Int(1, 17), "1 is fastest, 17 compresses best.", unit="")
    compression_zstd_level: int = option(
        "3.8", 3, Int(-131_072, 22), "Negative levels are fastest, 22 compresses best.", unit="")

    partitioner: object | None = option(
        "0.9", None, PLUGIN,
        "Chooses the partition of records that are sent without one. None: murmur2 of the key as in Java; without a key, sticky batches.",
        dotted="partitioner.class", explicit=True)
    partitioner_ignore_keys: bool = option(
        "3.3", False, Bool(), "The default partitioner ignores keys.")
    partitioner_adaptive_partitioning_enable: bool = option(
        "3.3", True, Bool(), "Records without a key go less often to partitions with more batches waiting (KIP-794).", importance="low")
    partitioner_availability_timeout_ms: int = option(
        "3.3", 0, Int(high=INT64_MAX), "Records without a key avoid partitions whose broker accepts no ready batch for so long; 0: never.",
        importance="low")

    metadata_max_idle_ms: int = option(
        "2.5", 300_000, Int(5_000, INT64_MAX), "Drop the metadata of a topic to which nothing was sent for so long.",
        importance="low")
    transactional_id: str | None = option(
        "0.11", None, Text(empty=False), "Makes the producer transactional, and fences older producers with the same id.",
        importance="low")
    transaction_timeout_ms: int = option(
        "0.11", 60_000, Int(1), "The coordinator aborts a transaction that is open for so long.", importance="low")
    transaction_two_phase_commit_enable: bool = option(
        "4.1", False, Bool(), "Take part in an outer two-phase commit (KIP-939).", importance="low")
