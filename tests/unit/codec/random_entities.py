"""Random kio entities: every field over the whole range of its type, edges often, made from the schema's own fields.

A seed decides them. Strategies of hypothesis take hundreds of times as long, and there are hundreds of schemas.
"""
from __future__ import annotations

import dataclasses
import datetime
import types
import typing
import uuid
from collections.abc import Callable
from random import Random
from typing import Any, Final

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode

from pyclient.codec.apis import SPOKEN
from pyclient.codec.schemas import Message, Schema, fields_of, schema_of

EPOCH: Final = datetime.datetime(1970, 1, 1, tzinfo=datetime.timezone.utc)
MILLISECOND: Final = datetime.timedelta(milliseconds=1)
SPOKEN_PAIRS: Final = [(api, version) for api, spoken in SPOKEN.items() for version in range(spoken.low, spoken.high + 1)]
RESPONSES: Final = [load_response_schema(api, version) for api, version in SPOKEN_PAIRS]
REQUESTS: Final = [load_request_schema(api, version) for api, version in SPOKEN_PAIRS]
YEAR_9999_S: Final = 253_402_300_799
_LETTERS: Final = ((0, 0x7F), (0x80, 0x7FF), (0x800, 0xD7FF), (0xE000, 0xFFFF), (0x10000, 0x10FFFF))
"""Characters of one to four bytes; without surrogates."""


def our_schema(schema: Any) -> Schema:
    """Ours of one of kio's messages."""
    return schema_of(schema.__name__, schema.__version__)


def plain(value: Any) -> Any:
    """One of our messages or of kio's entities as mappings, to compare them."""
    if isinstance(value, tuple):
        return tuple(map(plain, value))
    if isinstance(value, Message):
        return {name: plain(each) for name, each in fields_of(value).items()}
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def number(low: int, high: int) -> Callable[[Random], int]:
    """Every integer of this range, its edges often."""
    edges = [edge for edge in (low, -1, 0, 1, high) if low <= edge]
    return lambda chance: chance.choice(edges) if chance.random() < 0.5 else chance.randint(low, high)


def optional(make: Callable[[Random], Any]) -> Callable[[Random], Any]:
    """None at times."""
    return lambda chance: make(chance) if chance.randrange(3) else None


def text(chance: Random) -> str:
    """At most eight characters."""
    return "".join(chr(chance.randint(*chance.choice(_LETTERS))) for _ in range(chance.randrange(9)))


PLAIN: Final[dict[str, Callable[[Random], Any]]] = {
    "bool": lambda chance: chance.random() < 0.5,
    **{f"int{bits}": number(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": number(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "float64": lambda chance: chance.choice((0.0, -1.5, 1e308, 5e-324, float("inf"), chance.uniform(-1e9, 1e9))),
    "uuid": optional(lambda chance: uuid.UUID(int=chance.getrandbits(128))),
    "string": text,
    "bytes": lambda chance: chance.randbytes(chance.randrange(13)),
    "records": optional(lambda chance: chance.randbytes(chance.randrange(41))),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "timedelta_i32": lambda chance: number(-(2**31), 2**31 - 1)(chance) * MILLISECOND,
    "timedelta_i64": lambda chance: number(-(10**13), 10**13)(chance) * MILLISECOND,
    # Whole seconds: kio's writer and reader go through floating point and lose a millisecond after the year 2100.
    "datetime_i64": lambda chance: EPOCH + datetime.timedelta(seconds=number(0, YEAR_9999_S)(chance)),
}


def entities(schema: Any, count: int, seed: object = "") -> list[Any]:
    """So many entities of one kio class; other *seeds* have others."""
    chance = Random(f"{schema.__module__} {seed}")
    return [entity(schema, chance) for _ in range(count)]


def entity(schema: Any, chance: Random) -> Any:
    """One of them, nested ones included; a tagged field has its default often."""
    return schema(**{
        field.name: annotated(field.type, field.metadata.get("kafka_type"), chance)
        for field in dataclasses.fields(schema)
        if "tag" not in field.metadata or field.default is dataclasses.MISSING or chance.random() < 0.5})


def annotated(annotation: Any, kafka_type: str | None, chance: Random) -> Any:
    """A value of a field of this type."""
    if typing.get_origin(annotation) in (types.UnionType, typing.Union):
        inner = next(part for part in typing.get_args(annotation) if part is not types.NoneType)
        return annotated(inner, kafka_type, chance) if chance.randrange(3) else None
    if typing.get_origin(annotation) is tuple:
        return tuple(annotated(typing.get_args(annotation)[0], kafka_type, chance) for _ in range(chance.randrange(3)))
    if dataclasses.is_dataclass(annotation):
        return entity(annotation, chance)
    assert kafka_type is not None
    return PLAIN[kafka_type](chance)
