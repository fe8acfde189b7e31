"""The producer's two faces, sync and async: they check, wait and translate. No protocol logic lives here."""
from __future__ import annotations

import asyncio
import functools
import threading
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, NoReturn, Self

from typing_extensions import Unpack

from pyclient.buffers.accumulator import TopicQueues
from pyclient.buffers.delivery import Delivery
from pyclient.buffers.pool import Waiter
from pyclient.config import ProducerConfig
from pyclient.errors import BufferExhausted, ClientClosed, KafkaError, UnsupportedFeature
from pyclient.option_types import ProducerOptions
from pyclient.records import Headers
from pyclient.runtime.callbacks import LoopObserver, ThreadObserver
from pyclient.runtime.ending import ProducerEnd
from pyclient.runtime.facade import OPTION, AsyncFacade, Facade, left, seconds
from pyclient.runtime.portal import Portal
from pyclient.runtime.producing import ProducerCore, check_partition, check_timestamp, headers_bytes

OnDelivery = Callable[[Delivery], object]


class _NoTransactions(Facade):
    """The calls of transactions: they come in a later release, and say so."""

    def init_transactions(self, timeout: float | None = OPTION) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeature."""
        raise _no_transactions()

    def begin_transaction(self) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeature."""
        raise _no_transactions()

    def commit_transaction(self, timeout: float | None = OPTION) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeature."""
        raise _no_transactions()

    def abort_transaction(self) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeature."""
        raise _no_transactions()

    def transaction(self) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeature."""
        raise _no_transactions()


class Producer(_NoTransactions):
    """Sends records to Kafka; used by any number of threads.

    Options are keywords in snake_case, or Kafka's dotted names in the mapping *config*; a keyword wins. See
    docs/options.md. ``key_serializer`` and ``value_serializer`` make bytes of keys and values; ``partitioner`` is an
    object, a name, or ``"package.module:Class"``, ``interceptors`` is a list of such (`pyclient.plugins.ProducerInterceptor`).

    Raises:
        ConfigurationError: an option that is unknown, of a wrong type or out of range.
        UnsupportedFeature: something a later release brings.
    """

    _core: ProducerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, key_serializer: Any = None, value_serializer: Any = None,
                 partitioner: Any = None, interceptors: Any = (), **options: Unpack[ProducerOptions]) -> None:
        parsed = _parse(config, options, key_serializer, value_serializer, partitioner, interceptors)
        self._observer = ThreadObserver("pyclient-callbacks")
        self._core = ProducerCore(parsed, self._observer)
        self._max_block = parsed.max_block_ms / 1000
        self._portal = Portal("pyclient-producer")
        self._end = ProducerEnd(self._core, self._portal, self._observer)
        self._portal.call(self._core.start)

    def send(self, topic: str, value: Any = None, key: Any = None, *, partition: int | None = None, timestamp: int | None = None,
             headers: Headers = (), on_delivery: OnDelivery | None = None) -> Delivery:
        """Queue one record and return at once; the `Delivery` tells its fate. Order is kept per partition.

        ``partition`` is 0-based, None asks the partitioner; ``timestamp`` is in ms since the epoch, None is now;
        ``headers`` are (str, bytes or None) pairs; ``on_delivery(delivery)`` runs on the callback thread.
        Waits for an unknown topic and for memory, both within ``max_block_ms``; in a callback it raises instead.
        Where Ctrl-C ends it, the record may have been queued all the same; it is then delivered once, as any other.

        Raises:
            BufferExhausted: ``buffer_memory`` stayed full; nothing was queued, calling again is safe.
            MetadataTimeout: the topic or partition is not known; nothing was queued.
            RecordTooLargeError: the record alone exceeds ``max_request_size``; it will never fit.
        """
        core = self._core
        if core.closed is not None:
            raise core.closed
        interceptors = core.interceptors
        if interceptors is not None:
            key, value, headers = interceptors.on_send(topic, key, value, headers)
        try:
            deadline = None
            partition = None if partition is None else check_partition(partition)
            queues = core.accumulator.topic(topic)
            if queues is None or (partition is not None and partition >= len(queues)):
                deadline = core.clock() + self._max_block
                queues = self._wait_for_topic(topic, partition, deadline)
            raw_key, raw_value = core.router.key(topic, key, headers), core.router.value(topic, value, headers)
            chosen = core.router.partition(queues, raw_key, raw_value, partition)
            stamp, packed = check_timestamp(timestamp), headers_bytes(headers)
            delivery: Delivery | None = core.accumulator.append(queues, chosen, stamp, raw_key, raw_value, packed, None, on_delivery)
            if delivery is None:
                delivery = self._append_when_there_is_room(queues, chosen, stamp, raw_key, raw_value, packed, on_delivery, deadline)
            return delivery
        except Exception as error:
            if interceptors is not None:
                interceptors.refused(error)
            raise

    def flush(self, timeout: float | None = OPTION) -> None:
        """Wait until everything sent before this call is acknowledged or has failed.

        ``timeout`` is in seconds, left out it is ``delivery_timeout_ms``; None waits without end.

        Raises:
            DeliveryFailed: records failed that nobody has looked at: their number, and the first cause per partition.
            KafkaTimeout: not all are settled; they are still being sent.
        """
        self._open_core()
        self._observer.check_wait()
        limit = seconds(timeout, self._core.config.delivery_timeout_ms)
        self._portal.call(lambda: self._core.flush(limit))

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of a topic; waits for unknown ones up to ``max_block_ms``."""
        self._open_core()
        deadline = self._core.clock() + self._max_block
        return len(self._core.accumulator.topic(topic) or self._wait_for_topic(topic, None, deadline))

    def metrics(self) -> dict[str, float]:
        """Figures by Kafka's names, as they stand now."""
        return self._core.figures()

    def close(self, timeout: float | None = OPTION) -> None:
        """Deliver what was accepted, at most *timeout* seconds (left out: ``delivery_timeout_ms``), then fail the rest. Idempotent.

        Raises:
            DeliveryFailed: records failed that nobody has looked at.
        """
        self._core.check_process()
        limit = seconds(timeout, self._core.config.delivery_timeout_ms)
        if limit != 0:
            self._observer.check_wait()
        self._end.close(limit)

    def __enter__(self) -> Self:
        self._open_core()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not self._core.is_forked:  # the parent goes on with it; here there is nothing to end
                self.close()
        except KafkaError:
            if error is None:
                raise

    # ---- inside -----------------------------------------------------------------------------------------------------

    def _forget(self) -> None:
        self._end.forget()

    def _unclosed(self) -> str:
        return f"unclosed Producer, {self._core.unsettled()} records not acknowledged: use `with` or close()"

    def _wait_for_topic(self, topic: str, partition: int | None, deadline: float) -> TopicQueues:
        budget = 0.0 if self._observer.on_callback_thread() else left(deadline, self._core.clock)
        return self._portal.call(lambda: self._core.queues(topic, partition, budget))

    def _append_when_there_is_room(self, queues: TopicQueues, partition: int, timestamp: int, key: bytes | None, value: bytes | None,
                                   headers: bytes | None, on_delivery: OnDelivery | None, deadline: float | None) -> Delivery:
        """Wait in line for memory, until the block budget is used up."""
        core, began = self._core, self._core.clock()
        until = began + self._max_block if deadline is None else deadline
        may_wait = not self._observer.on_callback_thread()
        while True:
            gate = threading.Lock()
            gate.acquire()
            waiter = Waiter(gate.release)
            try:
                core.accumulator.wait(queues, partition, key, value, headers, waiter)
                granted = gate.acquire(timeout=left(until, core.clock)) if may_wait else gate.acquire(blocking=False)
                delivery: Delivery | None = (
                    core.accumulator.append(queues, partition, timestamp, key, value, headers, waiter, on_delivery) if granted else None)
            finally:
                core.accumulator.leave(waiter)
            if delivery is not None:
                return delivery
            if not granted:
                raise core.closed or self._exhausted(queues, began)

    def _exhausted(self, queues: TopicQueues, began: float) -> BufferExhausted:
        error: BufferExhausted = self._core.accumulator.exhausted(queues, self._core.clock() - began)
        return error


class AsyncProducer(AsyncFacade, _NoTransactions):
    """`Producer` for asyncio: the same names, awaited where they can wait. Bound to the loop of ``async with``."""

    _core: ProducerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, key_serializer: Any = None, value_serializer: Any = None,
                 partitioner: Any = None, interceptors: Any = (), **options: Unpack[ProducerOptions]) -> None:
        parsed = _parse(config, options, key_serializer, value_serializer, partitioner, interceptors)
        self._observer = LoopObserver()
        self._core = ProducerCore(parsed, self._observer)
        self._max_block = parsed.max_block_ms / 1000

    async def send(self, topic: str, value: Any = None, key: Any = None, *, partition: int | None = None,
                   timestamp: int | None = None, headers: Headers = (), on_delivery: OnDelivery | None = None) -> Delivery:
        """Queue one record; ``await`` the returned delivery for its acknowledgement. As `Producer.send`.

        Suspends only for an unknown topic or for memory. ``on_delivery`` runs on the loop.
        """
        core = self._core
        core.check_open()
        interceptors = core.interceptors
        if interceptors is not None:
            key, value, headers = interceptors.on_send(topic, key, value, headers)
        try:
            deadline = core.clock() + self._max_block
            partition = None if partition is None else check_partition(partition)
            queues = core.accumulator.topic(topic)
            if queues is None or (partition is not None and partition >= len(queues)):
                queues = await core.queues(topic, partition, self._max_block)
            raw_key, raw_value = core.router.key(topic, key, headers), core.router.value(topic, value, headers)
            chosen = core.router.partition(queues, raw_key, raw_value, partition)
            stamp, packed = check_timestamp(timestamp), headers_bytes(headers)
            delivery: Delivery | None = core.accumulator.append(queues, chosen, stamp, raw_key, raw_value, packed, None, on_delivery)
            if delivery is None:
                delivery = await self._append_when_there_is_room(queues, chosen, stamp, raw_key, raw_value, packed, on_delivery, deadline)
            return delivery
        except (Exception, asyncio.CancelledError) as error:
            if interceptors is not None:
                interceptors.refused(error)
            raise

    async def flush(self, timeout: float | None = OPTION) -> None:
        """As `Producer.flush`."""
        await self._core.flush(seconds(timeout, self._core.config.delivery_timeout_ms))

    async def partitions_for(self, topic: str) -> int:
        """As `Producer.partitions_for`."""
        return len(await self._core.queues(topic, None, self._max_block))

    def metrics(self) -> dict[str, float]:
        """As `Producer.metrics`."""
        return self._core.figures()

    async def close(self, timeout: float | None = OPTION) -> None:
        """As `Producer.close`."""
        self._core.check_process()
        await self._core.finish(seconds(timeout, self._core.config.delivery_timeout_ms))

    async def __aenter__(self) -> Self:
        await self._core.start()
        return self

    def _forget(self) -> None:
        loop = self._core.loop
        if loop is not None and loop.is_closed():  # nothing will settle them any more: whoever waits in a thread must learn it
            self._core.sender.abandon(ClientClosed(
                "the event loop was closed before the record was acknowledged; it may or may not be stored. Use `async with`."))
        else:
            super()._forget()

    def _unclosed(self) -> str:
        return f"unclosed AsyncProducer, {self._core.unsettled()} records not acknowledged: use `async with` or close()"

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not self._core.is_forked:
                await self.close()
        except KafkaError:
            if error is None:
                raise

    async def _append_when_there_is_room(self, queues: TopicQueues, partition: int, timestamp: int, key: bytes | None, value: bytes | None,
                                         headers: bytes | None, on_delivery: OnDelivery | None, deadline: float) -> Delivery:
        core, began = self._core, self._core.clock()
        loop = asyncio.get_running_loop()
        while True:
            room = asyncio.Event()
            waiter = Waiter(functools.partial(loop.call_soon_threadsafe, room.set))
            try:
                core.accumulator.wait(queues, partition, key, value, headers, waiter)
                granted = await core.room(waiter, room, left(deadline, core.clock))
                delivery: Delivery | None = (
                    core.accumulator.append(queues, partition, timestamp, key, value, headers, waiter, on_delivery) if granted else None)
            finally:
                core.accumulator.leave(waiter)
            if delivery is not None:
                return delivery
            if not granted:
                raise core.accumulator.exhausted(queues, core.clock() - began)


def _parse(config: Mapping[str, object] | None, options: Mapping[str, object], key_serializer: Any, value_serializer: Any,
           partitioner: Any, interceptors: Any) -> ProducerConfig:
    return ProducerConfig.parse(config, {
        **options, "key_serializer": key_serializer, "value_serializer": value_serializer, "partitioner": partitioner,
        "interceptors": None if interceptors == () else interceptors})


def _no_transactions() -> UnsupportedFeature:
    return UnsupportedFeature("transactions come in a later release; until then make readers tell duplicates apart by an id",
                              option="transactional_id")
