"""`FakeCluster`: the model behind real sockets, for tests of services; used from any thread."""
from __future__ import annotations

import contextlib
import functools
import socket
import ssl
import sys
import time
from collections.abc import Callable, Mapping
from random import Random
from types import TracebackType
from typing import Self, TypeVar

from pyclient.errors import ConfigurationError, IllegalStateError
from pyclient.testing.common.errors import FakeClusterError
from pyclient.testing.fake.control import Control
from pyclient.testing.fake.controls import Controls
from pyclient.testing.fake.model.kafka import Broker, Kafka
from pyclient.testing.fake.model.profiles import NEWEST, PROFILES
from pyclient.testing.fake.model.settings import Settings
from pyclient.testing.fake.sockets import LOCALHOST, Listeners, LoopThread
from pyclient.testing.fake.wire import Front

T = TypeVar("T")


class FakeCluster(Controls):
    """An in-process cluster that any Kafka client can connect to. Starts in milliseconds; needs no Java and no Docker.

    ``version`` is the emulated release; ``config`` are settings by Kafka's names (see `Settings`); the same
    ``seed`` gives the same ids. ``tls`` is a server context (`CertificateAuthority` makes one): the listeners then
    use TLS. ``sasl`` maps users to passwords: every client must then log in (PLAIN, SCRAM, or OAUTHBEARER with
    unsecured tokens, whose users need not be listed). The first broker takes *port*, if it is free. ``features``
    are levels that differ from the release's: ``{"transaction.version": 1}``. Use it in a ``with`` or ``async
    with`` block; methods may be called from any thread. Broker ids are 1 to *brokers*. Leaving the block raises
    `FakeClusterError` when the model itself failed.
    """

    def __init__(self, brokers: int = 1, *, version: str = NEWEST, config: Mapping[str, object] | None = None, seed: int = 0,
                 tls: ssl.SSLContext | None = None, sasl: Mapping[str, str] | None = None, port: int | None = None,
                 features: Mapping[str, int] | None = None) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has at least one")
        if version not in PROFILES:
            raise ConfigurationError(f"version={version!r} is unknown: choose one of {', '.join(PROFILES)}", option="version")
        super().__init__()
        self._count = brokers
        self._port = port
        self._profile = PROFILES[version].with_features(features or {})
        self._settings = Settings.parse(config or {})
        self._random = Random(seed)
        self._tls = tls
        self._users = None if sasl is None else dict(sasl)
        self._thread: LoopThread | None = None
        self._kafka: Kafka | None = None
        self._listeners: Listeners | None = None
        self._server: Front | None = None
        self._defects: list[Exception] = []

    # ---- life --------------------------------------------------------------------------------------------------------

    def __enter__(self) -> Self:
        self.open()
        return self

    def __exit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        self._end()
        self._raise_defects(error)

    async def __aenter__(self) -> Self:
        self.open()
        return self

    async def __aexit__(self, _kind: type[BaseException] | None, error: BaseException | None, _trace: TracebackType | None) -> None:
        self.__exit__(_kind, error, _trace)

    def __repr__(self) -> str:
        return f"<FakeCluster of {self._count} brokers, {'running' if self._thread else 'not running'}>"

    def open(self) -> None:
        """Start listening; `close` ends it. ``with`` does both.

        Raises:
            IllegalStateError: it was started before; a cluster starts once.
        """
        if self._kafka is not None:
            raise IllegalStateError("this cluster was started before: make another one")
        sockets = {number: _listening(self._port if number == 1 else None) for number in range(1, self._count + 1)}
        nodes = [Broker(number, LOCALHOST, sock.getsockname()[1], rack=self._settings.rack_of(number))
                 for number, sock in sockets.items()]
        self._thread = thread = LoopThread("pyclient-fake-cluster")
        self._kafka = Kafka(nodes, clock=thread.loop.time, wall=_wall_ms, random=self._random, settings=self._settings,
                            profile=self._profile, users=self._users)
        self._kafka.listeners.append(self._on_event)
        self._server = Front(self._kafka, Control())
        self._listeners = thread.call(functools.partial(Listeners, self._server, sockets, self._tls))

    def close(self) -> None:
        """Stop; no thread, socket or connection is left. Calling again does nothing.

        Raises:
            FakeClusterError: the model failed while it ran.
        """
        self._end()
        self._raise_defects(None)

    def _end(self) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._listeners is not None and not sys.is_finalizing():  # its thread has ended by then
            thread.wait(self._listeners.close())
            thread.end()

    def _raise_defects(self, error: BaseException | None) -> None:
        defects, self._defects = self._defects, []
        if defects and error is not None:
            error.add_note(f"the fake cluster itself failed meanwhile: {defects!r}")
        elif defects:
            raise FakeClusterError(f"the fake cluster failed {len(defects)} times; the first time: {defects[0]!r}") from defects[0]

    def _on_event(self, event: str, facts: Mapping[str, object]) -> None:
        self._remember(event, facts)
        defect = facts.get("error")
        if event == "defect" and isinstance(defect, Exception):
            self._defects.append(defect)

    @property
    def bootstrap_servers(self) -> str:
        """The address of every broker, killed ones included, for the option ``bootstrap_servers``."""
        return ",".join(f"{each.host}:{each.port}" for each in self._model.brokers.values())

    # ---- the model ---------------------------------------------------------------------------------------------------

    @property
    def _model(self) -> Kafka:
        if self._kafka is None:
            raise IllegalStateError("the cluster is not running: use it inside `with FakeCluster() as kafka:`")
        return self._kafka

    @property
    def _front(self) -> Front:
        assert self._server is not None
        return self._server

    def _do(self, work: Callable[[Kafka], T]) -> T:
        """Run *work* on the model's loop, or directly once the cluster has ended."""
        model = self._model
        return work(model) if self._thread is None else self._thread.call(lambda: work(model))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000


def _listening(port: int | None) -> socket.socket:
    """A listening socket on this port if it is free, or else on any."""
    if port is not None:
        with contextlib.suppress(OSError):
            return socket.create_server((LOCALHOST, port))
    return socket.create_server((LOCALHOST, 0))
