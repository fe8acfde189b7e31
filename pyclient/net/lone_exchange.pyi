# The compiled module's types; tests/test_tidy.py compares the names with the source.
from collections.abc import Callable
from typing import final

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch
from pyclient.buffers.batch_figures import RequestFigures, TopicFigures
from pyclient.buffers.delivery import BatchResult
from pyclient.buffers.queues import PartitionQueue
from pyclient.codec.produce import ProduceTerms
from pyclient.core.sending.sequencing import Leader, PartitionSequence
from pyclient.metric_values import Total, Windows
from pyclient.metrics import Metrics
from pyclient.net.connection import Connection
from pyclient.net.node_connections import NodeConnections
from pyclient.runtime.loop_lending import LendingSelector

@final
class Lane:
    connection: Connection
    sequence: PartitionSequence
    leader: Leader
    address: tuple[str | bytes, int]
    terms: ProduceTerms
    def __init__(self, connection: Connection, sequence: PartitionSequence, node: NodeConnections, *, leader: Leader, address: tuple[str | bytes, int],
                 terms: ProduceTerms, descriptor: int, stamp: tuple[int, int],
                 until: float, expiry: float, request: tuple[bytes, bytes], answer: tuple[bytes, bytes],
                 figures: tuple[Total, Windows, Windows, RequestFigures, TopicFigures]) -> None: ...

class LoneExchange:
    def put(self, queue: PartitionQueue, lane: Lane) -> None: ...
    def remove(self, queue: PartitionQueue) -> None: ...
    def __len__(self) -> int: ...
    def clear(self) -> list[tuple[PartitionQueue, Lane]]: ...
    def on_taken(self) -> None: ...
    @property
    def in_flight(self) -> bool: ...
    def close(self) -> None: ...

@final
class LentExchange(LoneExchange):
    def __init__(self, accumulator: Accumulator, selector: LendingSelector, clock: Callable[[], float], metrics: Metrics, *,
                 timers: tuple[int, int], patience: float, otherwise: Callable[[], object], hand_over: Callable[[list[Lane], list[Batch], float, bytes | None], object],
                 unknown: Callable[[int], bool]) -> None: ...
    def on_readable(self, descriptor: int) -> bool: ...
    def on_ready(self) -> None: ...
    def wait(self, result: BatchResult, seconds: float | None) -> bool: ...
    def hear(self, result: BatchResult | None) -> None: ...

@final
class LoopExchange(LoneExchange):
    def __init__(self, accumulator: Accumulator, runs_here: Callable[[], bool], clock: Callable[[], float], metrics: Metrics, *,
                 otherwise: Callable[[], object], hand_over: Callable[[list[Lane], list[Batch], float, bytes | None], object]) -> None: ...
    def on_ready(self) -> None: ...
    def take(self, connection: Connection, size: int) -> bool: ...
