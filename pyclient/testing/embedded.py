"""Brokers as Java processes of this machine: formatted, started and removed.

Decides when a start has failed and whether to retry. Only start and end block.
"""
from __future__ import annotations

import logging
import signal
import subprocess
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

from pyclient.records import Node
from pyclient.testing.archive import Training
from pyclient.testing.backend import Kind, Wanted, tail
from pyclient.testing.broker_config import for_node, new_cluster_id, render_properties, shared_config
from pyclient.testing.broker_security import INTERNAL, LISTENERS, PLAINTEXT, java_flags, protocol_map
from pyclient.testing.common.errors import BrokerStartError, NotControllableError, PortTakenError
from pyclient.testing.jvm import BROKER, FORMATTER, SERVER_HEAP, Jvm, prepare_jvm
from pyclient.testing.process_guard import ProcessGuard, kill_group, pause
from pyclient.testing.ports import release_ports, reserve_port, reserve_ports
from pyclient.testing.probe import Address, wait_until_ready

HOST: Final = "127.0.0.1"
CONTROLLER: Final = "CONTROLLER"
STARTS: Final = 3
FORMAT_TIMEOUT_S: Final = 60.0
STOP_TIMEOUT_S: Final = 30.0
TRAINING_STOP_TIMEOUT_S: Final = 180.0
"""Writing the start-up archive takes seconds of CPU; on a machine with other work it took more than 30 s."""
_PORT_TAKEN: Final = "Address already in use"
_REFUSED: Final = "ConfigException"  # an invalid setting: a retry would fail again

log = logging.getLogger(__name__)


class EmbeddedBroker:
    """One broker: its folder, its ports by listener and, while it runs, its process."""

    def __init__(self, node_id: int, directory: Path, ports: Mapping[str, int]) -> None:
        self.node_id: Final = node_id
        self.ports: Final = ports
        self.directory: Final = directory
        self.directory_id: Final = new_cluster_id()
        self._process: subprocess.Popen[bytes] | None = None
        self._training: Training | None = None

    @property
    def port(self) -> int:
        """Where plaintext clients are served."""
        return self.ports[PLAINTEXT]

    def address(self, listener: str = PLAINTEXT) -> Address:
        return HOST, self.ports[listener]

    @property
    def running(self) -> bool:
        """Whether the process exists; one that exited still counts until it is collected."""
        return self._process is not None

    @property
    def exit_code(self) -> int | None:
        """Exit code of a process that exited; None while it runs or when it was ended from here."""
        return None if self._process is None else self._process.poll()

    @property
    def controller(self) -> str:
        return f"{HOST}:{self.ports[CONTROLLER]}"

    @property
    def properties_file(self) -> Path:
        return self.directory / "server.properties"

    @property
    def data(self) -> Path:
        return self.directory / "data"

    def log_text(self) -> str:
        """The broker's log, and what Java itself printed."""
        parts = (self.directory / name for name in ("output.log", "server.log"))
        return "".join(part.read_text("utf-8", "replace") for part in parts if part.is_file())

    def write_properties(self, controllers: Sequence[str], security: Mapping[str, str], config: Mapping[str, str], log_dirs: str) -> None:
        """Write the properties file: the cluster's *security* and *config*, and the broker's own settings."""
        self.directory.mkdir(exist_ok=True)
        at = {name: f"{name}://{HOST}:{port}" for name, port in self.ports.items()}
        own = {
            "process.roles": "broker,controller",
            "node.id": str(self.node_id),
            "controller.quorum.bootstrap.servers": ",".join(controllers),
            "listeners": ",".join(at.values()),
            "advertised.listeners": ",".join(each for name, each in at.items() if name != CONTROLLER),
            "controller.listener.names": CONTROLLER,
            "inter.broker.listener.name": INTERNAL if INTERNAL in at else PLAINTEXT,
            "listener.security.protocol.map": protocol_map(at),
            "log.dirs": log_dirs,
        }
        self.properties_file.write_text(render_properties(own | dict(security) | {name: for_node(value, self.node_id) for name, value in config.items()}), "utf-8")

    def format(self, jvm: Jvm, guard: ProcessGuard, arguments: Sequence[str]) -> None:
        """Run Kafka's formatter on the folder. Raises BrokerStartError with what it printed."""
        command = jvm.command(FORMATTER, "format", *arguments, "-c", str(self.properties_file), logs=self.directory)
        with (self.directory / "output.log").open("ab") as output:
            process = guard.start(command, output=output, env=jvm.environment(), cwd=self.directory)
            try:
                code = process.wait(FORMAT_TIMEOUT_S)
            finally:
                kill_group(process)
        if code:
            raise BrokerStartError(
                f"formatting the folder of broker {self.node_id} failed (exit code {code}): a setting that Kafka refuses "
                "is the usual cause.", tail(self.log_text()))

    def start(self, jvm: Jvm, guard: ProcessGuard, training: Training | None = None, flags: Sequence[str] = ()) -> None:
        """Start the process; with *training* its orderly stop writes the start-up archive."""
        flags = [*SERVER_HEAP, *flags, *(training.flags() if training else ())]
        command = jvm.command(BROKER, str(self.properties_file), logs=self.directory, flags=flags)
        self._training = training  # first, so that its lock is always released
        with (self.directory / "output.log").open("ab") as output:
            self._process = guard.start(command, output=output, env=jvm.environment(), cwd=self.directory)

    @property
    def trains(self) -> bool:
        return self._training is not None

    def terminate(self) -> None:
        """Stop in order; kill after `STOP_TIMEOUT_S`, or `TRAINING_STOP_TIMEOUT_S`."""
        timeout_s = TRAINING_STOP_TIMEOUT_S if self.trains else STOP_TIMEOUT_S
        if (process := self._process) is None:
            return
        process.send_signal(signal.SIGTERM)
        process.send_signal(signal.SIGCONT)  # a paused process takes no other signal than SIGKILL
        orderly = True
        try:
            process.wait(timeout_s)
        except subprocess.TimeoutExpired:
            orderly = False
            log.warning("broker %d did not end within %.0f s of SIGTERM and is killed", self.node_id, timeout_s)
        self._collect(orderly=orderly)

    def kill(self) -> None:
        """End at once."""
        self._collect(orderly=False)

    def pause(self) -> None:
        """Freeze the process, if it runs."""
        if self._process is not None:
            pause(self._process)

    def resume(self) -> None:
        """Resume the process, if it runs."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def _collect(self, *, orderly: bool) -> None:
        process, self._process = self._process, None
        if process is not None:
            kill_group(process)
        training, self._training = self._training, None
        if training is not None:
            training.finish(orderly=orderly)


class EmbeddedCluster:
    """Brokers that are also controllers of one quorum, each a Java process that ends with this process."""

    kind: Final[Kind] = "embedded"

    def __init__(self, wanted: Wanted) -> None:
        self._wanted = wanted
        self._jvm: Jvm | None = None
        self._guard: ProcessGuard | None = None
        self._brokers: dict[int, EmbeddedBroker] = {}
        self._cluster_id: Final = new_cluster_id()

    @property
    def jvm(self) -> Jvm:
        """Java and jars; found and downloaded on first use."""
        if self._jvm is None:
            self._jvm = prepare_jvm(self._wanted.version)
        return self._jvm

    @property
    def description(self) -> str:
        count = f"{self._wanted.brokers} broker{'s' if self._wanted.brokers > 1 else ''}"
        return f"embedded Apache Kafka {self._wanted.version}, {count}, {self.jvm.java}"

    @property
    def nodes(self) -> tuple[Node, ...]:
        return tuple(Node(broker.node_id, HOST, broker.port) for broker in self._brokers.values())

    @property
    def addresses(self) -> dict[int, Address]:
        return self.addresses_of(PLAINTEXT)

    def addresses_of(self, listener: str) -> dict[int, Address]:
        """The brokers' addresses of one listener."""
        return {node_id: broker.address(listener) for node_id, broker in self._brokers.items()}

    def open(self) -> None:
        """Start all brokers; retry with other ports when one was taken, and without a possibly bad archive."""
        jvm = self.jvm  # before the clock starts: a first download may take longer than a start may
        deadline = time.monotonic() + self._wanted.startup_timeout_s
        for _ in range(STARTS - 1):
            try:
                self._open_once(deadline)
            except BrokerStartError as failed:
                if not self._prepared_for_another_try(failed):
                    raise
            else:
                break
        else:
            self._open_once(deadline)
        if not self.jvm.archived and jvm.archive.usable:
            log.warning("brokers start without the archive %s but not with it; it is removed", jvm.archive.path)
            jvm.archive.discard()

    def _prepared_for_another_try(self, failed: BrokerStartError) -> bool:
        if isinstance(failed, PortTakenError):
            log.info("a port was taken before the broker's start; choosing others")
            return True
        may_be_archive = self.jvm.archived and self.jvm.archive.usable and _REFUSED not in str(failed)
        if may_be_archive:
            log.info("trying again without the start-up archive")
            self._jvm = self.jvm._replace(archived=False)
        return may_be_archive

    def _open_once(self, deadline: float) -> None:
        try:
            self._start_all(deadline)
        except BaseException:
            self._end_all()
            raise

    def _start_all(self, deadline: float) -> None:
        self._guard = guard = ProcessGuard("kafka")
        self._brokers = self._drawn(guard.directory)
        config = shared_config(self._wanted.brokers) | dict(self._wanted.config)
        controllers = [broker.controller for broker in self._brokers.values()]
        security = self._security_settings(guard.directory)
        for broker in self._brokers.values():
            broker.write_properties(controllers, security, config, self._wanted.folders(str(broker.data)))
        self._format_all(guard)
        for broker in self._brokers.values():
            broker.start(self.jvm, guard, self._training(), self._flags(guard.directory))  # at most one of them trains
        self._await_ready(deadline)

    def _security_settings(self, folder: Path) -> dict[str, str]:
        if (security := self._wanted.security) is None:
            return {}
        _keys(folder).write_text(security.jwks, "utf-8")
        return security.settings(self._wanted.version, str(_keys(folder)))

    def _flags(self, folder: Path) -> list[str]:
        return java_flags(str(_keys(folder))) if self._wanted.security is not None else []

    def _training(self) -> Training | None:
        return self.jvm.archive.training() if self.jvm.archived else None

    def _drawn(self, directory: Path) -> dict[int, EmbeddedBroker]:
        count, names = self._wanted.brokers, self._listeners()
        ports = iter(reserve_ports(len(names) * count))
        drawn = [{name: next(ports) for name in names} for _ in range(count)]
        self._prefer(drawn[0])
        return {i: EmbeddedBroker(i, directory / f"broker-{i}", each) for i, each in enumerate(drawn, 1)}

    def _prefer(self, ports: dict[str, int]) -> None:
        """Give the listener that users are shown the wanted port, if it is free."""
        wanted, shown = self._wanted.port, PLAINTEXT if self._wanted.security is None else "SASL_SSL"
        if wanted is not None and reserve_port(wanted):
            release_ports([ports[shown]])
            ports[shown] = wanted

    def _listeners(self) -> tuple[str, ...]:
        return (PLAINTEXT, CONTROLLER, *((INTERNAL, *LISTENERS) if self._wanted.security is not None else ()))

    def _format_all(self, guard: ProcessGuard) -> None:
        arguments = ["-t", self._cluster_id, *self._quorum_arguments(), *self._wanted.format_flags]
        with ThreadPoolExecutor(len(self._brokers), thread_name_prefix="pyclient-format") as pool:
            list(pool.map(lambda broker: broker.format(self.jvm, guard, arguments), self._brokers.values()))

    def _quorum_arguments(self) -> list[str]:
        if len(self._brokers) == 1:
            return ["--standalone"]
        members = (f"{b.node_id}@{b.controller}:{b.directory_id}" for b in self._brokers.values())
        return ["--initial-controllers", ",".join(members)]

    def _await_ready(self, deadline: float) -> None:
        try:
            wait_until_ready(
                self.addresses, timeout_s=deadline - time.monotonic(), alive=self.check_alive, cluster_id=self._cluster_id)
        except TimeoutError as late:
            raise BrokerStartError(
                f"no produce was acknowledged within {self._wanted.startup_timeout_s:.0f} s: {late}. A loaded machine "
                "may need a larger startup_timeout (--startup-timeout).", self._tails()) from late

    def check_alive(self) -> None:
        """Raise BrokerStartError when a broker exited, PortTakenError if because of its port."""
        for broker in self._brokers.values():
            if (code := broker.exit_code) is not None:
                if _PORT_TAKEN in broker.log_text():
                    raise PortTakenError(f"broker {broker.node_id} ended: another process has one of its ports {sorted(broker.ports.values())}")
                raise BrokerStartError(
                    f"broker {broker.node_id} exited with code {code}; its log names the reason, often a "
                    "setting that Kafka refuses.", tail(broker.log_text()))

    def _tails(self) -> str:
        return "\n".join(f"broker {b.node_id}:\n{tail(b.log_text(), 25)}" for b in self._brokers.values())

    def close(self) -> None:
        """Kill all brokers and remove the folder. The one that trains is stopped in order first."""
        try:
            for broker in self._brokers.values():
                if broker.trains and broker.exit_code is None:
                    broker.terminate()
        finally:
            self._end_all()

    def _end_all(self) -> None:
        for broker in self._brokers.values():
            broker.kill()
        if self._guard is not None:
            self._guard.close()
        release_ports(port for broker in self._brokers.values() for port in broker.ports.values())

    def stop(self, node_id: int) -> None:
        """SIGTERM, and wait for the end."""
        self._brokers[node_id].terminate()

    def kill(self, node_id: int) -> None:
        """SIGKILL."""
        self._brokers[node_id].kill()

    def start(self, node_id: int) -> None:
        """Start an ended broker again: same address, same data. Returns at once."""
        broker = self._brokers[node_id]
        if self._guard is None or (broker.running and broker.exit_code is None):
            return
        broker.kill()
        broker.start(self.jvm, self._guard, self._training(), self._flags(self._guard.directory))

    def pause(self, node_id: int) -> None:
        """SIGSTOP."""
        self._brokers[node_id].pause()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._brokers[node_id].resume()

    def disconnect(self, node_id: int) -> None:
        """Not supported: processes of one machine share its network."""
        raise NotControllableError(
            f"broker {node_id} is a process of this machine and cannot be taken off its network. Use pause(), a "
            "FaultProxy, or brokers in containers (PYCLIENT_BROKERS=container)."
        )

    def connect(self, node_id: int) -> None:
        """Not supported, as `disconnect`."""
        self.disconnect(node_id)

    def logs(self, node_id: int) -> str:
        """The broker's server.log and Java's own output."""
        return self._brokers[node_id].log_text()

    def data_dir(self, node_id: int) -> Path:
        """The live folder."""
        return self._brokers[node_id].data


def _keys(folder: Path) -> Path:
    """The file with the token issuer's keys."""
    return folder / "jwks.json"
