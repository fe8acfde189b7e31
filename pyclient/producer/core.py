"""The part of a producer that runs in steps of its reactor: lookups of topics, flush and close.

Knows the Accumulator and the Sender; a facade's thread or task appends the records (`pyclient.producer.record_send`).
"""
from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from functools import partial

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.deliveries import NO_PARTITION
from pyclient.buffers.queues import TopicQueues
from pyclient.codec.compression import Compression
from pyclient.config import ProducerConfig
from pyclient.core.cluster import Cluster
from pyclient.core.manager import Manager, Use
from pyclient.core.sending.auto_create import TopicCreation
from pyclient.core.sending.producer_ids import ProducerIds
from pyclient.core.sending.sender import Sender, SendingLimits
from pyclient.core.transactions.manager import Transactions
from pyclient.errors import AuthenticationError, ClientClosedError, DeliveryError, KafkaError, KafkaTimeoutError, MetadataTimeoutError, counted
from pyclient.metrics import BUFFER_AVAILABLE, BUFFER_EXHAUSTED, BUFFER_TOTAL, BUFFER_WAIT, WAITING_THREADS
from pyclient.records import TopicPartition
from pyclient.producer.callbacks import LoopObserver
from pyclient.producer.routing import Router
from pyclient.client.core import ClientCore
from pyclient.producer.metrics import BatchMetrics
from pyclient.producer.sealing import BatchSealer
from pyclient.producer.transactions import TransactionCalls
from pyclient.producer.waiting_sends import WaitingSends
from pyclient.runtime.environment import wall_ms
from pyclient.client.interceptors import interceptors
from pyclient.runtime.portals import Portal

_log = logging.getLogger(__name__)


class ProducerCore(ClientCore):
    """The parts of one producer, wired together."""

    config: ProducerConfig
    data_use = Use.PRODUCE

    def __init__(self, config: ProducerConfig, portal: Portal, observer: LoopObserver) -> None:
        super().__init__(config, portal, topics_idle_after=config.metadata_max_idle_ms / 1000, create_topics=True)
        self.observer = observer
        self.accumulator = Accumulator(
            memory=config.buffer_memory, batch_size=config.batch_size, max_request_size=config.max_request_size,
            linger=config.linger_ms / 1000, compression=Compression.named(config.compression_type),
            level=_level(config, config.compression_type), observer=observer, clock=self.clock,
            wall=None if self.environment.wall is wall_ms else self.environment.wall,
            random=self.random, codecs={topic: (Compression.named(codec), _level(config, codec)) for topic, codec in config.compression_by_topic})
        self._watch_buffer()
        self.interceptors = interceptors(config.interceptors, observer.dispatch)
        if self.interceptors is not None:
            self.accumulator.on_outcome = self.interceptors.on_outcome
        self.router = Router(config)
        if self.router.on_new_batch is not None:
            self.accumulator.on_new_batch = self.router.on_new_batch
        self.waiting_sends = WaitingSends()
        self.send_path = self.router.send_path(self.accumulator) if self.interceptors is None else None
        self.arrow_path = self.router.arrow_path(self.accumulator, observer) if self.interceptors is None else None
        self.send_simple_rows = _is_not_simple if self.arrow_path is None else self.arrow_path.send
        """As `ArrowPath.send`."""
        self._creation = TopicCreation()
        self.refused_records: deque[KafkaError] = deque()
        """Of a bulk, in any thread; the transactions do not know yet."""
        self._sealer = BatchSealer(self.accumulator, self.environment)
        limits = SendingLimits(
            acks=config.acks, in_flight=config.max_in_flight_requests_per_connection, max_request_size=config.max_request_size,
            request_timeout=self.request_timeout, delivery_timeout=config.delivery_timeout_ms / 1000, linger=config.linger_ms / 1000, retries=config.retries,
            adaptive=config.partitioner_adaptive_partitioning_enable,
            availability_timeout=config.partitioner_availability_timeout_ms / 1000)
        batch_metrics = self._batch_metrics = BatchMetrics(self.metrics, self.clock)
        observer.on_failed = batch_metrics.failed
        self.transactions = self._make_transactions(config)
        if self.transactions is not None:
            observer.on_failed = self._fail_transaction(self.transactions, batch_metrics)
        self.transaction_calls = TransactionCalls(self, self.transactions)
        self.sender = Sender(self.accumulator, self.metadata, limits, backoff=self.backoff, seal=self._sealer.seal, listener=batch_metrics,
                             ids=self.transactions or (ProducerIds(self.calls) if config.enable_idempotence else None), transactions=self.transactions)
        if self.transactions is not None:
            self.transactions.records = self.sender

    def _make_transactions(self, config: ProducerConfig) -> Transactions | None:
        if config.transactional_id is None:
            return None
        transactions = Transactions(config.transactional_id, config.transaction_timeout_ms / 1000, self.calls, self.connections.features)
        transactions.on_gate = self.accumulator.set_gate
        self.accumulator.set_gate(transactions.gate())
        return transactions

    def _fail_transaction(self, transactions: Transactions, metrics: BatchMetrics) -> Callable[[TopicPartition, int, KafkaError], None]:
        """Records of a bulk that were refused must not be missing from a commit. Called by any thread."""
        def on_failed(tp: TopicPartition, count: int, error: KafkaError) -> None:
            metrics.failed(tp, count, error)
            if tp.partition == NO_PARTITION and self.started:
                self.refused_records.append(error)
                self.reactor.call_soon(self.note_refused)

        return on_failed

    def note_refused(self) -> None:
        """Report refused records to the transactions."""
        while self.refused_records and self.transactions is not None:
            self.transactions.record_refused(self.refused_records.popleft())

    def _watch_buffer(self) -> None:
        buffers, metrics = self.accumulator, self.metrics
        metrics.watch(BUFFER_TOTAL, lambda: buffers.pool.total)
        metrics.watch(BUFFER_AVAILABLE, lambda: buffers.pool.total - buffers.pool.used)
        metrics.watch(BUFFER_WAIT, lambda: buffers.waits.seconds(self.clock()))
        metrics.watch(BUFFER_EXHAUSTED, lambda: buffers.rejected)
        metrics.watch(WAITING_THREADS, lambda: len(buffers.waits))

    def managers(self) -> Sequence[Manager]:
        """Metadata first: a new view moves batches. Calls last: a sender without producer id submits one."""
        metadata, *others = super().managers()
        return [metadata, self.sender, *([] if self.transactions is None else [self.transactions]), *others]

    def data_manager(self) -> Manager:
        """As `ClientCore.data_manager`."""
        return self.sender

    async def start(self) -> None:
        """Ready batches wake the driver from now on."""
        await super().start()
        self.accumulator.on_ready = self.driver.wake_from_anywhere
        if self.config.linger_ms > 0:
            self.driver.on_sleep = self.accumulator.wakes_at

    def on_cluster(self, cluster: Cluster) -> None:
        """Publish the topics' partitions to the threads and tasks that send."""
        for name, topic in cluster.topics.items():
            if topic.partitions:
                # A topic with an error (it may be deleted) keeps the partitions known before, all of them without a
                # leader.
                self.accumulator.set_topic(name, len(topic.partitions), () if topic.error else topic.available)

    def on_refused(self, error: AuthenticationError) -> None:
        """The brokers refuse this client: fail the waiting records and accept no more."""
        self.accumulator.close(error)
        self.sender.abandon(error)

    # ---- waiting ----------------------------------------------------------------------------------------------------

    async def queues(self, topic: str, partition: int | None, timeout: float, began: float) -> TopicQueues:
        """The topic's queues, once the topic and this *partition* of it are known (None: any partition).

        *began* is the time at which the call began to wait: the error says how long it has.

        Raises:
            MetadataTimeoutError: not within *timeout* seconds.
        """
        self.check_open()
        self.metadata.want(topic, self.clock())
        doubted = self._doubt(topic)

        def known() -> TopicQueues | None:
            self._raise_topic_error(topic, newer_than=doubted)
            queues: TopicQueues | None = self.accumulator.topic(topic)
            if queues is not None and partition is not None and partition >= len(queues):
                self.metadata.request_update()
                return None
            return queues

        late = self.reactor.call_at(self.reactor.clock() + timeout / 2, partial(self._request_auto_create, topic, timeout / 2))
        try:
            return await self.driver.until(known, timeout, lambda: self._unknown(topic, partition, self.clock() - began))
        finally:
            late.cancel()

    def _request_auto_create(self, topic: str, timeout: float) -> None:
        """Half of the time is over: find out whether the cluster creates topics, for the error's text."""
        nodes = self.metadata.cluster.nodes
        if self.metadata.usable(topic) is None and nodes and self.closed is None:
            self.calls.submit(self._creation.call(self.random.choice(sorted(nodes)), self.clock() + timeout))
            self.driver.wake()

    def _unknown(self, topic: str, partition: int | None, waited: float) -> KafkaError:
        queues = self.accumulator.topic(topic)
        if queues is None or partition is None:
            return self.metadata_timeout(topic, round(waited, 3), self._creation.sentence())
        return MetadataTimeoutError(
            f"partition {partition} of topic {topic!r} is not known after {waited:.3f} s: the topic has {len(queues)}, "
            "numbered from 0. Nothing was queued.", topic_partition=TopicPartition(topic, partition))

    def unsettled(self) -> int:
        """How many records are neither acknowledged nor failed. Takes no lock: finalizers call it in any thread."""
        count: int = self.accumulator.unsettled
        return count

    def describe(self, kind: str) -> str:
        """The ``repr`` of a client of this *kind*: its state and what it holds. Takes no lock."""
        first, *others = self.config.bootstrap_servers
        more = f" and {len(others)} more" if others else ""
        pool = self.accumulator.pool
        return (f"<{kind} of {first}{more}, {self.state}: {counted(self.unsettled(), 'record')} not acknowledged, "
                f"{pool.used} of {pool.total} B of buffer_memory used>")

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.closed is not None:
            return "belongs to the parent process" if self.is_forked else "closed"
        if self.refused is not None:
            return "refused by the brokers"
        return "open" if self.started else "not opened"

    async def settle(self, timeout: float | None) -> None:
        """Wait until everything sent before this call is settled, but nothing sent later; its callbacks are dispatched
        then.

        Raises:
            KafkaTimeoutError: not all are settled in time; they are still being sent.
        """
        self.check_open()
        await self._settled(timeout)

    async def _settled(self, timeout: float | None) -> None:
        results = [batch.result.whole for batch in self.accumulator.flush_open()]
        self.driver.wake()

        def settled() -> bool | None:
            while results and results[-1].notified:
                results.pop()
            return None if results else True

        await self.driver.until(settled, timeout, lambda: _still_sending(sum(each.count for each in results if not each.notified), timeout))

    def raise_failures(self) -> None:
        """Raise the failures that were not looked at, once."""
        count, causes = self.observer.take_failures()
        if count:
            raise DeliveryError(count, causes)

    # ---- the end ----------------------------------------------------------------------------------------------------

    async def finish(self, timeout: float | None) -> None:
        """Refuse records, deliver what was accepted within *timeout* seconds, fail the rest, and close.

        Raises:
            DeliveryError: records failed whose error was not looked at.
        """
        if self.closed is not None:
            return
        until = self.clock() + (self.config.delivery_timeout_ms / 1000 if timeout is None else timeout)
        self.accumulator.close()
        try:
            if self.refused is None:
                await self._end_open(timeout)
                await self._settled(None if timeout is None else max(0.0, until - self.clock()))
            if self.config.acks == 0:
                self.close_linger = max(0.0, until - self.clock())
        except ClientClosedError:
            return  # another call closed it meanwhile, and raises the failures
        except KafkaTimeoutError:
            self.sender.abandon(ClientClosedError(
                "the producer was closed before the record was acknowledged. Give close() a longer timeout, or flush() first."))
        finally:
            await self.close()
        self.raise_failures()

    async def _end_open(self, timeout: float | None) -> None:
        """T03: a close aborts the open transaction. Otherwise its coordinator would, after transaction_timeout_ms.

        A commit or abort that has begun ends first: its caller would not learn the outcome.
        """
        try:
            await self.transaction_calls.end_open(timeout)
        except KafkaTimeoutError:
            raise
        except KafkaError as error:
            _log.warning("the open transaction could not be aborted: %s", error)

    def forked(self) -> None:
        """This process is a forked child: no pending record is settled here."""
        super().forked()
        if self.send_path is not None:
            self.send_path.closed = True  # before it takes the lock, which a thread of the parent may have held at the fork
        self.accumulator.forked(self.closed)
        self.observer.closed = self.closed

    async def close(self) -> None:
        """Close and fail what is not settled; `finish` delivers first."""
        self.accumulator.close()
        if self.closed is None:
            self.sender.abandon(ClientClosedError("the producer was closed before the record was acknowledged"))
        await super().close()
        self._sealer.close()
        if self.interceptors is not None:
            self.interceptors.close()


def _still_sending(count: int, timeout: float | None) -> KafkaTimeoutError:
    are = "is" if count == 1 else "are"
    return KafkaTimeoutError(
        f"{counted(count, 'record')} {are} not acknowledged after {timeout} s and still being sent. Flush again, or raise the timeout; "
        "delivery_timeout_ms ends each record.")


def _level(config: ProducerConfig, codec: str) -> int | None:
    """The configured compression level; None is the codec's default."""
    option = f"compression_{codec}_level"
    return getattr(config, option) if option in config.given else None


def _is_not_simple(*_: object) -> None:
    """No Arrow data of this producer is: each record is shown to a serializer, a partitioner or an interceptor."""
