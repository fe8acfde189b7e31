"""A transaction of which a record failed can only be aborted, and no caller waits for its other records."""
from __future__ import annotations


import pytest

from pyclient import Producer
from pyclient.buffers import topic_compression
from pyclient.errors import DeliveryError, TransactionAbortableError
from pyclient.testing import FakeCluster
from pyclient.testing.fake.control import Fail

LIMIT_S = 20.0
ABORTABLE = 120
LARGE = bytes(600_000)
"""More than is compressed on the loop: a worker does it."""


@pytest.mark.parametrize("value", [b"small", LARGE], ids=["on the loop", "in a worker"])
def test_a_batch_that_cannot_be_compressed_makes_its_transaction_one_to_abort(monkeypatch: pytest.MonkeyPatch, value: bytes) -> None:
    def broken(*_args: object) -> bytes:
        raise MemoryError("no more")

    with (FakeCluster(1) as kafka, Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="t", compression_type="gzip", linger_ms=1000,
                                            batch_size=1_000_000) as producer):
        kafka.create_topic("out")
        with producer.transaction():
            producer.send("out", b"before")
        with monkeypatch.context() as patched, pytest.raises(TransactionAbortableError, match="compressed"), producer.transaction():
            patched.setattr(topic_compression, "compress", broken)
            producer.send("out", value)
        with producer.transaction():
            producer.send("out", b"after")
        assert [record.value for record in kafka.records("out") if record.value is not None] == [b"before", b"after"]


def test_T03_a_flush_does_not_wait_for_records_that_cannot_leave_any_more() -> None:
    """They are queued behind the one that failed. It took until the abort, or `delivery_timeout_ms`."""
    with FakeCluster(1) as kafka, Producer(bootstrap_servers=kafka.bootstrap_servers, transactional_id="t", linger_ms=0, batch_size=1000) as producer:
        kafka.create_topic("out")
        for _ in range(3):
            with producer.transaction():
                producer.send("out", b"before")
        producer.begin_transaction()
        kafka.pause(1)
        deliveries = [producer.send("out", b"%0300d" % number, partition=0) for number in range(60)]
        with kafka.intercept(Fail(ABORTABLE), "Produce", times=1):
            kafka.resume(1)
            with pytest.raises(DeliveryError, match="abort it"):
                producer.flush(LIMIT_S)
        assert {type(each.exception(0)) for each in deliveries} == {TransactionAbortableError}
        producer.abort_transaction()
        with producer.transaction():
            producer.send("out", b"after")
        assert [record.value for record in kafka.records("out") if record.value is not None] == [b"before"] * 3 + [b"after"]
