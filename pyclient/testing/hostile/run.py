"""Runs an attack on clients, and measures what it costs them."""
from __future__ import annotations

import asyncio
import logging
import resource
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, Final, Literal, Self, TypeAlias

import attrs

from pyclient import Admin, AsyncAdmin, AsyncConsumer, AsyncProducer, Consumer, Producer, TopicPartition
from pyclient.codec.apis import Api
from pyclient.errors import ConfigurationError, IllegalStateError, KafkaError
from pyclient.testing.fake.cluster import FakeCluster
from pyclient.testing.hostile import tls
from pyclient.testing.hostile.attacks import PASSWORD, TOPIC, Attack, Client

WORK_S: Final = 0.3
"""How long each client works while it is attacked."""
CLOSE_S: Final = 0.2
LONGEST_LINE: Final = 2000
OPTIONS: Final[dict[str, Any]] = {"request_timeout_ms": 300, "default_api_timeout_ms": 300, "socket_connection_setup_timeout_ms": 300}
USER: Final = "alice"
LOGIN: Final = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "sasl_plain_username": USER, "sasl_plain_password": PASSWORD}
LOGIN_APIS: Final = (Api.API_VERSIONS, Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE)
Options: TypeAlias = Mapping[str, Any]
Protocol: TypeAlias = Literal["classic", "consumer"]
READING: Final[dict[str, Any]] = {**OPTIONS, "auto_offset_reset": "earliest", "fetch_max_wait_ms": 200}
PRODUCING: Final[dict[str, Any]] = {**OPTIONS, "max_block_ms": 300, "delivery_timeout_ms": 350}
KIB_PER_MIB: Final = 1024


@attrs.frozen(kw_only=True)
class Cost:
    """What an attack cost the clients, and what went wrong: anything but errors of this client."""

    requests: Mapping[str, int]
    """By client; connections to a peer that speaks TLS."""
    seconds: float
    memory_mib: float
    lines: tuple[str, ...]
    wrong: tuple[str, ...]

    def beyond(self, attack: Attack) -> list[str]:
        """The bounds that it breaks, as sentences."""
        bounds, clients = attack.bounds, 2 * len(attack.clients)
        requests = bounds.requests + bounds.requests_per_second * self.seconds
        lines = clients * (bounds.lines + bounds.lines_per_second * self.seconds)
        found = [f"{name}: {count} requests in {self.seconds:.1f} s; at most {requests:.0f}" for name, count in self.requests.items() if count > requests]
        if len(self.lines) > lines:
            found.append(f"{len(self.lines)} lines in the log; at most {lines:.0f}: {self.lines[-1]!r}")
        if self.memory_mib > bounds.memory_mib:
            found.append(f"{self.memory_mib:.0f} MiB of memory; at most {bounds.memory_mib}")
        if self.seconds > bounds.seconds:
            found.append(f"{self.seconds:.1f} s; at most {bounds.seconds:.0f}")
        unsafe = [line for line in self.lines if not line.isprintable() or len(line) > LONGEST_LINE or PASSWORD in line]
        return [*self.wrong, *found, *(f"a line in the log that is not harmless: {line[:200]!r}" for line in unsafe)]


def run(attack: Attack) -> Cost:
    """Attack all kinds of clients that the row names, each sync and async, at the same time."""
    return _run_on_brokers(attack) if attack.peer is None else _run_on_tls(attack, attack.peer)


def _run_on_tls(attack: Attack, serve: tls.Serve) -> Cost:
    with tls.TlsPeer(serve) as peer, _Lines() as lines:
        options = {**LOGIN, **tls.trusting(), "bootstrap_servers": peer.bootstrap_servers, **attack.options}
        memory, began = _peak_mib(), time.monotonic()
        wrong = _all_at_once(attack.clients, options)
        if peer.heard and not attack.proves_itself:
            wrong.append(f"{sum(map(len, peer.heard))} bytes sent to a peer that has not proved who it is")
        if any(PASSWORD.encode() in said for said in peer.heard):
            wrong.append("the password was sent to a peer that is no broker")
        return Cost(requests={"each client": peer.connections // (2 * len(attack.clients))}, seconds=time.monotonic() - began,
                    memory_mib=_peak_mib() - memory, lines=tuple(lines.found), wrong=tuple(wrong))


def _run_on_brokers(attack: Attack) -> Cost:
    with FakeCluster(config={"auto.create.topics.enable": False}, sasl={USER: PASSWORD} if attack.logs_in else None) as cluster, _Lines() as lines:
        cluster.create_topic(TOPIC, 2)
        cluster.intercept(attack.start())
        memory, began = _peak_mib(), time.monotonic()
        wrong = _all_at_once(attack.clients, {"bootstrap_servers": cluster.bootstrap_servers, **(_login(attack) if attack.logs_in else {}), **attack.options})
        if attack.refuses:
            wrong += sorted({f"{each.client_id}: {each.api.name} behind a login that is none" for each in cluster.requests() if each.api not in LOGIN_APIS})
        return Cost(requests=Counter(str(each.client_id) for each in cluster.requests()), seconds=time.monotonic() - began,
                    memory_mib=_peak_mib() - memory, lines=tuple(lines.found), wrong=tuple(wrong))


def _login(attack: Attack) -> Options:
    return {**LOGIN, "sasl_mechanism": attack.mechanism}


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / KIB_PER_MIB


class _Lines(logging.Handler):
    """The warnings and errors of this client, and asyncio's."""

    def __init__(self) -> None:
        super().__init__(level=logging.WARNING)
        self.found: list[str] = []
        self._loggers = [logging.getLogger(name) for name in ("pyclient", "asyncio")]

    def emit(self, record: logging.LogRecord) -> None:
        """Keep it."""
        if not record.name.startswith("pyclient.testing"):
            self.found.append(record.getMessage())

    def __enter__(self) -> Self:
        for logger in self._loggers:
            logger.addHandler(self)
        return self

    def __exit__(self, *_: object) -> None:
        for logger in self._loggers:
            logger.removeHandler(self)


# ---- the clients ----------------------------------------------------------------------------------------------------


def _all_at_once(clients: Sequence[Client], options: Options) -> list[str]:
    """The sync ones in threads of their own, the async ones on one loop; returns what went wrong."""
    wrong: list[str] = []
    with ThreadPoolExecutor(len(clients)) as pool:
        for client in clients:
            pool.submit(asyncio.run, _guarded(wrong, f"{client.value}, sync", _in_thread(client, options)))
        asyncio.run(_async_ones(clients, options, wrong))
    return wrong


async def _async_ones(clients: Sequence[Client], options: Options, wrong: list[str]) -> None:
    await asyncio.gather(*(_guarded(wrong, f"{client.value}, async", _WORK[client][1](f"{client.value}-async", options)) for client in clients))


async def _in_thread(client: Client, options: Options) -> None:
    _WORK[client][0](f"{client.value}-sync", options)


async def _guarded(wrong: list[str], who: str, work: Awaitable[None]) -> None:
    try:
        await work
    except Exception as error:  # noqa: BLE001 a defect, to be reported with the row
        if isinstance(error, (ConfigurationError, IllegalStateError)) or not isinstance(error, KafkaError) or PASSWORD in str(error):
            wrong.append(f"{who}: {type(error).__name__}: {str(error)[:300]}")


def _until(end: float) -> float:
    return max(0.0, end - time.monotonic())


def _produces(name: str, options: Options) -> None:
    producer = Producer(client_id=name, **options, **PRODUCING)
    try:
        producer.send(TOPIC, b"x")
        producer.flush(WORK_S)
    finally:
        _closed(lambda: producer.close(CLOSE_S))


async def _produces_async(name: str, options: Options) -> None:
    producer = AsyncProducer(client_id=name, **options, **PRODUCING)
    try:
        await producer.start()
        await producer.send(TOPIC, b"x")
        await producer.flush(WORK_S)
    finally:
        await _closed_async(producer.close(CLOSE_S))


def _reads(consumer: Consumer) -> None:
    end = time.monotonic() + WORK_S
    try:
        while left := _until(end):
            try:
                consumer.poll(left)
            except KafkaError:
                time.sleep(min(left, WORK_S / 10))  # a program that goes on
    finally:
        _closed(lambda: consumer.close(CLOSE_S))


async def _reads_async(consumer: AsyncConsumer, choose: Callable[[], None]) -> None:
    end = time.monotonic() + WORK_S
    try:
        await consumer.start()
        choose()
        while left := _until(end):
            try:
                await consumer.poll(left)
            except KafkaError:
                await asyncio.sleep(min(left, WORK_S / 10))
    finally:
        await _closed_async(consumer.close(CLOSE_S))


def _reads_assigned(name: str, options: Options) -> None:
    consumer = Consumer(client_id=name, **options, **READING)
    consumer.assign([TopicPartition(TOPIC, 0)])
    _reads(consumer)


async def _reads_assigned_async(name: str, options: Options) -> None:
    consumer = AsyncConsumer(client_id=name, **options, **READING)
    await _reads_async(consumer, lambda: consumer.assign([TopicPartition(TOPIC, 0)]))


def _member(protocol: Protocol) -> Callable[[str, Options], None]:
    def work(name: str, options: Options) -> None:
        consumer = Consumer(client_id=name, group_id=name, group_protocol=protocol, **options, **READING)
        consumer.subscribe([TOPIC])
        _reads(consumer)
    return work


def _async_member(protocol: Protocol) -> Callable[[str, Options], Coroutine[Any, Any, None]]:
    async def work(name: str, options: Options) -> None:
        consumer = AsyncConsumer(client_id=name, group_id=name, group_protocol=protocol, **options, **READING)
        await _reads_async(consumer, lambda: consumer.subscribe([TOPIC]))
    return work


def _administers(name: str, options: Options) -> None:
    admin = Admin(client_id=name, **options, **OPTIONS)
    try:
        admin.describe_topics([TOPIC])
        admin.create_topics(["u"])
        admin.describe_groups(["g"])
    finally:
        _closed(admin.close)


async def _administers_async(name: str, options: Options) -> None:
    admin = AsyncAdmin(client_id=name, **options, **OPTIONS)
    try:
        await admin.__aenter__()
        await admin.describe_topics([TOPIC])
        await admin.create_topics(["v"])
        await admin.describe_groups(["g"])
    finally:
        await _closed_async(admin.close())


def _closed(close: Callable[[], None]) -> None:
    try:
        close()
    except KafkaError:
        return  # records that were not delivered


async def _closed_async(closing: Awaitable[None]) -> None:
    try:
        await closing
    except KafkaError:
        return


_WORK: Final[dict[Client, tuple[Callable[[str, Options], None], Callable[[str, Options], Coroutine[Any, Any, None]]]]] = {
    Client.PRODUCER: (_produces, _produces_async),
    Client.CONSUMER: (_reads_assigned, _reads_assigned_async),
    Client.CLASSIC: (_member("classic"), _async_member("classic")),
    Client.KIP_848: (_member("consumer"), _async_member("consumer")),
    Client.ADMIN: (_administers, _administers_async),
}
