"""How the model says no to one partition of a request."""
from __future__ import annotations

from typing import NamedTuple


class RecordError(NamedTuple):
    """Why one record of a batch was refused."""

    at: int
    """Its place in the batch."""
    message: str


class RefusalError(Exception):
    """A broker's answer for one partition is this error code."""

    def __init__(self, code: int, message: str | None = None, *, records: tuple[RecordError, ...] = (),
                 has_log_start: bool = True) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.records = records
        self.has_log_start = has_log_start
        """Whether the answer says where the log begins; for some errors real brokers do not."""
