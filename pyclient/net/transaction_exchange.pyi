# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections import deque
from collections.abc import Callable
from typing import Any, final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch
from pyclient.buffers.delivery import BatchResult
from pyclient.buffers.queues import PartitionQueue
from pyclient.codec.end_txn import CommitFrames
from pyclient.core.calls import KnownCoordinator
from pyclient.core.transactions.usual import UsualTransactions
from pyclient.errors import KafkaError
from pyclient.metric_values import Total, Windows
from pyclient.metrics import Metrics
from pyclient.net.connection import Connection
from pyclient.net.lane_requests import LaneRequests
from pyclient.net.lone_exchange import Lane, LoneExchange
from pyclient.net.node_connections import NodeConnections
from pyclient.runtime.loop_lending import LendingSelector

@final
class CommitLane:
    connection: Connection
    known: KnownCoordinator
    version: int
    def __init__(self, connection: Connection, node: NodeConnections, known: KnownCoordinator, frames: CommitFrames, *, version: int,
                 descriptor: int, until: float, figures: tuple[Total, Windows]) -> None: ...

@final
class TransactionExchange(LoneExchange):
    begin_s: float
    commit_s: float
    commits: int
    sent: LaneRequests
    def __init__(self, accumulator: Accumulator, selector: LendingSelector, clock: Callable[[], float], metrics: Metrics, *,
                 timer: int, usual: UsualTransactions, limit: float, signals: tuple[Callable[[], Any], Callable[[Any], object]], refused: deque[KafkaError],
                 otherwise: Callable[[], object],
                 hand_over: Callable[[list[Lane], list[Batch], float, bytes | None], object],
                 resume: Callable[[CommitLane | None, float, bytes | None], object]) -> None: ...
    def arm(self, commits: CommitLane) -> None: ...
    def take_missed(self) -> PartitionQueue | None: ...
    def on_ready(self) -> None: ...
    def on_readable(self, descriptor: int) -> bool: ...
    def hear(self, result: BatchResult | None) -> None: ...
    def begin(self) -> bool: ...
    def commit(self) -> bool: ...
