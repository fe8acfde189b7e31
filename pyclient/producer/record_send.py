"""One record from a call of `send` into the Accumulator, for both facades: intercepted, serialized, given a partition,
appended.

`pyclient.buffers.fast_send` takes the records that need none of this. Rule: a record that an interceptor saw is either
queued, or the interceptor is notified that it was refused.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from pyclient.buffers.delivery import Delivery
from pyclient.buffers.delivery_callbacks import checked_callback
from pyclient.buffers.pool import Waiter
from pyclient.buffers.queues import TopicQueues
from pyclient.client.interceptors import Interceptors
from pyclient.codec.encode import encode_headers
from pyclient.plugins import Route
from pyclient.producer.arguments import GivenHeaders, check_partition, check_timestamp, header_pairs
from pyclient.producer.core import ProducerCore
from pyclient.producer.preparation import Prepare, in_time
from pyclient.producer.routing import with_added
from pyclient.producer.waiting_sends import SendSteps, WaitingSend, is_queued
from pyclient.producer.waits import BlockBudget, append_when_granted, known_topic, wait_for_topic
from pyclient.records import Headers
from pyclient.runtime.portals import LoopPortal, ThreadPortal

Queue: TypeAlias = Callable[[TopicQueues], Delivery | SendSteps]
OnDelivery: TypeAlias = Callable[[Delivery], object]


@attrs.frozen
class EncodedRecord:
    """A record as the Accumulator takes it."""

    queues: TopicQueues
    partition: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: bytes | None
    on_delivery: OnDelivery | None


class RecordSend:
    """What both facades' `send` does with a record. Keeps no state of its own.

    *in_order*: calls of an async producer keep their order when they wait for a topic; threads have none.
    """

    def __init__(self, core: ProducerCore, *, in_order: bool) -> None:
        self._core = core
        self._in_order = in_order
        self._accumulator = core.accumulator
        self._router = core.router
        self._adds_headers = core.router.adds_headers

    def queue(self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: GivenHeaders,
              on_delivery: OnDelivery | None, budget: BlockBudget | None = None) -> Delivery | SendSteps:
        """Append the record, or return the steps that wait for its topic or for memory and then append it.

        *budget* is that of a call which has waited already; otherwise its time begins with the first wait.
        """
        if on_delivery is not None:
            checked_callback(on_delivery)
        headers = header_pairs(headers) if headers else ()
        number = None if partition is None else check_partition(partition)
        queues = known_topic(self._core, topic)
        if queues is not None and (number is None or number < len(queues)):
            return self._encode_and_append(queues, value, key, number, timestamp, headers, on_delivery, budget)
        of_waits = budget or BlockBudget(self._core)

        def queue(found: TopicQueues) -> Delivery | SendSteps:
            if number is not None and number >= len(found):
                return self._queue_when_known(topic, number, of_waits, queue)
            return self._encode_and_append(found, value, key, number, timestamp, headers, on_delivery, of_waits)

        if queues is not None:
            return queue(queues)
        return self._queue_in_order(topic, of_waits, queue) if self._in_order else self._queue_when_known(topic, None, of_waits, queue)

    def _encode_and_append(self, queues: TopicQueues, value: Any, key: Any, number: int | None, timestamp: int | None, headers: Headers,
                           on_delivery: OnDelivery | None, budget: BlockBudget | None) -> Delivery | SendSteps:
        topic, router = queues.topic, self._router
        raw_key: Any = router.key(topic, key, headers)
        raw_value: Any = router.value(topic, value, headers)
        if self._adds_headers:
            raw_key, raw_value, headers = with_added(raw_key, raw_value, headers)
        chosen = router.partition(queues, raw_key, raw_value, number)
        stamp, packed = check_timestamp(timestamp), encode_headers(headers) if headers else None
        delivery: Delivery | None = self._accumulator.append(queues, chosen, stamp, raw_key, raw_value, packed, None, on_delivery)
        if delivery is not None:
            return delivery
        record = EncodedRecord(queues, chosen, stamp, raw_key, raw_value, packed, on_delivery)
        return self._append_when_granted(record, budget or BlockBudget(self._core))

    def _queue_when_known(self, topic: str, number: int | None, budget: BlockBudget, queue: Queue) -> SendSteps:
        queued = queue((yield from wait_for_topic(self._core, topic, number, budget)))
        return queued if isinstance(queued, Delivery) else (yield from queued)

    def _queue_in_order(self, topic: str, budget: BlockBudget, queue: Queue) -> SendSteps:
        """In the order of the calls: another one may queue the record, and an error of this wait means nothing then."""
        send, waiting = WaitingSend(topic, queue), self._core.waiting_sends
        waiting.add(send)
        try:
            yield from wait_for_topic(self._core, topic, None, budget)
        except BaseException as error:
            if waiting.remove(send):
                raise
            if not isinstance(error, Exception):
                send.note(error)
                raise
        queued = send.result()
        return queued if isinstance(queued, Delivery) else (yield from queued)

    def _append_when_granted(self, record: EncodedRecord, budget: BlockBudget) -> SendSteps:
        def enqueue(waiter: Waiter) -> None:
            self._accumulator.wait(record.queues, record.partition, record.key, record.value, record.headers, waiter)

        def append(waiter: Waiter) -> Delivery | None:
            return self._accumulator.append(record.queues, record.partition, record.timestamp, record.key, record.value, record.headers,
                                            waiter, record.on_delivery)

        while True:
            delivery = yield from append_when_granted(self._core, record.queues, enqueue, append, budget)
            if delivery is not None:
                return delivery


@attrs.frozen
class TakeTurn:
    """Wait until earlier sends of a topic are prepared."""

    turn: asyncio.Lock
    budget: BlockBudget
    topic: str

    def run(self, portal: ThreadPortal) -> None:
        """As `Step.run`; sync producers prepare nothing."""

    async def run_async(self, portal: LoopPortal) -> None:
        """As `Step.run_async`."""
        await in_time(self.turn.acquire, self.budget, self.topic)


class PreparedSend:
    """`RecordSend` of an async producer whose serializers await something first (`pyclient.plugins.PreparesValues`).

    Sends of one topic prepare one after the other: a record that is quickly prepared does not overtake an earlier one.
    All waits of a send share its ``max_block_ms``, also that for earlier ones.
    """

    def __init__(self, core: ProducerCore, records: RecordSend) -> None:
        self._core = core
        self._router = core.router
        self._records = records
        self._turns: dict[str, asyncio.Lock] = {}

    def queue(self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: GivenHeaders,
              on_delivery: OnDelivery | None) -> SendSteps:
        """As `RecordSend.queue`."""
        budget = BlockBudget(self._core)
        turn = self._turns.setdefault(topic, asyncio.Lock())
        yield TakeTurn(turn, budget, topic)
        try:
            yield Prepare(self._router, (topic, key, value), budget)
            queued = self._records.queue(topic, value, key, partition, timestamp, headers, on_delivery, budget)
        finally:
            turn.release()
        return queued if isinstance(queued, Delivery) else (yield from queued)


class InterceptedSend:
    """`RecordSend` of a producer with interceptors."""

    def __init__(self, interceptors: Interceptors, records: RecordSend | PreparedSend) -> None:
        self._interceptors = interceptors
        self._records = records

    def queue(self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: GivenHeaders,
              on_delivery: OnDelivery | None) -> Delivery | SendSteps:
        """As `RecordSend.queue`, with the record that the interceptors return."""
        key, value, headers, route = self._interceptors.on_send(Route(topic, partition, timestamp), key, value, header_pairs(headers))
        to: Any = route.topic
        try:
            queued = self._records.queue(to, value, key, route.partition, route.timestamp, headers, on_delivery)
        except Exception as error:
            self._interceptors.refused(error)
            raise
        return queued if isinstance(queued, Delivery) else self._reporting(queued)

    def _reporting(self, steps: SendSteps) -> SendSteps:
        """The same steps; when they do not queue the record, the interceptors are notified."""
        try:
            return (yield from steps)
        except (Exception, asyncio.CancelledError) as error:
            if not is_queued(error):
                self._interceptors.refused(error)
            raise


def record_send(core: ProducerCore, *, awaits: bool = False) -> RecordSend | PreparedSend | InterceptedSend:
    """What *core* does with each record; *awaits*: what serializers have to await is awaited first."""
    records = RecordSend(core, in_order=awaits)
    prepared = PreparedSend(core, records) if awaits and core.router.prepares else records
    return prepared if core.interceptors is None else InterceptedSend(core.interceptors, prepared)
