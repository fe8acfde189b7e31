"""`retry_backoff` takes any tenacity wait, and the producer waits that long (P13)."""
from __future__ import annotations

import time
from typing import Any

import pytest
from tenacity import (
    RetryCallState, wait_chain, wait_exception, wait_exponential, wait_exponential_jitter, wait_fixed, wait_incrementing, wait_none, wait_random,
    wait_random_exponential,
)
from tenacity.wait import wait_base

from pyclient import Producer
from pyclient.errors import NotEnoughReplicasError
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Fail, Verdict

NOT_ENOUGH_REPLICAS = 19


class Request(wait_base):
    """Records its calls and returns the given seconds."""

    def __init__(self, *seconds: float) -> None:
        self.seconds = seconds
        self.seen: list[tuple[int, type]] = []

    def __call__(self, retry_state: RetryCallState) -> float:
        assert retry_state.outcome is not None
        self.seen.append((retry_state.attempt_number, type(retry_state.outcome.exception())))
        return self.seconds[min(retry_state.attempt_number, len(self.seconds)) - 1]


def tries(cluster: FakeCluster, wait: wait_base, refusals: int) -> list[float]:
    """When each attempt to send one record came, seconds after the first."""
    times: list[float] = []

    def refuse(_: Any) -> Verdict | None:
        times.append(time.monotonic())
        return Fail(NOT_ENOUGH_REPLICAS) if len(times) <= refusals else None

    cluster.create_topic("t")
    with Producer(bootstrap_servers=cluster.bootstrap_servers, retry_backoff=wait, linger_ms=0) as producer:
        producer.partitions_for("t")
        with cluster.intercept(refuse, "Produce"):
            producer.send("t", b"x").result(30)
    return [each - times[0] for each in times]


def test_P13_the_producer_waits_as_long_as_the_users_wait_says_by_attempt_and_error(fake_cluster: FakeCluster) -> None:
    wait = Request(0.05, 0.2, 0.0)
    times = tries(fake_cluster, wait, 3)
    assert len(times) == 4
    assert times[1] >= 0.05
    assert times[2] - times[1] >= 0.2
    assert [seen for seen in wait.seen if seen[1] is NotEnoughReplicasError] == [(n, NotEnoughReplicasError) for n in (1, 2, 3)]


@pytest.mark.parametrize("wait", [
    wait_none(), wait_fixed(0.01), wait_random(0, 0.01), wait_incrementing(0.001, 0.001), wait_exponential(0.001, 0.01),
    wait_random_exponential(0.001, 0.01), wait_exponential_jitter(max=0.01), wait_chain(wait_fixed(0.01), wait_none()),
    wait_fixed(0.005) + wait_random(0, 0.005), wait_exception(lambda error: 0.001 if isinstance(error, NotEnoughReplicasError) else 0.01),
], ids=lambda wait: type(wait).__name__)
def test_P13_every_wait_of_tenacity_is_accepted(fake_cluster: FakeCluster, wait: wait_base, caplog: pytest.LogCaptureFixture) -> None:
    assert len(tries(fake_cluster, wait, 2)) == 3
    assert not [record for record in caplog.records if "retry_backoff" in record.getMessage()]


def test_P13_a_wait_that_raises_loses_no_record(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    assert len(tries(fake_cluster, wait_exception(lambda error: 1 / 0), 2)) == 3
    assert len([record for record in caplog.records if "retry_backoff" in record.getMessage()]) == 1
