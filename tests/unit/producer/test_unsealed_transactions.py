"""A transaction whose records could not be compressed is not committed without them."""
from __future__ import annotations

import pytest

from pyclient import Producer
from pyclient.buffers import topic_compression
from pyclient.errors import TransactionAbortableError
from pyclient.testing import FakeCluster

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
