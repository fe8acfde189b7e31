"""`LocalCluster`: real Apache Kafka for tests and first steps. Chooses how the brokers are run.

A `Backend` runs the brokers; this is the common public interface.
"""
from __future__ import annotations

import contextlib
import logging
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal, Self, TypeAlias

from pyclient.records import Node
from pyclient.testing.backend import NO_FEATURES, Backend, Kind, Wanted
from pyclient.testing.broker_config import Config, normalized
from pyclient.testing.broker_security import LISTENERS, PLAINTEXT, BrokerSecurity
from pyclient.testing.common.errors import ContainersUnavailableError, LocalClusterError
from pyclient.testing.lockfile import DEFAULT_VERSION
from pyclient.testing.security import Security

if TYPE_CHECKING:
    from pyclient.testing.access import Brokers, Operation
    from pyclient.testing.credentials import Credentials

Mode: TypeAlias = Literal["auto", "embedded", "container", "external"]

MODES: Final = ("auto", "embedded", "container", "external")
RUN_BY_US: Final = ("embedded", "container")
MOST_BROKERS: Final = 9

log = logging.getLogger(__name__)


class LocalCluster:
    """One or more real brokers, ready when the ``with`` block begins and removed when it ends.

    ``mode="auto"`` takes the first that works: the running cluster in ``PYCLIENT_BOOTSTRAP``; containers, when a
    Docker engine answers; Java processes of this machine. ``PYCLIENT_BROKERS=container`` or ``embedded`` decides
    between the last two. ``config`` are broker settings by Kafka's names (underscores do as well as dots);
    ``{node}`` in a value becomes the broker's id, as in ``broker_rack="rack-{node}"``.
    ``startup_timeout`` is in seconds and does not count the first download of Kafka (55 MB). ``security`` adds
    listeners with TLS and SASL (`bootstrap`), users with `credentials`, and ACLs (`grant`); `bootstrap_servers` stays
    plaintext. The first broker takes *port*, if it is free (with *security* for its listener ``SASL_SSL``); containers
    choose their own. Each broker has *log_dirs* log directories. ``features`` are levels that differ from the
    version's own: ``{"transaction.version": 1}``; Kafka refuses names and levels that it does not know.

    Brokers are named by node id, 1 to ``brokers``, as in the cluster's metadata. Not thread-safe.

    Raises, when entered:
        BrokerStartError: a broker ended or was not ready in time; the message holds the end of its log.
        JavaNotFoundError, JarsUnavailableError, ContainersUnavailableError: something to run brokers with is missing.
        NotControllableError: ``security``, ``features`` or ``log_dirs`` are wanted of the running cluster in
            ``PYCLIENT_BOOTSTRAP``.
    """

    def __init__(self, brokers: int = 1, *, mode: Mode = "auto", version: str = DEFAULT_VERSION,
                 config: Config | None = None, startup_timeout: float = 60.0, security: Security | None = None, port: int | None = None,
                 features: Mapping[str, int] = NO_FEATURES, log_dirs: int = 1) -> None:
        if not 1 <= brokers <= MOST_BROKERS:
            raise ValueError(f"brokers={brokers} is not between 1 and {MOST_BROKERS}")
        if log_dirs < 1:
            raise ValueError(f"log_dirs={log_dirs}: a broker needs at least one log directory")
        if mode not in MODES:
            raise ValueError(f"mode={mode!r} is unknown: choose one of {', '.join(MODES)}")
        self._wanted = Wanted(brokers, version, normalized(config or {}), startup_timeout, port=port, features=features, log_dirs=log_dirs)
        self._mode: Final = mode
        self._security: Final = security
        self._backend: Backend | None = None
        self._credentials: Credentials | None = None
        self._ends = contextlib.ExitStack()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def open(self) -> Self:
        """Start the brokers; the same as entering the ``with`` block. Needs a `close` afterwards."""
        if self._backend is not None:
            raise LocalClusterError("this cluster is running already; make another LocalCluster for a second one")
        began = time.monotonic()
        with contextlib.ExitStack() as ends:
            self._open(ends)
            self._ends = ends.pop_all()
        log.info("%s: ready at %s in %.1f s", self.description, self.bootstrap_servers, time.monotonic() - began)
        return self

    def _open(self, ends: contextlib.ExitStack) -> None:
        ends.callback(self._forget)  # last, when all is ended
        wanted = self._wanted
        if self._security is not None:
            self._credentials, for_brokers = ends.enter_context(_made_for(self._security))
            wanted = wanted._replace(security=for_brokers)
        backend = _chosen(self._mode, wanted)
        backend.open()
        ends.callback(backend.close)
        self._backend = backend
        if self._security is not None and self._security.users:
            from pyclient.testing.access import set_passwords

            set_passwords(self._access(), self._security.users)

    def close(self) -> None:
        """End the brokers and remove their data. Calling again does nothing."""
        self._ends.close()

    def _forget(self) -> None:
        self._backend = self._credentials = None

    def __repr__(self) -> str:
        state = f"{self.description} at {self.bootstrap_servers}" if self._backend else "not running"
        return f"<LocalCluster: {state}>"

    @property
    def kind(self) -> Kind:
        """How the brokers are run: ``"embedded"``, ``"container"`` or ``"external"``."""
        return self._running.kind

    @property
    def description(self) -> str:
        """One line for logs and test reports."""
        return self._running.description

    @property
    def version(self) -> str:
        """The requested Kafka version."""
        return self._wanted.version

    @property
    def bootstrap_servers(self) -> str:
        """All brokers as ``host:port,host:port``, for the option ``bootstrap_servers``."""
        return ",".join(f"[{n.host}]:{n.port}" if ":" in n.host else f"{n.host}:{n.port}" for n in self.nodes)

    def bootstrap(self, listener: str = PLAINTEXT) -> str:
        """The brokers' addresses of one listener, for the option ``bootstrap_servers``.

        PLAINTEXT; with ``security=`` also SSL, MTLS (SSL that wants the client's certificate), SASL_PLAINTEXT and
        SASL_SSL (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, OAUTHBEARER), OIDC (SASL_PLAINTEXT for signed tokens), EXPIRED
        and WRONG_HOST (SSL, with a broker's certificate that clients should refuse).

        Raises:
            ValueError: there is no such listener.
        """
        known = (PLAINTEXT, *(LISTENERS if self._credentials is not None else ()))
        if listener not in known:
            raise ValueError(f"there is no listener {listener!r} here, but {', '.join(known)}{'' if self._credentials else '; security=Security() adds others'}")
        if listener == PLAINTEXT:
            return self.bootstrap_servers
        return ",".join(f"{host}:{port}" for host, port in self._running.addresses_of(listener).values())

    @property
    def credentials(self) -> Credentials:
        """Certificates, users, passwords and tokens of a cluster with ``security=``."""
        _ = self._running
        if self._credentials is None:
            raise LocalClusterError("this cluster has no security: make it with LocalCluster(security=Security())")
        return self._credentials

    def grant(self, user: str, *operations: Operation, topic: str | None = None, group: str | None = None,
              transactional_id: str | None = None, cluster: bool = False, prefixed: bool = False) -> None:
        """Allow a user *operations* on one resource: ``grant("bob", "WRITE", topic="orders")``.

        Returns when all brokers have the change.

        ``prefixed``: on all whose names begin so. ``"*"`` is every name, as user too.

        Raises:
            ValueError: an operation is unknown, or not one resource is named.
            TimeoutError: not within ``startup_timeout``.
        """
        from pyclient.testing import access

        about = access.resource(topic=topic, group=group, transactional_id=transactional_id, cluster=cluster, prefixed=prefixed)
        access.grant(self._access(), user, operations, about)

    def revoke(self, user: str, *operations: Operation, topic: str | None = None, group: str | None = None,
               transactional_id: str | None = None, cluster: bool = False, prefixed: bool = False) -> None:
        """Delete the ACLs of `grant` with the same arguments. Returns when all brokers have the change."""
        from pyclient.testing import access

        about = access.resource(topic=topic, group=group, transactional_id=transactional_id, cluster=cluster, prefixed=prefixed)
        access.revoke(self._access(), user, operations, about)

    def set_password(self, user: str, password: str) -> None:
        """Set a user's SCRAM password; PLAIN keeps the first one. Returns when all brokers have the change."""
        from pyclient.testing.access import set_passwords

        set_passwords(self._access(), {user: password})

    def _access(self) -> Brokers:
        from pyclient.testing.access import Brokers

        _ = self.credentials
        return Brokers(self._running.addresses, self._wanted.startup_timeout_s, self._running.check_alive)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The brokers, by node id, with the addresses clients use."""
        return self._running.nodes

    def stop(self, node_id: int = 1) -> None:
        """End a broker in order (SIGTERM: leadership moves first) and wait for its end."""
        self._running.stop(self._known(node_id))

    def kill(self, node_id: int = 1) -> None:
        """End a broker at once (SIGKILL)."""
        self._running.kill(self._known(node_id))

    def start(self, node_id: int = 1, *, wait: bool = True, timeout: float | None = None) -> None:
        """Start an ended broker again, same address and data; a running one is left alone.

        Returns when the broker is registered and its replicas are in sync. ``wait=False`` returns at once: needed
        when most brokers are down, for without a majority none can register. ``timeout`` (s): ``startup_timeout``.

        Raises:
            BrokerStartError: it exited or was not in sync in time.
        """
        backend = self._running
        backend.start(self._known(node_id))
        if wait:
            from pyclient.testing.probe import wait_until_joined

            wait_until_joined(node_id, backend.addresses[node_id], timeout_s=self._or_startup(timeout),
                              alive=backend.check_alive)

    def pause(self, node_id: int = 1) -> None:
        """Freeze a broker: its connections stay open and silent, as in a long garbage collection."""
        self._running.pause(self._known(node_id))

    def resume(self, node_id: int = 1) -> None:
        """Resume a frozen broker."""
        self._running.resume(self._known(node_id))

    def disconnect(self, node_id: int = 1) -> None:
        """Disconnect a broker from the network: its packets are lost. Containers only.

        Raises:
            NotControllableError: brokers are not in containers.
        """
        self._running.disconnect(self._known(node_id))

    def connect(self, node_id: int = 1) -> None:
        """Put a disconnected broker back on the network."""
        self._running.connect(self._known(node_id))

    def wait_in_sync(self, timeout: float | None = None) -> None:
        """Wait until every broker is registered and every partition has all its replicas in sync.

        Raises:
            TimeoutError: not within ``timeout`` seconds (``startup_timeout`` if left out); names what lags.
            BrokerStartError: a broker exited.
        """
        from pyclient.testing.probe import wait_until_in_sync

        backend = self._running
        wait_until_in_sync(backend.addresses, timeout_s=self._or_startup(timeout), alive=backend.check_alive)

    def check_alive(self) -> None:
        """Raise BrokerStartError when a broker that should run has exited."""
        self._running.check_alive()

    def logs(self, node_id: int = 1) -> str:
        """What a broker has logged since its first start."""
        return self._running.logs(self._known(node_id))

    def data_dir(self, node_id: int = 1) -> Path:
        """The folder with a broker's partitions (``topic-0/00000000000000000000.log``), to be read only; of several log
        directories the first one.

        Embedded brokers' own; of a broker in a container, a copy made by this call.
        """
        return self._running.data_dir(self._known(node_id))

    def run_tool(self, main: str, *arguments: object, stdin: str | None = None,
                 timeout: float = 60.0) -> subprocess.CompletedProcess[str]:
        """Run one of Kafka's tools by its Java class, for independent checks: ``stdout``, ``stderr``, ``returncode``.

        ``run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.bootstrap_servers, "--list")``.
        Runs on this machine, wherever the brokers run, and needs Java here.

        Raises:
            subprocess.TimeoutExpired: not done after ``timeout`` seconds; the tool was killed.
        """
        from pyclient.testing.jvm import prepare_jvm

        jvm = prepare_jvm(self._wanted.version)
        with tempfile.TemporaryDirectory(prefix="pyclient-tool-") as folder:
            return jvm.run_tool(main, *map(str, arguments), logs=Path(folder), input_text=stdin, timeout_s=timeout)

    @property
    def _running(self) -> Backend:
        if self._backend is None:
            raise LocalClusterError("the cluster is not running: use it inside `with LocalCluster() as kafka:`")
        return self._backend

    def _known(self, node_id: int) -> int:
        if node_id not in self._running.addresses:
            raise ValueError(f"there is no broker {node_id}: the node ids are {sorted(self._running.addresses)}")
        return node_id

    def _or_startup(self, timeout: float | None) -> float:
        return self._wanted.startup_timeout_s if timeout is None else timeout


def _made_for(security: Security) -> contextlib.AbstractContextManager[tuple[Credentials, BrokerSecurity]]:
    try:
        from pyclient.testing.credentials import made_for
    except ImportError as missing:
        raise LocalClusterError(
            f"security= makes certificates with the package cryptography ({missing}): run `pip install cryptography` (it is part "
            "of the extra `testing`)."
        ) from missing
    return made_for(security)


def _chosen(mode: Mode, wanted: Wanted, environment: Mapping[str, str] = os.environ) -> Backend:
    bootstrap = environment.get("PYCLIENT_BOOTSTRAP", "")
    forced = environment.get("PYCLIENT_BROKERS") or None
    if mode == "external" or (mode == "auto" and bootstrap):
        return _external(wanted, bootstrap)
    if mode == "auto":
        mode = _forced(forced) if forced else _first_available()
    return _containers(wanted) if mode == "container" else _embedded(wanted)


def _forced(name: str) -> Literal["embedded", "container"]:
    if name == "embedded":
        return "embedded"
    if name == "container":
        return "container"
    raise ValueError(f"PYCLIENT_BROKERS={name!r} is unknown: {' or '.join(RUN_BY_US)}, or leave it out")


def _first_available() -> Literal["embedded", "container"]:
    from pyclient.testing.engine import engine_answers

    return "container" if engine_answers() else "embedded"


def _external(wanted: Wanted, bootstrap: str) -> Backend:
    from pyclient.testing.external import ExternalCluster

    if not bootstrap:
        raise LocalClusterError('mode="external" needs the address of a running cluster in PYCLIENT_BOOTSTRAP')
    return ExternalCluster(wanted, bootstrap)


def _containers(wanted: Wanted) -> Backend:
    try:
        from pyclient.testing.containers import ContainerCluster
    except ImportError as missing:
        raise ContainersUnavailableError(
            f"brokers in containers need the package testcontainers ({missing}): run `pip install testcontainers` (it is "
            "part of the extra `testing`), or use PYCLIENT_BROKERS=embedded."
        ) from missing
    return ContainerCluster(wanted)


def _embedded(wanted: Wanted) -> Backend:
    if sys.platform == "win32":
        raise LocalClusterError(
            "embedded brokers do not run on Windows. Start a Docker engine for brokers in containers, or give a running "
            "cluster's address in PYCLIENT_BOOTSTRAP."
        )
    from pyclient.testing.embedded import EmbeddedCluster

    return EmbeddedCluster(wanted)
