"""Tokens from a token endpoint: the client-credentials grant (RFC 6749), the jwt-bearer grant (RFC 7523) with an
assertion that is ready or signed here, or a file.

Runs in a worker thread. What goes wrong is told without what was sent, and without what came back but for the fields meant to be read.
"""
from __future__ import annotations

import base64
import contextlib
import json
import logging
import ssl
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import SplitResult, quote_plus, unquote, urlsplit

import tenacity

from pyclient.config.addresses import is_loopback
from pyclient.errors import AuthenticationError, ConfigurationError, KafkaError, SaslAuthenticationError, TokenUnavailableError
from pyclient.plugins import OAuthToken, Surroundings
from pyclient.sasl.assertions import KEY, PREFIX, READY, Assertions, unused
from pyclient.sasl.tokens import BEARER, LONGEST, Fetch
from pyclient.redaction import in_one_line, without

_log = logging.getLogger(__name__)
TIMEOUT_S: Final = 10.0
URL: Final = "sasl_oauthbearer_token_endpoint_url"
ID: Final = "sasl_oauthbearer_client_credentials_client_id"
SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105 an option's name
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LONGEST_LIFE_S: Final = 10**10
"""Who says more, means no life of a token (300 years)."""
BUSY: Final = (408, 425, 429)
"""Answers below 500 that may be another one soon."""
SHOWN: Final = 200


def token_source(config: Any, surroundings: Surroundings, *, sleep: Callable[[float], None] = time.sleep) -> Fetch:
    """A function that fetches a token as the ``sasl_oauthbearer_`` options say.

    Raises:
        ConfigurationError: an option is missing or wrong, or httpx is not installed.
    """
    url = _split(config.sasl_oauthbearer_token_endpoint_url)
    if url.scheme == "file":
        return _FileSource(Path(unquote(url.path)), URL)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError(f"{URL} begins with {url.scheme or 'no scheme'}: an https URL or a file URL is expected", option=URL)
    if url.username or url.password:
        raise ConfigurationError(f"{URL} holds a user or a password: give {ID} and {SECRET} instead", option=URL)
    if url.scheme == "http" and not is_loopback(url.hostname):
        _log.warning("%s is not https: the client's secret and the tokens can be read by others on the way", URL)
    _httpx()
    return _Endpoint(config, _grant(config, surroundings), surroundings, sleep)


def _split(url: str) -> SplitResult:
    """Its parts, those that are read later too."""
    try:
        parts = urlsplit(url)
        _ = (parts.hostname or "").encode("idna"), parts.port
    except ValueError as error:  # a UnicodeError is one
        raise _no_url(error) from None
    if parts.scheme != "file" and (not url.isprintable() or " " in url):
        raise _no_url("it holds a space or a control character")
    return parts


def _no_url(why: object) -> ConfigurationError:
    return ConfigurationError(f"{URL} is no URL: {why}", option=URL)


def _httpx() -> Any:
    try:
        import httpx
    except ImportError as error:
        raise ConfigurationError(
            f"{URL} needs the package httpx ({error}); install it with pip install 'pyclient-kafka[oidc]', or fetch tokens yourself in "
            "sasl_token_provider", option=URL) from error
    return httpx


class _FileSource:
    """A file that somebody else keeps up to date, as Kubernetes does."""

    def __init__(self, path: Path, option: str) -> None:
        self._path = path
        self._option = option

    def __call__(self) -> str:
        try:
            with self._path.open(encoding="ascii") as file:
                found = file.read(LONGEST + 1).strip()
        except UnicodeDecodeError:
            raise TokenUnavailableError(f"the file of {self._option} holds no token: {self._path}") from None
        except OSError as error:
            raise TokenUnavailableError(f"the file of {self._option} cannot be read: {error}") from error
        if len(found) > LONGEST or not BEARER.fullmatch(found):
            raise TokenUnavailableError(f"the file of {self._option} holds no token: {self._path}")
        return found


class Request(NamedTuple):
    """What a token is asked for with."""

    form: dict[str, str]
    headers: dict[str, str]
    secrets: tuple[str, ...]
    """What of it may stand in no error, in all forms that an endpoint may repeat."""


class Grant(Protocol):
    """A reason to be given a token."""

    options: tuple[str, ...]
    """To look at when the endpoint refuses."""

    def __call__(self) -> Request:
        """The next request."""


def _grant(config: Any, surroundings: Surroundings) -> Grant:
    ready, others = config.sasl_oauthbearer_assertion_file, unused(config)
    if ready is not None:
        if config.sasl_oauthbearer_assertion_private_key_file is not None or others:
            _log.warning("%s is set, so no assertion is signed here: the other options that begin with %s do nothing", READY, PREFIX)
        return _AssertionGrant(_FileSource(Path(ready), READY), _scope(config), READY)
    if config.sasl_oauthbearer_assertion_private_key_file is not None:
        return _AssertionGrant(Assertions(config, surroundings), _scope(config), KEY)
    if others:
        raise ConfigurationError(f"{KEY} is not set: {others[0]} is about assertions that are signed with it", option=KEY)
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

    def __call__(self) -> Request:
        assertion = self._assertion()
        return Request({"grant_type": JWT_BEARER, "assertion": assertion, **self._scope}, {}, (assertion,))


class _ClientCredentials:
    options: tuple[str, ...] = (ID, SECRET)

    def __init__(self, config: Any) -> None:
        self._config = config

    def __call__(self) -> Request:
        config = self._config
        pair = [config.sasl_oauthbearer_client_credentials_client_id, config.sasl_oauthbearer_client_credentials_client_secret]
        secret, encoded = pair[1], quote_plus(pair[1])
        if config.sasl_oauthbearer_header_urlencode:
            pair = [quote_plus(each) for each in pair]
        basic = base64.b64encode(":".join(pair).encode("utf-8", "surrogatepass")).decode()
        return Request({"grant_type": "client_credentials", **_scope(config)}, {"Authorization": f"Basic {basic}"}, (basic, secret, encoded))


class _Endpoint:
    """Asks, and asks again as long as ``sasl_login_retry_backoff_max_ms`` allows while the failure may pass."""

    def __init__(self, config: Any, grant: Grant, surroundings: Surroundings, sleep: Callable[[float], None]) -> None:
        self._url: str = config.sasl_oauthbearer_token_endpoint_url
        self._connect_s = _seconds(config.sasl_login_connect_timeout_ms)
        self._read_s = _seconds(config.sasl_login_read_timeout_ms)
        self._backoff_s: float = config.sasl_login_retry_backoff_ms / 1000
        self._backoff_max_s: float = config.sasl_login_retry_backoff_max_ms / 1000
        self._grant = grant
        self._surroundings = surroundings
        self._sleep = sleep

    def __repr__(self) -> str:
        return f"<token endpoint {self.where}>"

    @property
    def where(self) -> str:
        """The endpoint without its query, which may hold what is nobody's business."""
        return urlsplit(self._url)._replace(query="", fragment="").geturl()

    def __call__(self) -> OAuthToken:
        """A token.

        Raises:
            TokenUnavailableError: it did not answer, or not with a token.
            AuthenticationError: it knows us, and refuses.
        """
        waits = tenacity.wait_exponential(multiplier=self._backoff_s, max=self._backoff_max_s)
        again = tenacity.Retrying(retry=tenacity.retry_if_exception_type(TokenUnavailableError), stop=self._is_over, wait=waits, sleep=self._sleep, reraise=True)
        token: OAuthToken = again(self._once)
        return token

    def _is_over(self, state: tenacity.RetryCallState) -> bool:
        """As in Java the longest wait is the time for all attempts, too: none begins after it."""
        spent = max(state.seconds_since_start or 0.0, state.idle_for)
        return spent + state.upcoming_sleep > self._backoff_max_s or self._backoff_s <= 0

    def _once(self) -> OAuthToken:
        request = self._grant()
        asked_at = self._surroundings.wall() / 1000
        late = threading.Event()
        try:
            status, body = self._answer(request, late)
        except KafkaError:
            raise
        except Exception as error:  # noqa: BLE001 whatever a client that is closed meanwhile raises
            raise self._trouble(error, late=late.is_set()) from None
        if status != 200:  # the only answer that carries a token (RFC 6749, 5.1)
            raise self._refusal(status, body, request.secrets)
        return self._token(body, asked_at)

    def _answer(self, request: Request, late: threading.Event) -> tuple[int, bytes]:
        """All of it. httpx's time is for each piece, and begins anew with the next; so the client is closed when the time for all is over."""
        httpx = _httpx()
        limits = httpx.Timeout(self._read_s, connect=self._connect_s)
        headers = {**request.headers, "Accept": "application/json"}
        with (
            httpx.Client(timeout=limits, verify=ssl.create_default_context()) as client,
            _after(self._connect_s + self._read_s, late.set, client.close),
            client.stream("POST", self._url, data=request.form, headers=headers) as answer,
        ):
            return answer.status_code, self._body(answer)

    def _body(self, answer: Any) -> bytes:
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > LONGEST:
                raise TokenUnavailableError(f"the token endpoint {self.where} answered with more than {LONGEST} B")
        return bytes(body)

    def _trouble(self, error: Exception, *, late: bool) -> Exception:
        httpx = _httpx()
        if late:
            return TokenUnavailableError(f"the token endpoint {self.where} gave no whole answer: it did not end within {self._connect_s + self._read_s:.1f} s")
        if (distrust := _distrust(error)) is not None:
            return SaslAuthenticationError(
                f"the certificate of the token endpoint {self.where} is not accepted: {distrust.verify_message}. It must be for that host, by an authority "
                "that this machine trusts, or of those in the file that the environment variable SSL_CERT_FILE names")
        if isinstance(error, httpx.HTTPError):
            return TokenUnavailableError(f"the token endpoint {self.where} gave no answer: {type(error).__name__}: {error}")
        if isinstance(error, httpx.InvalidURL):
            return _no_url(error)
        if isinstance(error, (OSError, ValueError)):  # what the environment says of proxies and authorities
            return TokenUnavailableError(f"the token endpoint {self.where} cannot be asked: {type(error).__name__}: {error}")
        return error

    def _refusal(self, status: int, body: bytes, secrets: tuple[str, ...]) -> TokenUnavailableError | AuthenticationError:
        said = _fields(body)
        told = ": ".join(in_one_line(without(secrets, said[each]), SHOWN) for each in ("error", "error_description") if isinstance(said.get(each), str))
        what = f"the token endpoint {self.where} answered with HTTP {status}{f' ({told})' if told else ''}"
        if status >= 500 or status in BUSY:
            return TokenUnavailableError(what)
        return SaslAuthenticationError(f"{what}; check {', '.join(self._grant.options)}, sasl_oauthbearer_scope and {URL}")

    def _token(self, body: bytes, asked_at: float) -> OAuthToken:
        said = _fields(body)
        value, lives = said.get("access_token"), said.get("expires_in")
        if not isinstance(value, str) or not BEARER.fullmatch(value):
            raise TokenUnavailableError(f"the token endpoint {self.where} answered without an access_token, or with one that is none: a text of visible ASCII characters")
        counts = isinstance(lives, (int, float)) and not isinstance(lives, bool) and 0 < lives < LONGEST_LIFE_S
        return OAuthToken(value, asked_at + lives if counts and lives is not None else None)


@contextlib.contextmanager
def _after(seconds: float, *steps: Callable[[], None]) -> Iterator[None]:
    """Do this when what is done within takes longer."""
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
    """Among what led to an error."""
    while error is not None and not isinstance(error, ssl.SSLCertVerificationError):
        error = error.__cause__ or error.__context__
    return error


def _fields(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _seconds(milliseconds: int | None) -> float:
    return TIMEOUT_S if milliseconds is None else milliseconds / 1000
