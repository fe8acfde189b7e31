"""A running cluster, given by its address; never started, stopped or configured."""
from __future__ import annotations

from pathlib import Path
from typing import Final, NoReturn

from pyclient.records import Node
from pyclient.testing.backend import Kind, Wanted
from pyclient.testing.common.errors import BrokerStartError, NotControllableError
from pyclient.testing.probe import Address, discover, wait_until_ready


class ExternalCluster:
    """The brokers behind ``PYCLIENT_BOOTSTRAP`` (``host:port,host:port``), plaintext."""

    kind: Final[Kind] = "external"

    def __init__(self, wanted: Wanted, bootstrap: str) -> None:
        self._wanted = wanted
        self._bootstrap = bootstrap
        self._nodes: tuple[Node, ...] = ()

    @property
    def description(self) -> str:
        return f"running cluster at {self._bootstrap}, {len(self._nodes)} brokers"

    @property
    def nodes(self) -> tuple[Node, ...]:
        return self._nodes

    @property
    def addresses(self) -> dict[int, Address]:
        return {node.id: (node.host, node.port) for node in self._nodes}

    def addresses_of(self, listener: str) -> dict[int, Address]:
        """Not supported: nothing is known of its listeners."""
        raise NotControllableError(
            f"the listener {listener} is not known: the cluster at {self._bootstrap} was not started by LocalCluster. Unset "
            "PYCLIENT_BOOTSTRAP to have brokers started here.")

    def open(self) -> None:
        """Find the brokers and see a produce acknowledged.

        Raises:
            BrokerStartError: no broker answers there, or fewer than required.
            NotControllableError: security, features or several log directories are wanted.
        """
        if self._wanted.security is not None:
            raise NotControllableError(
                f"security= needs brokers with certificates, users and listeners made here, but PYCLIENT_BOOTSTRAP names the running "
                f"cluster {self._bootstrap}. Unset PYCLIENT_BOOTSTRAP, or give LocalCluster a mode.")
        if made_here := [name for name, wanted in (("features", self._wanted.features), ("log_dirs", self._wanted.log_dirs > 1)) if wanted]:
            raise NotControllableError(
                f"{made_here[0]}= belongs to brokers made here, but PYCLIENT_BOOTSTRAP names the running cluster {self._bootstrap}. Unset "
                "PYCLIENT_BOOTSTRAP, or give LocalCluster a mode.")
        try:
            self._nodes = discover(parse_addresses(self._bootstrap), timeout_s=self._wanted.startup_timeout_s)
            self._expect_enough()
            wait_until_ready(self.addresses, timeout_s=self._wanted.startup_timeout_s, alive=self.check_alive)
        except TimeoutError as late:
            raise BrokerStartError(
                f"the cluster given in PYCLIENT_BOOTSTRAP ({self._bootstrap}) does not work: {late}. Start it, correct "
                "the address (plaintext listeners only), or unset PYCLIENT_BOOTSTRAP to have brokers started here."
            ) from late

    def _expect_enough(self) -> None:
        if len(self._nodes) < self._wanted.brokers:
            raise BrokerStartError(
                f"{self._wanted.brokers} brokers are needed, but the cluster in PYCLIENT_BOOTSTRAP ({self._bootstrap}) "
                f"has {len(self._nodes)}. Give a larger one, or unset PYCLIENT_BOOTSTRAP to have brokers started here."
            )

    def close(self) -> None:
        """Nothing: the cluster is not ours."""

    def check_alive(self) -> None:
        """Nothing is known of its processes."""

    def stop(self, node_id: int) -> None:
        self._refuse("stopped", node_id)

    def kill(self, node_id: int) -> None:
        self._refuse("killed", node_id)

    def start(self, node_id: int) -> None:
        self._refuse("started", node_id)

    def pause(self, node_id: int) -> None:
        self._refuse("paused", node_id)

    def resume(self, node_id: int) -> None:
        self._refuse("resumed", node_id)

    def disconnect(self, node_id: int) -> None:
        self._refuse("disconnected", node_id)

    def connect(self, node_id: int) -> None:
        self._refuse("connected", node_id)

    def logs(self, node_id: int) -> str:
        self._refuse("asked for its log", node_id)

    def data_dir(self, node_id: int) -> Path:
        self._refuse("asked for its folder", node_id)

    def _refuse(self, what: str, node_id: int) -> NoReturn:
        raise NotControllableError(
            f"broker {node_id} cannot be {what}: the cluster at {self._bootstrap} was not started by LocalCluster. Unset "
            "PYCLIENT_BOOTSTRAP to have brokers started here."
        )


def parse_addresses(bootstrap: str) -> list[Address]:
    """``host:port,[::1]:port`` as pairs. Raises ValueError naming the part without a port."""
    parsed = []
    for part in filter(None, (piece.strip() for piece in bootstrap.split(","))):
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit():
            raise ValueError(f"{part!r} in {bootstrap!r} is not host:port")
        parsed.append((host.strip("[]"), int(port)))
    if not parsed:
        raise ValueError("no address given: expected host:port, several separated by commas")
    return parsed
