# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final

from pyclient.codec.messages import Buffer

TOPIC_IDS_SINCE: Final[int]
NOT_THROTTLED: Final[timedelta]

class StoredResponse:
    @property
    def topic(self) -> str | bytes: ...
    @property
    def partition(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def append_time(self) -> int: ...
    @property
    def throttle_time(self) -> timedelta: ...

def encode_produce(version: int, correlation_id: int, client_id: str | None, acks: int, timeout_ms: int,
                   topics: Mapping[str | bytes, Sequence[tuple[int, Sequence[Buffer]]]],
                   transactional_id: str | None = None) -> list[Buffer]: ...
def stored_response(version: int, frame: bytes) -> StoredResponse | None: ...
