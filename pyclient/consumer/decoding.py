"""What deserializers make of fetched records, and what async consumers await before that.

Independent of positions. Rule: nothing here waits; a record that is not prepared stays in the buffer until it is.
"""
from __future__ import annotations

from typing import Any, Final, TypeAlias

import attrs

from pyclient.buffers.collect import Decode
from pyclient.config import ConsumerConfig
from pyclient.errors import SchemaRegistryError, SerializationError
from pyclient.records import Headers, TopicPartition
from pyclient.records.record import Record, decoded
from pyclient.runtime.portals import LoopPortal, ThreadPortal
from pyclient.serializing import LoadedDeserializer, load_deserializer

RecordId: TypeAlias = tuple[str, int, int]


class UnpreparedError(Exception):
    """A deserializer would block at *record*: await its preparation, and take the record again. Users never see it."""

    def __init__(self, record: Record[Any, Any]) -> None:
        super().__init__(record)
        self.record = record


class Decoder:
    """Applies the deserializers of one consumer; *awaits*: a record that is not prepared raises UnpreparedError."""

    def __init__(self, config: ConsumerConfig, *, awaits: bool) -> None:
        self._key = _deserializer("key", config.key_deserializer)
        self._value = _deserializer("value", config.value_deserializer)
        self._on_error = config.on_deserialization_error
        self._prepared: RecordId | None = None
        """The record that was prepared last; it is decoded whatever ``is_prepared`` says."""
        self._failure: tuple[str, SerializationError] | None = None
        """What failed as that record was prepared: "key" or "value", and the error."""
        self.decode: Final[Decode] = self._decode_prepared if awaits and (self._key.prepare or self._value.prepare) else self._decode

    async def prepare(self, record: Record[Any, Any]) -> None:
        """Await what *record* needs; an error is raised when it is decoded."""
        self._prepared = self._failure = None
        what = "key"
        try:
            await _prepare(self._key, record.topic, record.key, record.headers)
            what = "value"
            await _prepare(self._value, record.topic, record.value, record.headers)
        except SerializationError as error:
            self._failure = what, error
        self._prepared = _id(record)

    def _decode_prepared(self, record: Record[Any, Any]) -> Record[Any, Any] | None:
        if self._prepared == _id(record):
            self._prepared = None
            failure, self._failure = self._failure, None
            return self._decode(record) if failure is None else self._reject(record, *failure)
        what = "key"
        try:
            ready = _is_prepared(self._key, record.topic, record.key, record.headers)
            what = "value"
            ready = ready and _is_prepared(self._value, record.topic, record.value, record.headers)
        except SerializationError as error:
            return self._reject(record, what, error)
        if not ready:
            raise UnpreparedError(record)
        return self._decode(record)

    def _decode(self, record: Record[Any, Any]) -> Record[Any, Any] | None:
        """The record with what was made of it. One that is rejected raises, or goes to ``on_deserialization_error`` and
        is None.
        """
        what = "key"
        try:
            made = self._key.deserialize(record.topic, record.key, record.headers)
            what = "value"
            return decoded(record, made, self._value.deserialize(record.topic, record.value, record.headers))
        except SerializationError as error:
            failed = error
        return self._reject(record, what, failed)

    def _reject(self, record: Record[Any, Any], what: str, error: SerializationError) -> Record[Any, Any] | None:
        """Raise *error* for *record*, or pass it to ``on_deserialization_error``, which skips the record.

        A registry that fails says nothing about the record: its error is raised as it is, and the record stays next.
        """
        if isinstance(error, SchemaRegistryError) and not error.is_unknown_schema:
            error.record, error.topic_partition = record, TopicPartition(record.topic, record.partition)
            raise error
        rejected = _rejected(record, what, error)
        if self._on_error is None:
            raise rejected from error
        rejected.__cause__ = error
        self._on_error(record, rejected)  # an exception of the handler replaces this one, and the record is not skipped
        return None


@attrs.frozen
class PrepareRecord:
    """The step that awaits `Decoder.prepare`."""

    decoder: Decoder
    record: Record[Any, Any]

    def run(self, portal: ThreadPortal) -> None:
        """As `Step.run`; deserializers of sync consumers block instead."""

    async def run_async(self, portal: LoopPortal) -> None:
        """As `Step.run_async`."""
        await self.decoder.prepare(self.record)


def decoder(config: ConsumerConfig, *, awaits: bool = False) -> Decoder | None:
    """The consumer's deserializers; None without any."""
    if config.key_deserializer is None and config.value_deserializer is None:
        return None
    return Decoder(config, awaits=awaits)


def _deserializer(what: str, given: object) -> LoadedDeserializer:
    return LoadedDeserializer(_unchanged) if given is None else load_deserializer(given, what)


async def _prepare(deserializer: LoadedDeserializer, topic: str, data: Any, headers: Headers) -> None:
    if deserializer.prepare is not None and not deserializer.is_prepared(topic, data, headers):
        await deserializer.prepare(topic, data, headers)


def _is_prepared(deserializer: LoadedDeserializer, topic: str, data: Any, headers: Headers) -> bool:
    return deserializer.prepare is None or deserializer.is_prepared(topic, data, headers)


def _id(record: Record[Any, Any]) -> RecordId:
    return record.topic, record.partition, record.offset


def _rejected(record: Record[Any, Any], what: str, error: SerializationError) -> SerializationError:
    return SerializationError(f"the {what} of the record at offset {record.offset}: {error.message}. seek() past it to go on.",
                              topic_partition=TopicPartition(record.topic, record.partition), record=record)


def _unchanged(topic: str, data: bytes | None, headers: Headers) -> bytes | None:
    return data
