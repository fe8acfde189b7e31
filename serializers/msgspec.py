"""JSON of msgspec's models."""
from __future__ import annotations

import re
from typing import Final, Generic, TypeVar

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import Headers
from pyclient.redaction import in_one_line
from pyclient.serializers.json_engines import path_of_not_finite

M = TypeVar("M")
PLACE: Final = re.compile(r"(.*) - at `\$\.?(.*)`", re.DOTALL)
"""What is wrong, and where, in an error of msgspec."""


class MsgspecSerde(Generic[M]):
    """JSON of a ``msgspec.Struct``, or of any type that msgspec converts: dataclasses, attrs classes, typed dicts.

    None stays None. Msgspec checks types when it reads, not when it writes; so what was written is read back, which
    costs less than a microsecond for a small record. ``validate=False`` switches that off.

    Raises:
        ConfigurationError: msgspec cannot convert the type, or the extra ``msgspec`` is missing.
    """

    def __init__(self, model: type[M], *, validate: bool = True) -> None:
        try:
            import msgspec
        except ImportError as error:
            raise ConfigurationError(f"MsgspecSerde needs the package msgspec ({error}); install it with pip install 'pyclient-kafka[msgspec]'") from error
        self._builtins = msgspec.to_builtins
        self._validate = validate
        self._encode = msgspec.json.Encoder().encode
        try:
            self._decode = msgspec.json.Decoder(model).decode
        except TypeError as error:
            raise ConfigurationError(f"MsgspecSerde: {model!r} cannot be converted: {in_one_line(str(error), 300)}") from error

    def serialize(self, topic: str, value: M | None, headers: Headers = ()) -> bytes | None:
        """The JSON text.

        Raises:
            SerializationError: the value does not fit the model; the message has the path of the field.
        """
        if value is None:
            return None
        try:
            data = self._encode(value)
            wrong = path_of_not_finite(self._builtins(value)) if b"null" in data else None
            if self._validate and wrong is None:
                self._decode(data)
        except Exception as error:  # of the model's own methods, too
            raise SerializationError(f"topic {topic!r}: {_described(error)}") from error
        if wrong is not None:
            raise SerializationError(f"topic {topic!r}: {wrong}: the number is not finite, and JSON has no such number")
        return data

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> M | None:
        """The model's object.

        Raises:
            SerializationError: the data is not JSON, or does not fit the model; the message has the path of the field.
        """
        if data is None:
            return None
        try:
            return self._decode(data)
        except Exception as error:  # of the model's own methods, too
            raise SerializationError(f"topic {topic!r}: {_described(error)}") from error


def _described(error: Exception) -> str:
    placed = PLACE.fullmatch(str(error))
    if placed is None:
        return in_one_line(str(error) or type(error).__name__, 300)
    return f"{placed[2].replace('[', '.[').lstrip('.')}: {in_one_line(placed[1], 300)}"
