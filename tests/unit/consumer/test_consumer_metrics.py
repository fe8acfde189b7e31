"""What a member of a group counts."""
from __future__ import annotations

from pyclient import Consumer, Producer
from pyclient.testing import FakeCluster
from tests.waiting import eventually


def test_a_members_life_is_counted() -> None:
    with FakeCluster(brokers=1) as cluster:
        cluster.create_topic("t", 2)
        with Producer(bootstrap_servers=cluster.bootstrap_servers) as producer:
            producer.send("t", b"x", partition=0)
        with Consumer(bootstrap_servers=cluster.bootstrap_servers, topics=["t"], group_id="g", auto_offset_reset="earliest", heartbeat_interval_ms=50,
                      session_timeout_ms=6000) as consumer:
            none = consumer.metrics()
            assert (none["assigned-partitions"], none["rebalance-total"], none["join-total"], none.get("records-lag-max")) == (0, 0, 0, None)
            assert len(consumer.poll(20)) == 1
            consumer.commit()
            eventually(lambda: consumer.metrics()["heartbeat-total"] > 1)
            consumer.poll(0)
            seen = consumer.metrics()
            assert (seen["assigned-partitions"], seen["rebalance-total"], seen["failed-rebalance-total"], seen["commit-total"]) == (2, 1, 0, 1)
            assert (seen["join-total"], seen["sync-total"], seen["records-lag-max"]) == (2, 1, 0)
            assert seen["commit-latency-avg"] > 0 < seen["heartbeat-response-time-max"]
            assert seen["time-between-poll-max"] > 0 < seen["join-time-max"]
            consumer.unsubscribe()
            assert consumer.metrics()["assigned-partitions"] == 0
