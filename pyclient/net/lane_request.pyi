# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

from pyclient.buffers.batch import Batch
from pyclient.net.lone_exchange import Lane

@final
class LaneRequest:
    def __init__(self, first: Lane, batch: Batch) -> None: ...
