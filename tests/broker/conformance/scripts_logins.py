"""SaslHandshake and SaslAuthenticate: on a listener without logins, and whole conversations on one with them."""
from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from typing import Any, Final

from scramp import ScramClient

from pyclient.codec.apis import Api
from pyclient.testing import Security
from tests.broker.conformance.script import Act, Plain, Run, Script, Step, UntilCut, Value
from tests.broker.conformance.scripts_cluster import metadata, versions

USERS: Final = Security().users
SESSION_MS: Final = 60_000
"""``connections.max.reauth.ms`` of `SESSIONS`."""
SHORT_S: Final = 2.0
SHORTER_S: Final = 1.7
LONG_S: Final = 3600.0
NONCE: Final = "abcdefghijklmnop"
PASSWORDS: Final = ("SCRAM-SHA-256", "SCRAM-SHA-512")
ACKNOWLEDGE_ERROR: Final = b"\x01"
"""With what a client answers to the explanation why its token is refused."""


# ---- steps -----------------------------------------------------------------------------------------------------------


def talk(name: str, *acts: Act, api: Api = Api.SASL_AUTHENTICATE, since: int = 0, until: int = 99) -> Script:
    return Script(name=name, api=api, acts=acts, since=since, until=until)


def handshake(mechanism: str = "PLAIN", **how: Any) -> Step:
    return Step(api=Api.SASL_HANDSHAKE, fields={"mechanism": mechanism}, **how)


def says(message: Value, **how: Any) -> Step:
    return Step(api=Api.SASL_AUTHENTICATE, fields={"auth_bytes": message}, **how)


def asks(**how: Any) -> Step:
    """A request that needs a login."""
    return Step(api=Api.METADATA, fields=metadata([]), **how)


def hung_up(**how: Any) -> Step:
    """The broker ends the connection without being asked anything."""
    return Step(api=Api.METADATA, unsent=True, **how)


def asks_versions(**how: Any) -> Step:
    return Step(api=Api.API_VERSIONS, fields=versions(), **how)


def password(user: str = "alice", text: str | None = None, authorization: str = "") -> bytes:
    """The one message of PLAIN."""
    return "\0".join((authorization, user, USERS[user] if text is None else text)).encode()


def token(life_s: float = LONG_S, authorization: str = "", extensions: str = "", alg: str = "none", without: str = "", **claims: object) -> Value:
    """The one message of OAUTHBEARER: an unsecured token that ends *life_s* after the start of the run."""
    def made(run: Run) -> bytes:
        parts: tuple[Mapping[str, object], ...] = ({"alg": alg}, {"sub": "alice", "iat": run.began - 1, "exp": run.began + life_s, **claims})
        kept = [{name: value for name, value in part.items() if name != without} for part in parts]
        text = ".".join(base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=").decode() for each in kept)
        return f"n,{authorization},\x01auth=Bearer {text}.{extensions}\x01\x01".encode()
    return made


def login(mechanism: str = "PLAIN", message: Value = None, **how: Any) -> tuple[Act, ...]:
    """A login of one message."""
    return handshake(mechanism, **how), says(password() if message is None else message, **how)


def scram(mechanism: str, user: str = "alice", text: str | None = None, name: str = "") -> tuple[Act, ...]:
    """A login of two messages. Each step creates the client again, with the same nonce."""
    first = f"the broker's first {name}"

    def client() -> ScramClient:
        return ScramClient([mechanism], user, USERS[user] if text is None else text, c_nonce=NONCE)

    def final(run: Run) -> bytes:
        mine = client()
        mine.get_client_first()
        mine.set_server_first(bytes(run.answers[first]["auth_bytes"]).decode())
        last: str = mine.get_client_final()
        return last.encode()

    return handshake(mechanism), says(client_first(user), name=first, shown=in_parts), says(final, shown=in_parts)


def client_first(user: str, authorization: str = "") -> bytes:
    return f"n,{authorization},n={user},r={NONCE}".encode()


def in_parts(answer: Plain) -> Plain:
    """With SCRAM's attributes apart, most of which are drawn."""
    attributes = [each.partition("=") for each in bytes(answer["auth_bytes"]).decode().split(",")]
    parts: dict[str, object] = {name: value for name, _, value in attributes}
    return {**answer, "auth_bytes": {**parts, "goes on from ours": parts.get("r", "").startswith(NONCE)}}  # type: ignore[attr-defined]


def coarsely(answer: Plain) -> Plain:
    """With the session's life in tens of seconds: both tokens were made some time ago."""
    return {**answer, "session_lifetime": round(answer["session_lifetime"], -4)}


# ---- without logins --------------------------------------------------------------------------------------------------

HANDSHAKE: Final = talk("handshake-without-logins", handshake(), handshake("GSSAPI"), handshake(""), asks(), api=Api.SASL_HANDSHAKE)
AUTHENTICATE: Final = talk("authenticate-without-logins", says(password()), says(b""), asks())
SCRIPTS: Final = (HANDSHAKE, AUTHENTICATE)

# ---- who is let in, and who is not -----------------------------------------------------------------------------------

WRONG_PASSWORDS: Final = {
    "wrong": password(text="wrong"), "unknown-user": password("unknown", "wrong"), "of-another": password("bob", USERS["alice"]),
    "none": password(text=""), "no-user": password("", "wrong"), "in-anothers-name": password("bob", authorization="alice"),
    "empty-message": b"", "one-part": b"alice", "two-parts": b"\0alice", "four-parts": password() + b"\0", "many-parts": b"\0" * 9,
    "garbage": b"\xff\xfe\x80\0\x01", "no-text": b"\0alice\0\xff", "long": bytes(500_000),
}
TOO_LONG: Final = bytes(530_000)
"""For brokers, which neither answer it nor hang up."""
WRONG_FIRSTS: Final = {
    "unknown-user": client_first("unknown"), "in-anothers-name": client_first("bob", "a=alice"), "empty-message": b"", "garbage": b"\xff\xfe\x80",
    "of-plain": password(), "no-nonce": b"n,,n=alice", "badly-quoted": client_first("alice=zz"), "channel-binding": b"p=tls-unique,,n=alice,r=abc",
}
WRONG_TOKENS: Final = {
    "ended": token(-10), "signed": token(alg="RS256"), "without-user": token(without="sub"), "of-a-number": token(sub=5),
    "without-end": token(without="exp"), "with-no-end": token(exp=None), "with-words-for-an-end": token(exp="soon"), "no-token": b"n,,\x01auth=Bearer abc\x01\x01",
    "bad-base64": b"n,,\x01auth=Bearer !!.!!.\x01\x01", "in-anothers-name": token(authorization="a=bob"),
    "of-plain": password(), "empty-message": b"", "garbage": b"\xff\xfe\x80", "gives-in-at-once": ACKNOWLEDGE_ERROR,
    "bad-extension": token(extensions="\x01trace id=1"), "reserved-extension": token(extensions="\x01auth=1"),
}
LET_IN: Final = (
    talk("plain", *login(), asks(), asks_versions(), asks(), says(password()), asks()),
    talk("plain-in-own-name", *login("PLAIN", password(authorization="alice")), asks()),
    *(talk(mechanism.lower(), *scram(mechanism), asks()) for mechanism in PASSWORDS),
    talk("scram-extension", handshake("SCRAM-SHA-256"), says(client_first("alice") + b",x=y", shown=in_parts)),
)
REFUSED: Final = (
    *(talk(f"password-{name}", handshake(), says(message), hung_up()) for name, message in WRONG_PASSWORDS.items()),
    talk("password-too-long", handshake(), says(TOO_LONG), hung_up(), since=2),  # once: silence takes its time
    *(talk(f"scram-{name}", handshake("SCRAM-SHA-256"), says(message), hung_up()) for name, message in WRONG_FIRSTS.items()),
    *(talk(f"{mechanism.lower()}-wrong", *scram(mechanism, text="wrong"), asks()) for mechanism in PASSWORDS),
    talk("scram-bad-last", handshake("SCRAM-SHA-256"), says(client_first("alice"), shown=in_parts), says(b"garbage"), asks()),
    talk("scram-other-nonce", handshake("SCRAM-SHA-256"), says(client_first("alice"), shown=in_parts), says(b"c=biws,r=other,p=AAAA"), asks()),
    *(talk(f"token-{name}", handshake("OAUTHBEARER"), says(message), says(ACKNOWLEDGE_ERROR), asks()) for name, message in WRONG_TOKENS.items()),
    talk("token-second-try", handshake("OAUTHBEARER"), says(token(-10)), says(token(), until=0), says(password(), since=1), asks()),
)

# ---- what may be asked when ------------------------------------------------------------------------------------------

BEFORE: Final = (
    talk("request-before", asks()),
    talk("request-after-versions", asks_versions(), asks()),
    talk("authenticate-before", says(password())),
    talk("versions-before", asks_versions(), *login(), asks()),
    talk("versions-twice", asks_versions(), asks_versions(), *login()),
    talk("versions-unknown-before", asks_versions(announced=99, answered_in=0), asks_versions(), *login(), asks()),
    talk("versions-badly-named-before", Step(api=Api.API_VERSIONS, fields=versions(client_software_name="")), asks_versions(), *login(), asks()),
    talk("handshake-unknown-before", handshake(announced=99)),
)
WITHIN: Final = (
    talk("versions-within", handshake(), asks_versions(), asks()),
    talk("request-within", handshake(), asks(), asks()),
    talk("groups-within", handshake(), Step(api=Api.LIST_GROUPS, fields={"states_filter": [], "types_filter": []}), asks()),
    talk("handshake-within", handshake(), handshake(), hung_up()),
    talk("unknown-version-within", handshake(), says(password(), announced=99)),
    talk("versions-within-scram", handshake("SCRAM-SHA-256"), says(client_first("alice"), shown=in_parts), asks_versions(), asks()),
)
MECHANISMS: Final = tuple(
    talk(f"mechanism-{name or 'none'}", handshake(name), handshake(), api=Api.SASL_HANDSHAKE) for name in ("GSSAPI", "", "plain", "SCRAM-SHA-1"))
HANDSHAKES: Final = (
    talk("handshake", handshake("OAUTHBEARER"), handshake("PLAIN"), api=Api.SASL_HANDSHAKE, since=1),
)

# ---- renewals --------------------------------------------------------------------------------------------------------

RENEWALS: Final = (
    talk("renewal", *login(), *login(), asks(), handshake(), asks(), handshake("GSSAPI"), asks()),
    talk("renewal-by-scram", *scram("SCRAM-SHA-512"), *scram("SCRAM-SHA-512", name="again"), asks()),
    talk("renewal-by-another-mechanism", *login(), handshake("SCRAM-SHA-256"), says(client_first("alice")), asks()),
    talk("renewal-by-no-mechanism", *login(), handshake("GSSAPI"), asks()),
    talk("renewal-as-another", *login(), *login(message=password("bob")), asks()),
    talk("renewal-as-another-by-scram", *scram("SCRAM-SHA-256"), *scram("SCRAM-SHA-256", "bob", name="again"), asks()),
    talk("renewal-wrong-password", *login(), *login(message=password(text="wrong")), asks()),
    talk("renewal-garbage", *scram("SCRAM-SHA-256"), handshake("SCRAM-SHA-256"), says(b"garbage"), asks()),
    talk("request-within-renewal", *login(), handshake(), asks(), asks()),
    talk("versions-within-renewal", *login(), handshake(), asks_versions(), asks()),
)
NO_RENEWALS: Final = (
    talk("no-renewal", *login(), *login(), asks(), handshake("GSSAPI"), handshake("SCRAM-SHA-256"), asks()),
    talk("no-renewal-by-scram", *scram("SCRAM-SHA-256"), handshake("SCRAM-SHA-256"), says(client_first("alice")), asks()),
)
"""A login that has no end is not renewed."""
LOGINS: Final = (*LET_IN, *REFUSED, *BEFORE, *WITHIN, *MECHANISMS, *HANDSHAKES, *NO_RENEWALS)
"""On a listener whose sessions have no end but that of a token."""

# ---- sessions that end -----------------------------------------------------------------------------------------------

SESSIONS: Final = (
    *RENEWALS,
    talk("session", *login(), asks(), *login(), asks(), handshake(), asks()),
    talk("session-by-scram", *scram("SCRAM-SHA-512"), asks()),
    talk("session-longer-than-allowed", *login("OAUTHBEARER", token()), asks(), *login("OAUTHBEARER", token()), asks()),
    talk("session-with-extensions", *login("OAUTHBEARER", token(extensions="\x01traceId=12 a\x01kind=b=c")), asks()),
    talk("session-in-own-name", *login("OAUTHBEARER", token(authorization="a=alice")), asks()),
    talk("session-of-a-token", handshake("OAUTHBEARER"), says(token(30), until=0), says(token(30), since=1, shown=coarsely), asks()),
    talk("session-refused", handshake(), says(password(text="wrong")), asks()),
    talk("session-ended",
         handshake("OAUTHBEARER", on="idle"), says(token(SHORTER_S), on="idle", until=0), says(token(SHORTER_S), on="idle", since=1, shown=coarsely),
         handshake("OAUTHBEARER"), says(token(SHORT_S), until=0), says(token(SHORT_S), since=1, shown=coarsely),
         UntilCut(asks()), *login("OAUTHBEARER", token(), on="idle"), asks(on="idle")),
)
"""On a listener that ends them after `SESSION_MS`."""
