"""Offsets in files, in the format of ``kafka-consumer-groups.sh --reset-offsets --export`` and ``--from-file``."""
from __future__ import annotations

import csv
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TypeAlias

from pyclient.admin.records import INT64_MAX
from pyclient.descriptions.groups import GroupOffset, OffsetReset
from pyclient.records import OffsetAndMetadata, TopicPartition

Offset: TypeAlias = int | OffsetAndMetadata | GroupOffset | OffsetReset
INT32_MAX = 2**31 - 1


def write_offsets(path: str | os.PathLike[str], offsets: Mapping[TopicPartition, Offset]) -> None:
    """Write offsets to a file of lines ``topic,partition,offset``, as Kafka's script writes and reads them.

    Takes what `Admin.group_offsets` (what is committed; partitions without are left out; ask with
    ``require_stable=True``) and `Admin.reset_group_offsets` (the offset after the reset) return, or offsets. A file
    that exists is replaced.

    Raises:
        OSError: the file cannot be written.
    """
    rows = [(tp.topic, tp.partition, number) for tp, given in sorted(offsets.items()) if (number := _number(given)) is not None]
    with Path(path).open("w", newline="", encoding="utf-8") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)


def read_offsets(path: str | os.PathLike[str]) -> dict[TopicPartition, int]:
    """Read such a file, for `Admin.alter_group_offsets`.

    Raises:
        ValueError: a line is not ``topic,partition,offset``, or a partition occurs twice; the error names the line.
        OSError: the file cannot be read.
    """
    found: dict[TopicPartition, int] = {}
    with Path(path).open(newline="", encoding="utf-8") as file:
        lines = csv.reader(file)
        for row in lines:
            if not row:
                continue
            tp, offset = _parsed(row, f"{os.fspath(path)}, line {lines.line_num}")
            if tp in found:
                raise ValueError(f"{os.fspath(path)}, line {lines.line_num}: {tp} occurs twice")
            found[tp] = offset
    return found


def _number(given: Offset) -> int | None:
    match given:
        case GroupOffset():
            return None if given.committed is None else given.committed.offset
        case OffsetReset():
            return given.after
        case OffsetAndMetadata():
            return given.offset
    return given


def _parsed(row: list[str], place: str) -> tuple[TopicPartition, int]:
    if len(row) != 3 or not row[0] or not all(_is_number(text) for text in row[1:]) or int(row[1]) > INT32_MAX or int(row[2]) > INT64_MAX:
        raise ValueError(f"{place}: expected topic,partition,offset, got {','.join(row)!r}")
    return TopicPartition(row[0], int(row[1])), int(row[2])


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()
