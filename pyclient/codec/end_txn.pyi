# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

@final
class CommitFrames:
    producer_id: int
    epoch: int
    def __init__(self, version: int, client_id: str | None, transactional_id: str) -> None: ...
    def request(self, correlation_id: int, producer_id: int, epoch: int) -> bytearray: ...
    def is_answered_by(self, frame: bytes) -> bool: ...
