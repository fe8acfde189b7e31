"""Ctrl-C in a ``with`` block: the producer delivers for a short time, says so, and the next Ctrl-C ends that."""
from __future__ import annotations

import asyncio
import gc
import logging
import signal
import threading
from collections.abc import Iterator

import pytest

from pyclient import AsyncProducer, Producer
from pyclient.errors import ClientClosedError
from pyclient.producer import shutdown
from pyclient.producer.shutdown import limit_after
from pyclient.testing import FakeCluster
from tests.waiting import eventually

WAITING = "waiting for 1 record, at most {} s; Ctrl-C again to give up"


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.fixture
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutdown, "INTERRUPT_FLUSH", 0.1)


@pytest.fixture
def uncollected() -> Iterator[None]:
    """No garbage of earlier tests is collected: Python only prints a Ctrl-C that comes within a finalizer."""
    gc.collect()
    gc.disable()
    yield
    gc.enable()


def test_after_Ctrl_C_close_delivers_for_five_seconds(cluster: FakeCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        assert limit_after(KeyboardInterrupt(), producer._core) == 5
        assert limit_after(asyncio.CancelledError(), producer._core) == 5
        assert limit_after(ValueError(), producer._core) == limit_after(None, producer._core) == 120


def test_nothing_is_said_when_nothing_is_waited_for(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt), Producer(bootstrap_servers=cluster.bootstrap_servers):
        raise KeyboardInterrupt
    assert caplog.messages == []


@pytest.mark.usefixtures("short")
def test_Ctrl_C_while_the_broker_is_mute_ends_soon_and_says_what_is_lost(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with pytest.raises(KeyboardInterrupt) as stopped, Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.partitions_for("t")
        cluster.pause(1)
        producer.send("t", b"x")
        raise KeyboardInterrupt
    assert WAITING.format(0.1) in caplog.messages
    assert stopped.value.__notes__[0].startswith("Closing the producer failed too: 1 record could not be delivered")


@pytest.mark.usefixtures("uncollected")
def test_a_second_Ctrl_C_gives_up(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    def press() -> None:
        eventually(lambda: is_closing(producer))
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    def is_closing(producer: Producer) -> bool:
        try:
            producer.send("t", b"x", partition=0)
        except ClientClosedError:
            return True
        return False

    with caplog.at_level(logging.WARNING), pytest.raises(KeyboardInterrupt), Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
        producer.partitions_for("t")
        cluster.pause(1)
        producer.send("t", b"x")
        pressing = threading.Thread(target=press)
        pressing.start()
        raise KeyboardInterrupt
    pressing.join()
    assert any(line.startswith("gave up closing the producer in order") for line in caplog.messages), caplog.messages


@pytest.mark.usefixtures("short")
def test_a_cancelled_task_waits_as_short(cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            await producer.partitions_for("t")
            cluster.pause(1)
            await producer.send("t", b"x")
            task = asyncio.current_task()
            assert task is not None
            task.cancel()
            await asyncio.Event().wait()

    with pytest.raises(asyncio.CancelledError):
        asyncio.run(main())
    assert WAITING.format(0.1) in caplog.messages
