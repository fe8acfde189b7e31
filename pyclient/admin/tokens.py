"""Delegation tokens: logins for many short-lived programs, without giving them a user's own secret (KIP-48)."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from pyclient.admin.calls import AsyncCalls, BlockingCalls
from pyclient.client.facade_base import OPTION
from pyclient.core.admin.tokens import DEFAULT, create_token_call, describe_tokens_call, expire_token_call, renew_token_call
from pyclient.descriptions.tokens import DelegationToken


class AsyncTokenCalls(AsyncCalls):
    """Calls of `AsyncAdmin` that concern delegation tokens. Principals are named as in ACLs: ``User:anna``."""

    async def create_delegation_token(self, *, renewers: Iterable[str] = (), lifetime_ms: int | None = None, owner: str | None = None,
                                      timeout: float | None = OPTION) -> DelegationToken:
        """Create a token for the user that is logged in, or for *owner* (KIP-373).

        *renewers* may renew it beside its owner. It expires with the brokers' ``delegation.token.expiry.time.ms``
        unless it is renewed, and can be renewed until *lifetime_ms* (None: the brokers'
        ``delegation.token.max.lifetime.ms``) is over. It may take a moment until all brokers know it. When no response
        comes, the request is repeated, and an unused token may be left: it expires.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenDisabledError, UnsupportedByAuthenticationError (the login is none that may create tokens),
            DelegationTokenAuthorizationError, InvalidPrincipalTypeError, …
        """
        named, lifetime = _principals(renewers, "renewers"), _period("lifetime_ms", lifetime_ms)
        whose = None if owner is None else _checked(owner)
        found: DelegationToken = await self._core.call(
            lambda finish, deadline: create_token_call(whose, named, lifetime, finish=finish, deadline=deadline), self._limit(timeout))
        return found

    async def describe_delegation_tokens(self, owners: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> list[DelegationToken]:
        """The tokens of *owners* (None: of all) that the user may see, with their secrets.

        Those are its own, those it may renew, and those it has the right DESCRIBE or DESCRIBE_TOKENS for.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenDisabledError, UnsupportedByAuthenticationError, …
        """
        wanted = None if owners is None else _principals(owners, "owners")
        found: list[DelegationToken] = await self._core.call(
            lambda finish, deadline: describe_tokens_call(wanted, finish=finish, deadline=deadline), self._limit(timeout))
        return sorted(found, key=lambda each: each.token_id)

    async def renew_delegation_token(self, token: DelegationToken | bytes, period_ms: int | None = None, *, timeout: float | None = OPTION) -> int:
        """Let *token* (or the one with this HMAC) expire *period_ms* from now; None: the brokers' period.

        Returns when it expires, in ms since the epoch: never later than its ``max_ms``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError, DelegationTokenOwnerMismatchError, …
        """
        hmac, period = _hmac(token), _period("period_ms", period_ms)
        found: int = await self._core.call(lambda finish, deadline: renew_token_call(hmac, period, finish=finish, deadline=deadline), self._limit(timeout))
        return found

    async def expire_delegation_token(self, token: DelegationToken | bytes, period_ms: int | None = None, *, timeout: float | None = OPTION) -> int:
        """Let *token* (or the one with this HMAC) expire *period_ms* from now; None: it ends at once.

        Sessions that were opened with it go on until they are renewed. Returns when it expires, in ms since the epoch.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError, DelegationTokenOwnerMismatchError, …
        """
        hmac, period = _hmac(token), _period("period_ms", period_ms)
        found: int = await self._core.call(lambda finish, deadline: expire_token_call(hmac, period, finish=finish, deadline=deadline), self._limit(timeout))
        return found


class TokenCalls(BlockingCalls):
    """Calls of `Admin` that concern delegation tokens."""

    _admin: AsyncTokenCalls

    def create_delegation_token(self, *, renewers: Iterable[str] = (), lifetime_ms: int | None = None, owner: str | None = None,
                                timeout: float | None = OPTION) -> DelegationToken:
        """Create a token for the user that is logged in, or for *owner* (KIP-373).

        *renewers* may renew it beside its owner. It expires with the brokers' ``delegation.token.expiry.time.ms``
        unless it is renewed, and can be renewed until *lifetime_ms* (None: the brokers'
        ``delegation.token.max.lifetime.ms``) is over. It may take a moment until all brokers know it. When no response
        comes, the request is repeated, and an unused token may be left: it expires.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenDisabledError, UnsupportedByAuthenticationError (the login is none that may create tokens),
            DelegationTokenAuthorizationError, InvalidPrincipalTypeError, …
        """
        return self._call(lambda: self._admin.create_delegation_token(renewers=renewers, lifetime_ms=lifetime_ms, owner=owner, timeout=timeout))

    def describe_delegation_tokens(self, owners: Iterable[str] | None = None, *, timeout: float | None = OPTION) -> list[DelegationToken]:
        """The tokens of *owners* (None: of all) that the user may see, with their secrets.

        Those are its own, those it may renew, and those it has the right DESCRIBE or DESCRIBE_TOKENS for.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenDisabledError, UnsupportedByAuthenticationError, …
        """
        return self._call(lambda: self._admin.describe_delegation_tokens(owners, timeout=timeout))

    def renew_delegation_token(self, token: DelegationToken | bytes, period_ms: int | None = None, *, timeout: float | None = OPTION) -> int:
        """Let *token* (or the one with this HMAC) expire *period_ms* from now; None: the brokers' period.

        Returns when it expires, in ms since the epoch: never later than its ``max_ms``.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError, DelegationTokenOwnerMismatchError, …
        """
        return self._call(lambda: self._admin.renew_delegation_token(token, period_ms, timeout=timeout))

    def expire_delegation_token(self, token: DelegationToken | bytes, period_ms: int | None = None, *, timeout: float | None = OPTION) -> int:
        """Let *token* (or the one with this HMAC) expire *period_ms* from now; None: it ends at once.

        Sessions that were opened with it go on until they are renewed. Returns when it expires, in ms since the epoch.

        *timeout* is in seconds for the whole call; left out: ``default_api_timeout_ms``; None: no limit.

        Raises:
            DelegationTokenNotFoundError, DelegationTokenExpiredError, DelegationTokenOwnerMismatchError, …
        """
        return self._call(lambda: self._admin.expire_delegation_token(token, period_ms, timeout=timeout))


def _principals(given: Iterable[object], what: str) -> list[str]:
    if isinstance(given, str):
        raise TypeError(f"{what} is the str {given!r}: write [{given!r}]")
    return [_checked(each) for each in given]


def _checked(principal: Any) -> str:
    if not isinstance(principal, str) or not all(principal.partition(":")):
        raise ValueError(f"{principal!r} is no principal: write it as ACLs do, such as 'User:anna'")
    return principal


def _period(name: str, given: object) -> int:
    if given is None:
        return DEFAULT
    if isinstance(given, bool) or not isinstance(given, int) or given < 0:
        raise ValueError(f"{name}={given!r}: expected a whole number of ms, or None")
    return given


def _hmac(token: DelegationToken | bytes) -> bytes:
    if isinstance(token, DelegationToken):
        return token.hmac
    if not isinstance(token, bytes):
        raise TypeError(f"expected a DelegationToken or its HMAC in bytes, got {type(token).__name__}")
    return token
