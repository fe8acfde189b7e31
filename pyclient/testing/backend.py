"""The interface of every way to run brokers; `LocalCluster` is its public face."""
from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final, Literal, NamedTuple, Protocol, TypeAlias

from pyclient.records import Node
from pyclient.testing.broker_security import BrokerSecurity

Kind: TypeAlias = Literal["embedded", "container", "external"]

LOG_TAIL_LINES = 40


NO_FEATURES: Final[Mapping[str, int]] = MappingProxyType({})


class Wanted(NamedTuple):
    """The requested cluster: brokers, Kafka version, broker settings by Kafka's names, start-up timeout, security, the
    port that the first broker takes, if it is free (None: any), the levels of features that are not the version's, and
    how many log directories each broker has.
    """

    brokers: int
    version: str
    config: Mapping[str, str]
    startup_timeout_s: float
    security: BrokerSecurity | None = None
    port: int | None = None
    features: Mapping[str, int] = NO_FEATURES
    log_dirs: int = 1

    def folders(self, first: str) -> str:
        """The log directories as Kafka's ``log.dirs``: *first*, and others beside it."""
        return ",".join([first, *(f"{first}-{number}" for number in range(2, self.log_dirs + 1))])

    @property
    def format_flags(self) -> list[str]:
        """The features as arguments of the formatter of storage."""
        return [word for name, level in self.features.items() for word in ("--feature", f"{name}={level}")]


class Backend(Protocol):
    """Running brokers. Node ids are those of Kafka's metadata."""

    @property
    def kind(self) -> Kind:
        """How the brokers are run."""

    @property
    def description(self) -> str:
        """One line for logs: which Kafka, run by what."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The brokers with the addresses that clients use."""

    @property
    def addresses(self) -> Mapping[int, tuple[str, int]]:
        """The brokers' own addresses by node id, without a proxy."""

    def addresses_of(self, listener: str) -> Mapping[int, tuple[str, int]]:
        """The brokers' addresses of one of `broker_security.LISTENERS`, by node id; there when security was wanted."""

    def open(self) -> None:
        """Start all brokers; returns when a produce with acks=all was acknowledged."""

    def close(self) -> None:
        """End and remove everything; never raises for what is already gone."""

    def stop(self, node_id: int) -> None:
        """End a broker in order (SIGTERM); returns when it has ended."""

    def kill(self, node_id: int) -> None:
        """End a broker at once (SIGKILL)."""

    def start(self, node_id: int) -> None:
        """Start an ended broker again, same address and data; does not wait. A running one is left alone."""

    def pause(self, node_id: int) -> None:
        """Freeze a broker; its connections stay open and silent."""

    def resume(self, node_id: int) -> None:
        """Resume a frozen broker."""

    def disconnect(self, node_id: int) -> None:
        """Take a broker off the network."""

    def connect(self, node_id: int) -> None:
        """Put it back."""

    def check_alive(self) -> None:
        """Raise BrokerStartError when a broker that should run has exited."""

    def logs(self, node_id: int) -> str:
        """What a broker has logged since its first start."""

    def data_dir(self, node_id: int) -> Path:
        """The folder with a broker's partitions (live, or a copy made now)."""


def tail(text: str, lines: int = LOG_TAIL_LINES) -> str:
    """The last *lines* lines."""
    return "\n".join(text.splitlines()[-lines:])
