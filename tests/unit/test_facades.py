"""The sync and async faces are twins, and what does not depend on a broker holds for all six clients."""
from __future__ import annotations

import asyncio
import copy
import gc
import inspect
import pickle
import threading
import warnings
from typing import Any
from unittest.mock import AsyncMock, create_autospec

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Delivery, NewPartitions, NewTopic, OffsetAndMetadata, Producer, TopicPartition
from pyclient.admin.calls import raise_failed
from pyclient.errors import ClientClosedError, ConfigurationError, DeliveryError, IllegalStateError, PartialFailureError, UnknownServerError, WrongEventLoopError

from tests.waiting import eventually

SERVER: dict[str, Any] = {"bootstrap_servers": "127.0.0.1:1"}
TWINS = [(Producer, AsyncProducer), (Consumer, AsyncConsumer), (Admin, AsyncAdmin)]
SYNC = [sync for sync, _ in TWINS]
ASYNC = [twin for _, twin in TWINS]
WHERE = TopicPartition("t", 0)
CALLS: dict[type, list[tuple[str, tuple[Any, ...]]]] = {
    AsyncProducer: [("send", ("t", b"x")), ("send_many", ("t", [b"x"])), ("send_arrow", ("t", None)), ("flush", ()), ("partitions_for", ("t",))],
    AsyncConsumer: [("poll", (0,)), ("position", (WHERE,)), ("assign", ([WHERE],)), ("seek", (WHERE, 0)), ("commit", ({WHERE: 1},)),
                    ("end_offsets", ([WHERE],)), ("committed", ([WHERE],)), ("offsets_for_times", ({WHERE: 0},))],
    AsyncAdmin: [("list_topics", ()), ("create_topics", (["t"],)), ("describe_cluster", ())],
}


PLAIN = {(AsyncConsumer, name) for name in ("assign", "subscribe", "seek", "seek_to_beginning", "seek_to_end", "pause", "resume")}
"""Methods of async clients that never wait: plain functions, so a forgotten ``await`` cannot lose the call."""


ASYNC_ONLY = {"start", "stop"}
"""A sync client opens when it is made."""


async def call(client: Any, name: str, arguments: tuple[Any, ...]) -> None:
    result = getattr(client, name)(*arguments)
    if (type(client), name) not in PLAIN:
        await result


def options_of(kind: type) -> dict[str, Any]:
    return {**SERVER, "group_id": "g"} if "Consumer" in kind.__name__ else SERVER


def public(kind: type) -> dict[str, Any]:
    members = inspect.getmembers(kind, callable)
    return {name: member for name, member in members if not name.startswith("_")}


@pytest.mark.parametrize(("sync", "twin"), TWINS)
def test_twins_have_the_same_names_and_the_same_signatures(sync: type, twin: type) -> None:
    assert public(sync).keys() == public(twin).keys() - ASYNC_ONLY
    for name, method in [*public(sync).items(), ("__init__", sync.__init__)]:  # type: ignore[misc]
        assert parameters(method) == parameters(getattr(twin, name)), name


def parameters(method: Any) -> list[tuple[Any, ...]]:
    return [(each.name, each.kind, repr(each.default)) for each in inspect.signature(method).parameters.values()]


@pytest.mark.parametrize("kind", ASYNC)
def test_before_it_is_entered_an_async_client_says_how_to_open_it(kind: type) -> None:
    async def main() -> None:
        client = kind(**options_of(kind))
        for name, arguments in CALLS[kind]:
            with pytest.raises(IllegalStateError, match=r"use it inside `async with`, or `await` its start\(\)"):
                await call(client, name, arguments)

    asyncio.run(main())


@pytest.mark.parametrize(("kind", "name"), [(kind, name) for kind, calls in CALLS.items() for name, _ in calls])
def test_a_mock_of_an_async_client_can_be_awaited_where_the_client_is(kind: type, name: str) -> None:
    mock = getattr(create_autospec(kind, instance=True), name)
    assert isinstance(mock, AsyncMock) is ((kind, name) not in PLAIN)


@pytest.mark.parametrize(("kind", "name"), sorted(PLAIN, key=str))
def test_methods_of_an_async_client_that_never_wait_are_plain_functions(kind: type, name: str) -> None:
    assert not inspect.iscoroutinefunction(getattr(kind, name))


@pytest.mark.parametrize("kind", ASYNC)
def test_on_another_loop_every_call_of_an_async_client_raises(kind: type) -> None:
    async def elsewhere(client: Any) -> None:
        for name, arguments in [*CALLS[kind], ("close", ())]:
            with pytest.raises(WrongEventLoopError, match="another event loop"):
                await call(client, name, arguments)

    async def main() -> None:
        async with kind(**options_of(kind)) as client:
            await asyncio.to_thread(asyncio.run, elsewhere(client))

    asyncio.run(main())


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_client_is_entered_once(kind: type) -> None:
    async def main() -> None:
        async with kind(**options_of(kind)) as client:
            with pytest.raises(IllegalStateError, match="enter it once"):
                await client.__aenter__()
        with pytest.raises(ClientClosedError):
            await client.__aenter__()

    asyncio.run(main())


@pytest.mark.parametrize("kind", ASYNC)
def test_after_close_every_call_of_an_async_client_says_closed(kind: type) -> None:
    async def main() -> None:
        async with kind(**options_of(kind)) as client:
            pass
        for name, arguments in CALLS[kind]:
            with pytest.raises(ClientClosedError, match="closed"):
                await call(client, name, arguments)
        await client.close()

    asyncio.run(main())


@pytest.mark.parametrize(("sync", "twin"), TWINS)
def test_after_close_every_call_of_a_sync_client_says_closed(sync: type, twin: type) -> None:
    client = sync(**options_of(sync))
    client.close()
    for name, arguments in [*CALLS[twin], ("__enter__", ())]:
        with pytest.raises(ClientClosedError, match="closed"):
            getattr(client, name)(*arguments)
    client.close()


@pytest.mark.parametrize("kind", [*SYNC, *ASYNC])
def test_a_client_without_bootstrap_servers_says_what_is_missing(kind: type) -> None:
    with pytest.raises(ConfigurationError, match="bootstrap_servers"):
        kind()


@pytest.mark.parametrize("kind", SYNC)
def test_a_client_refuses_to_travel_to_another_process_and_names_what_does(kind: type) -> None:
    with kind(**SERVER) as client:
        for travel in (pickle.dumps, copy.copy, copy.deepcopy):
            with pytest.raises(TypeError, match=f"an? {kind.__name__} cannot be pickled.*shared_producer"):
                travel(client)


def test_the_records_of_a_producer_dropped_after_its_loop_was_closed_fail_so_that_no_caller_waits_forever() -> None:
    async def send(producer: AsyncProducer) -> Delivery:
        await producer.__aenter__()
        producer._core.accumulator.set_topic("t", 1, [0])
        return await producer.send("t", b"x")

    def drop(producers: list[AsyncProducer]) -> None:
        producers.clear()
        gc.collect()

    producers = [AsyncProducer(**SERVER)]
    delivery = asyncio.run(send(producers[0]))
    with pytest.warns(ResourceWarning, match="unclosed AsyncProducer, 1 record not acknowledged"):
        drop(producers)
    with pytest.raises(ClientClosedError, match="event loop was closed before the record was acknowledged"):
        delivery.result(0)


@pytest.mark.parametrize("kind", SYNC)
def test_a_client_dropped_unclosed_warns_and_its_thread_ends(kind: type) -> None:
    before = set(threading.enumerate())
    client = kind(**SERVER)
    left = set(threading.enumerate()) - before
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        del client
        gc.collect()
    assert [each.category for each in caught] == [ResourceWarning]
    assert f"unclosed {kind.__name__}" in str(caught[0].message)
    for thread in left:
        thread.join(20)
        assert not thread.is_alive()


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_client_dropped_unclosed_warns(kind: type) -> None:
    async def main() -> None:
        client = kind(**SERVER)
        await client.__aenter__()
        core = client._core
        del client
        gc.collect()
        await asyncio.to_thread(eventually, lambda: core.closed)

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(main())
    assert [str(each.message).split(":")[0].split(",")[0] for each in caught] == [f"unclosed {kind.__name__}"]


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_client_never_entered_is_dropped_without_a_word(kind: type) -> None:
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        kind(**SERVER)
        gc.collect()
    assert not caught


def test_a_timeout_is_a_number_of_seconds_or_none() -> None:
    with Producer(**SERVER) as producer, pytest.raises(ValueError, match="timeout -1"):
        producer.flush(-1)
    with Producer(**SERVER) as producer:
        producer.flush(None)
        producer.flush(float("inf"))


def test_closing_a_client_ends_the_calls_of_other_threads() -> None:
    raised: list[BaseException] = []
    admin = Admin(**SERVER)

    def ask() -> None:
        try:
            admin.list_topics(timeout=None)
        except ClientClosedError as error:
            raised.append(error)

    threads = [threading.Thread(target=ask) for _ in range(5)]
    for thread in threads:
        thread.start()
    eventually(lambda: len(admin._core.calls._open) == 5)
    admin.close()
    for thread in threads:
        thread.join(20)
    assert len(raised) == 5


def test_C20_a_look_up_of_committed_offsets_ends_with_the_last_partition_that_wants_it() -> None:
    one, other = TopicPartition("t", 0), TopicPartition("t", 1)
    with Consumer(**SERVER, group_id="g", enable_auto_commit=False) as reader:
        reader.assign([one, other])
        reader.seek(one, 3)
        eventually(lambda: reader._core.calls._open)
        reader.assign([one])
        assert not reader._core.calls._open


NO_PARTITIONS = [("t", -1), ("t", "0"), ("t", 2**31), (1, 0), ("", 0), ("t",), "t0", None]


@pytest.mark.parametrize("wrong", NO_PARTITIONS)
def test_what_is_no_partition_is_refused_before_it_can_spoil_a_request(wrong: Any) -> None:
    with Consumer(**SERVER, group_id="g") as reader:
        for call in (reader.position, reader.pause, reader.resume, reader.seek_to_end, lambda one: reader.seek(one, 1),
                     lambda one: reader.assign([one]), lambda one: reader.committed([one]), lambda one: reader.end_offsets([one]),
                     lambda one: reader.offsets_for_times({one: 0}), lambda one: reader.commit({one: 1})):
            with pytest.raises(ValueError, match=r"expected TopicPartition\(topic, partition >= 0\), got"):
                call(wrong)
        assert not reader.assignment()


@pytest.mark.parametrize("wrong", [-1, 2**63, "5", None, 1.5, OffsetAndMetadata(-1), OffsetAndMetadata(1, "é" * 16_384),
                                   OffsetAndMetadata(1, "", -1), OffsetAndMetadata(1, "", 2**31), OffsetAndMetadata(1, "", "3")])  # type: ignore[arg-type] # as users may
def test_what_is_no_position_is_refused_before_it_can_spoil_a_commit(wrong: Any) -> None:
    with Consumer(**SERVER, group_id="g") as reader:
        for commit in (reader.commit, reader.commit_async):
            with pytest.raises(ValueError, match="t-0"):
                commit({WHERE: wrong})


@pytest.mark.parametrize("wrong", [-1, 2**63, "5", None, 1.5])
def test_what_is_no_offset_is_refused_by_seek(wrong: Any) -> None:
    with Consumer(**SERVER) as reader:
        reader.assign([WHERE])
        with pytest.raises(ValueError, match="seek_to_beginning"):
            reader.seek(WHERE, wrong)


@pytest.mark.parametrize("wrong", [-1, "5", None, 1.5])
def test_what_is_no_time_is_refused(wrong: Any) -> None:
    with Consumer(**SERVER) as reader, pytest.raises(ValueError, match="ms since the epoch"):
        reader.offsets_for_times({WHERE: wrong})


@pytest.mark.parametrize("wrong", ["abc", [5], [None], [b"abc"]])
def test_what_is_no_list_of_topics_is_refused_before_it_does_harm(wrong: Any) -> None:
    with Admin(**SERVER) as admin:
        for call in (admin.create_topics, admin.delete_topics, admin.describe_topics):
            with pytest.raises(TypeError, match="topic"):
                call(wrong)


@pytest.mark.parametrize(("topic", "wrong"), [
    (NewTopic("t", "3"), "partitions"),  # type: ignore[arg-type]
    (NewTopic("t", 2**31), "partitions"), (NewTopic("t", -2), "partitions"), (NewTopic("t", 1, 2**15), "replication_factor"),
    (NewTopic("t", 1, 1, {"retention.ms": 1.5}), "'retention.ms'"),  # type: ignore[dict-item]
    (NewTopic(5), "expected a topic name as str, got int: 5"),  # type: ignore[arg-type]
])
def test_a_new_topic_that_cannot_be_sent_is_refused_by_what_is_wrong(topic: NewTopic, wrong: str) -> None:
    with Admin(**SERVER) as admin, pytest.raises((TypeError, ValueError), match=wrong):
        admin.create_topics([topic])


def test_a_topic_that_the_answer_leaves_out_is_not_taken_for_done() -> None:
    with pytest.raises(UnknownServerError, match="answer lacks topic 'b'"):
        raise_failed(["b"], {})
    with pytest.raises(PartialFailureError, match="answer lacks topic 'b'"):
        raise_failed(["a", "b"], {"a": None})


@pytest.mark.parametrize("bad", [
    {"partition": True}, {"partition": 1.0}, {"partition": "1"}, {"partition": -1}, {"timestamp": True}, {"timestamp": 1.7e9},
    {"timestamp": "1"}, {"timestamp": -1}, {"timestamp": 2**63}], ids=str)
def test_a_partition_or_timestamp_that_is_none_is_refused_before_anything_waits(bad: dict[str, Any]) -> None:
    (name,) = bad
    with Producer(**SERVER, max_block_ms=60_000) as producer:
        producer._core.accumulator.set_topic("t", 2, [0, 1])
        with pytest.raises((TypeError, ValueError), match=f"{name} .* {'None lets' if name == 'partition' else 'give ms'}"):
            producer.send("t", b"v", **bad)
        assert producer._core.unsettled() == 0


def test_two_tasks_may_close_an_async_producer_at_once_and_only_one_gets_the_error() -> None:
    async def test() -> list[Any]:
        producer = AsyncProducer(**SERVER)
        async with asyncio.timeout(20):
            await producer.__aenter__()
            producer._core.accumulator.set_topic("t", 1, [0])
            await producer.send("t", b"never acknowledged")
            return list(await asyncio.gather(producer.close(0.1), producer.close(15), return_exceptions=True))

    failed, quiet = asyncio.run(test())
    assert isinstance(failed, DeliveryError)
    assert quiet is None


@pytest.mark.parametrize(("totals", "wrong"), [
    (["t"], "expected the number of partitions by topic"), ("t", "expected the number of partitions by topic"),
    ({5: 2}, "expected a topic name as str, got int: 5"), ({"t": 0}, "total number"), ({"t": True}, "total number"), ({"t": "3"}, "total number"),
    ({"t": 2**31}, "total number"), ({"t": NewPartitions(-1)}, "total number"),
    ({"t": NewPartitions(3, [1, 2])}, "list of node ids"),  # type: ignore[list-item]
    ({"t": NewPartitions(2, [[-1]])}, "list of node ids"), ({"t": NewPartitions(2, [["1"]])}, "list of node ids"),  # type: ignore[list-item]
])
def test_a_number_of_partitions_that_cannot_be_sent_is_refused_by_what_is_wrong(totals: Any, wrong: str) -> None:
    with Admin(**SERVER) as admin, pytest.raises((TypeError, ValueError), match=wrong):
        admin.create_partitions(totals)
