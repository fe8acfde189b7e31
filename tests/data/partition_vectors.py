"""The inputs for which other clients' partitioners were run, and the files with the partitions that they chose.

`KEYS` are keys with the number of partitions; `TURNS` are tables of queue lengths with random draws. As a program
(``python -m tests.data.partition_vectors keys`` or ``turns``) it writes them for the programs beside it, which write
the chosen partitions.
"""
from __future__ import annotations

import hashlib
import struct
import sys
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Final, NamedTuple

DATA: Final = Path(__file__).parent
COUNT: Final = 12_000
MOST_PARTITIONS: Final = 1000
SPECIAL: Final = (b"", b"\x00", b"\x00" * 64, b"\xff" * 7, "grüße".encode(), "漢字かな".encode(), "😀".encode(), b"x" * 10_000)
DRAWS: Final = 32


class Turns(NamedTuple):
    """Queue lengths of the candidates, how many other partitions were left out, and random draws from 0 to 2^31 - 1."""

    lengths: list[int]
    left_out: int
    draws: list[int]


def _key(number: int) -> bytes:
    digest = hashlib.sha512(b"%d" % number).digest()
    match number % 4:
        case 0:
            return b"%d" % number
        case 1:
            return (digest * 3)[:number // 4 % 193]
        case 2:
            return "".join(chr(0x20 + 97 * each) for each in digest[:number // 4 % 32]).encode()
        case _:
            return b"order-%08d" % number


def _partitions(number: int) -> int:
    return 1 + int.from_bytes(hashlib.sha512(b"partitions of %d" % number).digest()[:4]) % MOST_PARTITIONS


def _turns(number: int) -> Turns:
    random = Random(number)
    count = 2 + (random.getrandbits(16) % 30 if number % 5 else random.getrandbits(16) % 998)
    longest = (1, 2, 8, 100)[number % 4]
    lengths = [random.getrandbits(16) % longest if random.getrandbits(2) else 0 for _ in range(count)]
    left_out = random.getrandbits(3) if number % 3 == 0 else 0
    return Turns(lengths, left_out, [random.getrandbits(31) for _ in range(DRAWS)])


KEYS: Final = [(key, _partitions(number)) for number, key in enumerate([*SPECIAL, *map(_key, range(COUNT - len(SPECIAL)))])]
TURNS: Final = [_turns(number) for number in range(400)]


def answers(name: str) -> list[int]:
    """The partitions that stand in a file of this folder."""
    return [each for (each,) in struct.iter_unpack(">H", (DATA / name).read_bytes())]


def as_bytes(numbers: list[int]) -> bytes:
    """Partitions as such a file holds them."""
    return struct.pack(f">{len(numbers)}H", *numbers)


def _questions(what: str) -> Iterator[bytes]:
    if what == "keys":
        for key, partitions in KEYS:
            yield struct.pack(">ii", partitions, len(key)) + key
    else:
        for lengths, left_out, draws in TURNS:
            yield struct.pack(f">iii{len(lengths)}i{len(draws)}i", len(lengths), left_out, len(draws), *lengths, *draws)


if __name__ == "__main__":
    sys.stdout.buffer.write(b"".join(_questions(sys.argv[1])))
