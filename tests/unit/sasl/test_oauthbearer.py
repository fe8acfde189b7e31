"""OAUTHBEARER (RFC 7628): the message, the broker's error, and where tokens come from."""
from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient import foreign_options
from pyclient.config import ProducerConfig
from pyclient.errors import ConfigurationError, SaslAuthenticationError
from pyclient.plugins import OAuthToken
from pyclient.sasl.oauthbearer import OAuthBearer, rejection
from tests.unit.sasl.exchanges import Wall, exchanged, options

TOKEN = OAuthToken("marker-secret")


def given_by_name() -> str:
    """What a name of a function leads to."""
    return "abc"


@pytest.fixture(autouse=True)
def _fresh(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(foreign_options, "_warned", {("librdkafka", "")})  # of its other defaults, once in a process


async def coroutine() -> str:
    await asyncio.sleep(0)
    return "abc"


class WithAwaitable:
    def __call__(self) -> Any:
        return coroutine()


class TheirProvider:
    """kafka-python's and aiokafka's shape: an object with token() and extensions()."""

    def token(self) -> Any:
        return "abc"

    def extensions(self) -> dict[str, str]:
        return {"logicalCluster": "lkc-1"}


class TheirAsyncProvider(TheirProvider):
    async def token(self) -> Any:
        return "abc"


@pytest.mark.parametrize("provider", [lambda: "abc", coroutine, WithAwaitable(), lambda: ("abc", 2e9), lambda: OAuthToken("abc")])
def test_a_token_of_any_provider_is_sent(provider: Any) -> None:
    assert exchanged(OAuthBearer(), options(sasl_token_provider=provider), lambda message: b"") == [b"n,,\x01auth=Bearer abc\x01\x01"]


def test_a_function_may_be_named_where_only_texts_can_be_given() -> None:
    config = options(sasl_token_provider="tests.unit.sasl.test_oauthbearer:given_by_name")
    assert exchanged(OAuthBearer(), config, lambda message: b"") == [b"n,,\x01auth=Bearer abc\x01\x01"]


@pytest.mark.parametrize(("name", "said"), [
    ("nowhere.at_all:token", "No module named 'nowhere'"), ("json:token", "the module 'json' has no function of that name"), ("json:hunter2", "the module 'json' has no function of that name"), ("json:__name__", "expected a function, got str"),
], ids=range(4))
def test_a_name_of_no_function_is_refused_when_the_client_is_created(name: str, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said) as caught:
        OAuthBearer().check(options(sasl_token_provider=name))
    assert caught.value.option == "sasl_token_provider"
    assert "hunter2" not in str(caught.value), "it may have been a token"


@pytest.mark.filterwarnings("ignore::pyclient.foreign_options.OptionWarning")
@pytest.mark.parametrize("text", ["token", "a marker-secret", "marker:", ":marker", "marker: x", "marker.secret.x"], ids=range(6))
@pytest.mark.parametrize("name", ["sasl_token_provider", "oauth_cb"])
def test_a_token_itself_is_no_provider_and_is_not_shown(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=r"expected a callable or 'package\.module:function'|not allowed to be a str") as caught:
        ProducerConfig.parse({name: text})
    assert caught.value.option == "sasl_token_provider"
    assert "marker" not in str(caught.value)


@pytest.mark.parametrize("provider", [TheirProvider(), TheirAsyncProvider()])
def test_providers_of_kafka_python_and_aiokafka_are_accepted(provider: Any) -> None:
    with pytest.warns(UserWarning, match="sasl_token_provider"):
        config = options(sasl_oauth_token_provider=provider)
    assert exchanged(OAuthBearer(), config, lambda message: b"") == [b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"]


def test_librdkafkas_callback_is_accepted() -> None:
    seen = []

    def oauth_cb(config: str) -> tuple[str, float, str, dict[str, str]]:
        seen.append(config)
        return "abc", 2e9, "anna", {"logicalCluster": "lkc-1"}

    with pytest.warns(UserWarning, match="sasl_token_provider"):
        config = options(oauth_cb=oauth_cb)
    assert exchanged(OAuthBearer(), config, lambda message: b"") == [b"n,,\x01auth=Bearer abc\x01logicalCluster=lkc-1\x01\x01"]
    assert seen == [""]


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"": "x"}, {"a b": "x"}, {"a": ""}, {"a": "x\x01y"}, {"a": 5}, {5: "a"}])
def test_an_extension_that_cannot_be_sent_is_refused(extensions: Any) -> None:
    with pytest.raises(ConfigurationError, match="extension"):
        exchanged(OAuthBearer(), options(sasl_token_provider=lambda: OAuthToken("abc", None, extensions)), lambda message: b"")


def test_without_a_way_to_get_tokens_the_option_is_named() -> None:
    with pytest.raises(ConfigurationError, match="sasl_oauthbearer_token_endpoint_url") as caught:
        OAuthBearer().check(options())
    assert caught.value.option == "sasl_token_provider"


def test_two_ways_to_get_tokens_are_refused() -> None:
    both = options(sasl_token_provider=lambda: "abc", sasl_oauthbearer_token_endpoint_url="https://id.example/token")
    with pytest.raises(ConfigurationError, match="two sources") as caught:
        OAuthBearer().check(both)
    assert caught.value.option == "sasl_token_provider"


# ---- what the broker says -------------------------------------------------------------------------------------------


def test_the_brokers_error_is_acknowledged_and_raised() -> None:
    steps = OAuthBearer().exchange(options(sasl_token_provider=lambda: "marker-secret"), "host")
    next(steps)
    assert steps.send(b'{"status":"invalid_token","scope":"kafka"}') == b"\x01"
    with pytest.raises(SaslAuthenticationError, match=r"refused.*status invalid_token, scope kafka"):
        steps.throw(SaslAuthenticationError("the broker refused the login"))


def test_a_broker_that_accepts_after_an_error_is_refused() -> None:
    with pytest.raises(SaslAuthenticationError, match="rejected the token: status invalid_token"):
        exchanged(OAuthBearer(), options(sasl_token_provider=lambda: "abc"), lambda message: b'{"status":"invalid_token"}' if message != b"\x01" else b"")


def test_a_token_that_was_refused_is_fetched_again_for_the_next_login() -> None:
    wall, given_ = Wall(), iter(["first", "second", "third"])
    mechanism = OAuthBearer()
    mechanism.run_in(wall.surroundings())
    config = options(sasl_token_provider=lambda: (next(given_), wall.now + 3600))
    steps = mechanism.exchange(config, "host")
    assert next(steps) == b"n,,\x01auth=Bearer first\x01\x01"
    with pytest.raises(SaslAuthenticationError):
        steps.throw(SaslAuthenticationError("no"))
    steps = mechanism.exchange(config, "host")
    assert next(steps) == b"n,,\x01auth=Bearer second\x01\x01"
    steps.send(b'{"status":"invalid_token"}')
    for _ in range(2):
        assert next(mechanism.exchange(config, "host")) == b"n,,\x01auth=Bearer third\x01\x01"


@pytest.mark.parametrize(("answer", "text"), [
    (b"", "none"), (b"{}", "none"), (b"[" * 100_000, "["), (b"\xff\x00no", "no"), (b'{"status":"x marker-secret y"}', "status x [hidden] y"), (b'"marker-secret"', '"[hidden]"'),
    (b'{"status":5,"scope":"kafka\\n"}', "scope kafka "),
], ids=["empty", "JSON of nothing", "nested", "no text", "JSON with the token", "the token", "another scope"])
def test_the_brokers_error_is_shown_whatever_it_is(answer: bytes, text: str) -> None:
    assert text in rejection(answer, TOKEN)


@given(st.binary(max_size=2000))
def test_any_bytes_of_a_broker_are_shown_in_bounds_on_one_line_and_without_the_token(answer: bytes) -> None:
    for each in (answer, answer + b"marker-secret", b'{"status":"' + answer + b'marker-secret"}'):
        text = rejection(each, TOKEN)
        assert text.isprintable()
        assert 0 < len(text) <= 300
        assert "marker-secret" not in text


def test_an_async_provider_is_called_on_the_loop_which_awaits_what_the_worker_returns() -> None:
    made = next(OAuthBearer().exchange(options(sasl_token_provider=coroutine), "host"))
    assert inspect.isawaitable(made)
    assert not inspect.iscoroutine(made)  # dropped by a login that ends, a coroutine would warn that it was never awaited
