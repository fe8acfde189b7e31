"""Connections to real brokers: negotiated versions, lost connections, and reconnecting."""
from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from pyclient import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.codec.apis import Api
from pyclient.core.manager import Use
from pyclient.errors import BootstrapError, ResponseTimeoutError
from pyclient.reactor.reactor import Reactor
from pyclient.runtime.network import Endpoint, SocketNetwork
from pyclient.testing import FaultProxy, LocalCluster
from tests.kafka import consumer, first_address, make_topic, produce
from tests.waiting import eventually


@pytest.fixture
def proxy(kafka_cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch) -> Iterator[FaultProxy]:
    """A proxy that every connection to the broker's own address takes, those after the bootstrap included."""
    broker = first_address(kafka_cluster)
    with FaultProxy(broker) as started:
        resolve = SocketNetwork.resolve

        async def detour(self: SocketNetwork, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
            return await resolve(self, reactor, "127.0.0.1", started.port) if port == broker[1] else await resolve(self, reactor, host, port)

        monkeypatch.setattr(SocketNetwork, "resolve", detour)
        yield started


def round_trip(servers: str, topic: str, **options: Any) -> None:
    """Write and read a record."""
    with Producer(bootstrap_servers=servers, **options) as producer:
        delivery = producer.send(topic, b"there and back", partition=0).result(20)
    with Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", **options) as reader:
        reader.assign([TopicPartition(topic, 0)])
        reader.seek(TopicPartition(topic, 0), delivery.offset or 0)
        assert [record.value for record in reader.poll(20)] == [b"there and back"]


def loud(caplog: pytest.LogCaptureFixture) -> list[str]:
    """The client's warnings and errors in the log."""
    return [record.getMessage() for record in caplog.records
            if record.name.startswith("pyclient.") and not record.name.startswith("pyclient.testing") and record.levelno >= logging.WARNING]


# ---- versions -------------------------------------------------------------------------------------------------------


def produce_version(producer: Producer, cluster: LocalCluster) -> int:
    """The versions negotiated with the first broker."""
    return producer._core.connections._nodes[cluster.nodes[0].id].connections[Use.PRODUCE].versions.choose(Api.PRODUCE)


@pytest.mark.embedded
def test_M15_records_are_written_and_read_with_a_broker_of_Kafka_3_9(topic: str) -> None:
    with LocalCluster(version="3.9.1") as cluster:
        partitions = make_topic(cluster, topic, 3)
        values = [b"%d" % n for n in range(100)]
        with Producer(bootstrap_servers=cluster.bootstrap_servers, compression_type="zstd") as producer:
            for value in values:
                producer.send(topic, value, key=value)
            producer.flush()
            spoken = produce_version(producer, cluster)
        assert spoken < 13  # 13 came with Kafka 4: so an older version was negotiated
        with consumer(cluster, group_id="old") as reader:
            reader.assign(partitions)
            found: set[bytes] = set()
            while len(found) < 100:
                found |= {record.value for record in reader.poll(20)}  # type: ignore[misc]
            reader.commit()
            assert sum(position.offset for position in reader.committed(partitions).values() if position) == 100
        assert found == set(values)


def test_M15_the_newest_common_version_is_used_with_a_current_broker(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
        producer.send(topic, b"x").result(20)
        assert produce_version(producer, kafka_cluster) == 13


# ---- addresses ------------------------------------------------------------------------------------------------------


def test_several_bootstrap_addresses_of_which_one_works_are_enough(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    round_trip(f"127.0.0.1:1,broker.invalid:9092,{kafka_cluster.bootstrap_servers}", topic)


def test_a_broker_is_reached_by_an_IPv6_address(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    with FaultProxy(first_address(kafka_cluster), host="::1") as proxy:
        assert proxy.address.startswith("[::1]:")
        round_trip(proxy.address, topic)


def test_M05_a_name_with_a_dead_and_a_live_address_works(kafka_cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(kafka_cluster, topic)
    with socket.create_server(("127.0.0.1", 0)) as sock:
        dead = Endpoint(socket.AF_INET, sock.getsockname())
    resolve = SocketNetwork.resolve

    async def both(self: SocketNetwork, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        return [dead, *await resolve(self, reactor, *first_address(kafka_cluster))]

    monkeypatch.setattr(SocketNetwork, "resolve", both)
    round_trip("two.answers:9092", topic)


def test_M14_a_name_that_resolves_later_is_waited_for(kafka_cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(kafka_cluster, topic)
    resolve = SocketNetwork.resolve
    book: dict[str, tuple[str, int]] = {}

    async def registered(self: SocketNetwork, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
        return await resolve(self, reactor, *book[host]) if host in book else await resolve(self, reactor, host, port)

    monkeypatch.setattr(SocketNetwork, "resolve", registered)
    with Admin(bootstrap_servers="soon.invalid:9092") as admin:
        with pytest.raises(BootstrapError, match="'soon.invalid' cannot be resolved"):
            admin.list_topics(timeout=0.5)
        book["soon.invalid"] = first_address(kafka_cluster)
        assert topic in admin.list_topics(timeout=20)


# ---- idle connections -----------------------------------------------------------------------------------------------


def test_M13_a_peer_that_closes_idle_connections_is_no_error_to_the_user(
        kafka_cluster: LocalCluster, topic: str, proxy: FaultProxy, caplog: pytest.LogCaptureFixture) -> None:
    tp, = make_topic(kafka_cluster, topic)
    servers = kafka_cluster.bootstrap_servers
    with Producer(bootstrap_servers=servers, retries=0) as producer, Admin(bootstrap_servers=servers) as admin, consumer(
            kafka_cluster) as reader:
        reader.assign([tp])
        for round_ in range(3):
            producer.send(topic, b"%d" % round_).result(20)
            assert topic in admin.list_topics()
            assert [record.value for record in reader.poll(20)] == [b"%d" % round_]
            reader.pause(tp)  # its fetch connection is idle, too, once the long poll has ended
            eventually(lambda: (proxy.close_idle(0.05), producer.metrics()["connection-count"] + admin.metrics()["connection-count"])[1] == 0)
            reader.resume(tp)
    assert loud(caplog) == []


@pytest.mark.embedded
@pytest.mark.kafka(connections_max_idle_ms=1000, auto_create_topics_enable=False)
def test_M13_a_broker_that_closes_idle_connections_is_no_error_to_the_user(
        kafka_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, retries=0) as producer:
        for _ in range(2):
            producer.send(topic, b"x").result(20)
            eventually(lambda: producer.metrics()["connection-count"] == 0)
    assert loud(caplog) == []


def test_M13_the_client_closes_its_own_idle_connections_and_opens_them_again(
        kafka_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture) -> None:
    make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, connections_max_idle_ms=100) as producer:
        for _ in range(2):
            producer.send(topic, b"x").result(20)
            eventually(lambda: producer.metrics()["connection-count"] == 0)
    assert loud(caplog) == []


# ---- trouble on the way ---------------------------------------------------------------------------------------------


def test_M10_a_broker_that_falls_silent_loses_its_connection_after_request_timeout_ms_and_the_client_goes_on(
        kafka_cluster: LocalCluster, topic: str, proxy: FaultProxy) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, request_timeout_ms=500, linger_ms=0) as producer:
        producer.send(topic, b"before").result(20)
        proxy.hang()
        held = producer.send(topic, b"held")
        eventually(lambda: isinstance(producer._core.metadata.last_error, ResponseTimeoutError))
        assert not held.done()
        proxy.heal()
        held.result(20)
        producer.send(topic, b"after").result(20)
    found: list[bytes] = []
    with consumer(kafka_cluster) as reader:
        reader.assign([tp])
        while b"after" not in found:
            found += [record.value or b"" for record in reader.poll(20)]
    assert list(dict.fromkeys(found)) == [b"before", b"held", b"after"]


@pytest.mark.parametrize("trouble", [FaultProxy.reset, lambda proxy: (proxy.cut(), proxy.heal())], ids=["reset", "cut and healed"])
def test_connections_that_are_reset_under_load_lose_nothing_and_keep_the_order(
        kafka_cluster: LocalCluster, topic: str, proxy: FaultProxy, trouble: Callable[[FaultProxy], object]) -> None:
    tp, = make_topic(kafka_cluster, topic)
    values = [b"%d" % n for n in range(3000)]
    with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers, linger_ms=0, batch_size=2000) as producer:
        for at, value in enumerate(values):
            producer.send(topic, value)
            if at % 1000 == 500:
                trouble(proxy)
        producer.flush(20)
    found: dict[bytes, None] = {}
    with consumer(kafka_cluster) as reader:
        reader.assign([tp])
        for at in range(100):
            found |= dict.fromkeys(record.value or b"" for record in reader.poll(20))
            if len(found) == len(values):
                break
            if at < 2:
                trouble(proxy)
    assert list(found) == values


def test_a_slow_network_is_no_error(kafka_cluster: LocalCluster, topic: str, proxy: FaultProxy, caplog: pytest.LogCaptureFixture) -> None:
    make_topic(kafka_cluster, topic)
    proxy.delay(0.05)
    round_trip(kafka_cluster.bootstrap_servers, topic)
    assert loud(caplog) == []


@pytest.mark.embedded
def test_M05_a_broker_that_moved_to_another_port_is_found_there(
        kafka_cluster: LocalCluster, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make_topic(kafka_cluster, topic)
    broker = first_address(kafka_cluster)
    resolve = SocketNetwork.resolve
    with FaultProxy(broker) as before, FaultProxy(broker) as after:
        way = [before]

        async def moved(self: SocketNetwork, reactor: Reactor, host: str, port: int) -> list[Endpoint]:
            return await resolve(self, reactor, "127.0.0.1", way[-1].port)

        monkeypatch.setattr(SocketNetwork, "resolve", moved)
        with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            producer.send(topic, b"x").result(20)
            before.close()
            way.append(after)
            producer.send(topic, b"y").result(20)
            assert after.connections


# ---- no busy loop ---------------------------------------------------------------------------------------------------


async def turns_in_half_a_second(client: AsyncProducer | AsyncConsumer) -> int:
    """How often the driver took a turn while the loop was left alone for half a second."""
    before, idle = client._core.driver.turns, asyncio.Event()
    with pytest.raises(TimeoutError):
        await asyncio.wait_for(idle.wait(), 0.5)
    return client._core.driver.turns - before


def test_C14_an_idle_client_takes_no_turns(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)

    async def main() -> tuple[int, int]:
        async with AsyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer, AsyncConsumer(
                bootstrap_servers=kafka_cluster.bootstrap_servers) as reader:
            await (await producer.send(topic, b"x"))
            reader.assign(partitions)
            await reader.position(partitions[0])
            await reader.poll(0.1)
            return await turns_in_half_a_second(producer), await turns_in_half_a_second(reader)

    producing, consuming = asyncio.run(main())
    assert producing <= 2
    assert consuming <= 12  # a long poll ends every fetch_max_wait_ms, 500


def test_C14_a_consumer_whose_partitions_are_paused_takes_no_turns(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [b"x"] * 10)

    async def main() -> int:
        async with AsyncConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest",
                                 fetch_max_wait_ms=100) as reader:
            reader.assign(partitions)
            assert await reader.poll(20)
            reader.pause(*partitions)
            await turns_in_half_a_second(reader)  # requests in flight end
            return await turns_in_half_a_second(reader)

    assert asyncio.run(main()) <= 2


def test_C14_a_consumer_that_is_not_read_fetches_no_more_than_its_buffer_and_takes_no_turns(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    produce(kafka_cluster, topic, [bytes(10_000)] * 500, batch_size=50_000)

    async def main() -> int:
        async with AsyncConsumer(bootstrap_servers=kafka_cluster.bootstrap_servers, auto_offset_reset="earliest",
                                 max_partition_fetch_bytes=100_000) as reader:
            reader.assign(partitions)
            await turns_in_half_a_second(reader)
            assert 0 < reader.metrics()["fetch-buffer-bytes"] < 400_000
            return await turns_in_half_a_second(reader)

    assert asyncio.run(main()) <= 2


@pytest.mark.parametrize("wait", ["send", "assign"])
@pytest.mark.kafka(connections_max_idle_ms=1000, auto_create_topics_enable=False)  # the one broker above
def test_C14_an_unknown_topic_is_requested_at_the_pace_of_the_backoff(kafka_cluster: LocalCluster, topic: str, wait: str) -> None:
    async def main() -> int:
        servers = kafka_cluster.bootstrap_servers
        async with AsyncProducer(bootstrap_servers=servers, max_block_ms=1500) as producer, AsyncConsumer(bootstrap_servers=servers) as reader:
            if wait == "assign":
                reader.assign([TopicPartition(topic, 0)])
                return await turns_in_half_a_second(reader)
            sending = asyncio.create_task(producer.send(topic, b"x"))
            turns = await turns_in_half_a_second(producer)
            await asyncio.gather(sending, return_exceptions=True)
            return turns

    assert asyncio.run(main()) <= 30


def test_C14_a_broker_that_is_down_is_tried_at_the_pace_of_the_backoff(
        kafka_cluster: LocalCluster, topic: str, proxy: FaultProxy) -> None:
    partitions = make_topic(kafka_cluster, topic)

    async def main() -> tuple[int, int]:
        async with AsyncProducer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer, AsyncConsumer(
                bootstrap_servers=kafka_cluster.bootstrap_servers) as reader:
            await (await producer.send(topic, b"x"))
            reader.assign(partitions)
            await reader.position(partitions[0])
            proxy.cut()
            held = await producer.send(topic, b"y")
            counted = await turns_in_half_a_second(producer), await turns_in_half_a_second(reader)
            proxy.heal()
            await held
            return counted

    producing, consuming = asyncio.run(main())
    assert producing <= 60
    assert consuming <= 60


def test_poll_of_a_consumer_that_has_reached_a_broker_waits_for_records_without_limit(kafka_cluster: LocalCluster, topic: str) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with Consumer(bootstrap_servers=kafka_cluster.bootstrap_servers, default_api_timeout_ms=300, request_timeout_ms=300,
                  auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        assert len(consumer.poll(1.0)) == 0
        with Producer(bootstrap_servers=kafka_cluster.bootstrap_servers) as producer:
            producer.send(topic, b"late")
        assert [record.value for record in consumer.poll()] == [b"late"]
