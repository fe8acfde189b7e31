"""An unknown topic: the error after max_block_ms says whether the cluster creates topics automatically."""
from __future__ import annotations

import asyncio
import re
import time
from typing import Any

import pytest

from pyclient import AsyncProducer, Producer
from pyclient.errors import MetadataTimeoutError
from pyclient.testing import Answer, Fail, FakeCluster, Silence

CLUSTER_AUTHORIZATION, UNKNOWN_TOPIC = 31, 3


def refused(cluster: FakeCluster, **options: Any) -> str:
    """The error of send for a topic that stays unknown."""
    with Producer({}, bootstrap_servers=cluster.bootstrap_servers, **{"max_block_ms": 1000, **options}) as producer:
        began = time.monotonic()
        with pytest.raises(MetadataTimeoutError) as caught:
            producer.send("missing", b"x")
        assert 1 <= time.monotonic() - began < 10
    return str(caught.value)


@pytest.mark.fake_kafka(auto_create_topics_enable=False, brokers=3)
def test_P04_the_error_says_that_the_cluster_does_not_create_topics(fake_cluster: FakeCluster) -> None:
    message = refused(fake_cluster)
    assert re.search(r"topic 'missing' is not known after \d\.\d+ s", message)
    assert "does not create topics automatically (auto.create.topics.enable=false)" in message


def test_P04_the_error_says_that_the_cluster_creates_topics_but_not_this_one(fake_cluster: FakeCluster) -> None:
    host, port = fake_cluster.bootstrap_servers.split(":")
    nothing = {"error_code": UNKNOWN_TOPIC, "name": "missing", "topic_id": None, "is_internal": False, "partitions": [],
               "topic_authorized_operations": 0}
    answer = Answer({"throttle_time": 0, "brokers": [{"node_id": 1, "host": host, "port": int(port), "rack": None}], "cluster_id": None,
                     "controller_id": 1, "topics": [nothing], "error_code": 0})
    with fake_cluster.intercept(answer, "Metadata"):
        message = refused(fake_cluster)
    assert "creates topics automatically (auto.create.topics.enable=true), but has not created this one" in message


@pytest.mark.fake_kafka(auto_create_topics_enable=False)
@pytest.mark.parametrize(("verdict", "why"), [
    (Fail(CLUSTER_AUTHORIZATION), "CLUSTER_AUTHORIZATION_FAILED"), (Silence(), "node 1 did not answer"),
    (Answer({"throttle_time": 0, "results": [{"error_code": 0, "error_message": None, "resource_type": 4, "resource_name": "1", "configs": []}]}),
     "leaves it out")], ids=["forbidden", "silent", "left out"])
def test_P04_if_the_setting_cannot_be_read_the_error_says_so_and_why(fake_cluster: FakeCluster, verdict: Any, why: str) -> None:
    with fake_cluster.intercept(verdict, "DescribeConfigs"):
        message = refused(fake_cluster)
    assert "Whether this cluster creates topics automatically is not known" in message
    assert why in message


def test_P04_a_topic_that_appears_in_time_costs_no_DescribeConfigs_request(fake_cluster: FakeCluster) -> None:
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers) as producer:
        producer.send("fresh", b"x").result(20)
    assert fake_cluster.requests("DescribeConfigs") == []


@pytest.mark.fake_kafka(auto_create_topics_enable=False)
def test_P04_the_async_producer_raises_the_same_error_and_other_topics_continue(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("there")

    async def main() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, max_block_ms=1000) as producer:
            missing = asyncio.create_task(producer.send("missing", b"x"))
            assert (await (await producer.send("there", b"x"))).offset == 0
            assert not missing.done()
            with pytest.raises(MetadataTimeoutError, match="does not create topics automatically"):
                await missing

    asyncio.run(main())
