"""Serializers of whole Arrow columns: the Protocols of what `Producer.send_arrow` and `Records.to_arrow` take.

Their Avro ones are in `pyclient.serializers.avro_arrow`. Serializers of single values are in `pyclient.plugins`.
"""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from pyclient.records import Headers

if TYPE_CHECKING:
    import pyarrow as pa

    from pyclient.records.record import Record


class ColumnDecoder(Protocol):
    """Decodes a whole column of keys or values for `Records.to_arrow`: `pyclient.serializers.avro_arrow.AvroDecoder`.
    """

    @property
    def keeps_errors(self) -> bool:
        """Whether `decode` returns a column of errors, instead of raising."""

    def decode(self, data: pa.BinaryArray, headers: pa.ListArray[Any], record: Callable[[int], Record[Any, Any]], /, *, is_key: bool) -> tuple[pa.Array[Any], pa.Array[Any] | None]:
        """The decoded column of *data*, whose rows are as many, and with `keeps_errors` a column of messages.

        *headers* is the column of the records' headers. *record* returns a row's record, for errors."""


class ColumnEncoder(Protocol):
    """Encodes a whole column of keys or values for `Producer.send_arrow`, such as
    `pyclient.serializers.avro_arrow.AvroEncoder`."""

    @property
    def column(self) -> str | None:
        """The column's name in the data; None: ``key`` or ``value``."""

    def is_prepared(self, topic: str, /, *, is_key: bool) -> bool:
        """Whether `prepare` would not block. Must not block."""

    def prepare(self, topic: str, /, *, is_key: bool) -> None:
        """Called before `encode`, for each topic of its rows. May block: an async producer calls it in a thread then.
        """

    def encode(self, data: pa.Array[Any], /, *, topics: Sequence[str], places: Sequence[int] | None, first: int, is_key: bool) -> pa.Array[Any]:
        """The rows of *data* as a column of bytes, as many; a null is a tombstone. Must not block.

        Each row's topic is that at its place in *topics*; None: the first one. Rows of the topic "" are refused by the
        producer: they may be anything. *first* is the first row's index in what the user gave, for errors."""


@runtime_checkable
class AddsColumnHeaders(Protocol):
    """Optional power of a `ColumnEncoder`: it adds headers to the records of its column's rows."""

    def headers(self, topic: str, /, *, is_key: bool) -> Headers:
        """What each record of *topic* gets behind its own headers, unless its row is null. Called after `prepare`; must
        not block."""
