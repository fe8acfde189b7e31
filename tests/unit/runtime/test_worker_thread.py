"""Worker threads, for what would block a step: they end with the client and never delay the exit."""
from __future__ import annotations

import gc
import subprocess
import sys
import threading
from concurrent.futures import CancelledError, Future
from typing import Final

import pytest

from pyclient.runtime.environment import Environment
from pyclient.runtime.worker_thread import Worker

WAIT: Final = 20


def busy(worker: Worker) -> tuple[Future[bool], threading.Event]:
    """Work that is under way until the event is set."""
    begun, go = threading.Event(), threading.Event()

    def work() -> bool:
        begun.set()
        return go.wait(WAIT)

    future = worker.submit(work)
    assert begun.wait(WAIT)
    return future, go


def test_work_is_done_in_order_by_one_thread_of_this_name() -> None:
    worker = Worker("pyclient-test")
    done: list[tuple[int, str]] = []

    def work(number: int) -> None:
        done.append((number, threading.current_thread().name))

    for submitted in [worker.submit(work, number) for number in range(3)]:
        submitted.result(WAIT)
    assert done == [(number, "pyclient-test") for number in range(3)]
    worker.shutdown()


@pytest.mark.parametrize("stop", [LookupError, SystemExit, KeyboardInterrupt])
def test_an_exception_of_work_is_its_outcome_and_does_not_end_the_worker(stop: type[BaseException]) -> None:
    def work() -> None:
        raise stop("on purpose")

    worker = Worker("pyclient-test")
    assert isinstance(worker.submit(work).exception(WAIT), stop)
    assert worker.submit(int).result(WAIT) == 0
    worker.shutdown()


def test_a_worker_that_is_shut_down_finishes_its_work_and_accepts_no_more() -> None:
    worker = Worker("pyclient-test")
    first, go = busy(worker)
    second = worker.submit(lambda: "done")
    worker.shutdown(wait=False)
    with pytest.raises(RuntimeError):
        worker.submit(int)
    go.set()
    worker.shutdown(wait=True)
    assert (first.done(), second.result(0)) == (True, "done")
    assert not [thread for thread in threading.enumerate() if thread.name == "pyclient-test"]


def test_waiting_work_can_be_cancelled_by_shutdown() -> None:
    worker = Worker("pyclient-test")
    first, go = busy(worker)
    second = worker.submit(lambda: "never")
    worker.shutdown(wait=False, cancel_futures=True)
    go.set()
    assert first.result(WAIT)
    with pytest.raises(CancelledError):
        second.result(WAIT)


def test_a_worker_without_references_ends() -> None:
    worker = Worker("pyclient-test")
    thread = worker.submit(threading.current_thread).result(WAIT)
    del worker
    gc.collect()
    thread.join(WAIT)
    assert not thread.is_alive()


def test_a_worker_that_never_had_work_has_no_thread() -> None:
    worker = Worker("pyclient-test")
    worker.shutdown()
    assert not [thread for thread in threading.enumerate() if thread.name == "pyclient-test"]


def test_clients_work_in_such_threads() -> None:
    worker = Environment().workers("pyclient-test")
    assert isinstance(worker, Worker)
    worker.shutdown()


HANGS: Final = """
import threading
from pyclient import Producer
from pyclient.testing import FakeCluster

asked = threading.Event()

def token():
    asked.set()
    threading.Event().wait()

with FakeCluster(sasl={"anna": "secret"}) as kafka:
    producer = Producer(bootstrap_servers=kafka.bootstrap_servers, security_protocol="SASL_PLAINTEXT", sasl_mechanism="OAUTHBEARER",
                        sasl_token_provider=token, max_block_ms=100)
    try:
        producer.send("orders", b"")
    except Exception as error:
        print(type(error).__name__)
    assert asked.wait(20)
    producer.close(1)
print("end")
"""


def test_a_token_function_that_never_returns_does_not_prevent_the_exit() -> None:
    ended = subprocess.run([sys.executable, "-c", HANGS], capture_output=True, text=True, timeout=60, check=False)
    assert (ended.returncode, ended.stderr, ended.stdout.split()) == (0, "", ["BootstrapError", "end"])
