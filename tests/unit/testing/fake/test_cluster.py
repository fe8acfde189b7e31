"""`FakeCluster` as users use it: with this client, sync and async, on real sockets."""
from __future__ import annotations

import asyncio
import datetime
import gc
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import pyclient.testing
from pyclient import Admin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.codec.apis import Api
from pyclient.codec.messages import encode_request
from pyclient.errors import ConfigurationError, IllegalStateError, KafkaError
from pyclient.testing import Answer, Cut, Delay, Drop, Fail, FakeCluster, FakeClusterError, Silence, Throttle, World
from pyclient.testing.fake.model.request import Request
from pyclient.testing.simulation.network import Link, SimulatedTransport
from tests.waiting import eventually

QUICK: dict[str, Any] = {"retry_backoff_ms": 10, "reconnect_backoff_ms": 10, "request_timeout_ms": 500, "linger_ms": 0}
NOT_LEADER = 6


def producer(fake: FakeCluster, **options: Any) -> Producer:
    return Producer(bootstrap_servers=fake.bootstrap_servers, **{**QUICK, **options})


def reachable(fake: FakeCluster, broker: int) -> bool:
    host, _, port = fake.bootstrap_servers.split(",")[broker - 1].rpartition(":")
    try:
        socket.create_connection((host, int(port)), 5).close()
    except ConnectionRefusedError:
        return False
    return True


# ---- seeding and asserting -------------------------------------------------------------------------------------------


def test_a_services_records_can_be_asserted(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders", 2)
    with producer(fake_cluster) as client:
        client.send("orders", b"first", b"key", headers=[("trace", b"1")], partition=1)
    (record,) = fake_cluster.records("orders")
    assert (record.partition, record.offset, record.key, record.value, list(record.headers)) == (1, 0, b"key", b"first", [("trace", b"1")])
    assert fake_cluster.records("orders", 0) == []


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_compressed_records_are_read_too(fake_cluster: FakeCluster, codec: Any) -> None:
    fake_cluster.create_topic("orders")
    with producer(fake_cluster, compression_type=codec, linger_ms=50) as client:
        for number in range(50):
            client.send("orders", b"value %d" % number)
    assert [each.value for each in fake_cluster.records("orders")] == [b"value %d" % number for number in range(50)]


def test_seeded_records_are_consumed_and_committed_offsets_are_visible(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders", 3)
    done = fake_cluster.produce("orders", b"value", b"key", headers=[("h", None)], timestamp=1234)
    assert done.timestamp == 1234
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, group_id="readers", auto_offset_reset="earliest") as client:
        client.assign([TopicPartition("orders", number) for number in range(3)])
        (record,) = client.poll(10)
        assert (record.partition, record.value, record.timestamp, list(record.headers)) == (done.partition, b"value", 1234, [("h", None)])
        client.commit()
    assert fake_cluster.committed("readers")[TopicPartition("orders", done.partition)].offset == 1
    assert fake_cluster.groups()["readers"].state == "Empty"
    assert fake_cluster.committed("unknown") == {}


def test_a_seeded_key_goes_where_a_producer_would_send_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders", 7)
    with producer(fake_cluster) as client:
        sent = [client.send("orders", b"", b"%d" % number) for number in range(20)]
    assert [fake_cluster.produce("orders", b"", b"%d" % number).partition for number in range(20)] == [each.partition for each in sent]


def test_admins_see_what_tests_made_and_the_other_way_round(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("ours", 2, config={"retention.ms": "5"})
    with Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin:
        admin.create_topics(["theirs"])
        assert sorted(admin.list_topics()) == ["ours", "theirs"]
        admin.delete_topics(["ours"])
    assert fake_cluster.topics() == {"theirs": 1}


def test_records_before_an_advanced_retention_are_gone(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    with producer(fake_cluster, linger_ms=50) as client:
        for number in range(5):
            client.send("orders", b"%d" % number)
    fake_cluster.advance_retention("orders", 0, 3)
    assert [each.offset for each in fake_cluster.records("orders")] == [3, 4]


def test_ends_of_transactions_are_no_records(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    fake_cluster._do(lambda kafka: kafka.topics["orders"].partitions[0].write_marker(1, 7, 0, commits=True, coordinator_epoch=0))
    assert fake_cluster.produce("orders", b"value").offset == 1
    assert [each.value for each in fake_cluster.records("orders")] == [b"value"]


async def use_async() -> None:
    async with FakeCluster() as fake:
        fake.create_topic("orders")
        async with AsyncProducer(bootstrap_servers=fake.bootstrap_servers, **QUICK) as writer:
            await (await writer.send("orders", b"value"))
        async with AsyncConsumer(bootstrap_servers=fake.bootstrap_servers, auto_offset_reset="earliest") as reader:
            reader.assign([TopicPartition("orders", 0)])
            assert [each.value for each in await reader.poll(10)] == [b"value"]


def test_async_clients_use_it_in_an_async_block() -> None:
    asyncio.run(use_async())


# ---- faults ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [Fail(NOT_LEADER), Drop(), Drop(applied=True), Cut(keep=5), Silence(), Delay(0.01), Throttle(5)])
def test_a_producer_recovers_from_every_kind_of_fault(fake_cluster: FakeCluster, verdict: Any) -> None:
    fake_cluster.create_topic("orders")
    with fake_cluster.intercept(verdict, "Produce", times=1) as rule, producer(fake_cluster) as client:
        client.send("orders", b"value").result(20)
    assert rule.hits == 1
    assert {each.value for each in fake_cluster.records("orders")} == {b"value"}
    assert len(fake_cluster.requests("Produce")) == (1 if isinstance(verdict, Delay | Throttle) else 2)


def test_P20_a_flush_that_begins_between_two_splits_ends_with_the_last_part(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders", config={"max.message.bytes": "300"})
    seen: list[Request] = []

    def after_the_first(request: Request) -> Delay | None:
        seen.append(request)
        return Delay(0.2) if len(seen) > 1 else None

    with producer(fake_cluster, linger_ms=50) as client, fake_cluster.intercept(after_the_first, "Produce"):
        deliveries = [client.send("orders", b"%0100d" % number) for number in range(8)]
        eventually(lambda: len(seen) > 1)
        client.flush(20)
        assert [delivery.result(0).offset for delivery in deliveries] == list(range(8))


def test_a_rule_of_ones_own_sees_the_request_and_may_let_it_pass(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    seen: list[Request] = []

    def decide(request: Request) -> Fail | None:
        seen.append(request)
        return Fail(NOT_LEADER) if len(seen) == 1 else None
    rule = fake_cluster.intercept(decide, Api.PRODUCE, broker=1)
    with producer(fake_cluster) as client:
        client.send("orders", b"value").result(20)
    assert ([each.api for each in seen], rule.hits) == ([Api.PRODUCE] * 2, 1)
    rule.remove()
    with producer(fake_cluster) as client:
        client.send("orders", b"value").result(20)
    assert len(seen) == 2


def test_an_answer_of_the_tests_own_is_given(fake_cluster: FakeCluster) -> None:
    host, port = fake_cluster.bootstrap_servers.split(":")
    broker = {"node_id": 1, "host": host, "port": int(port), "rack": None}
    mine = {"throttle_time": 0, "error_code": 0, "cluster_id": "mine", "controller_id": -1, "brokers": [broker], "topics": []}
    with fake_cluster.intercept(Answer(mine), "Metadata"), Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin:
        assert admin.describe_cluster().cluster_id == "mine"


def test_a_rule_may_use_the_cluster_itself(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")

    def decide(_request: Request) -> None:
        fake_cluster.produce("orders", b"ours")
    with fake_cluster.intercept(decide, "Produce"), producer(fake_cluster) as client:
        client.send("orders", b"theirs").result(20)
    assert [each.value for each in fake_cluster.records("orders")] == [b"ours", b"theirs"]


def test_a_connection_that_is_accepted_while_its_broker_is_killed_is_cut(fake_cluster: FakeCluster) -> None:
    kafka, thread, listeners = fake_cluster._model, fake_cluster._thread, fake_cluster._listeners
    assert thread is not None
    assert listeners is not None
    listener = listeners._listeners[1]
    with socket.create_connection(("127.0.0.1", listener.port), 5) as client:
        def accept_and_kill() -> None:
            listener._accept()
            kafka.kill(1)

        thread.call(accept_and_kill)
        assert cut(client)


def cut(client: socket.socket) -> bool:
    try:
        return client.recv(1) == b""
    except ConnectionResetError:
        return True


@pytest.mark.fake_kafka(brokers=3)
def test_a_killed_broker_refuses_connections_and_another_one_leads_until_it_is_back(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    first = fake_cluster.leader("orders")
    with producer(fake_cluster) as client:
        client.send("orders", b"before").result(20)
        fake_cluster.kill(first)
        assert not reachable(fake_cluster, first)
        assert fake_cluster.leader("orders") != first
        client.send("orders", b"after").result(20)
        fake_cluster.restart(first)
        assert reachable(fake_cluster, first)
        fake_cluster.move_leader("orders", 0, first)
        client.send("orders", b"again").result(20)
    assert [each.value for each in fake_cluster.records("orders")] == [b"before", b"after", b"again"]


def test_restarting_a_running_broker_cuts_its_connections_and_keeps_its_records(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    with producer(fake_cluster) as client:
        client.send("orders", b"before").result(20)
        fake_cluster.restart(1)
        client.send("orders", b"after").result(20)
    assert [each.value for each in fake_cluster.records("orders")] == [b"before", b"after"]


@pytest.mark.fake_kafka(brokers=2, replica_lag_ms=3_600_000)
def test_unreplicated_records_are_lost_with_the_leaders_tail(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders", config={"min.insync.replicas": "1"})
    with producer(fake_cluster, acks=1) as client:
        client.send("orders", b"lost").result(20)
    fake_cluster.restart(fake_cluster.leader("orders"), lose_tail=True)
    with producer(fake_cluster, acks=1) as client:
        assert client.send("orders", b"kept").result(20).offset == 0


def test_a_paused_broker_takes_connections_and_answers_when_it_is_resumed(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    with producer(fake_cluster, request_timeout_ms=30_000) as client:
        client.send("orders", b"first").result(20)
        fake_cluster.pause(1)
        assert reachable(fake_cluster, 1)
        waiting = client.send("orders", b"second")
        with pytest.raises(TimeoutError):
            waiting.result(0.1)
        assert len(fake_cluster.records("orders")) == 1
        fake_cluster.resume(1)
        assert waiting.result(20).offset == 1


def test_a_poll_that_a_pause_overtook_is_answered_after_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, auto_offset_reset="earliest") as client:
        client.assign([TopicPartition("orders", 0)])
        assert not client.poll(0.05)
        eventually(lambda: fake_cluster.requests("Fetch") or client.poll(0.01))
        fake_cluster.pause(1)
        fake_cluster.produce("orders", b"value")
        assert not client.poll(0.1)
        fake_cluster.resume(1)
        assert [each.value for each in client.poll(20)] == [b"value"]


@pytest.mark.fake_kafka(brokers=2)
def test_a_moved_coordinator_keeps_committed_offsets(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, group_id="readers", auto_offset_reset="earliest") as client:
        client.assign([TopicPartition("orders", 0)])
        client.commit({TopicPartition("orders", 0): 3})
        other = 3 - fake_cluster.coordinator("readers")
        fake_cluster.move_coordinator("readers", other)
        assert fake_cluster.coordinator("readers") == other
        client.commit({TopicPartition("orders", 0): 4})
        found = client.committed([TopicPartition("orders", 0)])[TopicPartition("orders", 0)]
    assert found is not None
    assert found.offset == fake_cluster.committed("readers")[TopicPartition("orders", 0)].offset == 4


def test_clients_are_throttled(fake_cluster: FakeCluster) -> None:
    throttle_times: list[object] = []
    fake_cluster.create_topic("orders")
    fake_cluster._do(lambda kafka: kafka.listeners.append(
        lambda event, facts: throttle_times.append(facts["fields"]["throttle_time"]) if event == "response" else None))  # type: ignore[index]
    fake_cluster.throttle(3)
    with producer(fake_cluster) as client:
        client.send("orders", b"value").result(20)
    fake_cluster.throttle(0)
    assert set(throttle_times) == {3}


# ---- mistakes --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("mistake", "words"), [
    (lambda fake: fake.create_topic("a/b"), "other than ASCII alphanumerics"),
    (lambda fake: fake.create_topic("orders"), "exists already"),
    (lambda fake: fake.create_topic("new", 0), "at least one"),
    (lambda fake: fake.create_topic("new", replication_factor=3), "there are 1 brokers"),
    (lambda fake: fake.create_topic("new", config={"retention.sm": "1"}), "Unknown topic config name: retention.sm"),
    (lambda fake: fake.records("ordres"), "there is no topic 'ordres': there are ['orders']"),
    (lambda fake: fake.records("orders", 1), "has no partition 1: it has 1"),
    (lambda fake: fake.produce("ordres", b""), "there is no topic 'ordres'"),
    (lambda fake: fake.produce("ordres", b"", b"key"), "there is no topic 'ordres'"),
    (lambda fake: fake.leader("orders", -1), "has no partition -1"),
    (lambda fake: fake.advance_retention("orders", 0, 1), "it is above the high watermark, 0"),
    (lambda fake: fake.move_leader("orders", 0, 2), "there is no broker 2: the ids are [1]"),
    (lambda fake: fake.move_coordinator("readers", 2), "there is no broker 2"),
    (lambda fake: fake.kill(0), "there is no broker 0"),
    (lambda fake: fake.restart(2), "there is no broker 2"),
    (lambda fake: fake.pause(2), "there is no broker 2"),
    (lambda fake: fake.throttle(-1), "not negative"),
    (lambda fake: fake.throttle(1, broker=2), "there is no broker 2"),
    (lambda fake: fake.intercept(Fail(1), "Prodcue"), "did you mean 'Produce'?"),
    (lambda fake: fake.intercept(Fail(1), "Produce", broker=7), "there is no broker 7"),
    (lambda fake: fake.intercept(Fail(1), times=0), "at least once"),
    (lambda fake: fake.requests("x"), "known are Produce, Fetch"),
    (lambda fake: fake.expire_session("readers", "me"), "there is no group 'readers'"),
])
def test_an_unknown_name_is_an_error_that_lists_the_known_ones(fake_cluster: FakeCluster, mistake: Callable[[FakeCluster], object], words: str) -> None:
    fake_cluster.create_topic("orders")
    with pytest.raises(ValueError, match="(?s).") as raised:
        mistake(fake_cluster)
    assert words in str(raised.value)


def test_a_cluster_that_cannot_be_is_refused_before_it_starts() -> None:
    with pytest.raises(ValueError, match="at least one"):
        FakeCluster(0)
    with pytest.raises(ConfigurationError, match=r"choose one of 3\.9"):
        FakeCluster(version="0.8")
    with pytest.raises(ConfigurationError, match="is no setting"):
        FakeCluster(config={"num.partition": 1})
    with pytest.raises(IllegalStateError, match="with FakeCluster"):
        FakeCluster().topics()


def test_a_partition_without_leader_cannot_be_written_to(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    fake_cluster.kill(1)
    with pytest.raises(IllegalStateError, match="has no leader"):
        fake_cluster.produce("orders", b"")
    with pytest.raises(IllegalStateError, match="not running already"):
        fake_cluster.kill(1)


def failing(_request: Request) -> None:
    raise RuntimeError("a rule that fails")


def test_a_defect_of_the_model_is_raised_when_the_block_ends() -> None:
    with pytest.raises(FakeClusterError, match="a rule that fails"), FakeCluster() as fake:
        _meet_a_defect(fake)


def test_a_defect_does_not_hide_what_the_block_raises() -> None:
    with pytest.raises(ZeroDivisionError) as raised, FakeCluster() as fake:
        _meet_a_defect(fake)
        raise ZeroDivisionError
    assert "the fake cluster itself failed" in raised.value.__notes__[0]


def _meet_a_defect(fake: FakeCluster) -> None:
    fake.intercept(failing, "Metadata")
    with pytest.raises(KafkaError), Admin(bootstrap_servers=fake.bootstrap_servers, default_api_timeout_ms=100) as admin:
        admin.list_topics()


# ---- life ------------------------------------------------------------------------------------------------------------


def test_nothing_is_left_when_it_ends_and_what_it_saw_can_still_be_looked_at() -> None:
    before = set(threading.enumerate())
    with FakeCluster(2) as fake:
        fake.create_topic("orders")
        client = producer(fake)
        client.send("orders", b"value").result(20)
    client.close()
    assert not reachable(fake, 1)
    assert set(threading.enumerate()) <= before
    assert [each.value for each in fake.records("orders")] == [b"value"]
    fake.close()
    with pytest.raises(IllegalStateError, match="make another one"):
        fake.open()


def test_two_in_one_process_know_nothing_of_each_other() -> None:
    with FakeCluster() as one, FakeCluster(seed=1) as other:
        one.create_topic("orders")
        assert (one.topics(), other.topics()) == ({"orders": 1}, {})
        with Admin(bootstrap_servers=one.bootstrap_servers) as here, Admin(bootstrap_servers=other.bootstrap_servers) as there:
            assert here.describe_cluster().cluster_id != there.describe_cluster().cluster_id


def test_the_same_seed_gives_the_same_ids() -> None:
    def identity() -> tuple[str, object]:
        with FakeCluster(seed=5) as fake:
            fake.create_topic("orders")
            return fake._do(lambda kafka: (kafka.cluster_id, kafka.topics["orders"].id))
    assert identity() == identity()


def test_any_thread_may_use_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("orders")
    threads = [threading.Thread(target=fake_cluster.produce, args=("orders", b"%d" % number)) for number in range(8)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert {each.value for each in fake_cluster.records("orders")} == {b"%d" % number for number in range(8)}


def test_the_verdicts_are_public_names() -> None:
    assert {"Answer", "Cut", "Delay", "Drop", "Fail", "Silence", "Throttle"} <= set(pyclient.testing.__all__)


FOR_EVER: dict[str, object] = {
    "replica_id": -1, "max_wait": datetime.timedelta(seconds=30), "min_bytes": 1, "max_bytes": 100, "isolation_level": 0,
    "topics": [{"topic": "orders", "partitions": [{"partition": 0, "fetch_offset": 0, "partition_max_bytes": 100}]}]}


@pytest.mark.parametrize(("frame", "verdict"), [
    (encode_request(Api.API_VERSIONS, 0, 1, None, {}), Delay(1.0)), (encode_request(Api.FETCH, 4, 1, None, FOR_EVER), None)], ids=["delayed", "waiting for records"])
def test_a_client_that_is_gone_before_its_request_is_begun_leaves_nothing_that_was_never_awaited(frame: bytes, verdict: Delay | None) -> None:
    """The warning came whenever the collector did, in some other test."""
    async def ask_and_hang_up(world: World) -> None:
        world.cluster.create_topic("orders")
        world.control.intercept(lambda _: verdict)
        connection = world.front.connection(1)
        connection.connection_made(SimulatedTransport(Link(world.network, "unknown", 1, ("10.0.0.1", 1)), ("10.0.0.1", 1)))
        connection.data_received(len(frame).to_bytes(4, "big") + frame)
        assert connection._working is not None, "it was answered at once"
        connection.connection_lost(None)

    def ask_in_a_world_that_ends() -> None:
        with World(1) as world:
            world.run(ask_and_hang_up(world))

    with warnings.catch_warnings(record=True) as warned:
        warnings.simplefilter("always")
        ask_in_a_world_that_ends()
        gc.collect()
    assert [str(each.message) for each in warned if "never awaited" in str(each.message)] == []


def test_a_cluster_that_a_program_forgot_does_not_keep_it_from_ending() -> None:
    """What a generator holds is closed when the interpreter ends, where no thread answers any more."""
    program = """if True:
        from pyclient.testing import FakeCluster

        def clusters():
            with FakeCluster() as cluster:
                yield cluster

        kept = clusters()
        next(kept)
        """
    subprocess.run([sys.executable, "-c", program], check=True, timeout=30)
