"""What a client makes of its sasl_ options, and the worker that its logins share."""
from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Callable, Coroutine, Generator
from random import Random
from typing import Any

import pytest

from pyclient import Producer
from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError, KafkaTimeoutError
from pyclient.plugins import Surroundings
from pyclient.net import authentication
from pyclient.runtime.environment import Environment, thread_reactor
from pyclient.net.sasl_login import WORKER, SaslClient
from pyclient.reactor.tasks import CancelledError, Task, all_done
from pyclient.runtime.network import in_a_thread
from pyclient.runtime.portals import LoopPortal, Portal, ThreadPortal
from tests.reactors import idle_portal, run_with_portal
from tests.waiting import eventually

ANNA: dict[str, Any] = {"sasl_plain_username": "anna", "sasl_plain_password": "marker-secret"}


def made(portal: Portal | None = None, **given: Any) -> SaslClient | None:
    options = {"bootstrap_servers": "broker-1:9092", "security_protocol": "SASL_PLAINTEXT", **given}
    return SaslClient.of(ProducerConfig.parse({}, options), Environment(), portal or idle_portal(), Random(1))


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_a_protocol_without_SASL_needs_no_login(protocol: str) -> None:
    assert made(security_protocol=protocol, sasl_mechanism="PLAIN") is None


@pytest.mark.parametrize(("given", "option"), [
    ({"sasl_mechanism": "PLAIN"}, "sasl_plain_username"),
    ({"sasl_mechanism": "SCRAM-SHA-512", "sasl_plain_username": "anna"}, "sasl_plain_password"),
    ({"sasl_mechanism": "OAUTHBEARER"}, "sasl_token_provider"),
    ({}, "sasl_kerberos_service_name"),
    ({"sasl_mechanism": "SCRAM-SHA-1", **ANNA}, "sasl_mechanism"),
    ({"sasl_mechanism": "no.such:Module", **ANNA}, "sasl_mechanism"),
])
@pytest.mark.parametrize("protocol", ["SASL_PLAINTEXT", "SASL_SSL"])
def test_a_missing_option_of_a_mechanism_is_raised_when_the_client_is_created(protocol: str, given: dict[str, Any], option: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        made(**{"security_protocol": protocol, **given})
    assert caught.value.option == option
    assert "marker" not in str(caught.value)


def test_the_error_for_an_unknown_mechanism_lists_the_known_ones() -> None:
    with pytest.raises(ConfigurationError, match=r"GSSAPI, OAUTHBEARER, PLAIN, SCRAM-SHA-256, SCRAM-SHA-512"):
        made(sasl_mechanism="SCRAM-SHA-1")


@pytest.mark.parametrize("protocol", ["PLAINTEXT", "SSL"])
def test_login_options_without_a_login_are_logged_as_ignored(protocol: str, caplog: pytest.LogCaptureFixture) -> None:
    made(security_protocol=protocol)
    assert not caplog.records
    made(security_protocol=protocol, sasl_mechanism="PLAIN", **ANNA)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert (f"security_protocol is {protocol}, which has no login; these options are ignored: sasl_mechanism, sasl_plain_password, sasl_plain_username"
            in record.getMessage())
    assert "marker" not in record.getMessage()


READABLE = [({"sasl_mechanism": "PLAIN", **ANNA}, "the password"), ({"sasl_mechanism": "OAUTHBEARER", "sasl_token_provider": lambda: "abc"}, "the token")]


@pytest.mark.parametrize(("given", "secret"), READABLE)
def test_what_is_sent_unencrypted_is_logged_once(given: dict[str, Any], secret: str, caplog: pytest.LogCaptureFixture) -> None:
    made(bootstrap_servers="localhost:9092,broker-1:9092,[2001:db8::1]:9092", **given)
    (record,) = caplog.records
    assert record.levelname == "WARNING"
    assert f"{given['sasl_mechanism']}: {secret} is sent unencrypted to broker-1:9092, [2001:db8::1]:9092; use SASL_SSL" in record.getMessage()
    assert "marker" not in record.getMessage()


@pytest.mark.parametrize(("given", "secret"), READABLE)
@pytest.mark.parametrize("servers", ["localhost:9092", "LOCALHOST:1,127.0.0.1:2,127.8.9.10:3,[::1]:4"])
def test_no_warning_for_unencrypted_secrets_on_the_loopback_interface(given: dict[str, Any], secret: str, servers: str, caplog: pytest.LogCaptureFixture) -> None:
    made(bootstrap_servers=servers, **given)
    assert not caplog.records


@pytest.mark.parametrize(("given", "secret"), READABLE)
def test_no_warning_for_TLS_and_mechanisms_that_send_no_secret(given: dict[str, Any], secret: str, caplog: pytest.LogCaptureFixture) -> None:
    made(**{**given, "security_protocol": "SASL_SSL"})
    made(sasl_mechanism="SCRAM-SHA-512", **ANNA)
    assert not caplog.records
    made(security_protocol="PLAINTEXT", **given)
    assert "sent unencrypted" not in caplog.text


def test_a_client_warns_once_whatever_it_does(caplog: pytest.LogCaptureFixture) -> None:
    given: dict[str, Any] = {"security_protocol": "SASL_PLAINTEXT", "sasl_mechanism": "PLAIN", **ANNA}
    with Producer(bootstrap_servers="broker.invalid:9092", max_block_ms=50, **given) as producer:
        for _ in range(2):
            with pytest.raises(KafkaTimeoutError):
                producer.send("orders", b"value")
    assert caplog.text.count("is sent unencrypted") == 1


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_a_password_by_a_function_may_be_accepted_after_a_refusal(mechanism: str) -> None:
    logins = made(sasl_mechanism=mechanism, sasl_plain_username="anna", sasl_plain_password=lambda: "hunter2")
    assert logins is not None
    assert logins.may_change


@pytest.mark.parametrize(("mechanism", "changes"), [("PLAIN", False), ("SCRAM-SHA-256", False), ("OAUTHBEARER", True)])
def test_only_what_changes_may_be_accepted_after_a_refusal(mechanism: str, changes: bool) -> None:
    logins = made(sasl_mechanism=mechanism, sasl_token_provider=lambda: "abc", **ANNA)
    assert logins is not None
    assert logins.may_change is changes
    assert repr(logins) == f"<SaslClient {mechanism}>"


class Seen:
    """A mechanism that records its calls."""

    name = "SEEN"
    blocking = False
    calls: list[object]

    def __init__(self) -> None:
        Seen.calls = []

    def exchange(self, config: Any, host: str, /) -> Any:
        yield b""

    def run_in(self, surroundings: Surroundings, /) -> None:
        self.calls.append(surroundings.wall)

    def check(self, config: Any, /) -> None:
        self.calls.append(config.sasl_plain_username)

    def close(self) -> None:
        self.calls.append("closed")


def test_a_mechanism_gets_its_surroundings_then_the_options_and_is_closed_at_the_end() -> None:
    logins = made(sasl_mechanism=f"{__name__}:Seen", **ANNA)
    assert logins is not None
    assert isinstance(logins.credentials("broker-1", "broker 1").mechanism, Seen)
    assert Seen.calls == [Environment().wall, "anna"]
    logins.close()
    assert Seen.calls[2:] == ["closed"]
    assert not logins.may_change


def test_work_runs_in_its_own_thread_and_its_failure_is_raised() -> None:
    async def test(portal: LoopPortal) -> None:
        logins = made(portal, sasl_mechanism="PLAIN", **ANNA)
        assert logins is not None
        name = await logins.in_worker(lambda: threading.current_thread().name)
        assert name.startswith(WORKER)
        assert await logins.in_worker(lambda: threading.current_thread().name) == name
        with pytest.raises(LookupError):
            await logins.in_worker(lambda: {}["nothing"])  # type: ignore[index] # raises
        logins.close()

    run_with_portal(test)


def test_a_caller_cancelled_while_a_worker_is_busy_gets_no_result() -> None:
    async def test(portal: LoopPortal) -> None:
        logins = made(portal, sasl_mechanism="PLAIN", **ANNA)
        assert logins is not None
        begun, go = threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            assert go.wait(20)

        waiting = Task(portal.reactor, logins.in_worker(work))
        await in_a_thread(portal.reactor, lambda: begun.wait(20))
        waiting.cancel()
        await all_done(portal.reactor, [waiting])
        go.set()
        await logins.in_worker(lambda: None)
        logins.close()

    run_with_portal(test)


def run_in_thread(main: Callable[[ThreadPortal, SaslClient], Coroutine[Any, Any, None]]) -> None:
    """Run *main* as a task of a sync client."""
    portal = ThreadPortal("test", thread_reactor())
    portal.start()
    logins = made(portal, sasl_mechanism="PLAIN", **ANNA)
    assert logins is not None
    try:
        portal.call(lambda: main(portal, logins))
    finally:
        portal.stop()


def test_awaitables_of_a_sync_clients_logins_share_a_loop_that_is_closed_with_it() -> None:
    loops: list[asyncio.AbstractEventLoop] = []

    async def note() -> None:
        loops.append(asyncio.get_running_loop())

    async def test(_: ThreadPortal, logins: SaslClient) -> None:
        await logins.awaited(note())
        await logins.awaited(note())
        logins.close()
        logins.close()

    run_in_thread(test)
    assert loops[0] is loops[1]
    eventually(loops[0].is_closed)


def test_of_work_that_waits_for_a_busy_worker_close_begins_none() -> None:
    begun, go = threading.Event(), threading.Event()
    calls: list[str] = []

    def work() -> None:
        begun.set()
        go.wait(20)

    async def test(portal: ThreadPortal, logins: SaslClient) -> None:
        busy = Task(portal.reactor, logins.in_worker(work))
        waiting = Task(portal.reactor, logins.in_worker(lambda: calls.append("waiting")))
        await in_a_thread(portal.reactor, lambda: begun.wait(20))
        logins.close()
        go.set()
        await all_done(portal.reactor, [busy])
        waiting.cancel()

    run_in_thread(test)
    eventually(lambda: not any(thread.name.startswith(WORKER) for thread in threading.enumerate()))
    assert not calls


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt, asyncio.CancelledError])
def test_an_awaitable_that_would_end_a_program_counts_as_cancelled(error: type[BaseException]) -> None:
    async def raises() -> None:
        raise error

    async def raises_beside() -> None:
        await asyncio.get_running_loop().create_task(raises())

    async def returns() -> str:
        return "usable"

    async def test(_: ThreadPortal, logins: SaslClient) -> None:
        for each in (raises, raises_beside):
            with pytest.raises(CancelledError) as caught:
                await logins.awaited(each())
            assert isinstance(caught.value.__cause__, error)
            assert await logins.awaited(returns()) == "usable"
        logins.close()

    run_in_thread(test)


def test_an_abandoned_exchange_is_closed_at_once() -> None:
    def steps() -> Generator[int, None, None]:
        yield 1

    async def never(_wish: int) -> None:
        await asyncio.get_running_loop().create_future()

    async def test() -> None:
        exchange = steps()
        waiting = asyncio.get_running_loop().create_task(authentication.run_exchange(exchange, never))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        assert inspect.getgeneratorstate(exchange) == inspect.GEN_CLOSED

    asyncio.run(test())
