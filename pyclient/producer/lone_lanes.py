"""Where a producer's lone records may repeat the last exchange (`pyclient.net.lone_exchange`), and what has to be known
when one of them is handed over to the ways that know everything.

A lane is made by the second lone exchange of a partition between two wakings of the loop, as it costs a third of one.
All of it is called with the loop lent or awake.
"""
from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from pyclient.buffers.batch import Batch
from pyclient.codec.apis import Api
from pyclient.codec.compression import Compression
from pyclient.codec.produce import TOPIC_IDS_SINCE, lone_answer, lone_request
from pyclient.core.manager import Request, Unknown
from pyclient.core.sending.sender import Repetition
from pyclient.core.sending.sequencing import PRODUCER_EXPIRATION
from pyclient.errors import KafkaError
from pyclient.net.connection import Connection
from pyclient.net.lent_connection import LoopLender
from pyclient.net.lone_exchange import Lane, LoneExchange
from pyclient.producer.metrics import BatchMetrics
from pyclient.runtime.loop_lending import LendingSelector

if TYPE_CHECKING:
    from pyclient.producer.core import ProducerCore

_log = logging.getLogger(__name__)


class LoneLanes:
    """The lanes of one producer."""

    def __init__(self, core: ProducerCore, lender: LoopLender, selector: LendingSelector, metrics: BatchMetrics) -> None:
        self._core = core
        self._lender = lender
        self._selector = selector
        self._metrics = metrics
        self._calm = False  # one lone record was answered since the loop woke
        self.exchange = LoneExchange(core.accumulator, selector, core.clock, core.metrics, otherwise=core.driver.wake_for_records, hand_over=self._hand_over)
        selector.on_woken = self._woken
        selector.on_borrowed = self.exchange.on_taken
        selector.on_readable = self._readable
        lender.wait_on_lane = self.exchange.wait
        lender.on_read = self._answered

    def sent_on(self, connection: Connection | None) -> None:
        """A lone request was written by the other way, which may change all that its lane was made of."""
        queue = self._core.sender.lone_queue
        if queue is not None:
            self.exchange.remove(queue)
        self._lender.sent_on(connection)

    def _woken(self) -> None:
        self.exchange.on_taken()
        for queue, lane in self.exchange.clear():
            self._core.metadata.want(queue.topic, lane.sequence.idle_since)
        self._calm = False

    def _readable(self, descriptor: int) -> bool:
        """The loop would wake for an answer: it sleeps on, and lanes stay, if that is the answer to a lone record."""
        try:
            return self.exchange.on_readable(descriptor) if self.exchange.in_flight else self._lender.read_here(descriptor)
        except Exception:  # noqa: BLE001 the loop must go on
            _log.exception("a defect in the client: the answer to a lone record could not be handled in place; the loop goes on")
            return False

    def _answered(self, connection: Connection) -> None:
        """Make a lane if the next record of the partition can do what the last one did."""
        if not connection.ready:
            self.exchange.clear()
            return
        calm, self._calm = self._calm, True
        repetition = self._core.sender.repetition() if calm and self._core.accumulator.on_outcome is None else None
        lane = None if repetition is None else self._lane(repetition, connection)
        if repetition is not None and lane is not None:
            self.exchange.put(repetition.queue, lane)

    def _lane(self, repetition: Repetition, connection: Connection) -> Lane | None:
        core, queue, sequence = self._core, repetition.queue, repetition.sequence
        found = core.connections.figures(repetition.leader.node, connection)
        sock, codec = connection.socket, core.accumulator.codec(queue.topic)[0]
        if found is None or sock is None or codec is not Compression.NONE or connection.unwritten or connection.in_flight:
            return None
        version = connection.versions.choose(Api.PRODUCE, repetition.versions)
        topic = repetition.topic_id if version >= TOPIC_IDS_SINCE and repetition.topic_id is not None else queue.topic
        request = lone_request(version, connection.client_id, topic, queue.partition, acks=core.config.acks, timeout_ms=round(core.request_timeout * 1000))
        if request is None or not self._selector.reads_only(sock):
            return None
        ends = connection.session.ends_at
        stamp = (-1, -1) if sequence.producer_id is None else (sequence.producer_id, sequence.epoch)
        node, figures = found
        return Lane(connection, sequence, node, version=version, descriptor=sock.fileno(), stamp=stamp, until=float("inf") if ends is None else ends,
                    expiry=PRODUCER_EXPIRATION, request=request, answer=lone_answer(version, topic, queue.partition),
                    figures=(*figures, self._metrics.requests, self._metrics.of(queue.topic)))

    def _hand_over(self, lane: Lane, batch: Batch, sent_at: float, rest: bytes | None) -> None:
        """The request is in flight as if the sender and the driver had written it."""
        request: Request | None = None
        try:
            request = self._core.sender.adopt(lane.sequence, batch)
            lane.connection.adopt(request, lane.version, sent_at, rest)
            self._core.metadata.want(batch.queue.topic, sent_at)
        except Exception as error:  # noqa: BLE001 the loop must go on, and the request needs an outcome
            _log.exception("a defect in the client: a lone request could not be handed over; closing the connection")
            cause = KafkaError(f"a lone request could not be handed over: {error!r}")
            lane.connection.close(cause)
            if request is not None and not lane.connection.in_flight:
                request.done(self._core.clock(), Unknown(cause))
