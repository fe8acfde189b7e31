"""Randomly damaged control-plane responses: read or rejected with ProtocolError, in bounded memory."""
from __future__ import annotations

import contextlib
import io
import random
import tracemalloc
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_writer

from pyclient.codec.entities import Reader, schema_of
from pyclient.errors import ProtocolError
from tests.unit.codec.entity_strategies import RESPONSES, entities

EVERY_ANSWER = [pytest.param(schema, id=schema.__module__.removeprefix("kio.schema.")) for schema in RESPONSES]
HURTFUL: Final = [b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", b"\x80\0\0\0", b"\xff\xff\xff\xff\x0f", b"\xff" * 10, b"\xfe", b"\0"]
OBJECT_PER_BYTE: Final = 300
"""The most memory per byte of input: two bytes may become an entity object."""


def damaged(wire: bytes, random_: random.Random) -> bytes:
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


def survives(schema: type, wire: bytes) -> None:
    with contextlib.suppress(ProtocolError):
        Reader(wire).read(schema)


@pytest.mark.parametrize("schema", EVERY_ANSWER)
@settings(max_examples=4, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_M12_a_damaged_response_is_read_or_rejected_with_ProtocolError(schema: type, data: st.DataObject, seed: int) -> None:
    wire = written(data.draw(entities(schema)))
    random_ = random.Random(seed)
    for _ in range(60):
        survives(schema, damaged(wire, random_))


@pytest.mark.parametrize("schema", EVERY_ANSWER)
@settings(max_examples=20)
@given(wire=st.binary(max_size=300))
def test_M12_arbitrary_bytes_are_read_or_rejected_with_ProtocolError(schema: type, wire: bytes) -> None:
    survives(schema, wire)


@pytest.mark.parametrize("schema", EVERY_ANSWER)
@pytest.mark.parametrize("fill", [b"\0", b"\x01", b"\x02", b"\x7f", b"\xff", b"\0\0\0\x01", b"\0\0\x27\x10"])
def test_M12_memory_grows_with_the_bytes_received_and_not_with_the_lengths_they_claim(schema: type, fill: bytes) -> None:
    wire = fill * (20_000 // len(fill))
    schema_of(schema)
    survives(schema, wire[:100])
    tracemalloc.start()
    try:
        survives(schema, wire)
        assert tracemalloc.get_traced_memory()[1] < len(wire) * OBJECT_PER_BYTE
    finally:
        tracemalloc.stop()


def written(entity: Any) -> bytes:
    out = io.BytesIO()
    entity_writer(type(entity))(out, entity)
    return out.getvalue()
