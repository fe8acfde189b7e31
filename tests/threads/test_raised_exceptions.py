"""Exceptions that other threads raise into one that sends: time limits of dramatiq, stopit and func_timeout.

PYCLIENT_INTERRUPT_ROUNDS makes them more.
"""
from __future__ import annotations

import os
import threading
from typing import Any

import pytest

from pyclient import Producer
from pyclient.testing import FakeCluster
from tests.interrupted_at import interrupted_at
from tests.raised_into import Interrupt, Sending, end_transaction, raise_into
from tests.waiting import eventually

ROUNDS = int(os.environ.get("PYCLIENT_INTERRUPT_ROUNDS", "100"))


def step() -> None:
    """One at which Python raises what was raised into the thread."""


# ---- at each step ---------------------------------------------------------------------------------------------------


def test_an_exception_in_any_function_of_a_send_leaves_a_producer_that_reports_each_outcome_once(
        cluster: FakeCluster) -> None:
    cluster.create_topic("t")
    reported: list[bytes] = []
    number, going_on = 1, True
    with Producer(bootstrap_servers=cluster.bootstrap_servers, linger_ms=0) as producer:
        while going_on:
            value = b"%d" % number
            try:
                going_on = interrupted_at(number, lambda value=value: send_and_wait(producer, value, reported),  # type: ignore[misc]
                                          handler=lambda: raise_into(threading.get_ident(), Interrupt), where="call")
                step()
            except Interrupt:
                pass
            producer.send("t", b"again").result(20)
            producer.flush(20)
            number += 1
    log = [record.value for record in cluster.records("t")]
    assert number > 20
    assert len(reported) == len(set(reported))
    assert sorted(reported) == sorted(value for value in log if value not in (b"again", None))


def send_and_wait(producer: Producer[Any, Any], value: bytes, reported: list[bytes]) -> None:
    def on_delivery(delivery: Any) -> None:
        delivery.exception()
        reported.append(value)

    producer.send("t", value, on_delivery=on_delivery).result(20)


# ---- at any time ----------------------------------------------------------------------------------------------------

OPTIONS: dict[str, dict[str, Any]] = {
    "single records": {"linger_ms": 0},
    "compressed": {"linger_ms": 0, "compression_type": "gzip"},
    "batches": {"linger_ms": 1},
    "no answers": {"linger_ms": 0, "acks": 0, "enable_idempotence": False},
    "transactions": {"transactional_id": "numbers"},
}


@pytest.mark.parametrize("how", OPTIONS)
def test_exceptions_raised_into_a_thread_that_sends_lose_and_double_nothing(cluster: FakeCluster, interrupt_seed: int, how: str) -> None:
    cluster.create_topic("t")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, **OPTIONS[how]) as producer:
        if how == "transactions":
            producer.init_transactions()
            producer.begin_transaction()
        start_callbacks(producer)
        sending = Sending(producer, "t", interrupt_seed, transactions=how == "transactions")
        sending.run(ROUNDS // 2)
        if how == "transactions":
            end_transaction(producer)
            producer.begin_transaction()
        producer.send("t", b"last").result(20)
        producer.flush(20)
        # Without answers a client does not know when the broker has read what it wrote.
        eventually(lambda: set(sending.stored) <= set(numbered(cluster)))
        sending.check(numbered(cluster))


def numbered(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t") if record.value not in (b"first", b"last")]


def start_callbacks(producer: Producer[Any, Any]) -> None:
    """Python 3.11 may raise what is meant for a thread in one that this thread starts; it waits for that one then."""
    called = threading.Event()
    producer.send("t", b"first", on_delivery=lambda _: called.set())
    producer.flush(20)
    assert called.wait(20)
