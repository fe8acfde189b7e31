"""Numbered records, and the verdict about those that were found: lost, doubled, misplaced, strange. Pure.

Every record carries its producer, its partition and its number in that stream; numbers of a stream count from 0 in the
order of ``send``.
"""
from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from pyclient import Delivery

SIZE: Final = 100


class Stream(NamedTuple):
    """What one producer sends to one partition."""

    producer: int
    partition: int


class Found(NamedTuple):
    """A record as a reader saw it: its place and its value."""

    partition: int
    offset: int
    value: bytes


class Verdict(NamedTuple):
    """What is wrong with a topic, in records."""

    found: int
    lost: int
    """Acknowledged, but not found."""
    doubled: int
    misplaced: int
    """Out of order by their first occurrence, or in the wrong partition."""
    strange: int
    """Found, but never sent."""


def value(stream: Stream, number: int) -> bytes:
    """The value of a record."""
    return (b"%d %d %d " % (stream.producer, stream.partition, number)).ljust(SIZE, b".")


def parse(found: Found) -> tuple[Stream, int]:
    """The stream and the number in a record's value."""
    producer, partition, number, _ = found.value.split(b" ", 3)
    return Stream(int(producer), int(partition)), int(number)


def judge(acknowledged: Mapping[Stream, Iterable[int]], sent: Mapping[Stream, int], records: Iterable[Found]) -> Verdict:
    """Compare the *acknowledged* numbers and the counts *sent* with all *records*, each partition's by offset."""
    seen: dict[Stream, set[int]] = {stream: set() for stream in sent}
    last = dict.fromkeys(sent, -1)
    count = doubled = misplaced = strange = 0
    for record in records:
        count += 1
        stream, number = parse(record)
        if not 0 <= number < sent.get(stream, 0):
            strange += 1
        elif number in seen[stream]:
            doubled += 1
        else:
            seen[stream].add(number)
            misplaced += number < last[stream] or record.partition != stream.partition
            last[stream] = max(last[stream], number)
    lost = sum(len(set(numbers) - seen[stream]) for stream, numbers in acknowledged.items())
    return Verdict(count, lost, doubled, misplaced, strange)


def acknowledged(deliveries: Mapping[Stream, list[Delivery]]) -> dict[Stream, list[int]]:
    """The numbers that the brokers have confirmed; everything must be settled."""
    return {stream: [number for number, each in enumerate(sent) if each.exception(0) is None] for stream, sent in deliveries.items()}
