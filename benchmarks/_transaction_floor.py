"""What transactions cost a Python process if a client decided nothing: requests, answers, a blocking socket.

No client in Python can be cheaper. `Floor` encodes a transaction's records once, before anything is measured;
`SendFloor` appends them with the compiled ``send``, and checksums them. Both write to the only broker, which leads all
partitions and coordinates all transactions, and know nothing but the usual answers.
"""
from __future__ import annotations

import datetime
import random
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from benchmarks._one_socket import OneSocket
from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.batch import Batch, BatchState
from pyclient.buffers.delivery import Observer
from pyclient.buffers.fast_send import FastSend, SendPath, fast_send
from pyclient.codec.apis import SPOKEN, Api
from pyclient.codec.compression import Compression
from pyclient.codec.crc import crc32c
from pyclient.codec.encode import HEADER_SIZE, TRANSACTIONAL_BIT, batch_header, encode_values
from pyclient.codec.end_txn import CommitFrames
from pyclient.codec.produce import encode_produce, stored_batches
from pyclient.core.calls import KeyType
from pyclient.core.transactions.calls import V2
from pyclient.core.transactions.marker_pause import MarkerPause
from pyclient.partitioners.murmur2 import Murmur2Partitioner

Partitions = dict[int, list[Any]]
"""The pieces of a batch by partition: at most one of each, as a request may have."""
MEMORY: Final = 1 << 25
BATCH_SIZE: Final = 1 << 18
REQUEST_SIZE: Final = 1 << 20
"""Our defaults, in bytes."""
TIMEOUT_S: Final = 60
MOST_RECORDS: Final = 2_400
"""Of a batch: of 100 B, as many as ours fills by default."""


class Transactions:
    """Of one transactional id, in protocol V2."""

    def __init__(self, servers: str, transactional_id: str, topic: str) -> None:
        self._socket = OneSocket(servers)
        self._id, self._topic = transactional_id, topic
        self._markers = MarkerPause()
        self._frames = CommitFrames(V2.end.high, None, transactional_id)
        self.producer_id, self.epoch = self._initialized()

    def _initialized(self) -> tuple[int, int]:
        """Once the coordinator is ready. The first one to look for it makes the broker create its topic."""
        until = time.monotonic() + TIMEOUT_S
        while True:
            self._socket.ask(Api.FIND_COORDINATOR, SPOKEN[Api.FIND_COORDINATOR].high, key_type=KeyType.TRANSACTION, coordinator_keys=[self._id])
            answer = self._socket.ask(Api.INIT_PRODUCER_ID, SPOKEN[Api.INIT_PRODUCER_ID].high, transactional_id=self._id, producer_id=-1, producer_epoch=-1,
                                    transaction_timeout=datetime.timedelta(seconds=TIMEOUT_S))
            if not answer.error_code:
                return answer.producer_id, answer.producer_epoch
            if time.monotonic() > until:
                raise RuntimeError(f"no producer id: {answer.error_code}")
            time.sleep(0.1)

    def begin(self) -> None:
        """No request is needed."""

    def commit(self, requests: Iterable[Partitions]) -> None:
        """One Produce request for each of *requests*, and EndTxn."""
        pause = self._markers.due - time.monotonic()
        if pause > 0:
            time.sleep(pause)
        for partitions in requests:
            self._produce(partitions)
        began = time.monotonic()
        self._socket.write(self._frames.request(self._socket.next_id(), self.producer_id, self.epoch))
        if not self._frames.is_answered_by(self._socket.read()):
            raise RuntimeError("the transaction was not committed")
        ended = time.monotonic()
        self._markers.ended(ended, ended - began)
        self.producer_id, self.epoch = self._frames.producer_id, self._frames.epoch

    def _produce(self, partitions: Partitions) -> None:
        version = V2.produce.low  # names the topic
        self._markers.left(time.monotonic())
        answer = self._socket.exchange(encode_produce(version, self._socket.next_id(), None, acks=-1, timeout_ms=30_000,
                                                    topics={self._topic: list(partitions.items())}, transactional_id=self._id))
        if stored_batches(version, answer[4:]) is None:
            raise RuntimeError("a batch was not stored")
        self._markers.stored(time.monotonic())


class Encoded(NamedTuple):
    """Records of a batch, and its first sequence."""

    records: bytes
    crc: int
    number: int
    sequence: int

    def pieces(self, producer_id: int, epoch: int) -> list[bytes]:
        """As a batch of this producer's transaction."""
        now = round(time.time() * 1000)
        header = batch_header(producer_id=producer_id, producer_epoch=epoch, base_sequence=self.sequence, records_crc=self.crc, records_size=len(self.records),
                              count=self.number, attributes=TRANSACTIONAL_BIT, base_timestamp=now, max_timestamp=now)
        return [header, self.records]


class Floor:
    """All records of a transaction are encoded in advance, without keys."""

    def __init__(self, servers: str, transactional_id: str, topic: str, value: bytes, keys: list[bytes | None], partitions: int) -> None:
        self._transactions = Transactions(servers, transactional_id, topic)
        self._requests = _encoded(value, len(keys), partitions, keyed=keys[0] is not None)
        self.begin = self._transactions.begin

    def send(self) -> None:
        """They are there."""

    def commit(self) -> None:
        """A partition's batch in each request."""
        made = self._transactions
        made.commit([{partition: part.pieces(made.producer_id, made.epoch) for partition, part in request.items()} for request in self._requests])


def _encoded(value: bytes, count: int, partitions: int, *, keyed: bool) -> list[dict[int, Encoded]]:
    """Batches of at most `MOST_RECORDS`, or of all partitions if the records have keys."""
    most = -(-count // partitions) if keyed else MOST_RECORDS
    requests: list[dict[int, Encoded]] = []
    for number, first in enumerate(range(0, count, most)):
        if number % partitions == 0:
            requests.append({})
        size = min(most, count - first)
        records = encode_values([value] * size)[HEADER_SIZE:]
        requests[-1][number % partitions] = Encoded(records, crc32c(records), size, most * (number // partitions))
    return requests


class SendFloor(FastSend):
    """The compiled ``send`` appends each record; full batches are sent with the commit, as all others."""

    def __init__(self, servers: str, transactional_id: str, topic: str, value: bytes, keys: list[bytes | None], partitions: int) -> None:
        self._accumulator = Accumulator(
            memory=MEMORY, batch_size=BATCH_SIZE, max_request_size=REQUEST_SIZE, linger=1.0,
            compression=Compression.NONE, level=None, observer=Observer(), clock=time.monotonic, wall=None, random=random.Random(1))
        self._accumulator.set_topic(topic, partitions, range(partitions))
        self._send_path = SendPath(self._accumulator, ignore_keys=False, keyless_sticky=True, key_hash=Murmur2Partitioner().key_hash())
        self._transactions = Transactions(servers, transactional_id, topic)
        self._topic, self._value, self._keys = topic, value, keys
        self.begin = self._transactions.begin

    def send(self) -> None:
        """All records of a transaction."""
        one, topic, value = self._one, self._topic, self._value
        for key in self._keys:
            one(topic, value, key)

    @fast_send
    def _one(self, *_arguments: Any, **_named: Any) -> None:
        raise RuntimeError("a record was not simple")

    def commit(self) -> None:
        """In as many requests as a partition has batches."""
        batches = self._accumulator.flush_open()
        for queue in self._accumulator.take_ready(time.monotonic()):
            while (head := self._accumulator.head(queue)) is not None:
                if head.state is BatchState.SEALING:
                    self._accumulator.seal(head)
                self._accumulator.start(head)
        self._number(batches)
        self._transactions.commit(_requests(batches))
        for batch in batches:
            batch.result.complete(0)
            self._accumulator.release(batch)

    def _number(self, batches: list[Batch]) -> None:
        following: dict[int, int] = {}
        for batch in batches:
            partition = batch.queue.partition
            batch.stamp(self._transactions.producer_id, self._transactions.epoch, following.get(partition, 0), transactional=True)
            following[partition] = batch.sequence + batch.count


def _requests(batches: list[Batch]) -> Iterator[Partitions]:
    while batches:
        request: dict[int, Batch] = {}
        for batch in batches:
            request.setdefault(batch.queue.partition, batch)
        yield {partition: batch.pieces() for partition, batch in request.items()}
        batches = [batch for batch in batches if request[batch.queue.partition] is not batch]
