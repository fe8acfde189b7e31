# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable
from typing import final

from pyclient.buffers.batch_memory import BatchMemory
from pyclient.buffers.delivery import Observer
from pyclient.buffers.queues import TopicTable
from pyclient.buffers.ready_queues import ReadyQueues

@final
class PendingBatches:
    def __init__(
        self,
        topics: TopicTable,
        memory: BatchMemory,
        ready: ReadyQueues,
        largest_need: int,
        observer: Observer,
        clock: Callable[[], float],
    ) -> None: ...
    @property
    def unsettled(self) -> int: ...
    @property
    def largest_need(self) -> int: ...
