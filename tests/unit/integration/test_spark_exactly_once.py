"""What the exactly-once sink does in Kafka for its guarantees, on the fake cluster and without a Spark."""
from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from pyspark.sql import DataFrame

from pyclient import Admin, Consumer, NewTopic, TopicPartition
from pyclient.admin import ConfigResource
from pyclient.errors import ApplicationRecoverableError, ConfigurationError, ProducerFencedError
from pyclient.integration.spark.context import QUERY_ID, RUN_ID
from pyclient.integration.spark.exactly_once import ExactlyOnce, batch_of, ensure_marker_topic
from pyclient.integration.spark.markers import Batch, claim
from pyclient.integration.spark.options import SinkOptions
from pyclient.integration.spark.slots import SlotClients, SlotOptions, write_slot
from pyclient.testing import Fail, FakeCluster

OUT = "out"
FIRST = Batch("q", "r", 0)
TOPIC_DENIED = 29


def slot_options(fake: FakeCluster, **client: Any) -> SlotOptions:
    options = {"bootstrap_servers": fake.bootstrap_servers, "transaction_timeout_ms": 60_000, **client}
    return SlotOptions(sink=SinkOptions(topic=OUT, client=options), prefix=OUT, marker_topic=f"{OUT}-markers")


Open = Callable[..., SlotClients]


@pytest.fixture
def opened(fake_cluster: FakeCluster) -> Iterator[Open]:
    """``opened(kind)``: the clients of one process."""
    fake_cluster.create_topic(OUT)
    all_opened: list[SlotClients] = []

    def clients(kind: Callable[[SlotOptions], SlotClients] = SlotClients) -> SlotClients:
        all_opened.append(kind(slot_options(fake_cluster)))
        return all_opened[-1]

    yield clients
    for each in all_opened:
        each.close()


def rows_of(*values: int) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"value": [str(each) for each in values]})


def committed(fake: FakeCluster) -> list[int]:
    """What a reader of committed records finds."""
    tp = TopicPartition(OUT, 0)
    with Consumer(bootstrap_servers=fake.bootstrap_servers, isolation_level="read_committed", auto_offset_reset="earliest") as consumer:
        consumer.assign([tp])
        end, found = consumer.end_offsets([tp])[tp], []
        while consumer.position(tp) < end:
            found += [int(record.value or b"") for record in consumer.poll(0.2)]
    return found


def partitions(fake: FakeCluster) -> int:
    return fake.topics()[f"{OUT}-markers"]


def test_what_an_older_attempt_commits_until_it_is_fenced_is_not_written_again(fake_cluster: FakeCluster, opened: Open) -> None:
    older = opened()
    ensure_marker_topic(older.options, 1)
    claim(older, 1, FIRST, 1, accept=False)

    class Late(SlotClients):
        def fence(self, slot: int) -> None:
            assert write_slot(older, slot, iter([rows_of(1, 2)]), FIRST, 1) == (2, True)
            super().fence(slot)

    assert write_slot(opened(Late), 0, iter([rows_of(1, 2)]), FIRST, 1) == (2, False)
    assert committed(fake_cluster) == [1, 2]


def test_a_slot_that_is_skipped_reads_its_rows_to_the_end(fake_cluster: FakeCluster, opened: Open) -> None:
    clients = opened()
    ensure_marker_topic(clients.options, 1)
    claim(clients, 1, FIRST, 1, accept=False)
    assert write_slot(clients, 0, iter([rows_of(1, 2), rows_of(3)]), FIRST, 1) == (3, True)
    again = iter([rows_of(1, 2), rows_of(3)])
    assert write_slot(clients, 0, again, FIRST, 1) == (3, False)
    assert next(again, None) is None
    assert committed(fake_cluster) == [1, 2, 3]


def test_a_run_with_fewer_slots_ends_the_open_transactions_of_all_older_ones(fake_cluster: FakeCluster, opened: Open) -> None:
    zombie = opened()
    ensure_marker_topic(zombie.options, 3)
    claim(zombie, 3, FIRST, 3, accept=False)
    zombie.fence(2)
    zombie.fenced().begin_transaction()
    zombie.fenced().send(OUT, b"9").result(10)
    assert ExactlyOnce(zombie.options, 1, "fail")._claim(Batch("q", "next", 0)) == 1
    with pytest.raises(ProducerFencedError):
        zombie.fenced().commit_transaction()
    assert committed(fake_cluster) == []


def test_a_sink_accepts_one_new_checkpoint_and_refuses_the_next(opened: Open) -> None:
    clients = opened()
    ensure_marker_topic(clients.options, 1)
    claim(clients, 1, FIRST, 1, accept=False)
    sink = ExactlyOnce(clients.options, 1, "accept")
    assert sink._claim(Batch("second", "r", 0)) == 1
    for number in (0, 3):
        with pytest.raises(ConfigurationError, match="the markers belong to another query: second .* this one is third") as refused:
            sink._claim(Batch("third", "r", number))
        assert refused.value.option == "new_checkpoint"
    accepted = clients.marker(0)
    assert accepted is not None
    assert (accepted.query, accepted.batch) == ("second", -1)
    assert sink._claim(Batch("second", "another run", 0)) == 1


# ---- the marker topic -----------------------------------------------------------------------------------------------


def test_the_marker_topic_is_compacted_so_that_markers_never_expire(fake_cluster: FakeCluster) -> None:
    ensure_marker_topic(slot_options(fake_cluster), 2)
    with Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin:
        resource = ConfigResource.topic(f"{OUT}-markers")
        found = admin.describe_configs([resource])[resource]
    assert found["cleanup.policy"].value == "compact"


def test_every_slot_has_a_partition_of_the_marker_topic(fake_cluster: FakeCluster) -> None:
    options = slot_options(fake_cluster)
    assert [(ensure_marker_topic(options, wanted), partitions(fake_cluster)) for wanted in (2, 5, 3)] == [(2, 2), (5, 5), (5, 5)]


@pytest.mark.parametrize("policy", ["delete", "compact,delete"])
def test_a_marker_topic_that_deletes_markers_is_refused_with_the_way_out(fake_cluster: FakeCluster, policy: str) -> None:
    with Admin(bootstrap_servers=fake_cluster.bootstrap_servers) as admin:
        admin.create_topics([NewTopic(f"{OUT}-markers", 2, configs={"cleanup.policy": policy})])
        with pytest.raises(ConfigurationError, match=f"{OUT}-markers has cleanup.policy={policy}.*add-config cleanup.policy=compact") as refused:
            ensure_marker_topic(slot_options(fake_cluster), 2)
        assert refused.value.option == "marker_topic"
        admin.alter_configs({ConfigResource.topic(f"{OUT}-markers"): {"cleanup.policy": "compact"}})
    assert ensure_marker_topic(slot_options(fake_cluster), 2) == 2


def test_without_the_right_to_see_its_policy_the_marker_topic_is_used_with_a_warning(fake_cluster: FakeCluster, caplog: pytest.LogCaptureFixture) -> None:
    with fake_cluster.intercept(Fail(TOPIC_DENIED), "DescribeConfigs"):
        assert ensure_marker_topic(slot_options(fake_cluster), 2) == 2
    assert "the right DESCRIBE_CONFIGS is missing" in caplog.text


# ---- what is refused ------------------------------------------------------------------------------------------------


def test_a_transaction_timeout_that_brokers_do_not_allow_is_refused_on_the_driver(fake_cluster: FakeCluster) -> None:
    options = slot_options(fake_cluster, transaction_timeout_ms=900_001)
    count = ensure_marker_topic(options, 1)
    with closing(SlotClients(options)) as clients, pytest.raises(ApplicationRecoverableError, match="transaction_timeout_ms exceeds"):
        claim(clients, count, FIRST, 1, accept=False)


def frame_with(**settings: str) -> DataFrame:
    """As much of a micro-batch's frame as says which one it is."""
    context = SimpleNamespace(getLocalProperty={QUERY_ID: "q", RUN_ID: "r"}.get)
    conf = SimpleNamespace(get=lambda name, default: settings.get(name.replace(".", "_"), default))
    return cast("DataFrame", SimpleNamespace(sparkSession=SimpleNamespace(_sc=context, conf=conf)))


@pytest.mark.parametrize("value", ["true", "TRUE"])
def test_speculation_is_refused(value: str) -> None:
    with pytest.raises(ConfigurationError, match="spark.speculation=true starts tasks twice") as refused:
        batch_of(frame_with(spark_speculation=value), 0)
    assert refused.value.option == "delivery"


def test_without_speculation_the_batch_is_named_by_its_query_and_run() -> None:
    assert batch_of(frame_with(spark_speculation="false"), 4) == batch_of(frame_with(), 4) == Batch("q", "r", 4)
