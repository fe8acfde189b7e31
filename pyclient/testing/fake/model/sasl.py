"""The broker's side of SASL: which requests a connection may send before, during and after a login. No sockets."""
from __future__ import annotations

import base64
import enum
import hashlib
import hmac
import json
import math
import re
from collections.abc import Callable, Generator, Mapping
from typing import Any, Final, NamedTuple, TypeAlias

from kio.schema.errors import ErrorCode

from pyclient.codec.apis import Api
from pyclient.testing.fake.model.kafka import Kafka

SHORTEST_S: Final = 1.0
"""Shortest time between two re-authentications of a connection."""
ITERATIONS: Final = 4096
FRAMED: Final = 1
"""Since this version SaslAuthenticate requests follow SaslHandshake; raw messages of before are not modelled."""
FIRST: Final = re.compile(rb"n,(?:a=(?P<who>[^,\x80-\xff]+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x20-\x7e\t\r\n]+\x01)*)\x01")
BEARER: Final = re.compile(rb"[Bb][Ee][Aa][Rr][Ee][Rr] +([-_.a-zA-Z0-9]+)")
GIVES_IN: Final = b"\x01"
ANOTHERS_NAME: Final = "Authentication failed: Client requested an authorization id"


class LoginRefusedError(Exception):
    """The login fails with this message."""


class Granted(NamedTuple):
    """The login succeeds."""

    principal: str
    last: bytes = b""
    ends_at_ms: float | None = None
    """When the credentials end, on the wall clock."""


Server: TypeAlias = Generator[bytes, bytes, Granted]
"""Receives the client's messages and yields the answers; the first value yielded is empty."""


class Answer(NamedTuple):
    """Answer to a SASL message."""

    error: int = ErrorCode.none
    words: str = ""
    data: bytes = b""
    lifetime_ms: int = 0


class Phase(enum.Enum):
    """Login state of a connection."""

    OPEN = "not logged in"
    VERSIONS_SENT = "not logged in; versions sent"
    AUTHENTICATING = "authenticating"
    LOGGED_IN = "logged in"
    CLOSED = "closed after the answer"


class Session:
    """One connection's login. Without users none is needed, and every request is admitted."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._phase = Phase.LOGGED_IN if kafka.users is None else Phase.OPEN
        self._mechanism = ""
        self._server: Server | None = None
        self._renewed_at = float("-inf")
        self.granted_at: float | None = None
        self.ends_at: float | None = None
        """Start and end of the session on the cluster's clock."""
        self.principal: str | None = None
        self._first: tuple[str, str] | None = None

    def __repr__(self) -> str:
        return f"<Session of {self.principal or 'anonymous'}: {self._phase.value}>"

    @property
    def over(self) -> bool:
        """Whether the connection is to be closed."""
        return self._phase is Phase.CLOSED

    @property
    def logged_in(self) -> bool:
        """Whether logged in; the session may need a renewal."""
        return self._phase is Phase.LOGGED_IN

    def admits(self, api: Api) -> bool:
        """Whether this request is allowed now; else the connection is cut, with an answer first if `explains`."""
        match self._phase:
            case Phase.OPEN:
                return api in (Api.API_VERSIONS, Api.SASL_HANDSHAKE)
            case Phase.VERSIONS_SENT:
                return api is Api.SASL_HANDSHAKE
            case Phase.AUTHENTICATING:
                return api is Api.SASL_AUTHENTICATE
            case Phase.LOGGED_IN:
                return self._lives() or (api is Api.SASL_HANDSHAKE and self._may_renew())
        return False

    @property
    def explains(self) -> bool:
        """Whether a forbidden request gets an error response before the connection is cut."""
        return self._phase is Phase.AUTHENTICATING

    def end(self) -> None:
        """Nothing more is admitted."""
        self._phase = Phase.CLOSED

    def on_versions_requested(self) -> None:
        """ApiVersions was answered, which is allowed once before a login."""
        if self._phase is Phase.OPEN:
            self._phase = Phase.VERSIONS_SENT

    def handshake(self, mechanism: str, version: int) -> int | None:
        """The client chooses a mechanism. Returns an error code.

        None cuts the connection: a renewal with an unknown mechanism.
        """
        if self._phase is Phase.LOGGED_IN and not self._may_renew():
            return ErrorCode.illegal_sasl_state
        if mechanism not in enabled(self._kafka):
            self.end()
            return ErrorCode.unsupported_sasl_mechanism if self._first is None else None
        if version < FRAMED:
            return ErrorCode.illegal_sasl_state
        if self._first is not None:
            self._renewed_at = self._kafka.clock()
        self._phase, self._mechanism = Phase.AUTHENTICATING, mechanism
        self._server = MECHANISMS[mechanism](self._kafka, mechanism)
        next(self._server)
        return ErrorCode.none

    def _lives(self) -> bool:
        return self.ends_at is None or self._kafka.clock() < self.ends_at

    def _may_renew(self) -> bool:
        """A login without an end is never renewed."""
        return self.ends_at is not None and self._kafka.clock() >= self._renewed_at + SHORTEST_S

    def authenticate(self, message: bytes) -> Answer | None:
        """Handle a message of the mechanism; None: cut the connection (renewal with another mechanism)."""
        if self._phase is not Phase.AUTHENTICATING or self._server is None:
            return Answer(ErrorCode.illegal_sasl_state, "SaslAuthenticate request received after successful authentication")
        if self._first is not None and self._mechanism != self._first[0]:
            self.end()
            return None
        try:
            return Answer(data=self._server.send(message))
        except StopIteration as end:
            return self._granted(end.value)
        except LoginRefusedError as refused:
            return self._refuse(str(refused))
        except Exception:  # noqa: BLE001 whatever a client sends, it is refused
            doing = "authentication" if self._first is None else "re-authentication"
            return self._refuse(f"Authentication failed during {doing} due to invalid credentials with SASL mechanism {self._mechanism}")

    def _refuse(self, words: str) -> Answer:
        self.end()
        return Answer(ErrorCode.sasl_authentication_failed, words)

    def _granted(self, granted: Granted) -> Answer:
        if self._first is not None and granted.principal != self._first[1]:
            return self._refuse(f"Cannot change principals during re-authentication from User.{self._first[1]}: User.{granted.principal}")
        self._phase, self._first, self.principal = Phase.LOGGED_IN, (self._mechanism, granted.principal), granted.principal
        left = [] if granted.ends_at_ms is None else [max(0, round(granted.ends_at_ms - self._kafka.wall()))]
        longest = self._kafka.settings.connections_max_reauth_ms
        lifetime = min([*left, *([longest] if longest > 0 else [])], default=0)
        self.granted_at = self._kafka.clock()
        self.ends_at = self.granted_at + lifetime / 1000 if left or longest > 0 else None
        return Answer(data=granted.last, lifetime_ms=lifetime)


def session_of(connection: object) -> Session | None:
    """The login of a connection that can have one."""
    found = getattr(connection, "session", None)
    return found if isinstance(found, Session) else None


def enabled(kafka: Kafka) -> list[str]:
    """The mechanisms of the listener."""
    names = [each.strip() for each in kafka.settings.sasl_enabled_mechanisms.split(",")]
    return [each for each in names if each in MECHANISMS] if kafka.users is not None else []


# ---- mechanisms ------------------------------------------------------------------------------------------------------


def _plain(kafka: Kafka, _name: str) -> Server:
    parts = (yield b"").decode(errors="replace").split("\0", 3)
    if len(parts) != 3:
        raise LoginRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
    authorization, user, password = parts
    for name, part in (("username", user), ("password", password)):
        if not part:
            raise LoginRefusedError(f"Authentication failed: {name} not specified")
    if _users(kafka).get(user) != password:
        raise LoginRefusedError("Authentication failed: Invalid username or password")
    if authorization not in ("", user):
        raise LoginRefusedError(f"{ANOTHERS_NAME} that is different from username")
    return Granted(user)


def _scram(kafka: Kafka, name: str) -> Server:
    from scramp import ScramMechanism

    users: list[str] = []

    def look_up(user: str) -> tuple[bytes, bytes, bytes, int] | None:
        users.append(user)
        return kafka.part(ScramStore).stored(name, user)

    server = ScramMechanism(name).make_server(look_up, s_nonce=kafka.random.randbytes(16).hex())
    first = (yield b"").decode()
    _check_authorization_id(first)
    server.set_client_first(first)
    server.set_client_final((yield server.get_server_first().encode()).decode())
    return Granted(users[0], server.get_server_final().encode())


def _check_authorization_id(first: str) -> None:
    """Kafka accepts only the user's own authorization id; scramp accepts none, so the model does not either."""
    meant = re.match(r"n,a=([^,]+),n=([^,]+),", first)
    if meant and meant[1] != meant[2]:
        raise LoginRefusedError(f"{ANOTHERS_NAME} that is different from username")


def _bearer(kafka: Kafka, _name: str) -> Server:
    message = yield b""
    while True:
        authorization, token = _shown(message)
        user, ends = _holder(kafka, token)
        if user is not None:
            break
        error = '{"status":"invalid_token"}'
        message = yield error.encode()
        if message == GIVES_IN:
            raise LoginRefusedError(error)
    if authorization not in ("", user):
        raise LoginRefusedError(f"{ANOTHERS_NAME} ({authorization}) that is different from the token's principal name ({user})")
    return Granted(user, ends_at_ms=ends * 1000)


def _shown(message: bytes) -> tuple[str, bytes]:
    """The authorization id, empty for the token's user, and the token."""
    first = FIRST.fullmatch(message)
    pairs = dict(pair.partition(b"=")[::2] for pair in first["pairs"].split(b"\x01")) if first is not None else {}
    bearer = BEARER.fullmatch(pairs.get(b"auth", b""))
    if first is None or bearer is None:
        raise ValueError("this is no message of OAUTHBEARER")
    return (first["who"] or b"").decode(), bearer[1]


def _holder(kafka: Kafka, token: bytes) -> tuple[str, float] | tuple[None, float]:
    """A token's user and end in seconds since the epoch; no user if the token is invalid."""
    claims = _claims(token)
    user, ends = claims.get("sub"), claims.get("exp")
    if not isinstance(user, str) or not isinstance(ends, (int, float)) or not math.isfinite(ends) or ends * 1000 <= kafka.wall():
        return None, 0.0
    return user, ends


def token_end(message: bytes) -> float | None:
    """When the token in a client's message ends, in seconds since the epoch; None: there is none."""
    try:
        return _claims(_shown(message)[1]).get("exp")
    except ValueError:
        return None


def _claims(token: bytes) -> Mapping[str, Any]:
    """The claims of an unsecured token; nothing is verified."""
    try:
        head, claims, signature = _parts(token)
        found: Mapping[str, Any] = json.loads(claims)
        return found if json.loads(head).get("alg") == "none" and not signature and isinstance(found, dict) else {}
    except (ValueError, AttributeError, RecursionError):
        return {}


def _parts(token: bytes) -> list[bytes]:
    return [base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)) for part in token.split(b".")]


def _users(kafka: Kafka) -> Mapping[str, str]:
    return kafka.users or {}


class ScramStore:
    """Salted SCRAM credentials, computed on first use. Without SASLprep, as in Kafka."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._made: dict[tuple[str, str, str], tuple[bytes, bytes, bytes, int]] = {}

    def stored(self, name: str, user: str) -> tuple[bytes, bytes, bytes, int] | None:
        """Salt, stored key, server key, iterations; None for a user that is not there."""
        password = _users(self._kafka).get(user)
        if password is None:
            return None
        key = (name, user, password)
        if key not in self._made:
            self._made[key] = self._make(name.removeprefix("SCRAM-").replace("-", "").lower(), password)
        return self._made[key]

    def _make(self, digest: str, password: str) -> tuple[bytes, bytes, bytes, int]:
        salt = self._kafka.random.randbytes(20)
        salted = hashlib.pbkdf2_hmac(digest, password.encode(), salt, ITERATIONS)
        client_key, server_key = (hmac.digest(salted, text, digest) for text in (b"Client Key", b"Server Key"))
        return salt, hashlib.new(digest, client_key).digest(), server_key, ITERATIONS


MECHANISMS: Final[Mapping[str, Callable[[Kafka, str], Server]]] = {
    "PLAIN": _plain, "SCRAM-SHA-256": _scram, "SCRAM-SHA-512": _scram, "OAUTHBEARER": _bearer,
}
