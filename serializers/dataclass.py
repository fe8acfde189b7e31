"""JSON of dataclasses, without other packages."""
from __future__ import annotations

import dataclasses
from typing import Final, Generic, TypeVar

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import Headers
from pyclient.serializers.field_types import Converters, WrongValueError
from pyclient.serializers.json_engines import UNREADABLE, EngineName, json_engine

M = TypeVar("M")


class DataclassSerde(Generic[M]):
    """JSON of a dataclass. None stays None.

    Values are checked when they are written and read. Fields may be of these types: None, bool, int, float, str, Any;
    datetime, date, time, UUID, Decimal and bytes, as texts (ISO 8601; base64); enums, by their values, and literals;
    other dataclasses, itself too; lists, tuples and sets of these, dicts with texts as keys, and unions, with at most
    one member that JSON writes as a list, and one as an object. Data may lack fields that have a default; what the
    class lacks is left out. Fields with ``init=False`` are not written.

    *engine* is that of `JsonSerde`.

    Raises:
        ConfigurationError: the class is no dataclass, or has a field that cannot be converted.
    """

    def __init__(self, model: type[M], *, engine: EngineName = "json") -> None:
        if not dataclasses.is_dataclass(model):
            raise ConfigurationError(f"{model!r} is no dataclass: MsgspecSerde and PydanticSerde take other types too")
        self._name: Final = model.__qualname__
        self._engine = json_engine(engine)
        try:
            self._converter = Converters().of(model)
        except ConfigurationError as error:
            raise ConfigurationError(f"DataclassSerde: {error.message}. MsgspecSerde and PydanticSerde take more types") from error

    def serialize(self, topic: str, value: M | None, headers: Headers = ()) -> bytes | None:
        """The JSON text.

        Raises:
            SerializationError: the value does not fit the class; the message has the path of the field.
        """
        if value is None:
            return None
        try:
            return self._engine.write(self._converter.write(value))
        except WrongValueError as wrong:
            raise SerializationError(f"topic {topic!r}: {wrong}") from wrong.__cause__
        except UNREADABLE as error:
            raise SerializationError(f"topic {topic!r}: this {self._name} is not JSON: {error}") from error

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> M | None:
        """The object.

        Raises:
            SerializationError: the data is not JSON, or does not fit the class; the message has the path of the field.
        """
        if data is None:
            return None
        try:
            made: M = self._converter.read(self._engine.read(data))
        except WrongValueError as wrong:
            raise SerializationError(f"topic {topic!r}: {wrong}") from wrong.__cause__
        except UNREADABLE as error:
            raise SerializationError(f"topic {topic!r}: {data[:64]!r} is not JSON of {self._name}: {error}") from error
        return made
