"""Token functions and mechanisms that misbehave: waiting callers get the reason, and the client can be closed."""
from __future__ import annotations

import asyncio
import logging
import threading
from collections.abc import Callable, Generator, Iterator
from typing import Any, ClassVar, Final

import pytest

from pyclient import Producer
from pyclient.errors import ConfigurationError, KafkaError, SaslAuthenticationError
from pyclient.plugins import OAuthToken
from pyclient.testing import FakeCluster
from pyclient.testing.tokens import unsecured_token
from tests.waiting import eventually

USER: Final = "anna"
ENDS_PROGRAMS: Final = [SystemExit, KeyboardInterrupt, asyncio.CancelledError]


@pytest.fixture
def kafka() -> Iterator[FakeCluster]:
    with FakeCluster(sasl={USER: "secret"}) as cluster:
        cluster.create_topic("orders")
        yield cluster


def producer(kafka: FakeCluster, mechanism: str = "OAUTHBEARER", **options: Any) -> Producer:
    return Producer(bootstrap_servers=kafka.bootstrap_servers, security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, **options)


def once(failure: type[BaseException]) -> Callable[[], str]:
    """Gives a token, but for the first time."""
    failures = iter([failure])

    def token() -> str:
        for each in failures:
            raise each
        return unsecured_token(USER)

    return token


@pytest.mark.parametrize("failure", ENDS_PROGRAMS)
def test_a_token_function_that_ends_programs_ends_its_login_and_waiting_callers_get_the_error(kafka: FakeCluster, failure: type[BaseException]) -> None:
    with producer(kafka, sasl_token_provider=once(failure)) as sender, pytest.raises(KafkaError, match=failure.__name__):
        sender.send("orders", b"").result(20)


@pytest.mark.parametrize("failure", ENDS_PROGRAMS)
def test_an_async_token_function_that_ends_programs_does_not_end_the_clients_loop(kafka: FakeCluster, failure: type[BaseException]) -> None:
    token = once(failure)

    async def later() -> str:
        await asyncio.sleep(0)
        return token()

    with producer(kafka, sasl_token_provider=later) as sender:
        assert sender.send("orders", b"").result(20).offset == 0


def test_an_async_token_function_that_always_cancels_itself_is_named_and_called_after_back_offs(kafka: FakeCluster) -> None:
    asked: list[None] = []

    async def token() -> str:
        asked.append(None)
        raise asyncio.CancelledError

    with producer(kafka, sasl_token_provider=token, max_block_ms=300, reconnect_backoff_ms=100) as sender, pytest.raises(KafkaError, match="CancelledError"):
        sender.send("orders", b"")
    assert 1 <= len(asked) <= 4


def test_a_client_that_is_closed_during_a_login_logs_no_failure(kafka: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    asked = threading.Event()

    async def token() -> str:
        asked.set()
        await asyncio.Event().wait()
        return ""

    with caplog.at_level(logging.DEBUG, "pyclient"), producer(kafka, sasl_token_provider=token, max_block_ms=10) as sender:
        with pytest.raises(KafkaError):
            sender.send("orders", b"")
        assert asked.wait(20)
    assert "failed" not in caplog.text


def test_a_session_is_renewed_by_the_old_token_when_a_token_function_cancels_itself(kafka: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    again = threading.Event()
    failures = iter([None, asyncio.CancelledError])

    async def token() -> OAuthToken:
        for failure in failures:
            if failure is not None:
                raise failure
            break
        else:
            again.set()
        return OAuthToken(unsecured_token(USER, 3.0))

    with producer(kafka, sasl_token_provider=token) as sender:
        sender.send("orders", b"").result(20)
        assert again.wait(20)
        assert sender.send("orders", b"").result(20).offset == 1
    assert "sasl_token_provider raised CancelledError" in caplog.text
    assert "re-authentication failed" not in caplog.text


def test_a_renewal_whose_mechanism_cancels_itself_is_tried_again(kafka: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with producer(kafka, f"{__name__}:CancelledOnce") as sender:
        sender.send("orders", b"").result(20)
        CancelledOnce.next.append("cancelled")
        eventually(lambda: CancelledOnce.next == ["let in"])
        assert sender.send("orders", b"").result(20).offset == 1
    assert "a function for tokens or passwords, or a mechanism, raised CancelledError" in caplog.text


class CancelledOnce:
    """A mechanism that awaits what is cancelled on command, and logs in the next time."""

    name = "OAUTHBEARER"
    blocking = False
    next: ClassVar[list[str]] = []

    def exchange(self, _config: Any, _host: str, /) -> Generator[Any, Any, None]:
        if self.next == ["cancelled"]:
            self.next.append("let in")
            yield self._cancelled()
        del self.next[:-1]
        yield f"n,,\x01auth=Bearer {unsecured_token(USER, 3.0)}\x01\x01".encode()

    async def _cancelled(self) -> None:
        raise asyncio.CancelledError


# ---- mechanisms -----------------------------------------------------------------------------------------------------


class Plain:
    """A mechanism as users write them."""

    name = "PLAIN"
    blocking = False

    def exchange(self, _config: Any, _host: str, /) -> Generator[bytes, bytes, None]:
        yield b"\0anna\0secret"


class Nameless:
    blocking = False

    def exchange(self, _config: Any, _host: str, /) -> Generator[bytes, bytes, None]:
        yield b""


class Numbered(Plain):
    name = 5  # type: ignore[assignment] # as users do


class Awaited(Plain):
    async def exchange(self, _config: Any, _host: str, /) -> None:  # type: ignore[override] # as users do
        ...


class AwaitedSteps(Plain):
    async def exchange(self, _config: Any, _host: str, /) -> Any:
        yield b""


class Stubborn(Plain):
    def close(self) -> None:
        raise LookupError("on purpose")


@pytest.mark.parametrize(("mechanism", "wrong"), [
    (Nameless, "name"), (Numbered, "name"), (Awaited, "async"), (AwaitedSteps, "async"),
])
def test_a_mechanism_that_cannot_work_is_refused_when_a_client_is_made(mechanism: type, wrong: str) -> None:
    spec = f"{__name__}:{mechanism.__name__}"
    with pytest.raises(ConfigurationError, match=wrong) as caught:
        Producer(bootstrap_servers="localhost:1", security_protocol="SASL_PLAINTEXT", sasl_mechanism=spec)
    assert caught.value.option == "sasl_mechanism"
    assert spec in str(caught.value)


def test_a_mechanism_whose_close_raises_does_not_prevent_the_client_from_closing(kafka: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    before = {*threading.enumerate()}
    with producer(kafka, f"{__name__}:Stubborn") as sender:
        assert sender.send("orders", b"").result(20).offset == 0
    assert {*threading.enumerate()} <= before
    assert "close" in caplog.text
    assert "LookupError" in caplog.text


def test_what_a_mechanism_raises_ends_the_login_and_is_raised(kafka: FakeCluster) -> None:
    with producer(kafka, f"{__name__}:Raising") as sender, pytest.raises(SaslAuthenticationError, match="the mechanism PLAIN failed: .*SystemExit"):
        sender.send("orders", b"").result(20)


class Raising(Plain):
    blocking = True

    def exchange(self, config: Any, host: str, /) -> Generator[bytes, bytes, None]:
        yield from super().exchange(config, host)
        raise SystemExit("on purpose")
