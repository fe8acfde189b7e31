"""Offsets by time: the start, the end, or the first record at or after a time, from each partition's leader."""
from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, TypeAlias

import attrs

from pyclient.codec.apis import Api
from pyclient.core.backoff import Backoff
from pyclient.core.manager import Manager, Outcome, Ready, Reply, Request, Use, earliest
from pyclient.core.metadata import Metadata
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaError, KafkaTimeoutError, UnknownServerError, error_for
from pyclient.records import OffsetAndTimestamp, TopicPartition

LATEST: Final = -1
EARLIEST: Final = -2
CONSUMER_ID: Final = -1

Found: TypeAlias = Callable[[TopicPartition, OffsetAndTimestamp | None, KafkaError | None, float], None]


@attrs.define(eq=False)
class Lookup:
    """The lookup of one partition; *found* is called once, with (partition, offset or None, error or None, now)."""

    tp: TopicPartition
    timestamp: int
    found: Found
    deadline: float | None
    not_before: float = 0.0
    failures: int = 0
    in_flight: bool = False
    last_error: KafkaError | None = None


class OffsetLookups(Manager):
    """The manager of all open lookups: those of one leader share a request, each is retried until its deadline."""

    def __init__(self, metadata: Metadata, *, isolation: int, request_timeout: float, backoff: Backoff) -> None:
        self._metadata = metadata
        self._isolation = isolation
        self._request_timeout = request_timeout
        self._backoff = backoff
        self._open: dict[Lookup, None] = {}
        self.needs_poll = True

    def submit(self, targets: Mapping[TopicPartition, int], found: Found, *, deadline: float | None, now: float) -> list[Lookup]:
        """Look up the offset at each timestamp (ms, or `LATEST`, `EARLIEST`)."""
        lookups = [Lookup(tp, timestamp, found, deadline) for tp, timestamp in targets.items()]
        for lookup in lookups:
            self._open[lookup] = None
            self._metadata.want(lookup.tp.topic, now)
        self.needs_poll = True
        return lookups

    def cancel(self, lookup: Lookup) -> None:
        """Forget a lookup: its response is dropped."""
        self._open.pop(lookup, None)

    def poll(self, now: float, ready: Ready) -> Iterator[Request]:
        """Requests for the leaders that are ready."""
        self.needs_poll = False
        for lookup in [each for each in self._open if each.deadline is not None and now >= each.deadline]:
            self._end(lookup, None, self._too_late(lookup), now)
        for node, lookups in self._by_leader(now).items():
            left = lookups
            while left and ready.slots(node, Use.CONTROL):
                request = self._request(node, left)
                left = [each for each in left if not each.in_flight]  # each once: one that cannot be written is not in flight either, afterwards
                yield request

    def next_deadline(self) -> float | None:
        """When the next lookup, or its pause after an error, ends."""
        return earliest(*(
            earliest(each.deadline, each.not_before if each.not_before and not each.in_flight else None) for each in self._open))

    def _by_leader(self, now: float) -> dict[int, list[Lookup]]:
        groups: dict[int, list[Lookup]] = {}
        for lookup in [each for each in self._open if not each.in_flight and now >= each.not_before]:
            lookup.not_before = 0.0  # the pause is over: from here on it waits for a node, not for the clock
            topic = self._metadata.cluster.topics.get(lookup.tp.topic)
            leader = self._metadata.cluster.leader(lookup.tp)
            if leader is not None:
                groups.setdefault(leader, []).append(lookup)
            elif topic is not None and topic.error and not error_for(topic.error).retriable:
                self._metadata.request_update()  # it may be cured before the next attempt
                self._end(lookup, None, error_of(Api.METADATA, topic.error, tp=lookup.tp), now)
            else:
                self._metadata.request_update()
        return groups

    def _request(self, node: int, lookups: list[Lookup]) -> Request:
        # A request names a partition once; a second lookup of it, for another time, waits for the next request.
        requested: dict[TopicPartition, int] = {}
        for lookup in lookups:
            lookup.in_flight = requested.setdefault(lookup.tp, lookup.timestamp) == lookup.timestamp
        in_flight = [lookup for lookup in lookups if lookup.in_flight]

        def fields(version: int) -> dict[str, object]:
            return {"replica_id": CONSUMER_ID, "isolation_level": self._isolation, "topics": self._topics(requested)}

        return Request(node=node, use=Use.CONTROL, api=Api.LIST_OFFSETS, fields=fields, timeout=self._request_timeout,
                       done=lambda now, outcome: self._answered(now, in_flight, outcome))

    def _topics(self, requested: Mapping[TopicPartition, int]) -> list[dict[str, object]]:
        topics: dict[str, list[dict[str, object]]] = {}
        for tp, timestamp in requested.items():
            known = self._metadata.cluster.partition(tp)
            topics.setdefault(tp.topic, []).append({
                "partition_index": tp.partition, "timestamp": timestamp,
                "current_leader_epoch": known.epoch if known is not None else -1})
        return [{"name": name, "partitions": parts} for name, parts in topics.items()]

    def _answered(self, now: float, lookups: list[Lookup], outcome: Outcome) -> None:
        answers: dict[TopicPartition, Any] = {}
        if isinstance(outcome, Reply):
            answers = {TopicPartition(topic.name, part.partition_index): part
                       for topic in outcome.message.topics for part in topic.partitions}
        for lookup in lookups:
            lookup.in_flight = False
            if lookup not in self._open:
                continue
            if isinstance(outcome, Reply):
                self._classify(now, lookup, answers.get(lookup.tp))
            else:
                self._again(now, lookup, outcome.cause)

    def _classify(self, now: float, lookup: Lookup, answer: Any) -> None:
        if answer is None:
            self._again(now, lookup, UnknownServerError(f"the answer leaves out {lookup.tp}"))
        elif answer.error_code:
            self._again(now, lookup, error_of(Api.LIST_OFFSETS, answer.error_code, tp=lookup.tp))
        elif answer.offset < 0:
            self._end(lookup, None, None, now)  # no record that late
        else:
            epoch = getattr(answer, "leader_epoch", -1)
            self._end(lookup, OffsetAndTimestamp(answer.offset, answer.timestamp, epoch if epoch >= 0 else None), None, now)

    def _again(self, now: float, lookup: Lookup, error: KafkaError) -> None:
        if not error.retriable and not isinstance(error, UnknownServerError):
            self._end(lookup, None, error, now)
            return
        lookup.failures += 1
        lookup.last_error = error
        lookup.not_before = now + self._backoff.after(lookup.failures, error)
        self._metadata.request_update()

    def _end(self, lookup: Lookup, answer: OffsetAndTimestamp | None, error: KafkaError | None, now: float) -> None:
        if lookup in self._open:
            del self._open[lookup]
            lookup.found(lookup.tp, answer, error, now)

    def _too_late(self, lookup: Lookup) -> KafkaError:
        cause = lookup.last_error or self._metadata.last_error
        reason = f"last error: {cause}" if cause else "its leader is not known or did not answer"
        return KafkaTimeoutError(f"the offset of {lookup.tp} could not be looked up in time ({reason}). "
                            "Check that the topic and partition exist and that its leader is up.")
