"""Bulks of a whole producer: refused records and their errors, waits, serializers and partitioners."""
from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Iterator
from typing import Any

import pyarrow
import pytest

from pyclient import Admin, AsyncProducer, Deliveries, Producer
from pyclient.errors import (
    BufferExhaustedError, ClientClosedError, BulkDeliveryError, DeliveryError, IllegalStateError, KafkaError, MetadataTimeoutError, RecordRejectedError, SerializationError,
)
from pyclient.testing import FakeCluster
from tests.waiting import eventually


@pytest.fixture
def cluster() -> Iterator[FakeCluster]:
    with FakeCluster(brokers=1) as made:
        made.create_topic("orders", 3)
        made.create_topic("bills")
        yield made


def producer(cluster: FakeCluster, **options: Any) -> Producer:
    return Producer(bootstrap_servers=cluster.bootstrap_servers, **options)


def stored(cluster: FakeCluster, topic: str = "orders") -> list[Any]:
    return list(cluster.records(topic))


def values_of(cluster: FakeCluster, topic: str = "orders") -> list[bytes | None]:
    return sorted((record.value for record in stored(cluster, topic)), key=lambda value: value or b"")


@contextlib.contextmanager
def paused(cluster: FakeCluster) -> Iterator[None]:
    """The broker sends no responses until the block ends."""
    broker = cluster.leader("orders")
    cluster.pause(broker)
    try:
        yield
    finally:
        cluster.resume(broker)


def knows(client: Producer, topic: str) -> bool:
    """Whether the topic is known within the producer's ``max_block_ms``."""
    with contextlib.suppress(KafkaError):
        return client.partitions_for(topic) > 0
    return False


class ByLength:
    """A user's partitioner, which raises for the empty value."""

    def partition(self, topic: str, key: bytes | None, value: bytes | None, partitions: Any) -> int:
        return len(value or b"") % len(partitions) if value else 1 // 0


class Sees:
    """An interceptor that changes nothing."""

    def on_send(self, topic: str, key: Any, value: Any, headers: Any) -> None:
        """As it is."""

    def on_acknowledgement(self, metadata: Any, error: Any) -> None:
        """Nothing."""


def test_every_value_arrives_with_its_key_headers_and_timestamp(cluster: FakeCluster) -> None:
    with producer(cluster) as client:
        deliveries = client.send_many(
            "orders", [b"a", None, bytearray(b"c")], keys=[b"k", None, b""], headers=[[("h", b"1")], None, []],
            timestamps=[5, None, 7], partition=1)
        assert [(each.topic, each.partition, each.offset) for each in deliveries.result(10)] == [("orders", 1, at) for at in range(3)]
    assert [(record.key, record.value, list(record.headers)) for record in stored(cluster)] == [
        (b"k", b"a", [("h", b"1")]), (None, None, []), (b"", b"c", [])]
    assert [record.timestamp for record in stored(cluster)][::2] == [5, 7]


def test_serializers_run_for_each_record_and_refuse_single_records(cluster: FakeCluster) -> None:
    with producer(cluster, value_serializer="json", key_serializer="string") as client:
        deliveries = client.send_many("orders", [{"a": 1}, object(), [2]], keys=["x", "y", "z"])
        with pytest.raises(BulkDeliveryError) as failed:
            deliveries.result(10)
    assert list(failed.value.errors) == [1]
    assert isinstance(failed.value.errors[1], SerializationError)
    assert len(stored(cluster)) == 2
    assert {record.key for record in stored(cluster)} == {b"x", b"z"}


def test_a_users_partitioner_runs_for_each_record_and_its_exception_is_the_cause(cluster: FakeCluster) -> None:
    with producer(cluster, partitioner=ByLength()) as client:
        deliveries = client.send_many("orders", [b"a", b"", b"abc", b"ab"])
        failed = deliveries.exception(10)
        assert failed is not None
        assert list(failed.errors) == [1]
        assert isinstance(failed.errors[1], RecordRejectedError)
        assert isinstance(failed.errors[1].__cause__, ZeroDivisionError)
        assert [deliveries[at].partition for at in (0, 2, 3)] == [1, 0, 2]


@pytest.mark.parametrize("by", ["arrow", "lists"])
def test_a_topic_column_names_each_rows_topic_and_null_means_the_argument(cluster: FakeCluster, by: str) -> None:
    data = pyarrow.table({"value": ["a", "b", "c", "d"], "to": ["bills", None, "orders", "bills"]})
    with producer(cluster, **({"value_serializer": "string"} if by == "lists" else {})) as client:
        acknowledged = client.send_arrow("orders", data, topic_column="to").result(10)
        assert [each.topic for each in acknowledged] == ["bills", "orders", "orders", "bills"]
    assert values_of(cluster) == [b"b", b"c"]
    assert values_of(cluster, "bills") == [b"a", b"d"]


@pytest.mark.parametrize("options", [{}, {"value_serializer": "string"}, {"partitioner": ByLength()}], ids=["columns", "serializer", "partitioner"])
def test_a_partition_column_names_each_rows_partition_and_null_means_the_partitioner(cluster: FakeCluster, options: Any) -> None:
    keys = ["a", "b", None, "c", "d"]
    data = pyarrow.table({"value": ["v"] * 5, "key": keys, "at": pyarrow.array([2, None, 1, 0, 2], pyarrow.int32())})
    with producer(cluster, **options) as client:
        chosen = client.send("orders", "v" if "value_serializer" in options else b"v", b"b").result(10).partition
        acknowledged = client.send_arrow("orders", data, partition_column="at").result(10)
        assert [each.partition for each in acknowledged] == [2, chosen, 1, 0, 2]
        assert [each.partition for each in client.send_arrow("orders", data.slice(2, 2), partition_column="at").result(10)] == [1, 0]


@pytest.mark.parametrize("options", [{}, {"value_serializer": "string"}], ids=["columns", "lists"])
def test_P35_rows_whose_partition_their_topic_does_not_have_are_refused_by_index(cluster: FakeCluster, options: Any) -> None:
    data = pyarrow.table({"value": list("abcdef"), "to": ["orders", "bills", "bills", None, "orders", "orders"], "at": [2, 1, 0, -1, 2**40, 3]})
    with producer(cluster, max_block_ms=300, **options) as client:
        eventually(lambda: knows(client, "orders") and knows(client, "bills"), 20.0)
        failed = client.send_arrow("orders", data, topic_column="to", partition_column="at").exception(10)
        assert failed is not None
        assert list(failed.errors) == [1, 3, 4, 5]
        assert "topic bills has 1 partitions, numbered from 0; there is no 1 (null lets the partitioner choose)" in str(failed.errors[1])
        assert "topic orders has 3 partitions, numbered from 0; there is no -1" in str(failed.errors[3])
        assert "there is no 1099511627776" in str(failed.errors[4])
    assert values_of(cluster) == [b"a"]
    assert values_of(cluster, "bills") == [b"c"]


def test_P35_a_bulk_waits_for_a_partition_that_the_topic_gets(cluster: FakeCluster) -> None:
    with producer(cluster) as client:
        assert client.partitions_for("bills") == 1
        with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
            admin.create_partitions({"bills": 4})
        data = pyarrow.table({"value": ["a", "b"], "at": [3, 0]})
        assert [each.partition for each in client.send_arrow("bills", data, partition_column="at").result(10)] == [3, 0]


def test_arrow_strings_are_sent_as_bytes_also_with_a_users_partitioner(cluster: FakeCluster) -> None:
    named = pyarrow.array([[{"key": "h", "value": "x"}], None], pyarrow.list_(pyarrow.struct([("key", pyarrow.string()), ("value", pyarrow.string())])))
    data = pyarrow.table({"value": ["a", "bé"], "key": pyarrow.array(["k", None]).dictionary_encode(), "headers": named})
    with producer(cluster, partitioner=ByLength()) as client:
        client.send_arrow("orders", data).result(10)
    assert sorted((record.value, record.key, list(record.headers)) for record in stored(cluster)) == [
        (b"a", b"k", [("h", b"x")]), ("bé".encode(), None, [])]


def test_only_rows_of_an_unknown_or_null_topic_are_refused(cluster: FakeCluster) -> None:
    data = pyarrow.table({"value": ["a", "b", "c"], "to": ["bills", "no such/topic", None]})
    with producer(cluster, max_block_ms=300) as client:
        failed = client.send_arrow(None, data, topic_column="to").exception(10)
        assert failed is not None
        assert list(failed.errors) == [1, 2]
        assert "its topic is null" in str(failed.errors[2])
    assert values_of(cluster, "bills") == [b"a"]


def test_serializers_get_arrow_values_of_any_type(cluster: FakeCluster) -> None:
    data = pyarrow.table({"value": [{"n": 1}, None], "key": [7, 8], "headers": [[{"key": "h", "value": b"x"}], []],
                          "timestamp": pyarrow.array([9, 10], pyarrow.timestamp("ms"))})
    with producer(cluster, value_serializer="json", key_serializer="long") as client:
        client.send_arrow("bills", data).result(10)
    first, second = stored(cluster, "bills")
    assert (first.value, first.key, first.timestamp) == (b'{"n":1}', (7).to_bytes(8, "big"), 9)
    assert list(first.headers) == [("h", b"x")]
    assert second.key == (8).to_bytes(8, "big")


@pytest.mark.parametrize(("arguments", "message"), [
    ({"values": [b"a"], "keys": [b"k", b"l"]}, "1 values, 2 keys"),
    ({"values": b"abc"}, "values is bytes: give a list"),
    ({"values": [b"a"], "timestamps": 5}, "timestamps is int"),
    ({"values": [b"a"], "partition": -1}, "partition -1 is negative"),
])
def test_columns_of_wrong_length_or_type_are_refused_before_anything_is_queued(cluster: FakeCluster, arguments: Any, message: str) -> None:
    with producer(cluster) as client:
        with pytest.raises((TypeError, ValueError), match=message):
            client.send_many("orders", **arguments)
        client.flush()
    assert stored(cluster) == []


def test_P35_an_unknown_partition_raises_and_nothing_is_queued(cluster: FakeCluster) -> None:
    with producer(cluster, max_block_ms=200) as client, pytest.raises(MetadataTimeoutError, match="partition 7 of topic 'orders'"):
        client.send_many("orders", [b"a"], partition=7)


def test_P04_without_memory_in_time_the_rest_is_refused_by_index_and_queued_records_are_sent(cluster: FakeCluster) -> None:
    with producer(cluster, buffer_memory=40_000, batch_size=10_000, max_block_ms=200, linger_ms=0) as client:
        client.partitions_for("orders")
        with paused(cluster):
            deliveries = client.send_many("orders", [b"x" * 1_000] * 5_000, partition=0)
        with pytest.raises(DeliveryError) as unseen:
            client.flush(20)
        failed = deliveries.exception(0)
        assert failed is not None
        first = min(failed.errors)
        assert unseen.value.count == len(failed.errors)
        assert list(failed.errors) == list(range(first, 5_000))
        assert len(failed.errors.ranges) == 1
        assert isinstance(failed.errors[first], BufferExhaustedError)
        assert 20 < first < 60
        client.flush()
    assert len(stored(cluster)) == first


def test_rejected_records_are_known_at_once_and_flush_does_not_raise_them_again(cluster: FakeCluster) -> None:
    with producer(cluster) as client:
        client.partitions_for("orders")
        bad: list[Any] = [b"a", 1, b"b", 2]
        with paused(cluster):
            deliveries = client.send_many("orders", bad)
            assert list(deliveries.rejected()) == [1, 3]
            assert "int" in str(deliveries.rejected()[3])
            assert not deliveries.done()
            assert not client.send_many("orders", [b"c"]).rejected()
        client.flush()
        assert deliveries.exception(10) is not None
    assert values_of(cluster) == [b"a", b"b", b"c"]


def test_flush_raises_failures_of_a_bulk_that_were_not_looked_at(cluster: FakeCluster) -> None:
    with producer(cluster) as client:
        bad: list[Any] = [b"a", 1, 2]
        client.send_many("orders", bad)
        with pytest.raises(DeliveryError, match=r"2 records could not be delivered \(orders, not queued: "):
            client.flush()
        seen: list[Deliveries] = []
        client.send_many("orders", bad).add_done_callback(seen.append)
        client.flush()
        eventually(lambda: bool(seen), 5.0)
        assert len(seen[0]) == 3


def test_a_bulk_in_a_callback_never_waits(cluster: FakeCluster) -> None:
    with producer(cluster) as client:
        errors: list[Any] = []

        def again(_: Any) -> None:
            deliveries = client.send_many("orders", [b"b"])
            try:
                deliveries.result()
            except IllegalStateError as error:
                errors.append(error)

        client.send("orders", b"a", on_delivery=again)
        eventually(lambda: bool(errors), 10.0)
    assert values_of(cluster) == [b"a", b"b"]


def test_arrow_timestamps_out_of_range_in_ms_are_refused_by_index_and_never_wrap(cluster: FakeCluster) -> None:
    moments = pyarrow.array([7, 2**62, None, 2**63 - 1, -(2**63)], pyarrow.int64()).cast(pyarrow.timestamp("s"))
    with producer(cluster) as client:
        deliveries = client.send_arrow("orders", pyarrow.table({"value": ["a"] * 5, "timestamp": moments}))
        failed = deliveries.exception(20)
        assert failed is not None
        assert list(failed.errors) == [1, 3, 4]
        assert "timestamp -" in str(failed.errors[1])
    assert 7_000 in {record.timestamp for record in stored(cluster)}


def test_a_closed_producer_refuses_a_bulk(cluster: FakeCluster) -> None:
    client = producer(cluster)
    client.close()
    with pytest.raises(ClientClosedError):
        client.send_many("orders", [b"a"])


def test_P08_close_ends_a_bulk_that_waits_for_memory_and_refuses_its_rest(cluster: FakeCluster) -> None:
    client = producer(cluster, buffer_memory=40_000, batch_size=10_000, linger_ms=0)
    client.partitions_for("orders")
    got: list[Deliveries] = []
    with paused(cluster):
        thread = threading.Thread(target=lambda: got.append(client.send_many("orders", [b"x" * 1_000] * 5_000, partition=0)))
        thread.start()
        eventually(lambda: client._core.accumulator.pool.waiting == 1, 10.0)
        with pytest.raises(DeliveryError, match="closed before"):
            client.close(0)
        thread.join(10)
    failed = got[0].exception(5)
    assert failed is not None
    assert len(failed.errors) == 5_000
    assert 1 < len(failed.errors.ranges) < 10
    assert all(isinstance(cause, ClientClosedError) for cause in failed.errors.values())


def test_a_cancelled_async_bulk_notes_the_index_it_reached_and_queued_records_are_delivered(cluster: FakeCluster) -> None:
    async def main() -> str:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=40_000, batch_size=10_000) as client:
            await client.partitions_for("orders")
            with paused(cluster):
                task = asyncio.ensure_future(noted(client))
                await asyncio.to_thread(eventually, lambda: client._core.accumulator.pool.waiting == 1)
                task.cancel()
                note = await task
            await client.flush(20)
            return note

    async def noted(client: AsyncProducer) -> str:
        try:
            await client.send_many("orders", [b"x" * 1_000] * 500, partition=0)
        except asyncio.CancelledError as cancelled:
            return " ".join(cancelled.__notes__)
        return "not cancelled"

    note = asyncio.run(main())
    count = len(stored(cluster))
    assert 20 < count < 60
    assert f"interrupted at the record at index {count}:" in note


def test_awaiting_an_async_bulk_returns_its_outcome(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=50_000, batch_size=5_000) as client:
            deliveries = await client.send_many("orders", [b"%d" % at for at in range(20_000)])
            assert len(await deliveries) == 20_000
            deliveries = await client.send_arrow("bills", pyarrow.table({"value": ["a", "b"]}))
            assert [each.offset for each in await deliveries] == [0, 1]

    asyncio.run(main())
    assert sorted(int(record.value or b"") for record in stored(cluster)) == list(range(20_000))


# --- few rows of Arrow data, again and again -------------------------------------------------------------------------


def compiled(client: Producer | AsyncProducer) -> list[bool]:
    """For each call of `send_arrow` from now on, whether its rows took the compiled path."""
    core, took = client._core, list[bool]()
    assert core.arrow_path is not None
    send = core.arrow_path.send

    def noted(*arguments: object) -> Any:
        begun = send(*arguments)
        took.append(begun is not None)
        return begun

    core.send_simple_rows = noted
    return took


def test_data_like_some_that_was_sent_before_takes_the_compiled_path(cluster: FakeCluster) -> None:
    with producer(cluster) as client:
        took = compiled(client)
        for number in range(4):
            client.send_arrow("orders", pyarrow.table({"value": [b"%d" % number], "key": [b"k"]}))
        client.send_arrow("orders", pyarrow.table({"value": ["text"], "key": ["k"], "timestamp": [5]}))
        client.send_arrow("orders", pyarrow.table({"value": [b"4"], "key": [b"k"]}))
        client.flush(20)
        assert took == [False, True, True, True, False, True]
    assert len({record.partition for record in stored(cluster)}) == 1
    assert [record.value for record in stored(cluster)] == [b"0", b"1", b"2", b"3", b"text", b"4"]


def test_few_rows_wait_for_memory_in_their_order(cluster: FakeCluster) -> None:
    with producer(cluster, buffer_memory=40_000, batch_size=10_000) as client:
        took = compiled(client)
        data = pyarrow.table({"value": [b"%03d" % at + bytes(1_000) for at in range(200)], "key": [b"k"] * 200})
        client.send_arrow("orders", data).result(20)
        delivered = client.send_arrow("orders", data).result(20)
        assert took == [False, True]
        assert [each.offset for each in delivered] == list(range(200, 400))
    assert [int((record.value or b"")[:3]) for record in stored(cluster)] == [*range(200)] * 2


def test_few_rows_for_which_there_is_no_memory_in_time_are_refused_by_index(cluster: FakeCluster) -> None:
    with producer(cluster, buffer_memory=40_000, batch_size=10_000, max_block_ms=200) as client:
        data = pyarrow.table({"value": [bytes(1_000)] * 100})
        client.send_arrow("orders", data.slice(0, 1)).result(20)
        with paused(cluster):
            took = compiled(client)
            deliveries = client.send_arrow("orders", data)
            refused = deliveries.rejected()
        assert took == [True]
        assert list(refused) == list(range(100 - len(refused), 100))
        assert all(isinstance(error, BufferExhaustedError) for error in refused.values())
        with pytest.raises(BulkDeliveryError):
            deliveries.result(20)
    assert len(stored(cluster)) == 1 + 100 - len(refused)


def test_few_rows_of_an_async_producer_wait_for_memory_too(cluster: FakeCluster) -> None:
    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=cluster.bootstrap_servers, buffer_memory=40_000, batch_size=10_000) as client:
            took = compiled(client)
            data = pyarrow.table({"value": [bytes(1_000)] * 200})
            await (await client.send_arrow("bills", data))
            assert [each.offset for each in await (await client.send_arrow("bills", data))] == list(range(200, 400))
            assert took == [False, True]

    asyncio.run(main())


@pytest.mark.parametrize("options", [{"value_serializer": "string"}, {"key_serializer": "string"}, {"partitioner": ByLength()}, {"interceptors": [Sees()]}],
                         ids=["values", "keys", "partitioner", "interceptor"])
def test_rows_that_each_are_shown_to_user_code_have_no_compiled_path(cluster: FakeCluster, options: Any) -> None:
    with producer(cluster, **options) as client:
        assert client._core.arrow_path is None
