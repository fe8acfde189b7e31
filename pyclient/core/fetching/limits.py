"""The options that rule fetching, as plain values."""
from __future__ import annotations

from typing import Final

import attrs

READ_COMMITTED: Final = 1


@attrs.frozen(kw_only=True)
class FetchLimits:
    """The options that rule fetching, in seconds and bytes."""

    min_bytes: int
    max_wait: float
    max_bytes: int
    max_partition_bytes: int
    buffer_memory: int
    decompression_limit: int
    check_crcs: bool
    isolation: int
    rack: str
    request_timeout: float
    replica_lease: float
    """How long a replica that a leader has named is read instead of it."""

    @property
    def timeout(self) -> float:
        """Seconds that a fetch may take: the broker may hold it."""
        return self.request_timeout + self.max_wait
