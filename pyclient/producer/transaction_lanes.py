"""Where a transactional producer's next transaction may do what the last one did (`pyclient.net.transaction_exchange`),
and what has to be known when a commit is handed over to the ways that know everything.
"""
from __future__ import annotations

import asyncio
import itertools
from typing import TYPE_CHECKING, Final

from pyclient.buffers.queues import PartitionQueue
from pyclient.codec.apis import Api
from pyclient.codec.end_txn import CommitFrames
from pyclient.core.calls import KnownCoordinator
from pyclient.core.cluster import Cluster
from pyclient.core.connection import Usage
from pyclient.core.manager import Use
from pyclient.core.transactions.calls import V2
from pyclient.core.transactions.manager import Transactions
from pyclient.core.transactions.states import TransactionEvent
from pyclient.core.transactions.usual import UsualTransactions
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import LoopLender
from pyclient.net.lone_exchange import Lane
from pyclient.net.transaction_exchange import CommitLane, TransactionExchange
from pyclient.producer.lone_lanes import LoneLanes
from pyclient.producer.metrics import BatchMetrics
from pyclient.runtime.epoll_sleep import stop_timer

if TYPE_CHECKING:
    from pyclient.producer.core import ProducerCore

TRIED: Final = 8
SELDOM: Final = 64
"""A producer whose last `TRIED` commits were no usual ones tries with each `SELDOM`-th."""
MOST_PARTITIONS: Final = 64
"""Of a topic, that get lanes together: those of the same multiple."""


class TransactionLanes(LoneLanes):
    """Of a sync producer: its calls use them while the loop sleeps. All here is called with the loop lent or awake."""

    exchange: TransactionExchange

    def __init__(self, core: ProducerCore, transactions: Transactions, lender: LoopLender, metrics: BatchMetrics) -> None:
        """On the loop."""
        super().__init__(core, metrics)
        self._transactions = transactions
        self._selector = selector = lender.selector
        self._kept: dict[PartitionQueue, tuple[Cluster, Lane]] = {}  # of a producer that did something else meanwhile
        self._armed_at = 0.0
        self._woken = False  # while the exchange was armed, which has ended by that alone
        self._used = self._unused = 0  # commits in place; other ones in a row
        self._lanes_of = transactions.transactional_id
        """The id that is written in all lanes."""
        self._linger_timer = selector.open_timer()
        asyncio.get_running_loop().add_reader(self._linger_timer, self._on_linger)
        self.exchange = TransactionExchange(
            core.accumulator, selector, core.clock, core.metrics, timer=self._linger_timer, usual=UsualTransactions(transactions, transactions.usual_gates()),
            limit=core.config.max_block_ms / 1000, signals=(lender.hold_signals, lender.release_signals), refused=core.refused_records,
            otherwise=core.driver.wake_for_records, hand_over=self._hand_over, resume=self._resume)
        core.accumulator.on_ready = self.exchange.on_ready
        selector.on_sleep, selector.on_woken, selector.on_borrowed = self._on_sleep, self._on_woken, self.end
        selector.on_readable = self.exchange.on_readable
        calls = core.transaction_calls
        calls.begin_here, calls.commit_here, calls.spent_here = self.exchange.begin, self.exchange.commit, self._spent
        calls.on_commit, calls.on_open = self.renew, self.renew_within

    def _spent(self, call: TransactionEvent) -> float:
        return {TransactionEvent.BEGIN: self.exchange.begin_s, TransactionEvent.COMMIT: self.exchange.commit_s}.get(call, 0.0)

    def _on_woken(self) -> None:
        self._woken |= bool(self.exchange)
        self.end()

    def _on_sleep(self) -> None:
        """What woke the loop, or the turn of another batch, has ended: the transaction may go on the usual way."""
        if self._woken and self._may_arm():
            self._arm()

    def end(self) -> None:
        """As `LoneLanes.end`; a lane may be used again after `renew`."""
        self.exchange.on_taken()
        metadata = self._core.metadata
        for queue, lane in self.exchange.clear():
            if lane.sequence.idle_since > self._armed_at:
                metadata.want(queue.topic, lane.sequence.idle_since)
            self._kept[queue] = metadata.cluster, lane

    def listen(self) -> None:
        """As `LoneLanes.listen`."""
        self.exchange.hear(None)

    def renew(self) -> None:
        """A commit has ended: the next transaction may do the same."""
        if self._pays():
            self._arm()

    def renew_within(self) -> None:
        """The open transaction was begun, or got offsets, another way: its records and its end may go the usual way."""
        if self._is_worth_trying():
            self._arm()

    def _arm(self) -> None:
        self._woken = False
        kept, self._kept = self._kept, {}
        commits = self._commit_lane() if self._may_arm() else None
        if commits is None:
            return
        self.exchange.arm(commits)
        self._armed_at = self._core.clock()
        if self._lanes_of != self._transactions.transactional_id:
            self._lanes_of, kept = self._transactions.transactional_id, {}
        for queue, (cluster, lane) in kept.items():
            if cluster is self._core.metadata.cluster and self._is_current(lane):
                self.exchange.put(queue, lane)
        missed = self.exchange.take_missed()
        if missed is not None:
            self._add_lanes(missed)
        elif not self.exchange:
            self._add_first_lanes()

    def _pays(self) -> bool:
        """Whether to arm the exchange: seldom, while something else comes before each commit."""
        used, self._used = self.exchange.commits > self._used, self.exchange.commits
        self._unused = 0 if used else self._unused + 1
        return self._is_worth_trying()

    def _is_worth_trying(self) -> bool:
        return self._unused <= TRIED or self._unused % SELDOM == 0

    def _add_first_lanes(self) -> None:
        """After the first commit: for the partitions that the next transaction most likely writes to."""
        topics: dict[str, PartitionQueue] = {}
        for queue in itertools.islice(self._core.sender.queues(), MOST_PARTITIONS):
            topics.setdefault(queue.topic, queue)
        for queue in topics.values():
            self._add_lanes(queue)

    def _add_lanes(self, missed: PartitionQueue) -> None:
        """For a queue that had none, and those of its topic that may be the next ones."""
        topic, first = self._core.accumulator.topic(missed.topic), missed.partition // MOST_PARTITIONS * MOST_PARTITIONS
        for queue in () if topic is None else topic.queues[first:first + MOST_PARTITIONS]:
            self._add_lane(queue)

    def _add_lane(self, queue: PartitionQueue) -> None:
        repetition = self._core.sender.repetition(queue)
        connection = None if repetition is None else self._core.connections.connection(repetition.leader.node, Use.PRODUCE)
        if repetition is not None and connection is not None and connection.ready and connection.usage is Usage.ANSWERED:
            lane = self._lane(repetition, connection)
            if lane is not None:
                self.exchange.put(queue, lane)

    def _may_arm(self) -> bool:
        manager, core = self._transactions, self._core
        return manager.protocol is V2 and manager.allows_v2() and core.accumulator.on_outcome is None and core.sender.nothing_in_flight()

    def _is_current(self, lane: Lane) -> bool:
        """Whether its connection is still the one that a batch of its partition leaves on."""
        connection = lane.connection
        return connection.ready and self._may_repeat(connection) and self._core.connections.figures(lane.leader.node, connection) is not None

    def _may_repeat(self, connection: Connection) -> bool:
        """As `LoneLanes._may_repeat`."""
        return super()._may_repeat(connection) and connection.socket is not None and self._selector.reads_only(connection.socket)

    def _commit_lane(self) -> CommitLane | None:
        manager, pool = self._transactions, self._core.connections
        known = manager.known_coordinator()
        connection = None if known is None else pool.connection(known.node, Use.COORDINATION)
        if known is None or connection is None or connection.usage is not Usage.ANSWERED or not connection.ready or not self._may_repeat(connection):
            return None
        return self._made(connection, known)

    def _made(self, connection: Connection, known: KnownCoordinator) -> CommitLane | None:
        found = self._core.connections.figures(known.node, connection, Use.COORDINATION)
        if found is None or connection.socket is None:
            return None
        node, (requests, latency, _) = found
        version = connection.versions.choose(Api.END_TXN, V2.end)
        ends = connection.session.ends_at
        return CommitLane(connection, node, known, CommitFrames(version, connection.client_id, self._transactions.transactional_id),
                          version=version, descriptor=connection.socket.fileno(), until=float("inf") if ends is None else ends, figures=(requests, latency))

    def _resume(self, ending: CommitLane | None, sent_at: float, rest: bytes | None) -> None:
        """The commit goes on as if the manager and the driver had begun it."""
        self._transactions.adopt_commit()
        if ending is not None:
            node = ending.known.node
            self._adopt(ending.connection, ending.version, lambda: self._transactions.adopt_end(sent_at, node), sent_at, rest, "a commit")
        self._core.driver.wake()

    def _on_linger(self) -> None:
        """A linger has ended."""
        stop_timer(self._linger_timer)
        self._core.driver.wake_for_records()
