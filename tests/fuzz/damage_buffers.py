"""Sends changing memory and damaged structures, and reports: ``python -m tests.fuzz.damage_buffers SECONDS SEED``.

A process of its own, so that a crash is a failed test and not a lost test run. Values are buffers that another thread
fills with one byte and resizes: what is sent is such a value whole, or refused. Structures of the C stream interface
have damaged counts and lengths where Arrow promises to look at them; what is refused is freed once, by its owner.
"""
from __future__ import annotations

import array
import faulthandler
import json
import random
import sys
import threading
import time
from collections.abc import Iterator
from typing import Any, Final

import pyarrow

from pyclient.buffers.deliveries import Deliveries, finish
from pyclient.buffers.delivery import Observer
from pyclient.buffers.rows import Rows
from pyclient.producer.arguments import as_bytes
from tests.unit.buffers.accumulators import WALL_MS, Clock, accumulator
from tests.unit.codec.arrow_structures import ArrowArray, address_of
from tests.unit.codec.hostile_arrow import outcomes

SIZES: Final = (0, 1, 8, 200, 4096)
ROWS: Final = 30
SOUND: Final = [["a", "x", []], ["bc", "y", []], [None, "z", []]]


# --- buffers ---


class Changing:
    """Buffers whose bytes are all the same, rewritten and resized by a thread of its own.

    One assignment changes each, under the interpreter's lock; without that lock a copy may show two bytes, of a size
    that the buffer has had.
    """

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self.values: list[bytearray] = [bytearray(size) for size in SIZES]
        self.arrays = [array.array(kind, bytes(64)) for kind in "bHiqd"]
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._change, daemon=True)
        self._thread.start()

    def _change(self) -> None:
        while not self._stopped.is_set():
            value = self._chance.choice(self.values)
            size = self._chance.choice(SIZES)
            try:
                value[:] = bytes([self._chance.randrange(256)]) * size
            except BufferError:  # someone looks at it; its size stays
                value[:] = bytes([self._chance.randrange(256)]) * len(value)
            numbers = self._chance.choice(self.arrays)
            with_more = self._chance.random() < 0.5
            try:
                numbers.extend([0]) if with_more and len(numbers) < 1000 else numbers.pop() if len(numbers) > 8 else None
            except BufferError:
                numbers[0] = 0

    def stop(self) -> None:
        """End the thread."""
        self._stopped.set()
        self._thread.join()

    def value(self, chance: random.Random) -> Any:
        """A value that shares this memory, or one that is no memory of bytes any more."""
        whole = chance.choice(self.values)
        match chance.randrange(7):
            case 0:
                return memoryview(whole)[:: chance.choice((1, 2, -1, 3))]
            case 1:
                return memoryview(chance.choice(self.arrays))
            case 2:
                return chance.choice(self.arrays)  # no value: refused by its type
            case 3:
                view = memoryview(bytes(whole))
                view.release()
                return view
            case 4:
                return Lying(whole)
            case _:
                return whole


class Lying(bytearray):
    """Says other things of itself than its memory does."""

    def __len__(self) -> int:
        return 2**40

    def __getitem__(self, _: Any) -> Any:
        raise IndexError("nothing here")

    def __iter__(self) -> Iterator[int]:
        return iter(())


def send_buffers(chance: random.Random, changing: Changing) -> tuple[int, int]:
    """One bulk of such values and keys; the numbers of records that were sent and refused."""
    buffers = accumulator(Clock(), memory=8_000_000, batch_size=1_000_000, max_request_size=2_000_000, partitions=1)
    rows = Rows(Deliveries(Observer()), [buffers.topic("orders") or LookupError("orders")], ["orders"], _convert)
    values, keys = ([changing.value(chance) for _ in range(ROWS)] for _ in range(2))
    rows.load(0, values, keys, None, None, None, None, -1, WALL_MS)
    if not buffers.append_rows(rows):
        raise MemoryError("the accumulator is full")
    deliveries = finish(rows.deliveries, ROWS)
    refused = sum(deliveries[at].done() for at in range(ROWS))
    return ROWS - refused, refused


def _convert(what: str, item: Any) -> Any:
    made: Any = item if what in ("timestamp", "partition") else as_bytes(what, item)
    if isinstance(item, bytearray) and (len(set(made)) > 1 or len(made) not in SIZES):
        raise AssertionError(f"half of a value: {made[:40]!r}")
    return made


# --- structures of the C stream interface ---


class Damaged:
    """One record batch by the C interface, with a number changed that a reader can compare with another."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        columns: dict[str, Any] = {"value": [b"a", b"bc", None], "key": ["x", "y", "z"], "timestamp": [1, 2, 3]}
        self._batch: Any = pyarrow.record_batch(columns)
        self.schema = self._batch.schema

    def __arrow_c_array__(self, schema: Any = None) -> Any:
        shape, made = self._batch.__arrow_c_array__(schema)
        array = ArrowArray.from_address(address_of(made))
        column = array.children[self._chance.randrange(3)].contents
        match self._chance.randrange(6):
            case 0:
                array.n_children = self._chance.choice((-1, 0, 1, 2))
            case 1:
                column.n_buffers = self._chance.choice((-1, 0, 1, 7))
            case 2:
                column.length = self._chance.choice((-1, 0, 1, 2))
            case 3:
                array.length = self._chance.choice((-1, -(2**63), 4, 100, 2**31, 2**62))
            case 4:
                column.offset = -1  # a larger one ends pyarrow's import, which reads the last of the offsets
            case _:
                return shape, made
        return shape, made


class DamagedStream:
    """A stream whose producer is at fault: no capsule, one that was used, or an error."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self.schema = pyarrow.schema([("value", pyarrow.binary())])

    def __arrow_c_stream__(self, schema: Any = None) -> Any:
        match self._chance.randrange(4):
            case 0:
                return self._chance.choice((None, b"stream", object()))
            case 1:
                raise OSError("the stream is gone")
            case 2:
                table: Any = pyarrow.table({"value": [b"x"] * 3})
                made = table.__arrow_c_stream__(schema)
                pyarrow.RecordBatchReader._import_from_c_capsule(made).read_all()  # nothing is left in it
                return made
            case _:
                failing: Any = pyarrow.RecordBatchReader.from_batches(self.schema, self._failing())
                return failing.__arrow_c_stream__()

    def _failing(self) -> Iterator[Any]:
        yield pyarrow.record_batch([pyarrow.array([b"x"])], schema=self.schema)
        raise ValueError("no more")


def send_structure(chance: random.Random) -> tuple[int, int]:
    """One damaged structure; the numbers of records that were sent, and of bulks that were refused."""
    data = chance.choice((Damaged, DamagedStream))(chance)
    buffers = accumulator(Clock(), memory=2_000_000, partitions=1)
    try:
        found = outcomes(data, buffers)
    except (ValueError, TypeError, OSError, pyarrow.ArrowException):
        return 0, 1
    if not all(row in SOUND for row in found):
        raise AssertionError(f"sent {found}, which is not in the data")
    return len(found), 0


def main(seconds: float, seed: int) -> None:
    """Send for *seconds*; print the counts as JSON."""
    faulthandler.enable()
    sys.setswitchinterval(1e-5)
    changing = Changing(seed)
    rounds = sent = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rounds += 1
        chance = random.Random(f"{seed} {rounds}")
        try:
            more = send_buffers(chance, changing) if chance.random() < 0.5 else send_structure(chance)
        except BaseException:
            print(f"seed {seed}, round {rounds}", file=sys.stderr)
            raise
        sent += more[0]
        refused += more[1]
    changing.stop()
    print(json.dumps({"rounds": rounds, "sent": sent, "refused": refused}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
