"""Users as brokers keep them: SCRAM credentials, and quotas of users, client ids and addresses."""
from __future__ import annotations

import enum
from typing import Final, NamedTuple

import attrs

from pyclient.descriptions import KafkaEnum

FEWEST_ITERATIONS: Final = 4096
MOST_ITERATIONS: Final = 16384
"""Kafka's bounds."""


class ScramMechanism(KafkaEnum):
    """A SCRAM mechanism, by Kafka's number."""

    UNKNOWN = 0
    SHA_256 = 1
    SHA_512 = 2


class ScramCredential(NamedTuple):
    """That a user can log in by a mechanism; brokers never return more of it."""

    mechanism: ScramMechanism
    iterations: int


@attrs.frozen
class ScramPassword:
    """A password to set for a user; it is sent salted and hashed, and not shown by ``repr``."""

    password: str = attrs.field(repr=lambda _: "'***'")
    mechanism: ScramMechanism = ScramMechanism.SHA_512
    iterations: int = 8192


@attrs.frozen
class ScramDeletion:
    """The credential of a user to delete."""

    mechanism: ScramMechanism


class QuotaName(enum.Enum):
    """Instead of a name: the default of all that have none of their own; or, in filters, any name."""

    DEFAULT = "default"
    ANY = "any"


class QuotaEntity(NamedTuple):
    """Whose quota it is: a user, a client id, a user's client id, or an address. None: it is not part of it."""

    user: str | QuotaName | None = None
    client_id: str | QuotaName | None = None
    ip: str | QuotaName | None = None
