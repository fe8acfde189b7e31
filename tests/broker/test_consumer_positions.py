"""Positions of a consumer when its log or topic is deleted, and when no record comes."""
from __future__ import annotations

import pytest

from pyclient import Admin, NewTopic, OffsetAndMetadata
from pyclient.errors import NoOffsetForPartitionError
from pyclient.testing import LocalCluster
from tests.kafka import consumer, produce, reading
from tests.waiting import eventually


def test_C15_a_recreated_topic_is_read_from_its_beginning(
    kafka_cluster: LocalCluster, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    with reading(kafka_cluster, topic, allow_auto_create_topics=False) as (reader, _):
        seen = len(reader.poll(20, max_records=5))
        recreate(kafka_cluster, topic)
        produce(kafka_cluster, topic, [b"new %d" % number for number in range(300)])
        fresh: list[int] = []

        def read_on() -> bool:
            fresh.extend(record.offset for record in reader.poll(0.1) if (record.value or b"").startswith(b"new"))
            return len(fresh) >= 300

        eventually(read_on)
    assert seen == 5
    assert fresh == list(range(300))
    assert f"topic {topic!r} was deleted and created again" in caplog.text


def recreate(cluster: LocalCluster, topic: str) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap_servers) as admin:
        admin.delete_topics([topic])
        eventually(lambda: topic not in admin.list_topics())
        admin.create_topics([NewTopic(topic, 1, 1)])


def test_C10_after_a_reset_to_the_end_the_position_is_known_though_no_record_arrives(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, auto_offset_reset="latest", group_id=topic) as (reader, tp):
        reader.seek(tp, 5000)
        eventually(lambda: (reader.poll(0.1), reader.position(tp))[1] == 100)
        reader.poll(0.1)  # position() may have seen in the buffer what no poll has taken; what is committed follows polls
        reader.commit()
        assert reader.committed([tp]) == {tp: OffsetAndMetadata(100)}


def test_C20_a_consumer_that_began_at_the_end_and_read_nothing_resumes_there(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, auto_offset_reset="latest", group_id=topic) as (reader, tp):
        assert reader.position(tp) == 100
        reader.poll(0.1)
    produce(kafka_cluster, topic, [b"sent while no one read"])
    with consumer(kafka_cluster, auto_offset_reset="latest", group_id=topic) as again:
        again.assign([tp])
        assert again.poll(20)[0].value == b"sent while no one read"


def test_a_position_that_is_not_found_raises_the_error_of_the_poll(kafka_cluster: LocalCluster, topic: str) -> None:
    with reading(kafka_cluster, topic, auto_offset_reset="none") as (reader, tp):
        with pytest.raises(NoOffsetForPartitionError) as polled:
            reader.poll(20)
        with pytest.raises(NoOffsetForPartitionError) as asked:
            reader.position(tp)
        assert str(asked.value) == str(polled.value)
