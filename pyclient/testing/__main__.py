"""``python -m pyclient.testing broker [--fake]`` runs Kafka until Ctrl-C; ``… prepare`` downloads it; ``… hostile``
attacks clients.
"""
from __future__ import annotations

import argparse
import contextlib
import errno
import logging
import shutil
import signal
import socket
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Final

from pyclient.testing.broker_security import LISTENERS
from pyclient.testing.cluster import MODES, MOST_BROKERS, LocalCluster
from pyclient.testing.common.errors import LocalClusterError
from pyclient.testing.fake.model.profiles import PROFILES
from pyclient.testing.lockfile import DEFAULT_VERSION, ROOTS
from pyclient.testing.port_owner import port_taken
from pyclient.testing.security import Security

CHECK_EVERY_S: Final = 0.5
PORT: Final = 9092
SECURE_PORT: Final = 9093
STARTUP_TIMEOUT_S: Final = 60.0
LOCALHOST: Final = "127.0.0.1"
USERS: Final = {"alice": "alice-secret", "bob": "bob-secret"}
"""Of ``--secure``: each may do everything."""


def main(arguments: list[str] | None = None) -> int:
    """Run a command; returns its exit code: 0, or 1 with the reason on standard error."""
    options = _parser().parse_args(arguments)
    logging.basicConfig(level=logging.INFO if options.verbose else logging.WARNING, format="%(levelname)s %(message)s")
    command: Callable[[argparse.Namespace], None] = options.command
    try:
        with _signals_interrupt():
            command(options)
    except KeyboardInterrupt:
        print("stopped", file=sys.stderr)
    except (LocalClusterError, ValueError) as failed:
        print(f"error: {failed}", file=sys.stderr)
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m pyclient.testing", description=__doc__)
    parser.add_argument("-v", "--verbose", action="store_true", help="log what is done")
    commands = parser.add_subparsers(required=True, metavar="command")
    broker = commands.add_parser("broker", help="serve real Kafka on a printed address until Ctrl-C")
    broker.add_argument("--brokers", type=int, default=1, metavar="N", help=f"how many, up to {MOST_BROKERS} (1)")
    broker.add_argument("--fake", action="store_true", help="a fake cluster in this process: starts at once, needs no Java")
    broker.add_argument("--topic", action="append", default=[], metavar="NAME[:PARTITIONS]", help="a topic of the fake; repeatable")
    broker.add_argument("--mode", choices=MODES, default="auto", help="how to run the brokers (auto: the first that works)")
    broker.add_argument("--config", action="append", default=[], metavar="NAME=VALUE", help="a broker setting; repeatable")
    broker.add_argument("--port", type=int, metavar="N", help=f"of the first broker ({PORT}, with --secure {SECURE_PORT}; another one if that is taken)")
    broker.add_argument("--startup-timeout", type=float, default=STARTUP_TIMEOUT_S, metavar="S",
                        help=f"seconds that a start may take ({STARTUP_TIMEOUT_S:.0f}); a loaded machine may need more")
    broker.add_argument("--ca", metavar="FILE", help="with --secure: also write the authority's certificate to this file")
    broker.add_argument("--secure", action="store_true", help="listeners with TLS and SASL too, and users; their addresses and options are printed")
    broker.set_defaults(command=_serve)
    hostile = commands.add_parser("hostile", help="attack clients with what a hostile broker or group member may answer; prints the table")
    hostile.add_argument("attack", nargs="*", metavar="WORD", help="only the attacks whose names have one of these words")
    hostile.set_defaults(command=_attack)
    prepare = commands.add_parser("prepare", help="download Kafka and make the start-up archive, so that tests start fast")
    prepare.set_defaults(command=_prepare)
    broker.add_argument("--version", choices=(*ROOTS, *PROFILES), default=DEFAULT_VERSION, metavar="VERSION",
                        help=f"Kafka's: {', '.join(ROOTS)}, or the fake's: {', '.join(PROFILES)} ({DEFAULT_VERSION})")
    prepare.add_argument("--version", choices=tuple(ROOTS), default=DEFAULT_VERSION, help=f"Kafka's ({DEFAULT_VERSION})")
    return parser


def _serve(options: argparse.Namespace) -> None:
    config = dict(_setting(text) for text in options.config)
    if options.fake:
        _serve_fake(options, config)
    else:
        _serve_real(options, config)


def _serve_fake(options: argparse.Namespace, config: dict[str, str]) -> None:
    from pyclient.testing.fake.cluster import FakeCluster

    if options.secure:
        raise ValueError("--secure is for real brokers; FakeCluster(tls=..., sasl=...) is secured in a test")
    release = ".".join(options.version.split(".")[:2])
    with FakeCluster(options.brokers, version=release, config=config, port=_port(options)) as cluster:
        for topic in options.topic:
            name, _, partitions = topic.partition(":")
            cluster.create_topic(name, int(partitions or 1))
        _check_port(options, cluster.bootstrap_servers)
        _announce("a fake cluster", cluster.bootstrap_servers)
        while True:
            time.sleep(CHECK_EVERY_S)


def _attack(options: argparse.Namespace) -> None:
    """Run the table.

    Raises:
        ValueError: a client broke a bound.
    """
    from pyclient.testing.hostile.attacks import ATTACKS
    from pyclient.testing.hostile.run import run

    broken = 0
    print(f"{'attack':50} {'requests':>8} {'s':>5} {'MiB':>4} {'lines':>5}")
    for attack in ATTACKS:
        if options.attack and not any(word in attack.name for word in options.attack):
            continue
        with contextlib.nullcontext() if options.verbose else _unlogged():
            cost = run(attack)
        most = max(cost.requests.values(), default=0)
        print(f"{attack.name:50} {most:8} {cost.seconds:5.1f} {cost.memory_mib:4.0f} {len(cost.lines):5}", *cost.beyond(attack), sep="\n  ", flush=True)
        broken += bool(cost.beyond(attack))
    if broken:
        raise ValueError(f"{broken} attacks cost a client more than their bounds")


@contextlib.contextmanager
def _unlogged() -> Iterator[None]:
    """What the clients log stays out of the table."""
    loggers = [logging.getLogger(name) for name in ("pyclient", "asyncio")]
    before = [logger.propagate for logger in loggers]
    try:
        for logger in loggers:
            logger.propagate = False
        yield
    finally:
        for logger, propagate in zip(loggers, before, strict=True):
            logger.propagate = propagate


def _announce(what: str, bootstrap_servers: str) -> None:
    print(f"{what}: ready; Ctrl-C ends it. In a second terminal, in Python:", file=sys.stderr)
    print(pasted("kafka", {"bootstrap.servers": bootstrap_servers}), file=sys.stderr)
    print(f"or in tests: PYCLIENT_BOOTSTRAP={bootstrap_servers} pytest", file=sys.stderr, flush=True)
    print(f"bootstrap.servers={bootstrap_servers}", flush=True)  # last: the reader may end this process at once


def pasted(name: str, options: Mapping[str, str]) -> str:
    """A block of Python to paste: the options, and a producer that uses them."""
    rows = "".join(f'    "{option}": {value!r},\n'.replace("'", '"') for option, value in options.items())
    return f"\n{name.upper()} = {{\n{rows}}}\nproducer = Producer({name.upper()})\n"


def _port(options: argparse.Namespace) -> int | None:
    """The wanted port: the one asked for must be free, the usual one only if it is."""
    if options.port is None:
        return SECURE_PORT if options.secure else PORT
    try:
        socket.create_server((LOCALHOST, options.port)).close()
    except (OSError, OverflowError) as refused:
        taken = isinstance(refused, OSError) and refused.errno == errno.EADDRINUSE
        raise ValueError(port_taken(options.port) if taken else f"--port {options.port} cannot be used: {refused}") from None
    return int(options.port)


def _check_port(options: argparse.Namespace, bootstrap_servers: str) -> None:
    """Raise ValueError when another process took the port that was asked for after `_port` had found it free."""
    if options.port is not None and options.port not in ports_of(bootstrap_servers):
        raise ValueError(port_taken(options.port))


def _serve_real(options: argparse.Namespace, config: dict[str, str]) -> None:
    if options.topic:
        raise ValueError("--topic is for --fake")
    print(f"starting Apache Kafka {options.version} …", file=sys.stderr)
    security = Security(users=USERS, super_users=USERS) if options.secure else None
    with LocalCluster(options.brokers, mode=options.mode, version=options.version, config=config, security=security, port=_port(options),
                      startup_timeout=options.startup_timeout) as cluster:
        _check_port(options, cluster.bootstrap_servers if security is None else cluster.bootstrap("SASL_SSL"))
        if security is not None:
            _announce_secured(cluster, options.ca)
        else:
            _announce(cluster.description, cluster.bootstrap_servers)
        while True:
            time.sleep(CHECK_EVERY_S)
            cluster.check_alive()


def ports_of(bootstrap_servers: str) -> list[int]:
    """The port of each address."""
    return [int(address.rpartition(":")[2]) for address in bootstrap_servers.split(",")]


def _announce_secured(cluster: LocalCluster, ca_file: str | None) -> None:
    """Print the options for one listener last. The passwords are those of generated test users."""
    known = cluster.credentials
    if ca_file is not None:
        shutil.copyfile(known.ca.path, ca_file)
    for kind, listener in LISTENERS.items():
        print(f"{kind}: {cluster.bootstrap(kind)} {', '.join(listener.mechanisms)}".rstrip(), file=sys.stderr)
    for user in known.users.values():
        print(f"user {user.name}: password {user.password}, certificate and key in {user.tls.keystore.path}", file=sys.stderr)
    print(f"{cluster.description}: ready; Ctrl-C ends it", file=sys.stderr)
    user = next(iter(known.users.values()))
    shown = {
        "security.protocol": "SASL_SSL", "ssl.truststore.location": known.ca.path, "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.plain.username": user.name, "sasl.plain.password": user.password, "bootstrap.servers": cluster.bootstrap("SASL_SSL"),
    }
    print(f"In a second terminal, in Python:\n{pasted('secured', shown)}", file=sys.stderr, flush=True)
    for option, value in shown.items():
        print(f"{option}={value}", flush=True)


def _prepare(options: argparse.Namespace) -> None:
    from pyclient.testing.jvm import prepare_jvm

    jvm = prepare_jvm(options.version)
    print(f"{jvm.java}; Kafka {options.version} in {jvm.jars.directory}")
    if not jvm.archive.usable:
        print("creating the start-up archive (some seconds) …", flush=True)
        with LocalCluster(mode="embedded", version=options.version):
            pass  # the first orderly stop writes it
    print(f"start-up archive: {jvm.archive.path if jvm.archive.usable else 'none (this Java cannot create one, or another process is creating it)'}")


def _setting(text: str) -> tuple[str, str]:
    name, found, value = text.partition("=")
    if not found:
        raise ValueError(f"--config {text!r} is not NAME=VALUE")
    return name.strip(), value.strip()


@contextlib.contextmanager
def _signals_interrupt() -> Iterator[None]:
    """SIGTERM ends as Ctrl-C does; SIGINT is set too, since shells start background jobs with it ignored."""
    def interrupt(_number: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    before = [(number, signal.signal(number, interrupt)) for number in (signal.SIGTERM, signal.SIGINT)]
    try:
        yield
    finally:
        for number, handler in before:
            signal.signal(number, handler)


if __name__ == "__main__":
    sys.exit(main())
