"""Where a producer's lone records may repeat the last exchange (`pyclient.net.lone_exchange`), and what has to be known
when one of them is handed over to the ways that know everything.

A lane is made by the second lone exchange of a partition between two turns, as it costs a third of one.
"""
from __future__ import annotations

import asyncio
import functools
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api
from pyclient.codec.compression import Compression
from pyclient.codec.produce import TOPIC_IDS_SINCE, ProduceTerms, lone_answer, lone_request
from pyclient.core.manager import Request, Unknown
from pyclient.core.sending.sender import Repetition
from pyclient.core.sending.sequencing import PRODUCER_EXPIRATION
from pyclient.errors import KafkaError
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import LoopLender
from pyclient.net.lone_exchange import Lane, LentExchange, LoneExchange, LoopExchange
from pyclient.producer.metrics import BatchMetrics
from pyclient.runtime.epoll_sleep import stop_timer
from pyclient.runtime.loop_lending import LendingSelector
from pyclient.runtime.loop_thread import runs_here

if TYPE_CHECKING:
    from pyclient.producer.core import ProducerCore

_log = logging.getLogger(__name__)
PATIENCE: Final = 0.01
"""Seconds, beside the linger, after which an answer without a waiter is read."""
LONGEST_LINGER: Final = 0.1
"""Seconds: a longer one makes no answer wait longer."""


class LoneLanes:
    """The lanes of one producer, and what ends them."""

    exchange: LoneExchange

    def __init__(self, core: ProducerCore, metrics: BatchMetrics) -> None:
        self._core = core
        self._metrics = metrics
        self._calm = False  # one lone record was answered since the last turn

    def _forget_last(self) -> None:
        """A lone request was written by the other way, which may change all that its lane was made of."""
        queue = self._core.sender.lone_queue
        if queue is not None:
            self.exchange.remove(queue)

    def interrupt(self) -> None:
        """Something else is done: it gets the request that is in flight on a lane."""
        self.exchange.on_taken()

    def end(self) -> None:
        """Anything may have happened."""
        self.exchange.on_taken()
        for queue, lane in self.exchange.clear():
            self._core.metadata.want(queue.topic, lane.sequence.idle_since)
        self._calm = False

    def listen(self) -> None:
        """An answer that was left in its socket is wanted now. Any thread may call it."""

    def answered(self, connection: Connection) -> None:
        """Make a lane if the next record of the partition can do what the last one did."""
        if not connection.ready:
            self.exchange.clear()
            return
        calm, self._calm = self._calm, True
        repetition = self._core.sender.repetition(self._core.sender.lone_queue) if calm and self._core.accumulator.on_outcome is None else None
        lane = None if repetition is None else self._lane(repetition, connection)
        if repetition is not None and lane is not None:
            self.exchange.put(repetition.queue, lane)

    def _may_repeat(self, connection: Connection) -> bool:
        """Whether nothing but the next answer can come of the connection's socket."""
        return connection.socket is not None and not connection.unwritten and not connection.in_flight

    def _lane(self, repetition: Repetition, connection: Connection) -> Lane | None:
        core, queue, sequence = self._core, repetition.queue, repetition.sequence
        found = core.connections.figures(repetition.leader.node, connection)
        sock, codec = connection.socket, core.accumulator.codec(queue.topic)[0]
        if found is None or sock is None or codec is not Compression.NONE or not self._may_repeat(connection):
            return None
        version = connection.versions.choose(Api.PRODUCE, repetition.versions)
        topic = repetition.topic_id if version >= TOPIC_IDS_SINCE and repetition.topic_id is not None else queue.topic
        terms = ProduceTerms(version, connection.client_id, core.config.acks, timeout_ms=round(core.request_timeout * 1000),
                             transactional_id=None if core.transactions is None else core.transactions.transactional_id)
        request = lone_request(terms, topic, queue.partition)
        if request is None:
            return None
        ends = connection.session.ends_at
        transactional = core.transactions is not None  # each begins with a new epoch, which no broker has forgotten, and stamps its batches
        unstamped = sequence.producer_id is None or transactional
        stamp = (-1, -1) if unstamped or sequence.producer_id is None else (sequence.producer_id, sequence.epoch)
        node, figures = found
        return Lane(connection, sequence, node, leader=repetition.leader, address=(topic, queue.partition), terms=terms, descriptor=sock.fileno(), stamp=stamp, until=float("inf") if ends is None else ends,
                    expiry=float("inf") if transactional else PRODUCER_EXPIRATION, request=request, answer=lone_answer(version, topic, queue.partition),
                    figures=(*figures, self._metrics.requests, self._metrics.of(queue.topic)))

    def _hand_over(self, lanes: list[Lane], batches: list[Batch], sent_at: float, rest: bytes | None, timed: bool = True) -> None:
        """The request is in flight as if the sender and the driver had written it. *timed* as of `Connection.adopt`."""
        first, sequences = lanes[0], [lane.sequence for lane in lanes]
        self._adopt(first.connection, first.terms.version, lambda: self._core.sender.adopt(sequences, batches), sent_at, rest, "a lone request", timed)
        for batch in batches:
            self._core.metadata.want(batch.queue.topic, sent_at)

    def _adopt(self, connection: Connection, version: int, adopted: Callable[[], Request], sent_at: float, rest: bytes | None, what: str, timed: bool = True) -> None:
        """*connection* waits for the answer to *what*, the request that *adopted* returns, in *version*."""
        request: Request | None = None
        try:
            request = adopted()
            connection.adopt(request, version, sent_at, rest, timed=timed)
        except Exception as error:  # noqa: BLE001 the loop must go on, and the request needs an outcome
            _log.exception("a defect in the client: %s could not be handed over; closing the connection", what)
            cause = KafkaError(f"{what} could not be handed over: {error!r}")
            connection.close(cause)
            if request is not None and not connection.in_flight:
                request.done(self._core.clock(), Unknown(cause))


class LentLanes(LoneLanes):
    """Of a sync producer: threads use them while the loop sleeps. All else is called with the loop lent or awake."""

    exchange: LentExchange

    def __init__(self, core: ProducerCore, lender: LoopLender, selector: LendingSelector, metrics: BatchMetrics, *, linger: float) -> None:
        """On the loop. With a *linger*, in seconds, the loop's thread sends, when one ends."""
        super().__init__(core, metrics)
        self._lender = lender
        self._linger_timer = self._timer(selector, self._on_linger) if linger else -1
        late_timer = self._timer(selector, lambda: stop_timer(late_timer))
        self._selector = selector
        self.exchange = LentExchange(core.accumulator, selector, core.clock, core.metrics, timers=(self._linger_timer, late_timer), patience=PATIENCE + min(linger, LONGEST_LINGER),
                                     otherwise=core.driver.wake_for_records, hand_over=self._hand_over, unknown=self._readable)
        core.accumulator.on_ready = self.exchange.on_ready
        core.driver.on_lone = self._sent_on
        selector.on_woken = self.end
        selector.on_borrowed = self.exchange.on_taken
        selector.on_readable = self.exchange.on_readable
        lender.wait_on_lane = self.exchange.wait
        lender.on_read = self.answered

    def _timer(self, selector: LendingSelector, on_end: Callable[[], object]) -> int:
        """A timer; *on_end* is called when it ends while the loop is awake."""
        timer = selector.open_timer()
        asyncio.get_running_loop().add_reader(timer, on_end)
        return timer

    def _may_repeat(self, connection: Connection) -> bool:
        """As `LoneLanes._may_repeat`."""
        return super()._may_repeat(connection) and connection.socket is not None and self._selector.reads_only(connection.socket)

    def listen(self) -> None:
        """As `LoneLanes.listen`."""
        if self.exchange.in_flight:
            self.exchange.hear(None)

    def _sent_on(self, connection: Connection | None) -> None:
        self._forget_last()
        self._lender.sent_on(connection)

    def _on_linger(self) -> None:
        """A linger has ended while the loop was awake."""
        stop_timer(self._linger_timer)
        self._core.driver.wake_for_records()

    def _readable(self, descriptor: int) -> bool:
        """No lane knows what is readable: the loop sleeps on if a lone batch is answered, or leaves."""
        if self.exchange.in_flight:
            return False
        if descriptor != self._linger_timer:
            return self._lender.read_here(descriptor)
        stop_timer(descriptor)
        self._core.driver.send_now()  # schedules a turn if there is more to do
        return True


class LoopLanes(LoneLanes):
    """Of an async producer: its tasks use them on its loop, between two turns of the driver."""

    exchange: LoopExchange

    def __init__(self, core: ProducerCore, loop: asyncio.AbstractEventLoop, metrics: BatchMetrics) -> None:
        super().__init__(core, metrics)
        self.exchange = LoopExchange(core.accumulator, functools.partial(runs_here, loop), core.clock, core.metrics,
                                     otherwise=core.driver.wake_for_records, hand_over=self._hand_over)
        self.take = self.exchange.take
        core.accumulator.on_ready = self.exchange.on_ready
        core.driver.on_lone = self._sent_on
        core.driver.before_turn = self._before_turn

    def _sent_on(self, connection: Connection | None) -> None:
        self._forget_last()
        if connection is not None:
            connection.lone_answers = self

    def _before_turn(self) -> None:
        """What no lane knows of may be done, or has happened. There are none while it is not calm."""
        if self._calm or self.exchange.in_flight:
            self.end()
