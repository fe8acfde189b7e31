"""A modelled cluster on a loop with virtual time, driven by encoded requests."""
from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import Any, Self, TypeVar

from pyclient.codec.apis import Api
from pyclient.codec.encode import encode_batch
from pyclient.codec.messages import decode_request, decode_response, encode_request, encode_response
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.handlers import HANDLERS
from pyclient.testing.fake.model.kafka import Broker, Kafka, Topic
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.settings import Settings
from pyclient.testing.simulation.loop import SimulationLoop

T = TypeVar("T")
WALL_MS = 1_700_000_000_000


class Connection:
    """A connection that records whether it was cut, the only answer with acks=0."""

    is_cut = False

    def cut(self) -> None:
        self.is_cut = True


class ClusterDriver:
    """Three brokers by default, and a topic ``t`` of one partition whose preferred leader is broker 1."""

    def __init__(self, brokers: int = 3, *, racks: Sequence[str | None] = (), config: Mapping[str, str] | None = None,
                 **settings: object) -> None:
        self.loop = SimulationLoop(Random(0))  # type: ignore[abstract]
        nodes = [Broker(each + 1, "host", 9000 + each, rack=racks[each] if racks else None) for each in range(brokers)]
        self.kafka = Kafka(nodes, clock=self.loop.time, wall=lambda: WALL_MS + int(self.loop.time() * 1000), random=Random(0),
                           settings=Settings.parse(settings))
        self.events: list[tuple[str, Mapping[str, object]]] = []
        self.kafka.listeners.append(lambda event, facts: self.events.append((event, facts)))
        self.connection = Connection()
        self.topic: Topic = self.do(lambda: self.kafka.create_topic("t", replicas=[range(1, brokers + 1)], config=config))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.do(lambda: self.kafka.delete_topic("t"))
        self.loop.close()

    @property
    def partition(self) -> Partition:
        return self.topic.partitions[0]

    def ends(self) -> dict[int, int]:
        """Where the log of each replica ends."""
        return {each: self.partition.log_of(each).end for each in self.partition.replicas}

    def marks(self) -> dict[int, int]:
        """The high watermark of each replica."""
        return {each: self.partition.log_of(each).high_watermark for each in self.partition.replicas}

    def values(self, broker: int) -> list[int]:
        """The timestamps of a replica's batches, which identify them."""
        return [each.max_timestamp - WALL_MS for each in self.partition.log_of(broker).batches]

    def reported(self, event: str) -> list[Mapping[str, object]]:
        return [facts for kind, facts in self.events if kind == event]

    # ---- time --------------------------------------------------------------------------------------------------------

    def do(self, work: Callable[[], T]) -> T:
        """Run *work* on the loop."""
        async def run() -> T:
            return work()
        done: T = self.loop.run_until_complete(self.loop.create_task(run()))
        return done

    def kill(self, *brokers: int, lose_tail: bool = False) -> None:
        for broker in brokers:
            self.do(functools.partial(self.kafka.kill, broker, lose_tail=lose_tail))

    def restart(self, *brokers: int) -> None:
        for broker in brokers:
            self.do(functools.partial(self.kafka.restart, broker))

    def lead(self, broker: int) -> None:
        self.do(lambda: self.partition.elections.move_leader(broker))

    def advance(self, seconds: float) -> None:
        self.loop.run_until(self.loop.time() + seconds)

    # ---- requests ----------------------------------------------------------------------------------------------------

    def refused(self, api: Api, version: int, fields: Mapping[str, object], *, code: int) -> Any:
        """The error response for this code."""
        request = self._request(api, version, fields, 1)
        return decode_response(api, version, memoryview(encode_response(api, version, 1, HANDLERS[api].refuse(request, code))))

    def _request(self, api: Api, version: int, fields: Mapping[str, object], broker: int) -> Request:
        frame = encode_request(api, version, 1, "test", fields)
        return Request(broker=broker, api=api, version=version, client_id="test", body=decode_request(api, version, memoryview(frame)),
                     peer="", connection=self.connection)

    def begin(self, api: Api, version: int, fields: Mapping[str, object], broker: int = 1, *, idle: float = 0) -> asyncio.Task[Any]:
        """Send a request; the task's result is the response. An awaitable response is awaited after *idle* seconds."""
        request = self._request(api, version, fields, broker)

        async def run() -> Any:
            answer = HANDLERS[api].handle(self.kafka, request)
            await self._passed(idle)
            found = await answer if inspect.isawaitable(answer) else answer
            return None if found is None else decode_response(api, version, memoryview(encode_response(api, version, 1, found)))
        return self.loop.create_task(run())

    def _passed(self, seconds: float) -> asyncio.Future[None]:
        """Seconds of this loop, which pass at once."""
        passed = self.loop.create_future()
        self.loop.call_later(seconds, passed.set_result, None)
        return passed

    def call(self, api: Api, version: int, fields: Mapping[str, object], broker: int = 1) -> Any:
        return self.loop.run_until_complete(self.begin(api, version, fields, broker))

    def produce(self, data: bytes | None = None, *, broker: int = 1, **options: Any) -> Any:
        """The answer for the one partition."""
        task = self.producing(data, broker=broker, **options)
        return produced(self.loop.run_until_complete(task))

    def producing(self, data: bytes | None = None, *, broker: int = 1, acks: int = -1, version: int = 10, timeout_ms: int = 1000,
                  idle: float = 0, **options: Any) -> asyncio.Task[Any]:
        fields = produce_fields(batch(**options) if data is None else data, acks, timeout_ms)
        return self.begin(Api.PRODUCE, version, fields, broker, idle=idle)

    def fetch(self, offset: int, *, broker: int = 1, version: int = 12, **options: Any) -> Any:
        return self.call(Api.FETCH, version, fetch_fields(offset, **options), broker)

    def read(self, offset: int, **options: Any) -> Any:
        """The answer for the one partition."""
        return self.fetch(offset, **options).responses[0].partitions[0]

    def list(self, timestamp: int, *, broker: int = 1, version: int = 9, epoch: int = -1, isolation: int = 0, replica: int = -1) -> Any:
        fields = {"replica_id": replica, "isolation_level": isolation, "timeout": 1000, "topics": [{"name": "t", "partitions": [
            {"partition_index": 0, "current_leader_epoch": epoch, "timestamp": timestamp}]}]}
        return self.call(Api.LIST_OFFSETS, version, fields, broker).topics[0].partitions[0]

    def epoch_end(self, epoch: int, *, broker: int = 1, current: int = -1) -> tuple[int, int, int]:
        fields = {"replica_id": -1, "topics": [{"topic": "t", "partitions": [
            {"partition": 0, "current_leader_epoch": current, "leader_epoch": epoch}]}]}
        found = self.call(Api.OFFSET_FOR_LEADER_EPOCH, 4, fields, broker).topics[0].partitions[0]
        return int(found.error_code), found.leader_epoch, found.end_offset

    def deleting(self, offset: int, *, broker: int = 1, timeout_ms: int = 1000) -> asyncio.Task[Any]:
        return self.begin(Api.DELETE_RECORDS, 2, {"timeout": timeout_ms, "topics": [
            {"name": "t", "partitions": [{"partition_index": 0, "offset": offset}]}]}, broker)


def batch(count: int = 1, *, at: int = 0, value: bytes = b"v", **options: Any) -> bytes:
    """A batch of records stamped so many ms after the first instant."""
    return encode_batch([(WALL_MS + at, b"k", value, None) for _ in range(count)], **options)


def idempotent(sequence: int, *, producer: int = 7, epoch: int = 0, count: int = 1, **options: Any) -> bytes:
    return batch(count, producer_id=producer, producer_epoch=epoch, base_sequence=sequence, **options)


def produce_fields(data: bytes, acks: int = -1, timeout_ms: int = 1000) -> dict[str, object]:
    return {"transactional_id": None, "acks": acks, "timeout": timeout_ms,
            "topic_data": [{"name": "t", "partition_data": [{"index": 0, "records": data}]}]}


def produced(answer: Any) -> Any:
    return answer.responses[0].partition_responses[0]


def fetch_fields(offset: int, *, epoch: int = -1, last_epoch: int = -1, max_bytes: int = 1 << 20, partition_bytes: int = 1 << 20,
                 wait_ms: int = 0, min_bytes: int = 1, isolation: int = 0, rack: str = "", session: tuple[int, int] = (0, -1),
                 topics: Mapping[str, Sequence[int]] | None = None, forgotten: Mapping[str, Sequence[int]] | None = None) -> dict[str, object]:
    wanted = {"t": [0]} if topics is None else topics
    return {
        "max_wait": wait_ms, "min_bytes": min_bytes, "max_bytes": max_bytes, "isolation_level": isolation, "rack_id": rack,
        "session_id": session[0], "session_epoch": session[1],
        "topics": [{"topic": topic, "partitions": [
            {"partition": each, "current_leader_epoch": epoch, "fetch_offset": offset, "last_fetched_epoch": last_epoch,
             "log_start_offset": -1, "partition_max_bytes": partition_bytes} for each in indices]} for topic, indices in wanted.items()],
        "forgotten_topics_data": [{"topic": topic, "partitions": list(each)} for topic, each in (forgotten or {}).items()],
    }
