"""Dead letters: records that keep failing, stored byte for byte with their cause in headers."""
from __future__ import annotations

from typing import Any, Final

import attrs

from pyclient.records import Header
from pyclient.records.record import DecodedRecord, Record

_PREFIX: Final = "pyclient.dead-letter."
TOPIC: Final = f"{_PREFIX}topic"
PARTITION: Final = f"{_PREFIX}partition"
OFFSET: Final = f"{_PREFIX}offset"
TIMESTAMP: Final = f"{_PREFIX}timestamp"
ERROR: Final = f"{_PREFIX}error"
"""Module and class of the exception."""
MESSAGE: Final = f"{_PREFIX}message"
ATTEMPTS: Final = f"{_PREFIX}attempts"
LONGEST_MESSAGE: Final = 1000


@attrs.frozen
class Failure:
    """Why a record was given up."""

    error: BaseException
    attempts: int

    def headers(self, record: Record[Any, Any]) -> list[Header]:
        """Those of the record, then where it was and what happened."""
        kind = type(self.error)
        about = {
            TOPIC: record.topic, PARTITION: record.partition, OFFSET: record.offset, TIMESTAMP: record.timestamp,
            ERROR: f"{kind.__module__}.{kind.__qualname__}", MESSAGE: str(self.error)[:LONGEST_MESSAGE], ATTEMPTS: self.attempts}
        return [*record.headers, *((name, str(value).encode()) for name, value in about.items())]


def raw(record: Record[Any, Any]) -> tuple[Any, Any]:
    """Key and value as they were on the wire."""
    return (record.raw_key, record.raw_value) if isinstance(record, DecodedRecord) else (record.key, record.value)
