"""librdkafka's mock cluster as a broker: another implementation of the protocol, with faults of its own."""
from __future__ import annotations

from collections.abc import Iterator

import pytest

from pyclient import Admin

confluent = pytest.importorskip("confluent_kafka", reason="confluent-kafka brings the mock cluster: pip install 'pyclient-kafka[peers]'")


@pytest.fixture(scope="module")
def mock_cluster() -> Iterator[str]:
    """The address of a mock cluster of one broker; it lives as long as the client that runs it."""
    owner = confluent.Producer({"test.mock.num.brokers": 1, "bootstrap.servers": "x:1", "log_level": 0})
    brokers = owner.list_topics(timeout=20).brokers
    yield ",".join(f"{broker.host}:{broker.port}" for broker in brokers.values())
    owner.flush(1)


def test_the_mock_cluster_is_described(mock_cluster: str) -> None:
    with Admin(bootstrap_servers=mock_cluster) as admin:
        assert len(admin.describe_cluster(timeout=20).brokers) == 1
