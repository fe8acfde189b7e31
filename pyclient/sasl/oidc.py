"""Tokens from a token endpoint, or from a file.

Grants: client credentials (RFC 6749), or jwt-bearer (RFC 7523) with an assertion from a file or signed here. Runs in a
worker. Errors show nothing of the request, and of the response only the fields for humans.
"""
from __future__ import annotations

import base64
import contextlib
import functools
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote_plus, unquote, urlsplit

import tenacity

from pyclient.config.addresses import is_loopback
from pyclient.errors import AuthenticationError, ConfigurationError, KafkaError, SaslAuthenticationError, TokenUnavailableError
from pyclient.plugins import OAuthToken, Surroundings
from pyclient.redaction import Secret, SecretBytes, in_one_line, without, without_query
from pyclient.sasl.assertions import ASSERTION_FILE, KEY, PREFIX, Assertions, unused
from pyclient.sasl.proxied_http import check_package, client_arguments, proxy_failure, proxy_refusal
from pyclient.sasl.tokens import BEARER, LONGEST, TokenSource

_log = logging.getLogger(__name__)
TIMEOUT_S: Final = 10.0
URL: Final = "sasl_oauthbearer_token_endpoint_url"
ID: Final = "sasl_oauthbearer_client_credentials_client_id"
SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105 an option's name
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LONGEST_LIFETIME_S: Final = 10**10
"""A longer ``expires_in`` (300 years) is not a token lifetime."""
RETRIABLE_STATUS: Final = (408, 425, 429)
"""HTTP status codes below 500 after which a retry may succeed."""
SHOWN: Final = 200


def token_source(config: Any, surroundings: Surroundings, *, sleep: Callable[[float], None] = time.sleep,
                 clock: Callable[[], float] = time.monotonic) -> TokenSource:
    """A function that fetches a token as the ``sasl_oauthbearer_`` options say.

    Raises:
        ConfigurationError: an option is missing or wrong, or httpx is not installed.
    """
    url = _split(config.sasl_oauthbearer_token_endpoint_url)
    if url.scheme == "file":
        return _FileSource(Path(unquote(url.path)), URL)
    if url.scheme not in ("http", "https") or not url.host:
        raise ConfigurationError(f"{URL} begins with {url.scheme or 'no scheme'}: expected an https or file URL", option=URL)
    if url.has_user:
        raise ConfigurationError(f"{URL} contains a user or a password: set {ID} and {SECRET} instead", option=URL)
    if url.scheme == "http" and not is_loopback(url.host):
        _log.warning("%s is not https: the client secret and the tokens are sent unencrypted", URL)
    _httpx()
    check_package(config.proxy_url)
    return _Endpoint(config, _grant(config, surroundings), surroundings, sleep, clock)


class _UrlParts(NamedTuple):
    """What is checked of a URL; no part may contain a secret."""

    scheme: str
    host: str
    path: str
    has_user: bool


def _split(url: str) -> _UrlParts:
    parts = _parts_or_error(url)
    if isinstance(parts, ValueError):  # raised here: as its context, it would keep the URL in its frames
        raise _invalid_url(parts)
    if parts.scheme != "file" and (not url.isprintable() or " " in url):
        raise _invalid_url("it contains a space or a control character")
    return parts


def _parts_or_error(url: str) -> _UrlParts | ValueError:
    """The parts of the URL, checked including those that are parsed on access."""
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = host.encode("idna"), parts.port
        return _UrlParts(parts.scheme, host, parts.path, bool(parts.username or parts.password))
    except ValueError as error:  # a UnicodeError is one
        return error.with_traceback(None)


def _invalid_url(why: object) -> ConfigurationError:
    return ConfigurationError(f"{URL} is not a valid URL: {why}", option=URL)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigurationError(
            f"{URL} needs the package httpx ({error}); install it with pip install 'pyclient-kafka[oidc]', or fetch tokens yourself in "
            "sasl_token_provider", option=URL) from error
    return httpx


def _context() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.hostname_checks_common_name = False
    return context


@functools.cache
def _url_without_query() -> Any:
    """A class of URLs that are shown without their query, which may contain secrets: httpx logs each request's URL."""

    class ShownWithoutQuery(_httpx().URL):  # type: ignore[misc] # httpx is optional
        def __str__(self) -> str:
            return without_query(super().__str__())

        def __repr__(self) -> str:
            return f"URL({str(self)!r})"

    return ShownWithoutQuery


class _FileSource:
    """A file that is kept up to date from outside, as by Kubernetes."""

    def __init__(self, path: Path, option: str) -> None:
        self._path = path
        self._option = option

    def __call__(self) -> str:
        try:
            with self._path.open(encoding="ascii") as file:
                found = Secret(file.read(LONGEST + 1).strip())
        except UnicodeDecodeError:
            raise TokenUnavailableError(f"{self._option}: the file {self._path} contains no valid token") from None
        except OSError as error:
            raise TokenUnavailableError(f"{self._option}: the file cannot be read: {error}") from error
        if len(found) > LONGEST or not BEARER.fullmatch(found):
            raise TokenUnavailableError(f"{self._option}: the file {self._path} contains no valid token")
        return found


class TokenRequest(NamedTuple):
    """A request to the token endpoint."""

    form: dict[str, str]
    headers: dict[str, str]
    secrets: tuple[str, ...]
    """Never shown in errors: its secrets, in each form that an endpoint may repeat."""


class Grant(Protocol):
    """An OAuth grant."""

    options: tuple[str, ...]
    """To check when the endpoint refuses."""

    def __call__(self) -> TokenRequest:
        """The next request."""


def _grant(config: Any, surroundings: Surroundings) -> Grant:
    ready, others = config.sasl_oauthbearer_assertion_file, unused(config)
    if ready is not None:
        if config.sasl_oauthbearer_assertion_private_key_file is not None or others:
            _log.warning("%s is set, so the client signs no assertion: the other options that begin with %s are ignored", ASSERTION_FILE, PREFIX)
        return _AssertionGrant(_FileSource(Path(ready), ASSERTION_FILE), _scope(config), ASSERTION_FILE)
    if config.sasl_oauthbearer_assertion_private_key_file is not None:
        return _AssertionGrant(Assertions(config, surroundings), _scope(config), KEY)
    if others:
        raise ConfigurationError(f"{KEY} is not set: {others[0]} needs a key to sign assertions with", option=KEY)
    for option in (ID, SECRET):
        if getattr(config, option) is None:
            raise ConfigurationError(f"{option} is not set: {URL} needs it, or else {KEY}", option=option)
    return _ClientCredentials(config)


def _scope(config: Any) -> dict[str, str]:
    return {"scope": config.sasl_oauthbearer_scope} if config.sasl_oauthbearer_scope else {}


class _AssertionGrant:
    def __init__(self, assertion: Callable[[], str], scope: dict[str, str], option: str) -> None:
        self._assertion = assertion
        self._scope = scope
        self.options: tuple[str, ...] = (option,)

    def __call__(self) -> TokenRequest:
        assertion = Secret(self._assertion())
        return TokenRequest({"grant_type": JWT_BEARER, "assertion": assertion, **self._scope}, {}, (assertion,))


class _ClientCredentials:
    options: tuple[str, ...] = (ID, SECRET)

    def __init__(self, config: Any) -> None:
        self._config = config

    def __call__(self) -> TokenRequest:
        config = self._config
        pair = [config.sasl_oauthbearer_client_credentials_client_id, config.sasl_oauthbearer_client_credentials_client_secret]
        secret, encoded = pair[1], Secret(quote_plus(pair[1]))
        if config.sasl_oauthbearer_header_urlencode:
            pair = [quote_plus(pair[0]), encoded]
        basic = Secret(base64.b64encode(":".join(pair).encode("utf-8", "surrogatepass")).decode())
        headers: dict[str, str] = {"Authorization": Secret(f"Basic {basic}")}
        return TokenRequest({"grant_type": "client_credentials", **_scope(config)}, headers, (basic, secret, encoded))


class _Endpoint:
    """Requests a token; retries temporary failures for ``sasl_login_retry_backoff_max_ms``."""

    def __init__(self, config: Any, grant: Grant, surroundings: Surroundings, sleep: Callable[[float], None],
                 clock: Callable[[], float]) -> None:
        self._url: str = config.sasl_oauthbearer_token_endpoint_url
        self._connect_s = _seconds(config.sasl_login_connect_timeout_ms)
        self._read_s = _seconds(config.sasl_login_read_timeout_ms)
        self._backoff_s: float = config.sasl_login_retry_backoff_ms / 1000
        self._backoff_max_s: float = config.sasl_login_retry_backoff_max_ms / 1000
        self._proxy_url: str | None = config.proxy_url
        self._grant = grant
        self._surroundings = surroundings
        self._sleep = sleep
        self._clock = clock

    def __repr__(self) -> str:
        return f"<token endpoint {self.shown_url}>"

    @property
    def shown_url(self) -> str:
        """The URL without its query, which may contain secrets."""
        return without_query(self._url)

    def __call__(self) -> OAuthToken:
        """A token.

        Raises:
            TokenUnavailableError: no response, or one without a token.
            AuthenticationError: the endpoint refuses the client.
        """
        waits = tenacity.wait_exponential(multiplier=self._backoff_s, max=self._backoff_max_s)
        retrying = tenacity.Retrying(
            retry=tenacity.retry_if_exception_type(TokenUnavailableError), stop=functools.partial(self._is_over, self._clock()), wait=waits,
            sleep=self._sleep, reraise=True)
        token: OAuthToken = retrying(self._once)
        return token

    def _is_over(self, began: float, state: tenacity.RetryCallState) -> bool:
        """As in Java, the longest wait also limits the time of all attempts together."""
        spent = max(self._clock() - began, state.idle_for)
        return spent + state.upcoming_sleep > self._backoff_max_s or self._backoff_s <= 0

    def _once(self) -> OAuthToken:
        request = self._grant()
        requested_at = self._surroundings.wall() / 1000
        answer = self._answer_or_error(request, threading.Event())
        if isinstance(answer, Exception):  # raised here: as its context, httpx's error would keep the request in its frames
            raise answer
        status, body = answer
        if (by_proxy := proxy_refusal(status, self._proxy_url)) is not None:
            raise TokenUnavailableError(f"the token endpoint {self.shown_url} cannot be reached: {by_proxy}")
        if status != 200:  # only 200 carries a token (RFC 6749, 5.1)
            raise self._refusal(status, body, request.secrets)
        return self._token(body, requested_at)

    def _answer_or_error(self, request: TokenRequest, late: threading.Event) -> tuple[int, bytes] | Exception:
        try:
            return self._answer(request, late)
        except KafkaError:
            raise
        except Exception as error:  # noqa: BLE001 an httpx client closed by the timer raises many types
            return self._as_kafka_error(error, late=late.is_set())

    def _answer(self, request: TokenRequest, late: threading.Event) -> tuple[int, bytes]:
        """The whole response.

        httpx's timeout restarts with each chunk, so a timer closes the client when the total time is over.
        """
        httpx = _httpx()
        limits = httpx.Timeout(self._read_s, connect=self._connect_s)
        with (
            httpx.Client(timeout=limits, **client_arguments(httpx, self._proxy_url, _context())) as client,
            _after(self._connect_s + self._read_s, late.set, client.close),
            contextlib.closing(self._send(client, request)) as answer,
        ):
            return answer.status_code, self._body(answer)

    def _send(self, client: Any, request: TokenRequest) -> Any:
        headers = {**request.headers, "Accept": "application/json", "Accept-Encoding": "identity"}
        made = client.build_request("POST", self._url, data=request.form, headers=headers)
        made.url = _url_without_query()(made.url)
        return client.send(made, stream=True)

    def _body(self, answer: Any) -> bytes:
        """The bytes as they were sent. Decompressed, a kilobyte could become gigabytes before it can be counted."""
        if answer.headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
            raise TokenUnavailableError(f"the token endpoint {self.shown_url} compressed its response, although the request says Accept-Encoding: identity")
        body = bytearray()
        for piece in answer.iter_raw():
            body += piece
            if len(body) > LONGEST:
                raise TokenUnavailableError(f"the token endpoint {self.shown_url} answered with more than {LONGEST} B")
        return SecretBytes(body)

    def _as_kafka_error(self, error: Exception, *, late: bool) -> Exception:
        httpx = _httpx()
        if late:
            return TokenUnavailableError(f"the token endpoint {self.shown_url} sent no complete response within {self._connect_s + self._read_s:.1f} s")
        if (distrust := _distrust(error)) is not None:
            return SaslAuthenticationError(
                f"the certificate of the token endpoint {self.shown_url} is not accepted: {distrust.verify_message.rstrip('.')}. It must be issued for that host by an authority "
                "that this machine trusts, or by one in the file that the environment variable SSL_CERT_FILE names")
        if (of_proxy := proxy_failure(error, self._proxy_url)) is not None:
            return TokenUnavailableError(f"the token endpoint {self.shown_url} cannot be reached: {of_proxy}")
        if isinstance(error, httpx.HTTPError):
            return TokenUnavailableError(f"the token endpoint {self.shown_url} did not answer: {type(error).__name__}: {error}")
        if isinstance(error, httpx.InvalidURL):
            return _invalid_url(error)
        if isinstance(error, (OSError, ValueError)):  # from proxy and CA settings in the environment
            return TokenUnavailableError(f"the token endpoint {self.shown_url} cannot be reached: {type(error).__name__}: {error}")
        return error

    def _refusal(self, status: int, body: bytes, secrets: tuple[str, ...]) -> TokenUnavailableError | AuthenticationError:
        fields = _fields(body)
        details = ": ".join(in_one_line(without(secrets, fields[each]), SHOWN) for each in ("error", "error_description") if isinstance(fields.get(each), str))
        what = f"the token endpoint {self.shown_url} answered with HTTP {status}{f' ({details})' if details else ''}"
        if status >= 500 or status in RETRIABLE_STATUS:
            return TokenUnavailableError(what)
        return SaslAuthenticationError(f"{what}; check {', '.join(self._grant.options)}, sasl_oauthbearer_scope and {URL}")

    def _token(self, body: bytes, requested_at: float) -> OAuthToken:
        value, lives = _token_fields(body)
        if not isinstance(value, str) or not BEARER.fullmatch(value):
            raise TokenUnavailableError(f"the token endpoint {self.shown_url} answered without a valid access_token: expected visible ASCII characters")
        counts = isinstance(lives, (int, float)) and not isinstance(lives, bool) and 0 < lives < LONGEST_LIFETIME_S
        return OAuthToken(value, requested_at + lives if counts and lives is not None else None)


@contextlib.contextmanager
def _after(seconds: float, *steps: Callable[[], None]) -> Iterator[None]:
    """Call *steps* if the block takes longer."""
    def end() -> None:
        for step in steps:
            step()

    timer = threading.Timer(seconds, end)
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _distrust(error: BaseException | None) -> ssl.SSLCertVerificationError | None:
    """The certificate error among the causes of *error*."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _fields(body: bytes) -> dict[str, Any]:
    try:
        fields = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return fields if isinstance(fields, dict) else {}


def _token_fields(body: bytes) -> tuple[Any, Any]:
    """Token and lifetime; the other fields may be secrets too, and stay here."""
    fields = _fields(body)
    value = fields.get("access_token")
    return Secret(value) if isinstance(value, str) else type(value), fields.get("expires_in")


def _seconds(milliseconds: int | None) -> float:
    return TIMEOUT_S if milliseconds is None else milliseconds / 1000
