"""Serdes: the bytes of Java's serializers, a round trip for every value, and one error for what does not fit."""
from __future__ import annotations

import contextlib
import math
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import ConfigurationError, SerializationError
from pyclient.serializing import as_deserializer, as_serializer
from pyclient.serializers import (
    BytesSerde,
    DoubleSerde,
    FloatSerde,
    IntegerSerde,
    JsonSerde,
    LongSerde,
    ShortSerde,
    StringSerde,
    UUIDSerde,
)

JAVA = Path(__file__).parents[1] / "data" / "serdes-4.3.1.txt"
PARSE: dict[str, Any] = {"short": int, "integer": int, "long": int, "float": float, "double": float, "string": str, "uuid": UUID}
ALL: list[Any] = [BytesSerde, DoubleSerde, FloatSerde, IntegerSerde, JsonSerde, LongSerde, ShortSerde, StringSerde, UUIDSerde]


def java_lines() -> list[list[str]]:
    return [line.split("\t") for line in JAVA.read_text("utf-8").splitlines()]


@pytest.mark.parametrize(("name", "text", "expected"), java_lines())
def test_serializers_write_and_read_javas_bytes(name: str, text: str, expected: str) -> None:
    value = PARSE[name](text.replace("Infinity", "inf"))
    assert as_serializer(name)("t", value, ()) == bytes.fromhex(expected)
    assert as_deserializer(name)("t", bytes.fromhex(expected), ()) == value


@pytest.mark.parametrize("serde", ALL)
def test_none_stays_none_both_ways(serde: Any) -> None:
    assert serde().serialize("t", None) is None
    assert serde().deserialize("t", None) is None


@given(st.integers(-(2**70), 2**70))
def test_whole_numbers_come_back_or_are_refused_never_cut(number: int) -> None:
    for serde, bits in ((ShortSerde(), 16), (IntegerSerde(), 32), (LongSerde(), 64)):
        if -(2 ** (bits - 1)) <= number < 2 ** (bits - 1):
            assert serde.deserialize("t", serde.serialize("t", number)) == number
        else:
            with pytest.raises(SerializationError, match=f"{bits} bits"):
                serde.serialize("t", number)


@given(st.floats())
def test_doubles_come_back_bit_by_bit(number: float) -> None:
    again = DoubleSerde().deserialize("t", DoubleSerde().serialize("t", number))
    assert again is not None
    assert again == number or (math.isnan(again) and math.isnan(number))


@given(st.floats(width=32))
def test_32_bit_floats_come_back_bit_by_bit(number: float) -> None:
    again = FloatSerde().deserialize("t", FloatSerde().serialize("t", number))
    assert again is not None
    assert again == number or (math.isnan(again) and math.isnan(number))


texts = st.text(st.characters(codec="utf-8"))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | texts,
    lambda inner: st.lists(inner) | st.dictionaries(texts, inner), max_leaves=20,
).filter(lambda value: value is not None)


@given(json_values)
def test_json_comes_back(value: Any) -> None:
    assert JsonSerde().deserialize("t", JsonSerde().serialize("t", value)) == value


@given(texts)
def test_text_comes_back(text: str) -> None:
    assert StringSerde().deserialize("t", StringSerde().serialize("t", text)) == text


@given(st.binary())
def test_whatever_bytes_come_only_the_serialization_error_escapes(data: bytes) -> None:
    for serde in ALL:
        with contextlib.suppress(SerializationError):
            serde().deserialize("t", data)


@pytest.mark.parametrize(
    ("serde", "value"),
    [
        (BytesSerde, "text"), (StringSerde, b"bytes"), (UUIDSerde, "text"), (IntegerSerde, 1.5), (IntegerSerde, True),
        (DoubleSerde, "1"), (FloatSerde, 1e39), (DoubleSerde, 10**400), (JsonSerde, {1, 2}), (JsonSerde, math.nan),
        (StringSerde, "\ud800"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_and_the_topic_named(serde: Any, value: object) -> None:
    with pytest.raises(SerializationError, match="topic 'orders'"):
        serde().serialize("orders", value)


@pytest.mark.parametrize(("serde", "data"), [(IntegerSerde, b"123"), (LongSerde, b"1234"), (UUIDSerde, b"\xff"), (StringSerde, b"\xff"),
                                             (JsonSerde, b"{"), (JsonSerde, b"[" * 100_000)])
def test_bytes_of_another_format_are_refused(serde: Any, data: bytes) -> None:
    with pytest.raises(SerializationError, match="topic 't'"):
        serde().deserialize("t", data)


def test_bytearray_and_memoryview_are_copied_to_bytes() -> None:
    assert BytesSerde().serialize("t", bytearray(b"ab")) == b"ab"
    assert BytesSerde().serialize("t", memoryview(b"ab")) == b"ab"


@pytest.mark.parametrize("wrap", [as_serializer, as_deserializer])
def test_an_async_function_is_refused_when_the_client_is_made(wrap: Any) -> None:
    class Method:
        async def serialize(self, topic: str, value: object) -> bytes:
            return b""

        deserialize = serialize

    async def function(value: object) -> bytes:
        return b""

    for spec in (function, Method()):
        with pytest.raises(ConfigurationError, match=r"serializer must be a plain function: nothing awaits an `async def` function"):
            wrap(spec)


@pytest.mark.parametrize("data", [b"[" * 200_000, b'{"a":' * 200_000, b"1" * 20_000, b"-" + b"9" * 20_000,
                                  b"\xff\xfe[", b'"\\ud800', b"\0" * 7, b"", b"[1,]"])
def test_hostile_json_raises_the_one_documented_error(data: bytes) -> None:
    with pytest.raises(SerializationError, match="is not JSON") as caught:
        JsonSerde().deserialize("t", data)
    assert len(str(caught.value)) < 600, "the message shows the beginning only"
