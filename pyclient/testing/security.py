"""`Security`: which users a secured `LocalCluster` knows, and what they may do. Plain values; nothing is made here."""
from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from types import MappingProxyType
from typing import Final

import attrs

_NAME: Final = re.compile(r"[A-Za-z][A-Za-z0-9_-]{0,40}")


def _frozen(users: Mapping[str, str]) -> Mapping[str, str]:
    return MappingProxyType(dict(users))


def _all(names: Collection[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _names(users: Mapping[str, str]) -> str:
    return ", ".join(sorted(users))


@attrs.define(frozen=True, kw_only=True)
class Security:
    """What ``LocalCluster(security=...)`` takes: TLS and SASL listeners, certificates, users and ACLs.

    ``users`` are names and passwords, for every mechanism: each also gets a certificate and tokens. ``super_users`` may
    do everything; the others nothing until `LocalCluster.grant`. (Who does not say who he is, on PLAINTEXT and SSL, is
    ``ANONYMOUS``, and may do everything: the brokers themselves are.) ``connections_max_reauth_ms`` is Kafka's setting
    for all SASL listeners: a client must re-authenticate within so many milliseconds; 0: never.

    Raises:
        ValueError: a user's name is not of ASCII letters, digits, ``_`` and ``-``, a password is empty or not
            printable, or ``connections_max_reauth_ms`` is negative.
    """

    users: Mapping[str, str] = attrs.field(
        factory=lambda: {"alice": "alice-secret", "bob": "bob-secret"}, converter=_frozen, repr=_names, hash=False)
    super_users: Collection[str] = attrs.field(default=("alice",), converter=_all)
    connections_max_reauth_ms: int = 0

    def __attrs_post_init__(self) -> None:
        for name, password in self.users.items():
            if not _NAME.fullmatch(name):
                raise ValueError(f"the user's name {name!r} is not of ASCII letters, digits, _ and -, a letter first")
            if not password or not password.isprintable():
                raise ValueError(f"the password of {name} is empty or has characters that cannot be seen: brokers would not take it")
        if self.connections_max_reauth_ms < 0:
            raise ValueError(f"connections_max_reauth_ms={self.connections_max_reauth_ms} is negative")
