"""JSON of pydantic's models."""
from __future__ import annotations

from typing import Any, Generic, TypeVar

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.records import Headers
from pyclient.redaction import in_one_line
from pyclient.serializers.json_engines import path_of_not_finite, path_text

M = TypeVar("M")


class PydanticSerde(Generic[M]):
    """JSON of a pydantic model, or of any type that a ``pydantic.TypeAdapter`` takes. None stays None.

    Fields have their aliases as names. The model's own rules say what is read: whether ``"5"`` is a number, for
    example. What is written has to have the types of the fields.

    Raises:
        ConfigurationError: pydantic cannot convert the type, or the extra ``pydantic`` is missing.
    """

    def __init__(self, model: type[M]) -> None:
        try:
            import pydantic
        except ImportError as error:
            raise ConfigurationError(f"PydanticSerde needs the package pydantic ({error}); install it with pip install 'pyclient-kafka[pydantic]'") from error
        self._invalid = pydantic.ValidationError
        try:
            self._adapter: pydantic.TypeAdapter[M] = pydantic.TypeAdapter(model)
        except (pydantic.errors.PydanticUserError, pydantic.errors.PydanticUndefinedAnnotation) as error:
            raise ConfigurationError(f"PydanticSerde: {model!r} cannot be converted: {in_one_line(error.message, 300)}") from error

    def serialize(self, topic: str, value: M | None, headers: Headers = ()) -> bytes | None:
        """The JSON text.

        Raises:
            SerializationError: the value does not fit the model; the message has the path of the field.
        """
        if value is None:
            return None
        try:
            data = self._adapter.dump_json(value, by_alias=True, warnings="error")
            wrong = path_of_not_finite(self._adapter.dump_python(value)) if b"null" in data else None
        except Exception as error:  # of the model's own serializers, too
            raise SerializationError(f"topic {topic!r}: {self._unfit(value) or _described(error)}") from error
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
            return self._adapter.validate_json(data)
        except self._invalid as error:
            raise SerializationError(f"topic {topic!r}: {_first(error)}") from error
        except Exception as error:  # of the model's own validators
            raise SerializationError(f"topic {topic!r}: {_described(error)}") from error

    def _unfit(self, value: M) -> str | None:
        """What the model would say about the fields of *value*, which it cannot write."""
        try:
            self._adapter.validate_json(self._adapter.dump_json(value, by_alias=True, warnings=False), strict=True)
        except self._invalid as error:
            return _first(error)
        except Exception:  # noqa: BLE001 then what was raised first is all that is known
            return None
        return None


def _first(error: Any) -> str:
    """The first error with its path."""
    wrongs = error.errors(include_url=False, include_context=False, include_input=False)
    more = f" (and {len(wrongs) - 1} more)" if len(wrongs) > 1 else ""
    return ": ".join(filter(None, [path_text(wrongs[0]["loc"]), in_one_line(wrongs[0]["msg"], 300)])) + more


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {in_one_line(str(error), 300)}"
