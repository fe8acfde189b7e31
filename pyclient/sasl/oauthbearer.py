"""OAUTHBEARER (RFC 7628, KIP-255): login by a token from a user's function or a token endpoint."""
from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Generator, Mapping
from typing import Any, Final

from pyclient.errors import ConfigurationError, SaslAuthenticationError
from pyclient.plugin_loading import load_function
from pyclient.plugins import OAuthToken, Surroundings
from pyclient.redaction import Secret, SecretBytes, encoded_forms, in_one_line, without
from pyclient.sasl.tokens import RefreshPolicy, TokenCache, TokenSource

ACKNOWLEDGE_ERROR: Final = b"\x01"
"""The client's reply to a broker's error; the broker then refuses the login."""
KEY: Final = re.compile(r"[A-Za-z]+")
VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")
SHOWN: Final = 300
LONGEST_ERROR: Final = 65_536


class OAuthBearer:
    """One token for all connections of a client, fetched when needed and renewed before it expires.

    Each step runs in a worker, because token functions may block; async ones are awaited on an async client's loop.
    """

    name = "OAUTHBEARER"
    blocking = True
    renews = True
    options: tuple[str, ...] = ("sasl_token_provider", "sasl_oauthbearer_token_endpoint_url")

    def __init__(self) -> None:
        self._surroundings = Surroundings()
        self._tokens = TokenCache(self._surroundings)
        self._source: TokenSource | None = None

    def __repr__(self) -> str:
        return f"<OAuthBearer {self._tokens!r}>"

    def run_in(self, surroundings: Surroundings, /) -> None:
        """Use this clock and randomness."""
        self._surroundings = surroundings
        self._tokens = TokenCache(surroundings)

    def close(self) -> None:
        """The client is closed: cancel a running fetch."""
        self._tokens.close()

    def hide(self, text: str, /) -> str:
        """*text* without the recent tokens."""
        return self._tokens.hide(text)

    def check(self, config: Any, /) -> None:
        """Raises ConfigurationError: there is no source of tokens."""
        self._token_source(config)

    def exchange(self, config: Any, _host: str, /) -> Generator[bytes | Awaitable[Any], Any, None]:
        """One message; a broker that rejects the token explains why and expects an acknowledgement."""
        token = self._tokens.get(self._token_source(config), RefreshPolicy.of(config))
        if not isinstance(token, OAuthToken):
            token = yield token
        answer = yield from self._send(token, initial(token))
        if answer:
            why = rejection(answer, token)
            self._tokens.drop(token)
            yield from self._send(token, ACKNOWLEDGE_ERROR, why)
            raise SaslAuthenticationError(f"the broker rejected the token: {why}")

    def _send(self, token: OAuthToken, message: bytes, why: str = "") -> Generator[bytes, Any, bytes]:
        """The broker's reply. A refusal concerns the token: drop it."""
        try:
            return SecretBytes((yield message))
        except SaslAuthenticationError as refused:
            self._tokens.drop(token)
            if not why:
                raise
            raise SaslAuthenticationError(f"{refused.message}. Reason given for the token: {why}") from None

    def _token_source(self, config: Any) -> TokenSource:
        if self._source is None:
            self._source = self._make_source(config)
        return self._source

    def _make_source(self, config: Any) -> TokenSource:
        if None not in (config.sasl_token_provider, config.sasl_oauthbearer_token_endpoint_url):
            raise ConfigurationError(
                "sasl_token_provider and sasl_oauthbearer_token_endpoint_url are two sources of tokens: keep one", option="sasl_token_provider")
        if config.sasl_token_provider is not None:
            return load_function("sasl_token_provider", config.sasl_token_provider)  # type: ignore[no-any-return]
        if config.sasl_oauthbearer_token_endpoint_url is not None:
            from pyclient.sasl.oidc import token_source

            return token_source(config, self._surroundings)
        raise ConfigurationError(
            "sasl_token_provider is not set: sasl_mechanism=OAUTHBEARER needs it, a function that returns a token, "
            "or else sasl_oauthbearer_token_endpoint_url with a client id and secret", option="sasl_token_provider")


def initial(token: OAuthToken) -> bytes:
    """The client's message (RFC 7628) with the extensions of KIP-342.

    Raises:
        ConfigurationError: an extension cannot be sent.
    """
    extensions: Mapping[Any, Any] = token.extensions
    for key, value in extensions.items():
        if not isinstance(key, str) or not KEY.fullmatch(key) or key == "auth":
            raise ConfigurationError(f"the token's extension {key!r} is not allowed: names consist of letters, and 'auth' is reserved", option="sasl_token_provider")
        if not isinstance(value, str) or not VALUE.fullmatch(value):
            raise ConfigurationError(f"the value of the token's extension {key!r} is not allowed: expected at least one visible ASCII character",
                                     option="sasl_token_provider")
    pairs = "".join(f"\x01{key}={value}" for key, value in token.extensions.items())
    return SecretBytes(f"n,,\x01auth=Bearer {token.value}{pairs}\x01\x01".encode())


def rejection(answer: bytes, token: OAuthToken) -> str:
    """The broker's error as text, for any bytes; without the token."""
    text: str = Secret(answer[:LONGEST_ERROR].decode("utf-8", "replace"))
    try:
        fields = json.loads(text)
    except (ValueError, RecursionError):
        fields = None
    if isinstance(fields, dict):
        text = ", ".join(f"{key} {value}" for key, value in fields.items() if isinstance(value, str) and value)
    return in_one_line(without({*encoded_forms(initial(token)), *encoded_forms(token.value.encode())}, text), SHOWN) or "none"
