# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

from pyclient.buffers.queues import TopicQueues
from pyclient.plugins import Partitioner

@final
class PartitionChoice:
    def __init__(self, partitioner: Partitioner, *, keyed_only: bool, ignore_keys: bool) -> None: ...
    def partition(self, queues: TopicQueues, key: bytes | None, value: bytes | None, wanted: int | None) -> int: ...
