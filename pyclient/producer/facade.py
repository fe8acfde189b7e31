"""`Producer` and `AsyncProducer`: every public method, with its arguments and errors. No protocol logic.

What a send waits for is written once, as steps (`pyclient.producer.record_send`, `pyclient.producer.bulk`); each class
only performs them.
"""
from __future__ import annotations

import asyncio
import inspect
import sys
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack

from pyclient.buffers.deliveries import Deliveries
from pyclient.buffers.delivery import Delivery
from pyclient.buffers.fast_send import AsyncFastSend, FastSend, async_fast_send, fast_send
from pyclient.column_serializers import ColumnEncoder
from pyclient.config import ProducerConfig
from pyclient.config.declaration import with_hidden_secrets
from pyclient.errors import ClientClosedError, KafkaError, KafkaTimeoutError, counted, raisable
from pyclient.foreign_calls import answers_foreign_calls
from pyclient.records import ConsumerGroupMetadata, K_contra, RecordMetadata, V_contra
from pyclient.producer.arguments import GivenHeaders
from pyclient.producer.bulk import BulkSend, arrow_columns
from pyclient.producer.callbacks import LoopObserver, ThreadObserver
from pyclient.producer.shutdown import ProducerShutdown, limit_after
from pyclient.client.facade_base import OPTION, AsyncFacade, Facade, left, raise_or_note, seconds
from pyclient.producer.core import ProducerCore
from pyclient.producer.record_send import OnDelivery, record_send
from pyclient.producer.transactions import AsyncTransaction, Transaction, TransactionCalls
from pyclient.producer.waits import BlockBudget, wait_for_topic
from pyclient.runtime.environment import loop_reactor, thread_reactor
from pyclient.runtime.portals import LoopPortal, ThreadPortal
from pyclient.serializing import AnySerializer
from pyclient.runtime.steps import Step, Steps, await_steps, run_steps

if TYPE_CHECKING:
    from pyclient.option_types import ProducerOptions

T = TypeVar("T")


@answers_foreign_calls("producer")
class Producer(FastSend, Facade, Generic[K_contra, V_contra]):
    """Sends records to Kafka; used by any number of threads.

    Options are keywords in snake_case, or Kafka's dotted names in the mapping *config*; a keyword wins;
    ``help('pyclient.option_types.ProducerOptions')`` lists them. ``key_serializer`` and ``value_serializer``
    turn keys and values into bytes. ``partitioner`` is an object, a name, or ``"package.module:Class"``;
    ``interceptors`` is a list of these (`pyclient.plugins.ProducerInterceptor`).

    Raises:
        ConfigurationError: an option that is unknown, of a wrong type or out of range.
        UnsupportedFeatureError: an option of a later release.
    """

    _core: ProducerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, key_serializer: AnySerializer[K_contra] | None = None,
                 value_serializer: AnySerializer[V_contra] | None = None, partitioner: Any = None, interceptors: Any = (), **options: Unpack[ProducerOptions]) -> None:
        """A producer with these options.

        *config* has options by Kafka's dotted names; *options* are the same ones in snake_case, and win. Those set
        most often: ``bootstrap_servers``, ``acks``, ``linger_ms``, ``compression_type``, ``delivery_timeout_ms``,
        ``transactional_id``.
        ``help('pyclient.option_types.ProducerOptions')`` has all of them.

        *key_serializer* and *value_serializer* turn keys and values into bytes: a function, an object, or a name such
        as ``json``. *partitioner* chooses the partition of a record that names none. *interceptors* see each record
        before it is sent, and its outcome.

        With threads, this opens it.

        Raises:
            ConfigurationError: an option that is unknown, of a wrong type or out of range.
            UnsupportedFeatureError: an option of a later release.
        """
        config, options = with_hidden_secrets(config), with_hidden_secrets(options)
        parsed = _parse(config, options, key_serializer, value_serializer, partitioner, interceptors)
        self._portal = ThreadPortal("pyclient-producer", thread_reactor())
        self._observer = ThreadObserver("pyclient-callbacks", self._portal.reactor)
        self._core = ProducerCore(parsed, self._portal, self._observer)
        self._send_path = self._core.send_path
        self._record_send = record_send(self._core)
        self._portal.start()
        self._end = ProducerShutdown(self._core, self._portal, self._observer)
        self._portal.call(self._core.start)

    @fast_send
    def send(self, topic: str, value: V_contra | None = None, key: K_contra | None = None, *, partition: int | None = None, timestamp: int | None = None,
             headers: GivenHeaders = (), on_delivery: OnDelivery | None = None) -> Delivery:
        """Queue one record for *topic* and return at once; the `Delivery` is its result. Order is kept per partition.

        *value* and *key* are bytes, or what the serializers take; a *value* of None deletes the key from a compacted
        topic. ``partition`` is 0-based, None lets the partitioner choose; ``timestamp`` is in ms since the epoch, None
        is now; ``headers`` are (str, bytes or None) pairs, or a dict; ``on_delivery(delivery)`` is called with the
        outcome. Waits for an unknown topic and for memory, both within ``max_block_ms``.

        With threads, *on_delivery* runs on the callback thread, where a send that would have to wait raises instead.
        When Ctrl-C interrupts the call, the record may already be queued; it is then delivered once, like any other.

        Raises:
            BufferExhaustedError: ``buffer_memory`` stayed full; nothing was queued, calling again is safe.
            MetadataTimeoutError: the topic or partition is not known; nothing was queued.
            RecordTooLargeError: the record alone exceeds ``max_request_size``; it will never fit.
        """
        if self._core.closed is not None:
            raise raisable(self._core.closed)
        queued = self._record_send.queue(topic, value, key, partition, timestamp, headers, on_delivery)
        return queued if isinstance(queued, Delivery) else self._run(queued)

    def send_and_wait(self, topic: str, value: V_contra | None = None, key: K_contra | None = None, *, partition: int | None = None,
                      timestamp: int | None = None, headers: GivenHeaders = (), timeout: float | None = None) -> RecordMetadata:
        """As `send`, then wait for the acknowledgement: its partition and offset.

        *topic*, *value*, *key*, *partition*, *timestamp* and *headers* are those of `send`. One record at a time: with
        `send` many are on their way together. ``timeout`` limits the wait for the acknowledgement, in seconds; None
        waits until ``delivery_timeout_ms`` has decided it.

        Raises:
            KafkaError: why the record was not queued, or not delivered.
            KafkaTimeoutError: not known after *timeout*; the record is still being sent.
        """
        limit = seconds(timeout, 0)
        return self.send(topic, value, key, partition=partition, timestamp=timestamp, headers=headers).result(limit)

    def send_many(self, topic: str, values: Iterable[V_contra | None], *, keys: Iterable[K_contra | None] | None = None,
                  headers: Iterable[GivenHeaders | None] | None = None, timestamps: Iterable[int | None] | None = None,
                  partition: int | None = None) -> Deliveries:
        """Queue a record for *topic* for each of *values*, in their order; one `Deliveries` holds all results.

        ``keys``, ``headers`` and ``timestamps`` have one item for each value, which may be None; ``partition`` is for
        all records. Waits for an unknown topic and for memory, both within ``max_block_ms`` for the whole call. A
        record that cannot be queued (too large, refused by a serializer or partitioner, no memory in time) does not
        stop the others: its error is in the deliveries, under its index. When a record gets no memory in time, it and
        all after it are refused; interceptors see at most the chunk that it belongs to.

        Raises:
            MetadataTimeoutError: the topic or partition is not known; nothing was queued. With interceptors, which may
                route records elsewhere, it is the error of each record that stays there.
            TypeError, ValueError: the arguments are not lists of one length; nothing was queued.
        """
        with BulkSend(self._open_producer()) as bulk:
            return self._run(bulk.values(topic, values, keys, headers, timestamps, partition))

    def send_arrow(self, topic: str | None, data: Any, *, value: str | ColumnEncoder | None = "value", key: str | ColumnEncoder | None = "key",
                   headers: str | None = "headers", timestamp: str | None = "timestamp", topic_column: str | None = None,
                   partition_column: str | None = None) -> Deliveries:
        """Queue a record for each row of *data*, in their order: a table, a record batch, anything with
        ``__arrow_c_stream__``.

        The bytes go from Arrow's memory into batches, without a Python object per record. ``value``, ``key``,
        ``headers`` and ``timestamp`` name the columns: binary or string; headers as `Records.to_arrow` gives them;
        Arrow timestamps or int64 ms. A default column that is absent counts as null; a column that you name must exist.
        ``topic_column`` is the column with each row's topic; null means *topic*. ``partition_column`` is that with each
        row's partition (integers); null lets the partitioner choose. A row is refused if its topic does not have that
        partition within ``max_block_ms``, or if its offsets are damaged. Waits, and refuses records, as `send_many`.
        Change no buffer of the data meanwhile.

        An encoder in place of a name, such as ``value=AvroEncoder(...)``, makes the bytes of a column of other types.

        Raises:
            ImportError: pyarrow is not installed.
            ConfigurationError: the producer has a serializer for what an encoder encodes.
            MetadataTimeoutError: *topic* is not known; nothing was queued. With interceptors as for `send_many`.
            SerializationError: the encoder's schema does not fit; nothing of these (up to 65,536) rows was queued, and
                a note has the index that was reached.
            TypeError, ValueError: the message names the column that is wrong or damaged; nothing of its batch was
                queued, and a note has the index that was reached.
        """
        core = self._open_producer()
        begun = core.send_simple_rows(topic, data, value, key, headers, timestamp, topic_column, partition_column)
        if isinstance(begun, Deliveries):
            return begun
        with BulkSend(core, begun) as bulk:
            return self._run(bulk.arrow(topic, data, *arrow_columns(value, key, headers, timestamp, topic_column, partition_column)))

    def flush(self, timeout: float | None = OPTION) -> None:
        """Wait until everything sent before this call is acknowledged or has failed, and its delivery callbacks and
        interceptors have returned.

        ``timeout`` is in seconds, left out it is ``delivery_timeout_ms``; None waits without end.

        With threads, it raises in a delivery callback instead of waiting. Hold no lock that a callback takes.

        Raises:
            DeliveryError: records failed whose error was not looked at: their number, and the first cause per
                partition.
            KafkaTimeoutError: not all are settled; they are still being sent. Or callbacks are still running.
        """
        core = self._open_producer()
        self._observer.check_wait()
        limit = seconds(timeout, core.config.delivery_timeout_ms)
        until = None if limit is None else core.clock() + limit
        self._portal.call(lambda: core.settle(limit))
        if not self._observer.wait_for_callbacks(None if until is None else left(until, core.clock)):
            raise KafkaTimeoutError(f"every record is acknowledged or has failed, but delivery callbacks are still running after {limit} s. "
                                    "Flush again, or raise the timeout.")
        core.raise_failures()

    # ---- transactions -----------------------------------------------------------------------------------------------

    def init_transactions(self, timeout: float | None = OPTION, *, transactional_id: str | None = None) -> None:
        """Get a producer id: fences older producers with the same ``transactional_id``, and ends what they left open.

        ``timeout`` is in seconds, left out it is ``max_block_ms``. With *transactional_id* the producer goes on under
        that id, while no transaction is open.

        Raises:
            ApplicationRecoverableError, AuthorizationError: this producer cannot run transactions.
            KafkaTimeoutError: it goes on; call it again.
            IllegalStateError: it was called before, or a transaction is open.
        """
        self._transaction_calls().initialize(transactional_id, timeout).run(self._portal)

    def begin_transaction(self) -> None:
        """Open a transaction: records sent from now on are read by read_committed consumers once it is committed.

        Raises:
            IllegalStateError: one is open, or `init_transactions` was not called.
        """
        self._transaction_calls().begin().run(self._portal)

    def send_offsets(self, offsets: Any, group_metadata: ConsumerGroupMetadata, timeout: float | None = OPTION) -> None:
        """Commit a consumer's offsets with the transaction (KIP-447): records are processed exactly once.

        *offsets* are records, their ``next_offsets()``, or a mapping; *group_metadata* is
        ``consumer.group_metadata()``. Use a consumer with ``enable_auto_commit=False``.

        *timeout* is in seconds; left out: ``max_block_ms``; None: no limit.

        Raises:
            TransactionAbortableError: the group went on without this member, or a right is missing: abort.
            ApplicationRecoverableError: close this producer and open a new one.
            KafkaTimeoutError: its outcome is not known: abort.
        """
        self._transaction_calls().send_offsets(offsets, group_metadata, timeout).run(self._portal)

    def commit_transaction(self, timeout: float | None = OPTION) -> None:
        """Send what is left, wait for all acknowledgements, and commit.

        *timeout* is in seconds; left out: ``max_block_ms``; None: no limit.

        Raises:
            TransactionAbortableError: a record or offset was refused: abort, then begin again.
            ApplicationRecoverableError: close this producer and open a new one.
            KafkaTimeoutError: its outcome is not known: call it again.
        """
        self._transaction_calls().commit(timeout).run(self._portal)

    def abort_transaction(self, timeout: float | None = OPTION) -> None:
        """Fail what was not sent, and abort: read_committed consumers never see the transaction's records.

        *timeout* is in seconds; left out: ``max_block_ms``; None: no limit.

        Raises:
            ApplicationRecoverableError: close this producer and open a new one.
            KafkaTimeoutError: it goes on: call it again.
        """
        self._transaction_calls().abort(timeout).run(self._portal)

    def transaction(self) -> Transaction:
        """A transaction as a context manager: commits at the end of the block, aborts when the block raises.

        The first one calls `init_transactions`.
        """
        self._transaction_calls().check()
        return Transaction(self)

    def partitions_for(self, topic: str) -> int:
        """The number of partitions of *topic*; waits up to ``max_block_ms`` for an unknown topic."""
        core = self._open_producer()
        return len(self._run(wait_for_topic(core, topic, None, BlockBudget(core))))

    def metrics(self) -> dict[str, float]:
        """The current metrics, by Kafka's names."""
        return self._core.metric_values()

    def close(self, timeout: float | None = OPTION) -> None:
        """Deliver what was accepted, at most *timeout* seconds (left out: ``delivery_timeout_ms``), then fail the rest.

        Returns when the delivery callbacks and interceptors have returned, at most a second after *timeout*. A second
        call does nothing.

        With threads, *timeout* is at most 5 s when Ctrl-C has ended the ``with`` block.

        Raises:
            DeliveryError: records failed whose error was not looked at.
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
            if not self._core.is_forked:  # a forked child: the producer belongs to the parent
                self.close(limit_after(error, self._core))
        except KafkaError as failed:
            raise_or_note(failed, error, "producer")

    def __len__(self) -> int:
        """How many records are neither acknowledged nor failed."""
        return self._core.unsettled()

    def __bool__(self) -> bool:
        """A producer is true, also when no record is pending."""
        return True

    def __repr__(self) -> str:
        return self._core.describe(type(self).__name__) if hasattr(self, "_core") else f"<{type(self).__name__} without options yet>"

    def _run(self, steps: Steps[Step, T]) -> T:
        return run_steps(steps, lambda step: step.run(self._portal))

    def _forget(self) -> None:
        self._end.forget()

    def _unclosed(self) -> str:
        return f"unclosed Producer, {counted(self._core.unsettled(), 'record')} not acknowledged: use `with` or close()"

    def _transaction_calls(self) -> TransactionCalls:
        return self._open_producer().transaction_calls

    def _open_producer(self) -> ProducerCore:
        self._open_core()
        return self._core


@answers_foreign_calls("producer")
class AsyncProducer(AsyncFastSend, AsyncFacade, Generic[K_contra, V_contra]):
    """`Producer` for asyncio: the same names, awaited where they can wait. Bound to the loop of ``async with``."""

    _core: ProducerCore

    def __init__(self, config: Mapping[str, object] | None = None, /, *, key_serializer: AnySerializer[K_contra] | None = None,
                 value_serializer: AnySerializer[V_contra] | None = None, partitioner: Any = None, interceptors: Any = (), **options: Unpack[ProducerOptions]) -> None:
        """A producer with these options.

        *config* has options by Kafka's dotted names; *options* are the same ones in snake_case, and win. Those set
        most often: ``bootstrap_servers``, ``acks``, ``linger_ms``, ``compression_type``, ``delivery_timeout_ms``,
        ``transactional_id``.
        ``help('pyclient.option_types.ProducerOptions')`` has all of them.

        *key_serializer* and *value_serializer* turn keys and values into bytes: a function, an object, or a name such
        as ``json``. *partitioner* chooses the partition of a record that names none. *interceptors* see each record
        before it is sent, and its outcome.

        With asyncio, ``async with`` or `start` opens it.

        Raises:
            ConfigurationError: an option that is unknown, of a wrong type or out of range.
            UnsupportedFeatureError: an option of a later release.
        """
        config, options = with_hidden_secrets(config), with_hidden_secrets(options)
        parsed = _parse(config, options, key_serializer, value_serializer, partitioner, interceptors)
        self._portal = LoopPortal("producer", loop_reactor())
        self._observer = LoopObserver()
        self._core = ProducerCore(parsed, self._portal, self._observer)
        self._send_path = self._core.send_path
        self._record_send = record_send(self._core, awaits=True)

    @async_fast_send
    async def send(self, topic: str, value: V_contra | None = None, key: K_contra | None = None, *, partition: int | None = None, timestamp: int | None = None,
                   headers: GivenHeaders = (), on_delivery: OnDelivery | None = None) -> Delivery:
        """Queue one record for *topic* and return at once; the `Delivery` is its result. Order is kept per partition.

        *value* and *key* are bytes, or what the serializers take; a *value* of None deletes the key from a compacted
        topic. ``partition`` is 0-based, None lets the partitioner choose; ``timestamp`` is in ms since the epoch, None
        is now; ``headers`` are (str, bytes or None) pairs, or a dict; ``on_delivery(delivery)`` is called with the
        outcome. Waits for an unknown topic and for memory, both within ``max_block_ms``.

        With asyncio, ``await`` the returned delivery for its acknowledgement. The call suspends only for an unknown
        topic or for memory. *on_delivery* runs on the loop. Most records are queued by the call itself: cancelling the
        ``await``, or a task created from it, does not remove them from the queue.

        Raises:
            BufferExhaustedError: ``buffer_memory`` stayed full; nothing was queued, calling again is safe.
            MetadataTimeoutError: the topic or partition is not known; nothing was queued.
            RecordTooLargeError: the record alone exceeds ``max_request_size``; it will never fit.
        """
        self._core.check_open()
        queued = self._record_send.queue(topic, value, key, partition, timestamp, headers, on_delivery)
        return queued if isinstance(queued, Delivery) else await self._run(queued)

    async def send_and_wait(self, topic: str, value: V_contra | None = None, key: K_contra | None = None, *, partition: int | None = None,
                            timestamp: int | None = None, headers: GivenHeaders = (), timeout: float | None = None) -> RecordMetadata:
        """As `send`, then wait for the acknowledgement: its partition and offset.

        *topic*, *value*, *key*, *partition*, *timestamp* and *headers* are those of `send`. One record at a time: with
        `send` many are on their way together. ``timeout`` limits the wait for the acknowledgement, in seconds; None
        waits until ``delivery_timeout_ms`` has decided it.

        Raises:
            KafkaError: why the record was not queued, or not delivered.
            KafkaTimeoutError: not known after *timeout*; the record is still being sent.
        """
        limit = seconds(timeout, 0)
        delivery = await self.send(topic, value, key, partition=partition, timestamp=timestamp, headers=headers)
        scope = asyncio.timeout(limit)
        try:
            async with scope:
                return await delivery
        except TimeoutError:
            if not scope.expired():
                raise  # the record's own error
            raise KafkaTimeoutError(f"the record for {delivery.topic}-{delivery.partition} is not acknowledged after {limit} s; it is still being sent. "
                                    "Wait longer, or look at flush() and delivery_timeout_ms.") from None

    async def send_many(self, topic: str, values: Iterable[V_contra | None], *, keys: Iterable[K_contra | None] | None = None,
                  headers: Iterable[GivenHeaders | None] | None = None, timestamps: Iterable[int | None] | None = None,
                  partition: int | None = None) -> Deliveries:
        """Queue a record for *topic* for each of *values*, in their order; one `Deliveries` holds all results.

        ``keys``, ``headers`` and ``timestamps`` have one item for each value, which may be None; ``partition`` is for
        all records. Waits for an unknown topic and for memory, both within ``max_block_ms`` for the whole call. A
        record that cannot be queued (too large, refused by a serializer or partitioner, no memory in time) does not
        stop the others: its error is in the deliveries, under its index. When a record gets no memory in time, it and
        all after it are refused; interceptors see at most the chunk that it belongs to.

        With asyncio, it suspends only for an unknown topic or for memory. When it is cancelled, a note of the
        CancelledError says which records are queued; these are delivered.

        Raises:
            MetadataTimeoutError: the topic or partition is not known; nothing was queued. With interceptors, which may
                route records elsewhere, it is the error of each record that stays there.
            TypeError, ValueError: the arguments are not lists of one length; nothing was queued.
        """
        with BulkSend(self._checked_core()) as bulk:
            return await self._run(bulk.values(topic, values, keys, headers, timestamps, partition))

    async def send_arrow(self, topic: str | None, data: Any, *, value: str | ColumnEncoder | None = "value", key: str | ColumnEncoder | None = "key",
                   headers: str | None = "headers", timestamp: str | None = "timestamp", topic_column: str | None = None,
                   partition_column: str | None = None) -> Deliveries:
        """Queue a record for each row of *data*, in their order: a table, a record batch, anything with
        ``__arrow_c_stream__``.

        The bytes go from Arrow's memory into batches, without a Python object per record. ``value``, ``key``,
        ``headers`` and ``timestamp`` name the columns: binary or string; headers as `Records.to_arrow` gives them;
        Arrow timestamps or int64 ms. A default column that is absent counts as null; a column that you name must exist.
        ``topic_column`` is the column with each row's topic; null means *topic*. ``partition_column`` is that with each
        row's partition (integers); null lets the partitioner choose. A row is refused if its topic does not have that
        partition within ``max_block_ms``, or if its offsets are damaged. Waits, and refuses records, as `send_many`.
        Change no buffer of the data meanwhile.

        An encoder in place of a name, such as ``value=AvroEncoder(...)``, makes the bytes of a column of other types.

        With asyncio, it suspends and may be cancelled as `send_many`.

        Raises:
            ImportError: pyarrow is not installed.
            ConfigurationError: the producer has a serializer for what an encoder encodes.
            MetadataTimeoutError: *topic* is not known; nothing was queued. With interceptors as for `send_many`.
            SerializationError: the encoder's schema does not fit; nothing of these (up to 65,536) rows was queued, and
                a note has the index that was reached.
            TypeError, ValueError: the message names the column that is wrong or damaged; nothing of its batch was
                queued, and a note has the index that was reached.
        """
        core = self._checked_core()
        row_arguments = data, value, key, headers, timestamp, topic_column, partition_column
        begun = None if core.waiting_sends else core.send_simple_rows(topic, *row_arguments)
        if isinstance(begun, Deliveries):
            return begun
        with BulkSend(core, begun) as bulk:
            return await self._run(bulk.arrow(topic, data, *arrow_columns(value, key, headers, timestamp, topic_column, partition_column)))

    async def flush(self, timeout: float | None = OPTION) -> None:
        """Wait until everything sent before this call is acknowledged or has failed, and its delivery callbacks and
        interceptors have returned.

        ``timeout`` is in seconds, left out it is ``delivery_timeout_ms``; None waits without end.

        Raises:
            DeliveryError: records failed whose error was not looked at: their number, and the first cause per
                partition.
            KafkaTimeoutError: not all are settled; they are still being sent. Or callbacks are still running.
        """
        await self._portal.call(lambda: self._core.settle(seconds(timeout, self._core.config.delivery_timeout_ms)))
        self._core.raise_failures()

    # ---- transactions -----------------------------------------------------------------------------------------------

    async def init_transactions(self, timeout: float | None = OPTION, *, transactional_id: str | None = None) -> None:
        """Get a producer id: fences older producers with the same ``transactional_id``, and ends what they left open.

        ``timeout`` is in seconds, left out it is ``max_block_ms``. With *transactional_id* the producer goes on under
        that id, while no transaction is open.

        Raises:
            ApplicationRecoverableError, AuthorizationError: this producer cannot run transactions.
            KafkaTimeoutError: it goes on; call it again.
            IllegalStateError: it was called before, or a transaction is open.
        """
        await self._transaction_calls().initialize(transactional_id, timeout).run_async(self._portal)

    async def begin_transaction(self) -> None:
        """Open a transaction: records sent from now on are read by read_committed consumers once it is committed.

        Raises:
            IllegalStateError: one is open, or `init_transactions` was not called.
        """
        await self._transaction_calls().begin().run_async(self._portal)

    async def send_offsets(self, offsets: Any, group_metadata: ConsumerGroupMetadata, timeout: float | None = OPTION) -> None:
        """Commit a consumer's offsets with the transaction (KIP-447): records are processed exactly once.

        *offsets* are records, their ``next_offsets()``, or a mapping; *group_metadata* is
        ``consumer.group_metadata()``. Use a consumer with ``enable_auto_commit=False``.

        *timeout* is in seconds; left out: ``max_block_ms``; None: no limit.

        Raises:
            TransactionAbortableError: the group went on without this member, or a right is missing: abort.
            ApplicationRecoverableError: close this producer and open a new one.
            KafkaTimeoutError: its outcome is not known: abort.
        """
        await self._transaction_calls().send_offsets(offsets, group_metadata, timeout).run_async(self._portal)

    async def commit_transaction(self, timeout: float | None = OPTION) -> None:
        """Send what is left, wait for all acknowledgements, and commit.

        *timeout* is in seconds; left out: ``max_block_ms``; None: no limit.

        Raises:
            TransactionAbortableError: a record or offset was refused: abort, then begin again.
            ApplicationRecoverableError: close this producer and open a new one.
            KafkaTimeoutError: its outcome is not known: call it again.
        """
        await self._transaction_calls().commit(timeout).run_async(self._portal)

    async def abort_transaction(self, timeout: float | None = OPTION) -> None:
        """Fail what was not sent, and abort: read_committed consumers never see the transaction's records.

        *timeout* is in seconds; left out: ``max_block_ms``; None: no limit.

        Raises:
            ApplicationRecoverableError: close this producer and open a new one.
            KafkaTimeoutError: it goes on: call it again.
        """
        await self._transaction_calls().abort(timeout).run_async(self._portal)

    def transaction(self) -> AsyncTransaction:
        """A transaction as a context manager: commits at the end of the block, aborts when the block raises.

        The first one calls `init_transactions`.

        With asyncio, it is opened by ``async with``.
        """
        self._transaction_calls().check()
        return AsyncTransaction(self)

    async def partitions_for(self, topic: str) -> int:
        """The number of partitions of *topic*; waits up to ``max_block_ms`` for an unknown topic."""
        core = self._checked_core()
        return len(await self._run(wait_for_topic(core, topic, None, BlockBudget(core))))

    def metrics(self) -> dict[str, float]:
        """The current metrics, by Kafka's names."""
        return self._core.metric_values()

    async def close(self, timeout: float | None = OPTION) -> None:
        """Deliver what was accepted, at most *timeout* seconds (left out: ``delivery_timeout_ms``), then fail the rest.

        Returns when the delivery callbacks and interceptors have returned, at most a second after *timeout*. A second
        call does nothing.

        Raises:
            DeliveryError: records failed whose error was not looked at.
        """
        self._core.check_process()
        limit = seconds(timeout, self._core.config.delivery_timeout_ms)
        await self._portal.close(lambda: self._core.finish(limit), closed=self._core.closed is not None)

    async def start(self) -> None:
        """Open it on the running loop, where ``async with`` does not fit: then `stop` it in a ``finally``."""
        await self._portal.open(self._core.start)
        if self._core.send_path is not None and self._portal.loop is not None:
            self._core.send_path.bind(self._portal.loop)

    async def stop(self, timeout: float | None = OPTION) -> None:
        """`close` by another name, with its *timeout*; the counterpart of `start`."""
        await self.close(timeout)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    def __len__(self) -> int:
        """How many records are neither acknowledged nor failed."""
        return self._core.unsettled()

    def __bool__(self) -> bool:
        """A producer is true, also when no record is pending."""
        return True

    def __repr__(self) -> str:
        return self._core.describe(type(self).__name__) if hasattr(self, "_core") else f"<{type(self).__name__} without options yet>"

    def _forget(self) -> None:
        loop = self._portal.loop
        if loop is not None and loop.is_closed():  # nothing settles the records any more: a thread that waits for one must get an error
            self._core.sender.abandon(ClientClosedError(
                "the event loop was closed before the record was acknowledged; it may or may not be stored. Use `async with`."))
        else:
            super()._forget()

    def _unclosed(self) -> str:
        return f"unclosed AsyncProducer, {counted(self._core.unsettled(), 'record')} not acknowledged: use `async with` or close()"

    async def __aexit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        try:
            if not self._core.is_forked:
                await self.close(limit_after(error, self._core))
        except KafkaError as failed:
            raise_or_note(failed, error, "producer")

    def _transaction_calls(self) -> TransactionCalls:
        return self._core.transaction_calls

    def _checked_core(self) -> ProducerCore:
        self._core.check_open()
        return self._core

    async def _run(self, steps: Steps[Step, T]) -> T:
        return await await_steps(steps, lambda step: step.run_async(self._portal))


def _mark_as_coroutine_function(method: Any) -> None:
    """Make `inspect.iscoroutinefunction` true for the compiled method: `unittest.mock`, for one, checks it before it
    awaits.
    """
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

