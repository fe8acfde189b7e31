"""Slots in Kafka: their transactional producers and markers, and a task's rows written with its marker.

What may be written is decided in `markers`; here it is read, fenced and committed. One producer and one reader of
markers per process serve every slot: the producer goes on under each slot's transactional id.
"""
from __future__ import annotations

import contextlib
import logging
import time
from collections.abc import Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import attrs
import tenacity

from pyclient.codec.arrow_input import digest
from pyclient.config import ConsumerConfig, ProducerConfig
from pyclient.config.declaration import Config
from pyclient.consumer.facade import Consumer
from pyclient.errors import ApplicationRecoverableError, IllegalStateError, KafkaError, KafkaTimeoutError
from pyclient.integration.spark.columns import one_row
from pyclient.integration.spark.context import task_name
from pyclient.integration.spark.markers import Batch, Marker, Tally, check_replay, is_written
from pyclient.integration.spark.options import SinkOptions
from pyclient.integration.spark.producers import kept
from pyclient.integration.spark.rows import send_rows
from pyclient.producer.facade import Producer
from pyclient.records import TopicPartition

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

LOOK_S: Final = 0.2
FIRST_WINDOW: Final = 16
"""So many offsets from the end the last marker is looked for first: a marker and its transaction's end take two."""
FENCED_WAIT_S: Final = 60.0
"""How long a task that was fenced waits for the one that fenced it to write the same rows."""


@attrs.frozen(kw_only=True)
class SlotOptions:
    """What the tasks of an exactly-once sink need."""

    sink: SinkOptions
    prefix: str
    """transactional_id_prefix: slot 3 has the transactional id ``prefix-3``."""
    marker_topic: str

    def transactional_id(self, slot: int) -> str:
        """The id under which one slot's records are written."""
        return f"{self.prefix}-{slot}"


class SlotClients:
    """A transactional producer and a reader of markers for all slots of a sink."""

    def __init__(self, options: SlotOptions) -> None:
        self.options = options
        self.producer: Producer | None = None
        self._consumer = Consumer(**shared_options(options.sink.client, ConsumerConfig), isolation_level="read_committed", enable_auto_commit=False,
                                  auto_offset_reset="none", allow_auto_create_topics=False)

    def fence(self, slot: int) -> None:
        """End what older producers of the slot have begun, and keep them from beginning again."""
        name = self.options.transactional_id(slot)
        if self.producer is None:
            self.producer = Producer(**{**self.options.sink.client, "transactional_id": name})
        self.producer.init_transactions(transactional_id=name)

    def marker(self, slot: int) -> Marker | None:
        """Its last committed marker. Behind `fence`, no later one can be on its way."""
        tp = TopicPartition(self.options.marker_topic, slot)
        consumer = self._consumer
        consumer.assign([tp])
        first, start = consumer.beginning_offsets([tp])[tp], consumer.end_offsets([tp])[tp]
        window = FIRST_WINDOW
        while start > first:
            end, start, window = start, max(first, start - window), window * 4
            value = _last_value(consumer, tp, start, end)
            if value is not None:
                return Marker.from_bytes(value)
        return None

    def commit(self, slot: int, marker: Marker) -> None:
        """Write a marker alone."""
        producer = self.fenced()
        with producer.transaction():
            self.send_marker(producer, slot, marker)

    def send_marker(self, producer: Producer, slot: int, marker: Marker) -> None:
        """Put a marker into the open transaction."""
        producer.send(self.options.marker_topic, marker.to_bytes(), self.options.prefix.encode(), partition=slot)

    def fenced(self) -> Producer:
        """The producer; `fence` has opened it."""
        if self.producer is None:
            raise IllegalStateError("no slot was fenced yet")
        return self.producer

    def discard_producer(self) -> None:
        """Drop the producer after an error that ends it; `fence` opens another."""
        producer, self.producer = self.producer, None
        if producer is not None:
            with contextlib.suppress(KafkaError):  # the error that led here says more
                producer.close(timeout=0)

    def close(self, timeout: float = 0) -> None:
        """Close both clients. Nothing waits in the producer between two transactions."""
        self.discard_producer()
        self._consumer.close(timeout=timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.close()


def _last_value(consumer: Consumer, tp: TopicPartition, start: int, end: int) -> bytes | None:
    """The value of the last record in a range of offsets; None if it has none."""
    consumer.seek(tp, start)
    last, position, silent_since = None, start, time.monotonic()
    while position < end:
        for record in consumer.poll(LOOK_S):
            last = record.value if record.offset < end else last
        reached = consumer.position(tp)
        if reached > position:
            position, silent_since = reached, time.monotonic()
        elif time.monotonic() - silent_since > FENCED_WAIT_S:
            raise KafkaTimeoutError(f"markers of {tp} from offset {position} on did not come for {FENCED_WAIT_S:g} s: is its leader up?", topic_partition=tp)
    return last


def shared_options(client: Mapping[str, Any], kind: type[Config]) -> dict[str, Any]:
    """The options of a producer that another *kind* of client has too: where the cluster is, security, timeouts."""
    config = ProducerConfig.parse(None, client)
    known = {option.name for option in kind.fields()}
    return {option.name: value for option, value in config if option.name in known and option.name in config.given}


# ---- in a task ------------------------------------------------------------------------------------------------------


@attrs.frozen
class SlotTask:
    """What the tasks of the exactly-once sink run: the rows of a slot in, the slot and their number out."""

    options: SlotOptions
    batch: Batch
    slots: int

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import pyarrow as pa
        from pyspark import TaskContext

        context = TaskContext.get()
        assert context is not None, "tasks have a context"
        slot = context.partitionId()
        own = {"transactional_id_prefix": self.options.prefix, "marker_topic": self.options.marker_topic}
        with kept({**self.options.sink.client, **own}, lambda: SlotClients(self.options)) as clients:
            rows, written = write_slot(clients, slot, batches, self.batch, self.slots)
        log.info("%s: %d records of slot %d %s", task_name(), rows, slot, "written" if written else "skipped, which were written before")
        yield one_row({"slot": pa.int32(), "rows": pa.int64(), "written": pa.bool_()}, slot, rows, written)


def write_slot(clients: SlotClients, slot: int, batches: Iterator[pa.RecordBatch], batch: Batch, slots: int) -> tuple[int, bool]:
    """Write the rows of a slot and its marker in one transaction, unless it has them; reads its input to the end.

    Returns the number of rows, and whether this call has written them.

    Raises:
        IllegalStateError: another run has taken over, or the rows are not those that were written before.
        KafkaError: they cannot be written; nothing of them is committed.
    """
    rows = TalliedRows(batches, slot, slots)
    clients.fence(slot)  # before the marker is read: then no older producer can write another one
    marker = clients.marker(slot)
    written = not is_written(marker, batch, slot)
    if written:
        try:
            _write(clients, slot, rows, batch, slots)
            return rows.tally.rows, True
        except ApplicationRecoverableError:
            clients.discard_producer()
            marker = _written_by_another(clients, slot, batch)
            if marker is None:
                raise
    rows.drain()  # Spark ends a worker that leaves rows behind
    assert marker is not None
    check_replay(marker, rows.tally, slot)
    return rows.tally.rows, False


def _write(clients: SlotClients, slot: int, rows: TalliedRows, batch: Batch, slots: int) -> None:
    producer, began = clients.fenced(), time.monotonic()
    try:
        with producer.transaction():
            send_rows(producer, rows, clients.options.sink)
            clients.send_marker(producer, slot, Marker(query=batch.query, run=batch.run, batch=batch.number, slots=slots, tally=rows.tally))
    except KafkaError as error:
        error.add_note(f"Slot {slot} of batch {batch.number} worked for {time.monotonic() - began:.1f} s. A transaction that takes longer than "
                       "transaction_timeout_ms is aborted by its coordinator: raise it, use more slots, or make batches smaller.")
        raise


def _written_by_another(clients: SlotClients, slot: int, batch: Batch) -> Marker | None:
    """The marker of the task that fenced this one, once it has written the same batch; None if it does not."""
    def looked() -> Marker | None:
        marker = clients.marker(slot)
        return marker if is_written(marker, batch, slot) else None

    waiting = tenacity.Retrying(
        stop=tenacity.stop_after_delay(FENCED_WAIT_S), wait=tenacity.wait_fixed(0.5), retry=tenacity.retry_if_result(lambda marker: marker is None),
        retry_error_callback=lambda state: None)
    return waiting(looked)


class TalliedRows:
    """The batches of rows of one slot, counted as they pass: behind sending, whose errors say which row is wrong."""

    def __init__(self, batches: Iterator[pa.RecordBatch], slot: int, slots: int) -> None:
        self.tally = Tally()
        self._batches = batches
        self._slot = slot
        self._slots = slots

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for each in self._batches:
            yield each
            self._count(each)

    def drain(self) -> None:
        """Count what is left."""
        for each in self._batches:
            self._count(each)

    def _count(self, batch: pa.RecordBatch) -> None:
        if not batch.num_rows:
            return
        added, low, high = digest(batch, self._slots)
        if not low == high == self._slot:
            raise IllegalStateError(f"Spark gave rows of slots {low} to {high} to the task of slot {self._slot}: its plan was changed behind the "
                                    "sink's division of rows. Nothing of them is committed.")
        self.tally = self.tally.plus(batch.num_rows, added)
