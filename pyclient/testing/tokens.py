"""Tokens for OAUTHBEARER: a token endpoint that signs them, as identity providers do, and unsecured tokens.

The endpoint is a small HTTP server in a thread of this process: the client-credentials grant (RFC 6749, 4.4), JSON Web
Tokens with RS256, its keys as a JWKS. Brokers get the keys as a file, so they need no way to it.
"""
from __future__ import annotations

import base64
import binascii
import json
import threading
import time
import urllib.parse
import uuid
from collections.abc import Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final, NamedTuple, Self

from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import padding, rsa

AUDIENCE: Final = "kafka"
LIFETIME_S: Final = 3600.0
MOST_BODY_BYTES: Final = 64 * 1024
_END_TIMEOUT_S: Final = 5.0


class TokenRequest(NamedTuple):
    """What a client asked the token endpoint for, and the HTTP status it got. Secrets are not kept."""

    client_id: str
    scope: str
    status: int


class _TokenRefusedError(Exception):
    """An error of RFC 6749, 5.2: HTTP status, code and text."""

    def __init__(self, status: int, error: str, description: str) -> None:
        super().__init__(description)
        self.status, self.error, self.description = status, error, description


class TokenIssuer:
    """An identity provider for tests: signs tokens for the cluster's users.

    A user's name and password are the client id and secret.

    Attributes:
        lifetime_s: how long new tokens are good for.
        delay_s: how long the endpoint waits before it answers.
        requests: what was asked of the endpoint, oldest first.
    """

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self._key: Final = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        self._unknown_key: rsa.RSAPrivateKey | None = None
        self._key_id: Final = uuid.uuid4().hex
        self.lifetime_s: float = LIFETIME_S
        self.delay_s: float = 0.0
        self.requests: list[TokenRequest] = []
        self._guard = threading.Lock()
        self._failing: tuple[int, int | None] | None = None  # status, how many times yet; None: until heal()
        self._ended = threading.Event()
        self._server = _Server(self)
        self._thread = threading.Thread(target=self._server.serve_forever, args=(0.05,), name="pyclient-token-issuer", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()
        self._server.shutdown()
        self._server.server_close()
        self._thread.join(_END_TIMEOUT_S)

    def __repr__(self) -> str:
        return f"<TokenIssuer: {self.url}, {len(self.requests)} requests>"

    @property
    def url(self) -> str:
        """Who the tokens say issued them (``iss``)."""
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def token_endpoint_url(self) -> str:
        """Where clients get tokens."""
        return f"{self.url}/token"

    @property
    def jwks(self) -> str:
        """The keys that prove the signatures, in JSON; also served at ``/jwks``."""
        numbers = self._key.public_key().public_numbers()
        return json.dumps({"keys": [{
            "kty": "RSA", "use": "sig", "alg": "RS256", "kid": self._key_id, "n": _unsigned(numbers.n), "e": _unsigned(numbers.e)}]})

    def fail(self, status: int = 503, *, times: int | None = None) -> None:
        """Answer with this HTTP status, *times* times or until `heal`."""
        with self._guard:
            self._failing = (status, times)

    def heal(self) -> None:
        """Fail no more and wait no more before answers."""
        with self._guard:
            self._failing = None
        self.delay_s = 0.0

    def token(self, user: str, *, lifetime_s: float | None = None, known_key: bool = True, **claims: object) -> str:
        """A signed token for *user*.

        Brokers refuse one with a negative lifetime, with ``known_key=False``, or with another ``aud`` or ``iss``.
        """
        return self._signed(user, self.lifetime_s if lifetime_s is None else lifetime_s, claims, self._signing_key(known_key))

    def _signed(self, user: str, lifetime_s: float, claims: Mapping[str, object], key: rsa.RSAPrivateKey) -> str:
        now = time.time()
        content = {"iss": self.url, "aud": AUDIENCE, "sub": user, "jti": uuid.uuid4().hex, "iat": int(now),
                   "exp": int(now + lifetime_s), **claims}
        covered = f"{_part({'alg': 'RS256', 'typ': 'JWT', 'kid': self._key_id})}.{_part(content)}"
        return f"{covered}.{_text(key.sign(covered.encode(), padding.PKCS1v15(), hashes.SHA256()))}"

    def _signing_key(self, known: bool) -> rsa.RSAPrivateKey:
        if known:
            return self._key
        if self._unknown_key is None:
            self._unknown_key = rsa.generate_private_key(public_exponent=65537, key_size=2048)
        return self._unknown_key

    def answer(self, form: Mapping[str, str], authorization: str) -> tuple[int, dict[str, object]]:
        """The endpoint's answer to a form: HTTP status and JSON."""
        client_id, secret = _client(form, authorization)
        self._ended.wait(self.delay_s)
        scope = form.get("scope", "")
        try:
            answered = 200, self._granted(form, client_id, secret, scope)
        except _TokenRefusedError as refused:
            answered = refused.status, {"error": refused.error, "error_description": refused.description}
        self.requests.append(TokenRequest(client_id, scope, answered[0]))
        return answered

    def _granted(self, form: Mapping[str, str], client_id: str, secret: str, scope: str) -> dict[str, object]:
        if (status := self._failure()) is not None:
            raise _TokenRefusedError(status, "temporarily_unavailable", "the test wants it so")
        if form.get("grant_type") != "client_credentials":
            raise _TokenRefusedError(400, "unsupported_grant_type", "only client_credentials is known here")
        if self._users.get(client_id) not in {secret, urllib.parse.unquote_plus(secret)}:  # some encode it for the header
            raise _TokenRefusedError(401, "invalid_client", "unknown client, or wrong secret")
        lifetime_s = self.lifetime_s
        claims = {"scope": scope} if scope else {}
        return {"access_token": self._signed(client_id, lifetime_s, claims, self._key), "token_type": "Bearer",
                "expires_in": int(lifetime_s), **claims}

    def _failure(self) -> int | None:
        with self._guard:
            if self._failing is None:
                return None
            status, times = self._failing
            if times is not None:
                self._failing = (status, times - 1) if times > 1 else None
            return status


def unsecured_token(user: str, lifetime_s: float = LIFETIME_S, **claims: object) -> str:
    """A token for *user* with the algorithm ``none``, as Kafka's unsecured validator takes it.

    ``iat`` is a whole second: a broker's clock has whole milliseconds, and a token of this very millisecond with a
    fraction of it would be from the future.
    """
    now = time.time()
    return f"{_part({'alg': 'none'})}.{_part({'sub': user, 'iat': int(now), 'exp': now + lifetime_s, **claims})}."


class _Server(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self, issuer: TokenIssuer) -> None:
        self.issuer = issuer
        super().__init__(("127.0.0.1", 0), _Handler)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Nothing: a client that went away while it was kept waiting is what tests want."""


class _Handler(BaseHTTPRequestHandler):
    server: _Server

    def do_GET(self) -> None:
        issuer = self.server.issuer
        if self.path == "/jwks":
            self._send(200, json.loads(issuer.jwks))
        elif self.path == "/.well-known/openid-configuration":
            self._send(200, {"issuer": issuer.url, "token_endpoint": issuer.token_endpoint_url, "jwks_uri": f"{issuer.url}/jwks"})
        else:
            self._send(404, {"error": "not_found"})

    def do_POST(self) -> None:
        body = self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MOST_BODY_BYTES))
        if self.path != "/token":
            self._send(404, {"error": "not_found"})
            return
        form = dict(urllib.parse.parse_qsl(body.decode("utf-8", "replace"), keep_blank_values=True))
        self._send(*self.server.issuer.answer(form, self.headers.get("Authorization", "")))

    def _send(self, status: int, content: object) -> None:
        body = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Cache-Control", "no-store")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class names it so
        """Nothing: requests are counted, and tests' output is theirs."""


def _client(form: Mapping[str, str], authorization: str) -> tuple[str, str]:
    """Who asks, and the secret: by the header (Basic) or in the form."""
    kind, _, encoded = authorization.partition(" ")
    if kind.lower() != "basic":
        return form.get("client_id", ""), form.get("client_secret", "")
    try:
        client_id, _, secret = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    return client_id, secret


def _part(content: object) -> str:
    return _text(json.dumps(content, separators=(",", ":")).encode())


def _text(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode()


def _unsigned(number: int) -> str:
    return _text(number.to_bytes((number.bit_length() + 7) // 8, "big"))
