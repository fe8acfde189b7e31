"""Reads randomly damaged responses for a while and reports: ``python -m tests.fuzz.damage_messages SECONDS SEED``.

A process of its own, so that a crash is a failed test and not a lost test run. Starts from a few sound responses of
every schema that the client reads. The data ends where an unreadable page begins.
"""
from __future__ import annotations

import faulthandler
import io
import json
import sys
import time
from random import Random
from typing import Any, Final

from kio.serial import entity_writer

from pyclient.codec.entities import Reader
from pyclient.errors import ProtocolError
from tests.fuzz.mutate import Fenced, peak_mib
from tests.unit.codec.random_entities import RESPONSES, entities, our_schema

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


def corpus(seed: int) -> list[tuple[Any, bytes]]:
    """Sound responses, each with its schema."""
    found = [(schema, written(entity)) for schema in RESPONSES for entity in entities(schema, EACH, seed)]
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
            Reader(fenced.holds(data)).read(our_schema(schema))
            read += 1
        except ProtocolError:
            refused += 1
        except BaseException:
            print(f"seed {seed}, round {rounds}: {schema.__module__} {data.hex()}", file=sys.stderr)
            raise
    print(json.dumps({"rounds": rounds, "read": read, "refused": refused, "grown_mib": peak_mib() - before}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
