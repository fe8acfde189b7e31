"""TokenCache: what a provider may return, when a token expires, when the next is fetched, and who waits for it."""
from __future__ import annotations

import asyncio
import base64
import gc
import json
import threading
import warnings
from collections.abc import Awaitable, Callable
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyclient.errors import AuthenticationError, TokenUnavailableError
from pyclient.plugins import OAuthToken
from pyclient.sasl.tokens import LONGEST_PAUSE_S, RETRY_S, RefreshPolicy, TokenCache, parse_token
from tests.unit.sasl.exchanges import Wall

NOW = 1_700_000_000.0
PLAIN = RefreshPolicy(window_factor=0.8, window_jitter=0.0, min_period=0, buffer=0)


def jwt(claims: object, signature: str = "x") -> str:
    parts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in ({"alg": "none"}, claims))
    return ".".join((*parts, signature))


class Provider:
    """Gives numbered tokens of one life; fails on command."""

    def __init__(self, wall: Wall, life: float = 1000) -> None:
        self.wall = wall
        self.life = life
        self.calls = 0
        self.failure: Exception | None = None

    def __call__(self) -> tuple[str, float]:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        return f"token-{self.calls}", self.wall.now + self.life


def value(given_: object) -> str:
    assert isinstance(given_, OAuthToken)
    return given_.value


# ---- shapes ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("given_", [
    ("abc", 5.5), ["abc", 5.5], ("abc", 5.5, "anna"), ("abc", 5.5, "anna", None), ("abc", 5.5, None, {"a": "b"}), OAuthToken("abc", 5.5), OAuthToken("abc", 5.5, {"a": "b"}),
])
def test_a_tokens_expiry_is_in_seconds_since_the_epoch(given_: Any) -> None:
    token = parse_token(given_)
    assert (token.value, token.expires_at) == ("abc", 5.5)
    assert token.extensions in ({}, {"a": "b"})


@pytest.mark.parametrize(("claims", "ends"), [
    ({"exp": 1234}, 1234.0), ({"exp": 1234.5}, 1234.5), ({}, None), ({"exp": "soon"}, None), ({"exp": None}, None), ({"exp": True}, None), ([1], None), ("exp", None),
    ({"exp": float("inf")}, None), ({"exp": float("nan")}, None), ({"exp": 10**400}, None), ({"exp": [1]}, None),
])
def test_a_JWT_contains_its_expiry(claims: object, ends: float | None) -> None:
    assert parse_token(jwt(claims)).expires_at == ends
    assert parse_token((jwt(claims), None)).expires_at == ends


@given(st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1))
def test_any_visible_text_is_a_token_and_its_expiry_may_be_unknown(text: str) -> None:
    token = parse_token(text)
    assert token.value == text
    assert token.expires_at is None or isinstance(token.expires_at, float)


@given(st.binary(max_size=60), st.binary(max_size=60))
def test_text_that_only_looks_like_a_JWT_is_a_token_without_expiry(head: bytes, claims: bytes) -> None:
    parts = [base64.urlsafe_b64encode(each).decode() for each in (head, claims)]
    for text in (".".join((*parts, "x")), f"x.{claims.hex()}.x", "x..x"):
        parse_token(text)


@pytest.mark.parametrize("given_", [
    None, 5, b"bytes", "", "two words", "marker secret\n", "märker", "x" * 2_000_000, (), ("abc",), ("abc", "soon"), ("abc", True), ("abc", float("nan")), ("abc", 1, 2, 3),
    ("abc", 1, 2, 3, 4), (5, 5), OAuthToken("marker secret"), OAuthToken(5),  # type: ignore[arg-type]
], ids=lambda given_: type(given_).__name__)
def test_anything_else_is_refused_without_showing_it(given_: Any) -> None:
    with pytest.raises(TokenUnavailableError, match="sasl_token_provider") as caught:
        parse_token(given_)
    assert "marker" not in str(caught.value)


# ---- renewal --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("renewal", "life", "chance", "due"), [
    (RefreshPolicy(0.8, 0.05, 60, 300), 3600, 0.0, 2880), (RefreshPolicy(0.8, 0.05, 60, 300), 3600, 1.0, 3060),
    (RefreshPolicy(0.8, 0.0, 60, 900), 3600, 0.0, 2700),  # the buffer is wider than what the window leaves
    (RefreshPolicy(0.5, 0.0, 900, 0), 1000, 0.0, 900),  # not before the period
    (RefreshPolicy(0.8, 0.05, 60, 300), 100, 0.0, 80),  # too short for both: neither counts
    (RefreshPolicy(1.0, 0.25, 0, 0), 100, 1.0, 98),  # with time for a session
    (RefreshPolicy(0.8, 0.05, 60, 300), 3, 1.0, 1.5),  # as far as there is any
])
def test_the_refresh_options_say_when_the_next_token_is_fetched(renewal: RefreshPolicy, life: float, chance: float, due: float) -> None:
    assert renewal.due(NOW, NOW + life, chance) - NOW == pytest.approx(due)


@given(st.floats(0.5, 1), st.floats(0, 0.25), st.integers(0, 900), st.integers(0, 3600), st.floats(0.1, 1e6), st.floats(0, 1))
def test_the_next_token_is_fetched_before_the_current_one_expires(factor: float, jitter: float, period: int, buffer: int, life: float, chance: float) -> None:
    assert 0 < RefreshPolicy(factor, jitter, period, buffer).due(0.0, life, chance) <= life


def test_a_token_is_kept_until_its_window_and_then_fetched_again() -> None:
    wall = Wall()
    tokens, provider = TokenCache(wall.surroundings()), Provider(wall)
    seen = []
    for _ in range(4):
        seen.append(value(tokens.get(provider, PLAIN)))
        wall.now += 399
    assert seen == ["token-1", "token-1", "token-1", "token-2"]


def test_a_token_without_an_expiry_is_fetched_for_each_login() -> None:
    tokens = TokenCache(Wall().surroundings())
    given_ = iter("abc")
    assert [value(tokens.get(lambda: next(given_), PLAIN)) for _ in range(3)] == ["a", "b", "c"]


@pytest.mark.parametrize("later", [RETRY_S / 4, RETRY_S / 2], ids=["while the old one is good", "at its end"])
def test_a_failed_fetch_is_repeated_before_the_old_token_expires(later: float) -> None:
    """Seed 98 of the sweep: the pause after a fetch that failed outlived the token, which brokers then refused."""
    wall = Wall()
    tokens, provider = TokenCache(wall.surroundings()), Provider(wall)
    tokens.get(provider, PLAIN)
    provider.failure = OSError("no route")
    wall.now += 1000 - RETRY_S / 2
    assert value(tokens.get(provider, PLAIN)) == "token-1"
    provider.failure = None
    wall.now += later
    assert value(tokens.get(provider, PLAIN)) == "token-3"


def test_after_a_failed_fetch_the_old_token_is_used_while_it_is_valid(caplog: pytest.LogCaptureFixture) -> None:
    wall = Wall()
    tokens, provider = TokenCache(wall.surroundings()), Provider(wall)
    tokens.get(provider, PLAIN)
    provider.failure = OSError("no route")
    wall.now += 900
    assert value(tokens.get(provider, PLAIN)) == "token-1"
    assert "no route" in caplog.text
    assert "token-1" not in caplog.text
    tokens.get(provider, PLAIN)
    assert provider.calls == 2, "not asked again at once"
    wall.now += RETRY_S
    tokens.get(provider, PLAIN)
    assert provider.calls == 3
    wall.now += 200
    with pytest.raises(TokenUnavailableError, match="OSError: no route"):
        tokens.get(provider, PLAIN)
    provider.failure = None
    wall.now += LONGEST_PAUSE_S
    assert value(tokens.get(provider, PLAIN)) == "token-5"


def test_pauses_between_failed_fetches_grow_however_many_connections_want_a_token() -> None:
    wall = Wall()
    tokens, provider = TokenCache(wall.surroundings()), Provider(wall)
    provider.failure = OSError("no route")
    asked_at = []
    for step in range(1000):
        wall.now = 1_700_000_000.0 + step / 100
        before = provider.calls
        with pytest.raises(TokenUnavailableError, match="OSError: no route") as caught:
            tokens.get(provider, PLAIN)
        assert caught.value.__cause__ is provider.failure
        if provider.calls > before:
            asked_at.append(step / 100)
    assert [round(later - at, 1) for at, later in pairwise(asked_at)] == [0.1, 0.2, 0.4, 0.8, 1.6, 2.0, 2.0, 2.0]
    provider.failure = None
    wall.now += LONGEST_PAUSE_S
    first = tokens.get(provider, PLAIN)
    assert isinstance(first, OAuthToken)
    tokens.drop(first)
    provider.failure = OSError("no route")
    with pytest.raises(TokenUnavailableError):
        tokens.get(provider, PLAIN)
    wall.now -= 3600  # the clock was set
    provider.failure = None
    assert value(tokens.get(provider, PLAIN)) == f"token-{provider.calls}"


@pytest.mark.parametrize("awaited", [False, True])
def test_within_the_pause_after_a_failure_it_is_raised_without_another_fetch(awaited: bool) -> None:
    async def test() -> None:
        wall = Wall()
        tokens, slow = TokenCache(wall.surroundings()), Slow(wall)
        slow.go.set()
        slow.inner.failure = OSError("no route")
        fetch = slow.token if awaited else slow.inner
        errors = await asyncio.gather(*[asked(tokens, fetch) for _ in range(3)], return_exceptions=True)
        errors += await asyncio.gather(*[asked(tokens, fetch) for _ in range(3)], return_exceptions=True)
        assert all("no route" in str(each) for each in errors)
        assert slow.inner.calls == 1

    asyncio.run(test())


def test_a_token_that_is_expired_on_arrival_is_refused() -> None:
    wall = Wall()
    with pytest.raises(TokenUnavailableError, match="clock"):
        TokenCache(wall.surroundings()).get(Provider(wall, life=0), PLAIN)


def test_authentication_errors_of_providers_are_raised_unchanged() -> None:
    wall = Wall()
    provider = Provider(wall)
    provider.failure = AuthenticationError("the secret is wrong")
    with pytest.raises(AuthenticationError, match="the secret is wrong"):
        TokenCache(wall.surroundings()).get(provider, PLAIN)


def test_a_token_that_was_refused_is_not_used_again() -> None:
    wall = Wall()
    tokens, provider = TokenCache(wall.surroundings()), Provider(wall)
    first = tokens.get(provider, PLAIN)
    assert isinstance(first, OAuthToken)
    tokens.drop(first)
    assert value(tokens.get(provider, PLAIN)) == "token-2"
    tokens.drop(first)  # late: it is not the one in use any more
    assert value(tokens.get(provider, PLAIN)) == "token-2"


# ---- single flight --------------------------------------------------------------------------------------------------


def test_concurrent_threads_wait_for_one_fetch() -> None:
    wall = Wall()
    tokens, provider, seen = TokenCache(wall.surroundings()), Provider(wall), []
    arrived, go = threading.Semaphore(0), threading.Event()

    def fetch() -> Any:
        arrived.release()
        assert go.wait(20)
        return provider()

    threads = [threading.Thread(target=lambda: seen.append(value(tokens.get(fetch, PLAIN)))) for _ in range(5)]
    for each in threads:
        each.start()
    assert arrived.acquire(timeout=20)
    go.set()
    for each in threads:
        each.join(20)
    assert (seen, provider.calls) == (["token-1"] * 5, 1)


class Slow:
    """An async provider that answers when it is let go."""

    def __init__(self, wall: Wall) -> None:
        self.inner = Provider(wall)
        self.go = asyncio.Event()

    async def token(self) -> Any:
        await self.go.wait()
        return self.inner()

    def returns_an_awaitable(self) -> Awaitable[Any]:
        return self.token()


def asked(tokens: TokenCache, fetch: Callable[[], Any]) -> asyncio.Task[OAuthToken]:
    async def wait() -> OAuthToken:
        found = tokens.get(fetch, PLAIN)
        return found if isinstance(found, OAuthToken) else await found
    return asyncio.get_running_loop().create_task(wait())


async def turns(count: int = 5) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


@pytest.mark.parametrize("method", ["token", "returns_an_awaitable"])
def test_concurrent_coroutines_wait_for_one_fetch_which_survives_a_cancelled_waiter(method: str) -> None:
    async def test() -> None:
        wall = Wall()
        tokens, slow = TokenCache(wall.surroundings()), Slow(wall)
        first = asked(tokens, getattr(slow, method))
        await turns()
        others = [asked(tokens, getattr(slow, method)) for _ in range(3)]
        await turns()
        first.cancel()
        await turns()
        slow.go.set()
        assert [value(await each) for each in others] == ["token-1"] * 3
        assert value(tokens.get(getattr(slow, method), PLAIN)) == "token-1"
        assert slow.inner.calls == 1

    asyncio.run(test())


def test_a_failure_is_raised_to_all_waiting_callers_and_the_next_one_fetches_again() -> None:
    async def test() -> None:
        wall = Wall()
        tokens, slow = TokenCache(wall.surroundings()), Slow(wall)
        slow.inner.failure = OSError("no route")
        waiting = [asked(tokens, slow.token) for _ in range(2)]
        slow.go.set()
        assert all("no route" in str(each) for each in await asyncio.gather(*waiting, return_exceptions=True))
        slow.inner.failure = None
        wall.now += LONGEST_PAUSE_S
        assert value(await asked(tokens, slow.token)) == "token-2"

    asyncio.run(test())


def test_an_old_token_is_used_when_what_the_provider_awaits_is_cancelled() -> None:
    async def test() -> None:
        wall = Wall()
        tokens, provider = TokenCache(wall.surroundings()), Provider(wall)

        async def token() -> tuple[str, float]:
            if provider.calls:
                raise asyncio.CancelledError
            return provider()

        assert value(await asked(tokens, token)) == "token-1"
        wall.now += 900
        assert value(await asked(tokens, token)) == "token-1"
        wall.now += 200
        with pytest.raises(TokenUnavailableError, match="CancelledError"):
            await asked(tokens, token)

    asyncio.run(test())


def test_closing_leaves_no_fetch_running() -> None:
    async def test() -> None:
        tokens, slow = TokenCache(Wall().surroundings()), Slow(Wall())
        waiting = asked(tokens, slow.token)
        await turns()
        tokens.close()
        await asyncio.gather(waiting, return_exceptions=True)
        assert len(asyncio.all_tasks()) == 1

    asyncio.run(test())


def test_an_async_fetch_that_no_login_awaits_any_more_leaves_no_coroutine() -> None:
    async def test() -> None:
        slow = Slow(Wall())
        assert not isinstance(TokenCache(Wall().surroundings()).get(slow.token, PLAIN), OAuthToken)  # dropped here

    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        asyncio.run(test())
        gc.collect()
    assert [str(each.message) for each in caught] == []


def test_no_repr_shows_a_token() -> None:
    wall = Wall()
    tokens = TokenCache(wall.surroundings())
    token = tokens.get(lambda: OAuthToken("marker-secret", wall.now + 100, {"a": "marker-secret"}), PLAIN)
    assert "marker" not in f"{tokens!r} {token!r} {token} {tokens}"


@pytest.mark.parametrize("expires_at", [1_700_000_000_000, 1_700_000_000_000.0, 1e11])
def test_an_expiry_in_milliseconds_is_refused_instead_of_using_the_token_forever(expires_at: float) -> None:
    for returned in [("abc", expires_at), OAuthToken("abc", expires_at)]:
        with pytest.raises(TokenUnavailableError, match="milliseconds"):
            parse_token(returned)
    assert parse_token(("abc", 9e10)).expires_at == 9e10
