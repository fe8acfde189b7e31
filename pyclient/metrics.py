"""What is measured, declared once, and the small registry that holds the numbers.

Names are Kafka's own. Updates cost well under a microsecond and happen per request or per batch, never per record.
Knows no clock: the time of a sample is passed in, as seconds that only grow.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from threading import RLock
from typing import Final, NamedTuple, TypeAlias

Labels = tuple[str, ...]


class MetricKind(Enum):
    """How updates become numbers: what is appended to the metric's name for each."""

    __hash__ = object.__hash__  # there is one of each; Enum's own is interpreted, and every update needs it

    METER = ("-total", "-rate")  # since the start; per second over the last windows
    SHARE = ("-time-ns-total", "-time-total", "-ratio")  # ns since the start, also under the name before Kafka 4; share of the last windows
    GAUGE = ("",)  # now
    SAMPLE = ("-avg", "-max")  # over the last windows
    AVERAGE = ("-avg",)


class Metric(NamedTuple):
    """A metric as declared. With ``labels`` it is told for each value of them, and without for all together."""

    name: str
    kind: MetricKind
    unit: str
    doc: str
    labels: Labels = ()
    role: str = ""
    """The clients that have it; empty: every one."""

    def names(self, labelled: bool = False) -> tuple[str, ...]:
        """The names of its numbers. Kafka calls the average of one topic as it calls the metric."""
        if labelled and self.kind is MetricKind.AVERAGE:
            return (self.name,)
        endings: tuple[str, ...] = self.kind.value
        return tuple(self.name + ending for ending in endings)


METER, SHARE, GAUGE, SAMPLE, AVERAGE = MetricKind.METER, MetricKind.SHARE, MetricKind.GAUGE, MetricKind.SAMPLE, MetricKind.AVERAGE
NODE: Final = ("node",)
TOPIC: Final = ("topic",)

REQUESTS = Metric("request", METER, "requests", "Requests sent.", NODE)
REQUEST_LATENCY = Metric("request-latency", SAMPLE, "ms", "From a request's sending to its answer.", NODE)
REQUESTS_IN_FLIGHT = Metric("requests-in-flight", GAUGE, "requests", "Requests sent and not answered yet.")
BYTES_OUT = Metric("outgoing-byte", METER, "B", "Bytes sent.")
BYTES_IN = Metric("incoming-byte", METER, "B", "Bytes received.")
CONNECTIONS = Metric("connection-count", GAUGE, "connections", "Open connections.")
CONNECTIONS_OPENED = Metric("connection-creation", METER, "connections", "Connections opened.")
CONNECTIONS_CLOSED = Metric("connection-close", METER, "connections", "Connections closed.")
METADATA_AGE = Metric("metadata-age", GAUGE, "s", "Since brokers told all of the metadata that is in use; left out until they did.")

RECORDS_SENT = Metric(
    "record-send", METER, "records", "Records acknowledged, or written with acks=0.", TOPIC, "producer")
RECORDS_FAILED = Metric("record-error", METER, "records", "Records whose delivery failed, those of a bulk that were refused included.", TOPIC, "producer")
RECORDS_RETRIED = Metric("record-retry", METER, "records", "Records sent again.", TOPIC, "producer")
RECORD_BYTES = Metric("byte", METER, "B", "Size of the batches sent, compressed, repetitions included.", TOPIC, "producer")
RECORD_SIZE = Metric("record-size", SAMPLE, "B", "Size of a record as sent, before compression.", (), "producer")
RECORDS_PER_REQUEST = Metric("records-per-request", AVERAGE, "records", "Records in a Produce request.", (), "producer")
RECORD_QUEUE_TIME = Metric(
    "record-queue-time", SAMPLE, "ms", "From the beginning of a batch to its sending: linger, and the wait for the broker.", (), "producer")
BATCHES = Metric("batch", METER, "batches", "Batches sent, repetitions included.", (), "producer")
BATCH_SPLITS = Metric("batch-split", METER, "batches", "Batches that were too large for a broker and travelled on in parts.", (), "producer")
BATCH_SIZE = Metric("batch-size", SAMPLE, "B", "Size of a sent batch, compressed.", (), "producer")
COMPRESSION = Metric(
    "compression-rate", AVERAGE, "1", "Size of a batch's records compressed, divided by their size before: less is better.", TOPIC, "producer")
BUFFER_TOTAL = Metric("buffer-total-bytes", GAUGE, "B", "Size of the producer's buffer, buffer_memory.", (), "producer")
BUFFER_AVAILABLE = Metric("buffer-available-bytes", GAUGE, "B", "What of it is free.", (), "producer")
BUFFER_WAIT = Metric(
    "bufferpool-wait", SHARE, "ns, 1", "How long senders have waited for room in the buffer, those who wait now included.", (), "producer")
BUFFER_EXHAUSTED = Metric("buffer-exhausted", METER, "records", "Records refused since the buffer stayed full.", (), "producer")
WAITING_THREADS = Metric("waiting-threads", GAUGE, "senders", "Threads or tasks that wait for room in the buffer.", (), "producer")
PRODUCE_THROTTLE = Metric(
    "produce-throttle-time", SAMPLE, "ms", "Silence that brokers asked for in answers to Produce.", (), "producer")

RECORDS_CONSUMED = Metric("records-consumed", METER, "records", "Records returned to the user.", (), "consumer")
FETCHES = Metric("fetch", METER, "requests", "Fetch requests answered.", (), "consumer")
FETCH_LATENCY = Metric("fetch-latency", SAMPLE, "ms", "From a fetch's sending to its answer, the broker's wait included.", (), "consumer")
FETCH_BUFFERED = Metric("fetch-buffer-bytes", GAUGE, "B", "Bytes fetched ahead of poll.", (), "consumer")
RECORDS_LAG = Metric(
    "records-lag-max", GAUGE, "records", "How far fetching is behind the end of the assigned partition that it is furthest behind in; left out until one is known.",
    (), "consumer")
TIME_BETWEEN_POLLS = Metric("time-between-poll", SAMPLE, "ms", "From a poll's beginning to the next one's.", (), "consumer")

ASSIGNED_PARTITIONS = Metric("assigned-partitions", GAUGE, "partitions", "Partitions this consumer reads.", (), "consumer")
REBALANCES = Metric("rebalance", METER, "rebalances", "Assignments that were taken over.", (), "consumer")
FAILED_REBALANCES = Metric("failed-rebalance", METER, "rebalances", "How often the group went on without this member, and its partitions were lost.", (), "consumer")
COMMITS = Metric("commit", METER, "requests", "Commits answered.", (), "consumer")
COMMIT_LATENCY = Metric("commit-latency", SAMPLE, "ms", "From a commit's sending to its answer.", (), "consumer")
HEARTBEATS = Metric("heartbeat", METER, "requests", "Heartbeats answered.", (), "consumer")
HEARTBEAT_TIME = Metric("heartbeat-response-time", SAMPLE, "ms", "From a heartbeat's sending to its answer.", (), "consumer")
JOINS = Metric("join", METER, "requests", "JoinGroup requests answered.", (), "consumer")
JOIN_TIME = Metric("join-time", SAMPLE, "ms", "From a JoinGroup's sending to its answer, the wait for the other members included.", (), "consumer")
SYNCS = Metric("sync", METER, "requests", "SyncGroup requests answered.", (), "consumer")
SYNC_TIME = Metric("sync-time", SAMPLE, "ms", "From a SyncGroup's sending to its answer, the wait for the leader included.", (), "consumer")

DECLARED: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

Key: TypeAlias = tuple[Metric, Labels]
Read: TypeAlias = Callable[[], "float | None"]
NANOSECONDS: Final = 1e9


class _Window:
    __slots__ = ("count", "highest", "since", "total")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.total = 0.0
        self.highest = float("-inf")


class _Mark(NamedTuple):
    """How high the totals stood when a window began."""

    at: float
    totals: Mapping[Key, float]


class Metrics:
    """The numbers of one client. Any thread may update and read.

    ``samples`` windows of ``window_s`` seconds are what averages, maxima and rates look back on (``metrics_num_samples``,
    ``metrics_sample_window_ms``). ``role`` has its totals told from the start, as 0.
    """

    def __init__(self, role: str | None = None, *, samples: int = 2, window_s: float = 30.0) -> None:
        self._samples = samples
        self._window_s = window_s
        self._lock = RLock()  # a signal's handler may ask for figures while they are made
        self._totals: dict[Key, float] = {}
        self._windows: dict[Key, deque[_Window]] = {}
        self._watched: dict[Metric, Read] = {}
        self._marks: deque[_Mark] = deque(maxlen=samples)
        self._next_mark = float("-inf")
        self._own = [metric for metric in DECLARED if metric.kind is METER and role is not None and metric.role in ("", role)]

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Count *amount* more."""
        key = (metric, labels)
        with self._lock:
            self._totals[key] = self._totals.get(key, 0) + amount

    def watch(self, metric: Metric, read: Read) -> None:
        """*read* gives the gauge's value, or the total so far, whenever somebody looks, by any thread; None is not known."""
        self._watched[metric] = read

    def sample(self, metric: Metric, value: float, now: float, *labels: str) -> None:
        """One measured *value*, taken at *now* (seconds)."""
        self.samples(metric, value, 1, value, now, *labels)

    def samples(self, metric: Metric, total: float, count: int, highest: float, now: float, *labels: str) -> None:
        """So many values with this sum, taken at *now*."""
        with self._lock:
            windows = self._windows.get((metric, labels))
            if windows is None:
                windows = self._windows[metric, labels] = deque(maxlen=self._samples)
            if not windows or now - windows[-1].since >= self._window_s:
                windows.append(_Window(now))
            window = windows[-1]
            window.count += count
            window.total += total
            window.highest = max(window.highest, highest)

    def turn(self, now: float) -> None:
        """Begin a window when the last one is over. To be called before totals grow: rates are what they grew by since."""
        if now < self._next_mark:
            return
        totals = self._all_totals()
        with self._lock:
            if now >= self._next_mark:
                self._next_mark = now + self._window_s
                self._marks.append(_Mark(now, totals))

    # ---- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self, now: float) -> Mapping[str, float]:
        """Every number by its name, such as ``request-latency-avg{node=1}``; averages without a sample are left out."""
        self.turn(now)
        totals, windows, mark = self._all_totals(), self._recent(now), self._base(now)
        found: dict[str, float] = {}
        for (metric, labels), total in totals.items():
            rate = self._rate(total - mark.totals.get((metric, labels), 0), now - mark.at)
            found |= _figures(metric, labels, total, rate)
        for (metric, labels), recent in windows.items():
            average = sum(window.total for window in recent) / sum(window.count for window in recent)
            found |= _figures(metric, labels, average, max(window.highest for window in recent))
        return found

    def _all_totals(self) -> dict[Key, float]:
        """Totals and gauges by their labels, and over all of them."""
        watched: dict[Key, float] = {(metric, ()): value for metric, read in list(self._watched.items()) if (value := read()) is not None}
        with self._lock:
            counted = dict(self._totals)
        together: dict[Key, float] = {(metric, ()): 0.0 for metric in self._own}
        for (metric, _), total in counted.items():
            together[metric, ()] = together.get((metric, ()), 0) + total
        return {**counted, **together, **watched}

    def _recent(self, now: float) -> dict[Key, list[_Window]]:
        """The windows that count, by labels and over all of them."""
        found: dict[Key, list[_Window]] = {}
        with self._lock:
            for (metric, labels), windows in self._windows.items():
                for key in {(metric, labels), (metric, ())}:
                    found.setdefault(key, []).extend(window for window in windows if self._counts(window.since, now))
        return {key: windows for key, windows in found.items() if windows}

    def _base(self, now: float) -> _Mark:
        """Where the oldest window that counts began."""
        with self._lock:
            return next(mark for mark in self._marks if self._counts(mark.at, now))

    def _counts(self, since: float, now: float) -> bool:
        return now - since < self._samples * self._window_s

    def _rate(self, growth: float, seconds: float) -> float:
        """Per second; young clients count as if they had been there for all windows but the last, as in Java: no peak at the start."""
        return growth / max(seconds, self._window_s * max(self._samples - 1, 1))


def _figures(metric: Metric, labels: Labels, *values: float) -> Iterable[tuple[str, float]]:
    if metric.kind is SHARE:
        nanoseconds = values[0] * NANOSECONDS
        values = (nanoseconds, nanoseconds, values[1])
    return [(_text(name, metric, labels), value) for name, value in zip(metric.names(bool(labels)), values, strict=False)]


def _text(name: str, metric: Metric, labels: Labels) -> str:
    if not labels:
        return name
    return f"{name}{{{','.join(f'{label}={value}' for label, value in zip(metric.labels, labels, strict=True))}}}"
