"""Reads randomly damaged responses for a while and reports: ``python -m tests.fuzz.damage_messages SECONDS SEED``.

A process of its own, so that a crash is a failed test and not a lost test run. Starts from a few sound responses of
every schema that the client reads. The data ends where an unreadable page begins.
"""
from __future__ import annotations

import dataclasses
import datetime
import faulthandler
import io
import json
import sys
import time
import types
import typing
import uuid
from collections.abc import Callable
from random import Random
from typing import Any, Final

from kio.index import load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer

from pyclient.codec.apis import SPOKEN
from pyclient.codec.entities import Reader
from pyclient.errors import ProtocolError
from tests.fuzz.mutate import Fenced, peak_mib

EACH: Final = 20
"""Sound responses of each schema."""
LARGEST: Final = 2**16
HURTFUL: Final = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\xfe", b"\0"]


def damaged(wire: bytes, random_: Random) -> bytes:
    """Flip, cut, repeat, or insert an extreme number."""
    data = bytearray(wire)
    for _ in range(random_.randint(1, 4)):
        at = random_.randint(0, len(data))
        kind = random_.randrange(5)
        if kind == 0 and at < len(data):
            data[at] ^= 1 << random_.randrange(8)
        elif kind == 1:
            del data[at : at + random_.randint(1, 8)]
        elif kind == 2:
            data[at:at] = data[at : at + 20] * random_.randint(1, 3)
        else:
            number = random_.choice(HURTFUL)
            data[at : at + len(number)] = number
    return bytes(data)


def written(entity: Any) -> bytes:
    """An entity as a broker sends it."""
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()


# ---- sound responses: hypothesis takes half a minute for as many ----------------------------------------------------


def number(low: int, high: int) -> Callable[[Random], int]:
    """From this range, its edges often."""
    return lambda chance: chance.choice((low, 0, 1, high, chance.randint(low, high)))


def optional(make: Callable[[Random], Any]) -> Callable[[Random], Any]:
    """None at times."""
    return lambda chance: make(chance) if chance.randrange(3) else None


def milliseconds(chance: Random) -> datetime.timedelta:
    """A duration that fits four bytes."""
    return datetime.timedelta(milliseconds=number(-(2**31), 2**31 - 1)(chance))


PLAIN: Final[dict[str, Callable[[Random], Any]]] = {
    "bool": lambda chance: chance.random() < 0.5,
    **{f"int{bits}": number(-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) for bits in (8, 16, 32, 64)},
    **{f"uint{bits}": number(0, 2**bits - 1) for bits in (8, 16, 32, 64)},
    "float64": lambda chance: chance.uniform(-1e9, 1e9),
    "uuid": optional(lambda chance: uuid.UUID(int=chance.getrandbits(128))),
    "string": lambda chance: "".join(chance.choices("a-.0\0\u00e9\u20ac\U0001f600", k=chance.randrange(9))),
    "bytes": lambda chance: chance.randbytes(chance.randrange(13)),
    "records": optional(lambda chance: chance.randbytes(chance.randrange(41))),
    "error_code": lambda chance: chance.choice(list(ErrorCode)),
    "timedelta_i32": milliseconds,
    "timedelta_i64": milliseconds,
    "datetime_i64": lambda chance: datetime.datetime.fromtimestamp(chance.randrange(2**32), datetime.timezone.utc),
}


def entity(schema: Any, chance: Random) -> Any:
    """A response of this schema, or a part of one; a tagged field has its default often."""
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


def corpus(seed: int) -> list[tuple[Any, bytes]]:
    """Sound responses, each with its schema."""
    chance = Random(seed)
    schemas = [load_response_schema(api, version) for api, spoken in SPOKEN.items() for version in range(spoken.low, spoken.high + 1)]
    found = [(schema, written(entity(schema, chance))) for schema in schemas for _ in range(EACH)]
    return [(schema, wire) for schema, wire in found if len(wire) < LARGEST]


def main(seconds: float, seed: int) -> None:
    """Damage and read for *seconds*; print the counts as JSON."""
    faulthandler.enable()
    chance = Random(seed)
    sources = corpus(seed)
    fenced = Fenced(4 * LARGEST)
    before = peak_mib()
    rounds = read = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        schema, wire = chance.choice(sources)
        data = damaged(wire, chance)
        rounds += 1
        try:
            Reader(fenced.holds(data)).read(schema)
            read += 1
        except ProtocolError:
            refused += 1
        except BaseException:
            print(f"seed {seed}, round {rounds}: {schema.__module__} {data.hex()}", file=sys.stderr)
            raise
    print(json.dumps({"rounds": rounds, "read": read, "refused": refused, "grown_mib": peak_mib() - before}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
