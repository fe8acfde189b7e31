"""Many records by one call: from lists or Arrow data into the Accumulator, a chunk at a time.

Written once for sync and async producers, as steps (`pyclient.runtime.steps`).
Rule: once the first record is queued, nothing is raised for a record. One that cannot be queued is refused under its
index, and the others go on. When memory is not granted in time, or the producer is closed, that record and all after it
are refused.
"""
from __future__ import annotations

import contextlib
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from types import TracebackType
from typing import Any, Final, Self, SupportsIndex, TypeAlias

from pyclient.buffers.queues import TopicQueues
from pyclient.buffers.deliveries import Deliveries, finish, reject_rows
from pyclient.buffers.pool import Waiter
from pyclient.buffers.rows import CHUNK, Rows, no_partition, note_interruption
from pyclient.codec.arrow_input import Batch, Lists, Names, batches, plain_columns
from pyclient.column_serializers import AddsColumnHeaders, ColumnEncoder
from pyclient.errors import BufferExhaustedError, ConfigurationError, KafkaError
from pyclient.plugins import Route
from pyclient.client.interceptors import Interceptors
from pyclient.producer.arguments import as_bytes, check_partition, check_timestamp, header_pairs, headers_bytes
from pyclient.producer.core import ProducerCore
from pyclient.producer.preparation import PrepareColumn, PrepareEach
from pyclient.producer.routing import with_added
from pyclient.producer.waits import BlockBudget, append_when_granted, wait_for_topic
from pyclient.runtime.steps import Step, Steps

BulkSteps: TypeAlias = Steps[Step, Deliveries]
ANY: Final = -1
LAST_PARTITION: Final = 2**31 - 1
Encoders: TypeAlias = Mapping[str, ColumnEncoder]
"""By part: "value" and "key"."""


class _Refused:
    """Takes the place of an item whose conversion failed."""

    def __init__(self, error: Exception) -> None:
        self.error = error


class BulkSend:
    """One call of `send_many` or `send_arrow` while it queues its records; a context manager around the steps.

    When anything interrupts the steps, the error is given a note of the index that was reached.
    """

    def __init__(self, core: ProducerCore, begun: Rows | None = None) -> None:
        """*begun*: rows of which some are queued already."""
        if begun is None:
            core.accumulator.check_gate()
        self._core = core
        self._budget = BlockBudget(core)
        self._router = core.router
        self._deliveries = Deliveries(core.observer) if begun is None else begun.deliveries
        self._interceptors = core.interceptors
        self._stop: KafkaError | None = None
        self._rows = begun
        self._reached = 0
        self._shown = 0
        """The number of records of `_rows` that the interceptors have seen."""
        self._key_hash = core.router.key_hash
        self._topics: dict[str, TopicQueues | Exception] = {}
        self._places: dict[str, int] = {}
        """Of the topics that interceptors chose: their indexes in the topics of `_rows`."""
        self._names: list[str] = []
        """Those of the topics of `_rows`."""
        self._awaited: dict[str, int] = {}
        """The highest partition that was waited for, by topic."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        if error is not None:
            self._interrupted(error)

    def _interrupted(self, stopped: BaseException) -> None:
        """Note the index that was reached, and notify the interceptors of the records that they saw and that are not
        queued.
        """
        position = None if self._rows is None else self._rows.position
        note_interruption(stopped, self._reached if position is None else position)
        if self._interceptors is not None and self._rows is not None:
            for _ in range(self._rows.decided, self._shown):
                self._interceptors.refused(stopped)

    # ---- lists ------------------------------------------------------------------------------------------------------

    def values(self, topic: str, values: Iterable[Any], keys: Iterable[Any] | None, headers: Iterable[Any] | None,
               timestamps: Iterable[Any] | None, partition: SupportsIndex | None) -> BulkSteps:
        """Queue *values*, each with its key, headers and timestamp; *partition* is for all of them."""
        number = None if partition is None else check_partition(partition)
        _check_topic(topic)
        columns = _columns(values, keys, headers, timestamps)
        rows = self._make_rows([], []) if self._interceptors is not None else self._make_rows(
            [(yield from wait_for_topic(self._core, topic, number, self._budget))], [topic])
        total = len(columns[0] or ())
        for first in range(0, total, CHUNK):
            if self._stop is not None:
                self._refuse(first, total - first, topic, self._stop)
                break
            items, keyed, pairs, stamps = (None if each is None else list(each[first:first + CHUNK]) for each in columns)
            yield from self._load(rows, [topic] * len(items or ()), first, items or [], keyed, pairs, stamps, None, None, number)
            yield from self._append(rows)
        return finish(self._deliveries, total)

    def _load(self, rows: Rows, names: list[str], first: int, values: list[Any], keys: list[Any] | None, headers: list[Any] | None,
              timestamps: list[Any] | None, places: list[int] | None, given: list[int | None] | None, partition: int | None) -> Steps[Step, None]:
        """Load one chunk.

        *names* are the records' topics, *places* their indexes in ``rows.topics``; None: the first one for all. *given*
        are the partitions that records name, *partition* is for all of them.
        """
        router = self._router
        if self._interceptors is not None:
            sent = map(Route, names, given or [partition] * len(names), timestamps or [None] * len(names))
            values, keys, headers, routes = self._intercepted(self._interceptors, sent, values, keys, headers)
            names, given, timestamps = ([*each] for each in zip(*routes, strict=True))
            places, partition = (yield from self._find_places(rows, names, given)), None
        chooses = partition is None and router.chooses(keyed=keys is not None)
        if router.serialized or chooses:
            values, keys = yield from self._prepared(names, values, keys)
            pairs = [each or () for each in headers] if headers else [()] * len(values)
            values = [_serialized(router.value, *each) for each in zip(names, values, pairs, strict=True)]
            keys = keys and [_serialized(router.key, *each) for each in zip(names, keys, pairs, strict=True)]
            if router.adds_headers:
                values, keys, headers = _with_added(values, keys, pairs)
        partitions = None
        if chooses or given is not None:
            partitions = [
                self._chosen(rows.topics[0 if places is None else places[at]], keys[at] if keys else None, value, given[at] if given else None, chooses)
                for at, value in enumerate(values)]
        sections = None if headers is None else [_tried(headers_bytes, each or ()) for each in headers]
        rows.load(first, values, keys, sections, timestamps, partitions, places, ANY if partition is None else partition, self._now())

    def _prepared(self, names: list[str], values: list[Any], keys: list[Any] | None) -> Steps[Step, tuple[list[Any], list[Any] | None]]:
        """The same; what could not be prepared is refused."""
        if not self._router.prepares:
            return values, keys
        errors = yield PrepareEach(self._router, list(zip(names, keys or [None] * len(values), values, strict=True)), self._budget)
        return [value if error is None else _Refused(error) for value, error in zip(values, errors, strict=True)], keys

    def _intercepted(self, interceptors: Interceptors, routes: Iterable[Route], values: list[Any], keys: list[Any] | None,
                     headers: list[Any] | None) -> tuple[list[Any], list[Any], list[Any], list[Route]]:
        """The records as the interceptors changed them; from now on they are notified of each one's outcome."""
        made = []
        for route, value, key, pairs in zip(routes, values, keys or [None] * len(values), headers or [()] * len(values), strict=True):
            self._shown += 1
            made.append(interceptors.on_send(route, key, value, pairs or ()))
        return ([value for _, value, _, _ in made], [key for key, _, _, _ in made], [_pairs_of(pairs) for _, _, pairs, _ in made],
                [route for _, _, _, route in made])

    def _find_places(self, rows: Rows, names: list[str], partitions: list[Any]) -> Steps[Step, list[int]]:
        """The indexes in ``rows.topics`` of the topics that interceptors chose; new ones are looked up."""
        highest = dict.fromkeys(names, ANY)
        for name, partition in zip(names, partitions, strict=True):
            highest[name] = max(highest[name], partition if type(partition) is int else ANY)
        for name in [each for each in highest if each not in self._places]:
            rows.topics.append((yield from self._find(name)))
            self._names.append(name)
            self._places[name] = len(self._names) - 1
        for name, partition in highest.items():
            yield from self._wait_for_partition(self._topics[name], partition)
        return [self._places[name] for name in names]

    def _chosen(self, queues: TopicQueues | Exception, key: Any, value: Any, given: int | None, chooses: bool) -> object:
        if isinstance(queues, Exception) or isinstance(key, _Refused) or isinstance(value, _Refused):
            return ANY  # the record is refused because of that error
        if given is not None:
            return _tried(_check_known, queues, given)
        return _tried(self._router.partition, queues, key, value, None) if chooses else ANY

    # ---- Arrow ------------------------------------------------------------------------------------------------------

    def arrow(self, topic: str | None, data: Any, names: Names, encoders: Encoders) -> BulkSteps:
        """Queue the rows of *data*."""
        if self._rows is not None:
            return (yield from self._rest(self._rows))
        if topic is not None:
            _check_topic(topic)
        _check_encoders(encoders, self._router.serialized)
        first = 0
        slow = self._core.arrow_path is None
        found = batches(data, names, free=self._router.serialized, encoded=encoders, as_lists=slow)
        if not encoders:
            self._learn(data, names)
        chosen = self._interceptors is not None  # record by record, when they have seen it
        if topic is None:
            self._topics[""] = ValueError("its topic is null, and send_arrow was given no topic")
        elif not chosen:
            self._topics[topic] = yield from wait_for_topic(self._core, topic, None, self._budget)
        for batch in found:
            names_of = [topic or "", *batch.topics]
            topics = [] if chosen else (yield from self._topics_of(batch, names_of))
            yield from self._encode(batch, names_of, encoders, first)
            rows = self._make_rows(topics, [] if chosen else names_of)
            for start in range(0, batch.rows, CHUNK):
                stop = min(start + CHUNK, batch.rows)
                if self._stop is not None:
                    self._refuse(first + start, batch.rows - start, topic or "", self._stop)
                    break
                if slow:
                    yield from self._load_lists(rows, names_of, first + start, batch.lists(start, stop))
                else:
                    self._load_columns(rows, first + start, batch, start, stop)
                yield from self._append(rows)
            first += batch.rows
        return finish(self._deliveries, first)

    def _rest(self, rows: Rows) -> BulkSteps:
        """Queue what is left of *rows*."""
        yield from self._append(rows)
        return finish(self._deliveries, rows.loaded)

    def _learn(self, data: Any, names: Names) -> None:
        """Let the compiled path take what comes later with the same schema, if it is so few rows."""
        path = self._core.arrow_path
        if path is not None and getattr(data, "num_rows", CHUNK + 1) <= CHUNK:
            path.learn(names[:4], plain_columns(data, names))

    def _topics_of(self, batch: Batch, names: list[str]) -> Steps[Step, list[TopicQueues | Exception]]:
        for name in names:
            yield from self._find(name)
        topics = [self._topics[name] for name in names]
        highest = batch.highest_partition()
        for place, queues in enumerate(topics):
            if not isinstance(queues, Exception) and highest >= len(queues):
                yield from self._wait_for_partition(queues, batch.highest_partition(place))
        return topics

    def _encode(self, batch: Batch, names: list[str], encoders: Encoders, first: int) -> Steps[Step, None]:
        for part, encoder in encoders.items():
            is_key = part == "key"
            for name in filter(None, names):
                yield PrepareColumn(encoder, name, is_key, self._budget)
            batch.encode(part, partial(encoder.encode, topics=names, first=first, is_key=is_key))
            if isinstance(encoder, AddsColumnHeaders):
                batch.add_headers(part, [encoder.headers(name, is_key=is_key) if name else () for name in names])

    def _load_lists(self, rows: Rows, names: list[str], first: int, lists: Lists) -> Steps[Step, None]:
        places = lists[4]
        yield from self._load(rows, [names[place] for place in places or [0] * len(lists[0])], first, *lists, None)

    def _load_columns(self, rows: Rows, first: int, batch: Batch, start: int, stop: int) -> None:
        rows.load_columns(first, start, stop, batch.value, batch.key, batch.headers, batch.timestamp, batch.codes, batch.partition, self._now())

    # ---- both -------------------------------------------------------------------------------------------------------

    def _find(self, name: str) -> Steps[Step, TopicQueues | Exception]:
        """A topic that a record names; an error where it is not known, with which its records are refused."""
        if name not in self._topics:
            try:
                self._topics[name] = yield from wait_for_topic(self._core, name, None, self._budget)
            except KafkaError as error:  # the records of this topic are refused, the others are not
                self._topics[name] = error
        return self._topics[name]

    def _wait_for_partition(self, queues: TopicQueues | Exception, partition: int) -> Steps[Step, None]:
        """P35: wait for a partition that a record names and that is not known; if it stays unknown, it is refused."""
        if isinstance(queues, Exception):
            return
        wanted = min(partition, LAST_PARTITION)
        if wanted > self._awaited.get(queues.topic, len(queues) - 1):
            self._awaited[queues.topic] = wanted
            with contextlib.suppress(KafkaError):
                yield from wait_for_topic(self._core, queues.topic, wanted, self._budget)

    def _append(self, rows: Rows) -> Steps[Step, None]:
        """Append the chunk, and wait for memory as often as needed; when none is granted, refuse the rest."""
        accumulator = self._core.accumulator

        def append(waiter: Waiter) -> None:
            accumulator.append_rows(rows, waiter)

        def enqueue(waiter: Waiter) -> None:
            accumulator.wait_rows(rows, waiter)

        try:
            while not accumulator.append_rows(rows):
                yield from append_when_granted(self._core, rows.topic, enqueue, append, self._budget)
        except KafkaError as error:
            self._stop = error.with_traceback(None)  # kept with each refused record, without the frames that raised it
        if self._stop is not None:
            self._refuse_loaded(rows, self._stop)
        self._reached = rows.first + rows.loaded

    def _refuse_loaded(self, rows: Rows, error: KafkaError) -> None:
        before = rows.decided
        while rows.position is not None:
            rows.reject(error)
        self._count_exhausted(rows.decided - before - 1, error)  # the first of them was counted by `Accumulator.exhausted`

    def _refuse(self, first: int, count: int, topic: str, error: KafkaError) -> None:
        """Refuse records that were not loaded."""
        reject_rows(self._deliveries, first, count, topic, error)
        self._count_exhausted(count, error)

    def _count_exhausted(self, count: int, error: KafkaError) -> None:
        if isinstance(error, BufferExhaustedError):
            self._core.accumulator.reject_rest(count)

    def _make_rows(self, topics: list[TopicQueues | Exception], names: list[str]) -> Rows:
        self._shown = 0
        self._places, self._names = {}, names
        refused = None if self._interceptors is None else self._interceptors.refused
        self._rows = Rows(self._deliveries, topics, names, _convert, self._key_hash, refused)
        return self._rows

    def _now(self) -> int:
        return self._core.environment.wall()


def arrow_columns(value: str | ColumnEncoder | None, key: str | ColumnEncoder | None, headers: str | None, timestamp: str | None,
                  topic: str | None, partition: str | None) -> tuple[Names, Encoders]:
    """The arguments of `send_arrow`: the columns' names, and what encodes them."""
    encoders = {part: given for part, given in (("value", value), ("key", key)) if given is not None and not isinstance(given, str)}
    for part, encoder in encoders.items():
        if not hasattr(encoder, "encode") or not hasattr(encoder, "column"):
            raise TypeError(f"{part} = {encoder!r}: expected a column's name, an encoder such as AvroEncoder, or None")
    names = {part: given if given is None or isinstance(given, str) else given.column or part for part, given in (("value", value), ("key", key))}
    return Names(names["value"], names["key"], headers, timestamp, topic, partition), encoders


def _check_encoders(encoders: Encoders, serialized: Collection[str]) -> None:
    for part in encoders:
        if part in serialized:
            raise ConfigurationError(f"{part}: the producer has a {part}_serializer, which would get what the encoder made; send_arrow with an encoder "
                                     f"needs a producer without a {part}_serializer")


def _columns(values: Iterable[Any], keys: Iterable[Any] | None, headers: Iterable[Any] | None,
             timestamps: Iterable[Any] | None) -> tuple[Sequence[Any] | None, ...]:
    """Copies of the user's lists, all of one length: the user may change the lists while a bulk waits."""
    given = {"values": values, "keys": keys, "headers": headers, "timestamps": timestamps}
    columns = {name: _sequence(name, items) for name, items in given.items() if items is not None}
    if "headers" in columns:
        columns["headers"] = [_pairs_of(each) for each in columns["headers"]]
    lengths = {name: len(items) for name, items in columns.items()}
    if len(set(lengths.values())) > 1:
        raise ValueError(f"a bulk needs one item per record in each list, but there are {', '.join(f'{n} {name}' for name, n in lengths.items())}")
    return tuple(columns.get(name) for name in given)


def _pairs_of(headers: Any) -> Any:
    return header_pairs(headers) if headers else ()


def _sequence(name: str, items: Any) -> list[Any]:
    if isinstance(items, (str, bytes, bytearray, memoryview)) or not isinstance(items, Iterable):
        raise TypeError(f"{name} is {type(items).__name__}: give a list with one item per record")
    return list(items)


def _check_topic(topic: object) -> None:
    if not isinstance(topic, str):
        raise TypeError(f"topic {topic!r} is {type(topic).__name__}, not a string")


def _check_known(queues: TopicQueues, partition: Any) -> int:
    number: int = partition if type(partition) is int else check_partition(partition)
    if not 0 <= number < len(queues):
        raise no_partition(queues.topic, len(queues), number)
    return number


def _convert(what: str, item: Any) -> Any:
    """Convert an item that is neither bytes nor None, or raise why it is refused."""
    if isinstance(item, _Refused):
        raise item.error
    if what == "timestamp":
        return check_timestamp(item)
    return item if what == "partition" else as_bytes(what, item)


def _serialized(serialize: Callable[..., Any], topic: str, item: Any, headers: Any) -> Any:
    return item if isinstance(item, _Refused) else _tried(serialize, topic, item, headers)


def _with_added(values: list[Any], keys: list[Any] | None, headers: list[Any]) -> tuple[list[Any], list[Any] | None, list[Any]]:
    """The chunk with the headers that the serializers added."""
    made = [with_added(key, value, pairs) for key, value, pairs in zip(keys or [None] * len(values), values, headers, strict=True)]
    return [value for _, value, _ in made], keys and [key for key, _, _ in made], [pairs for _, _, pairs in made]


def _tried(function: Callable[..., Any], *arguments: Any) -> Any:
    try:
        return function(*arguments)
    except Exception as error:  # noqa: BLE001 user code failed (a serializer or partitioner); only this record is refused
        return _Refused(error)
