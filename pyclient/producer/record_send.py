"""One record from a call of `send` into the Accumulator, for both facades: intercepted, serialized, given a partition, appended.

`pyclient.buffers.fast_send` takes the records that need none of this. Rule: a record that an interceptor saw is either queued, or the
interceptor is notified that it was refused.
"""
from __future__ import annotations

import asyncio
import functools
from collections.abc import Callable
from typing import Any, TypeAlias

import attrs

from pyclient.buffers.delivery import Delivery
from pyclient.buffers.pool import Waiter
from pyclient.buffers.queues import TopicQueues
from pyclient.client.interceptors import Interceptors
from pyclient.producer.core import ProducerCore, check_partition, check_timestamp, headers_bytes
from pyclient.producer.waits import BlockBudget, append_when_granted, wait_for_topic
from pyclient.records import Headers
from pyclient.runtime.steps import Step, Steps

OnDelivery: TypeAlias = Callable[[Delivery], object]
SendSteps: TypeAlias = Steps[Step, Delivery]


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
    """What both facades' `send` does with a record. Keeps no state of its own."""

    def __init__(self, core: ProducerCore) -> None:
        self._core = core
        self._accumulator = core.accumulator
        self._router = core.router
        self._interceptors = core.interceptors

    def queue(self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: Headers,
              on_delivery: OnDelivery | None) -> Delivery | SendSteps:
        """Append the record, or return the steps that wait for its topic or for memory and then append it."""
        interceptors = self._interceptors
        if interceptors is None:
            return self._queue(topic, value, key, partition, timestamp, headers, on_delivery)
        key, value, headers = interceptors.on_send(topic, key, value, headers)
        try:
            queued = self._queue(topic, value, key, partition, timestamp, headers, on_delivery)
        except Exception as error:
            interceptors.refused(error)
            raise
        return queued if isinstance(queued, Delivery) else _reporting(interceptors, queued)

    def _queue(self, topic: str, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: Headers,
               on_delivery: OnDelivery | None) -> Delivery | SendSteps:
        number = None if partition is None else check_partition(partition)
        queues = self._accumulator.topic(topic)
        if queues is None or (number is not None and number >= len(queues)):
            append = functools.partial(self._append, value, key, number, timestamp, headers, on_delivery)
            return self._append_when_known(topic, number, append)
        return self._append(value, key, number, timestamp, headers, on_delivery, queues)

    def _append(self, value: Any, key: Any, partition: int | None, timestamp: int | None, headers: Headers, on_delivery: OnDelivery | None,
                queues: TopicQueues, budget: BlockBudget | None = None) -> Delivery | SendSteps:
        """Without *budget* the call has not waited yet, and its time begins with the wait for memory."""
        topic, router = queues.topic, self._router
        raw_key, raw_value = router.key(topic, key, headers), router.value(topic, value, headers)
        chosen = router.partition(queues, raw_key, raw_value, partition)
        stamp, packed = check_timestamp(timestamp), headers_bytes(headers)
        delivery: Delivery | None = self._accumulator.append(queues, chosen, stamp, raw_key, raw_value, packed, None, on_delivery)
        if delivery is not None:
            return delivery
        record = EncodedRecord(queues, chosen, stamp, raw_key, raw_value, packed, on_delivery)
        return self._append_when_granted(record, budget or BlockBudget(self._core))

    def _append_when_known(self, topic: str, partition: int | None, append: Callable[..., Delivery | SendSteps]) -> SendSteps:
        budget = BlockBudget(self._core)
        queued = append((yield from wait_for_topic(self._core, topic, partition, budget)), budget)
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


def _reporting(interceptors: Interceptors, steps: SendSteps) -> SendSteps:
    """The same steps; when the record is not queued, the interceptors are notified."""
    try:
        return (yield from steps)
    except (Exception, asyncio.CancelledError) as error:
        interceptors.refused(error)
        raise
