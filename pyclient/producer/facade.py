"""The producer's two faces, sync and async: they check, wait and translate. No protocol logic lives here."""
from __future__ import annotations

import asyncio
import functools
import inspect
import sys
import threading
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Any, NoReturn, Self

from typing_extensions import Unpack

from pyclient.buffers.queues import TopicQueues
from pyclient.buffers.deliveries import Deliveries
from pyclient.buffers.delivery import Delivery
from pyclient.buffers.fast_send import AsyncFastSend, FastSend, async_fast_send, fast_send
from pyclient.buffers.pool import Waiter
from pyclient.buffers.rows import Rows
from pyclient.codec.arrow_input import Names
from pyclient.config import ProducerConfig
from pyclient.errors import AuthenticationError, BufferExhaustedError, ClientClosedError, KafkaError, UnsupportedFeatureError, raisable
from pyclient.option_types import ProducerOptions
from pyclient.records import Headers
from pyclient.producer.bulk import Bulk, BulkSend
from pyclient.producer.callbacks import LoopObserver, ThreadObserver
from pyclient.producer.shutdown import ProducerShutdown
from pyclient.client.facade_base import OPTION, AsyncFacade, Facade, left, seconds
from pyclient.runtime.loop_thread import Portal
from pyclient.producer.core import ProducerCore, check_partition, check_timestamp, headers_bytes

OnDelivery = Callable[[Delivery], object]


class _NoTransactions(Facade):
    """The calls of transactions: they come in a later release, and say so."""

    def init_transactions(self, timeout: float | None = OPTION) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeatureError."""
        raise _no_transactions()

    def begin_transaction(self) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeatureError."""
        raise _no_transactions()

    def commit_transaction(self, timeout: float | None = OPTION) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeatureError."""
        raise _no_transactions()

    def abort_transaction(self) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeatureError."""
        raise _no_transactions()

    def transaction(self) -> NoReturn:
        """Transactions come in a later release: raises UnsupportedFeatureError."""
        raise _no_transactions()


class Producer(FastSend, _NoTransactions):
    """Sends records to Kafka; used by any number of threads.

    Options are keywords in snake_case, or Kafka's dotted names in the mapping *config*; a keyword wins. See
    docs/options.md. ``key_serializer`` and ``value_serializer`` make bytes of keys and values; ``partitioner`` is an
    object, a name, or ``"package.module:Class"``, ``interceptors`` is a list of such (`pyclient.plugins.ProducerInterceptor`).

    Raises:
        ConfigurationError: an option that is unknown, of a wrong type or out of range.
        UnsupportedFeatureError: something a later release brings.
    """

    _core: ProducerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, key_serializer: Any = None, value_serializer: Any = None,
                 partitioner: Any = None, interceptors: Any = (), **options: Unpack[ProducerOptions]) -> None:
        parsed = _parse(config, options, key_serializer, value_serializer, partitioner, interceptors)
        self._observer = ThreadObserver("pyclient-callbacks")
        self._core = ProducerCore(parsed, self._observer)
        self._send_path = self._core.send_path
        self._max_block = parsed.max_block_ms / 1000
        self._portal = Portal("pyclient-producer")
        self._end = ProducerShutdown(self._core, self._portal, self._observer)
        self._portal.call(self._core.start)

    @fast_send
    def send(self, topic: str, value: Any = None, key: Any = None, *, partition: int | None = None, timestamp: int | None = None,
             headers: Headers = (), on_delivery: OnDelivery | None = None) -> Delivery:
        """Queue one record and return at once; the `Delivery` is its result. Order is kept per partition.

        ``partition`` is 0-based, None lets the partitioner choose; ``timestamp`` is in ms since the epoch, None is now;
        ``headers`` are (str, bytes or None) pairs; ``on_delivery(delivery)`` runs on the callback thread.
        Waits for an unknown topic and for memory, both within ``max_block_ms``; in a callback it raises instead.
        When Ctrl-C interrupts the call, the record may already be queued; it is then delivered once, like any other.

        Raises:
            BufferExhaustedError: ``buffer_memory`` stayed full; nothing was queued, calling again is safe.
            MetadataTimeoutError: the topic or partition is not known; nothing was queued.
            RecordTooLargeError: the record alone exceeds ``max_request_size``; it will never fit.
        """
        core = self._core
        if core.closed is not None:
            raise raisable(core.closed)
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

    def send_many(self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None,
                  headers: Iterable[Headers | None] | None = None, timestamps: Iterable[int | None] | None = None,
                  partition: int | None = None) -> Deliveries:
        """Queue a record for each of *values*, in their order; one `Deliveries` tells the fate of all.

        ``keys``, ``headers`` and ``timestamps`` have one item for each value, None for none; ``partition`` is for all.
        Waits for an unknown topic and for memory, both within ``max_block_ms`` for the whole call.
        A record that cannot be queued (too large, refused by a serializer or partitioner, no memory in time) does not stop the others:
        its error stands under its index in the deliveries. From the first that finds no memory in time on, none is queued, and
        interceptors see none but those loaded with it.

        Raises:
            MetadataTimeoutError: the topic or partition is not known; nothing was queued.
            TypeError, ValueError: the columns are no lists, or not of one length; nothing was queued.
        """
        bulk = BulkSend(self._open_producer())
        number = None if partition is None else check_partition(partition)
        return self._carry_out(bulk, bulk.values(topic, values, keys, headers, timestamps, number), number)

    def send_arrow(self, topic: str | None, data: Any, *, value: str | None = "value", key: str | None = "key",
                   headers: str | None = "headers", timestamp: str | None = "timestamp", topic_column: str | None = None) -> Deliveries:
        """Queue a record for each row of *data*, in their order: a table, a record batch, anything with ``__arrow_c_stream__``.

        The bytes go from Arrow's memory into batches, without a Python object per record. ``value``, ``key``, ``headers`` and
        ``timestamp`` name the columns: binary or string; headers as `Records.to_arrow` gives them; Arrow timestamps or int64 ms.
        A column that is absent is none (one that was named otherwise than by default must be there).
        ``topic_column`` names each row's topic, null is *topic*. WaitStats, and refuses records, as `send_many`.

        Raises:
            ImportError: pyarrow is not installed.
            MetadataTimeoutError: *topic* is not known; nothing was queued.
            TypeError, ValueError: the message names the column that is wrong; nothing was queued.
        """
        bulk = BulkSend(self._open_producer())
        return self._carry_out(bulk, bulk.arrow(topic, data, Names(value, key, headers, timestamp, topic_column)), None)

    def flush(self, timeout: float | None = OPTION) -> None:
        """Wait until everything sent before this call is acknowledged or has failed.

        ``timeout`` is in seconds, left out it is ``delivery_timeout_ms``; None waits without end.

        Raises:
            DeliveryError: records failed that nobody has looked at: their number, and the first cause per partition.
            KafkaTimeoutError: not all are settled; they are still being sent.
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
            DeliveryError: records failed that nobody has looked at.
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
                raise raisable(core.closed or core.refused or self._exhausted(queues, began))

    def _open_producer(self) -> ProducerCore:
        self._open_core()
        return self._core

    def _carry_out(self, bulk: BulkSend, steps: Bulk, partition: int | None) -> Deliveries:
        """Wait for what the bulk needs, until the block budget of the whole call is used up."""
        core, answer = self._core, None
        deadline = core.clock() + self._max_block
        try:
            while True:
                need = steps.send(answer)
                answer = (self._topic_for_bulk(need, partition, deadline) if isinstance(need, str)
                          else self._room_for_bulk(need, deadline))
        except StopIteration as end:
            deliveries: Deliveries = end.value
            return deliveries
        except BaseException as stop:
            bulk.describe(stop)
            raise

    def _topic_for_bulk(self, topic: str, partition: int | None, deadline: float) -> TopicQueues | KafkaError:
        queues = self._core.accumulator.topic(topic)
        if queues is not None and (partition is None or partition < len(queues)):
            return queues
        try:
            return self._wait_for_topic(topic, partition, deadline)
        except KafkaError as error:
            return error

    def _room_for_bulk(self, rows: Rows, deadline: float) -> KafkaError | None:
        core, began = self._core, self._core.clock()
        may_wait = not self._observer.on_callback_thread()
        gate = threading.Lock()
        gate.acquire()
        waiter = Waiter(gate.release)
        try:
            core.accumulator.wait_rows(rows, waiter)
            granted = gate.acquire(timeout=left(deadline, core.clock)) if may_wait else gate.acquire(blocking=False)
            if not granted:
                return core.closed or core.refused or self._exhausted(rows.topic, began)
            core.accumulator.append_rows(rows, waiter)
        except (ClientClosedError, AuthenticationError) as closed:
            return closed
        finally:
            core.accumulator.leave(waiter)
        return None

    def _exhausted(self, queues: TopicQueues, began: float) -> BufferExhaustedError:
        error: BufferExhaustedError = self._core.accumulator.exhausted(queues, self._core.clock() - began)
        return error


class AsyncProducer(AsyncFastSend, AsyncFacade, _NoTransactions):
    """`Producer` for asyncio: the same names, awaited where they can wait. Bound to the loop of ``async with``."""

    _core: ProducerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, key_serializer: Any = None, value_serializer: Any = None,
                 partitioner: Any = None, interceptors: Any = (), **options: Unpack[ProducerOptions]) -> None:
        parsed = _parse(config, options, key_serializer, value_serializer, partitioner, interceptors)
        self._observer = LoopObserver()
        self._core = ProducerCore(parsed, self._observer)
        self._send_path = self._core.send_path
        self._max_block = parsed.max_block_ms / 1000

    @async_fast_send
    async def send(self, topic: str, value: Any = None, key: Any = None, *, partition: int | None = None, timestamp: int | None = None,
                   headers: Headers = (), on_delivery: OnDelivery | None = None) -> Delivery:
        """Queue one record; ``await`` the returned delivery for its acknowledgement. As `Producer.send`.

        Suspends only for an unknown topic or for memory. ``on_delivery`` runs on the loop. Most records are queued by the call itself:
        cancelling the ``await``, or a task created from it, does not remove them from the queue.
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

    async def send_many(self, topic: str, values: Iterable[Any], *, keys: Iterable[Any] | None = None,
                  headers: Iterable[Headers | None] | None = None, timestamps: Iterable[int | None] | None = None,
                  partition: int | None = None) -> Deliveries:
        """As `Producer.send_many`; suspends only for an unknown topic or for memory.

        Cancelled in the middle it says how far it came (a note of the CancelledError): what was queued before is delivered.
        """
        bulk = BulkSend(self._checked_core())
        number = None if partition is None else check_partition(partition)
        return await self._carry_out(bulk, bulk.values(topic, values, keys, headers, timestamps, number), number)

    async def send_arrow(self, topic: str | None, data: Any, *, value: str | None = "value", key: str | None = "key",
                   headers: str | None = "headers", timestamp: str | None = "timestamp", topic_column: str | None = None) -> Deliveries:
        """As `Producer.send_arrow`; suspends and may be cancelled as `send_many`."""
        bulk = BulkSend(self._checked_core())
        return await self._carry_out(bulk, bulk.arrow(topic, data, Names(value, key, headers, timestamp, topic_column)), None)

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
        if self._core.send_path is not None and self._core.loop is not None:
            self._core.send_path.bind(self._core.loop)
        return self

    def _forget(self) -> None:
        loop = self._core.loop
        if loop is not None and loop.is_closed():  # nothing will settle them any more: whoever waits in a thread must learn it
            self._core.sender.abandon(ClientClosedError(
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

    def _checked_core(self) -> ProducerCore:
        self._core.check_open()
        return self._core

    async def _carry_out(self, bulk: BulkSend, steps: Bulk, partition: int | None) -> Deliveries:
        core, answer = self._core, None
        deadline = core.clock() + self._max_block
        try:
            while True:
                need = steps.send(answer)
                answer = (await self._topic_for_bulk(need, partition, deadline) if isinstance(need, str)
                          else await self._room_for_bulk(need, deadline))
        except StopIteration as end:
            deliveries: Deliveries = end.value
            return deliveries
        except BaseException as stop:
            bulk.describe(stop)
            raise

    async def _topic_for_bulk(self, topic: str, partition: int | None, deadline: float) -> TopicQueues | KafkaError:
        queues = self._core.accumulator.topic(topic)
        if queues is not None and (partition is None or partition < len(queues)):
            return queues
        try:
            return await self._core.queues(topic, partition, left(deadline, self._core.clock))
        except KafkaError as error:
            return error

    async def _room_for_bulk(self, rows: Rows, deadline: float) -> KafkaError | None:
        core, began = self._core, self._core.clock()
        loop = asyncio.get_running_loop()
        room = asyncio.Event()
        waiter = Waiter(functools.partial(loop.call_soon_threadsafe, room.set))
        try:
            core.accumulator.wait_rows(rows, waiter)
            if not await core.room(waiter, room, left(deadline, core.clock)):
                error: BufferExhaustedError = core.accumulator.exhausted(rows.topic, core.clock() - began)
                return error
            core.accumulator.append_rows(rows, waiter)
        except (ClientClosedError, AuthenticationError) as closed:
            return closed
        finally:
            core.accumulator.leave(waiter)
        return None

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


def _mark_as_coroutine_function(method: Any) -> None:
    """Make `inspect.iscoroutinefunction` true for the compiled method: `unittest.mock`, for one, checks it before it awaits."""
    if sys.version_info >= (3, 12):
        inspect.markcoroutinefunction(method)
    else:
        method._is_coroutine = asyncio.coroutines._is_coroutine  # type: ignore[attr-defined]  # what asyncio.coroutine used to leave


_mark_as_coroutine_function(AsyncProducer.send)


def _parse(config: Mapping[str, object] | None, options: Mapping[str, object], key_serializer: Any, value_serializer: Any,
           partitioner: Any, interceptors: Any) -> ProducerConfig:
    return ProducerConfig.parse(config, {
        **options, "key_serializer": key_serializer, "value_serializer": value_serializer, "partitioner": partitioner,
        "interceptors": None if interceptors == () else interceptors})


def _no_transactions() -> UnsupportedFeatureError:
    return UnsupportedFeatureError("transactions come in a later release; until then make readers tell duplicates apart by an id",
                              option="transactional_id")
