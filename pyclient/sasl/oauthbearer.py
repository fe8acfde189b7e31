"""OAUTHBEARER (RFC 7628, KIP-255): logs in with a token from the user's function or from a token endpoint."""
from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Generator, Mapping
from typing import Any, Final

from pyclient.errors import ConfigurationError, SaslAuthenticationError
from pyclient.plugins import OAuthToken, Surroundings, load_function
from pyclient.sasl.tokens import Fetch, Renewal, Tokens
from pyclient.redaction import in_one_line, without

GIVE_IN: Final = b"\x01"
"""What is answered to a broker's error; the broker then refuses the login."""
KEY: Final = re.compile(r"[A-Za-z]+")
VALUE: Final = re.compile(r"[\x20-\x7e\t\r\n]+")
SHOWN: Final = 300
LONGEST_ERROR: Final = 65_536


class OAuthBearer:
    """One token for all connections of a client, fetched when one is needed and renewed before it ends.

    Every step runs in a worker, for token functions may block; async ones are awaited on the client's loop.
    """

    name = "OAUTHBEARER"
    blocking = True
    renews = True
    options = ("sasl_token_provider", "sasl_oauthbearer_token_endpoint_url")

    def __init__(self) -> None:
        self._surroundings = Surroundings()
        self._tokens = Tokens(self._surroundings)
        self._fetch: Fetch | None = None

    def __repr__(self) -> str:
        return f"<OAuthBearer {self._tokens!r}>"

    def run_in(self, surroundings: Surroundings, /) -> None:
        """Take time and chance from here."""
        self._surroundings = surroundings
        self._tokens = Tokens(surroundings)

    def close(self) -> None:
        """The client is closed: nobody waits for a token any more."""
        self._tokens.close()

    def hide(self, text: str, /) -> str:
        """Without the tokens."""
        return self._tokens.hide(text)

    def check(self, config: Any, /) -> None:
        """There must be a way to get tokens."""
        self._fetch_with(config)

    def exchange(self, config: Any, _host: str, /) -> Generator[bytes | Awaitable[Any], Any, None]:
        """One message; a broker that does not like the token tells why, and wants to hear that we have understood."""
        token = self._tokens.get(self._fetch_with(config), Renewal.of(config))
        if not isinstance(token, OAuthToken):
            token = yield token
        answer = yield from self._said(token, initial(token))
        if answer:
            why = explained(answer, token)
            self._tokens.drop(token)
            yield from self._said(token, GIVE_IN, why)
            raise SaslAuthenticationError(f"the broker does not accept the token: {why}")

    def _said(self, token: OAuthToken, message: bytes, why: str = "") -> Generator[bytes, Any, bytes]:
        """The broker's answer. A refusal means the token: it is used no more."""
        try:
            return bytes((yield message))
        except SaslAuthenticationError as refused:
            self._tokens.drop(token)
            if not why:
                raise
            raise SaslAuthenticationError(f"{refused.message}. The broker says of the token: {why}") from None

    def _fetch_with(self, config: Any) -> Fetch:
        if self._fetch is None:
            self._fetch = self._chosen(config)
        return self._fetch

    def _chosen(self, config: Any) -> Fetch:
        if None not in (config.sasl_token_provider, config.sasl_oauthbearer_token_endpoint_url):
            raise ConfigurationError(
                "sasl_token_provider and sasl_oauthbearer_token_endpoint_url are two ways to get a token: keep one", option="sasl_token_provider")
        if config.sasl_token_provider is not None:
            return load_function("sasl_token_provider", config.sasl_token_provider)  # type: ignore[no-any-return]
        if config.sasl_oauthbearer_token_endpoint_url is not None:
            from pyclient.sasl.oidc import token_source

            return token_source(config, self._surroundings)
        raise ConfigurationError(
            "sasl_token_provider is not set: sasl_mechanism=OAUTHBEARER needs it, a function that returns a token, "
            "or else sasl_oauthbearer_token_endpoint_url with a client id and secret", option="sasl_token_provider")


def initial(token: OAuthToken) -> bytes:
    """The client's message: RFC 7628's, with the extensions of KIP-342.

    Raises:
        ConfigurationError: an extension cannot be sent.
    """
    extensions: Mapping[Any, Any] = token.extensions
    for key, value in extensions.items():
        if not isinstance(key, str) or not KEY.fullmatch(key) or key == "auth":
            raise ConfigurationError(f"the token's extension {key!r} is not allowed: names have letters only, and are not 'auth'", option="sasl_token_provider")
        if not isinstance(value, str) or not VALUE.fullmatch(value):
            raise ConfigurationError(f"the value of the token's extension {key!r} is not allowed: visible ASCII, at least one character",
                                     option="sasl_token_provider")
    pairs = "".join(f"\x01{key}={value}" for key, value in token.extensions.items())
    return f"n,,\x01auth=Bearer {token.value}{pairs}\x01\x01".encode()


def explained(answer: bytes, token: OAuthToken) -> str:
    """The broker's error in words, whatever its bytes are; never the token."""
    text = answer[:LONGEST_ERROR].decode("utf-8", "replace")
    try:
        told = json.loads(text)
    except (ValueError, RecursionError):
        told = None
    if isinstance(told, dict):
        text = ", ".join(f"{key} {value}" for key, value in told.items() if isinstance(value, str) and value)
    return in_one_line(without([token.value], text), SHOWN) or "nothing"
