"""Tokens of one client: what providers return, when a token ends, and when the next one is fetched. Knows no broker."""
from __future__ import annotations

import asyncio
import base64
import binascii
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

from pyclient.errors import KafkaError, TokenUnavailableError, raisable
from pyclient.plugins import OAuthToken, Surroundings
from pyclient.redaction import without

_log = logging.getLogger(__name__)
BEARER: Final = re.compile(r"[\x21-\x7e]+")
"""What can stand behind ``Bearer`` (RFC 6750 allows a little less)."""
LONGEST: Final = 1024 * 1024
IN_MILLISECONDS: Final = 1e11
"""An expiry from then on is no time in seconds that anybody means (the year 5138), but one in milliseconds since 1973."""
REMEMBERED: Final = 8
"""Tokens that brokers may still repeat in an error."""
RETRY_S: Final = 10.0
"""How long the old token is used before a fetch that failed is tried again; no longer than half of the life it still has."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 2.0
"""Between fetches that fail in a row, without a token that is still good, a pause doubles: there are more connections to be made than tokens to be had."""
LEAST_LEFT_S: Final = 2.0
"""Of a token that opens a session, if it lives so long: brokers take no new login within a second of the last one, so a session that is
shorter could not be renewed in time.
"""

Fetch = Callable[[], Any]
"""Gives a token (a text, a tuple, an `OAuthToken`), or an awaitable of one."""


@attrs.frozen
class Renewal:
    """When a token is fetched anew: the ``sasl_login_refresh_`` options, in seconds."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period: float = 60.0
    buffer: float = 300.0

    @classmethod
    def of(cls, config: Any) -> Renewal:
        """As the options say."""
        return cls(config.sasl_login_refresh_window_factor, config.sasl_login_refresh_window_jitter,
                   config.sasl_login_refresh_min_period_seconds, config.sasl_login_refresh_buffer_seconds)

    def due(self, now: float, expires_at: float, chance: float) -> float:
        """When to fetch the one after it. As Java does it: a life too short for period and buffer ignores both."""
        life = expires_at - now
        at = now + life * (self.window_factor + self.window_jitter * chance)
        if self.min_period + self.buffer <= life:
            at = max(min(at, expires_at - self.buffer), now + self.min_period)
        return min(at, expires_at - min(LEAST_LEFT_S, life / 2))


class Tokens:
    """The token in use. Any thread may ask; who asks while one is fetched waits for that one."""

    def __init__(self, surroundings: Surroundings) -> None:
        self._surroundings = surroundings
        self._kept: OAuthToken | None = None
        self._recent: deque[OAuthToken] = deque(maxlen=REMEMBERED)
        self._due = 0.0
        self._lock = threading.Lock()
        self._failed: KafkaError | None = None  # what the last fetch ended with
        self._failed_at = self._pause = 0.0
        self._awaits = False  # the provider gives awaitables: it is called on the loop
        self._fetching: asyncio.Task[OAuthToken] | None = None

    def __repr__(self) -> str:
        return f"<Tokens {'none' if self._kept is None else self._kept!r}>"

    def get(self, fetch: Fetch, renewal: Renewal) -> OAuthToken | Awaitable[OAuthToken]:
        """A token that is good: the one in use, or a new one; from an async provider something to await on the client's loop.

        Raises:
            TokenUnavailableError: the provider failed, now or within the pause after that, and there is no token that is still good.
        """
        with self._lock:
            if (kept := self._at_hand()) is not None:
                return kept
            if self._awaits or inspect.iscoroutinefunction(fetch):
                return self._shared(fetch, renewal)
            try:
                given = fetch()
                if not isinstance(given, Awaitable):
                    return self._keep(given, renewal)
            except Exception as error:  # noqa: BLE001 whatever a user's function raises
                return self._without(error)
        self._awaits = True
        return self._shared(lambda: given, renewal)

    def drop(self, token: OAuthToken) -> None:
        """A broker refused it: the next login gets another one."""
        if self._kept is token:
            self._kept = None

    def hide(self, text: str) -> str:
        """Without the tokens given out last."""
        return without([token.value for token in list(self._recent)], text)

    def close(self) -> None:
        """On the loop: nobody waits for a token any more."""
        if self._fetching is not None:
            self._fetching.cancel()

    async def _shared(self, fetch: Fetch, renewal: Renewal) -> OAuthToken:
        """On the loop: the first who comes has a token fetched, the others wait for the same."""
        if self._fetching is None and (kept := self._at_hand()) is not None:
            return kept
        if self._fetching is None:
            self._fetching = asyncio.get_running_loop().create_task(self._awaited(fetch, renewal))
            self._fetching.add_done_callback(self._fetched)
        return await asyncio.shield(self._fetching)  # who is given up does not take the others' token away

    async def _awaited(self, fetch: Fetch, renewal: Renewal) -> OAuthToken:
        try:
            return self._keep(await fetch(), renewal)
        except asyncio.CancelledError as error:
            if _is_being_cancelled():
                raise
            return self._without(error)
        except Exception as error:  # noqa: BLE001 whatever a user's function raises
            return self._without(error)

    def _fetched(self, task: asyncio.Task[OAuthToken]) -> None:
        self._fetching = None
        if not task.cancelled():
            task.exception()  # if nobody waits any more, nobody is told

    def _at_hand(self) -> OAuthToken | None:
        """The token in use while it is good; None: one is to be fetched. In the pause after a failure that failure is told once more."""
        now = self._now()
        if self._kept is not None and now < self._due:
            return self._kept
        if self._failed is not None and 0 <= now - self._failed_at < self._pause:
            raise raisable(self._failed)
        return None

    def _keep(self, given: Any, renewal: Renewal) -> OAuthToken:
        token, now = read(given), self._now()
        if token.expires_at is not None and token.expires_at <= now:
            raise TokenUnavailableError("the token that was fetched has expired already: is the clock of this machine right?")
        self._failed, self._pause = None, 0.0
        self._recent.append(token)
        self._kept = token if token.expires_at is not None else None
        self._due = renewal.due(now, token.expires_at, self._surroundings.random()) if token.expires_at is not None else now
        return token

    def _without(self, error: BaseException) -> OAuthToken:
        """A failure counts only when the token in use is no longer good."""
        explained = error if isinstance(error, KafkaError) else TokenUnavailableError(f"sasl_token_provider raised {self.hide(_named(error))}")
        kept, now = self._kept, self._now()
        if kept is not None and kept.expires_at is not None and now < kept.expires_at:
            self._due = now + min(RETRY_S, (kept.expires_at - now) / 2)  # a session that it opens is renewed later, and by then not with it
            _log.warning("no new token, the old one is used for %.0f s more at most: %s", kept.expires_at - now, explained)
            return kept
        self._failed, self._failed_at, self._pause = explained, now, min(max(FIRST_PAUSE_S, 2 * self._pause), LONGEST_PAUSE_S)
        if explained is not error:
            explained.__cause__ = error
        raise raisable(explained)

    def _now(self) -> float:
        return self._surroundings.wall() / 1000


def _is_being_cancelled() -> bool:
    """Whether the client ends the running task; else what the provider awaits has ended by itself."""
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


def _named(error: BaseException) -> str:
    return f"{type(error).__name__}: {str(error)[:300]}"


def read(given: Any) -> OAuthToken:
    """What a provider returned: a text, (token, expiry in seconds since the epoch), librdkafka's (token, expiry, principal, extensions), a token.

    Raises:
        TokenUnavailableError: it is none of these, or cannot be sent. Shows nothing of it.
    """
    token = _shaped(given)
    value: Any = token.value
    expires_at: Any = token.expires_at
    if not isinstance(value, str) or len(value) > LONGEST or not BEARER.fullmatch(value):
        raise TokenUnavailableError("what sasl_token_provider returned is no token: a text of visible ASCII characters, without spaces or line ends")
    if expires_at is None:
        return OAuthToken(value, _expiry_of(value), token.extensions)
    if isinstance(expires_at, bool) or not isinstance(expires_at, (int, float)) or not math.isfinite(expires_at):
        raise TokenUnavailableError("the expiry that sasl_token_provider returned is no number of seconds since the epoch")
    if expires_at >= IN_MILLISECONDS:  # else it would be shown for good, long after its end
        raise TokenUnavailableError("the expiry that sasl_token_provider returned is too far away: it looks like milliseconds, and seconds since the epoch are expected")
    return token


def _shaped(given: Any) -> OAuthToken:
    match given:
        case OAuthToken():
            return given
        case str():
            return OAuthToken(given)
        case (str() as value, expires_at):
            return OAuthToken(value, expires_at)
        case (str() as value, expires_at, _):
            return OAuthToken(value, expires_at)
        case (str() as value, expires_at, _, extensions) if extensions is None or isinstance(extensions, Mapping):
            return OAuthToken(value, expires_at, extensions)
    raise TokenUnavailableError(
        f"sasl_token_provider returned a {type(given).__name__}; a text, (text, expiry in seconds since the epoch) or an OAuthToken is expected")


def _expiry_of(value: str) -> float | None:
    """The ``exp`` claim if it is a JWT (RFC 7519); nothing is verified, brokers do that."""
    parts = value.split(".")
    if len(parts) != 3:  # header, claims, signature
        return None
    try:
        claims = json.loads(base64.b64decode(parts[1] + "=" * (-len(parts[1]) % 4), altchars=b"-_", validate=True))
        expires_at = claims["exp"]
        return float(expires_at) if not isinstance(expires_at, bool) and math.isfinite(expires_at) else None
    except (binascii.Error, ValueError, KeyError, TypeError, OverflowError, RecursionError):
        return None
