"""Numbers as Java's serializers write them: big-endian, of one fixed size."""
from __future__ import annotations

import struct
from typing import ClassVar, Generic, TypeVar

from pyclient.errors import SerializationError, with_article
from pyclient.records import Headers


N = TypeVar("N", int, float)


class _Fixed(Generic[N]):
    """A number of one size. None stays None."""

    FORMAT: ClassVar[struct.Struct]
    WHAT: ClassVar[str]
    TYPES: ClassVar[tuple[type, ...]]

    def serialize(self, topic: str, value: N | None, headers: Headers = ()) -> bytes | None:
        """Big-endian bytes. Raises SerializationError for another type or a number out of range."""
        if value is None:
            return None
        if not isinstance(value, self.TYPES) or isinstance(value, bool):
            raise SerializationError(f"{value!r} of topic {topic!r} is {with_article(type(value).__name__)}, not {self.WHAT}")
        try:
            return self.FORMAT.pack(value)
        except (struct.error, OverflowError):
            raise SerializationError(f"{value!r} of topic {topic!r} does not fit {self.WHAT}") from None

    def deserialize(self, topic: str, data: bytes | None, headers: Headers = ()) -> N | None:
        """The number. Raises SerializationError when the size is another."""
        if data is None:
            return None
        if len(data) != self.FORMAT.size:
            raise SerializationError(
                f"{len(data)} B of topic {topic!r} are not {self.WHAT}: that has {self.FORMAT.size} B"
            )
        number: N = self.FORMAT.unpack(data)[0]
        return number


class ShortSerde(_Fixed[int]):
    """Java's Short: 16 bits, signed."""

    FORMAT, WHAT, TYPES = struct.Struct(">h"), "a whole number of 16 bits", (int,)


class IntegerSerde(_Fixed[int]):
    """Java's Integer: 32 bits, signed."""

    FORMAT, WHAT, TYPES = struct.Struct(">i"), "a whole number of 32 bits", (int,)


class LongSerde(_Fixed[int]):
    """Java's Long: 64 bits, signed."""

    FORMAT, WHAT, TYPES = struct.Struct(">q"), "a whole number of 64 bits", (int,)


class FloatSerde(_Fixed[float]):
    """Java's Float: IEEE 754, 32 bits; digits beyond those are lost."""

    FORMAT, WHAT, TYPES = struct.Struct(">f"), "a floating-point number of 32 bits", (float, int)


class DoubleSerde(_Fixed[float]):
    """Java's Double, and Python's float: IEEE 754, 64 bits."""

    FORMAT, WHAT, TYPES = struct.Struct(">d"), "a floating-point number of 64 bits", (float, int)
