"""Produce: what is stored, what is refused, and the rules of idempotent producers."""
from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import crc32c

from pyclient.codec.apis import Api
from tests.broker.conformance.preparing import batch, fetch_all, topic, topic_id
from tests.broker.conformance.script import Act, Run, Script, Step, Value, all_ok, got, named

BY_ID: Final = 13
UNKNOWN_ID: Final = UUID(int=0x1234)
MAGIC_AT: Final = 16
CRC_AT: Final = 17
LAST_DELTA_AT: Final = 23
COUNT_AT: Final = 57
GOOD: Final = batch(b"one", b"two", b"three")


def produce(*parts: tuple[Value, Value, int, Value], acks: int = -1, transactional_id: str | None = None) -> dict[str, Value]:
    """A Produce request of (name, id, partition, records)."""
    topics = [{"name": name, "topic_id": its_id, "partition_data": [{"index": index, "records": records}]}
              for name, its_id, index, records in parts]
    return {"transactional_id": transactional_id, "acks": acks, "timeout": 5_000, "topic_data": topics}


def to(records: Value, partition: int = 0, name: str = "topic") -> tuple[Value, Value, int, Value]:
    """One part of a request, for a topic of this run."""
    return named(name), topic_id(name), partition, records


def stored(records: Value, name: str = "", *, partition: int = 0, acks: int = -1, topic: str = "topic", **options: Any) -> Step:
    return Step(api=Api.PRODUCE, name=name, fields=produce(to(records, partition, topic), acks=acks), **options)


def damaged(position: int, *values: int) -> bytes:
    """The good batch with some bytes changed."""
    return GOOD[:position] + bytes(values) + GOOD[position + len(values):]


def resealed(batch: bytes) -> bytes:
    """With the CRC that belongs to its bytes."""
    return batch[:CRC_AT] + struct.pack(">I", crc32c.crc32c(batch[CRC_AT + 4:])) + batch[CRC_AT + 4:]


def by(pid: str, sequence: int, count: int = 1, epoch: int = 0) -> Callable[[Run], bytes]:
    """A batch of an idempotent producer whose id is in an earlier answer."""
    def made(run: Run) -> bytes:
        return batch(*[b"idempotent"] * count, producer_id=got(pid, "producer_id")(run), producer_epoch=epoch, base_sequence=sequence)
    return made


PRODUCER_IDS: Final = Step(
    api=Api.INIT_PRODUCER_ID, ready=all_ok,
    fields={"transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1})
"""Until a broker has a block of ids."""


def producer_id(name: str = "pid", **fields: Value) -> Step:
    return Step(api=Api.INIT_PRODUCER_ID, name=name, fields={
        "transactional_id": None, "transaction_timeout": 60_000, "producer_id": -1, "producer_epoch": -1, **fields})


def compressed() -> tuple[Act, ...]:
    since = {"gzip": 0, "snappy": 0, "lz4": 0, "zstd": 7}
    return tuple(stored(batch(b"x" * 500, b"y" * 500, compression=codec), since=version) for codec, version in since.items())


STORING: Final = Script(name="produce", api=Api.PRODUCE, acts=(
    *topic("topic", partitions=2), *topic("other"),
    stored(GOOD),
    stored(GOOD, acks=1),
    stored(GOOD, acks=0, silent=True),
    stored(GOOD, acks=1),
    stored(GOOD, partition=1),
    stored(batch(b"late", base_offset=77)),
    stored(batch(b"epoch", leader_epoch=55)),
    *compressed(),
    Step(api=Api.PRODUCE, fields=produce(to(GOOD, 1), to(GOOD, 0, "other"))),
    Step(api=Api.PRODUCE, fields=produce()),
    fetch_all("topic", 0), fetch_all("topic", 1), fetch_all("other", 0),
))
REFUSED: Final = Script(name="produce-refused", api=Api.PRODUCE, acts=(
    *topic("topic"), *topic("small", max_message_bytes="200"), *topic("compacted", cleanup_policy="compact"),
    *topic("appended", message_timestamp_type="LogAppendTime"),
    stored(GOOD, partition=7),
    stored(GOOD, partition=-1),
    Step(api=Api.PRODUCE, until=BY_ID - 1, fields=produce((named("unknown"), None, 0, GOOD), to(GOOD))),
    Step(api=Api.PRODUCE, since=BY_ID, fields=produce((None, UNKNOWN_ID, 0, GOOD), to(GOOD))),
    Step(api=Api.PRODUCE, until=BY_ID - 1, fields=produce(("a b", None, 0, GOOD))),
    stored(GOOD, acks=2), stored(GOOD, acks=-7),
    stored(damaged(CRC_AT, 1, 2, 3, 4)),
    stored(damaged(len(GOOD) - 1, 7)),
    stored(damaged(MAGIC_AT, 3)),
    stored(resealed(damaged(LAST_DELTA_AT, 0, 0, 0, 9))),
    stored(resealed(damaged(COUNT_AT, 0, 0, 0, 9))),
    stored(GOOD + GOOD),
    stored(GOOD[:-1]), stored(b""),
    stored(batch(b"x" * 300), topic="small"),
    stored(batch(b"no key"), topic="compacted"),
    stored(GOOD, topic="appended"),
    stored(batch(b"future", base_timestamp=4_000_000_000_000)),
    fetch_all("topic", 0),
))
REFUSED_AND_CUT: Final = Script(name="produce-cut", api=Api.PRODUCE, acts=(
    *topic("topic"),
    stored(damaged(MAGIC_AT, 1)),
    stored(damaged(CRC_AT, 1, 2, 3, 4), acks=0, silent=True),
    stored(GOOD),
    stored(GOOD),
))
IDEMPOTENT: Final = Script(name="idempotent", api=Api.PRODUCE, acts=(
    *topic("topic"), *topic("other"), PRODUCER_IDS, producer_id(),
    stored(by("pid", 0, 3)),
    stored(by("pid", 3)), stored(by("pid", 4)), stored(by("pid", 5)), stored(by("pid", 6)),
    stored(by("pid", 5)), stored(by("pid", 3)), stored(by("pid", 0, 3)),
    stored(by("pid", 7)), stored(by("pid", 0, 3)),
    stored(by("pid", 9)), stored(by("pid", 8)), stored(by("pid", 7, 2)),
    stored(by("pid", 5, epoch=1)), stored(by("pid", 0, epoch=1)), stored(by("pid", 9)), stored(by("pid", 1, epoch=1)),
    stored(by("pid", 4), topic="other"), stored(by("pid", 0), topic="other"), stored(by("pid", 5), topic="other"),
    Step(api=Api.PRODUCE, fields=produce(to(batch(b"unknown", producer_id=123_456, producer_epoch=0, base_sequence=5)))),
    Step(api=Api.PRODUCE, fields=produce(to(batch(b"unknown", producer_id=123_457, producer_epoch=0, base_sequence=0)))),
    stored(batch(b"odd", producer_id=5, producer_epoch=0, base_sequence=-1)),
))
SEQUENCES_WRAP: Final = Script(name="wrap", api=Api.PRODUCE, acts=(
    *topic("topic"), PRODUCER_IDS, producer_id(),
    stored(by("pid", 0)), stored(by("pid", 2**31 - 2, 3)), stored(by("pid", 2**31 - 2, 3, epoch=1)),
))
SCRIPTS: Final = (STORING, REFUSED, REFUSED_AND_CUT, IDEMPOTENT, SEQUENCES_WRAP)
