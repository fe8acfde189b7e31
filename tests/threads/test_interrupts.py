"""Ctrl-C by real signals, anywhere inside the calls of a client: `interrupted_program` says what must hold.

PYCLIENT_INTERRUPT_ROUNDS and PYCLIENT_INTERRUPT_SEEDS (``7`` or ``0:10``) make them longer.
"""
from __future__ import annotations

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

from pyclient import Consumer, Producer, Records, TopicPartition
from pyclient.consumer.single_user import SingleUser, is_over
from pyclient.core.transactions.progress import Pending
from pyclient.errors import ClientClosedError, ConcurrentUseError
from pyclient.testing import FakeCluster
from pyclient.reactor.tasks import Task
from tests.interrupted_at import interrupted_at
from tests.twins import PURE
from tests.waiting import eventually

ROUNDS = os.environ.get("PYCLIENT_INTERRUPT_ROUNDS", "100")
ROOT = Path(__file__).parents[2]
PROGRAM = Path(__file__).with_name("interrupted_program.py")


@pytest.mark.parametrize(("share", "how"), [(1, []), (1, ["alone"]), (25, ["transactions"]), (25, ["full"])],
                         ids=["batches", "single records", "transactions", "full batches of transactions"])
def test_ctrl_c_inside_any_call_leaves_no_lock_held_and_loses_no_record(share: int, how: list[str], interrupt_seed: int) -> None:
    rounds = int(ROUNDS) // share + 1  # a transaction is four calls
    done = subprocess.run([sys.executable, PROGRAM, str(rounds), str(interrupt_seed), *how], capture_output=True, text=True, timeout=500,
                          check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > rounds


def test_ctrl_c_inside_calls_that_wait_for_the_loop_and_inside_closes_leaves_clients_that_work_and_end(interrupt_seed: int) -> None:
    rounds = int(ROUNDS) // 50 + 1
    done = subprocess.run([sys.executable, "-m", "tests.threads.interrupted_calls", str(rounds), str(interrupt_seed)], cwd=ROOT, capture_output=True,
                          text=True, timeout=500, check=False)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > rounds


def test_an_abort_that_ends_as_ctrl_c_cancels_its_call_has_taken_the_failures_of_its_records(fake_cluster: FakeCluster) -> None:
    """The outcome was taken, and no other call would take the failures: the next flush raised them."""
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, transactional_id="x", linger_ms=60_000) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("t", b"never sent")
        manager, reactor = producer._core.transactions, producer._core.reactor
        assert manager is not None
        take = manager.take
        task: Task[Any] | None = None

        def cancelled(pending: Pending) -> bool | None:
            taken = take(pending)
            if taken and task is not None:
                reactor.call_soon(task.cancel)
            return taken

        async def abort() -> None:
            nonlocal task
            task = reactor.current
            manager.take = cancelled  # type: ignore[method-assign]
            await producer._core.transaction_calls.abort(20).awaited()

        with pytest.raises(ClientClosedError):
            producer._portal.call(abort)
        producer.flush(20)


def test_a_call_that_is_over_and_did_not_release_the_consumer_counts_as_released() -> None:
    def call(user: object) -> tuple[object, FrameType]:
        return user, sys._getframe()

    thread, here = threading.get_ident(), sys._getframe()
    assert is_over(call(thread))
    assert not is_over((thread, here))  # a call within a call
    assert not is_over(call("task"))  # it may be suspended


def test_a_call_of_a_task_that_has_ended_counts_as_released() -> None:
    """Ctrl-C ends a loop and the task that was running; then the loop may run again."""
    async def call() -> tuple[object, FrameType]:
        used = asyncio.current_task(), sys._getframe()
        assert not is_over(used)
        return used

    assert is_over(asyncio.run(call()))


def test_what_an_interrupted_call_held_is_free_for_other_threads_too() -> None:
    single_user = SingleUser(lambda: None, threading.get_ident)
    interrupted = in_thread(lambda: single_user.enter(sys._getframe()))
    assert single_user.taken()
    with single_user:
        assert in_thread(single_user.__enter__) is ConcurrentUseError
    assert interrupted is None
    assert not single_user.taken()


def test_ctrl_c_in_any_function_of_a_poll_loses_no_record() -> None:
    number, going_on = 1, True
    with FakeCluster(1) as kafka, Consumer(bootstrap_servers=kafka.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=5) as consumer:
        kafka.create_topic("numbers")
        consumer.assign([TopicPartition("numbers", 0)])
        while going_on:
            wanted = [kafka.produce("numbers", b"x").offset]
            eventually(lambda wanted=wanted: consumer._core.buffer.unread(TopicPartition("numbers", 0)) is not None)  # type: ignore[misc]
            polls: list[Records[Any, Any]] = []
            going_on = interrupted_at(number, lambda polls=polls: polls.append(consumer.poll(5)), where="call")  # type: ignore[misc]
            if not polls:
                polls.append(consumer.poll(5))
            assert [each.offset for each in polls[0]] == wanted, f"function {number}"
            number += 1
    assert number > (10 if PURE else 5)


def test_a_listener_that_ctrl_c_ended_at_any_byte_code_is_none_for_the_next_call() -> None:
    single_user, number = SingleUser(lambda: None, threading.get_ident), 1

    def listen() -> None:
        with single_user.as_listener:
            assert single_user.in_listener

    while interrupted_at(number, listen):
        assert not single_user.in_listener, f"byte code {number}"
        number += 1
    assert number > (20 if PURE else 5)


def in_thread(call: Callable[[], object]) -> type[BaseException] | None:
    """Make a call in a thread; what it raises."""
    raised: list[type[BaseException]] = []

    def run() -> None:
        try:
            call()
        except ConcurrentUseError as error:
            raised.append(type(error))

    thread = threading.Thread(target=run)
    thread.start()
    thread.join()
    return raised[0] if raised else None
