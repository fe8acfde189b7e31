"""Defaults of Avro fields, which schemas hold as JSON, in Avro's binary encoding.

Knows schemas as fastavro parsed them; a default goes the same way as data from then on.
"""
from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, Final

from pyclient.errors import ConfigurationError


def encoded_default(field: Mapping[str, Any], named: Mapping[str, Any]) -> bytes:
    """The default of *field*. *named* has the types that its own type refers to.

    Raises:
        ConfigurationError: it is not of the field's type.
    """
    try:
        return _encoded(field["type"], field["default"], named)
    except (TypeError, ValueError, LookupError, AttributeError, struct.error) as error:
        raise ConfigurationError(f"Avro schema: the default of the field {field['name']} is not of its type: {error!r}") from error


def _encoded(schema: Any, value: Any, named: Mapping[str, Any]) -> bytes:
    if isinstance(schema, list):  # a default is of the first branch, and since Avro 1.12 of any
        return _of_union(schema, value, named)
    if isinstance(schema, dict) and not isinstance(schema["type"], str):
        return _encoded(schema["type"], value, named)
    kind = schema["type"] if isinstance(schema, dict) else schema
    if kind in ("record", "error"):
        return b"".join(_encoded(each["type"], value[each["name"]] if each["name"] in value else each["default"], named) for each in schema["fields"])
    if kind == "array":
        return _block([_encoded(schema["items"], each, named) for each in value])
    if kind == "map":
        return _block([_text(key) + _encoded(schema["values"], each, named) for key, each in value.items()])
    if kind in _LEAVES:
        return _LEAVES[kind](schema, value)
    return _encoded(named[kind], value, named)


def _of_union(branches: list[Any], value: Any, named: Mapping[str, Any]) -> bytes:
    for place, branch in enumerate(branches):
        if (value is None) == (branch == "null"):
            try:
                return number(place) + _encoded(branch, value, named)
            except (TypeError, ValueError, LookupError, AttributeError, struct.error):
                continue
    raise ValueError(value)


def _block(items: list[bytes]) -> bytes:
    return (number(len(items)) + b"".join(items) if items else b"") + number(0)


def number(value: int) -> bytes:
    """A zigzag number."""
    left, made = (value << 1) ^ (value >> 63), bytearray()
    while left > 0x7F:
        made.append(left & 0x7F | 0x80)
        left >>= 7
    return bytes([*made, left])


def _integer(_schema: Any, value: Any) -> bytes:
    if type(value) is not int:
        raise TypeError(value)
    return number(value)


def _boolean(_schema: Any, value: Any) -> bytes:
    if type(value) is not bool:
        raise TypeError(value)
    return bytes([value])


def _text(value: str, encoding: str = "utf-8") -> bytes:
    content = value.encode(encoding)
    return number(len(content)) + content


def _null(_schema: Any, value: Any) -> bytes:
    if value is not None:
        raise TypeError(value)
    return b""


_LEAVES: Final[Mapping[str, Callable[[Any, Any], bytes]]] = {
    "null": _null, "boolean": _boolean, "int": _integer, "long": _integer,
    "float": lambda _, value: struct.pack("<f", value), "double": lambda _, value: struct.pack("<d", value),
    "string": lambda _, value: _text(value), "bytes": lambda _, value: _text(value, "latin-1"),
    "fixed": lambda _, value: value.encode("latin-1"), "enum": lambda schema, value: number(schema["symbols"].index(value))}
