"""Protobuf messages with a schema registry: the data names the schema, and the message by its place in the file."""
from __future__ import annotations

import base64
from collections.abc import Collection
from typing import Any, ClassVar, Final, Generic, TypeVar

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import Headers
from pyclient.redaction import in_one_line
from pyclient.serializers.registry import RegistrySchema, SchemaReference, SchemaRegistryClient
from pyclient.serializers.registry_serde import RegistrySerde, SubjectName

M = TypeVar("M")
MOST_INDEXES: Final = 64
"""Messages inside each other, in the data's path to its message."""
WELL_KNOWN: Final = ("google/protobuf/", "google/type/", "confluent/")
"""Files that registries have built in."""


class ProtobufRegistrySerde(RegistrySerde, Generic[M]):
    """Messages of one generated class, which may be nested in another message.

    The files that the message's file imports are registered as references, under their names. The class reads, not the
    schema, which is asked for because of its rules; ``check_id=False`` reads without a registry: ids that it does not
    know and rules go unnoticed. The other arguments are those of `RegistrySerde`.
    """

    TYPE: ClassVar[str] = "PROTOBUF"

    def __init__(self, registry: SchemaRegistryClient, message: type[M], *, check_id: bool = True, subject: str | SubjectName = "topic",
                 auto_register: bool = True, use_latest: bool = False, normalize: bool = False, id_in: str = "value",
                 ignore_rules: Collection[str] = ()) -> None:
        super().__init__(registry, subject=subject, auto_register=auto_register, use_latest=use_latest, normalize=normalize, id_in=id_in,
                         ignore_rules=ignore_rules)
        if not hasattr(message, "DESCRIPTOR") or not hasattr(message, "FromString"):
            raise ConfigurationError(f"message: expected a generated class of Protobuf, got {message!r}; it needs pip install 'pyclient-kafka[protobuf]'")
        self._message: Any = message
        self._check_id = check_id
        self._indexes: Final = _encoded(message_indexes(self._descriptor()))

    def serialize(self, topic: str, value: M | None, headers: Headers = ()) -> Any:
        """The schema's id, the message's place in its file, and the message.

        Raises:
            SerializationError: the value is not a message of the class, or lacks required fields.
            SchemaRegistryError: the registry refuses the schema, or does not answer at its first use.
        """
        if value is None:
            return None
        if not isinstance(value, self._message):
            raise SerializationError(f"topic {topic!r}: expected a message {self._name()}, got {type(value).__name__}")
        found = self._schema_for(topic)
        try:
            return self._framed(found, value.SerializeToString(), self._indexes)
        except Exception as error:
            raise SerializationError(f"topic {topic!r}: the message {self._name()} cannot be written: {in_one_line(str(error))}") from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> M | None:
        """The message.

        Raises:
            SerializationError: the data is not a message of the class.
            SchemaRegistryError: the registry does not know the id, or does not answer and the id is new.
        """
        if data is None:
            return None
        framed = self._unframed(topic, data, headers)
        if self._check_id:
            self._writers(topic, framed)
        begin = _skipped(topic, framed.payload)
        try:
            message: M = self._message.FromString(framed.payload[begin:])
        except Exception as error:
            raise SerializationError(f"topic {topic!r}, schema {framed.schema_id}: the data is not a message {self._name()}: {in_one_line(str(error))}") from error
        return message

    async def prepare_deserialize_async(self, topic: str, data: bytes | None, headers: Headers = ()) -> None:
        """As in `RegistrySerde`; nothing to ask with ``check_id=False``."""
        if self._check_id:
            await super().prepare_deserialize_async(topic, data, headers)

    def is_prepared(self, topic: str, data: bytes | None, headers: Headers = ()) -> bool:
        """As in `RegistrySerde`; always with ``check_id=False``."""
        return not self._check_id or super().is_prepared(topic, data, headers)

    def _own_schema(self) -> RegistrySchema:
        """Called once per topic: it registers what the file imports."""
        return self._file(self._descriptor().file)

    def _descriptor(self) -> Any:
        return self._message.DESCRIPTOR

    def _name(self) -> str:
        return str(self._descriptor().full_name)

    def _file(self, file: Any) -> RegistrySchema:
        """The file's descriptor in Base64, as other clients register it; registries show it as .proto text."""
        references = tuple(self._reference(each) for each in file.dependencies if not each.name.startswith(WELL_KNOWN))
        return RegistrySchema(base64.b64encode(file.serialized_pb).decode(), self.TYPE, references)

    def _reference(self, file: Any) -> SchemaReference:
        schema = self._file(file)
        if self._auto_register:
            self.registry.register(file.name, schema, normalize=self._normalize)
        found = self.registry.lookup(file.name, schema, normalize=self._normalize)
        return SchemaReference(file.name, file.name, found.version or 1)


def message_indexes(descriptor: Any) -> list[int]:
    """The message's place in its file: the index of the outermost message, then of each one inside."""
    path: list[int] = []
    while descriptor.containing_type is not None:
        path.insert(0, [each.full_name for each in descriptor.containing_type.nested_types].index(descriptor.full_name))
        descriptor = descriptor.containing_type
    return [list(descriptor.file.message_types_by_name).index(descriptor.name), *path]


def _encoded(indexes: list[int]) -> bytes:
    """Their number and each of them as zigzag numbers; the first message of a file is a single 0."""
    if indexes == [0]:
        return b"\x00"
    return b"".join(map(_varint, [len(indexes), *indexes]))


def _varint(value: int) -> bytes:
    value, out = value << 1, bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def _skipped(topic: str, payload: bytes) -> int:
    """Where the message begins."""
    count, at = _number(topic, payload, 0)
    if not 0 <= count <= MOST_INDEXES:
        raise SerializationError(f"topic {topic!r}: {count} message indexes, more than {MOST_INDEXES}")
    for _ in range(count):
        _, at = _number(topic, payload, at)
    return at


def _number(topic: str, payload: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    for position in range(at, min(at + 5, len(payload))):
        value |= (payload[position] & 0x7F) << shift
        if payload[position] < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
    raise SerializationError(f"topic {topic!r}: the message indexes are cut off or not valid")
