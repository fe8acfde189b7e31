# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

from pyclient.buffers.batch import Batch
from pyclient.net.lone_exchange import Lane

@final
class LaneRequest:
    lanes: list[Lane]
    batches: list[Batch]
    sent_at: float
    early: bool
    rest: bytes | None
    def __init__(self, first: Lane, batch: Batch) -> None: ...
    def add(self, lane: Lane, batch: Batch, most: int) -> bool: ...
