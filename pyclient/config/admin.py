"""Options of the admin client."""
from __future__ import annotations

from typing import ClassVar

import attrs

from pyclient.config.addresses import Address
from pyclient.config.client import ClientConfig
from pyclient.config.declaration import Rule, option
from pyclient.config.kinds import INT32_MAX, INT64_MAX, Addresses, Int

RULES = (
    Rule(
        ("bootstrap_controllers", "bootstrap_servers"),
        lambda c: not (c.bootstrap_controllers and c.bootstrap_servers),
        "bootstrap_controllers and bootstrap_servers exclude each other: an admin is bound to controllers or to brokers",
    ),
)


@attrs.define(frozen=True, kw_only=True, repr=False)
class AdminConfig(ClientConfig):
    """Options of `Admin` and `AsyncAdmin`."""

    ROLE: ClassVar[str] = "admin"
    RULES: ClassVar[tuple[Rule, ...]] = RULES

    bootstrap_controllers: tuple[Address, ...] = option(
        "3.7", (), Addresses(), "Controllers to connect to, instead of brokers (KIP-919): only for calls that controllers answer.", importance="high")
    retries: int = option(
        "0.8", INT32_MAX, Int(), "How often a failed call is repeated, within its timeout.", importance="low", unit="")
    connections_max_idle_ms: int = option(
        "0.9", 300_000, Int(-1, INT64_MAX), "Close a connection that was idle for so long; -1: never.")
