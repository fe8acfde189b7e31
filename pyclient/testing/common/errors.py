"""What can go wrong between asking for a cluster and having one. Knows nothing of how brokers are run."""
from __future__ import annotations


class LocalClusterError(RuntimeError):
    """A cluster for tests could not be had, or could not do what was asked. The message names the way out."""


class JavaNotFoundError(LocalClusterError):
    """No Java 17 or newer runs here; the message lists what was tried and why each failed."""


class JarsUnavailableError(LocalClusterError):
    """Kafka's jars could not be downloaded, or what arrived is not what the lock file names."""


class ContainersUnavailableError(LocalClusterError):
    """Containers were asked for, but no engine answers or no broker image can be had."""


class BrokerStartError(LocalClusterError):
    """A broker did not become ready; ``log_tail`` holds the last lines it wrote, and stands in the message."""

    def __init__(self, message: str, log_tail: str = "") -> None:
        super().__init__(f"{message}\n--- end of the broker's log ---\n{log_tail}" if log_tail else message)
        self.log_tail = log_tail


class NotControllableError(LocalClusterError):
    """The cluster was started by somebody else: its brokers can be used, not stopped, killed or paused."""


class FakeClusterError(RuntimeError):
    """`FakeCluster` itself failed while it ran: a bug of it, not of the code under test. The cause is chained."""
