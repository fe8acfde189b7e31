"""Brokers in containers, run through testcontainers: one container each, in a network of their own.

Decides names, addresses and settings inside the network; what a broker's image is, `image` decides. Containers carry
the label ``pyclient`` and their owner: those whose owner died are removed, by a watcher and at the next start.
"""
from __future__ import annotations

import contextlib
import io
import logging
import shutil
import sys
import tarfile
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

import docker
import docker.errors
import tenacity
from testcontainers.core.config import testcontainers_config
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from pyclient.records import Node
from pyclient.testing.backend import Kind, Wanted, tail
from pyclient.testing.broker_config import for_node, new_cluster_id, one_line, shared_config
from pyclient.testing.broker_security import INTERNAL, LISTENERS, PLAINTEXT, java_flags, protocol_map
from pyclient.testing.common.errors import BrokerStartError, ContainersUnavailableError
from pyclient.testing.image import FORMAT_FLAGS, RUN, broker_image
from pyclient.testing.owners import Owner, is_dead
from pyclient.testing.ports import release_ports, reserve_ports
from pyclient.testing.probe import Address, wait_until_ready

LABEL: Final = "pyclient"
OWNER_LABEL: Final = "pyclient.owner"
CLIENT: Final = "CLIENT"
CLIENT_PORT: Final = 9092
INTERNAL_PORT: Final = 19092
CONTROLLER_PORT: Final = 9093
KEYS: Final = "/tmp/pyclient-jwks.json"  # in the container
DATA: Final = "/var/lib/kafka/data"
STOP_TIMEOUT_S: Final = 30
STARTS: Final = 3
_INSIDE: Final = {INTERNAL: INTERNAL_PORT, "CONTROLLER": CONTROLLER_PORT}
_SECURED: Final = {name: 9200 + number for number, name in enumerate(LISTENERS)}
FREEZING_S: Final = 20.0
_CANNOT_FREEZE: Final = "unable to freeze"
_PORT_TAKEN: Final = ("port is already allocated", "address already in use")

log = logging.getLogger(__name__)
_settings_guard = threading.Lock()


class ContainerBroker:
    """One broker's container, and whether it is expected to run."""

    def __init__(self, node_id: int, ports: Mapping[str, int], container: DockerContainer) -> None:
        self.node_id: Final = node_id
        self.ports: Final = ports  # those of this machine, by listener
        self.container: Final = container
        self.expected = False

    @property
    def port(self) -> int:
        """Where plaintext clients are served."""
        return self.ports[CLIENT]

    @property
    def docker(self) -> Any:
        """The engine's own handle."""
        return self.container.get_wrapped_container()

    def start(self) -> None:
        """Create and start."""
        self.container.start()
        self.expected = True

    def remove(self) -> None:
        """Kill and remove, with its data."""
        self.expected = False
        with contextlib.suppress(docker.errors.NotFound):
            self.container.stop()

    def log_text(self) -> str:
        """Its output since its creation."""
        return str(self.docker.logs().decode("utf-8", "replace"))

    def state(self) -> str:
        """``running``, ``paused``, ``exited``."""
        handle = self.docker
        handle.reload()
        return str(handle.status)


class ContainerCluster:
    """Brokers that are also the controllers, in one quorum, each in a container of the local engine."""

    kind: Final[Kind] = "container"

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._client = _engine()
        self._image = ""
        self._host = "127.0.0.1"
        self._owner: Owner | None = None
        self._network: Network | None = None
        self._brokers: dict[int, ContainerBroker] = {}
        self._ends = contextlib.ExitStack()
        self._copies: Path | None = None

    @property
    def description(self) -> str:
        count = f"{self._wanted.brokers} broker{'s' if self._wanted.brokers > 1 else ''}"
        engine = self._client.version()["Version"]
        return f"Apache Kafka {self._wanted.version} in containers, {count}, image {self._image}, Docker {engine}"

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(broker.node_id, self._host, broker.port) for broker in self._brokers.values())

    @property
    def addresses(self) -> dict[int, Address]:
        return self.addresses_of(CLIENT)

    def addresses_of(self, listener: str) -> dict[int, Address]:
        """The brokers' addresses of one listener."""
        name = CLIENT if listener == PLAINTEXT else listener
        return {node_id: (self._host, broker.ports[name]) for node_id, broker in self._brokers.items()}

    def open(self) -> None:
        """Start all containers; retry with other ports when one was taken."""
        remove_leftovers(self._client)
        self._image = broker_image(self._client, self._wanted.version, formats=bool(self._wanted.features))
        deadline = time.monotonic() + self._wanted.startup_timeout_s
        for attempt in range(1, STARTS + 1):
            try:
                self._start_all(deadline)
            except docker.errors.APIError as refused:
                self._end_all()
                if attempt == STARTS or not any(text in str(refused) for text in _PORT_TAKEN):
                    raise BrokerStartError(f"the Docker engine refused a broker's container: {refused}") from refused
            except BaseException:
                self._end_all()
                raise
            else:
                return

    def _start_all(self, deadline: float) -> None:
        self._owner = owner = Owner()
        self._watch(owner)
        drawn = iter(reserve_ports(self._wanted.brokers * len(self._published)))
        self._network = Network(docker_network_kw={"labels": _labels(owner)}).create()
        cluster_id = new_cluster_id()
        for i in range(1, self._wanted.brokers + 1):
            ports = {name: next(drawn) for name in self._published}
            self._brokers[i] = ContainerBroker(i, ports, self._container(i, ports, cluster_id, owner))
        with _without_reaper(), ThreadPoolExecutor(len(self._brokers), thread_name_prefix="pyclient-containers") as pool:
            list(pool.map(ContainerBroker.start, self._brokers.values()))
        self._await_ready(deadline)

    @property
    def _published(self) -> dict[str, int]:
        """The listeners that clients reach, with their ports inside."""
        return {CLIENT: CLIENT_PORT} | (_SECURED if self._wanted.security is not None else {})

    def _container(self, node_id: int, ports: Mapping[str, int], cluster_id: str, owner: Owner) -> DockerContainer:
        assert self._network is not None, "made before its containers"
        container = DockerContainer(self._image)
        container.with_network(self._network).with_network_aliases(_alias(node_id)).with_command(self._command)
        container.with_kwargs(labels=_labels(owner))
        self._host = _reachable(container)
        for name, inside in self._published.items():
            # on the loopback interface only, where the engine is on this machine
            binding: Any = ("127.0.0.1", ports[name]) if self._host == "127.0.0.1" else ports[name]
            container.ports[str(inside)] = binding
        for variable, value in self._environment(node_id, ports, cluster_id).items():
            container.with_env(variable, value)
        return container

    @property
    def _command(self) -> str | list[str]:
        if self._wanted.security is None:
            return RUN
        return ["sh", "-c", f'printf %s "$PYCLIENT_JWKS" >{KEYS} && exec {RUN}']  # no other way puts a file there in time

    def _environment(self, node_id: int, ports: Mapping[str, int], cluster_id: str) -> dict[str, str]:
        members = range(1, self._wanted.brokers + 1)
        listeners = self._published | _INSIDE
        own = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "listeners": ",".join(f"{name}://0.0.0.0:{at}" for name, at in listeners.items()),
            "advertised.listeners": ",".join([*(f"{name}://{self._host}:{port}" for name, port in ports.items()),
                                              f"{INTERNAL}://{_alias(node_id)}:{INTERNAL_PORT}"]),
            "listener.security.protocol.map": protocol_map(listeners),
            "inter.broker.listener.name": INTERNAL,
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": ",".join(f"{i}@{_alias(i)}:{CONTROLLER_PORT}" for i in members),
            "log.dirs": self._wanted.folders(DATA),
        }
        config = shared_config(self._wanted.brokers) | dict(self._wanted.config)
        settings = own | self._security_settings() | {name: for_node(value, node_id) for name, value in config.items()}
        return {"CLUSTER_ID": cluster_id, FORMAT_FLAGS: " ".join(self._wanted.format_flags), **self._keys()} | {_variable(name): one_line(value) for name, value in settings.items()}

    def _security_settings(self) -> dict[str, str]:
        security = self._wanted.security
        return {} if security is None else security.settings(self._wanted.version, KEYS)

    def _keys(self) -> dict[str, str]:
        """What brings the token issuer's keys into the container."""
        security = self._wanted.security
        return {} if security is None else {"PYCLIENT_JWKS": security.jwks, "KAFKA_OPTS": " ".join(java_flags(KEYS))}

    def _watch(self, owner: Owner) -> None:
        """Have the containers removed when this process dies, even by SIGKILL; not on Windows."""
        if sys.platform != "win32":
            from pyclient.testing.process_guard import ProcessGuard

            guard = self._ends.enter_context(contextlib.closing(ProcessGuard("containers")))
            self._copies = guard.directory
            ends = guard.run_after_exit([sys.executable, "-m", __name__, owner.name])
            self._ends.callback(ends)  # after an orderly end there is nothing left to remove
        else:
            self._copies = Path(tempfile.mkdtemp(prefix="pyclient-containers-"))
            self._ends.callback(shutil.rmtree, self._copies, ignore_errors=True)

    def _await_ready(self, deadline: float) -> None:
        try:
            wait_until_ready(self.addresses, timeout_s=deadline - time.monotonic(), alive=self.check_alive)
        except TimeoutError as late:
            raise BrokerStartError(
                f"no produce was acknowledged within {self._wanted.startup_timeout_s:.0f} s: {late}. A loaded machine "
                "may need a larger startup_timeout (--startup-timeout).",
                "\n".join(f"broker {b.node_id}:\n{tail(b.log_text(), 25)}" for b in self._brokers.values())) from late

    def check_alive(self) -> None:
        """Raise BrokerStartError when a container exited."""
        for broker in self._brokers.values():
            if broker.expected and (state := broker.state()) in {"exited", "dead"}:
                raise BrokerStartError(
                    f"the container of broker {broker.node_id} is {state}; its log names the reason, often a setting that "
                    "Kafka refuses.", tail(broker.log_text()))

    def close(self) -> None:
        """Remove containers and network."""
        self._end_all()
        self._client.close()

    def _end_all(self) -> None:
        brokers, self._brokers = self._brokers, {}
        network, self._network = self._network, None
        owner, self._owner = self._owner, None
        try:
            if brokers:
                with ThreadPoolExecutor(len(brokers), thread_name_prefix="pyclient-containers") as pool:
                    list(pool.map(ContainerBroker.remove, brokers.values()))
            if network is not None:
                with contextlib.suppress(docker.errors.NotFound):
                    network.remove()
        finally:
            self._ends.close()
            release_ports(port for broker in brokers.values() for port in broker.ports.values())
            if owner is not None:
                owner.end()

    def stop(self, node_id: int) -> None:
        """SIGTERM, and wait for the end."""
        self._brokers[node_id].expected = False
        self._brokers[node_id].docker.stop(timeout=STOP_TIMEOUT_S)

    def kill(self, node_id: int) -> None:
        """SIGKILL; a broker that has ended already is left as it is."""
        broker = self._brokers[node_id]
        broker.expected = False
        if broker.state() in {"running", "paused", "restarting"}:
            broker.docker.kill()

    def start(self, node_id: int) -> None:
        """Start the ended container again: same address, same data. Returns at once."""
        broker = self._brokers[node_id]
        if broker.state() == "exited":
            broker.docker.start()
        broker.expected = True

    def pause(self, node_id: int) -> None:
        """Freeze the container's processes."""
        freeze(self._brokers[node_id].docker)

    def resume(self, node_id: int) -> None:
        """Resume them."""
        self._brokers[node_id].docker.unpause()

    def disconnect(self, node_id: int) -> None:
        """Take the container off the network: neither brokers nor clients reach it."""
        self._handle_of_network().disconnect(self._brokers[node_id].docker)

    def connect(self, node_id: int) -> None:
        """Put it back."""
        self._handle_of_network().connect(self._brokers[node_id].docker, aliases=[_alias(node_id)])

    def _handle_of_network(self) -> Any:
        assert self._network is not None, "brokers exist, so their network does"
        return self._client.networks.get(self._network.name)

    def logs(self, node_id: int) -> str:
        """The container's output."""
        return self._brokers[node_id].log_text()

    def data_dir(self, node_id: int) -> Path:
        """A copy of the broker's data as it is now, kept until the cluster ends."""
        assert self._copies is not None, "made before the brokers"
        target = Path(tempfile.mkdtemp(prefix=f"broker-{node_id}-", dir=self._copies))
        chunks, _ = self._brokers[node_id].docker.get_archive(DATA)
        with tarfile.open(fileobj=io.BytesIO(b"".join(chunks))) as tar:
            tar.extractall(target, filter="data")
        return target / Path(DATA).name


def _engine() -> Any:
    try:
        client = docker.from_env()
        client.ping()
    except (docker.errors.DockerException, OSError) as failed:
        raise ContainersUnavailableError(
            f"no Docker engine answers ({failed}). Start one, point DOCKER_HOST at one, or use PYCLIENT_BROKERS=embedded."
        ) from failed
    return client


def _labels(owner: Owner) -> dict[str, str]:
    return {LABEL: "test", OWNER_LABEL: owner.name}


def freeze(container: Any, limit_s: float = FREEZING_S) -> None:
    """Pause a container. Retries while the kernel cannot freeze all processes of a busy one."""
    again = tenacity.retry_if_exception(lambda error: isinstance(error, docker.errors.APIError) and _CANNOT_FREEZE in str(error))
    tenacity.Retrying(retry=again, wait=tenacity.wait_random(0.05, 0.2), stop=tenacity.stop_after_delay(limit_s), reraise=True)(container.pause)


def _alias(node_id: int) -> str:
    return f"kafka-{node_id}"


def _variable(name: str) -> str:
    """A setting as the image's environment variable: ``a.b-c_d`` is ``KAFKA_A_B___C__D``."""
    return "KAFKA_" + name.replace("_", "__").replace("-", "___").replace(".", "_").upper()


def _reachable(container: DockerContainer) -> str:
    """Where the engine's published ports are, as seen from here."""
    client = container.get_docker_client()
    host = client.host()
    return "127.0.0.1" if host in {"localhost", "127.0.0.1", ""} else str(host)


@contextlib.contextmanager
def _without_reaper() -> Iterator[None]:
    """Disable testcontainers' reaper, a helper container from its own image; `owners` replaces it."""
    with _settings_guard:
        before = testcontainers_config.ryuk_disabled
        testcontainers_config.ryuk_disabled = True
        try:
            yield
        finally:
            testcontainers_config.ryuk_disabled = before


def remove_leftovers(client: Any) -> None:
    """Remove containers and networks whose owner died."""
    dead: dict[str, bool] = {}
    for thing in labelled(client, LABEL):
        owner = _owner_of(thing)
        if owner not in dead:
            dead[owner] = is_dead(owner)
        if dead[owner]:
            _remove(thing)


def remove_owned(owner: str) -> None:
    """Remove what *owner* left: containers first, then the networks they were in."""
    client = _engine()
    for thing in labelled(client, f"{OWNER_LABEL}={owner}"):
        _remove(thing)
    is_dead(owner)  # removes its file
    client.close()


def labelled(client: Any, label: str) -> list[Any]:
    """The containers, then the networks with *label*; those that vanish meanwhile are left out."""
    wanted = {"label": label}
    return [*client.containers.list(all=True, filters=wanted, sparse=True, ignore_removed=True),
            *client.networks.list(filters=wanted)]


def _owner_of(thing: Any) -> str:
    return str((thing.attrs.get("Labels") or {}).get(OWNER_LABEL, ""))


def _remove(thing: Any) -> None:
    try:
        if hasattr(thing, "kill"):
            thing.remove(force=True, v=True)
        else:
            thing.remove()
    except docker.errors.APIError as failed:  # another process may be removing it at the same moment
        log.info("leftover %s could not be removed: %s", thing.id, failed)


if __name__ == "__main__":
    remove_owned(sys.argv[1])
