"""Rejections of a request or of one of its partitions."""
from __future__ import annotations

from typing import NamedTuple


class RecordError(NamedTuple):
    """Why one record of a batch was rejected."""

    at: int
    """Its index in the batch."""
    message: str


class RefusalError(Exception):
    """The answer is this error code."""

    def __init__(self, code: int, message: str | None = None, *, records: tuple[RecordError, ...] = (),
                 has_log_start: bool = True) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.records = records
        self.has_log_start = has_log_start
        """Whether the answer has the log start offset; for some errors real brokers leave it out."""
