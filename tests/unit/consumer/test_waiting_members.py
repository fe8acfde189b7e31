"""Members of groups whose poll waits: what goes on meanwhile, on the fake cluster."""
from __future__ import annotations

import asyncio
import contextlib
import re
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, AsyncConsumer, Consumer, TopicPartition
from pyclient.consumer.single_user import SingleUser
from pyclient.errors import ClientClosedError, WakeupError
from pyclient.testing import Delay, Fail, FakeCluster
from tests.waiting import eventually

FIRST = TopicPartition("orders", 0)
COUNT = 3
UNKNOWN_SERVER_ERROR, UNKNOWN_TOPIC = -1, 3
DELAY_S = 0.5


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster() as made:
        made.create_topic("orders")
        for number in range(COUNT):
            made.produce("orders", b"%d" % number)
        yield made


def options(cluster: FakeCluster, interval_ms: int) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "group_id": "g", "topics": ["orders"], "auto_offset_reset": "earliest",
            "auto_commit_interval_ms": interval_ms, "heartbeat_interval_ms": 100, "retry_backoff_ms": 10}


def committed(cluster: FakeCluster) -> int:
    found = cluster.committed("g").get(FIRST)
    return 0 if found is None else found.offset


@contextlib.contextmanager
def waiting(reader: Consumer, work: Callable[[], Any]) -> Iterator[None]:
    """*work* runs in a thread of its own until the block ends."""
    def go_on() -> None:
        with contextlib.suppress(WakeupError):
            work()

    thread = threading.Thread(target=go_on)
    thread.start()
    try:
        yield
    finally:
        reader.wakeup()
        thread.join(20)


def poll_on(reader: Consumer) -> None:
    while True:
        reader.poll()


def iterate(reader: Consumer) -> None:
    for _ in reader:
        pass


@pytest.mark.parametrize("interval_ms", [0, 300])
@pytest.mark.parametrize("read", [poll_on, iterate])
def test_C21_what_is_consumed_is_committed_also_while_nothing_more_comes(cluster: FakeCluster, read: Callable[[Consumer], None], interval_ms: int) -> None:
    with Consumer(**options(cluster, interval_ms)) as reader, waiting(reader, lambda: read(reader)):
        eventually(lambda: committed(cluster) == COUNT)


def test_C21_an_async_poll_that_waits_commits_too(cluster: FakeCluster) -> None:
    async def run() -> None:
        async with AsyncConsumer(**options(cluster, 300)) as reader:
            assert len(await reader.poll(20)) == COUNT
            waits = asyncio.create_task(reader.poll())
            await asyncio.to_thread(eventually, lambda: committed(cluster) == COUNT)
            reader.wakeup()
            with pytest.raises(WakeupError):
                await waits

    asyncio.run(run())


def test_C22_an_automatic_commit_that_was_refused_is_tried_again_while_nothing_more_comes(cluster: FakeCluster) -> None:
    cluster.intercept(Fail(UNKNOWN_SERVER_ERROR), "OffsetCommit", times=1)
    with Consumer(**options(cluster, 100)) as reader, waiting(reader, lambda: poll_on(reader)):
        eventually(lambda: committed(cluster) == COUNT)


def test_S02_a_waiting_poll_is_not_busy_with_commits(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, 0)) as reader, waiting(reader, lambda: poll_on(reader)):
        eventually(lambda: committed(cluster) == COUNT)
        before = len(cluster.requests("Heartbeat"))
        eventually(lambda: len(cluster.requests("Heartbeat")) >= before + 5)
        assert len(cluster.requests("OffsetCommit")) <= 2


def test_what_an_iteration_has_shown_is_committed_and_not_where_it_began(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, 60_000)) as reader:
        for record in reader:
            if record.offset == COUNT - 1:
                reader.commit()
                break
        assert committed(cluster) == COUNT
        reader.poll(0)
        reader.commit()
        assert reader.position(FIRST) == COUNT
    assert committed(cluster) == COUNT


def test_an_iteration_that_is_left_while_it_waits_has_committed_what_it_has_shown(cluster: FakeCluster) -> None:
    with Consumer(**options(cluster, 60_000)) as reader:
        with waiting(reader, lambda: iterate(reader)):
            eventually(lambda: reader.metrics()["records-consumed-total"] == COUNT)
        assert reader.position(FIRST) == COUNT
    assert committed(cluster) == COUNT


@pytest.mark.parametrize("topics", [re.compile("orders.*"), ["orders", "orders-old"]], ids=["pattern", "names"])
def test_C23_G08_a_topic_that_was_deleted_is_given_up_and_holds_up_no_automatic_commit_of_the_others(cluster: FakeCluster, topics: Any) -> None:
    cluster.create_topic("orders-old")
    cluster.produce("orders-old", b"")
    given = {**options(cluster, 60_000), "topics": topics, "metadata_max_age_ms": 100, "allow_auto_create_topics": False}
    with Consumer(**given) as reader:
        count = 0
        while count <= COUNT:
            count += len(reader.poll(20))
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.delete_topics(["orders-old"])
        began = time.monotonic()
        while reader.assignment() != {FIRST} and time.monotonic() < began + 20:
            reader.poll(0.05)
        assert reader.assignment() == {FIRST}
    assert committed(cluster) == COUNT


def test_a_commit_by_hand_waits_for_a_topic_that_brokers_do_not_know_yet(cluster: FakeCluster) -> None:
    with Consumer(**{**options(cluster, 0), "enable_auto_commit": False}) as reader:
        while not reader.poll(20):
            pass
        with cluster.intercept(Fail(UNKNOWN_TOPIC), "OffsetCommit", times=2) as refused:
            reader.commit()
            assert refused.hits == 2
    assert committed(cluster) == COUNT


def test_an_automatic_commit_does_not_wait_for_a_topic_that_brokers_do_not_know(cluster: FakeCluster) -> None:
    cluster.intercept(Fail(UNKNOWN_TOPIC), "OffsetCommit", times=1)
    given = {**options(cluster, 100), "retry_backoff_ms": 60_000, "retry_backoff_max_ms": 60_000}
    with Consumer(**given) as reader, waiting(reader, lambda: poll_on(reader)):
        eventually(lambda: committed(cluster) == COUNT)


def test_users_callbacks_run_between_polls_and_not_in_one_that_waits(cluster: FakeCluster) -> None:
    reported: list[Any] = []
    with Consumer(**options(cluster, 50)) as reader:
        while not reader.poll(20):
            pass
        cluster.intercept(Delay(DELAY_S), "OffsetCommit", times=1)  # it ends while the poll waits
        reader.commit_async(callback=lambda _, error: reported.extend([error, reader.position(FIRST)]))
        with waiting(reader, lambda: poll_on(reader)):
            eventually(lambda: committed(cluster) == COUNT)
            before = len(cluster.requests("Heartbeat"))
            eventually(lambda: len(cluster.requests("Heartbeat")) >= before + 4)
            assert reported == []
        reader.poll(0)
    assert reported == [None, COUNT]


# ---- one user at a time ----------------------------------------------------------------------------------------------


def test_a_call_that_is_let_in_behind_a_close_gets_the_error_of_a_closed_consumer() -> None:
    looks: list[None] = []

    def check() -> None:
        looks.append(None)
        if len(looks) > 1:  # another thread closes the consumer behind the first look
            raise ClientClosedError

    users = SingleUser(check, threading.get_ident)
    with pytest.raises(ClientClosedError), users:
        pytest.fail("a poll would wait here for ever")
    assert not users.taken()
