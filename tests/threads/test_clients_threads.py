"""Clients used by many threads at once, on a real broker, with the interpreter switching between them all the time."""
from __future__ import annotations

import contextlib
import faulthandler
import random
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from pyclient import Consumer, Delivery, Producer
from pyclient.errors import ClientClosed, ConcurrentUse, WakeupError
from pyclient.testing import LocalCluster
from tests.kafka import consumer, make_topic, produce, read

THREADS = 8


@pytest.fixture(autouse=True)
def _restless() -> Iterator[None]:
    """Threads switch after a microsecond; a hang shows every stack."""
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    faulthandler.dump_traceback_later(120, exit=False)
    yield
    faulthandler.cancel_dump_traceback_later()
    sys.setswitchinterval(interval)


def together(work: Callable[[int], object], count: int = THREADS) -> None:
    """Run work(n) in *count* threads that begin at once; the first error is raised here."""
    errors: list[BaseException] = []
    gate = threading.Barrier(count)

    def run(number: int) -> None:
        try:
            gate.wait()
            work(number)
        except BaseException as error:  # noqa: BLE001 it is raised below
            errors.append(error)

    threads = [threading.Thread(target=run, args=[number]) for number in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(100)
        assert not thread.is_alive()
    if errors:
        raise errors[0]


def test_what_threads_send_and_flush_at_once_is_stored_once_and_in_each_threads_order(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic, 2)
    called: list[Delivery] = []
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=2000, buffer_memory=64_000) as producer:
        def send(number: int) -> None:
            for n in range(500):
                told = producer.send(topic, b"%d" % n, b"%d" % number, partition=number % 2, on_delivery=called.append)
                if n % 100 == 0:
                    producer.flush()
                    assert told.done()

        together(send)
    found = read(kafka_cluster, partitions, 500 * THREADS, max_poll_records=5000)
    for number in range(THREADS):
        assert [int(record.value or b"") for record in found if record.key == b"%d" % number] == list(range(500))
    assert len(called) == 500 * THREADS


@pytest.mark.parametrize("seed", range(5))
def test_close_while_threads_send_leaves_each_record_stored_or_refused(kafka_cluster: LocalCluster, topic: str, seed: int) -> None:
    partitions = make_topic(kafka_cluster, topic)
    accepted: list[Delivery] = []
    producer = Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, batch_size=1000)
    stop_after = random.Random(seed).randrange(1, 3000)

    def work(number: int) -> None:
        with contextlib.suppress(ClientClosed):
            while True:
                accepted.append(producer.send(topic, b"x"))
                if len(accepted) > stop_after:
                    producer.close(60)

    together(work)
    assert all(each.exception(0) is None for each in accepted)
    assert len(read(kafka_cluster, partitions, len(accepted), max_poll_records=5000)) == len(accepted)
    with consumer(kafka_cluster) as witness:
        assert witness.end_offsets(partitions)[partitions[0]] == len(accepted)


def test_a_consumer_used_by_many_threads_serves_one_and_refuses_the_others(kafka_cluster: LocalCluster, topic: str) -> None:
    where, = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"%d" % n for n in range(2000)])
    seen: list[bytes | None] = []
    refused: list[int] = []
    with consumer(kafka_cluster) as reader:
        reader.assign([where])

        def work(number: int) -> None:
            while len(seen) < 2000:
                poll(reader, number)

        def poll(reader: Consumer, number: int) -> None:
            try:
                records = reader.poll(0.05, max_records=20)
                seen.extend(record.value for record in records)
            except ConcurrentUse:
                refused.append(number)
                if number == 0 and len(refused) % 50 == 0:
                    reader.wakeup()
            except WakeupError:
                return

        together(work)
    assert sorted(int(value or b"") for value in seen) == list(range(2000))
    assert refused
