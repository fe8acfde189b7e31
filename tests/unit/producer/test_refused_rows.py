"""Rows of a bulk that are refused before they are queued: their transaction can only be aborted."""
from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pyarrow
import pytest

from pyclient import AsyncProducer, Producer
from pyclient.errors import BulkDeliveryError, TransactionAbortableError
from pyclient.testing import FakeCluster

TOO_LARGE = bytes(3000)
BULKS: dict[str, Callable[[Any], Any]] = {
    "lists": lambda producer: producer.send_many("t", [b"a", TOO_LARGE, b"b"]),
    "not bytes": lambda producer: producer.send_many("t", [b"a", 7, b"b"]),
    "arrow": lambda producer: producer.send_arrow("t", pyarrow.table({"value": [b"a", TOO_LARGE, b"b"]})),
}


def options(cluster: FakeCluster) -> dict[str, Any]:
    return {"bootstrap_servers": cluster.bootstrap_servers, "transactional_id": "bulks", "max_request_size": 2000}


@pytest.fixture
def cluster(fake_cluster: FakeCluster) -> FakeCluster:
    fake_cluster.create_topic("t")
    return fake_cluster


@pytest.mark.parametrize("bulk", BULKS.values(), ids=BULKS)
def test_a_transaction_with_a_refused_row_cannot_be_committed_even_if_its_deliveries_are_never_looked_at(
        cluster: FakeCluster, bulk: Callable[[Any], Any]) -> None:
    with Producer(**options(cluster)) as producer:
        producer.init_transactions()
        producer.begin_transaction()
        deliveries = bulk(producer)
        with pytest.raises(TransactionAbortableError, match=r"cannot be committed: .*(3\d\d\d|int).*Abort it"):
            producer.commit_transaction()
        producer.abort_transaction()
        assert isinstance(deliveries.exception(), BulkDeliveryError)
        with producer.transaction():
            producer.send_many("t", [b"c"])


@pytest.mark.parametrize("bulk", BULKS.values(), ids=BULKS)
def test_the_same_holds_for_an_async_producer(cluster: FakeCluster, bulk: Callable[[Any], Any]) -> None:
    async def main() -> None:
        async with AsyncProducer(**options(cluster)) as producer:
            await producer.init_transactions()
            with pytest.raises(TransactionAbortableError):
                async with producer.transaction():
                    await bulk(producer)
            async with producer.transaction():
                await producer.send_many("t", [b"c"])

    asyncio.run(main())


def test_without_transactions_the_other_rows_are_sent(cluster: FakeCluster) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap_servers, max_request_size=2000) as producer:
        failed = BULKS["lists"](producer).exception(20)
        assert isinstance(failed, BulkDeliveryError)
    assert [record.value for record in cluster.records("t")] == [b"a", b"b"]
