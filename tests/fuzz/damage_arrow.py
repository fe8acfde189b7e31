"""Sends randomly damaged Arrow data for a while and reports: ``python -m tests.fuzz.damage_arrow SECONDS SEED``.

A process of its own, so that a crash is a failed test and not a lost test run. The data is an IPC stream; offsets,
validity, indices, views and values are overwritten before a bulk and in the middle of it, and lengths claim other
rows. What is sent must come from the stream's memory: no other byte of this process may leave it.
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

from pyclient.codec.arrow_input import batches
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.unit.codec.hostile_arrow import HUGE, LONG, PAIR, WORDS, Kind, Writable, names_of, outcomes

ROWS: Final = 5
LISTS: Final = [[{"key": "k" * at, "value": b"v" * 50 * at}] * at for at in range(ROWS)]
WIDE: Final = pyarrow.struct([("key", pyarrow.large_string()), ("value", pyarrow.large_binary())])
VIEWS: Final = pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.binary_view())])
NUMBERS: Final = (-HUGE, -5, -1, 0, 1, 2, 5, 7, 8, 12, 100, 900_000, HUGE)
KINDS: Final[tuple[Kind, ...]] = ("i", "i", "q", "B")
COLUMNS: Final[dict[str, list[Any]]] = {
    "value": [
        pyarrow.array(WORDS, pyarrow.binary()), pyarrow.array(WORDS, pyarrow.large_binary()), pyarrow.array(LONG, pyarrow.binary_view()),
        pyarrow.array([*WORDS[1:], None], pyarrow.binary()), pyarrow.array([b"ab"] * ROWS, pyarrow.binary(2)),
        pyarrow.array([word.decode() for word in WORDS]).dictionary_encode(), pyarrow.array([word.decode() for word in LONG], pyarrow.string_view())],
    "headers": [pyarrow.array(LISTS, kind) for kind in (pyarrow.list_(PAIR), pyarrow.large_list(WIDE), pyarrow.list_(VIEWS))],
    "timestamp": [pyarrow.array(range(ROWS)), pyarrow.array([None, *range(1, ROWS)], pyarrow.timestamp("s"))],
    "partition": [pyarrow.array([0] * ROWS, pyarrow.int32()), pyarrow.array([None, *[0] * (ROWS - 1)], pyarrow.int64())],
    "topic": [pyarrow.array(["orders"] * ROWS), pyarrow.array(["orders"] * ROWS).dictionary_encode()],
}
COLUMNS["key"] = COLUMNS["value"]


def arrays(array: Any) -> list[Any]:
    """An array and those within it."""
    found = [array]
    if pyarrow.types.is_dictionary(array.type):
        found += [array.indices, array.dictionary]
    if pyarrow.types.is_list(array.type) or pyarrow.types.is_large_list(array.type):
        found += [array.values, *(each for name in ("key", "value") for each in arrays(array.values.field(name)))]
    return found


def damager(chance: random.Random, data: Writable) -> Callable[[], None]:
    """Overwrites one to three numbers or bytes of the buffers."""
    buffers = [(array, at) for name in data.batch.schema.names for array in arrays(data.column(name))
               for at, buffer in enumerate(array.buffers()) if buffer is not None and buffer.size >= 8]

    def damage() -> None:
        for _ in range(chance.choice((1, 1, 2, 3))):
            array, at = chance.choice(buffers)
            kind = chance.choice(KINDS)
            numbers = data.numbers(array, kind, at)
            numbers[chance.randrange(len(numbers))] = chance.choice(NUMBERS) & 0xFF if kind == "B" else chance.choice(NUMBERS)

    return damage


def once(chance: random.Random) -> tuple[int, int]:
    """One bulk; the numbers of records that were sent and refused."""
    parts = ["value", *(part for part in ("key", "headers", "timestamp", "topic", "partition") if chance.random() < 0.4)]
    claimed = chance.choice((ROWS,) * 20 + (0, 4, 6, 100, 2**40))
    try:
        data = Writable({part: chance.choice(COLUMNS[part]) for part in parts}, claimed)
    except (OSError, pyarrow.ArrowException):  # pyarrow refuses to read it
        return 0, 1
    sound = claimed == ROWS
    damage = damager(chance, data) if sound else lambda: None
    before = data.everything()
    moment = chance.randrange(4)
    rounds = iter(range(10))
    if moment == 0:
        damage()

    def before_chunk() -> None:
        if next(rounds) == moment - 1:
            damage()

    try:
        if chance.random() < 0.2:
            for batch in batches(data.batch, names_of(data.batch), as_lists=True):
                batch.lists(0, batch.rows)
            return 0, 0
        found = outcomes(data.batch, accumulator(Clock(), memory=2_000_000, partitions=1), chunk=2, before_chunk=before_chunk)
    except (ValueError, LookupError):
        return 0, 1
    sent = [row for row in found if isinstance(row, list)]
    check(sent, before + data.everything())
    return len(sent), len(found) - len(sent)


def check(sent: list[Any], memory: bytes) -> None:
    """Every value, key and header was in *memory*; names that were not UTF-8 are shown otherwise."""
    for value, key, headers in sent:
        parts = [text.encode("latin-1") for text in (value, key, *(value for _, value in headers)) if text is not None]
        for part in [*parts, *(name.encode() for name, _ in headers if "\ufffd" not in name)]:
            if part not in memory:
                raise AssertionError(f"sent {part!r}, which is not in the data")


def main(seconds: float, seed: int) -> None:
    """Damage and send for *seconds*; print the counts as JSON."""
    faulthandler.enable()
    rounds = sent = refused = 0
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        rounds += 1
        try:
            more = once(random.Random(f"{seed} {rounds}"))
        except BaseException:
            print(f"seed {seed}, round {rounds}", file=sys.stderr)
            raise
        sent += more[0]
        refused += more[1]
    print(json.dumps({"rounds": rounds, "sent": sent, "refused": refused}))


if __name__ == "__main__":
    main(float(sys.argv[1]), int(sys.argv[2]))
