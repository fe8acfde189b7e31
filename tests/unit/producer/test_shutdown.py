"""How a producer ends: what flush and close wait for, which waiters they wake, forks, and what is logged."""
from __future__ import annotations

import asyncio
import logging
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from pyclient import AsyncProducer, Delivery, Producer
from pyclient.errors import ClientClosedError, DeliveryError, IllegalStateError, KafkaTimeoutError
from pyclient.testing import FakeCluster
from tests import forks
from tests.waiting import eventually

MIB = 1 << 20
LIMIT_S = 30
linux_only = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="forks")
two_brokers = pytest.mark.fake_kafka(brokers=2)


def producing(cluster: FakeCluster, **options: Any) -> Producer:
    """With connections to every leader of topic t."""
    producer = Producer({}, bootstrap_servers=cluster.bootstrap_servers, **{"linger_ms": 0, **options})
    for partition in range(producer.partitions_for("t")):
        producer.send("t", b"connects", partition=partition)
    producer.flush(LIMIT_S)
    return producer


@pytest.fixture
def apart(fake_cluster: FakeCluster) -> FakeCluster:
    """Topic t has partition 0 at broker 1 and partition 1 at broker 2."""
    fake_cluster.create_topic("t", partitions=2)
    for partition in (0, 1):
        if fake_cluster.leader("t", partition) != partition + 1:
            fake_cluster.move_leader("t", partition, partition + 1)
    return fake_cluster


@pytest.fixture
def pool() -> Iterator[ThreadPoolExecutor]:
    """Threads for blocking calls."""
    with ThreadPoolExecutor(8) as made:
        yield made


# ---- flush ----------------------------------------------------------------------------------------------------------


@two_brokers
def test_flush_waits_for_earlier_records_and_not_for_later_ones(apart: FakeCluster, pool: ThreadPoolExecutor) -> None:
    with producing(apart) as producer:
        apart.pause(1)
        apart.pause(2)
        before = producer.send("t", b"before", partition=0)
        flushing = pool.submit(producer.flush, LIMIT_S)
        eventually(lambda: producer._core.driver._waiters)
        later = producer.send("t", b"later", partition=1)
        assert not flushing.done()
        apart.resume(1)
        flushing.result(LIMIT_S)
        assert before.done()
        assert not later.done()
        apart.resume(2)


@two_brokers
def test_flush_waits_for_every_partition_and_for_retries(apart: FakeCluster) -> None:
    with producing(apart, retry_backoff_ms=1, linger_ms=60_000) as producer:
        for round_ in range(3):
            deliveries = [producer.send("t", b"%d" % round_, partition=n % 2) for n in range(100)]
            apart.move_leader("t", round_ % 2, 2 - round_ % 2)
            producer.flush(LIMIT_S)
            assert all(each.done() for each in deliveries)


# ---- close ----------------------------------------------------------------------------------------------------------


@two_brokers
def test_close_delivers_within_its_timeout_and_the_error_of_the_rest_names_the_cure(apart: FakeCluster) -> None:
    producer = producing(apart, linger_ms=60_000)
    apart.pause(2)
    fine, stuck = (producer.send("t", b"x", partition=partition) for partition in (0, 1))
    began = time.monotonic()
    with pytest.raises(DeliveryError, match=r"1 record could not be delivered \(t-1") as failed:
        producer.close(0.3)
    assert 0.3 <= time.monotonic() - began < 10
    assert failed.value.count == 1
    assert fine.result(0).offset == 1
    error = stuck.exception(0)
    assert isinstance(error, ClientClosedError)
    assert "may or may not be stored" in str(error)
    assert "Give close() a longer timeout, or flush() first" in str(error)


def blocked_senders(producer: Producer, pool: ThreadPoolExecutor, count: int) -> list[Future[Delivery]]:
    """Fill the buffer; then *count* threads wait for memory, and one for a topic."""
    while producer.metrics()["buffer-available-bytes"] > 200_000:
        producer.send("t", bytes(200_000))
    waiting = [pool.submit(producer.send, "t", bytes(200_000)) for _ in range(count)]
    waiting.append(pool.submit(producer.send, "unknown", b"x"))
    eventually(lambda: producer.metrics()["waiting-threads"] == count and producer._core.driver._waiters)
    return waiting


@pytest.mark.parametrize("timeout", [0, 0.2])
def test_P08_close_wakes_senders_that_wait_for_memory_or_a_topic_with_ClientClosedError(
        fake_cluster: FakeCluster, pool: ThreadPoolExecutor, timeout: float) -> None:
    fake_cluster.create_topic("t")
    producer = producing(fake_cluster, buffer_memory=MIB)
    fake_cluster.pause(1)
    waiting = blocked_senders(producer, pool, 4)
    with pytest.raises(DeliveryError):
        producer.close(timeout)
    for each in waiting:
        assert isinstance(each.exception(LIMIT_S), ClientClosedError)
    figures = producer.metrics()
    assert (figures["waiting-threads"], figures["buffer-exhausted-total"]) == (0, 0)
    eventually(lambda: producer.metrics()["buffer-available-bytes"] == MIB)


def test_P08_closing_an_async_producer_wakes_tasks_that_wait_for_memory(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")

    async def main() -> None:
        producer = AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, buffer_memory=MIB, linger_ms=0)
        await producer.__aenter__()
        await (await producer.send("t", b"connects"))
        fake_cluster.pause(1)
        while producer.metrics()["buffer-available-bytes"] > 200_000:
            await producer.send("t", bytes(200_000))
        waiting = [asyncio.create_task(producer.send("t", bytes(200_000))) for _ in range(3)]
        await asyncio.to_thread(eventually, lambda: producer.metrics()["waiting-threads"] == 3)
        with pytest.raises(DeliveryError):
            await producer.close(0.1)
        async with asyncio.timeout(LIMIT_S):
            assert [type(each) for each in await asyncio.gather(*waiting, return_exceptions=True)] == [ClientClosedError] * 3
        assert producer.metrics()["waiting-threads"] == 0

    asyncio.run(main())


def test_close_ends_a_flush_of_another_thread(fake_cluster: FakeCluster, pool: ThreadPoolExecutor) -> None:
    fake_cluster.create_topic("t")
    producer = producing(fake_cluster)
    fake_cluster.pause(1)
    producer.send("t", b"x")
    flushing = pool.submit(producer.flush, None)
    eventually(lambda: producer._core.driver._waiters)
    with pytest.raises(DeliveryError):
        producer.close(0.1)
    assert isinstance(flushing.exception(LIMIT_S), ClientClosedError)


def test_of_several_concurrent_closes_one_raises_the_failures_and_all_return(fake_cluster: FakeCluster, pool: ThreadPoolExecutor) -> None:
    fake_cluster.create_topic("t")
    producer = producing(fake_cluster)
    fake_cluster.pause(1)
    delivery = producer.send("t", b"x")
    closing = [pool.submit(producer.close, 0.2 + number) for number in range(5)]
    errors = [each.exception(LIMIT_S) for each in closing]
    assert [type(each) for each in errors if each is not None and not isinstance(each, KafkaTimeoutError)] == [DeliveryError]
    assert isinstance(delivery.exception(0), ClientClosedError)
    producer.close()
    with pytest.raises(ClientClosedError):
        producer.flush()


@pytest.mark.parametrize("call", ["flush", "close"])
def test_a_delivery_callback_may_not_wait_in_flush_or_close_and_other_callbacks_still_run(fake_cluster: FakeCluster, call: str) -> None:
    fake_cluster.create_topic("t")
    raised: list[BaseException] = []

    def wait(_: Delivery) -> None:
        try:
            getattr(producer, call)()
        except IllegalStateError as error:
            raised.append(error)

    with producing(fake_cluster) as producer:
        for _ in range(3):
            producer.send("t", b"x", on_delivery=wait)
        eventually(lambda: len(raised) == 3)


def test_close_0_in_a_delivery_callback_ends_senders_that_wait(fake_cluster: FakeCluster, pool: ThreadPoolExecutor) -> None:
    fake_cluster.create_topic("t", partitions=1)
    producer = producing(fake_cluster, buffer_memory=MIB)
    gate = threading.Event()

    def close(_: Delivery) -> None:
        gate.wait(LIMIT_S)
        producer.close(0)

    producer.send("t", b"x", on_delivery=close).result(LIMIT_S)
    fake_cluster.pause(1)
    waiting = blocked_senders(producer, pool, 2)
    gate.set()
    assert {type(each.exception(LIMIT_S)) for each in waiting} == {ClientClosedError}
    producer.close(LIMIT_S)


# ---- fork -----------------------------------------------------------------------------------------------------------


WARNINGS = ("-W", "error::ResourceWarning", *forks.OPTIONS)
FORKS = """
import os, threading
from pyclient import Producer
from pyclient.errors import ClientForkedError
from pyclient.testing import FakeCluster

class Closing:
    def on_send(self, topic, key, value, headers): return key, value, headers
    def on_acknowledgement(self, metadata, error): assert os.getpid() == parent
    def close(self): print("closed in", "the parent" if os.getpid() == parent else "the child", flush=True)

parent = os.getpid()
with FakeCluster() as cluster:
    cluster.create_topic("t")
    producer = Producer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=1 << 20, linger_ms=0, interceptors=[Closing()])
    producer.send("t", b"x").result(20)
    cluster.pause(1)
    while producer.metrics()["buffer-available-bytes"] > 200_000:
        producer.send("t", bytes(200_000))
    threads = [threading.Thread(target=producer.send, args=("t", bytes(200_000))) for _ in range(3)]
    threads.append(threading.Thread(target=producer.flush))
    for thread in threads:
        thread.start()
    while producer.metrics()["waiting-threads"] < 3 or not producer._core.driver._waiters:
        pass
    if not os.fork():
        for call in (lambda: producer.send("t", b"y"), producer.flush, producer.close, producer.metrics, producer.__enter__):
            try:
                call()
            except ClientForkedError:
                print("refused", flush=True)
        os._exit(0)  # the cluster's thread is not in this process: its block must not end here
    assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
    cluster.resume(1)
    for thread in threads:
        thread.join(20)
    sent = producer.metrics()["record-send-total"]
    producer.close()
    print("stored" if len(cluster.records("t")) >= sent >= 4 else "lost", flush=True)
"""


@linux_only
def test_a_forked_child_is_refused_and_the_parents_waiting_senders_continue() -> None:
    ended = subprocess.run([sys.executable, *WARNINGS, "-c", FORKS], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr) == (0, "")
    assert ended.stdout.split("\n") == ["refused"] * 5 + ["closed in the parent", "stored", ""]


# ---- what is logged -------------------------------------------------------------------------------------------------


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if record.name.startswith("pyclient.") and "testing" not in record.name]


def test_a_run_without_failures_logs_nothing(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fake_cluster.create_topic("t", partitions=4)
    with caplog.at_level(logging.INFO, "pyclient"), producing(fake_cluster) as producer:
        for number in range(2000):
            producer.send("t", b"x", partition=number % 4)
        producer.flush()
        assert producer.metrics()["record-send-total"] == 2000 + 4  # those that connect
    assert lines(caplog) == []


def test_a_lost_broker_is_logged_when_it_goes_and_when_it_returns_however_often_it_is_tried(
        fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fake_cluster.create_topic("t")
    with caplog.at_level(logging.INFO, "pyclient"), producing(
            fake_cluster, reconnect_backoff_ms=1, reconnect_backoff_max_ms=1, retry_backoff_ms=1, retry_backoff_max_ms=1) as producer:
        fake_cluster.kill(1)
        delivery = producer.send("t", b"x")
        hosts: Callable[[], list[Any]] = producer._core.connections._all_nodes
        eventually(lambda: max(host.reconnects.failures for host in hosts()) > 30)
        gone = lines(caplog)
        fake_cluster.restart(1)
        delivery.result(LIMIT_S)
        back = lines(caplog)[len(gone):]
    tried = [line for line in gone if "in a row)" in line]
    assert 1 <= len(tried) <= 2  # one per address: bootstrap and node
    assert all(line in tried or "closed the connection" in line for line in gone)
    assert len(gone) <= 4  # and one per connection that was lost
    assert 1 <= len(back) <= 2
    assert "connected to" in back[0]


def test_a_failed_batch_gets_one_line_and_its_records_none(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    fake_cluster.create_topic("t")
    producer = producing(fake_cluster, linger_ms=100, delivery_timeout_ms=300, request_timeout_ms=200)
    fake_cluster.pause(1)
    with caplog.at_level(logging.WARNING, "pyclient"):
        for _ in range(500):
            producer.send("t", b"x")
        with pytest.raises(DeliveryError, match="500 records"):
            producer.flush()
        failed = lines(caplog)
        for _ in range(500):
            producer.send("t", b"x")
        with pytest.raises(DeliveryError):
            producer.close(0)
    assert len(failed) == 1
    assert "500 records were not acknowledged within delivery_timeout_ms=300" in failed[0]
    assert [line for line in lines(caplog) if "500 records are given up" in line] == lines(caplog)[1:]


# ---- connections -----------------------------------------------------------------------------------------------------


def test_M13_a_connection_is_idle_from_its_last_response_on_and_is_reopened_only_when_needed(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with producing(fake_cluster, connections_max_idle_ms=300, request_timeout_ms=60_000) as producer:
        producer.send("t", b"x").result(LIMIT_S)
        eventually(lambda: producer.metrics()["connection-count"] == 0, 10.0)
        opened = producer.metrics()["connection-creation-total"]
        turns = producer._core.driver.turns
        producer._core.driver.wake_from_anywhere()
        eventually(lambda: producer._core.driver.turns > turns)
        assert producer.metrics()["connection-count"] == 0
        assert producer.metrics()["connection-creation-total"] == opened
