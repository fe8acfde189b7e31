"""Errors of clusters for tests."""
from __future__ import annotations


class LocalClusterError(RuntimeError):
    """A cluster could not be started or does not support the call. The message has a remedy."""


class JavaNotFoundError(LocalClusterError):
    """No Java 17 or newer runs here; the message lists what was tried and why each failed."""


class JarsUnavailableError(LocalClusterError):
    """Kafka's jars could not be downloaded, or their checksums do not match the lock file."""


class ContainersUnavailableError(LocalClusterError):
    """No Docker engine answers, or there is no broker image."""


class BrokerStartError(LocalClusterError):
    """A broker did not become ready; ``log_tail`` has the last lines of its log, also in the message."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(f"{message}\n--- end of the broker's log ---\n{log_tail}" if log_tail else message)
        self.log_tail = log_tail


class PortTakenError(BrokerStartError):
    """Another process took a broker's port before the broker could listen there."""


class NotControllableError(LocalClusterError):
    """The cluster was not started here: its brokers can be used, but not stopped, killed or paused."""


class FakeClusterError(RuntimeError):
    """`FakeCluster` itself failed: its own bug, not one of the code under test. The cause is chained."""
