"""Arbitrary bytes as control-plane responses: read or rejected with ProtocolError, in bounded memory."""
from __future__ import annotations

import contextlib
import tracemalloc
from random import Random
from typing import Final

import pytest

from pyclient.codec.entities import Reader
from pyclient.errors import ProtocolError
from tests.fuzz.programs import SEED
from tests.unit.codec.random_entities import RESPONSES, our_schema

EVERY_ANSWER = [pytest.param(schema, id=schema.__module__.removeprefix("kio.schema.")) for schema in RESPONSES]
FILLS: Final = (b"\0", b"\x01", b"\x02", b"\x7f", b"\xff", b"\0\0\0\x01", b"\0\0\x27\x10")
OBJECT_PER_BYTE: Final = 300
"""The most memory per byte of input: two bytes may become an entity object."""


def survives(schema: type, wire: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        Reader(wire).read(our_schema(schema))


@pytest.mark.parametrize("schema", EVERY_ANSWER)
def test_M12_arbitrary_bytes_are_read_or_rejected_with_ProtocolError(schema: type) -> None:
    chance = Random(f"{SEED} {schema.__module__}")
    for _ in range(50):
        wire = chance.randbytes(chance.randrange(300))
        try:
            survives(schema, wire)
        except BaseException:
            print(f"seed {SEED}: {wire.hex()}")
            raise


@pytest.mark.parametrize("schema", EVERY_ANSWER)
def test_M12_memory_grows_with_the_bytes_received_and_not_with_the_lengths_they_claim(schema: type) -> None:
    our_schema(schema)
    for fill in FILLS:
        wire = fill * (20_000 // len(fill))
        survives(schema, wire[:100])
        tracemalloc.start()
        try:
            survives(schema, wire)
            assert tracemalloc.get_traced_memory()[1] < len(wire) * OBJECT_PER_BYTE, fill
        finally:
            tracemalloc.stop()
