"""One login as an exchange: its requests, work and waits, the effect of each response, and that it ends (M11)."""
from __future__ import annotations

import functools
from collections.abc import Callable, Generator
from datetime import timedelta
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.codec.apis import SPOKEN, Api, VersionRange
from pyclient.core.handshake import HandshakeRequest, Versions
from pyclient.core.sasl import ROUNDS, Credentials, LoginExchange, Wait, Work, log_in
from pyclient.core.session import renewal_after, usable_for
from pyclient.errors import (
    AuthenticationError, DisconnectError, IllegalSaslStateError, KafkaError, ProtocolError, ResponseTimeoutError, SaslAuthenticationError, TokenUnavailableError,
    UnsupportedSaslMechanismError, UnsupportedVersionError,
)
from tests.unit.core.world import answer

RANGES: dict[int, VersionRange] = {int(api): limits for api, limits in SPOKEN.items()}
EVERYTHING = Versions(RANGES)
Steps = Generator[Any, Any, None]


class Mechanism:
    """Follows a script."""

    name = "SCRIPTED"
    options = ("sasl_plain_username", "sasl_plain_password")

    def __init__(self, exchange: Callable[[], Steps], *, blocking: bool = False) -> None:
        self._exchange = exchange
        self.blocking = blocking

    def exchange(self, config: Any, host: str, /) -> Steps:
        assert (config, host) == ("the config", "broker-1")
        return self._exchange()


def login(exchange: Callable[[], Steps], versions: Versions = EVERYTHING, *, blocking: bool = False, hide: Callable[[str], str] = str) -> LoginExchange:
    return log_in(Credentials(mechanism=Mechanism(exchange, blocking=blocking), config="the config", host="broker-1", hide=hide), versions)


def one_message() -> Steps:
    yield b"hello"


def shaken(error: int = 0, *mechanisms: str) -> Any:
    return answer(Api.SASL_HANDSHAKE, 1, error_code=error, mechanisms=list(mechanisms))


def said(data: bytes = b"", error: int = 0, words: str | None = None, lifetime_ms: int = 0, version: int = 2) -> Any:
    return answer(Api.SASL_AUTHENTICATE, version, error_code=error, error_message=words, auth_bytes=data, session_lifetime=timedelta(milliseconds=lifetime_ms))


def ends(exchange: LoginExchange, message: Any) -> float | None:
    with pytest.raises(StopIteration) as ended:
        exchange.send(message)
    lifetime: float | None = ended.value.value
    return lifetime


def begun(exchange: LoginExchange) -> LoginExchange:
    """Past the handshake."""
    assert next(exchange) == HandshakeRequest(Api.SASL_HANDSHAKE, 1, {"mechanism": "SCRIPTED"})
    assert exchange.send(shaken()) == HandshakeRequest(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"hello"})
    return exchange


# ---- what is asked --------------------------------------------------------------------------------------------------


def test_a_login_names_its_mechanism_and_then_sends_its_messages() -> None:
    heard: list[bytes] = []

    def two_messages() -> Steps:
        heard.append((yield b"hello"))
        heard.append((yield bytearray(b"again")))

    exchange = begun(login(two_messages))
    assert exchange.send(said(b"first")) == HandshakeRequest(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"again"})
    assert ends(exchange, said(b"second")) is None
    assert heard == [b"first", b"second"]


@pytest.mark.parametrize("high", [0, 1, 2])
def test_the_highest_common_version_of_SaslAuthenticate_is_used(high: int) -> None:
    exchange = login(one_message, Versions({**RANGES, Api.SASL_AUTHENTICATE: VersionRange(0, high)}))
    next(exchange)
    assert exchange.send(shaken()) == HandshakeRequest(Api.SASL_AUTHENTICATE, high, {"auth_bytes": b"hello"})
    assert ends(exchange, said(version=high, lifetime_ms=7000)) == (7.0 if high else None)


@pytest.mark.parametrize("api", [Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE])
def test_M15_a_broker_without_SaslAuthenticate_is_named_too_old(api: Api) -> None:
    exchange = login(one_message, Versions({**RANGES, api: VersionRange(0, 0)} if api is Api.SASL_HANDSHAKE else {Api.SASL_HANDSHAKE: VersionRange(0, 1)}))
    with pytest.raises(UnsupportedVersionError, match=api.title):
        next(exchange)
        exchange.send(shaken())


def test_the_session_lifetime_is_in_seconds_and_0_means_unlimited() -> None:
    assert ends(begun(login(one_message)), said(lifetime_ms=1500)) == 1.5
    assert ends(begun(login(one_message)), said(lifetime_ms=0)) is None
    assert ends(begun(login(one_message)), said(lifetime_ms=-5)) is None


# ---- what the mechanism needs ---------------------------------------------------------------------------------------


def test_a_blocking_mechanism_runs_in_a_worker_only() -> None:
    where: list[str] = []

    def steps() -> Steps:
        where.append("first")
        yield b"hello"
        where.append("second")

    exchange = login(steps, blocking=True)
    work = next(exchange)
    assert where == []
    assert isinstance(work, Work)
    assert exchange.send(work.run()) == HandshakeRequest(Api.SASL_HANDSHAKE, 1, {"mechanism": "SCRIPTED"})
    assert exchange.send(shaken()) == HandshakeRequest(Api.SASL_AUTHENTICATE, 2, {"auth_bytes": b"hello"})
    work = exchange.send(said())
    assert where == ["first"]
    assert isinstance(work, Work)
    assert ends(exchange, work.run()) is None


async def _given() -> str:
    return "unused"


def test_an_awaitable_of_a_mechanism_is_awaited_by_the_runtime_and_its_result_sent() -> None:
    def steps() -> Steps:
        yield (yield given_)

    given_ = _given()
    exchange = login(steps)
    wait = next(exchange)
    assert wait == Wait(given_)
    assert exchange.send(b"hello") == HandshakeRequest(Api.SASL_HANDSHAKE, 1, {"mechanism": "SCRIPTED"})
    given_.close()


def test_a_failure_of_an_awaitable_is_thrown_into_the_mechanism() -> None:
    def steps() -> Steps:
        try:
            yield given_
        except LookupError:
            yield b"hello"

    given_ = _given()
    exchange = login(steps)
    next(exchange)
    assert isinstance(exchange.throw(LookupError("no token")), HandshakeRequest)
    given_.close()


def test_M11_the_first_message_is_made_before_any_request() -> None:
    def steps() -> Steps:
        raise TokenUnavailableError("the endpoint is away")
        yield b""

    with pytest.raises(TokenUnavailableError, match="away"):
        next(login(steps))


def raises_something() -> Steps:
    raise LookupError("the marker secret")
    yield b""


def yields_text() -> Steps:
    yield "hello"


def yields_nothing() -> Steps:
    yield None


def says_nothing() -> Steps:
    return
    yield b""


@pytest.mark.parametrize("blocking", [False, True])
@pytest.mark.parametrize(("steps", "expected"), [
    (raises_something, "failed: LookupError"), (yields_text, "yielded a str"), (yields_nothing, "yielded None"), (says_nothing, "ended without a message"),
])
def test_a_mechanism_that_yields_something_else_is_named(steps: Callable[[], Steps], expected: str, blocking: bool) -> None:
    with pytest.raises(SaslAuthenticationError, match=f"SCRIPTED.*{expected}") as caught:
        driven(login(steps, blocking=blocking, hide=lambda text: text.replace("marker secret", "[hidden]")), lambda ask: shaken())
    assert "marker" not in str(caught.value)


def driven(exchange: LoginExchange, reply: Callable[[HandshakeRequest], Any]) -> float | None:
    """Run an exchange whose answers *reply* gives; what it raises is thrown in."""
    step: Callable[[], Any] = functools.partial(next, exchange)
    while True:
        try:
            wish = step()
        except StopIteration as end:
            lifetime: float | None = end.value
            return lifetime
        try:
            came = wish.run() if isinstance(wish, Work) else reply(wish)
        except Exception as error:  # noqa: BLE001 as the runtime does
            step = functools.partial(exchange.throw, error)
        else:
            step = functools.partial(exchange.send, came)


# ---- refusals -------------------------------------------------------------------------------------------------------


def test_the_error_for_a_mechanism_not_offered_lists_the_offered_ones_and_the_option() -> None:
    exchange = login(one_message)
    next(exchange)
    with pytest.raises(UnsupportedSaslMechanismError, match=r"SCRIPTED; it offers PLAIN, SCRAM-SHA-512: set sasl_mechanism"):
        exchange.send(shaken(33, "PLAIN", "SCRAM-SHA-512"))


def test_a_listener_without_SASL_says_so() -> None:
    exchange = login(one_message)
    next(exchange)
    with pytest.raises(IllegalSaslStateError, match="security_protocol"):
        exchange.send(shaken(34))


def test_a_refusal_has_the_brokers_text_and_the_options_to_check_and_no_secret() -> None:
    exchange = begun(login(one_message, hide=lambda text: text.replace("hunter2", "[hidden]")))
    with pytest.raises(SaslAuthenticationError, match=r"SCRIPTED: Invalid password \[hidden\]; check sasl_plain_username and sasl_plain_password") as caught:
        exchange.send(said(error=58, words="Invalid password hunter2."))
    assert "hunter2" not in repr(caught.value)


def broken_hide(text: str) -> str:
    raise RuntimeError(text)


@pytest.mark.parametrize("hide", [broken_hide, lambda text: None])
def test_a_refusal_is_raised_even_if_the_mechanism_fails_to_hide_its_secrets(hide: Callable[[str], Any]) -> None:
    """As another error it would be tried again, and lock the account."""
    mechanism: Any = Mechanism(one_message)
    mechanism.hide = hide
    exchange = begun(log_in(Credentials(mechanism=mechanism, config="the config", host="broker-1"), EVERYTHING))
    with pytest.raises(SaslAuthenticationError, match="not shown") as caught:
        exchange.send(said(error=58, words="Invalid marker-secret"))
    assert "marker" not in repr(caught.value)


@pytest.mark.parametrize(("options", "advice"), [("sasl_x", "check sasl_x"), (None, "check the sasl_ options"), (7, "check the sasl_ options"), (["a", 7], "check a and 7")])
def test_the_options_to_check_are_named_however_a_mechanism_declares_them(options: Any, advice: str) -> None:
    mechanism: Any = Mechanism(one_message)
    mechanism.options = options
    exchange = begun(log_in(Credentials(mechanism=mechanism, config="the config", host="broker-1"), EVERYTHING))
    with pytest.raises(SaslAuthenticationError, match=f"; {advice}$"):
        exchange.send(said(error=58, words="no"))


def test_a_brokers_text_is_bounded_and_stays_on_one_line() -> None:
    with pytest.raises(SaslAuthenticationError) as caught:
        begun(login(one_message)).send(said(error=58, words="one\nline\x1b[31m" + "x" * 30_000))
    assert len(str(caught.value)) < 800
    assert str(caught.value).isprintable()


def test_a_refusal_without_a_text_says_so() -> None:
    with pytest.raises(SaslAuthenticationError, match="no reason given"):
        begun(login(one_message)).send(said(error=58))


def test_another_error_is_raised_as_its_code() -> None:
    with pytest.raises(IllegalSaslStateError, match="not now"):
        begun(login(one_message)).send(said(error=34, words="not now"))


def test_a_mechanism_may_explain_a_refusal() -> None:
    def steps() -> Steps:
        try:
            yield b"hello"
        except SaslAuthenticationError as refused:
            raise SaslAuthenticationError(f"{refused.message}, for the token has expired") from None

    with pytest.raises(SaslAuthenticationError, match="Unknown; check .* expired"):
        begun(login(steps)).send(said(error=58, words="Unknown"))


@pytest.mark.parametrize("blocking", [False, True])
def test_a_mechanism_that_continues_or_raises_after_a_refusal_changes_nothing(blocking: bool) -> None:
    def goes_on() -> Steps:
        while True:
            try:
                yield b"hello"
            except SaslAuthenticationError:
                continue

    def fails() -> Steps:
        try:
            yield b"hello"
        except SaslAuthenticationError:
            raise LookupError from None

    for steps in (goes_on, fails):
        with pytest.raises(SaslAuthenticationError, match="Unknown"):
            driven(login(steps, blocking=blocking), lambda ask: shaken() if ask.api is Api.SASL_HANDSHAKE else said(error=58, words="Unknown"))


def test_when_the_peer_closes_on_SaslHandshake_the_error_suspects_a_listener_without_SASL() -> None:
    exchange = login(one_message)
    next(exchange)
    with pytest.raises(DisconnectError, match=r"gone.*security_protocol"):
        exchange.throw(DisconnectError("gone"))


def test_when_the_peer_closes_before_a_renewal_the_failure_is_raised_unchanged() -> None:
    exchange = log_in(Credentials(mechanism=Mechanism(one_message), config="the config", host="broker-1"), EVERYTHING, again=True)
    next(exchange)
    with pytest.raises(DisconnectError) as caught:
        exchange.throw(DisconnectError("gone"))
    assert str(caught.value) == "gone"


def test_when_the_peer_closes_during_the_login_the_error_suspects_a_refusal() -> None:
    with pytest.raises(DisconnectError, match=r"gone.*disconnect instead of refusing: check sasl_plain_username"):
        begun(login(one_message)).throw(DisconnectError("gone"))


@pytest.mark.parametrize("failure", [ProtocolError("noise"), ResponseTimeoutError("late")])
def test_other_failures_are_raised_unchanged(failure: KafkaError) -> None:
    with pytest.raises(type(failure), match=str(failure)):
        begun(login(one_message)).throw(failure)


# ---- the end --------------------------------------------------------------------------------------------------------


def test_a_login_with_too_many_rounds_is_ended() -> None:
    def endless() -> Steps:
        while True:
            yield b"hello"

    asked: list[HandshakeRequest] = []

    def reply(ask: HandshakeRequest) -> Any:
        asked.append(ask)
        return shaken() if ask.api is Api.SASL_HANDSHAKE else said(b"go on")

    with pytest.raises(SaslAuthenticationError, match="did not end within"):
        driven(login(endless), reply)
    assert len(asked) == 1 + ROUNDS


def test_the_mechanism_is_closed_whatever_happens() -> None:
    closed: list[bool] = []

    def steps() -> Steps:
        try:
            yield b"hello"
        finally:
            closed.append(True)

    kept = [steps(), steps()]  # not by the collector
    begun(login(lambda: kept[0])).close()
    with pytest.raises(DisconnectError):
        begun(login(lambda: kept[1])).throw(DisconnectError("gone"))
    assert closed == [True, True]


ANSWERS = st.one_of(
    st.builds(shaken, st.sampled_from([0, 33, 34, 35, -1, 999]), st.text(max_size=40)),
    st.builds(said, st.binary(max_size=60), st.sampled_from([0, 0, 0, 58, 34, -1, 999]), st.none() | st.text(max_size=60), st.integers(-(2**40), 2**40)),
    st.sampled_from([DisconnectError("gone"), ProtocolError("noise"), ResponseTimeoutError("late")]),
)


@given(answers=st.lists(ANSWERS, max_size=ROUNDS + 4), messages=st.integers(0, ROUNDS + 4), blocking=st.booleans())
def test_every_login_ends_whatever_the_responses(answers: list[Any], messages: int, blocking: bool) -> None:
    """With a lifetime or a KafkaError, after so many questions at most, and never with another exception."""
    def steps() -> Steps:
        for _ in range(messages):
            yield b"hello"

    asked: list[HandshakeRequest] = []

    def reply(ask: HandshakeRequest) -> Any:
        asked.append(ask)
        given_ = answers[len(asked) - 1] if len(asked) <= len(answers) else DisconnectError("no more answers")
        if isinstance(given_, Exception):
            raise given_
        fits = hasattr(given_, "mechanisms") == (ask.api is Api.SASL_HANDSHAKE)  # another API's answer would not have been decoded
        if not fits:
            raise ProtocolError("does not decode")
        return given_

    try:
        lifetime = driven(login(steps, blocking=blocking), reply)
    except KafkaError:
        pass
    else:
        assert messages > 0
        assert lifetime is None or lifetime > 0
    assert len(asked) <= 1 + ROUNDS


# ---- again ----------------------------------------------------------------------------------------------------------


@given(lifetime=st.floats(0.001, 1e9), seed=st.integers())
def test_M11_a_session_is_renewed_after_85_to_95_percent_of_its_lifetime(lifetime: float, seed: int) -> None:
    after = renewal_after(lifetime, Random(seed))
    assert max(1.1, min(0.85 * lifetime, lifetime - 0.5)) <= after <= max(1.1, min(0.95 * lifetime, lifetime - 0.5))


@given(lifetime=st.floats(0.001, 1e9))
def test_M11_nothing_is_written_in_the_last_moments_of_a_session(lifetime: float) -> None:
    assert min(0.5, lifetime / 10) == pytest.approx(lifetime - usable_for(lifetime))


def test_M11_connections_are_not_renewed_all_at_once() -> None:
    random = Random(1)
    assert len({round(renewal_after(1000, random)) for _ in range(50)}) > 20


def test_no_repr_of_a_login_shows_a_secret() -> None:
    shown = repr(Credentials(mechanism=Mechanism(one_message), config="hunter2", host="broker-1"))
    assert "hunter2" not in shown
    assert issubclass(SaslAuthenticationError, AuthenticationError)
