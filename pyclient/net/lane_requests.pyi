# The compiled module's types; tests/test_tidy.py compares the names with the source.
from typing import final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.queues import PartitionQueue
from pyclient.core.transactions.usual import UsualTransactions
from pyclient.net.lone_exchange import Lane

@final
class LaneRequests:
    def __init__(self, accumulator: Accumulator, usual: UsualTransactions, lanes: dict[PartitionQueue, Lane], *, epoll: int, bell: int) -> None: ...
