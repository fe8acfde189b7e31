"""Optional protocols of serializers: their role, headers of their own, and what async clients await before they run."""
from __future__ import annotations

import asyncio
import contextlib
import re
import threading
from typing import Any

import pyarrow
import pytest

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Delivery, Producer, Record, TopicPartition
from pyclient.errors import BulkDeliveryError, ConfigurationError, MetadataTimeoutError, SerializationError
from pyclient.plugins import Serialized
from pyclient.records import Headers
from pyclient.serializing import load_deserializer, load_serializer
from pyclient.testing import FakeCluster

TP = TopicPartition("t", 0)


class Roles:
    """Writes and checks its role; counts what it shares with its copies."""

    def __init__(self) -> None:
        self.role: str | None = None
        self.shared: list[str] = []

    def configure(self, *, is_key: bool) -> None:
        self.role = "key" if is_key else "value"
        self.shared.append(self.role)

    def serialize(self, topic: str, value: Any) -> bytes | None:
        return f"{self.role}:{value}".encode()

    def deserialize(self, topic: str, data: bytes | None) -> str:
        return f"{self.role}<{(data or b'').decode()}"


class Labels:
    """Adds a header that names the topic."""

    adds_headers = True

    def __init__(self, name: str) -> None:
        self.name = name

    def serialize(self, topic: str, value: Any, headers: Headers = ()) -> bytes | Serialized | None:
        return value if value is None else Serialized(value.encode(), ((self.name, topic.encode()),))


class Slow:
    """Must be prepared for each new text; a text that begins with ``bad`` cannot be."""

    def __init__(self) -> None:
        self.ready: set[Any] = set()
        self.awaited: list[Any] = []

    async def prepare_async(self, topic: str, value: Any) -> None:
        await self._prepare(value)

    async def prepare_deserialize_async(self, topic: str, data: bytes | None, headers: Headers) -> None:
        await self._prepare(data)

    async def _prepare(self, item: Any) -> None:
        if item in self.ready:
            return
        self.awaited.append(item)
        for _ in range(3 if item in ("first", b"first") else 1):
            await asyncio.sleep(0)
        text = item.decode() if isinstance(item, bytes) else item
        if text.startswith("bad"):
            raise OSError("no registry")
        self.ready.add(item)

    def serialize(self, topic: str, value: Any) -> bytes:
        assert value in self.ready
        return bytes(value, "utf-8")

    def deserialize(self, topic: str, data: bytes | None) -> Any:
        assert data in self.ready
        return data and data.decode()


class SlowButKnows(Slow):
    def is_prepared(self, topic: str, data: bytes | None, headers: Headers) -> bool:
        return data in self.ready


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


# ---- role -----------------------------------------------------------------------------------------------------------


def test_one_object_serves_keys_and_values_and_knows_which(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    roles = Roles()
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, key_serializer=roles, value_serializer=roles) as producer:
        producer.send("t", 1, 2)
        producer.send_many("t", [3], keys=[4])
    assert [(record.key, record.value) for record in fake_cluster.records("t")] == [(b"key:2", b"value:1"), (b"key:4", b"value:3")]
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, key_deserializer=roles, value_deserializer=roles,
                  auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        first: Any = consumer.poll(20)[0]
    assert (first.key, first.value) == ("key<key:2", "value<value:1")
    assert roles.role is None, "clients configure copies"
    assert roles.shared == ["key", "value"] * 2, "what the object refers to is shared"


def test_a_configure_without_is_key_belongs_to_the_user() -> None:
    class Theirs(Roles):
        def configure(self, options: Any) -> None:  # type: ignore[override]
            raise AssertionError

    assert load_serializer(Theirs()).serialize("t", 1, ()) == b"None:1"


def test_an_error_of_configure_names_the_option_and_the_class() -> None:
    class Strict(Roles):
        def configure(self, *, is_key: bool) -> None:
            raise ValueError("values only")

    with pytest.raises(ConfigurationError, match=r"the key deserializer .*Strict\.configure raised ValueError: values only"):
        load_deserializer(Strict(), "key")


# ---- headers --------------------------------------------------------------------------------------------------------


def test_headers_of_serializers_follow_the_records_own(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, key_serializer=Labels("k"), value_serializer=Labels("v")) as producer:
        producer.send("t", "1", "a", headers={"own": b"x"})
        producer.send("t", "2")
        producer.send_many("t", ["3", "4"], keys=["b", None], headers=[[("own", b"y")], None])
        producer.send_many("t", ["5"])
    assert values(fake_cluster) == [b"1", b"2", b"3", b"4", b"5"]
    key, value = ("k", b"t"), ("v", b"t")
    assert [list(record.headers) for record in fake_cluster.records("t")] == [
        [("own", b"x"), key, value], [value], [("own", b"y"), key, value], [value], [value]]


def test_a_serializer_that_does_not_say_so_adds_no_headers(fake_cluster: FakeCluster) -> None:
    class Silent(Labels):
        adds_headers = False

    fake_cluster.create_topic("t")
    with (Producer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=Silent("v")) as producer,
          pytest.raises(SerializationError, match="gave a Serialized; it must give bytes or None")):
        producer.send("t", "1")


@pytest.mark.parametrize("data", [None, "text"])
def test_the_bytes_beside_headers_are_checked_too(data: Any) -> None:
    class Wrong(Labels):
        def serialize(self, topic: str, value: Any, headers: Headers = ()) -> Serialized:
            return Serialized(data, ())

    with pytest.raises(SerializationError):
        load_serializer(Wrong("v")).serialize("t", "1", ())


# ---- await ----------------------------------------------------------------------------------------------------------


def test_an_async_producer_awaits_before_it_serializes_and_keeps_the_order(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    slow = Slow()

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=slow) as producer:
            await asyncio.gather(*(producer.send("t", text) for text in ("first", "second", "first")))
            await producer.send_many("t", ["third", "second"])

    asyncio.run(send())
    assert values(fake_cluster) == [b"first", b"second", b"first", b"third", b"second"]
    assert slow.awaited == ["first", "second", "third"]


def test_a_record_that_cannot_be_prepared_is_refused_alone(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=Slow()) as producer:
            with pytest.raises(SerializationError, match="cannot serialize a str of topic 't': OSError: no registry"):
                await producer.send("t", "bad")
            deliveries = await producer.send_many("t", ["a", "bad", "b"])
            with pytest.raises(BulkDeliveryError, match="no registry"):
                await deliveries

    asyncio.run(send())
    assert values(fake_cluster) == [b"a", b"b"]


class Hangs(Slow):
    """Never prepared for a text that begins with ``never``."""

    async def _prepare(self, item: Any) -> None:
        if item.startswith("never"):
            self.awaited.append(item)
            await asyncio.get_running_loop().create_future()
        self.ready.add(item)


def test_a_preparation_is_cancelled_when_max_block_ms_is_over_and_its_record_refused(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    hangs, why = Hangs(), r"topic 't': the serializer was not prepared within max_block_ms \(200 ms\), so nothing was queued"

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=hangs, max_block_ms=200) as producer:
            while producer._core.accumulator.topic("t") is None:  # a busy broker may take longer than one call waits
                with contextlib.suppress(MetadataTimeoutError):
                    await producer.partitions_for("t")
            first, second = await asyncio.gather(producer.send("t", "never"), producer.send("t", "behind it"), return_exceptions=True)
            assert isinstance(first, SerializationError)
            assert re.match(why, first.message)
            assert isinstance(second, (SerializationError, Delivery)), "it has the time that the first one left"
            deliveries = await producer.send_many("t", ["a", "never again", "b"])
            with pytest.raises(BulkDeliveryError, match=why) as raised:
                await deliveries
            assert list(raised.value.errors) == [1], "what is ready needs no time"
            await (await producer.send("t", "c"))

    asyncio.run(asyncio.wait_for(send(), 60))
    assert [value for value in values(fake_cluster) if value != b"behind it"] == [b"a", b"b", b"c"]


def test_a_column_is_prepared_within_max_block_ms(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    released = threading.Event()

    class Waits:
        column = "value"

        def is_prepared(self, topic: str, *, is_key: bool) -> bool:
            return False

        def prepare(self, topic: str, *, is_key: bool) -> None:
            released.wait(60)

        def encode(self, data: Any, **_: Any) -> Any:
            return data

    async def send() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, max_block_ms=200) as producer:
            with pytest.raises(SerializationError, match="not prepared within max_block_ms"):
                await producer.send_arrow("t", pyarrow.table({"value": ["x"]}), value=Waits())
            released.set()

    asyncio.run(asyncio.wait_for(send(), 60))
    assert values(fake_cluster) == []


def test_a_sync_client_awaits_nothing(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    slow = Slow()
    slow.ready = {"a", "b", b"a", b"b"}
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=slow) as producer:
        producer.send("t", "a")
        producer.send_many("t", ["b"])
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, value_deserializer=slow, auto_offset_reset="earliest") as consumer:
        consumer.assign([TP])
        assert [str(record.value) for record in consumer.poll(20)] == ["a", "b"]
    assert slow.awaited == []


async def _read(cluster: FakeCluster, count: int, deserializer: Slow, **options: Any) -> list[Any]:
    found: list[Record] = []
    async with AsyncConsumer({}, bootstrap_servers=cluster.bootstrap_servers,
                             **{"value_deserializer": deserializer, "auto_offset_reset": "earliest", **options}) as consumer:
        consumer.assign([TP])
        while len(found) < count:
            found += await consumer.poll(20)
    return [record.value for record in found]


@pytest.mark.parametrize("kind", [Slow, SlowButKnows])
def test_an_async_consumer_awaits_before_it_deserializes(fake_cluster: FakeCluster, kind: type[Slow]) -> None:
    fake_cluster.create_topic("t")
    texts = ["first", "second", "first", "third", "second"]
    for text in texts:
        fake_cluster.produce("t", text.encode(), partition=0)
    slow = kind()
    assert asyncio.run(_read(fake_cluster, len(texts), slow)) == texts
    assert slow.awaited == [b"first", b"second", b"third"]


@pytest.mark.parametrize("kind", [Slow, SlowButKnows])
def test_C06_a_record_that_cannot_be_prepared_is_raised_until_a_seek(fake_cluster: FakeCluster, kind: type[Slow]) -> None:
    fake_cluster.create_topic("t")
    for text in (b"a", b"bad", b"b"):
        fake_cluster.produce("t", text, partition=0)
    slow = kind()

    async def read() -> list[Any]:
        async with AsyncConsumer(bootstrap_servers=fake_cluster.bootstrap_servers, value_deserializer=slow,
                                 auto_offset_reset="earliest") as consumer:
            consumer.assign([TP])
            found: list[Any] = [record.value for record in await consumer.poll(20)]
            for _ in range(2):
                with pytest.raises(SerializationError, match="the value of the record at offset 1: .* OSError: no registry"):
                    await consumer.poll(20)
            consumer.seek(TP, 2)
            return found + [record.value for record in await consumer.poll(20)]

    assert asyncio.run(read()) == ["a", "b"]
    assert slow.awaited == [b"a", b"bad", b"bad", b"b"], "each poll tries again"


def test_a_record_that_cannot_be_prepared_goes_to_the_handler(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    for text in (b"a", b"bad", b"b"):
        fake_cluster.produce("t", text, partition=0)
    skipped: list[Any] = []
    found = asyncio.run(_read(fake_cluster, 2, SlowButKnows(), on_deserialization_error=lambda record, error: skipped.append(record.value)))
    assert (found, skipped) == (["a", "b"], [b"bad"])


# ---- with a schema registry -----------------------------------------------------------------------------------------


def test_a_registrys_serde_serves_keys_and_values_of_an_async_client(fake_cluster: FakeCluster) -> None:
    from pyclient.serializers.registry import SchemaRegistryClient
    from pyclient.serializers.registry_json import JsonSchemaRegistrySerde
    from pyclient.testing import FakeSchemaRegistry

    fake_cluster.create_topic("t")
    with FakeSchemaRegistry() as registry, SchemaRegistryClient(registry.url) as client:
        serde = JsonSchemaRegistrySerde(client, {"type": "object"}, id_in="headers")

        async def run() -> list[Any]:
            async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, key_serializer=serde, value_serializer=serde) as producer:
                await producer.send("t", {"total": 5}, {"id": 1})
            async with AsyncConsumer(bootstrap_servers=fake_cluster.bootstrap_servers, key_deserializer=serde, value_deserializer=serde,
                                     auto_offset_reset="earliest") as consumer:
                consumer.assign([TP])
                return [(record.key, record.value) for record in await consumer.poll(20)]

        assert asyncio.run(run()) == [({"id": 1}, {"total": 5})]
        assert sorted(client.subjects()) == ["t-key", "t-value"]
    assert [name for name, _ in fake_cluster.records("t")[0].headers] == ["__key_schema_id", "__value_schema_id"]
