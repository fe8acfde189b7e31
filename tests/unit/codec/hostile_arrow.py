"""Sends Arrow data with damaged buffers and prints the outcome of each row, as JSON: ``python hostile_arrow.py``.

A process of its own for each case, since a read past a buffer's end may end it. One line per case: its name, rows per
chunk (0: as lists, -2: by the compiled path if it takes them), then each row's value, key and headers, or the text of
its error; or the error of the bulk.
The data is an IPC stream in memory that can be written: pyarrow trusts the offsets and lengths in it.
"""
from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, Literal, TypeAlias

import pyarrow
import pyarrow.ipc

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.fast_arrow import ArrowPath
from pyclient.buffers.deliveries import Deliveries, finish
from pyclient.buffers.delivery import Observer
from pyclient.buffers.rows import Rows
from pyclient.codec.arrow_input import Names, batches, plain_columns
from pyclient.codec.batches import read_batches
from tests.unit.buffers.accumulators import WALL_MS, Clock, accumulator
from tests.unit.buffers.bulks import no_conversion
from tests.unit.buffers.test_bulk import written

NAMES: Final = Names("value", "key", "headers", "timestamp", None)
WORDS: Final = [b"zero", b"one", b"two", b"three", b"four"]
LONG: Final = [word * 5 for word in WORDS]
PAIRS: Final[list[list[dict[str, Any]]]] = [[{"key": f"{word.decode()}{at}", "value": word} for at in range(2)] for word in WORDS]
PAIR: Final = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary())])
HUGE: Final = 2**31 - 1
COMPILED: Final = -2
Kind: TypeAlias = Literal["i", "q", "B"]


class Writable:
    """A table of five rows in an IPC stream whose bytes can be changed; *claimed* are the rows that its lengths say."""

    def __init__(self, columns: dict[str, Any], claimed: int = 5) -> None:
        table = pyarrow.table(columns)
        sink = pyarrow.BufferOutputStream()
        with pyarrow.ipc.new_stream(sink, table.schema) as writer:
            writer.write_table(table)
        self._memory = _claiming(sink.getvalue().to_pybytes(), claimed)
        self._whole = pyarrow.py_buffer(self._memory)
        self.batch = pyarrow.ipc.open_stream(self._whole).read_next_batch()

    def column(self, name: str) -> Any:
        return self.batch.column(name)

    def everything(self) -> bytes:
        """The stream's memory as it is now."""
        return bytes(self._memory)

    def numbers(self, array: Any, kind: Kind = "i", buffer: int = 1) -> memoryview[int]:
        """The numbers of a buffer of *array*, which can be changed."""
        found = array.buffers()[buffer]
        start = found.address - self._whole.address
        whole = found.size - found.size % struct.calcsize(kind)
        return memoryview(self._memory)[start:start + whole].cast(kind)


def _claiming(stream: bytes, rows: int) -> bytearray:
    """The stream with other lengths: first the batch's, then each column's, which its number of nulls follows."""
    out = bytearray(stream)
    numbers = memoryview(out).cast("q")
    found = [at for at, number in enumerate(numbers[:-1]) if number == 5]
    for at in found:
        if at == found[0] or numbers[at + 1] == 0:
            numbers[at] = rows
    return out


Made: TypeAlias = tuple[Writable, Callable[[], None]]
"""Data, and what damages it."""


def damage(data: Writable, array: Any, at: int, number: int, kind: Kind = "i", buffer: int = 1) -> Made:
    def change() -> None:
        data.numbers(array, kind, buffer)[at] = number

    return data, change


# --- cases ----------------------------------------------------------------------------------------------------------


def of_bytes(part: str, kind: Any, at: int, number: int) -> Made:
    """One offset of a column of bytes."""
    data = Writable({"value": pyarrow.array(WORDS, pyarrow.binary()), part: pyarrow.array(WORDS, pyarrow.binary()).cast(kind)})
    return damage(data, data.column(part), at, number, "q" if "large" in str(kind) else "i")


def of_headers(at: int, number: int) -> Made:
    """One offset of the lists of headers."""
    data = Writable({"value": WORDS, "headers": pyarrow.array(PAIRS, pyarrow.list_(PAIR))})
    return damage(data, data.column("headers"), at, number)


def of_header_parts(name: str, at: int, number: int) -> Made:
    """One offset of the headers' names or values."""
    data = Writable({"value": WORDS, "headers": pyarrow.array(PAIRS, pyarrow.list_(PAIR))})
    return damage(data, data.column("headers").values.field(name), at, number)


def of_views(number: int) -> Made:
    """The place of one long value in a column of views: its length, prefix, buffer and offset are four numbers."""
    data = Writable({"value": pyarrow.array(LONG, pyarrow.binary_view())})
    return damage(data, data.column("value"), 2 * 4 + 3, number)


def of_indices(number: int, name: str = "value") -> Made:
    """One index into a dictionary."""
    coded = pyarrow.array([word.decode() for word in WORDS]).dictionary_encode()
    data = Writable({"value": pyarrow.array(WORDS), name: coded})
    return damage(data, data.column(name).indices, 2, number)


def of_dictionary(number: int) -> Made:
    """One offset of a dictionary's values."""
    data = Writable({"value": pyarrow.array(WORDS).dictionary_encode()})
    return damage(data, data.column("value").dictionary, 2, number)


def of_topics(number: int) -> Made:
    """One offset of a column of topics."""
    data = Writable({"value": WORDS, "topic": ["orders"] * 5})
    return damage(data, data.column("topic"), 2, number)


def of_partitions(number: int, kind: Any) -> Made:
    """One number of a column of partitions; there is one partition."""
    data = Writable({"value": WORDS, "partition": pyarrow.array([0] * 5, kind)})
    return damage(data, data.column("partition"), 2, number, "q" if kind == pyarrow.int64() else "i")


def of_lengths(columns: dict[str, Any], rows: int) -> Made:
    """Rows that the buffers do not hold."""
    return Writable(columns, claimed=rows), lambda: None


def cases() -> Iterator[tuple[str, Made]]:
    for part in ("value", "key"):
        for kind in (pyarrow.binary(), pyarrow.large_binary(), pyarrow.string(), pyarrow.large_string()):
            for number in (-4, -HUGE, HUGE, 900_000, 20):
                yield f"{part} {kind} 2 = {number}", of_bytes(part, kind, 2, number)
    for at, number in ((0, -4), (5, 900_000), (5, -1)):
        yield f"value binary {at} = {number}", of_bytes("value", pyarrow.binary(), at, number)
        yield f"headers {at} = {number}", of_headers(at, number)
    for number in (-1, 1, 900_000, HUGE, -HUGE):
        yield f"headers 2 = {number}", of_headers(2, number)
        for name in ("key", "value"):
            yield f"headers {name} 3 = {number}", of_header_parts(name, 3, number)
    for number in (-1, 900_000, HUGE):
        yield f"views = {number}", of_views(number)
        yield f"indices = {number}", of_indices(number)
        yield f"indices of keys = {number}", of_indices(number, "key")
        yield f"indices of topics = {number}", of_indices(number, "topic")
        yield f"dictionary = {number}", of_dictionary(number)
        yield f"topics = {number}", of_topics(number)
    for rows in (50_000, 2**40, 2**62, -1):
        yield f"rows of values = {rows}", of_lengths({"value": WORDS}, rows)
        yield f"rows of timestamps = {rows}", of_lengths({"value": WORDS, "timestamp": range(5)}, rows)
        yield f"rows of partitions = {rows}", of_lengths({"value": WORDS, "partition": pyarrow.array([0] * 5, pyarrow.int32())}, rows)
        yield f"rows of headers = {rows}", of_lengths({"value": WORDS, "headers": pyarrow.array(PAIRS, pyarrow.list_(PAIR))}, rows)
        yield f"rows of views = {rows}", of_lengths({"value": pyarrow.array(LONG, pyarrow.binary_view())}, rows)


# --- sending --------------------------------------------------------------------------------------------------------


def outcomes(data: Any, buffers: Accumulator, *, chunk: int = 1000, before_chunk: Callable[[], None] = lambda: None) -> list[Any]:
    """Each row as it was sent, or the text of its error."""
    deliveries, first = Deliveries(Observer()), 0
    for batch in batches(data, names_of(data)):
        rows = Rows(deliveries, [buffers.topic("orders") or LookupError("orders")] * (1 + len(batch.topics)), ["orders"] * (1 + len(batch.topics)), no_conversion)
        for start in range(0, batch.rows, chunk):
            before_chunk()
            rows.load_columns(first + start, start, min(start + chunk, batch.rows), batch.value, batch.key, batch.headers,
                              batch.timestamp, batch.codes, batch.partition, WALL_MS)
            if not buffers.append_rows(rows):
                raise MemoryError("the accumulator is full")
        first += batch.rows
    return _found(finish(deliveries, first), written(buffers).get(0, []))


def _found(deliveries: Deliveries, stored: list[bytes]) -> list[Any]:
    records = (record for data in stored for batch in read_batches(data) for record in batch.records("orders", 0))
    found: list[Any] = []
    for at in range(len(deliveries)):
        error = deliveries[at].exception(0) if deliveries[at].done() else None
        found.append(str(error) if error is not None else _sent(next(records)))
    return [*found, *map(_sent, records)]


def _sent(record: Any) -> Any:
    return [_text(record.value), _text(record.key), [[name, _text(value)] for name, value in record.headers]]


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("latin-1")


def run(made: Made, chunk: int) -> object:
    """The outcome of each row, or the error of the bulk."""
    data, change = made
    buffers = accumulator(Clock(), memory=8_000_000, batch_size=2_000_000, max_request_size=4_000_000, partitions=1)
    path = ArrowPath(buffers, Observer(), None)
    path.learn(names_of(data.batch)[:4], plain_columns(data.batch, names_of(data.batch)))
    change()
    try:
        if chunk == COMPILED:
            return at_once(path, data.batch, buffers)
        return outcomes(data.batch, buffers, chunk=chunk) if chunk else as_lists(data.batch)
    except ValueError as error:
        return f"{type(error).__name__}: {error}"


def at_once(path: ArrowPath, data: Any, buffers: Accumulator) -> object:
    """By the compiled path, or as all others if that does not take them."""
    sent = path.send("orders", data, *names_of(data))
    return _found(sent, written(buffers).get(0, [])) if isinstance(sent, Deliveries) else outcomes(data, buffers)


def as_lists(data: Any) -> list[Any]:
    """The rows as interceptors and serializers get them."""
    return [batch.lists(0, batch.rows) for batch in batches(data, names_of(data), as_lists=True)]


def names_of(data: Any) -> Names:
    return NAMES._replace(**{part: part if part in data.schema.names else None for part in ("topic", "partition")})


def main() -> None:
    """Run each case in a child; with two rows at a time a chunk also begins and ends at the damaged offset."""
    for name, made in cases():
        child = os.fork()
        if not child:
            try:
                for chunk in (1000, 2, COMPILED, 0):
                    print(json.dumps([name, chunk, run(made, chunk)]), flush=True)
            finally:
                os._exit(0)
        _, status = os.waitpid(child, 0)
        if status:
            print(json.dumps([name, -1, f"crashed: {status}"]), flush=True)


if __name__ == "__main__":
    main()
