# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Final, NamedTuple

from pyclient.codec.messages import Buffer

TOPIC_IDS_SINCE: Final[int]
TAGS_AND_ONE: Final[bytes]
ONE: Final[int]
NOTHING_MORE: Final[bytes]
NOT_THROTTLED: Final[timedelta]
LATEST: Final[int]

class StoredResponse(NamedTuple):
    topic: str | bytes
    partition: int
    base_offset: int
    append_time: int
    throttle_time: timedelta

def encode_produce(version: int, correlation_id: int, client_id: str | None, *, acks: int, timeout_ms: int,
                   topics: Mapping[str | bytes, Sequence[tuple[int, Sequence[Buffer]]]],
                   transactional_id: str | None = None) -> list[Buffer]: ...
def stored_response(version: int, frame: memoryview) -> StoredResponse | None: ...
