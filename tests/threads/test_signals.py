"""Signal handlers, Ctrl-C and finalizers may run anywhere in the main thread, and may use the clients."""
from __future__ import annotations

import gc
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import pyclient.buffers.pending_batches
import pyclient.buffers.topic_compression
from pyclient import Consumer, Producer
from pyclient.buffers.batch import BatchState
from pyclient.buffers.delivery import BatchResult
from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.codec.compression import Compression
from pyclient.errors import ClientClosedError, DeliveryError, WakeupError
from pyclient.runtime import portals
from pyclient.runtime.environment import thread_reactor
from pyclient.runtime.portals import Call, ThreadPortal
from pyclient.records import TopicPartition
from tests.threads.team import Team
from tests.unit.buffers.accumulators import Clock, accumulator

STORM = """
import faulthandler, signal, time
from random import Random
from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Observer
from pyclient.codec.compression import Compression

faulthandler.dump_traceback_later(30, exit=True)
made = Accumulator(memory=10**8, batch_size=100, max_request_size=10**6, linger=1, compression=Compression.NONE, level=None,
                   observer=Observer(), clock=time.monotonic, wall=lambda: 1, random=Random(1))
made.set_topic("orders", 50, range(50))
orders = made.topic("orders")
handled, handling = 0, False

def handler(*_):
    global handled, handling
    if not handling:
        handling = True
        made.append(orders, -1, -1, None, b"from the handler", None)
        handled += 1
        handling = False

signal.signal(signal.SIGALRM, handler)
signal.setitimer(signal.ITIMER_REAL, 1e-4, 1e-4)
sent = 0
while handled < 1000:
    made.append(orders, -1, -1, None, b"x" * 60, None)
    sent += 1
signal.setitimer(signal.ITIMER_REAL, 0)
assert sum(batch.count for batch in made.flush_open()) == sent + handled == made.unsettled
"""


def test_a_wakeup_from_a_handler_that_interrupts_a_poll_before_its_wait_ends_the_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    interrupted: list[bool] = []

    class Interrupted(FetchBuffer):
        def ready(self) -> bool:
            if polls and not interrupted and not self.woken:
                interrupted.append(True)
                consumer.wakeup()
            return super().ready()

    polls = False
    monkeypatch.setattr("pyclient.consumer.core.FetchBuffer", Interrupted)
    with Consumer(bootstrap_servers="127.0.0.1:1") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        polls = True

        def poll() -> None:
            with pytest.raises(WakeupError):
                consumer.poll()

        team = Team()
        team.add("poll", poll)
        team.run()
        assert interrupted
        assert not consumer.poll(0)


def test_a_handler_may_send_while_it_interrupts_a_send() -> None:
    done = subprocess.run([sys.executable, "-c", STORM], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture
def portal() -> Iterator[ThreadPortal]:
    made = ThreadPortal("portal", thread_reactor())
    made.start()
    yield made
    made.stop()


async def one() -> int:
    return 1


@pytest.fixture
def interrupt_next_call(monkeypatch: pytest.MonkeyPatch) -> Callable[[Callable[[], object]], None]:
    """Gets a handler, which runs once while a portal admits a call."""
    handlers: list[Callable[[], object]] = []

    def interrupted(*made: Any) -> Call[Any]:
        if handlers:
            handlers.pop()()
        return Call(*made)

    monkeypatch.setattr(portals, "Call", interrupted)
    return handlers.append


def test_a_handler_may_call_while_it_interrupts_a_call(portal: ThreadPortal, interrupt_next_call: Callable[[Callable[[], object]], None]) -> None:
    found: list[int] = []
    team = Team()
    interrupt_next_call(lambda: found.append(portal.call(one)))
    team.add("call", lambda: found.append(portal.call(one)))
    team.run()
    assert found == [1, 1]


def test_a_handler_may_stop_the_portal_while_it_interrupts_a_call(portal: ThreadPortal, interrupt_next_call: Callable[[Callable[[], object]], None]) -> None:
    refused: list[ClientClosedError] = []
    team = Team()

    def call() -> None:
        with pytest.raises(ClientClosedError) as caught:
            portal.call(one)
        refused.append(caught.value)

    interrupt_next_call(portal.stop)
    team.add("call", call)
    team.run()
    assert refused


def test_Ctrl_C_while_a_batch_is_compressed_seals_it_uncompressed_and_blocks_no_partition(monkeypatch: pytest.MonkeyPatch) -> None:
    buffers = accumulator(Clock(), compression=Compression.LZ4)
    orders = buffers.topic("orders")
    assert orders is not None
    buffers.append(orders, 0, -1, None, b"x" * 500, None)
    buffers.flush_open()
    (queue,) = buffers.take_ready(0)
    batch = buffers.head(queue)
    assert batch is not None

    def interrupted(*_: object) -> bytes:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(pyclient.buffers.topic_compression, "compress", interrupted)
        buffers.seal(batch)
    assert batch.state is BatchState.SEALED
    assert buffers.head(queue) is batch
    assert b"x" * 500 in b"".join(bytes(piece) for piece in batch.pieces())
    buffers.release(batch)
    assert buffers.pool.used == 0


def test_a_producer_that_is_garbage_collected_under_its_accumulators_lock_blocks_no_thread(monkeypatch: pytest.MonkeyPatch) -> None:
    """The collector may run in any allocation, also in a leader that holds the lock."""
    producers = [Producer(bootstrap_servers="127.0.0.1:1")]
    core = producers[0]._core
    producers[0].itself = producers[0]  # type: ignore[attr-defined]  # only the collector will find it
    buffers, join = core.accumulator, producers[0]._portal.join
    buffers.set_topic("orders", 1, [0])
    orders = buffers.topic("orders")
    assert orders is not None
    warned: list[str] = []

    def collecting(*made: object) -> BatchResult:
        producers.clear()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            gc.collect()
        warned.extend(str(each.message) for each in caught)
        return BatchResult(*made)  # type: ignore[arg-type]  # as it was called

    monkeypatch.setattr(pyclient.buffers.pending_batches, "BatchResult", collecting)
    team = Team()
    team.add("append", lambda: buffers.append(orders, 0, -1, None, b"x", None))
    team.run()
    assert any("unclosed Producer, 0 records" in each for each in warned)
    core.reactor.call_soon(lambda: core.sender.abandon(ClientClosedError("the test ends")))
    assert join(20)


def test_Ctrl_C_as_the_loop_is_notified_of_a_full_batch_notifies_it_all_the_same() -> None:
    """Earlier records of the batch may have waiters, and perhaps no other record follows."""
    buffers = accumulator(Clock())
    orders = buffers.topic("orders")
    assert orders is not None
    notified: list[bool] = []

    def interrupted() -> None:
        notified.append(True)
        if len(notified) == 1:
            raise KeyboardInterrupt

    buffers.append(orders, 0, -1, None, b"x" * 500, None)
    buffers.on_ready = interrupted
    with pytest.raises(KeyboardInterrupt):
        while True:
            buffers.append(orders, 0, -1, None, b"x" * 500, None)
    assert notified == [True, True]


def test_Ctrl_C_while_a_sender_starts_to_wait_for_memory_leaves_no_waiter() -> None:
    """A waiter left behind would be granted memory that no sender uses."""
    def interrupted() -> None:
        raise KeyboardInterrupt

    producer = Producer(bootstrap_servers="127.0.0.1:1", buffer_memory=10_240, batch_size=1024, linger_ms=60_000)
    buffers = producer._core.accumulator
    try:
        buffers.set_topic("orders", 2, [0])
        orders = buffers.topic("orders")
        assert orders is not None
        buffers.append(orders, 1, -1, None, b"x", None)  # lingers until a sender waits for memory; then the loop is woken for it
        while buffers.append(orders, 0, -1, None, b"x" * 900, None):
            pass
        on_ready, buffers.on_ready = buffers.on_ready, interrupted
        with pytest.raises(KeyboardInterrupt):
            producer.send("orders", b"x" * 900, partition=0)
        buffers.on_ready = on_ready
        assert buffers.pool.waiting == 0
    finally:
        with pytest.raises(DeliveryError):
            producer.close(0)
