"""Fixtures that give tests Kafka, real or modelled.

pytest loads this wherever pyclient is installed, so it imports nothing heavy.

With pytest-xdist every worker process has its own clusters.
"""
from __future__ import annotations

import contextlib
import re
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

import pytest

if TYPE_CHECKING:
    from pyclient.testing.cluster import LocalCluster
    from pyclient.testing.fake.cluster import FakeCluster
    from pyclient.testing.security import Security

KEPT: Final = "kafka_brokers_kept"
BROKERS_KEPT: Final = 6
STARTUP_TIMEOUT_S: Final = 240.0
"""Brokers start beside other tests, on machines of CI."""


class ClusterFactory(Protocol):
    """What the fixture `local_cluster` is."""

    def __call__(self, brokers: int = 1, *, security: Security | None = None, **config: object) -> LocalCluster:
        """A ready cluster, ended with the test. *config*: broker settings with underscores for dots."""


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare the setting."""
    parser.addini(KEPT, f"how many brokers the clusters of the fixture kafka_cluster may have together, before the one unused longest is ended: "
                        f"an idle broker takes some 2 % of a core (default: {BROKERS_KEPT})", default=str(BROKERS_KEPT))


def pytest_configure(config: pytest.Config) -> None:
    """Declare the markers; refuse a setting that is wrong before tests run."""
    _brokers_kept(config)
    config.addinivalue_line(
        "markers",
        "kafka(brokers=1, security=None, **config): the cluster that the fixture kafka_cluster gives this test, shared by the "
        "tests that ask for the same; without the marker one broker with default settings. security=Security() adds TLS, SASL and ACLs",
    )
    config.addinivalue_line(
        "markers",
        "fake_kafka(brokers=1, version='4.3', **config): the cluster that the fixture fake_cluster gives this test",
    )


def pytest_report_header() -> str | None:
    """Name the brokers chosen by the environment, when one is."""
    import os

    chosen = [f"{name}={value}" for name in ("PYCLIENT_BOOTSTRAP", "PYCLIENT_BROKERS") if (value := os.environ.get(name))]
    return f"kafka brokers: {', '.join(chosen)}" if chosen else None


class _Clusters:
    """The session's clusters by their arguments: started on first use, stopped when newer ones need their room."""

    def __init__(self, most_brokers: int) -> None:
        self._most_brokers = most_brokers
        self._running: dict[_Asked, LocalCluster] = {}  # the one used last comes last

    def get(self, brokers: int, config: dict[str, object], security: Security | None = None) -> LocalCluster:
        asked = _Asked(brokers, security, tuple(sorted((name, str(value)) for name, value in config.items())))
        if asked in self._running:
            self._running[asked] = self._running.pop(asked)
        else:
            self._make_room(brokers)
            self._running[asked] = _cluster(brokers, config, security).__enter__()
        return self._running[asked]

    def _make_room(self, brokers: int) -> None:
        while self._running and sum(each.brokers for each in self._running) + brokers > self._most_brokers:
            self._running.pop(next(iter(self._running))).close()

    def close(self) -> None:
        """End them all, though ending one may fail."""
        with contextlib.ExitStack() as ends:
            for cluster in self._running.values():
                ends.callback(cluster.close)


class _Asked(NamedTuple):
    brokers: int
    security: Security | None
    config: tuple[tuple[str, str], ...]


@pytest.fixture(scope="session")
def _kafka_clusters(pytestconfig: pytest.Config) -> Iterator[_Clusters]:
    with contextlib.closing(_Clusters(_brokers_kept(pytestconfig))) as clusters:
        yield clusters


def _brokers_kept(config: pytest.Config) -> int:
    kept = str(config.getini(KEPT))
    if not kept.isascii() or not kept.isdigit():
        raise pytest.UsageError(f"{KEPT} = {kept!r}: a number of brokers is expected")
    return int(kept)


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest, _kafka_clusters: _Clusters) -> LocalCluster:
    """A running cluster shared by the tests of the session: one broker, or what the marker ``kafka(...)`` asks for.

    When clusters have more than ``kafka_brokers_kept`` brokers together, the least recently used one is stopped; the
    next request for it starts a new one. Tests that stop, kill or pause brokers take `local_cluster` instead, or undo
    their changes, ACLs and passwords included.
    """
    return _kafka_clusters.get(*_asked(request))


@pytest.fixture
def local_cluster() -> Iterator[ClusterFactory]:
    """Start clusters of the test's own: ``local_cluster(brokers=3, auto_create_topics_enable=False)``."""
    with contextlib.ExitStack() as ends:
        def start(brokers: int = 1, *, security: Security | None = None, **config: object) -> LocalCluster:
            return ends.enter_context(_cluster(brokers, config, security))
        yield start


@pytest.fixture
def fake_cluster(request: pytest.FixtureRequest) -> Iterator[FakeCluster]:
    """A `FakeCluster` of the test's own: one broker, or what the marker ``fake_kafka(...)`` asks for."""
    from pyclient.testing.fake.cluster import FakeCluster

    asked = request.node.get_closest_marker("fake_kafka")
    options = dict(asked.kwargs) if asked is not None else {}
    given = {name: options.pop(name) for name in ("brokers", "version", "seed") if name in options}
    with FakeCluster(**given, config=options) as cluster:
        yield cluster


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    """A topic name no other test has, with the test's name in it."""
    name = re.sub(r"[^A-Za-z0-9._-]", "_", request.node.name)
    return f"{name[:150]}-{uuid.uuid4().hex[:8]}"


def _asked(request: pytest.FixtureRequest) -> tuple[int, dict[str, object], Security | None]:
    marker = request.node.get_closest_marker("kafka")
    if marker is None:
        return 1, {}, None
    config = dict(marker.kwargs)
    brokers, security = int(config.pop("brokers", 1)), config.pop("security", None)
    return brokers, config, security


def _cluster(brokers: int, config: dict[str, object], security: Security | None) -> LocalCluster:
    from pyclient.testing.cluster import LocalCluster

    return LocalCluster(brokers, config=config, security=security, startup_timeout=STARTUP_TIMEOUT_S)
