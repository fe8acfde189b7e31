"""`ExactlyOnce` and a loop of confluent-kafka's in one group: inputs go from one to the other, each with one output."""
from __future__ import annotations

import contextlib
import itertools
import threading
from typing import Any, Final, Self

import pytest
from confluent_kafka import OFFSET_BEGINNING, KafkaException
from confluent_kafka import Consumer as ConfluentConsumer
from confluent_kafka import Producer as ConfluentProducer
from confluent_kafka import TopicPartition as ConfluentPartition

from pyclient import Consumer, Producer, Record
from pyclient.processing import ExactlyOnce, Output
from pyclient.testing import LocalCluster
from tests.broker.durability.load import load
from tests.broker.durability.numbering import Verdict, judge
from tests.broker.durability.test_exactly_once import catch_up
from tests.broker.durability.verifiers import by_us
from tests.groups import LIMIT_S
from tests.interop.test_transactions import by_confluent
from tests.kafka import consumer, make_topic, markers_written
from tests.waiting import eventually

PARTITIONS: Final = 4
RATE: Final = 400
HEARTBEAT_MS: Final = 100
SESSION_MS: Final = 10_000
ids = itertools.count()


class Worker:
    """A member in a thread of its own that copies a topic to another, partition by partition."""

    def __init__(self, cluster: LocalCluster, source: str, target: str) -> None:
        self.copied = 0
        self.fault: BaseException | None = None
        self._cluster, self._source, self._target, self._id = cluster, source, target, f"{source}-{next(ids)}"
        self._thread = threading.Thread(target=self._guard, daemon=True)
        self._stopping = threading.Event()

    def _guard(self) -> None:
        try:
            self._copy()
        except BaseException as fault:  # noqa: BLE001 raised in the test
            self.fault = fault

    def _copy(self) -> None:
        raise NotImplementedError

    def start(self) -> Self:
        """Return when it has copied a record."""
        self._thread.start()
        eventually(lambda: self.copied or self.fault, LIMIT_S)
        return self

    def leave(self) -> None:
        """Finish the present transaction and leave the group."""
        self._stopping.set()
        self._thread.join(LIMIT_S)
        assert not self._thread.is_alive(), "it does not end"
        if self.fault is not None:
            raise self.fault


class Ours(Worker):
    """With `ExactlyOnce`."""

    def _copy(self) -> None:
        servers = self._cluster.bootstrap_servers
        with (Consumer(bootstrap_servers=servers, group_id=self._source, topics=[self._source], enable_auto_commit=False, assignors=["range"],
                       isolation_level="read_committed", auto_offset_reset="earliest", heartbeat_interval_ms=HEARTBEAT_MS) as reader,
              Producer(bootstrap_servers=servers, transactional_id=self._id) as writer):
            loop = ExactlyOnce(reader, writer, self._output)
            threading.Thread(target=self._stop, args=(loop,), daemon=True).start()
            loop.run()

    def _stop(self, loop: ExactlyOnce) -> None:
        self._stopping.wait()
        loop.stop()

    def _output(self, record: Record) -> Output:
        self.copied += 1
        return Output(self._target, record.value, partition=record.partition)


class Confluents(Worker):
    """With confluent-kafka's consumer and producer, the loop written by hand."""

    def _copy(self) -> None:
        servers = self._cluster.bootstrap_servers
        writer = ConfluentProducer({"bootstrap.servers": servers, "transactional.id": self._id})
        writer.init_transactions(LIMIT_S)
        reader = ConfluentConsumer({"bootstrap.servers": servers, "group.id": self._source, "enable.auto.commit": False, "auto.offset.reset": "earliest",
                                    "partition.assignment.strategy": "range", "heartbeat.interval.ms": HEARTBEAT_MS, "session.timeout.ms": SESSION_MS})
        with contextlib.closing(reader):
            reader.subscribe([self._source])
            while not self._stopping.is_set():
                if messages := reader.consume(50, 0.1):
                    self._turn(reader, writer, messages)

    def _turn(self, reader: Any, writer: Any, messages: list[Any]) -> None:
        writer.begin_transaction()
        try:
            for each in messages:
                assert each.error() is None, each.error()
                writer.produce(self._target, each.value(), partition=each.partition())
            behind = {each.partition(): each.offset() + 1 for each in messages}
            offsets = [ConfluentPartition(self._source, partition, offset) for partition, offset in behind.items()]
            writer.send_offsets_to_transaction(offsets, reader.consumer_group_metadata(), LIMIT_S)
            writer.commit_transaction(LIMIT_S)
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            writer.abort_transaction(LIMIT_S)
            for tp in reader.committed(reader.assignment(), LIMIT_S):
                reader.seek(ConfluentPartition(tp.topic, tp.partition, tp.offset if tp.offset >= 0 else OFFSET_BEGINNING))
            return
        self.copied += len(messages)


@pytest.mark.timeout(300)
def test_each_input_has_one_output_while_our_loop_and_confluents_take_over_from_each_other(kafka_cluster: LocalCluster, topic: str) -> None:
    target = f"{topic}-out"
    source, written = make_topic(kafka_cluster, topic, PARTITIONS), make_topic(kafka_cluster, target, PARTITIONS)
    with load(kafka_cluster, topic, partitions=PARTITIONS, producers=1, rate=RATE) as running:
        first = Ours(kafka_cluster, topic, target).start()
        theirs = Confluents(kafka_cluster, topic, target).start()
        first.leave()
        last = Ours(kafka_cluster, topic, target).start()
        theirs.leave()
    with consumer(kafka_cluster, group_id=topic, enable_auto_commit=False) as observer:
        catch_up(observer, source)
    last.leave()
    markers_written(kafka_cluster, written)
    count = sum(running.sent.values())
    verdicts = [judge(running.acknowledged(), running.sent, found)
                for found in (by_us(kafka_cluster, written), by_confluent(kafka_cluster, target, PARTITIONS, "read_committed"))]
    assert verdicts == [Verdict(count, lost=0, doubled=0, misplaced=0, strange=0)] * 2
