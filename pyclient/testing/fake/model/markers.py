"""The markers that end a transaction: one in each of its partitions, and one for the offsets of its groups.

They are written while their partition has a leader, and again if that leader fails before its replicas have them.
"""
from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from typing import Final

import attrs
from kio.schema.errors import ErrorCode

from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.homes import OFFSETS_TOPIC
from pyclient.testing.fake.model.kafka import Kafka
from pyclient.testing.fake.model.partition import Appended, Partition
from pyclient.testing.fake.model.refusal import RefusalError
from pyclient.testing.fake.model.transactions import Place, Producer

FENCED: Final = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)
"""A newer marker is there already."""
AWAITED: Final = frozenset({"high watermark", "leader", "isr", "topic deleted", "broker started", "group moved"})
"""Events after which more may be written, or is committed."""
RETRY_S: Final = 0.02


@attrs.frozen(kw_only=True, eq=False)
class End:
    """The end of one transaction."""

    producer: Producer
    commits: bool
    coordinator_epoch: int


@attrs.define(eq=False)
class Writing:
    """An end, and the partitions that have no committed marker of it yet."""

    end: End
    missing: dict[Place, Appended | None]
    """Partition → its marker, while replicas still miss it."""
    done: Callable[[], None]


class Markers:
    """The markers of all transactions that are being ended."""

    def __init__(self, kafka: Kafka) -> None:
        self._kafka = kafka
        self._coordinator = kafka.part(Coordinator)
        self._writing: dict[str, Writing] = {}
        self._timer: asyncio.TimerHandle | None = None
        kafka.listeners.append(self._on_event)

    def write(self, transactional_id: str, end: End, partitions: Iterable[Place], done: Callable[[], None]) -> None:
        """Write the markers of an end, at once where it can be; *done* is called when all are committed."""
        self._writing[transactional_id] = Writing(end, dict.fromkeys(sorted(partitions)), done)
        self._proceed(transactional_id)

    def forget(self, transactional_id: str) -> None:
        """Its coordinator is another one, which begins again."""
        self._writing.pop(transactional_id, None)

    def _on_event(self, event: str, _facts: Mapping[str, object]) -> None:
        """Events are reported in the middle of changes, so the work is done later."""
        if self._writing and event in AWAITED:
            self._later(0)

    def _later(self, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        if self._timer is not None:
            if self._timer.when() <= loop.time() + seconds:
                return
            self._timer.cancel()
        self._timer = loop.call_later(seconds, self._proceed_all)

    def _proceed_all(self) -> None:
        self._timer = None
        for each in list(self._writing):
            self._proceed(each)

    def _proceed(self, transactional_id: str) -> None:
        writing = self._writing[transactional_id]
        for place in list(writing.missing):
            if self._is_done(writing, place):
                del writing.missing[place]
        if not writing.missing:
            del self._writing[transactional_id]
            writing.done()

    def _is_done(self, writing: Writing, place: Place) -> bool:
        if place[0] == OFFSETS_TOPIC:
            return self._offsets_ended(writing.end, place[1])
        partition = self._kafka.partition(*place)
        if partition is None:
            return True  # the topic was deleted
        before = writing.missing[place]
        if before is None or before.epoch != partition.leader_epoch:
            try:
                before = writing.missing[place] = _marked(partition, writing.end)
            except RefusalError as refused:
                return refused.code in FENCED
        return before is not None and partition.log.high_watermark > before.last_offset

    def _offsets_ended(self, end: End, index: int) -> bool:
        """Whether the groups of this partition have committed or dropped the transaction's offsets."""
        if self._coordinator.end_transaction(index, end.producer.id, commits=end.commits):
            return True
        self._later(RETRY_S)
        return False


def _marked(partition: Partition, end: End) -> Appended | None:
    """The marker in the leader's log, if there is a leader."""
    if partition.leader == NO_LEADER:
        return None
    return partition.write_marker(partition.leader, end.producer.id, end.producer.epoch, commits=end.commits, coordinator_epoch=end.coordinator_epoch)
