"""A user's file: what strict mypy must accept, and each mistake it must catch (an ignore that nothing needs is
refused)."""
from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, assert_type
from uuid import UUID

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, Record, Records, TopicPartition
from pyclient.plugins import Serialized
from pyclient.processing import ExactlyOnce
from pyclient.serializers import LongSerde, StringSerde, UUIDSerde
from pyclient.serializers.dataclass import DataclassSerde


def produce() -> int | None:
    with Producer(bootstrap_servers="localhost:9092", compression_type="zstd", linger_ms=20, acks="all") as producer:
        delivery = producer.send("orders", b"value", key=b"42", headers=[("trace", b"1"), ("none", None)], partition=0)
        metadata = delivery.result(timeout=10)
    return metadata.offset


def produce_from_a_mapping() -> None:
    with Producer({"bootstrap.servers": "localhost:9092", "linger.ms": 20}) as producer:
        producer.send("orders", None, timestamp=1_700_000_000_000)


def consume() -> list[bytes | None]:
    with Consumer(bootstrap_servers=["localhost:9092"], auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        records = consumer.poll(1.0, max_records=10)
        return [record.value for record in records]


async def produce_async() -> int | None:
    async with AsyncProducer(bootstrap_servers="localhost:9092") as producer:
        delivery = await producer.send("orders", b"value")
        metadata = await delivery
    return metadata.offset


async def consume_async() -> None:
    async with AsyncConsumer(bootstrap_servers="localhost:9092") as consumer:
        consumer.assign([TopicPartition("orders", 0)])
        async for record in consumer:
            offset: int = record.offset
            topic: str = record.topic
            print(topic, offset)


class Listener:
    """As in the README: a listener need not have every method."""

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        print(*partitions)


class AwaitedListener:
    async def on_partitions_revoked(self, partitions: Sequence[TopicPartition]) -> None:
        print(*partitions)


def consume_in_a_group() -> None:
    with Consumer(bootstrap_servers="localhost:9092", group_id="g", topics=["orders"], rebalance_listener=Listener()) as consumer:
        consumer.subscribe(["orders"], rebalance_listener=Listener())
        for record in consumer:
            offset: int = record.offset
            value: bytes | None = record.value
            print(offset, value)
            consumer.commit(record)
        records = consumer.poll(1.0)
        first: Record = records[0]
        some: Records = records[:5]
        print(first, some.next_offsets())
        consumer.pause(some.partitions())
        consumer.pause(*some.partitions())
        consumer.commit({TopicPartition("orders", 0): 5})


async def consume_in_a_group_async(consumer: AsyncConsumer) -> None:
    consumer.subscribe(["orders"], rebalance_listener=Listener())
    consumer.subscribe(["orders"], rebalance_listener=AwaitedListener())
    opened: AsyncConsumer = await consumer.start()
    await opened.stop()


def listener_mistakes(consumer: Consumer) -> None:
    consumer.subscribe(["orders"], rebalance_listener=AwaitedListener())  # type: ignore[arg-type]
    consumer.subscribe(["orders"], rebalance_listener=Listener)  # type: ignore[arg-type]
    consumer.commit([TopicPartition("orders", 0)])  # type: ignore[arg-type]


def mistakes(producer: Producer, consumer: Consumer) -> None:
    Producer(bootstrap_servers="localhost:9092", linger_ms=[20])  # type: ignore[arg-type]
    Producer(bootstrap_servers="localhost:9092", acks="most")  # type: ignore[arg-type]
    Producer(bootstrap_servers="localhost:9092", liger_ms=5)  # type: ignore[call-arg]
    Consumer(bootstrap_servers="localhost:9092", linger_ms=5)  # type: ignore[call-arg]
    producer.send("orders", b"value", partition="0")  # type: ignore[arg-type]
    producer.send(b"orders", b"value")  # type: ignore[arg-type]
    consumer.seek("orders", 5)  # type: ignore[arg-type]


# ---- types that follow from serializers and deserializers ------------------------------------------------------------


@dataclass
class Order:
    total: int


class Orders:
    """A user's serde."""

    def serialize(self, topic: str, order: Order | None) -> bytes | None:
        return None if order is None else str(order.total).encode()

    def deserialize(self, topic: str, data: bytes | None, headers: Sequence[tuple[str, bytes | None]]) -> Order | None:
        return None if data is None else Order(int(data))


class Signed:
    adds_headers = True

    def serialize(self, topic: str, order: Order | None, headers: Sequence[tuple[str, bytes | None]]) -> bytes | Serialized | None:
        return Serialized(b"", [("signature", b"")])


def parse(data: bytes) -> Order:
    return Order(int(data))


def text(order: Order) -> bytes:
    return str(order.total).encode()


def read_typed() -> None:
    plain = Consumer(bootstrap_servers="localhost:9092")
    assert_type(plain, Consumer[bytes | None, bytes | None])
    assert_type(plain.poll(1.0), Records)
    of_objects = Consumer(bootstrap_servers="localhost:9092", key_deserializer=StringSerde(), value_deserializer=Orders())
    assert_type(of_objects, Consumer[str | None, Order | None])
    assert_type(of_objects.poll(1.0)[0], Record[str | None, Order | None])
    for tp, records in of_objects.poll(1.0).filter(lambda record: record.value is not None and record.value.total > 5).by_partition():
        assert_type([(tp, record.key, record.value) for record in records[:3]], list[tuple[TopicPartition, str | None, Order | None]])
    of_functions = Consumer(bootstrap_servers="localhost:9092", key_deserializer=int, value_deserializer=parse)
    assert_type(of_functions, Consumer[int, Order])
    for record in of_functions:
        assert_type(record.value.total, int)
        of_functions.commit(record)
    of_classes = Consumer(bootstrap_servers="localhost:9092", key_deserializer=UUIDSerde, value_deserializer=Orders)
    assert_type(of_classes, Consumer[UUID | None, Order | None])
    of_models = Consumer(bootstrap_servers="localhost:9092", value_deserializer=DataclassSerde(Order))
    assert_type(of_models, Consumer[bytes | None, Order | None])
    of_names = Consumer(bootstrap_servers="localhost:9092", key_deserializer=LongSerde(), value_deserializer="json")
    assert_type(of_names, Consumer[int | None, Any])
    total: int = next(iter(of_names)).value["total"]
    of_lambdas = Consumer(bootstrap_servers="localhost:9092", value_deserializer=lambda data: json.loads(data)["total"])
    assert_type(of_lambdas, Consumer[bytes | None, Any])
    said: Consumer[int, Order | None] = Consumer(bootstrap_servers="localhost:9092", key_deserializer=int, value_deserializer=parse)
    print(said, total)


async def read_typed_async() -> None:
    async with AsyncConsumer(bootstrap_servers="localhost:9092", value_deserializer=Orders()) as consumer:
        assert_type(await consumer.poll(1.0), Records[bytes | None, Order | None])
        async for record in consumer:
            print(record.value.total)  # type: ignore[union-attr]
            break


def write_typed() -> None:
    plain = Producer(bootstrap_servers="localhost:9092")
    plain.send("orders", bytearray(b"value"), memoryview(b"key"))
    by_lambda = Producer(bootstrap_servers="localhost:9092", value_serializer=lambda value: json.dumps(value).encode())
    by_lambda.send("orders", {"total": 5})
    by_name = Producer(bootstrap_servers="localhost:9092", key_serializer="string", value_serializer="json")
    by_name.send_many("orders", [{"total": 5}], keys=["anna"])
    producer = Producer(bootstrap_servers="localhost:9092", key_serializer=StringSerde(), value_serializer=Orders())
    assert_type(producer, Producer[str | None, Order | None])
    producer.send("orders", Order(5), "anna")
    producer.send_and_wait("orders", key="anna")
    producer.send_many("orders", [Order(5), None], keys=["anna", "bert"])
    producer.send("orders", {"total": 5}, "anna")  # type: ignore[arg-type]
    producer.send("orders", Order(5), b"anna")  # type: ignore[arg-type]
    producer.send_many("orders", [b"5"])  # type: ignore[list-item]
    Producer(bootstrap_servers="localhost:9092", value_serializer=Signed()).send("orders", Order(5))
    functions = Producer(bootstrap_servers="localhost:9092", value_serializer=text)
    functions.send("orders", None)
    functions.send("orders", "5")  # type: ignore[arg-type]
    Producer(bootstrap_servers="localhost:9092", value_serializer=5)  # type: ignore[arg-type]
    Consumer(bootstrap_servers="localhost:9092", value_deserializer=b"json")  # type: ignore[arg-type]


async def write_typed_async() -> None:
    async with AsyncProducer(bootstrap_servers="localhost:9092", value_serializer=Orders) as producer:
        await producer.send("orders", Order(5), b"key")
        await producer.send_and_wait("orders", "5")  # type: ignore[arg-type]


class Both:
    """An interceptor of any types, as in the README."""

    def on_consume(self, records: Records) -> Records:
        return records.filter(lambda record: record.value is not None)

    def on_commit(self, offsets: object) -> None:
        """Nothing."""


def process_typed(producer: Producer, consumer: Consumer[str | None, Order | None], record: Record[str, Order]) -> int:
    def transform(record: Record[str | None, Order | None]) -> None:
        """No output."""

    def of_bytes(record: Record) -> None:
        """No output."""

    ExactlyOnce(consumer, producer, transform)
    ExactlyOnce(consumer, producer, of_bytes)  # type: ignore[arg-type]
    return record.value.total
