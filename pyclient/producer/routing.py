"""From a user's record to bytes and a partition.

Runs in the user's thread; keeps no state of its own and knows no brokers. Serializers and partitioners are the user's
code: no lock is held.
"""
from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, Final, TypeAlias

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Observer
from pyclient.buffers.fast_arrow import ArrowPath
from pyclient.buffers.fast_send import SendPath
from pyclient.config import ProducerConfig
from pyclient.plugin_loading import load_plugin
from pyclient.plugins import HashesKeys, Partitioner, SeesNewBatches, Serialized
from pyclient.producer.arguments import as_bytes
from pyclient.producer.partition_choice import PartitionChoice
from pyclient.records import Headers
from pyclient.serializing import LoadedSerializer, load_serializer, unpack

_log = logging.getLogger(__name__)
Serialize: TypeAlias = Callable[[str, Any, Headers], bytes | Serialized | None]
KEYED_DEFAULT: Final = "pyclient.partitioners:Murmur2Partitioner"
"""Java's hash: the same key goes to the same partition. Named, not imported: plugins are above this layer."""


class Router:
    """The serializers and the partitioner of one producer."""

    def __init__(self, config: ProducerConfig) -> None:
        key = _serializer("key", config.key_serializer, may_drop=False)
        value = _serializer("value", config.value_serializer, may_drop=config.allow_tombstones)
        self.key: Serialize = key.serialize
        """(topic, key, headers) → the key's bytes; also `Serialized` if *adds_headers*."""
        self.value: Serialize = value.serialize
        """(topic, value, headers) → the value's bytes; also `Serialized` if *adds_headers*."""
        self.adds_headers = key.adds_headers or value.adds_headers
        self.prepare_key, self.prepare_value = key.prepare, value.prepare
        """(topic, key or value); None when there is nothing to await before it is serialized."""
        self.serialized = frozenset(
            name for name, given in (("key", config.key_serializer), ("value", config.value_serializer)) if given is not None)
        """Which of key and value have a serializer."""
        partitioner = load_plugin("partitioner", config.partitioner or KEYED_DEFAULT)
        default = config.partitioner is None
        self._partitioner: Partitioner = partitioner
        self._keyed_only = default
        self._ignores_keys = default and config.partitioner_ignore_keys
        self.key_hash = None if self._ignores_keys else _key_hash(partitioner)
        """The capsule with the partitioner's hash function (`HashesKeys`), which chooses for records with a key; None
        when it has none."""
        self.on_new_batch = NewBatchNotifier(partitioner) if isinstance(partitioner, SeesNewBatches) else None
        """Notifies the partitioner of new batches; None when it has no method for that."""
        self.partition = PartitionChoice(partitioner, keyed_only=default, ignore_keys=self._ignores_keys).partition
        """(queues, key, value, the requested partition or None) → the partition, or `STICKY`."""

    def send_path(self, accumulator: Accumulator) -> SendPath | None:
        """The compiled path for records that need neither a serializer nor a partitioner in Python; None when there can
        be none.
        """
        if self.serialized:
            return None
        return SendPath(accumulator, ignore_keys=self._ignores_keys, keyless_sticky=self._keyed_only or self.key_hash is not None, key_hash=self.key_hash)

    def arrow_path(self, accumulator: Accumulator, observer: Observer) -> ArrowPath | None:
        """The compiled path for Arrow's rows; None when a serializer or a partitioner in Python sees each."""
        return None if self.serialized or self.chooses(keyed=True) else ArrowPath(accumulator, observer, self.key_hash)

    @property
    def prepares(self) -> bool:
        """Whether an async producer awaits something before it serializes."""
        return self.prepare_key is not None or self.prepare_value is not None

    def chooses(self, *, keyed: bool) -> bool:
        """Whether a bulk must call `partition` for each record; *keyed*: its records have keys."""
        if self._ignores_keys or (self._keyed_only and not keyed):
            return False
        return self.key_hash is None


def _serializer(what: str, given: object, *, may_drop: bool) -> LoadedSerializer:
    if given is not None:
        return load_serializer(given, what, may_drop=may_drop)
    return LoadedSerializer(lambda topic, item, headers: item if item is None or type(item) is bytes else as_bytes(what, item))


def with_added(key: Any, value: Any, headers: Headers) -> tuple[Any, Any, Headers]:
    """Bytes of key and value, and *headers* with those that the serializers added."""
    key, headers = unpack(key, headers)
    value, headers = unpack(value, headers)
    return key, value, headers


def _key_hash(partitioner: Partitioner) -> object:
    if not isinstance(partitioner, HashesKeys) or not _from_one_class(partitioner, "key_hash", "partition"):
        return None
    return partitioner.key_hash()


def _from_one_class(plugin: object, *methods: str) -> bool:
    """Whether one class defines all of *methods*: else a subclass, or the object itself, has overridden only some of
    them.
    """
    if any(method in getattr(plugin, "__dict__", ()) for method in methods):
        return False
    classes = {next((each for each in type(plugin).__mro__ if method in vars(each)), None) for method in methods}
    return len(classes) == 1 and None not in classes


class NewBatchNotifier:
    """Calls a partitioner's ``on_new_batch``.

    What that raises is logged: the record that began the batch is queued already.
    """

    def __init__(self, partitioner: SeesNewBatches) -> None:
        self._partitioner = partitioner

    def __call__(self, topic: str, partition: int) -> None:
        """Called by the thread whose record began the batch, outside of any lock."""
        try:
            self._partitioner.on_new_batch(topic, partition)
        except Exception:  # noqa: BLE001 the user's code
            _log.exception("%s.on_new_batch raised; the record is queued nevertheless", type(self._partitioner).__name__)
