"""Offsets in Spark's own JSON form, and which ranges of them a batch reads.

Pure: knows no broker and no Spark. Rule: the same offsets always make the same text, for Spark compares texts.
"""
from __future__ import annotations

import heapq
import itertools
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final, TypeAlias

import attrs

from pyclient.errors import ConfigurationError
from pyclient.records import TopicPartition

Offsets: TypeAlias = dict[TopicPartition, int]
Json: TypeAlias = dict[str, dict[str, int]]

EARLIEST: Final = -2
LATEST: Final = -1
DATA_LOSS: Final = (
    "set failOnDataLoss=false to go on without them, and see that the topic keeps its data (retention.ms, retention.bytes) "
    "longer than this query may stand still"
)


@attrs.frozen
class OffsetRange:
    """What one task reads: the records of *tp* from offset *start* up to, not including, *end*."""

    tp: TopicPartition
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return f"{self.tp} offsets {self.start} to {self.end - 1}"

    def cut(self, pieces: int) -> list[OffsetRange]:
        """The same range in up to *pieces* parts of nearly one size, none empty."""
        pieces = min(pieces, len(self))
        edges = [self.start + len(self) * piece // pieces for piece in range(pieces + 1)]
        return [OffsetRange(self.tp, *edge) for edge in itertools.pairwise(edges)]


# ---- JSON -----------------------------------------------------------------------------------------------------------


def to_json(offsets: Mapping[TopicPartition, int]) -> Json:
    """``{"topic": {"0": 23}}``, topics and partitions in order."""
    nested: Json = {}
    for tp in sorted(offsets):
        nested.setdefault(tp.topic, {})[str(tp.partition)] = offsets[tp]
    return nested


def from_json(nested: Mapping[str, Mapping[str, int]]) -> Offsets:
    """The offsets that `to_json` wrote."""
    return {TopicPartition(topic, int(partition)): offset for topic, each in nested.items() for partition, offset in each.items()}


def parse_offsets(option: str, text: str, *, lowest: int = 0) -> Offsets:
    """A number per partition as users write it: ``{"topic": {"0": 23, "1": -2}}``.

    Raises:
        ConfigurationError: it is something else, or a number is below *lowest*.
    """
    try:
        return {tp: _number(number, lowest) for tp, number in from_json(_object(text)).items()}
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f'{option} = {text!r} is not understood ({error}): write a number per topic and partition, {{"topic": {{"0": 23}}}}',
            option=option) from None


def parse_partitions(option: str, text: str) -> tuple[TopicPartition, ...]:
    """Partitions as users write them: ``{"topic": [0, 1]}``.

    Raises:
        ConfigurationError: it is something else, or names no partition.
    """
    try:
        found = [TopicPartition(topic, _number(partition, 0)) for topic, each in _object(text).items() for partition in each]
    except (AttributeError, TypeError, ValueError) as error:
        raise ConfigurationError(
            f'{option} = {text!r} is not understood ({error}): write the partitions of each topic, {{"topic": [0, 1]}}',
            option=option) from None
    if not found:
        raise ConfigurationError(f'{option} = {text!r} names no partition: write {{"topic": [0, 1]}}', option=option)
    return tuple(sorted(set(found)))


def _object(text: str) -> dict[str, Any]:
    parsed = json.loads(text)
    if not isinstance(parsed, dict):
        raise TypeError(f"expected an object, got {type(parsed).__name__}")
    return parsed


def _number(value: Any, lowest: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < lowest:
        raise ValueError(f"{value!r} is not a whole number from {lowest} on")
    return value


# ---- how much a batch reads ------------------------------------------------------------------------------------------


def limited(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], most: int) -> Offsets:
    """*latest*, brought nearer to *start* so that about *most* records lie between, each partition in proportion.

    A partition with records always gets at least one: none starves behind a large one.
    """
    total = records_between(start, latest)
    if total <= most:
        return dict(latest)
    sizes = {tp: max(0, end - start[tp]) for tp, end in latest.items()}
    return {tp: start[tp] + _share(size, most, total) if size else latest[tp] for tp, size in sizes.items()}


def records_between(start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between."""
    return sum(max(0, end - start[tp]) for tp, end in latest.items())


def _share(size: int, most: int, total: int) -> int:
    return max(1, size * most // total)


def divided(ranges: Sequence[OffsetRange], *, at_least: int | None = None, most_records: int | None = None) -> list[OffsetRange]:
    """The ranges split into *at_least* or more, if they have as many offsets, none with more than *most_records*.

    The range whose parts are largest is split first.
    """
    counts = [math.ceil(len(each) / most_records) if most_records else 1 for each in ranges]
    largest = [(-len(each) / count, number) for number, (each, count) in enumerate(zip(ranges, counts, strict=True))]
    heapq.heapify(largest)
    for _ in range(sum(counts), min(at_least or 0, sum(map(len, ranges)))):
        number = largest[0][1]
        counts[number] += 1
        heapq.heapreplace(largest, (-len(ranges[number]) / counts[number], number))
    return [part for each, count in zip(ranges, counts, strict=True) for part in each.cut(count)]


def complete(option: str, given: Mapping[TopicPartition, int], partitions: Iterable[TopicPartition]) -> Offsets:
    """*given*, when it names exactly *partitions*.

    Raises:
        ConfigurationError: some are missing, or are not read by this query: a typing error that would lose data.
    """
    wanted = set(partitions)
    missing, extra = sorted(wanted - set(given)), sorted(set(given) - wanted)
    if missing or extra:
        faults = [f"{text} {', '.join(map(str, each))}" for text, each in (("lacks", missing), ("names", extra)) if each]
        raise ConfigurationError(
            f"{option} {' and '.join(faults)}: it must name every partition that is read, and no other "
            f"(-2 is the earliest offset, -1 the latest)", option=option)
    return dict(given)
