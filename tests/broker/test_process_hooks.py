"""How clients end: no thread, task or socket is left, also after failures, forks and interpreter exits."""
from __future__ import annotations

import asyncio
import contextlib
import gc
import pickle
import socket
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final, TypeAlias

import pytest

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.errors import ClientClosedError, KafkaError
from pyclient.testing import FakeCluster, LocalCluster
from tests import forks
from tests.kafka import make_topic, read
from tests.waiting import eventually

SYNC = [Producer, Consumer, Admin]
ASYNC = [AsyncProducer, AsyncConsumer, AsyncAdmin]
Client: TypeAlias = Any
LIMIT_S = 30.0

linux_only = pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="open descriptors are counted in /proc")


# ---- what is left behind --------------------------------------------------------------------------------------------


def descriptors() -> set[str]:
    """What this process has open, by kind and inode."""
    found = set()
    for descriptor in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists
            found.add(f"{descriptor.name} {descriptor.readlink()}")
    return found


OF_CLUSTERS: Final = ("proxy", "token-issuer")
"""Threads of brokers that are kept for other tests."""


_earlier: set[threading.Thread] = set()


@pytest.fixture(autouse=True)
def _other_clients() -> None:
    """Clients of other tests: readers of Spark are kept for the next task."""
    _earlier.clear()
    _earlier.update(threading.enumerate())


def clients_threads() -> list[str]:
    """Of the clients of this test."""
    names = [thread.name for thread in threading.enumerate() if thread not in _earlier]
    return [name for name in names if name.startswith("pyclient-") and not any(each in name for each in OF_CLUSTERS)]


@pytest.fixture
def nothing_left() -> Iterator[None]:
    """Fails when the test leaves a thread or an open descriptor behind."""
    gc.collect()
    before = descriptors()
    yield
    gc.collect()
    eventually(lambda: not clients_threads(), 5)
    eventually(lambda: descriptors() <= before, 5)


def use(client: Client, tp: TopicPartition) -> None:
    """Something of everything that a client starts: connections, callbacks, compression, look-ups, commits."""
    if isinstance(client, Producer):
        delivered: list[object] = []
        client.send(tp.topic, bytes(100_000), on_delivery=delivered.append).result(20)
        eventually(lambda: delivered)
    elif isinstance(client, Consumer):
        client.assign([tp])
        client.poll(0.2)
        client.end_offsets([tp])
        client.commit({tp: 0})
    else:
        client.list_topics()


async def use_async(client: Client, tp: TopicPartition) -> None:
    if isinstance(client, AsyncProducer):
        await (await client.send(tp.topic, bytes(100_000), on_delivery=lambda delivered: None))
    elif isinstance(client, AsyncConsumer):
        client.assign([tp])
        await client.poll(0.2)
        await client.end_offsets([tp])
        await client.commit({tp: 0})
    else:
        await client.list_topics()


def options(kind: type[Client]) -> dict[str, Any]:
    """Options under which a client starts all it can start, and gives up soon."""
    limits = {"request_timeout_ms": 500, "default_api_timeout_ms": 500}
    if issubclass(kind, Producer | AsyncProducer):
        return {"max_block_ms": 300, "delivery_timeout_ms": 1000, "linger_ms": 1, "request_timeout_ms": 500, "compression_type": "gzip"}
    return {**limits, "group_id": "life"} if issubclass(kind, Consumer | AsyncConsumer) else limits


@linux_only
@pytest.mark.parametrize("kind", SYNC)
def test_closing_a_client_that_worked_leaves_no_thread_and_no_socket(
        kafka_cluster: LocalCluster, topic: str, kind: type[Client], nothing_left: None) -> None:
    tp, = make_topic(kafka_cluster, topic)
    with kind(bootstrap_servers=kafka_cluster.bootstrap_servers, **{**options(kind), "default_api_timeout_ms": 20_000}) as client:
        use(client, tp)
        assert clients_threads()


@linux_only
@pytest.mark.parametrize("kind", SYNC)
@pytest.mark.parametrize("servers", ["127.0.0.1:1", "broker.invalid:9092"], ids=["refused", "unresolvable"])
def test_closing_a_client_that_never_connected_leaves_no_thread_and_no_socket(kind: type[Client], servers: str, nothing_left: None) -> None:
    with kind(bootstrap_servers=servers, **options(kind)) as client, contextlib.suppress(KafkaError):
        use(client, TopicPartition("nowhere", 0))


@linux_only
@pytest.mark.parametrize("kind", SYNC)
def test_closing_a_client_that_was_never_used_leaves_no_thread_and_no_socket(kind: type[Client], nothing_left: None) -> None:
    kind(bootstrap_servers="127.0.0.1:1").close()


@linux_only
@pytest.mark.parametrize("kind", SYNC)
def test_closing_a_client_while_it_connects_leaves_no_thread_and_no_socket(kind: type[Client], nothing_left: None) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute, kind(
            bootstrap_servers=f"127.0.0.1:{mute.getsockname()[1]}", **options(kind)) as client, contextlib.suppress(KafkaError):
        use(client, TopicPartition("nowhere", 0))


@linux_only
@pytest.mark.parametrize("kind", SYNC)
def test_closing_a_client_whose_broker_hangs_leaves_no_thread_and_no_socket(kind: type[Client], nothing_left: None) -> None:
    with FakeCluster() as fake:
        fake.create_topic("orders")
        client = kind(bootstrap_servers=fake.bootstrap_servers, **options(kind))
        with contextlib.suppress(KafkaError):  # on a machine that is too busy for the short timeouts
            use(client, TopicPartition("orders", 0))
        fake.pause(1)
        with pytest.raises(KafkaError), client:
            use(client, TopicPartition("orders", 0))


@linux_only
@pytest.mark.parametrize("kind", ASYNC)
@pytest.mark.parametrize("reachable", [True, False])
def test_closing_an_async_client_leaves_no_task_no_timer_no_thread_and_no_socket(
        kafka_cluster: LocalCluster, topic: str, kind: type[Client], reachable: bool, nothing_left: None) -> None:
    tp, = make_topic(kafka_cluster, topic)
    servers, given = kafka_cluster.bootstrap_servers if reachable else "127.0.0.1:1", options(kind)
    if reachable:
        given["default_api_timeout_ms"] = 20_000

    async def main() -> None:
        loop = asyncio.get_running_loop()
        async with kind(bootstrap_servers=servers, **given) as client:
            with contextlib.nullcontext() if reachable else contextlib.suppress(KafkaError):
                await use_async(client, tp)
        assert asyncio.all_tasks() == {asyncio.current_task()}
        assert [timer for timer in loop._scheduled if not timer.cancelled()] == []  # type: ignore[attr-defined]
        assert clients_threads() == []

    asyncio.run(main())


@pytest.mark.parametrize("kind", SYNC)
def test_closing_twice_is_no_error_and_calls_of_a_closed_client_raise(kind: type[Client]) -> None:
    client = kind(bootstrap_servers="127.0.0.1:1", **options(kind))
    client.close()
    client.close()
    with pytest.raises(ClientClosedError):
        use(client, TopicPartition("nowhere", 0))


# ---- unclosed -------------------------------------------------------------------------------------------------------


def drop(clients: list[Client]) -> None:
    """Lose the last reference."""
    clients.clear()
    gc.collect()


@pytest.mark.parametrize("kind", SYNC)
def test_a_client_that_is_dropped_unclosed_warns_and_ends_its_thread(kind: type[Client]) -> None:
    clients = [kind(bootstrap_servers="127.0.0.1:1")]
    with pytest.warns(ResourceWarning, match=f"unclosed {kind.__name__}.*use `with` or close"):
        drop(clients)
    eventually(lambda: not clients_threads())


def test_a_dropped_admin_is_one_client_also_while_its_thread_has_not_closed_it() -> None:
    with Admin(bootstrap_servers="127.0.0.1:1") as admin, warnings.catch_warnings():
        warnings.simplefilter("error")
        admin._admin.__del__()


@pytest.mark.parametrize("kind", ASYNC)
def test_an_async_client_that_is_dropped_unclosed_warns_and_lets_go_of_its_connections(kafka_cluster: LocalCluster, kind: type[Client]) -> None:
    async def main() -> None:
        clients = [kind(bootstrap_servers=kafka_cluster.bootstrap_servers)]
        await clients[0].__aenter__()
        for _ in range(2):  # the first answer retires the bootstrap connection, the second comes from the broker
            await clients[0]._portal.call(lambda: clients[0]._core.call(_describe, 20))
        connections = clients[0]._core.connections
        assert connections._connections()
        with pytest.warns(ResourceWarning, match=f"unclosed {kind.__name__}"):
            drop(clients)
        await asyncio.to_thread(eventually, lambda: not connections._connections())
        await asyncio.gather(*(asyncio.all_tasks() - {asyncio.current_task()}))
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(main())


def _describe(finish: Any, deadline: float | None) -> Any:
    from pyclient.core.admin.topics import metadata_call

    return metadata_call([], finish=finish, deadline=deadline)


@pytest.mark.parametrize("kind", [*SYNC, *ASYNC])
def test_a_client_refuses_to_be_pickled_and_names_what_to_use_instead(kind: type[Client]) -> None:
    client = kind(bootstrap_servers="127.0.0.1:1")
    with pytest.raises(TypeError, match=f"an? {kind.__name__} cannot be pickled.*shared_producer"):
        pickle.dumps(client)
    if kind in SYNC:
        client.close()


# ---- another process ------------------------------------------------------------------------------------------------


def run_script(script: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python in a process of its own, warnings shown but that of forks."""
    return subprocess.run([sys.executable, "-W", "always", *forks.OPTIONS, "-c", script, *arguments], capture_output=True, text=True,
                          timeout=LIMIT_S * 2, check=False)


FORKS = """
import contextlib, os, socket, sys
from pyclient import Admin, Consumer, Producer, TopicPartition
from pyclient.errors import ClientForkedError

def connections():
    found = []
    for descriptor in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(int(descriptor))) as copy:
            found += [copy.getpeername()] if copy.family == socket.AF_INET else []
    return found

servers, topic = sys.argv[1:]
tp = TopicPartition(topic, 0)
producer, admin = Producer(bootstrap_servers=servers), Admin(bootstrap_servers=servers)
consumer = Consumer(bootstrap_servers=servers, auto_offset_reset="earliest", group_id="forked")
consumer.assign([tp])
producer.send(topic, b"before").result(20)
assert [r.value for r in consumer.poll(20)] == [b"before"]
admin.list_topics()
waiting = producer.send(topic, b"while")
assert len(connections()) >= 3

if not os.fork():
    refused = []
    for call in (
        lambda: producer.send(topic, b"child"), producer.flush, producer.close, producer.metrics, lambda: producer.partitions_for(topic),
        waiting.result, lambda: consumer.poll(1), consumer.commit, consumer.close, lambda: next(iter(consumer)), consumer.wakeup,
        lambda: consumer.seek(tp, 0), lambda: consumer.position(tp), lambda: consumer.end_offsets([tp]), consumer.assignment,
        admin.list_topics, admin.close, lambda: admin.create_topics(["child"]), admin.metrics,
    ):
        try:
            call()
        except ClientForkedError as error:
            assert "belongs to the parent process: open a new one in the child" in str(error)
            refused.append(call)
        except BaseException as error:
            print("raised", type(error), error, flush=True)
        else:
            print("did not raise", call, flush=True)
    print("connections:", connections(), flush=True)
    with Producer(bootstrap_servers=servers) as own:
        own.send(topic, b"child's own").result(20)
    print(len(refused), flush=True)
    sys.exit(0)  # through the interpreter's own end, with exit hooks and destructors

assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
waiting.result(20)
producer.send(topic, b"after").result(20)
found = []
while b"after" not in found:
    found += [r.value for r in consumer.poll(20)]
assert sorted(found) == sorted([b"while", b"child's own", b"after"]), found
assert topic in admin.list_topics()
for client in (consumer, admin, producer):
    client.close()
print("undisturbed")
"""


@linux_only
def test_in_a_forked_child_every_call_raises_and_the_parent_goes_on_undisturbed(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    ended = run_script(FORKS, kafka_cluster.bootstrap_servers, topic)
    assert (ended.returncode, ended.stdout.split("\n"), ended.stderr) == (0, ["connections: []", "19", "undisturbed", ""], "")


ASYNC_FORKS = """
import asyncio, os, sys
from pyclient import AsyncConsumer, AsyncProducer, TopicPartition
from pyclient.errors import ClientForkedError

async def main(servers, topic):
    async with AsyncProducer(bootstrap_servers=servers) as producer, AsyncConsumer(bootstrap_servers=servers) as consumer:
        await (await producer.send(topic, b"before"))
        child = os.fork()
        if not child:
            for call in (lambda: producer.send(topic, b"child"), producer.flush, lambda: consumer.poll(1), consumer.close):
                try:
                    await call()
                    print("did not raise", flush=True)
                except ClientForkedError:
                    print("refused", flush=True)
            os._exit(0)
        await asyncio.to_thread(os.waitpid, child, 0)
        await (await producer.send(topic, b"after"))
        assert (await consumer.end_offsets([TopicPartition(topic, 0)]))[TopicPartition(topic, 0)] == 2
    print("undisturbed")

asyncio.run(main(*sys.argv[1:]))
"""


@linux_only
def test_in_a_forked_child_every_call_of_an_async_client_raises(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    ended = run_script(ASYNC_FORKS, kafka_cluster.bootstrap_servers, topic)
    assert (ended.returncode, ended.stdout.split(), ended.stderr) == (0, ["refused"] * 4 + ["undisturbed"], "")


LEAVES = """
import sys
from pyclient import Producer

servers, topic, count = sys.argv[1:]
producer = Producer(bootstrap_servers=servers, linger_ms=60_000, compression_type="zstd")
for n in range(int(count)):
    producer.send(topic, b"%d" % n)
"""


def test_a_producer_left_unclosed_delivers_what_was_sent_before_the_interpreter_ends(kafka_cluster: LocalCluster, topic: str) -> None:
    partitions = make_topic(kafka_cluster, topic)
    ended = run_script(LEAVES, kafka_cluster.bootstrap_servers, topic, "1000")
    assert ended.returncode == 0
    assert "Error" not in ended.stderr
    assert [record.value for record in read(kafka_cluster, partitions, 1000)] == [b"%d" % n for n in range(1000)]


LOSES = """
import sys
from pyclient import Producer

producer = Producer(bootstrap_servers=sys.argv[1])
producer.send(sys.argv[2], b"x").result(20)
print("connected", flush=True)
sys.stdin.readline()
for n in range(7):
    producer.send(sys.argv[2], b"lost")
"""


def test_a_producer_left_unclosed_warns_with_the_count_when_its_broker_is_gone(kafka_cluster: LocalCluster, topic: str) -> None:
    make_topic(kafka_cluster, topic)
    process = subprocess.Popen([sys.executable, "-c", LOSES, kafka_cluster.bootstrap_servers, topic], stdin=subprocess.PIPE,
                               stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    with process:
        assert process.stdout is not None
        assert process.stdout.readline() == "connected\n"
        kafka_cluster.pause()
        try:
            _, stderr = process.communicate("go\n", timeout=LIMIT_S)
        finally:
            kafka_cluster.resume()
            process.kill()
    assert process.returncode == 0
    assert "RuntimeWarning: a producer was not closed before the interpreter ended: 7 records" in stderr


IDLES = """
import sys
from pyclient import Admin, Consumer

consumer, admin = Consumer(bootstrap_servers=sys.argv[1]), Admin(bootstrap_servers=sys.argv[1])
admin.list_topics()
"""


def test_other_clients_left_unclosed_end_with_the_interpreter_without_a_traceback(kafka_cluster: LocalCluster) -> None:
    ended = run_script(IDLES, kafka_cluster.bootstrap_servers)
    assert ended.returncode == 0
    assert "Traceback" not in ended.stderr
    assert "Exception" not in ended.stderr
