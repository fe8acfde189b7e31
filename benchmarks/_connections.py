"""Measures new clients, in a process of its own.

``python -m benchmarks._connections`` reads jobs and prints figures, each as a line of JSON.
"""
from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from benchmarks._access import Access, confluents, ours
from benchmarks._process import Clock, serve

CONNECTORS: Final = "benchmarks._connections"
WAIT_S: Final = 30.0


class Job(NamedTuple):
    """Which client is made how often, and where it connects to."""

    client: str
    bootstrap: str
    clients: int
    access: Access
    measure: str = "connect"


def pyclient(job: Job) -> Callable[[], object]:
    """A new admin client that has asked for the topics; what it returns ends it."""
    from pyclient import Admin

    client = Admin(bootstrap_servers=job.bootstrap, **ours(job.access))
    client.list_topics()
    return client.close


def confluent(job: Job) -> Callable[[], object]:
    """The same."""
    from confluent_kafka.admin import AdminClient

    client: Any = AdminClient({"bootstrap.servers": job.bootstrap, **confluents(job.access)})
    client.list_topics(timeout=WAIT_S)
    return lambda: None


CLIENTS: Final[Mapping[str, Callable[[Job], Callable[[], object]]]] = {"pyclient": pyclient, "confluent": confluent}


def connect(job: Job) -> dict[str, float]:
    """Medians of the milliseconds until the first answer, and of the CPU used by then; the first client warms up."""
    taken = []
    for _ in range(job.clients + 1):
        clock = Clock()
        end = CLIENTS[job.client](job)
        taken.append(clock.read())
        end()
    return {"ms": statistics.median(each["seconds"] for each in taken[1:]) * 1000, "cpu": statistics.median(each["cpu"] for each in taken[1:]) * 1000}


if __name__ == "__main__":
    serve(Job, {"connect": connect})
