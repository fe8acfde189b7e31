"""A fetcher for its tests: its requests as plain values, and responses made of record batches."""
from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any
from uuid import UUID

import attrs
import pytest

from pyclient.buffers.fetch_buffer import FetchBuffer
from pyclient.buffers.collect import collect
from pyclient.codec.apis import Api
from pyclient.codec.encode import encode_batch
from pyclient.codec.fetch import TOPIC_IDS_SINCE, FetchResponse, fetch_response
from pyclient.core.fetching.fetch_request import fetch_request
from pyclient.core.fetching.fetcher import Fetcher
from pyclient.core.fetching.fetches_in_flight import fetch_parameters
from pyclient.core.fetching.limits import FetchLimits
from pyclient.core.fetching.lookups import EARLIEST, OffsetLookups
from pyclient.core.fetching.sessions import Session, SessionRequest
from pyclient.core.manager import Use
from pyclient.errors import (
    KafkaError,
)
from pyclient.records import OffsetAndMetadata, TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, make_metadata, read_request, response, topic, topic_id, view

A0, A1, A2, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("a", 2), TopicPartition("b", 0)
MAX_WAIT, PARTITION_BYTES, MAX_BYTES, MEMORY = 0.5, 1000, 5000, 4000
OUT_OF_RANGE, NOT_LEADER, FENCED_EPOCH, FORBIDDEN, CORRUPT = 1, 6, 74, 29, 2
LIMITS = FetchLimits(min_bytes=1, max_wait=MAX_WAIT, max_bytes=MAX_BYTES, max_partition_bytes=PARTITION_BYTES, buffer_memory=MEMORY,
                     decompression_limit=100_000, check_crcs=True, isolation=0, rack="r1", request_timeout=30.0, replica_lease=300.0)
Report = Callable[[TopicPartition, int | OffsetAndMetadata | None, KafkaError | None], None]
Callback = Callable[[TopicPartition, OffsetAndMetadata | None, KafkaError | None, float], None]


class Fetching:
    """A fetcher in its world; topic a has leaders 1, 1, 2 and topic b has 2."""

    def __init__(self, *, reset: int | None = EARLIEST, group: bool = False, isolation: int = 0, **limits: Any) -> None:
        self.world = World()
        self.metadata = make_metadata()
        self.lookups = OffsetLookups(self.metadata, isolation=isolation, request_timeout=30.0, backoff=DOUBLING)
        self.buffer = FetchBuffer()
        self.committed_lookups: list[tuple[Sequence[TopicPartition], Report]] = []
        self.unwanted: list[TopicPartition] = []
        self.fetcher = Fetcher(
            self.buffer, self.metadata, self.lookups,
            attrs.evolve(LIMITS, **{"isolation": isolation, **limits}),
            backoff=DOUBLING, reset_time=lambda: reset,
            find_committed=self._find_committed if group else None)
        self.knows()

    def _find_committed(self, partitions: Sequence[TopicPartition], report: Callback) -> Callable[[TopicPartition], None]:
        self.committed_lookups.append((partitions, lambda tp, found, error: report(
            tp, OffsetAndMetadata(found) if isinstance(found, int) else found, error, self.world.now)))
        return self.unwanted.append

    def knows(self, *topics: dict[str, object], nodes: Iterable[int] = (1, 2, 3)) -> None:
        """Metadata is this now."""
        reported = answer(Api.METADATA, 13, **view(*(topics or (topic("a", 1, 1, 2), topic("b", 2))), nodes=nodes))
        self.metadata.hint(self.metadata.cluster.updated(reported))

    def reads(self, *partitions: TopicPartition, at: int = 0) -> None:
        """Assign these and begin at an offset."""
        self.fetcher.assign(partitions, self.world.now)
        for tp in partitions:
            self.fetcher.seek(tp, at)

    def turn(self) -> list[Sent]:
        """What the fetcher and its look-ups send now."""
        return self.world.turn(self.fetcher, self.lookups)

    def fetches(self) -> Sent:
        """The one fetch that comes now."""
        (sent,) = self.turn()
        assert (sent.api, sent.request.use) == (Api.FETCH, Use.FETCH)
        return sent

    def looks_up(self) -> tuple[Sent, dict[TopicPartition, int]]:
        """The one look-up that comes now, and its timestamps."""
        (sent,) = self.turn()
        assert sent.api is Api.LIST_OFFSETS
        return sent, {TopicPartition(each.name, part.partition_index): part.timestamp for each in sent.body.topics for part in each.partitions}

    def found(self, tp: TopicPartition, offset: int, *, error: int = 0) -> None:
        """Answer the look-up that comes now."""
        sent, _ = self.looks_up()
        sent.reply(topics=[{"name": tp.topic, "partitions": [
            {"partition_index": tp.partition, "offset": offset, "timestamp": -1, "error_code": error}]}])

    def values(self) -> list[tuple[TopicPartition, int, bytes | None]]:
        """What the user gets now; errors are raised."""
        return [(TopicPartition(record.topic, record.partition), record.offset, record.value) for record in collect(self.buffer, 1000, None)]

    def offsets(self) -> list[int]:
        return [offset for _, offset, _ in self.values()]

    def raises(self) -> KafkaError:
        """What the user's poll raises now."""
        with pytest.raises(KafkaError) as caught:
            collect(self.buffer, 1000, None)
        return caught.value


def offsets_of(sent: Sent) -> dict[TopicPartition, int]:
    """Partition → offset of a fetch."""
    names = {topic_id(name): name for name in ("a", "b")}
    return {TopicPartition(getattr(each, "topic", None) or names[each.topic_id], part.partition): part.fetch_offset
            for each in sent.body.topics for part in each.partitions}


def request_of(session: Session, request: SessionRequest, version: int) -> Any:
    """The fetch that it is part of, as a broker reads it."""
    return read_request(fetch_request(1, session, request, fetch_parameters(request, LIMITS, 1, 0, ""), 1, lambda *_: None), version)


def response_with(version: int, topics: Mapping[UUID | str, Iterable[int]], **fields: object) -> FetchResponse:
    """With these partitions, whose topics the broker names by id or name."""
    name = "topic_id" if version >= TOPIC_IDS_SINCE else "topic"
    return fetch_response(version, response(Api.FETCH, version, responses=[
        {name: topic, "partitions": [{"partition_index": number} for number in numbers]} for topic, numbers in topics.items()], **fields))


def batch(offset: int, count: int = 1, **options: Any) -> bytes:
    return encode_batch([(0, None, b"%d" % (offset + i), None) for i in range(count)], base_offset=offset, **options)


def marker(offset: int, producer: int, kind: int) -> bytes:
    return encode_batch([(0, b"\0\0" + kind.to_bytes(2, "big"), b"\0" * 6, None)], base_offset=offset, producer_id=producer,
                        producer_epoch=0, transactional=True, control=True)


def gives(sent: Sent, reported: Mapping[TopicPartition, bytes | int | dict[str, object]], **more: object) -> None:
    """Answer a fetch: bytes are data, a number is an error, a mapping is the fields."""
    responses = []
    for tp, what in reported.items():
        fields = {"records": what} if isinstance(what, bytes) else {"error_code": what} if isinstance(what, int) else what
        part = {"partition_index": tp.partition, "records": b"", "aborted_transactions": None, **fields}
        responses.append({"topic": tp.topic, "topic_id": topic_id(tp.topic), "partitions": [part]})
    sent.reply(responses=responses, **more)


def settle_metadata(fetching: Fetching) -> None:
    """Answer the request of metadata, so that only a new reason makes another one before its age."""
    for sent in fetching.world.turn(fetching.metadata):
        sent.reply(**view(topic("a", 1, 1, 2), topic("b", 2)))
    fetching.world.after(64.0)
    for sent in fetching.world.turn(fetching.metadata):
        sent.reply(**view(topic("a", 1, 1, 2), topic("b", 2)))
