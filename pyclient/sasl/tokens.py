"""The access tokens of one client: what providers may return, when a token expires, when the next is fetched."""
from __future__ import annotations

import asyncio
import base64
import binascii
import functools
import inspect
import json
import logging
import math
import re
import threading
from collections import deque
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

import attrs

from pyclient.cancellation import CallOnLoop, being_cancelled
from pyclient.errors import KafkaError, TokenUnavailableError, raisable, with_article
from pyclient.plugins import OAuthToken, Surroundings
from pyclient.redaction import encoded_forms, hidden, without

_log = logging.getLogger(__name__)
BEARER: Final = re.compile(r"[\x21-\x7e]+")
"""Characters of a bearer token (RFC 6750 allows slightly fewer)."""
LONGEST: Final = 1024 * 1024
IN_MILLISECONDS: Final = 1e11
"""An expiry from here on is in milliseconds by mistake: as seconds it would be the year 5138."""
REMEMBERED: Final = 8
"""Recent tokens to hide, because a broker may repeat them in an error."""
RETRY_S: Final = 10.0
"""Pause after a failed fetch while the current token is valid; at most half of its remaining lifetime."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
"""Bounds of the doubling pause after failed fetches without a valid token; else each new connection would fetch."""
SHOWN: Final = 300
"""Characters of a provider's error."""
LEAST_LEFT_S: Final = 2.0
"""Remaining lifetime of a token when a session begins, if it lives that long.

Brokers refuse to re-authenticate within one second, so a shorter session could not be renewed in time.
"""

TokenSource = Callable[[], Any]
"""Returns a token (a str, a tuple, an `OAuthToken`) or an awaitable of one."""


@attrs.frozen
class RefreshPolicy:
    """When to fetch the next token: the ``sasl_login_refresh_`` options, in seconds."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0

    @classmethod
    def of(cls, config: Any) -> RefreshPolicy:
        """From the options."""
        return cls(config.sasl_login_refresh_window_factor, config.sasl_login_refresh_window_jitter,
                   config.sasl_login_refresh_min_period_seconds, config.sasl_login_refresh_buffer_seconds)

    def due(self, now: float, expires_at: float, chance: float) -> float:
        """When to fetch the token after it.

        As in Java, a lifetime shorter than period and buffer together ignores both.
        """
        lifetime = expires_at - now
        at = now + lifetime * (self.window_factor + self.window_jitter * chance)
        if self.min_period + self.buffer <= lifetime:
            at = max(min(at, expires_at - self.buffer), now + self.min_period)
        return min(at, expires_at - min(LEAST_LEFT_S, lifetime / 2))


class TokenCache:
    """The current token. Any thread may call `get`; callers share one fetch."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._current: OAuthToken | None = None
        self._recent: deque[OAuthToken] = deque(maxlen=REMEMBERED)
        self._refresh_at = 0.0
        self._lock = threading.Lock()
        self._failure: KafkaError | None = None  # of the last fetch
        self._failure_at = self._pause = 0.0
        self._async_source = False  # the provider returns awaitables: it is called on the loop
        self._fetching: asyncio.Task[OAuthToken] | None = None

    def __repr__(self) -> str:
        return f"<TokenCache {'none' if self._current is None else self._current!r}>"

    def get(self, fetch: TokenSource, renewal: RefreshPolicy) -> OAuthToken | Awaitable[OAuthToken]:
        """A valid token: the current one or a new one; from an async provider an awaitable for the client's loop.

        Raises:
            TokenUnavailableError: the provider failed, now or shortly before, and there is no valid token.
        """
        with self._lock:
            if (current := self._valid()) is not None:
                return current
            if self._async_source or inspect.iscoroutinefunction(fetch):
                return self._shared(fetch, renewal)
            try:
                returned = hidden(fetch())
                if not isinstance(returned, Awaitable):
                    return self._accept(returned, renewal)
            except Exception as error:  # noqa: BLE001 whatever a user's function raises
                return self._after_failure(error)
        self._async_source = True
        return self._shared(lambda: returned, renewal)

    def drop(self, token: OAuthToken) -> None:
        """A broker refused it: the next login fetches another one."""
        if self._current is token:
            self._current = None

    def hide(self, text: str) -> str:
        """*text* without the recent tokens."""
        return without(set().union(*[encoded_forms(token.value.encode()) for token in list(self._recent)]), text)

    def close(self) -> None:
        """Cancel a running fetch. Any thread may call it."""
        fetching = self._fetching
        if fetching is not None and not fetching.get_loop().is_closed():
            fetching.get_loop().call_soon_threadsafe(fetching.cancel)

    def _shared(self, fetch: TokenSource, renewal: RefreshPolicy) -> Awaitable[OAuthToken]:
        """For a worker's result, which is dropped if the login ends meanwhile."""
        return CallOnLoop(functools.partial(self._fetch_shared, fetch, renewal))

    async def _fetch_shared(self, fetch: TokenSource, renewal: RefreshPolicy) -> OAuthToken:
        """On the loop: the first caller fetches a token, the others wait for the same."""
        if self._fetching is None and (current := self._valid()) is not None:
            return current
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._fetch(fetch, renewal))
            self._fetching.add_done_callback(self._fetch_done)
        return await asyncio.shield(self._fetching)  # a cancelled caller must not cancel the fetch of the others

    async def _fetch(self, fetch: TokenSource, renewal: RefreshPolicy) -> OAuthToken:
        try:
            return self._accept(hidden(await fetch()), renewal)
        except asyncio.CancelledError as error:
            if being_cancelled():
                raise
            return self._after_failure(error)
        except Exception as error:  # noqa: BLE001 whatever a user's function raises
            return self._after_failure(error)

    def _fetch_done(self, task: asyncio.Task[OAuthToken]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # retrieved: without a waiter asyncio would log it

    def _valid(self) -> OAuthToken | None:
        """The current token while it is valid; None: fetch one.

        In the pause after a failure, raises that failure again.
        """
        now = self._now()
        if self._current is not None and now < self._refresh_at:
            return self._current
        if self._failure is not None and 0 <= now - self._failure_at < self._pause:
            raise raisable(self._failure)
        return None

    def _accept(self, returned: Any, renewal: RefreshPolicy) -> OAuthToken:
        token, now = parse_token(returned), self._now()
        if token.expires_at is not None and token.expires_at <= now:
            raise TokenUnavailableError("the fetched token has expired already; check this machine's clock")
        self._failure, self._pause = None, 0.0
        self._recent.append(token)
        self._current = token if token.expires_at is not None else None
        self._refresh_at = renewal.due(now, token.expires_at, self._surroundings.random()) if token.expires_at is not None else now
        return token

    def _after_failure(self, error: BaseException) -> OAuthToken:
        """The current token if it is still valid; otherwise raises the failure."""
        failure = error if isinstance(error, KafkaError) else TokenUnavailableError(
            f"sasl_token_provider raised {type(error).__name__}: {self.hide(str(error))[:SHOWN]}")
        current, now = self._current, self._now()
        if current is not None and current.expires_at is not None and now < current.expires_at:
            self._refresh_at = now + min(RETRY_S, (current.expires_at - now) / 2)  # sessions are renewed later, with a newer token
            _log.warning("fetching a token failed; the current one is used for at most %.0f s: %s", current.expires_at - now, failure)
            return current
        self._failure, self._failure_at, self._pause = failure, now, min(max(FIRST_PAUSE_S, 2 * self._pause), LONGEST_PAUSE_S)
        if failure is not error:
            failure.__cause__ = error
        raise raisable(failure)

    def _now(self) -> float:
        return self._surroundings.wall() / 1000


def parse_token(returned: Any) -> OAuthToken:
    """A provider's result as a token: from a str, (token, expiry in seconds since the epoch) or librdkafka's tuple.

    Raises:
        TokenUnavailableError: none of these, or not sendable. Shows nothing of it.
    """
    token = _as_token(returned)
    value: Any = token.value
    expires_at: Any = token.expires_at
    if not isinstance(value, str) or len(value) > LONGEST or not BEARER.fullmatch(value):
        raise TokenUnavailableError("sasl_token_provider returned an invalid token: expected visible ASCII characters without spaces and line ends")
    if expires_at is None:
        return OAuthToken(value, _jwt_expiry(value), token.extensions)
    if isinstance(expires_at, bool) or not isinstance(expires_at, (int, float)) or not math.isfinite(expires_at):
        raise TokenUnavailableError("sasl_token_provider returned an invalid expiry: expected a number of seconds since the epoch")
    if expires_at >= IN_MILLISECONDS:  # else an expired token would count as valid
        raise TokenUnavailableError("sasl_token_provider returned an expiry that looks like milliseconds: expected seconds since the epoch")
    return token


def _as_token(returned: Any) -> OAuthToken:
    match returned:
        case OAuthToken():
            return returned
        case str():
            return OAuthToken(returned)
        case (str() as value, expires_at):
            return OAuthToken(value, expires_at)
        case (str() as value, expires_at, _):
            return OAuthToken(value, expires_at)
        case (str() as value, expires_at, _, extensions) if extensions is None or isinstance(extensions, Mapping):
            return OAuthToken(value, expires_at, extensions)
    raise TokenUnavailableError(
        f"sasl_token_provider returned {with_article(type(returned).__name__)}; expected a str, (str, expiry in seconds since the epoch) or an OAuthToken")


def _jwt_expiry(value: str) -> float | None:
    """The ``exp`` claim of a JWT (RFC 7519); the signature is not verified, brokers do that."""
    parts = value.split(".")
    if len(parts) != 3:  # header, claims, signature
        return None
    try:
        claims = json.loads(base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True))
        expires_at = claims["exp"]
        return float(expires_at) if not isinstance(expires_at, bool) and math.isfinite(expires_at) else None
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
