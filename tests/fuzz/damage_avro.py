"""Reads and writes randomly damaged Avro columns and reports: ``python -m tests.fuzz.damage_avro SECONDS SEED``.

A process of its own, so that a crash is a failed test and not a lost test run. Damaged payloads must be refused exactly
where the reader of single records refuses them, and leave sound columns. Damaged Arrow data, changed before it is
checked or behind that, must be refused, or become Avro data of bytes that are in it.
"""
from __future__ import annotations

import faulthandler
import json
import random
import sys
import time
from collections.abc import Callable
from typing import Any, Final

import pyarrow

from pyclient.codec.arrow_input import Names, batches
from pyclient.codec.avro_input import AvroInput
from pyclient.codec.avro_program import node_of
from pyclient.codec.avro_rows import AvroRows
from pyclient.errors import SerializationError
from pyclient.serializers.avro import AvroSerde
from pyclient.serializers.avro_arrow import AvroDecoder, AvroEncoder, large_binary
from tests.fuzz.damage_arrow import KINDS, NUMBERS
from tests.unit.codec.hostile_arrow import Writable
from tests.unit.test_avro_columns import outcome, outcomes, records_of

SCHEMA: Final[dict[str, Any]] = {"type": "record", "name": "R", "fields": [
    {"name": "s", "type": ["null", "string"]}, {"name": "b", "type": "bytes"}, {"name": "l", "type": "long"}, {"name": "t", "type": "boolean"},
    {"name": "a", "type": {"type": "array", "items": {"type": "record", "name": "I", "fields": [
        {"name": "x", "type": "string"}, {"name": "f", "type": {"type": "fixed", "name": "F", "size": 3}}]}}},
    {"name": "m", "type": {"type": "map", "values": ["null", {"type": "array", "items": "int"}]}},
    {"name": "e", "type": {"type": "enum", "name": "E", "symbols": ["X", "Y"]}},
    {"name": "n", "type": {"type": "array", "items": "null"}}, {"name": "d", "type": ["double", "null"]}]}
SERDE: Final = AvroSerde(SCHEMA)
NAMES: Final = Names("value", None, None, None, None, None)
ROWS: Final = 5


def value(chance: random.Random) -> dict[str, Any]:
    """A value of `SCHEMA`."""
    def text() -> str:
        return "".join(chance.choice("aé€😀") for _ in range(chance.randrange(4)))

    return {"s": chance.choice([None, text()]), "b": text().encode(), "l": chance.choice([0, -2**63, 2**63 - 1]), "t": chance.random() < 0.5,
            "a": [{"x": text(), "f": b"abc"} for _ in range(chance.randrange(3))], "m": {text(): chance.choice([None, [1, 2]]) for _ in range(chance.randrange(3))},
            "e": chance.choice("XY"), "n": [None] * chance.choice([0, 1, 3]), "d": chance.choice([None, 1.5])}


def payload(chance: random.Random) -> bytes:
    """Data of `SCHEMA`, mostly damaged: bytes changed, cut, added."""
    data = bytearray(SERDE.serialize("t", value(chance)) or b"")
    for _ in range(chance.choice((0, 1, 1, 2, 4))):
        at = chance.randrange(len(data) + 1)
        data[at : at + chance.choice((0, 1, 1, 1, 3, 100))] = chance.choice(
            (b"", bytes([chance.randrange(256)]), b"\xff" * chance.randrange(11), b"\x80\x80\x80\x80\x10", b"\x01", b"\x80\x80\x08"))
    return bytes(data)


def read_once(chance: random.Random) -> tuple[int, int]:
    """One batch of payloads; the numbers of rows that were read and refused."""
    data: list[bytes | None] = [payload(chance) for _ in range(chance.randrange(1, 9))]
    found = outcomes(SERDE, data)
    if repr(found) != repr([outcome(SERDE, each) for each in data]):  # by their text: NaN is not equal to itself
        raise AssertionError(f"columns and single records differ: {data}")
    read = sum(kind == "value" for kind, _ in found)
    return read, len(found) - read


def arrays(array: Any) -> list[Any]:
    """An array and those within it."""
    types, found = pyarrow.types, [array]
    if types.is_struct(array.type):
        found += [each for at in range(array.type.num_fields) for each in arrays(array.field(at))]
    elif types.is_map(array.type):
        found += arrays(array.keys) + arrays(array.items)
    elif types.is_list(array.type):
        found += arrays(array.values)
    return [*found, array.indices, array.dictionary] if types.is_dictionary(array.type) else found


def write_once(chance: random.Random) -> tuple[int, int]:
    """One batch of structs; the numbers of rows that were written and refused."""
    sound = [SERDE.serialize("t", value(chance)) for _ in range(ROWS)]
    column = records_of(sound).to_arrow(value=AvroDecoder(SERDE))["value"].combine_chunks()
    data = Writable({"value": column}, chance.choice((ROWS,) * 10 + (4, 6, 2**40)))
    buffers = [(array, at) for array in arrays(data.column("value")) for at, buffer in enumerate(array.buffers()) if buffer is not None and buffer.size >= 8]

    def damage() -> None:
        for _ in range(chance.choice((1, 1, 2, 3)) if buffers else 0):
            array, at = chance.choice(buffers)
            kind = chance.choice(KINDS)
            numbers = data.numbers(array, kind, at)
            numbers[chance.randrange(len(numbers))] = chance.choice(NUMBERS) & 0xFF if kind == "B" else chance.choice(NUMBERS)

    before = data.everything()
    made: list[bytes | None] = []
    try:
        if data.batch.num_rows == ROWS and chance.random() < 0.5:
            made = written_late(data.column("value"), damage)
        else:
            damage()
            made = written(data)
    except (ValueError, SerializationError):
        return 0, ROWS
    check(made, before + data.everything())
    return len(made), 0


def written(data: Writable) -> list[bytes | None]:
    """The rows as `send_arrow` makes them."""
    encoder = AvroEncoder(SERDE)
    encoder.prepare("t", is_key=False)
    made: list[bytes | None] = []
    for batch in batches(data.batch, NAMES, encoded=("value",), as_lists=True):
        batch.encode("value", lambda array, places: encoder.encode(array, topics=["t"], places=places, first=0, is_key=False))
        made += batch.lists(0, batch.rows)[0]
    return made


def written_late(array: Any, damage: Callable[[], None]) -> list[bytes | None]:
    """The rows up to the first that is refused, if the memory changes behind every check of Arrow's."""
    node = node_of(SERDE.schema.parsed)
    array.validate(full=True)
    fitted = AvroInput(node, array, strict=True)
    damage()
    rows = AvroRows(node.program(), fitted.buffers, len(array))
    count = rows.write(len(array), b"")
    found: list[bytes | None] = large_binary(rows, count).to_pylist()
    if not count:
        raise ValueError(rows.fault)
    return found


def check(made: list[bytes | None], memory: bytes) -> None:
    """Every text and bytes of what was written was in *memory*."""
    for each in made:
        try:
            row = SERDE.deserialize("t", each)
        except SerializationError:
            continue  # text that was changed behind the check is not UTF-8
        parts = [] if row is None else [row["b"], (row["s"] or "").encode(), *(item["x"].encode() for item in row["a"]), *(name.encode() for name in row["m"])]
        for part in parts:
            if part not in memory:
                raise AssertionError(f"wrote {part!r}, which is not in the data")


def main(seconds: float, seed: int) -> None:
    """Damage, read and write for *seconds*; print the counts as JSON."""
    faulthandler.enable()
    counts = dict.fromkeys(("rounds", "read", "unread", "written", "unwritten"), 0)
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        counts["rounds"] += 1
        chance = random.Random(f"{seed} {counts['rounds']}")
        try:
            for names, once in ((("read", "unread"), read_once), (("written", "unwritten"), write_once)):
                for name, more in zip(names, once(chance), strict=True):
                    counts[name] += more
        except BaseException:
            print(f"seed {seed}, round {counts['rounds']}", file=sys.stderr)
            raise
    print(json.dumps(counts))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
