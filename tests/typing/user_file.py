"""A user's file: what strict mypy must accept, and each mistake it must catch (an ignore that nothing needs is
refused)."""
from __future__ import annotations

from collections.abc import Sequence

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, Record, Records, TopicPartition


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
