# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import Final, NamedTuple

TOPIC_IDS_SINCE: Final = 13
NEWEST: Final = 17

class OnePartition(NamedTuple):
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    most_bytes: int

class EmptyResponse(NamedTuple):
    session_id: int

class OneResponse(NamedTuple):
    session_id: int
    topic_id: bytes
    partition: int
    high_watermark: int
    records: memoryview

def knows(version: int) -> bool: ...
def encode_fetch(version: int, correlation_id: int, client_id: str | None, asked: OnePartition | None, *, wait_ms: int, min_bytes: int, max_bytes: int,
                 isolation: int, session_id: int, session_epoch: int, rack: str) -> bytes: ...
def usual_response(frame: bytes, correlation_id: int) -> OneResponse | EmptyResponse | None: ...
