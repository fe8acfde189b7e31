"""Tokens from a token endpoint: the client-credentials grant (RFC 6749), the jwt-bearer grant with a ready assertion (RFC 7523), or a file.

Runs in a worker thread. What goes wrong is told without what was sent, and without what came back but for the fields meant to be read.
"""
from __future__ import annotations

import base64
import json
import logging
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote_plus, unquote, urlsplit

import tenacity

from pyclient.errors import AuthenticationError, ConfigurationError, SaslAuthenticationError, TokenUnavailable, UnsupportedFeature
from pyclient.plugins import OAuthToken, Surroundings
from pyclient.sasl.tokens import LONGEST, Fetch

_log = logging.getLogger(__name__)
TIMEOUT_S: Final = 10.0
URL: Final = "sasl_oauthbearer_token_endpoint_url"
ID: Final = "sasl_oauthbearer_client_credentials_client_id"
SECRET: Final = "sasl_oauthbearer_client_credentials_client_secret"  # noqa: S105 an option's name
JWT_BEARER: Final = "urn:ietf:params:oauth:grant-type:jwt-bearer"
LOCAL: Final = ("localhost", "127.0.0.1", "::1")
BUSY: Final = (408, 425, 429)
"""Answers below 500 that may be another one soon."""
SIGNING: Final = ("sasl_oauthbearer_assertion_private_key_file", "sasl_oauthbearer_assertion_template_file")
SHOWN: Final = 200


def token_source(config: Any, surroundings: Surroundings, *, sleep: Callable[[float], None] = time.sleep) -> Fetch:
    """A function that fetches a token as the ``sasl_oauthbearer_`` options say.

    Raises:
        ConfigurationError: an option is missing or wrong, or httpx is not installed.
    """
    url = urlsplit(config.sasl_oauthbearer_token_endpoint_url)
    if url.scheme == "file":
        return _FileSource(Path(unquote(url.path)), URL)
    if url.scheme not in ("http", "https") or not url.hostname:
        raise ConfigurationError(f"{URL} begins with {url.scheme or 'no scheme'}: an https URL or a file URL is expected", option=URL)
    if url.username or url.password:
        raise ConfigurationError(f"{URL} holds a user or a password: give {ID} and {SECRET} instead", option=URL)
    if url.scheme == "http" and url.hostname not in LOCAL:
        _log.warning("%s is not https: the client's secret and the tokens can be read by others on the way", URL)
    _httpx()
    return _Endpoint(config, _grant(config), surroundings, sleep)


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
                return file.read(LONGEST).strip()
        except UnicodeDecodeError:
            raise TokenUnavailable(f"the file of {self._option} holds no token: {self._path}") from None
        except OSError as error:
            raise TokenUnavailable(f"the file of {self._option} cannot be read: {error}") from error


Grant = Callable[[], tuple[dict[str, str], dict[str, str]]]
"""Gives the form and the headers of a request."""


def _grant(config: Any) -> Grant:
    for option in SIGNING:
        if getattr(config, option, None) is not None:
            raise UnsupportedFeature(
                f"{option}: assertions are not signed here yet. Give a ready one in sasl_oauthbearer_assertion_file, or fetch tokens yourself in "
                "sasl_token_provider", option=option)
    if config.sasl_oauthbearer_assertion_file is not None:
        return _AssertionGrant(_FileSource(Path(config.sasl_oauthbearer_assertion_file), "sasl_oauthbearer_assertion_file"), _scope(config))
    for option in (ID, SECRET):
        if getattr(config, option) is None:
            raise ConfigurationError(f"{option} is not set: {URL} needs it", option=option)
    return _ClientCredentials(config)


def _scope(config: Any) -> dict[str, str]:
    return {"scope": config.sasl_oauthbearer_scope} if config.sasl_oauthbearer_scope else {}


class _AssertionGrant:
    def __init__(self, assertion: Callable[[], str], scope: dict[str, str]) -> None:
        self._assertion = assertion
        self._scope = scope

    def __call__(self) -> tuple[dict[str, str], dict[str, str]]:
        return {"grant_type": JWT_BEARER, "assertion": self._assertion(), **self._scope}, {}


class _ClientCredentials:
    def __init__(self, config: Any) -> None:
        self._config = config

    def __call__(self) -> tuple[dict[str, str], dict[str, str]]:
        config = self._config
        pair = [config.sasl_oauthbearer_client_credentials_client_id, config.sasl_oauthbearer_client_credentials_client_secret]
        if config.sasl_oauthbearer_header_urlencode:
            pair = [quote_plus(each) for each in pair]
        basic = base64.b64encode(":".join(pair).encode("utf-8", "surrogatepass")).decode()
        return {"grant_type": "client_credentials", **_scope(config)}, {"Authorization": f"Basic {basic}"}


class _Endpoint:
    """Asks, and asks again as long as ``sasl_login_retry_backoff_max_ms`` allows while the failure may pass."""

    def __init__(self, config: Any, grant: Grant, surroundings: Surroundings, sleep: Callable[[float], None]) -> None:
        self._url: str = config.sasl_oauthbearer_token_endpoint_url
        self._connect_s = _seconds(config.sasl_login_connect_timeout_ms)
        self._read_s = _seconds(config.sasl_login_read_timeout_ms)
        self._backoff_s: float = config.sasl_login_retry_backoff_ms / 1000
        self._backoff_max_s: float = config.sasl_login_retry_backoff_max_ms / 1000
        self._secret: str = config.sasl_oauthbearer_client_credentials_client_secret or ""
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
            TokenUnavailable: it did not answer, or not with a token.
            AuthenticationError: it knows us, and refuses.
        """
        waits = tenacity.wait_exponential(multiplier=self._backoff_s, max=self._backoff_max_s)
        again = tenacity.Retrying(retry=tenacity.retry_if_exception_type(TokenUnavailable), stop=self._is_over, wait=waits, sleep=self._sleep, reraise=True)
        token: OAuthToken = again(self._once)
        return token

    def _is_over(self, state: tenacity.RetryCallState) -> bool:
        """As in Java the longest wait is the time for all attempts, too."""
        return state.idle_for + state.upcoming_sleep > self._backoff_max_s or self._backoff_s <= 0

    def _once(self) -> OAuthToken:
        httpx = _httpx()
        form, headers = self._grant()
        limits = httpx.Timeout(self._read_s, connect=self._connect_s)
        asked_at = self._surroundings.wall() / 1000
        try:
            with httpx.Client(timeout=limits) as client, client.stream("POST", self._url, data=form, headers={**headers, "Accept": "application/json"}) as answer:
                body = self._body(answer)
        except httpx.HTTPError as error:
            raise TokenUnavailable(f"the token endpoint {self.where} gave no answer: {type(error).__name__}: {error}") from None
        except httpx.InvalidURL as error:
            raise ConfigurationError(f"{URL} is no URL: {error}", option=URL) from None
        if answer.status_code != 200:  # the only answer that carries a token (RFC 6749, 5.1)
            raise self._refusal(answer.status_code, body)
        return self._token(body, asked_at)

    def _body(self, answer: Any) -> bytes:
        body = bytearray()
        for piece in answer.iter_bytes():
            body += piece
            if len(body) > LONGEST:
                raise TokenUnavailable(f"the token endpoint {self.where} answered with more than {LONGEST} B")
        return bytes(body)

    def _refusal(self, status: int, body: bytes) -> TokenUnavailable | AuthenticationError:
        said = _fields(body)
        told = ": ".join(self._shown(said[each]) for each in ("error", "error_description") if isinstance(said.get(each), str))
        what = f"the token endpoint {self.where} answered with HTTP {status}{f' ({told})' if told else ''}"
        if status >= 500 or status in BUSY:
            return TokenUnavailable(what)
        return SaslAuthenticationError(f"{what}; check {ID}, {SECRET}, sasl_oauthbearer_scope and {URL}")

    def _shown(self, text: str) -> str:
        hidden = text.replace(self._secret, "[hidden]") if self._secret else text
        return "".join(each if each.isprintable() else " " for each in hidden[:SHOWN])

    def _token(self, body: bytes, asked_at: float) -> OAuthToken:
        said = _fields(body)
        value, lives = said.get("access_token"), said.get("expires_in")
        if not isinstance(value, str) or not value:
            raise TokenUnavailable(f"the token endpoint {self.where} answered without an access_token")
        counts = isinstance(lives, (int, float)) and not isinstance(lives, bool) and 0 < lives < 2**53
        return OAuthToken(value, asked_at + lives if counts and lives is not None else None)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        said = json.loads(body)
    except (ValueError, RecursionError):
        return {}
    return said if isinstance(said, dict) else {}


def _seconds(milliseconds: int | None) -> float:
    return TIMEOUT_S if milliseconds is None else milliseconds / 1000
