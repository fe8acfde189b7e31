"""A broker refuses the client's identity or credentials.

The refusal is raised at once by each waiting and each later call, and never retried (accounts get locked), unless the
credentials can change and were accepted before. In virtual time: at once means within a few round trips.
"""
from __future__ import annotations

import asyncio
import base64
import functools
import json
import math
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from pyclient import AsyncConsumer, AsyncProducer, TopicPartition
from pyclient.codec.apis import Api
from pyclient.errors import AuthenticationError, KafkaError, SaslAuthenticationError, SslAuthenticationError, UnsupportedSaslMechanismError
from pyclient.testing import Answer, CertificateAuthority, Drop, Silence, World

USERS: Final = {"anna": "secret"}
ANNA: Final = {"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "anna", "sasl_plain_password": "secret"}
AT_ONCE_S: Final = 3.0
"""Of the 60 and more that the calls would wait; brokers answer a refusal after 100 ms, as Kafka does."""
LONG_S: Final = 300.0
REFUSED: Final = Answer({"error_code": 58, "error_message": "no", "auth_bytes": b"", "session_lifetime": 0})
ORDERS: Final = TopicPartition("orders", 0)


@functools.cache
def authority() -> CertificateAuthority:
    return CertificateAuthority(key="ed25519")


def token(user: str, life: float) -> str:
    """Unsecured; the worlds' clocks begin long before its end."""
    parts = [base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in ({"alg": "none"}, {"sub": user, "exp": life})]
    return ".".join(parts) + "."


FOR_EVER: Final = 4_102_444_800.0


def giving(*tokens: str) -> Callable[[], str]:
    """One after the other, the last one for ever."""
    left = list(tokens)
    return lambda: left.pop(0) if len(left) > 1 else left[0]


def world(seed: int = 1, **more: Any) -> World:
    given: dict[str, Any] = {"config": {"connection.failed.authentication.delay.ms": 100}, "sasl": USERS, **more}
    return World(seed, tls=authority().server_context("broker-1", "broker-2", "broker-3"), **given)


def options(**more: Any) -> dict[str, Any]:
    return {"security_protocol": "SASL_SSL", "ssl_truststore_certificates": authority().pem, **ANNA, **more}


# ---- what is refused, and who waits ----------------------------------------------------------------------------------

WRONG: Final[dict[str, tuple[dict[str, Any], type[AuthenticationError]]]] = {
    "password": ({"sasl_plain_password": "wrong"}, SaslAuthenticationError),
    "mechanism": ({"sasl_mechanism": "SCRAM-SHA-256"}, UnsupportedSaslMechanismError),
    "authority": ({"ssl_truststore_certificates": CertificateAuthority("a stranger", key="ed25519").pem}, SslAuthenticationError),
    "no login": ({"security_protocol": "SSL"}, SaslAuthenticationError),
    "token": ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": giving(token("anna", FOR_EVER))}, SaslAuthenticationError),
}
ENABLED: Final = {"sasl.enabled.mechanisms": "SCRAM-SHA-512,OAUTHBEARER", "connection.failed.authentication.delay.ms": 100}


async def send(producer: AsyncProducer) -> None:
    await (await producer.send("orders", b"value"))


async def send_to(producer: AsyncProducer) -> None:
    await (await producer.send("orders", b"value", partition=0))


async def partitions_for(producer: AsyncProducer) -> None:
    await producer.partitions_for("orders")


async def poll(consumer: AsyncConsumer) -> None:
    consumer.assign([ORDERS])
    await consumer.poll(50.0)


async def poll_in_a_group(consumer: AsyncConsumer) -> None:
    consumer.subscribe(["orders"])
    await consumer.poll(50.0)


async def iterate(consumer: AsyncConsumer) -> None:
    consumer.assign([ORDERS])
    async for _ in consumer:
        pass


async def end_offsets(consumer: AsyncConsumer) -> None:
    await consumer.end_offsets([ORDERS])


async def committed(consumer: AsyncConsumer) -> None:
    await consumer.committed([ORDERS])


async def commit(consumer: AsyncConsumer) -> None:
    await consumer.commit({ORDERS: 1})


Use = Callable[[Any], Awaitable[None]]
OF_PRODUCERS: Final[list[tuple[str, Use, dict[str, Any]]]] = [
    ("producer", send, {}), ("producer", send_to, {"acks": 0, "enable_idempotence": False}), ("producer", partitions_for, {})]
OF_CONSUMERS: Final[list[tuple[str, Use, dict[str, Any]]]] = [
    ("consumer", each, {"group_id": "g"}) for each in (poll, poll_in_a_group, iterate, end_offsets, committed, commit)]
KIP_848: Final[tuple[str, Use, dict[str, Any]]] = ("consumer", poll_in_a_group, {"group_id": "g", "group_protocol": "consumer"})
USES: Final = [*OF_PRODUCERS, *OF_CONSUMERS, KIP_848]


def tries(place: World) -> int:
    """Connections that began to speak."""
    return len(place.cluster.requests(Api.API_VERSIONS)) + len(place.cluster.requests(Api.SASL_HANDSHAKE))


@pytest.mark.parametrize("wrong", WRONG)
@pytest.mark.parametrize(("kind", "use", "more"), USES, ids=[f"{use.__name__}{'' if n != len(USES) - 1 else '-848'}" for n, (_, use, _) in enumerate(USES)])
def test_a_refusal_is_raised_at_once_by_waiting_and_later_calls_and_never_retried(
        kind: str, use: Use, more: dict[str, Any], wrong: str) -> None:
    changed, expected = WRONG[wrong]

    async def refused_at_once(client: Any) -> None:
        began = place.loop.time()
        with pytest.raises(expected) as caught:
            await use(client)
        assert type(caught.value) is expected
        assert place.loop.time() - began < AT_ONCE_S

    async def test() -> None:
        given = options(**changed, **more)
        if given["security_protocol"] == "SSL":
            given = {name: value for name, value in given.items() if not name.startswith("sasl_")}
        async with getattr(place, kind)("client", **given) as client:
            await refused_at_once(client)
            seen = tries(place)
            await refused_at_once(client)
            await asyncio.sleep(LONG_S)
            await refused_at_once(client)
            assert tries(place) == seen
            began = place.loop.time()
        assert place.loop.time() - began < AT_ONCE_S

    with world(config=ENABLED) as place:
        place.cluster.create_topic("orders")
        if wrong == "token":
            place.cluster.intercept(REFUSED, Api.SASL_AUTHENTICATE)
        place.run(test())
        assert not place.loop.defects


# ---- the wrong listener ----------------------------------------------------------------------------------------------

TLS: Final = {"security_protocol": "SSL", "ssl_truststore_certificates": authority().pem}
LISTENERS: Final[dict[str, dict[str, Any]]] = {
    "PLAINTEXT": {"sasl": None}, "SSL": {"tls": authority().server_context("broker-1", "broker-2", "broker-3"), "sasl": None}, "SASL_PLAINTEXT": {"sasl": USERS},
    "SASL_SSL": {"tls": authority().server_context("broker-1", "broker-2", "broker-3"), "sasl": USERS}}
CLIENTS: Final[dict[str, dict[str, Any]]] = {
    "PLAINTEXT": {}, "SSL": TLS, "SASL_PLAINTEXT": {**ANNA, "security_protocol": "SASL_PLAINTEXT"}, "SASL_SSL": {**ANNA, **TLS, "security_protocol": "SASL_SSL"}}


def explained(client: str, listener: str) -> str:
    """What the error must say."""
    if client.endswith("SSL") != listener.endswith("SSL"):
        return "is a Kafka listener without TLS" if client.endswith("SSL") else "uses TLS, this client does not"
    return "refused SaslHandshake" if client.startswith("SASL") else "requires a login, and no login is configured. It offers "


@pytest.mark.parametrize("listener", LISTENERS)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize(("kind", "use"), [("producer", send), ("consumer", poll)], ids=["producer", "consumer"])
def test_a_protocol_mismatch_with_the_listener_is_reported_at_once(kind: str, use: Use, client: str, listener: str) -> None:
    async def test() -> None:
        async with getattr(place, kind)("client", **CLIENTS[client]) as ours:
            if client == listener:
                await (send(ours) if kind == "producer" else end_offsets(ours))
                return
            began = place.loop.time()
            with pytest.raises(AuthenticationError, match=explained(client, listener)):
                await use(ours)
            assert place.loop.time() - began < AT_ONCE_S

    with World(1, **LISTENERS[listener]) as place:
        place.cluster.create_topic("orders")
        place.run(test())
        assert not place.loop.defects


def cutting(place: World, api: Api, times: float) -> list[int]:
    """Hang up on so many requests instead of answering; gives how many were."""
    cut = [0]

    def decide(_: Any) -> Drop | None:
        cut[0] += 1
        return Drop(applied=False) if cut[0] <= times else None

    place.cluster.intercept(decide, api)
    return cut


@pytest.mark.parametrize("listener", ["PLAINTEXT", "SSL"])
@pytest.mark.parametrize("api", [Api.METADATA, Api.API_VERSIONS])
def test_a_broker_that_hangs_up_a_few_times_is_not_taken_for_a_listener_of_another_kind(listener: str, api: Api) -> None:
    async def test() -> None:
        async with place.producer("client", **CLIENTS[listener]) as producer:
            await send(producer)

    with World(1, **LISTENERS[listener]) as place:
        place.cluster.create_topic("orders")
        cut = cutting(place, api, 5)
        asked = cutting(place, Api.SASL_HANDSHAKE, math.inf)  # and never answers whether it wants a login
        place.run(test())
        assert cut[0] > 5
        assert (asked[0] > 0) is (api is Api.METADATA)


def test_whether_a_login_is_wanted_is_asked_only_before_anything_was_answered() -> None:
    async def test() -> None:
        async with place.producer("client") as producer:
            await send(producer)
            cut = cutting(place, Api.PRODUCE, 3)
            await send(producer)
            assert cut[0] > 3

    with World(1) as place:
        place.cluster.create_topic("orders")
        place.run(test())
        assert not place.cluster.requests(Api.SASL_HANDSHAKE)


# ---- a client at work ------------------------------------------------------------------------------------------------


def test_records_that_wait_when_a_password_is_changed_fail_with_the_refusal_and_none_is_lost_silently() -> None:
    async def test() -> None:
        async with place.producer("client", linger_ms=0, connections_max_idle_ms=1000, **options()) as producer:
            await (await producer.send("orders", b"before", partition=0))
            place.cluster.set_password("anna", "another")
            await asyncio.sleep(5.0)  # so that its connections are closed
            results = [await producer.send("orders", b"%d" % number, partition=number % 3) for number in range(30)]
            began = place.loop.time()
            raised = await asyncio.gather(*results, return_exceptions=True)
            assert place.loop.time() - began < AT_ONCE_S
            assert {type(each) for each in raised} == {SaslAuthenticationError}
            for call in (lambda: producer.send("orders", b"after"), producer.flush):
                with pytest.raises(SaslAuthenticationError):
                    await call()

    with world() as place:
        place.cluster.create_topic("orders", partitions=3)
        place.run(test())
        assert [record.value for record in place.cluster.records("orders")] == [b"before"]


def test_records_under_way_when_a_client_is_refused_may_be_stored_and_their_error_says_so() -> None:
    async def test() -> None:
        async with place.producer("client", linger_ms=0, **options(bootstrap_servers="broker-1:9092")) as producer:
            await producer.partitions_for("orders")
            place.cluster.intercept(Silence(applied=True), Api.PRODUCE)
            sent = await producer.send("orders", b"sent", partition=of_leader(place, 1))
            await asyncio.sleep(1.0)
            place.cluster.intercept(REFUSED, Api.SASL_AUTHENTICATE, broker=2)
            unsent = await producer.send("orders", b"unsent", partition=of_leader(place, 2))
            with pytest.raises(SaslAuthenticationError, match="orders-.: 1 record may or may not be stored; given up after 1 attempt: broker-2:9092"):
                await sent
            with pytest.raises(SaslAuthenticationError, match="orders-.: 1 record was not stored after 0 attempts: broker-2:9092"):
                await unsent

    with world() as place:
        place.cluster.create_topic("orders", partitions=3)
        place.run(test())
        assert [record.value for record in place.cluster.records("orders")] == [b"sent"]


def test_a_session_that_may_not_be_renewed_ends_a_client_whose_credentials_stay_what_they_are() -> None:
    async def test() -> None:
        async with place.consumer("client", group_id="g", **options()) as consumer:
            consumer.subscribe(["orders"])
            await consumer.poll(1.0)
            place.cluster.set_password("anna", "another")
            began, connections = place.loop.time(), len(place.cluster.requests(Api.API_VERSIONS))
            with pytest.raises(SaslAuthenticationError):
                await consumer.poll(LONG_S)
            assert place.loop.time() - began < 15.0  # the session's life, not the call's
            assert len(place.cluster.requests(Api.API_VERSIONS)) == connections, "what was refused was tried again"

    with world(config={"connections.max.reauth.ms": 10_000}) as place:
        place.cluster.create_topic("orders")
        place.run(test())


def refused_once(place: World, times: int, broker: int | None = None) -> list[int]:
    """The next logins are refused; gives how many are left."""
    left = [times]

    def decide(_: Any) -> Answer | None:
        left[0] -= 1
        return REFUSED if left[0] >= 0 else None

    place.cluster.intercept(decide, Api.SASL_AUTHENTICATE, broker=broker)
    return left


WITH_TOKENS: Final = {"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": giving(token("anna", FOR_EVER))}


@pytest.mark.parametrize("seed", range(5))
def test_credentials_that_can_change_and_were_accepted_are_shown_again_and_nothing_is_lost(seed: int) -> None:
    async def test() -> None:
        async with place.producer("client", linger_ms=0, connections_max_idle_ms=1000, **options(**WITH_TOKENS)) as producer:
            await (await producer.send("orders", b"-1"))
            left = refused_once(place, 4)
            for number in range(40):
                await (await producer.send("orders", b"%d" % number, partition=number % 3))
                await asyncio.sleep(2.0)
            assert left[0] < 0, "nothing was refused"

    with world(seed, config={"connections.max.reauth.ms": 10_000}) as place:
        place.cluster.create_topic("orders", partitions=3)
        place.run(test())
        assert sorted(int(record.value or b"") for record in place.cluster.records("orders")) == list(range(-1, 40))


def of_leader(place: World, broker: int) -> int:
    return next(index for index in range(3) if place.cluster.leader("orders", index) == broker)


def test_one_broker_that_refuses_a_token_holds_up_only_what_is_for_it() -> None:
    async def test() -> None:
        place.cluster.intercept(REFUSED, Api.SASL_AUTHENTICATE, broker=2)
        async with place.producer("client", linger_ms=0, **options(**WITH_TOKENS, bootstrap_servers="broker-1:9092")) as producer:
            held = await producer.send("orders", b"held", partition=of_leader(place, 2))
            for broker in (1, 3):
                assert await asyncio.wait_for(await producer.send("orders", b"%d" % broker, partition=of_leader(place, broker)), AT_ONCE_S)
            with pytest.raises(KafkaError, match="refused the login"):
                await held

    with world() as place:
        place.cluster.create_topic("orders", partitions=3)
        place.run(test())


def test_one_broker_that_refuses_a_password_ends_the_client() -> None:
    async def test() -> None:
        place.cluster.intercept(REFUSED, Api.SASL_AUTHENTICATE, broker=2)
        async with place.producer("client", linger_ms=0, **options(bootstrap_servers="broker-1:9092")) as producer:
            with pytest.raises(SaslAuthenticationError, match="broker-2:9092"):
                await (await producer.send("orders", b"", partition=of_leader(place, 2)))
            with pytest.raises(SaslAuthenticationError, match="broker-2:9092"):
                await producer.send("orders", b"", partition=of_leader(place, 1))

    with world() as place:
        place.cluster.create_topic("orders", partitions=3)
        place.run(test())


