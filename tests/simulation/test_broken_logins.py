"""Whole clients whose brokers never get through a login: stalled, cut at every byte, or garbage, below and above TLS.

Each call ends within its own timeout, its error says what is wrong with which broker, and the backoff bounds its
attempts. As soon as the login works, the client does.
"""
from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, Final

import pytest

from pyclient import TopicPartition
from pyclient.codec.apis import Api
from pyclient.errors import KafkaError, SaslAuthenticationError
from pyclient.testing import Answer, Cut, Drop, Silence, World
from pyclient.testing.fake.control import Verdict
from pyclient.testing.simulation.network import SimulatedTransport
from tests.simulation.test_refusals import options, world
from tests.unit.testing.simulation.test_tls_world import Tap, cut, garble, hang_up, stall, stride

LIMIT_S: Final = 4.0
LATE_S: Final = 0.3
CONNECTS: Final = 75
"""Per call: three addresses, eight attempts with backoffs from 50 ms to 1 s, each with one more in version 0 (M08) and
a probe for TLS (M16)."""
TURNS: Final = 6000
QUICK: Final = {"socket_connection_setup_timeout_ms": 1000, "socket_connection_setup_timeout_max_ms": 1000, "request_timeout_ms": 2000,
                "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 1000}
ORDERS: Final = TopicPartition("orders", 0)


async def send(client: Any) -> None:
    await (await client.send("orders", b"value"))


async def ask_for_the_end(client: Any) -> None:
    await client.end_offsets([ORDERS])


Use = Callable[[Any], Awaitable[None]]
CLIENTS: Final[list[tuple[str, Use, dict[str, Any]]]] = [
    ("producer", send, {"max_block_ms": int(LIMIT_S * 1000), "delivery_timeout_ms": 4000, "linger_ms": 0}),
    ("consumer", ask_for_the_end, {"default_api_timeout_ms": int(LIMIT_S * 1000)}),
]


async def fails_in_time(place: World, client: Any, use: Use) -> KafkaError:
    began, connects, turns = place.loop.time(), place.network.connects, place.loop.turns
    with pytest.raises(KafkaError) as caught:
        await use(client)
    assert place.loop.time() - began <= LIMIT_S + LATE_S
    assert place.network.connects - connects <= CONNECTS, "a storm of connections"
    assert place.loop.turns - turns <= TURNS, "a busy loop"
    return caught.value


def described(error: BaseException | None) -> str:
    """What it says, with its causes."""
    return "" if error is None else f"{error}\n{described(error.__cause__)}"


# ---- above TLS: each message -----------------------------------------------------------------------------------------


def nth(number: int, verdict: Verdict) -> Callable[[Any], Verdict | None]:
    """Do it to each connection's message of this number."""
    seen: dict[object, int] = {}

    def decide(asked: Any) -> Verdict | None:
        seen[asked.connection] = seen.get(asked.connection, 0) + 1
        return verdict if seen[asked.connection] == number else None

    return decide


MESSAGES: Final = [pytest.param(Api.SASL_HANDSHAKE, 1, id="handshake"), pytest.param(Api.SASL_AUTHENTICATE, 1, id="first"), pytest.param(Api.SASL_AUTHENTICATE, 2, id="second")]


@pytest.mark.parametrize(("kind", "use", "more"), CLIENTS, ids=[each[0] for each in CLIENTS])
@pytest.mark.parametrize(("api", "number"), MESSAGES)
@pytest.mark.parametrize("verdict", [Silence(), Drop(), Drop(applied=True), *[Cut(keep) for keep in (0, 3, 4, 8, 9, 20, 60)]], ids=repr)
def test_a_login_that_stalls_or_is_cut_fails_each_call_in_time_and_works_when_brokers_do(
        kind: str, use: Use, more: dict[str, Any], api: Api, number: int, verdict: Verdict) -> None:
    async def test() -> None:
        async with getattr(place, kind)("client", **options(**QUICK, **more)) as client:
            rule = place.cluster.intercept(nth(number, verdict), api)
            for _ in range(2):
                said = described(await fails_in_time(place, client, use))
                assert "login" in said or "log in" in said, said
                assert "broker-" in said
            rule.remove()
            await use(client)

    with world() as place:
        place.cluster.create_topic("orders")
        place.run(test())
        assert not place.loop.defects


GARBAGE: Final = [b"\xff" * 40, b"", b"r=,s=,i=", b"v=AAAA", b"\0" * 9000]


@pytest.mark.parametrize(("kind", "use", "more"), CLIENTS, ids=[each[0] for each in CLIENTS])
@pytest.mark.parametrize("number", [1, 2])
@pytest.mark.parametrize("garbage", GARBAGE, ids=[f"{each[:8]!r} {len(each)} B" for each in GARBAGE])
def test_a_broker_that_answers_nonsense_does_not_know_the_password_and_ends_the_client(
        kind: str, use: Use, more: dict[str, Any], number: int, garbage: bytes) -> None:
    async def test() -> None:
        async with getattr(place, kind)("client", **options(**QUICK, **more)) as client:
            place.cluster.intercept(nth(number, Answer({"error_code": 0, "error_message": None, "auth_bytes": garbage, "session_lifetime": 0})), Api.SASL_AUTHENTICATE)
            began = place.loop.time()
            assert isinstance(await fails_in_time(place, client, use), SaslAuthenticationError)
            assert place.loop.time() - began < 1.0, "the error comes at once"
            seen = place.network.connects
            await asyncio.sleep(60.0)
            assert place.network.connects == seen, "never tried again: accounts get locked"

    with world() as place:
        place.cluster.create_topic("orders")
        place.run(test())
        assert not place.loop.defects


# ---- below: every byte -----------------------------------------------------------------------------------------------


def plain_world(seed: int) -> World:
    return World(seed, sasl={"anna": "secret"})


def at_a_byte(monkeypatch: pytest.MonkeyPatch, place: World, given: dict[str, Any], *, after: int, to_client: bool, act: Any) -> bool:
    """Whether a client fails when all its connections break there, as it should. False: it needs fewer bytes."""
    kind, use, more = CLIENTS[place.seed % 2]

    async def test() -> bool:
        async with getattr(place, kind)("client", **given, **QUICK, **more) as client:
            Tap(monkeypatch, to_client=to_client, after=after, act=act)
            try:
                await asyncio.wait_for(fails_in_time(place, client, use), 2 * LIMIT_S)
            except pytest.fail.Exception:
                return False
            return True

    with place:
        place.cluster.create_topic("orders")
        broke = place.run(test())
        assert not place.loop.defects
    return broke


ACTS: Final[list[Callable[[SimulatedTransport, bytes], bytes | None]]] = [cut, hang_up, stall, garble]
BOTH_WAYS: Final = [pytest.param(False, 330, id="to the broker"), pytest.param(True, 700, id="to the client")]
"""And so many bytes at least that everything takes."""


def in_plaintext() -> dict[str, Any]:
    return {**{name: value for name, value in options().items() if not name.startswith("ssl_")}, "security_protocol": "SASL_PLAINTEXT"}


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("to_client", "least"), BOTH_WAYS)
def test_a_login_that_breaks_at_any_byte_in_plaintext_fails_in_time(monkeypatch: pytest.MonkeyPatch, to_client: bool, least: int, act: Any) -> None:
    for after in range(0, 900, stride(47)):
        with monkeypatch.context() as patch:
            if not at_a_byte(patch, plain_world(after), in_plaintext(), after=after, to_client=to_client, act=act):
                assert after > least
                break


@pytest.mark.parametrize("act", ACTS)
@pytest.mark.parametrize(("to_client", "least"), BOTH_WAYS)
def test_a_login_that_breaks_at_any_byte_under_TLS_fails_in_time(monkeypatch: pytest.MonkeyPatch, to_client: bool, least: int, act: Any) -> None:
    for after in range(0, 2400, stride(293)):
        with monkeypatch.context() as patch:
            if not at_a_byte(patch, world(after), options(), after=after, to_client=to_client, act=act):
                assert after > 2 * least
                break
