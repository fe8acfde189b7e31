# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import Final

TOPIC_IDS_SINCE: Final = 13
NEWEST: Final = 17

class OnePartition:
    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int
    last_epoch: int
    most_bytes: int
    def __init__(self, topic_id: bytes, partition: int, leader_epoch: int, offset: int, last_epoch: int, most_bytes: int) -> None: ...

class UsualResponse:
    session_id: int
    topic_id: bytes | None
    partition: int
    high_watermark: int
    records: memoryview | None
    def __init__(self, session_id: int, topic_id: bytes | None = None, partition: int = -1, high_watermark: int = -1,
                 records: memoryview | None = None) -> None: ...

def knows(version: int) -> bool: ...
def encode_fetch(version: int, correlation_id: int, client_id: str | None, asked: OnePartition | None, wait_ms: int, min_bytes: int, max_bytes: int,
                 isolation: int, session_id: int, session_epoch: int, rack: str) -> bytes: ...
def usual_response(frame: bytes, correlation_id: int) -> UsualResponse | None: ...
