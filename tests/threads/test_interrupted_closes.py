"""Ctrl-C at any byte code of a close: the next close does what is left."""
from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, Consumer, Producer
from pyclient.testing import FakeCluster
from tests.interrupted_at import interrupted_at
from tests.waiting import eventually

STEP = 13
"""Not each byte code: every close needs a client."""
pytestmark = pytest.mark.filterwarnings("ignore:Exception ignored in. <function WeakSet:pytest.PytestUnraisableExceptionWarning")


class Closing:
    """Counts how often it was closed."""

    def __init__(self) -> None:
        self.closed = 0

    def on_send(self, topic: str, key: Any, value: Any, headers: Any) -> tuple[Any, Any, Any]:
        return key, value, headers

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        """Nothing."""

    def on_consume(self, records: Any) -> Any:
        return records

    def on_commit(self, offsets: Any) -> None:
        """Nothing."""

    def close(self) -> None:
        self.closed += 1


def producer(servers: str, closing: Closing) -> Producer[Any, Any]:
    client = Producer(bootstrap_servers=servers, interceptors=[closing])
    client.send("numbers", b"x")
    client.flush(20)
    return client


def consumer(servers: str, closing: Closing) -> Consumer[Any, Any]:
    client = Consumer(bootstrap_servers=servers, interceptors=[closing], group_id="g")
    client.assign([])
    client.commit_async({})
    return client


def admin(servers: str, closing: Closing) -> Admin:
    closing.closed = 1
    return Admin(bootstrap_servers=servers)


@pytest.fixture(scope="module")
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(1) as kafka:
        kafka.create_topic("numbers")
        yield kafka


@pytest.mark.parametrize("make", [producer, consumer, admin])
def test_ctrl_c_at_any_byte_code_of_a_close_is_made_up_for_by_the_next_close(cluster: FakeCluster, make: Callable[[str, Closing], Any]) -> None:
    before, number, going_on = set(threading.enumerate()), 1, True
    while going_on:
        closing = Closing()
        client = make(cluster.bootstrap_servers, closing)
        going_on = interrupted_at(number, client.close)
        client.close()
        client.close()
        eventually(lambda: not set(threading.enumerate()) - before)  # not at once: bpo-45274
        assert closing.closed in ((1, 2) if going_on else (1,)), f"byte code {number}"
        number += STEP
    assert number > 200
