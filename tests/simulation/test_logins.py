"""Logging in on a connection, and again while it is in use (M11, KIP-368), against modelled brokers in virtual time."""
from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pyclient.codec.apis import Api
from pyclient.core.connection import State
from pyclient.core.manager import Reply, Unknown
from pyclient.core.silence import LONGEST_SILENCE_S
from pyclient.errors import (
    DisconnectError, IllegalSaslStateError, KafkaError, ResponseTimeoutError, SaslAuthenticationError, TokenUnavailableError, UnsupportedSaslMechanismError,
)
from pyclient.net.sasl_login import SaslClient
from pyclient.testing import Delay, Drop, Silence, World
from pyclient.testing.fake.control import Throttle
from tests.simulation.logins import ANNA, TIMEOUT, USERS, Client, logins, run, turns, world

LOGIN = ["SaslHandshake", "SaslAuthenticate"]
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER"]
ENDING = {"connections.max.reauth.ms": 3_600_000}
"""Brokers renew a login only where sessions end."""


def token(world: World, life: float = 3600, user: str = "anna") -> str:
    parts = ({"alg": "none"}, {"sub": user, "exp": world.wall() / 1000 + life})
    return ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in parts) + "."


def of(client: Client, mechanism: str, **given: Any) -> SaslClient:
    return logins(client, mechanism, sasl_token_provider=lambda: token(client.world), **given)


# ---- the first login -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_a_connection_is_ready_after_its_login_and_not_before(mechanism: str) -> None:
    place = world()

    async def test(client: Client) -> None:
        assert client.link.state is State.AUTHENTICATING
        assert not client.link.accepts_requests()
        await client.log_in(of(client, mechanism))
        assert client.link.state is State.READY
        assert await client.answered()
        assert client.asked() == ["ApiVersions", *LOGIN, *LOGIN[1:] * (mechanism.startswith("SCRAM")), "Metadata"]

    run(place, test)


@pytest.mark.parametrize("mechanism", MECHANISMS[:3])
@pytest.mark.parametrize("wrong", [{"sasl_plain_password": "a marker"}, {"sasl_plain_username": "mallory"}])
def test_a_wrong_password_is_reported_at_once_and_the_connection_ends(mechanism: str, wrong: dict[str, Any]) -> None:
    place = world()

    async def test(client: Client) -> None:
        with pytest.raises(SaslAuthenticationError, match=r"(?i)invalid.*check sasl_plain_username and sasl_plain_password") as caught:
            await client.log_in(of(client, mechanism, **wrong))
        await turns(lambda: client.lost)
        assert "marker" not in repr(caught.value) + repr(client.lost)
        assert place.loop.time() < 2

    run(place, test)


def test_a_mechanism_that_is_not_enabled_names_those_that_are() -> None:
    place = world(config={"sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER"})

    async def test(client: Client) -> None:
        with pytest.raises(UnsupportedSaslMechanismError, match="does not offer SCRAM-SHA-512; it offers PLAIN, OAUTHBEARER"):
            await client.log_in(of(client, "SCRAM-SHA-512"))

    run(place, test)


def test_a_listener_without_SASL_says_so() -> None:
    place = world(users=None)

    async def test(client: Client) -> None:
        with pytest.raises(IllegalSaslStateError, match="security_protocol"):
            await client.log_in(of(client, "PLAIN"))

    run(place, test)


def test_a_token_that_is_refused_is_explained() -> None:
    place = world()

    async def test(client: Client) -> None:
        with pytest.raises(SaslAuthenticationError, match=r"refused the login.*invalid_token.*check sasl_token_provider"):
            await client.log_in(logins(client, "OAUTHBEARER", sasl_token_provider=lambda: "not-a-jwt"))

    run(place, test)


@pytest.mark.parametrize("api", LOGIN)
def test_a_broker_that_closes_the_connection_during_the_login_has_its_own_error(api: str) -> None:
    place = world()

    async def test(client: Client) -> None:
        place.cluster.intercept(Drop(), api)
        with pytest.raises(DisconnectError, match="It did so"):
            await client.log_in(of(client, "SCRAM-SHA-256"))
        assert client.link.state is State.CLOSED

    run(place, test)


@pytest.mark.parametrize("api", LOGIN)
def test_a_broker_that_says_nothing_is_given_up_in_time(api: str) -> None:
    place = world()

    async def test(client: Client) -> None:
        place.cluster.intercept(Silence(), api)
        began = place.loop.time()
        with pytest.raises(ResponseTimeoutError, match="did not end within 3.0 s"):
            await client.log_in(of(client, "PLAIN"), 3.0)
        assert place.loop.time() - began == pytest.approx(3, abs=0.1)

    run(place, test)


class Odd:
    """A mechanism of a test."""

    name = "PLAIN"
    blocking = False

    def __init__(self, exchange: Any) -> None:
        self._exchange = exchange

    def exchange(self, config: Any, host: str, /) -> Generator[Any, Any, None]:
        return self._exchange()  # type: ignore[no-any-return]


async def never() -> None:
    await asyncio.get_running_loop().create_future()


def test_something_that_is_awaited_for_ever_is_given_up_in_time() -> None:
    place = world()

    def steps() -> Generator[Any, Any, None]:
        yield never()

    async def test(client: Client) -> None:
        with pytest.raises(ResponseTimeoutError, match="did not end"):
            await client.log_in(logins(client, Odd(steps)))

    run(place, test)


def test_a_peer_that_hangs_up_while_the_client_computes_is_noticed() -> None:
    place = world()

    def steps() -> Generator[Any, Any, None]:
        yield asyncio.sleep(2)
        yield b"hello"

    async def test(client: Client) -> None:
        place.loop.call_later(1.0, place.kafka.kill, 1)
        with pytest.raises(DisconnectError, match="closed the connection"):
            await client.log_in(logins(client, Odd(steps)))

    run(place, test)


def test_who_gives_a_login_up_ends_the_connection() -> None:
    place = world()

    async def test(client: Client) -> None:
        place.cluster.intercept(Silence(), "SaslAuthenticate")
        task = asyncio.get_running_loop().create_task(client.log_in(of(client, "PLAIN")))
        await turns(lambda: "SaslAuthenticate" in client.asked())
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await turns(lambda: client.lost)

    run(place, test)


def test_the_same_world_draws_the_same_nonces() -> None:
    def said(seed: int) -> list[Any]:
        place = world(seed)

        async def test(client: Client) -> list[Any]:
            await client.log_in(of(client, "SCRAM-SHA-512"))
            return [bytes(each.body.auth_bytes) for each in place.cluster.requests("SaslAuthenticate")]

        return run(place, test)

    assert said(1) == said(1) != said(2)


# ---- again -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_M11_a_session_says_when_it_is_to_be_renewed(mechanism: str) -> None:
    place = world(config={"connections.max.reauth.ms": 10_000})

    async def test(client: Client) -> None:
        for _ in range(3):
            await client.log_in(of(client, mechanism))
            now = place.loop.time()
            assert client.link.session.ends_at == pytest.approx(now + 9.5, abs=0.2)
            assert client.link.session.renew_at is not None
            assert 8.3 <= client.link.session.renew_at - now <= 9.5
            assert client.link.next_deadline() == client.link.session.renew_at
            asked = client.ask(timeout=100)
            assert client.link.next_deadline() == now + LONGEST_SILENCE_S, "silence is looked for first"
            await asked
            await asyncio.sleep(client.link.session.renew_at - now)
        assert await client.answered()

    run(place, test)


def test_M11_a_session_without_end_is_never_renewed() -> None:
    place = world()

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        assert client.link.session.renew_at is client.link.session.ends_at is client.link.next_deadline() is None

    run(place, test)


def test_M11_what_is_in_flight_is_answered_first_and_nothing_is_written_until_the_login_is_over() -> None:
    place = world(config=ENDING)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "SCRAM-SHA-512"))
        await asyncio.sleep(2)
        place.cluster.intercept(Delay(5), "Metadata", times=1)
        in_flight = [client.ask() for _ in range(4)]
        login = asyncio.get_running_loop().create_task(client.log_in(of(client, "SCRAM-SHA-512"), 2.0))
        await turns(lambda: client.link.state is State.REAUTHENTICATING)
        while client.link.state is State.REAUTHENTICATING:
            assert not client.link.accepts_requests()
            await asyncio.sleep(0.001)
        await login
        assert client.link.accepts_requests()
        assert client.was_ready, "managers are asked again"
        assert all(isinstance(each.result(), Reply) for each in in_flight)
        assert client.asked()[4:] == ["Metadata"] * 4 + [*LOGIN, "SaslAuthenticate"]
        assert await client.answered()

    run(place, test)


@given(seed=st.integers(0, 10_000), mechanism=st.sampled_from(MECHANISMS), life=st.integers(1500, 6000))
@settings(max_examples=12)
def test_M11_no_request_fails_because_of_a_renewal(seed: int, mechanism: str, life: int) -> None:
    """Requests are pipelined whenever the connection is ready. The broker closes the connection if one arrives within a
    login or after the session."""
    place = world(seed, config={"connections.max.reauth.ms": life})
    chance = place.random("test")

    async def test(client: Client) -> None:
        renewals, ours = 0, of(client, mechanism)
        await client.log_in(ours)
        login: asyncio.Task[None] | None = None
        while place.loop.time() < 30:
            if login is None and client.link.session.renew_at is not None and place.loop.time() >= client.link.session.renew_at:
                login, renewals = asyncio.get_running_loop().create_task(client.log_in(ours)), renewals + 1
            for _ in range(chance.randrange(4)):
                if client.link.accepts_requests() and client.link.in_flight < 5:
                    client.ask()
            await asyncio.sleep(chance.expovariate(20))
            if login is not None and login.done():
                login = login.result()
        if login is not None:
            await login
        await turns(lambda: client.link.in_flight == 0)
        assert renewals >= 5
        assert len(client.outcomes) > 200
        assert all(isinstance(each, Reply) for each in client.outcomes)
        assert client.lost == []

    run(place, test)


def test_M11_a_renewal_that_is_refused_ends_the_connection_and_fails_no_request() -> None:
    place = world(config={"connections.max.reauth.ms": 10_000})

    async def test(client: Client) -> None:
        await client.log_in(of(client, "SCRAM-SHA-256"))
        place.cluster.set_password("anna", "another")
        await asyncio.sleep(2)
        assert await client.answered(), "the session goes on"
        in_flight = [client.ask() for _ in range(3)]
        with pytest.raises(SaslAuthenticationError):
            await client.log_in(of(client, "SCRAM-SHA-256"))
        assert all(isinstance(each.result(), Reply) for each in in_flight)
        await turns(lambda: client.lost)
        assert not any(isinstance(each, Unknown) for each in client.outcomes)

    run(place, test)


@pytest.mark.parametrize(("mechanism", "given_", "error"), [
    ("PLAIN", {"sasl_plain_username": "bert", "sasl_plain_password": USERS["bert"]}, "Cannot change principals"),
    ("SCRAM-SHA-256", {}, "some brokers disconnect instead of refusing"),
])
def test_M11_no_user_becomes_another_one_on_a_connection(mechanism: str, given_: dict[str, Any], error: str) -> None:
    place = world(config=ENDING)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        await asyncio.sleep(2)
        with pytest.raises((SaslAuthenticationError, DisconnectError), match=error):
            await client.log_in(of(client, mechanism, **given_))

    run(place, test)


def broken() -> str:
    raise OSError("no route")


def test_M11_a_token_that_cannot_be_fetched_leaves_the_session_as_it_is_and_is_tried_again_before_its_end() -> None:
    place = world()

    async def test(client: Client) -> None:
        await client.log_in(logins(client, "OAUTHBEARER", sasl_token_provider=lambda: token(place, 10)))
        ends = client.link.session.ends_at
        assert ends is not None
        await asyncio.sleep(8)
        with pytest.raises(TokenUnavailableError, match="no route"):
            await client.log_in(logins(client, "OAUTHBEARER", sasl_token_provider=broken))
        assert client.link.state is State.READY
        assert client.link.session.ends_at == ends
        assert client.link.session.renew_at is not None
        assert place.loop.time() < client.link.session.renew_at <= ends
        assert client.asked().count("SaslHandshake") == 1
        assert await client.answered()
        await client.log_in(logins(client, "OAUTHBEARER", sasl_token_provider=lambda: token(place, 10)))
        assert client.link.session.ends_at > ends

    run(place, test)


def test_M11_a_session_that_could_not_be_renewed_takes_no_requests_after_its_end_and_is_given_up() -> None:
    place = world(config={"connections.max.reauth.ms": 3000})

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        await asyncio.sleep(2.6)
        assert client.link.accepts_requests()
        asked = client.ask()
        await asyncio.sleep(0.2)
        assert not client.link.accepts_requests()
        assert isinstance(await asked, Reply)
        with pytest.raises(TokenUnavailableError):
            await client.log_in(logins(client, "OAUTHBEARER", sasl_token_provider=broken))
        await turns(lambda: client.link.state is State.CLOSED)
        assert not any(isinstance(each, Unknown) for each in client.outcomes)

    run(place, test)


@pytest.mark.parametrize("api", LOGIN)
def test_M11_a_renewal_that_is_not_answered_is_given_up_in_time(api: str) -> None:
    place = world(config=ENDING)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        await asyncio.sleep(2)
        place.cluster.intercept(Silence(), api)
        began = place.loop.time()
        with pytest.raises(ResponseTimeoutError, match="did not end within 3.0 s"):
            await client.log_in(of(client, "PLAIN"), 3.0)
        assert place.loop.time() - began < 4
        await turns(lambda: client.lost)

    run(place, test)


def test_M11_requests_go_on_while_a_token_is_fetched() -> None:
    place = world()

    async def slow() -> str:
        await asyncio.sleep(5)
        return token(place)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "OAUTHBEARER"))
        await asyncio.sleep(2)
        login = asyncio.get_running_loop().create_task(client.log_in(logins(client, "OAUTHBEARER", sasl_token_provider=slow)))
        await asyncio.sleep(1)
        assert client.link.accepts_requests()
        assert await client.answered()
        await login
        assert client.asked()[-2:] == LOGIN

    run(place, test)


def test_M09_M11_a_broker_that_asked_for_silence_gets_it_before_the_login() -> None:
    place = world(config=ENDING)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        await asyncio.sleep(2)
        place.cluster.intercept(Throttle(15_000), "Metadata", times=1)
        client.ask()
        began = place.loop.time()
        await client.log_in(of(client, "PLAIN"))
        assert place.loop.time() - began > 15 > TIMEOUT
        assert await client.answered()

    run(place, test)


@pytest.mark.parametrize("answers", [0, 1])
def test_a_connection_that_is_retired_during_its_renewal_ends_when_the_last_answer_came(answers: int) -> None:
    place = world(config=ENDING)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        await asyncio.sleep(2)
        place.cluster.intercept(Delay(2), "Metadata" if answers else "SaslHandshake")
        asked = [client.ask() for _ in range(answers)]
        login = asyncio.get_running_loop().create_task(client.log_in(of(client, "PLAIN")))
        await turns(lambda: client.link.state is State.REAUTHENTICATING)
        await asyncio.sleep(0.5)
        client.link.retire()
        written = client.link.bytes_out
        with pytest.raises(DisconnectError):
            await login
        assert all(isinstance(each, Reply) for each in await asyncio.gather(*asked))
        await turns(lambda: client.lost)
        assert client.link.bytes_out == written, "nothing is begun on it any more"

    run(place, test)


def test_M10_an_overdue_answer_before_a_renewal_ends_the_connection_as_ever() -> None:
    place = world(config=ENDING)

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        await asyncio.sleep(2)
        place.cluster.intercept(Silence(), "Metadata")
        asked = client.ask(timeout=4)
        login = asyncio.get_running_loop().create_task(client.log_in(of(client, "PLAIN")))
        await asyncio.sleep(4.1)
        client.link.expire(place.loop.time())
        with pytest.raises(KafkaError, match="request_timeout_ms"):
            await login
        assert isinstance(await asked, Unknown)

    run(place, test)


def test_M09_a_broker_that_asked_for_silence_before_the_first_login_gets_it() -> None:
    """Seed 13 of the sweep, once seeds logged in."""
    place = world()
    place.cluster.intercept(Throttle(3_000), "ApiVersions")

    async def test(client: Client) -> None:
        began = place.loop.time()
        await client.log_in(of(client, "PLAIN"))
        assert place.loop.time() - began == pytest.approx(3.0, abs=0.05)
        assert await client.answered()

    run(place, test)


def test_M11_a_connection_that_is_given_up_has_nothing_to_renew() -> None:
    """Seed 123 of the sweep: until the last response or the TLS shutdown, a due renewal kept the driver busy."""
    place = world(config={"connections.max.reauth.ms": 3000})

    async def test(client: Client) -> None:
        await client.log_in(of(client, "PLAIN"))
        place.cluster.intercept(Delay(5), "Metadata")
        asked = client.ask()
        client.link.retire()
        assert client.link.state is State.DRAINING
        await asyncio.sleep(4)
        assert client.link.is_silent(place.loop.time())
        due = client.link.next_deadline()
        assert due is not None
        assert due > place.loop.time(), "nothing is to be done now"
        assert isinstance(await asked, Reply)

    run(place, test)


def test_M13_a_session_that_is_renewed_does_not_keep_an_idle_connection() -> None:
    place = world(config={"connections.max.reauth.ms": 5000})
    place.cluster.create_topic("orders")

    def handshakes() -> int:
        return sum(each.api is Api.SASL_HANDSHAKE for each in place.cluster.requests())

    async def test() -> None:
        given: dict[str, Any] = {**ANNA, "security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", "connections_max_idle_ms": 20_000}
        async with place.producer("client", **given) as producer:
            await (await producer.send("orders", b"value"))
            before = handshakes()
            await asyncio.sleep(19.0)
            assert handshakes() >= before + 3
            assert place.network.of_client("client")
            await asyncio.sleep(6.0)
            assert not place.network.of_client("client")

    with place:
        place.run(test())
