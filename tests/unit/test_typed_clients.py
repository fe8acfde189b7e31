"""`Consumer[K, V]` and its like are for type checkers, which tests/typing/user_file.py is for; they run, too."""
from __future__ import annotations

import gc
from typing import Any, get_args, get_origin

import pytest

from pyclient import AsyncConsumer, AsyncProducer, Consumer, Producer, Record, Records
from pyclient.records.record import DecodedRecord
from pyclient.testing import FakeCluster


@pytest.mark.parametrize("cls", [Consumer, AsyncConsumer, Producer, AsyncProducer, Record, DecodedRecord, Records])
def test_types_of_key_and_value_may_stand_in_annotations_that_are_evaluated(cls: Any) -> None:
    assert (get_origin(cls[str, int]), get_args(cls[str, int])) == (cls, (str, int))


def test_a_client_made_with_types_is_a_client(fake_cluster: FakeCluster) -> None:
    class Texts(Producer[str, str]):
        """A user's subclass."""

    fake_cluster.create_topic("t")
    with Texts(bootstrap_servers=fake_cluster.bootstrap_servers, key_serializer="string", value_serializer="string") as producer:
        producer.send("t", "value", "key")
    with Consumer[bytes, bytes](bootstrap_servers=fake_cluster.bootstrap_servers, topics=["t"], group_id="g",
                                auto_offset_reset="earliest") as consumer:
        record, = consumer.poll(20)
    assert (type(consumer), record.key, record.value) == (Consumer, b"key", b"value")


def test_a_record_with_types_stays_invisible_to_the_garbage_collector() -> None:
    assert not gc.is_tracked(Record[bytes, bytes]("t", 0, 1, 2))
