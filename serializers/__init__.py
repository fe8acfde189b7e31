"""Serdes: keys and values to bytes and back, in the formats of Java's serializers. None stays None in all of them."""
from __future__ import annotations

from pyclient.serializers.numbers import DoubleSerde, FloatSerde, IntegerSerde, LongSerde, ShortSerde
from pyclient.serializers.texts import BytesSerde, JsonSerde, StringSerde, UUIDSerde

__all__ = [
    "BytesSerde",
    "DoubleSerde",
    "FloatSerde",
    "IntegerSerde",
    "JsonSerde",
    "LongSerde",
    "ShortSerde",
    "StringSerde",
    "UUIDSerde",
]
