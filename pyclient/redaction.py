"""Redaction: how secrets and text from peers are shown in errors, logs and dumps of local variables."""
from __future__ import annotations

import base64
import re
from collections.abc import Iterable
from typing import Any, Final
from urllib.parse import quote, quote_plus

HIDDEN: Final = "[hidden]"
"""Replaces a secret."""

LONGEST_SHOWN: Final = 500
"""Characters of a peer's text in an error or a line of the log."""


class Secret(str):
    """A secret text: a str whose ``repr`` hides it.

    Dumps of objects do not show it, such as ``attrs.asdict(config)`` or the local variables of a traceback.
    """

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN


class SecretBytes(bytes):
    """Bytes that hold a secret, as `Secret`: messages of a login, and what a token endpoint answers."""

    __slots__ = ()

    def __repr__(self) -> str:
        return HIDDEN

    __str__ = __repr__


def hidden(returned: Any) -> Any:
    """What a user's function for secrets returned, so that no dump of local variables shows its texts and bytes."""
    match returned:
        case str():
            return Secret(returned)
        case bytes():
            return SecretBytes(returned)
        case tuple():
            return tuple(map(hidden, returned))
    return returned


def without(secrets: Iterable[str], text: str) -> str:
    """*text* with `HIDDEN` in place of *secrets*. The longest is replaced first: it may contain another one."""
    for secret in sorted(filter(None, secrets), key=len, reverse=True):
        text = text.replace(secret, HIDDEN)
    return text


def encoded_forms(secret: bytes) -> set[str]:
    """The texts by which a peer may repeat *secret*: as it is, in Base64, in hexadecimal, and encoded for a URL."""
    plain = secret.decode("utf-8", "replace")
    forms = {plain, secret.hex(), secret.hex().upper(), quote(secret), quote(secret, safe=""), quote_plus(secret)}
    for encoded in (base64.b64encode(secret), base64.urlsafe_b64encode(secret)):
        forms |= {encoded.decode(), encoded.decode().rstrip("=")}
    return forms if secret else set()


def is_private_url(value: object) -> bool:
    """Whether *value* is a URL with a user or a query: both may contain secrets."""
    return isinstance(value, str) and "://" in value and ("?" in value or "@" in value)


def without_query(url: str) -> str:
    """*url* without its query and fragment."""
    return re.split("[?#]", url, maxsplit=1)[0]


def public_url(url: str) -> str:
    """*url* with `HIDDEN` in place of user and query."""
    hidden = re.sub("//[^/]*@", f"//{HIDDEN}@", without_query(url))
    return f"{hidden}?{HIDDEN}" if "?" in url else hidden


def in_one_line(text: str, length: int = LONGEST_SHOWN) -> str:
    """The first *length* characters of text from a peer, without line breaks and terminal control characters."""
    return printable(text[:length])


def printable(text: str) -> str:
    """*text* with spaces in place of line breaks, terminal control characters and marks that turn the direction."""
    return text if text.isprintable() else "".join(each if each.isprintable() else " " for each in text)
