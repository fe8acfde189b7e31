"""A serializer that returns None for a value that is not None is refused: it would store a tombstone in silence."""
from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest

from pyclient import AsyncProducer, Producer
from pyclient.errors import BulkDeliveryError, SerializationError
from pyclient.serializing import as_deserializer, as_serializer
from pyclient.testing import FakeCluster


def forgetful(value: object) -> None:
    """No ``return``."""
    json.dumps(value)


class Forgetful:
    """A serializer with the method, which returns None for everything."""

    def serialize(self, topic: str, value: Any, headers: Any = ()) -> bytes | None:
        return None


def values(cluster: FakeCluster) -> list[bytes | None]:
    return [record.value for record in cluster.records("t")]


def test_plain_functions_are_not_asked_about_None(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=lambda value: json.dumps(value).encode(),
                  key_serializer=str.encode) as producer:
        producer.send("t", None, "key")
        producer.send("t", {"a": 1})
        producer.send_many("t", [None, 1])
    assert values(fake_cluster) == [None, b'{"a": 1}', None, b"1"]
    assert as_deserializer(json.loads)("t", None, ()) is None


def test_a_serializer_object_is_asked_about_None() -> None:
    class Null:
        def serialize(self, topic: str, value: Any) -> bytes:
            return b"null"

    assert as_serializer(Null())("t", None, ()) == b"null"


@pytest.mark.parametrize("serializer", [forgetful, Forgetful(), Forgetful])
@pytest.mark.parametrize("what", ["key", "value"])
def test_None_for_a_value_that_is_not_None_is_refused(fake_cluster: FakeCluster, what: str, serializer: object) -> None:
    fake_cluster.create_topic("t")
    options: dict[str, Any] = {f"{what}_serializer": serializer}
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, **options) as producer:
        record: dict[str, Any] = {"value": b"v", "key": b"k", what: {"a": 1}}
        with pytest.raises(SerializationError, match=f"the {what}_serializer returned None for a dict of topic 't'; nothing was queued") as caught:
            producer.send("t", **record)
        assert ("allow_tombstones=True" in str(caught.value)) is (what == "value")
        bulk = producer.send_many("t", [record["value"]], keys=[record["key"]])
        with pytest.raises(BulkDeliveryError, match=f"the {what}_serializer returned None"):
            bulk.result()
    assert values(fake_cluster) == []


def test_an_async_producer_refuses_it_where_send_is_awaited(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")

    async def test() -> None:
        async with AsyncProducer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=forgetful) as producer:
            with pytest.raises(SerializationError, match="lack a `return`"):
                await producer.send("t", 1)

    asyncio.run(test())
    assert values(fake_cluster) == []


def test_allow_tombstones_is_for_those_who_mean_it(fake_cluster: FakeCluster) -> None:
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, value_serializer=forgetful, allow_tombstones=True) as producer:
        producer.send("t", 1)
        producer.send_many("t", [2])
    assert values(fake_cluster) == [None, None]
