"""`FakeCluster`: the model behind real sockets, for tests of services; used from any thread."""
from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from random import Random
from typing import Self, TypeVar

from pyclient.errors import ConfigurationError, IllegalState
from pyclient.testing.fake.control import Control
from pyclient.testing.fake.model import Broker, Kafka
from pyclient.testing.fake.profiles import NEWEST, PROFILES
from pyclient.testing.fake.settings import Settings
from pyclient.testing.fake.sockets import LOCALHOST, Listeners, LoopThread, listening_socket
from pyclient.testing.fake.wire import Front

T = TypeVar("T")


class FakeCluster:
    """A cluster in this process that any Kafka client can connect to. Starts in milliseconds; needs no Java, no Docker.

    ``version`` is the release it behaves like; ``config`` are settings by Kafka's names (see `Settings`).
    """

    def __init__(self, brokers: int = 1, *, version: str = NEWEST, config: Mapping[str, object] | None = None, seed: int = 0) -> None:
        if brokers < 1:
            raise ValueError(f"brokers={brokers}: a cluster has at least one")
        if version not in PROFILES:
            raise ConfigurationError(f"version={version!r} is unknown: choose one of {', '.join(PROFILES)}", option="version")
        self._count = brokers
        self._profile = PROFILES[version]
        self._settings = Settings.parse(config or {})
        self._random = Random(seed)
        self._thread: LoopThread | None = None
        self._kafka: Kafka | None = None
        self._control = Control()
        self._listeners: Listeners | None = None

    def __enter__(self) -> Self:
        sockets = {number: listening_socket() for number in range(1, self._count + 1)}
        self._thread = thread = LoopThread("pyclient-fake-cluster")
        nodes = [Broker(number, LOCALHOST, sock.getsockname()[1]) for number, sock in sockets.items()]
        self._kafka = Kafka(nodes, clock=thread.loop.time, wall=_wall_ms, random=self._random, settings=self._settings,
                            profile=self._profile)
        self._listeners = Listeners(Front(self._kafka, self._control), sockets)
        thread.wait(self._listeners.open())
        return self

    def __exit__(self, *_: object) -> None:
        thread, self._thread = self._thread, None
        if thread is not None and self._listeners is not None:
            thread.wait(self._listeners.close())
            thread.end()

    @property
    def bootstrap_servers(self) -> str:
        """What clients take as ``bootstrap_servers``."""
        return ",".join(f"{each.host}:{each.port}" for each in self._model.brokers.values())

    @property
    def _model(self) -> Kafka:
        if self._kafka is None:
            raise IllegalState("the cluster is not running: use it inside `with FakeCluster() as kafka:`")
        return self._kafka

    def _do(self, work: Callable[[Kafka], T]) -> T:
        """Have the model do something on its loop."""
        model = self._model
        if self._thread is None:
            raise IllegalState("the cluster has ended: make another one")
        return self._thread.call(lambda: work(model))


def _wall_ms() -> int:
    return time.time_ns() // 1_000_000
