"""How requests reach a schema registry: URLs, TLS, logins, limits, retries. Independent of schemas.

Errors show URLs without user and query, and nothing of a request but its path. Wrong passwords and certificates are
raised at once; what may pass (no connection, HTTP 5xx) is tried again at the next URL.
"""
from __future__ import annotations

import base64
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import tenacity

from pyclient.config.client import ClientConfig
from pyclient.config.addresses import is_loopback
from pyclient.errors import ConfigurationError, SchemaRegistryError, SchemaRegistryUnavailableError
from pyclient.plugins import Surroundings
from pyclient.redaction import Secret, in_one_line, public_url
from pyclient.sasl.proxied_http import check_package, proxy_failure
from pyclient.sasl.tokens import RefreshPolicy, TokenCache
from pyclient.serializers.registry_core import Request, Response

log = logging.getLogger(__name__)
TYPE: Final = "application/vnd.schemaregistry.v1+json"
MOST_BODY: Final = 16 * 1024 * 1024
"""Bytes of an answer."""
TEMPORARY: Final = frozenset({408, 425, 429, 500, 502, 503, 504})
ROUNDS: Final = 3
"""Attempts at each URL."""
FIRST_PAUSE_S: Final = 0.1
LONGEST_PAUSE_S: Final = 1.0


class RegistryOptions(NamedTuple):
    """What both clients are made of; see `SchemaRegistryClient`."""

    urls: tuple[str, ...]
    timeout_s: float
    verify: ssl.SSLContext
    token: Callable[[], str] | None
    drop_token: Callable[[], None]
    basic: str | None
    proxy_url: str | None

    def headers(self) -> dict[str, str]:
        """Of every request; may fetch a token, so never call it on a loop."""
        login = self.basic or (None if self.token is None else Secret(f"Bearer {self.token()}"))
        found = {"Accept": f"{TYPE}, application/json", "Accept-Encoding": "identity"}
        return found if login is None else {**found, "Authorization": login}


def registry_options(url: str | Sequence[str], *, basic_auth: object, bearer_token: str | Callable[[], Any] | None,
                     oauth: Mapping[str, Any] | None, ssl_context: ssl.SSLContext | None, ssl_truststore_location: str | None,
                     ssl_keystore_location: str | None, ssl_key_password: str | None, timeout_ms: int,
                     proxy_url: str | None = None) -> RegistryOptions:
    """Checked options.

    Raises:
        ConfigurationError: one is wrong, or two contradict each other.
    """
    logins = [name for name, value in (("basic_auth", basic_auth), ("bearer_token", bearer_token), ("oauth", oauth)) if value is not None]
    if len(logins) > 1:
        raise ConfigurationError(f"{' and '.join(logins)} are several logins: keep one", option=logins[1])
    urls = tuple(_checked_url(each, has_login=bool(logins)) for each in ([url] if isinstance(url, str) else url))
    if not urls:
        raise ConfigurationError("url: expected the URL of a schema registry, or several", option="url")
    if timeout_ms <= 0:
        raise ConfigurationError(f"timeout_ms = {timeout_ms}: expected a positive number of milliseconds", option="timeout_ms")
    context = _context(ssl_context, ssl_truststore_location, ssl_keystore_location, ssl_key_password)
    proxy_url = _client_config(proxy_url, {}).proxy_url
    check_package(proxy_url)
    token, drop = _tokens(bearer_token, oauth, proxy_url)
    return RegistryOptions(urls, timeout_ms / 1000, context, token, drop, _basic(basic_auth), proxy_url)


def httpx_module() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigurationError(f"a schema registry needs the package httpx ({error}); install it with pip install 'pyclient-kafka[registry]'") from error
    return httpx


def _checked_url(url: str, *, has_login: bool) -> str:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ("http", "https") and parts.hostname and not parts.query and not parts.fragment and url.isprintable()
        _ = parts.port
    except ValueError:
        usable, parts = False, urlsplit("")
    if not usable:
        raise ConfigurationError("url: expected http://host:port or https://host:port of a schema registry, without query", option="url")
    if parts.username or parts.password:
        raise ConfigurationError("url contains a user or a password: set basic_auth instead", option="url")
    if has_login and parts.scheme == "http" and not is_loopback(parts.hostname or ""):
        log.warning("the schema registry %s is not https: its login is sent unencrypted", public_url(url))
    return url.rstrip("/")


def _context(given: ssl.SSLContext | None, trust: str | None, key: str | None, password: str | None) -> ssl.SSLContext:
    if given is not None:
        if trust or key:
            raise ConfigurationError("ssl_context replaces ssl_truststore_location and ssl_keystore_location: leave those out", option="ssl_context")
        return given
    try:
        context = ssl.create_default_context(cafile=trust)
        if key is not None:
            context.load_cert_chain(key, password=password or "")
    except (OSError, ValueError) as error:  # a wrong password is an ssl.SSLError, which is an OSError
        option = "ssl_keystore_location" if trust is None else "ssl_truststore_location"
        raise ConfigurationError(f"ssl_truststore_location or ssl_keystore_location cannot be read as PEM: {error}", option=option) from None
    context.hostname_checks_common_name = False
    return context


def _basic(pair: object) -> str | None:
    if pair is None:
        return None
    if not isinstance(pair, tuple) or len(pair) != 2 or ":" in pair[0]:
        raise ConfigurationError("basic_auth: expected (user, password); a user contains no colon", option="basic_auth")
    return Secret("Basic " + base64.b64encode(":".join(pair).encode()).decode())


def _tokens(given: str | Callable[[], Any] | None, oauth: Mapping[str, Any] | None,
            proxy_url: str | None) -> tuple[Callable[[], str] | None, Callable[[], None]]:
    if isinstance(given, str):
        fixed = Secret(given)
        return (lambda: fixed), (lambda: None)
    if given is None and oauth is None:
        return None, (lambda: None)
    tokens = _Tokens(given, _client_config(proxy_url, oauth or {}))
    return tokens.value, tokens.drop


def _client_config(proxy_url: str | None, oauth: Mapping[str, Any]) -> ClientConfig:
    """The options of a client that there is none of: they are checked, and name a token endpoint and its proxy."""
    return ClientConfig.parse({}, {"bootstrap_servers": "localhost:9092", **({} if proxy_url is None else {"proxy_url": proxy_url}), **oauth})


class _Tokens:
    """Tokens of a function or a token endpoint, cached and renewed as those of the login at brokers."""

    def __init__(self, provider: Callable[[], Any] | None, config: ClientConfig) -> None:
        self._policy = RefreshPolicy.of(config)
        self._cache = TokenCache(Surroundings())
        self._lock = threading.Lock()
        self._fetch = provider or self._endpoint(config)

    @staticmethod
    def _endpoint(config: ClientConfig) -> Callable[[], Any]:
        from pyclient.sasl.oidc import token_source

        if config.sasl_oauthbearer_token_endpoint_url is None:
            raise ConfigurationError("oauth: sasl_oauthbearer_token_endpoint_url is not set", option="oauth")
        return token_source(config, Surroundings())

    def value(self) -> str:
        with self._lock:
            found: Any = self._cache.get(self._fetch, self._policy)
        if not hasattr(found, "value"):
            raise ConfigurationError("bearer_token: the function is async; give a plain one", option="bearer_token")
        return Secret(found.value)

    def drop(self) -> None:
        with self._lock:
            self._cache = TokenCache(Surroundings())


def retry_settings(urls: int) -> dict[str, Any]:
    """For tenacity: every URL at once, then again after a pause."""
    pauses = tenacity.wait_exponential(multiplier=FIRST_PAUSE_S, max=LONGEST_PAUSE_S)

    def wait(state: tenacity.RetryCallState) -> float:
        return 0.0 if state.attempt_number % urls else float(pauses(state))

    return {"retry": tenacity.retry_if_exception_type(SchemaRegistryUnavailableError), "stop": tenacity.stop_after_attempt(ROUNDS * urls),
            "wait": wait, "reraise": True, "before_sleep": _log_retry}


def _log_retry(state: tenacity.RetryCallState) -> None:
    if state.attempt_number == 1 and state.outcome is not None:
        log.warning("%s; trying again", state.outcome.exception())


class Body:
    """The bytes of an answer, within the limits of size and time."""

    def __init__(self, url: str, request: Request, timeout_s: float) -> None:
        self._url, self._request = url, request
        self._deadline = time.monotonic() + timeout_s
        self._timeout_s = timeout_s
        self._bytes = bytearray()

    def add(self, piece: bytes) -> None:
        self._bytes += piece
        if len(self._bytes) > MOST_BODY:
            raise SchemaRegistryError(f"the schema registry {self._url} answered {self._request.shown} with more than {MOST_BODY} B")
        if time.monotonic() > self._deadline:
            raise SchemaRegistryUnavailableError(f"the schema registry {self._url} sent no complete answer to {self._request.shown} within {self._timeout_s:.1f} s")

    def response(self, status: int) -> Response:
        """The answer.

        Raises:
            SchemaRegistryUnavailableError: its status says that it may pass.
        """
        try:
            value = json.loads(self._bytes) if self._bytes else None
        except (ValueError, RecursionError):
            value = self._bytes[:100].decode("utf-8", "replace")
        if status in TEMPORARY:
            message = value.get("message", "") if isinstance(value, dict) else value or ""
            shown = f" ({in_one_line(str(message), 200)})" if message else ""
            raise SchemaRegistryUnavailableError(f"the schema registry {self._url} answered {self._request.shown} with HTTP {status}{shown}",
                                                 status=status, subject=self._request.subject)
        return Response(status, value, self._url)


def failure(error: Exception, url: str, request: Request, options: RegistryOptions) -> SchemaRegistryError:
    """The error for what httpx raised."""
    httpx = httpx_module()
    cause: BaseException | None = error
    while cause is not None and not isinstance(cause, ssl.SSLError):
        cause = cause.__cause__ or cause.__context__
    if isinstance(cause, ssl.SSLCertVerificationError):
        return SchemaRegistryError(f"the certificate of the schema registry {url} is not accepted: {cause.verify_message.rstrip('.')}. "
                                   "Set ssl_truststore_location to the file of the authority that issued it", subject=request.subject)
    if isinstance(cause, ssl.SSLError):
        return SchemaRegistryError(f"no TLS connection to the schema registry {url}: {cause.reason or cause}. Check http or https in url, and "
                                   "ssl_keystore_location if it asks for a certificate", subject=request.subject)
    about = f", subject {request.subject!r}" if request.subject else ""
    if isinstance(error, httpx.TimeoutException):
        return SchemaRegistryUnavailableError(f"the schema registry {url} did not answer {request.shown} within {options.timeout_s:.1f} s{about}", subject=request.subject)
    why = proxy_failure(error, options.proxy_url) or f"{type(error).__name__}: {in_one_line(str(error), 200)}"
    return SchemaRegistryUnavailableError(f"the schema registry {url} cannot be reached for {request.shown}{about}: {why}", subject=request.subject)
