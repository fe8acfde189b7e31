"""Metrics: their declarations, and the registry that holds their values.

Names are Kafka's own. Updates cost well under a microsecond and happen per request or per batch, never per record.
Independent of clocks: the time of a sample is an argument, in monotonic seconds.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from threading import RLock
from typing import Final, NamedTuple, TypeAlias

from pyclient.held_lock import Held
from pyclient.metric_values import Total, Windows

Labels = tuple[str, ...]


class MetricKind(Enum):
    """How updates are aggregated: the suffix that each value appends to the metric's name."""

    __hash__ = object.__hash__  # members are singletons; Enum's own hash runs in Python, and every update needs it

    METER = ("-total", "-rate")  # since the start; per second over the last windows
    SHARE = ("-time-ns-total", "-time-total", "-ratio")  # ns since the start, also under the name before Kafka 4; share of the last windows
    GAUGE = ("",)  # now
    SAMPLE = ("-avg", "-max")  # over the last windows
    AVERAGE = ("-avg",)


class Metric(NamedTuple):
    """A metric as declared. With ``labels`` it has a value for each of them, and one for all together."""

    name: str
    kind: MetricKind
    unit: str
    doc: str
    labels: Labels = ()
    role: str = ""
    """The clients that have it; empty: every one."""

    def names(self, labelled: bool = False) -> tuple[str, ...]:
        """The names of its values. Kafka's name for the average of one topic is the metric's name."""
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
METADATA_AGE = Metric("metadata-age", GAUGE, "s", "Since the metadata of all topics in use was last refreshed; absent until then.")

RECORDS_SENT = Metric(
    "record-send", METER, "records", "Records acknowledged, or written with acks=0.", TOPIC, "producer")
RECORDS_FAILED = Metric("record-error", METER, "records", "Records whose delivery failed, including records of a bulk that were rejected.", TOPIC, "producer")
RECORDS_RETRIED = Metric("record-retry", METER, "records", "Records sent again.", TOPIC, "producer")
RECORD_BYTES = Metric("byte", METER, "B", "Size of the batches sent, compressed, retries included.", TOPIC, "producer")
RECORD_SIZE = Metric("record-size", SAMPLE, "B", "Size of a record as sent, before compression.", (), "producer")
RECORDS_PER_REQUEST = Metric("records-per-request", AVERAGE, "records", "Records in a Produce request.", (), "producer")
RECORD_QUEUE_TIME = Metric(
    "record-queue-time", SAMPLE, "ms", "From a batch's creation to its sending: linger, and the wait for the broker.", (), "producer")
BATCHES = Metric("batch", METER, "batches", "Batches sent, retries included.", (), "producer")
BATCH_SPLITS = Metric("batch-split", METER, "batches", "Batches that were too large for a broker and were split.", (), "producer")
BATCH_SIZE = Metric("batch-size", SAMPLE, "B", "Size of a sent batch, compressed.", (), "producer")
COMPRESSION = Metric(
    "compression-rate", AVERAGE, "1", "Compressed size of a batch's records divided by their uncompressed size: less is better.", TOPIC, "producer")
BUFFER_TOTAL = Metric("buffer-total-bytes", GAUGE, "B", "Size of the producer's buffer, buffer_memory.", (), "producer")
BUFFER_AVAILABLE = Metric("buffer-available-bytes", GAUGE, "B", "Free bytes of the producer's buffer.", (), "producer")
BUFFER_WAIT = Metric(
    "bufferpool-wait", SHARE, "ns, 1", "Time that send calls have waited for space in the buffer, including calls that wait now.", (), "producer")
BUFFER_EXHAUSTED = Metric("buffer-exhausted", METER, "records", "Records rejected because the buffer stayed full.", (), "producer")
WAITING_THREADS = Metric("waiting-threads", GAUGE, "senders", "Threads or tasks that wait for space in the buffer.", (), "producer")
PRODUCE_THROTTLE = Metric(
    "produce-throttle-time", SAMPLE, "ms", "Throttle time in Produce responses.", (), "producer")
TXN_INIT = Metric("txn-init-time-ns-total", GAUGE, "ns", "Time that init_transactions has taken; only of transactional producers, as the next four.", (), "producer")
TXN_BEGIN = Metric("txn-begin-time-ns-total", GAUGE, "ns", "Time that begin_transaction has taken.", (), "producer")
TXN_OFFSETS = Metric("txn-send-offsets-time-ns-total", GAUGE, "ns", "Time that send_offsets has taken.", (), "producer")
TXN_COMMIT = Metric("txn-commit-time-ns-total", GAUGE, "ns", "Time that commit_transaction has taken.", (), "producer")
TXN_ABORT = Metric("txn-abort-time-ns-total", GAUGE, "ns", "Time that abort_transaction has taken.", (), "producer")

RECORDS_CONSUMED = Metric("records-consumed", METER, "records", "Records returned to the user.", (), "consumer")
FETCHES = Metric("fetch", METER, "requests", "Fetch requests answered.", (), "consumer")
FETCH_LATENCY = Metric("fetch-latency", SAMPLE, "ms", "From a fetch's sending to its answer, including the broker's wait.", (), "consumer")
FETCH_BUFFERED = Metric("fetch-buffer-bytes", GAUGE, "B", "Bytes fetched ahead of poll.", (), "consumer")
RECORDS_LAG = Metric(
    "records-lag-max", GAUGE, "records", "Largest lag of fetching behind the end of an assigned partition; absent until one is known.",
    (), "consumer")
TIME_BETWEEN_POLLS = Metric("time-between-poll", SAMPLE, "ms", "From a poll's beginning to the next one's.", (), "consumer")

ASSIGNED_PARTITIONS = Metric("assigned-partitions", GAUGE, "partitions", "Partitions this consumer reads.", (), "consumer")
REBALANCES = Metric("rebalance", METER, "rebalances", "Assignments that this member adopted.", (), "consumer")
FAILED_REBALANCES = Metric("failed-rebalance", METER, "rebalances", "How often the group rebalanced without this member, so that it lost its partitions.", (), "consumer")
COMMITS = Metric("commit", METER, "requests", "Commits answered.", (), "consumer")
COMMIT_LATENCY = Metric("commit-latency", SAMPLE, "ms", "From a commit's sending to its answer.", (), "consumer")
HEARTBEATS = Metric("heartbeat", METER, "requests", "Heartbeats answered.", (), "consumer")
HEARTBEAT_TIME = Metric("heartbeat-response-time", SAMPLE, "ms", "From a heartbeat's sending to its answer.", (), "consumer")
JOINS = Metric("join", METER, "requests", "JoinGroup requests answered.", (), "consumer")
JOIN_TIME = Metric("join-time", SAMPLE, "ms", "From a JoinGroup's sending to its answer, including the wait for the other members.", (), "consumer")
SYNCS = Metric("sync", METER, "requests", "SyncGroup requests answered.", (), "consumer")
SYNC_TIME = Metric("sync-time", SAMPLE, "ms", "From a SyncGroup's sending to its answer, including the wait for the leader.", (), "consumer")

DECLARED: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))

Key: TypeAlias = tuple[Metric, Labels]
Read: TypeAlias = Callable[[], "float | None"]
NANOSECONDS: Final = 1e9


class _Mark(NamedTuple):
    """The totals at the start of a window."""

    at: float
    totals: Mapping[Key, float]


class Metrics:
    """The metrics of one client. Any thread may update and read.

    Averages, maxima and rates cover ``samples`` windows of ``window_s`` seconds (``metrics_num_samples``,
    ``metrics_sample_window_ms``). Totals of ``role`` are reported from the start, as 0.
    """

    def __init__(self, role: str | None = None, *, samples: int = 2, window_s: float = 30.0) -> None:
        self._samples = samples
        self._window_s = window_s
        self._lock = RLock()  # a signal handler may read metrics during an update
        self._totals: dict[Key, Total] = {}
        self._windows: dict[Key, Windows] = {}
        self._watched: dict[Metric, Read] = {}
        self._marks: deque[_Mark] = deque(maxlen=samples)
        self.next_mark = float("-inf")
        self._own = [metric for metric in DECLARED if metric.kind is METER and role is not None and metric.role in ("", role)]

    def total(self, metric: Metric, *labels: str) -> Total:
        """What counts this total; keep it where each request counts."""
        return self._totals.get((metric, labels)) or self._totals.setdefault((metric, labels), Total())

    def windows(self, metric: Metric, *labels: str) -> Windows:
        """What takes the samples of this metric; keep it where each request has some."""
        return self._windows.get((metric, labels)) or self._windows.setdefault((metric, labels), Windows(self._samples, self._window_s))

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Count *amount* more."""
        self.total(metric, *labels).add(amount)

    def watch(self, metric: Metric, read: Read) -> None:
        """*read* returns the gauge's value or the total so far, None while unknown. Any thread may call it."""
        self._watched[metric] = read

    def sample(self, metric: Metric, value: float, now: float, *labels: str) -> None:
        """Add one *value*, measured at *now* (seconds)."""
        self.windows(metric, *labels).add(value, 1, value, now)

    def samples(self, metric: Metric, total: float, count: int, highest: float, now: float, *labels: str) -> None:
        """Add *count* values with this sum and maximum, measured at *now*."""
        self.windows(metric, *labels).add(total, count, highest, now)

    def turn(self, now: float) -> None:
        """Start a new window when the last one is over. Call it before totals grow: rates are their growth since."""
        if now < self.next_mark:
            return
        totals = self._all_totals()
        with Held(self._lock):
            if now >= self.next_mark:
                self.next_mark = now + self._window_s
                self._marks.append(_Mark(now, totals))

    # ---- reading ----------------------------------------------------------------------------------------------------

    def snapshot(self, now: float) -> Mapping[str, float]:
        """Every number by its name, such as ``request-latency-avg{node=1}``; averages without a sample are absent."""
        self.turn(now)
        totals, windows, mark = self._all_totals(), self._recent(now), self._base(now)
        found: dict[str, float] = {}
        for (metric, labels), total in totals.items():
            rate = self._rate(total - mark.totals.get((metric, labels), 0), now - mark.at)
            found |= _figures(metric, labels, total, rate)
        for (metric, labels), recent in windows.items():
            average = sum(total for _, total, _ in recent) / sum(count for count, _, _ in recent)
            found |= _figures(metric, labels, average, max(highest for _, _, highest in recent))
        return found

    def _all_totals(self) -> dict[Key, float]:
        """Totals and gauges by their labels, and over all of them."""
        watched: dict[Key, float] = {(metric, ()): value for metric, read in list(self._watched.items()) if (value := read()) is not None}
        counted = {key: total.value for key, total in list(self._totals.items())}
        together: dict[Key, float] = {(metric, ()): 0.0 for metric in self._own}
        for (metric, _), total in counted.items():
            together[metric, ()] = together.get((metric, ()), 0) + total
        return {**counted, **together, **watched}

    def _recent(self, now: float) -> dict[Key, list[tuple[int, float, float]]]:
        """The windows that are recent enough, by labels and over all of them."""
        found: dict[Key, list[tuple[int, float, float]]] = {}
        for (metric, labels), windows in list(self._windows.items()):
            recent = windows.recent(now - self._samples * self._window_s)
            for key in {(metric, labels), (metric, ())}:
                found.setdefault(key, []).extend(recent)
        return {key: windows for key, windows in found.items() if windows}

    def _base(self, now: float) -> _Mark:
        """The mark of the oldest window that is recent enough."""
        with Held(self._lock):
            return next(mark for mark in self._marks if self._counts(mark.at, now))

    def _counts(self, since: float, now: float) -> bool:
        return now - since < self._samples * self._window_s

    def _rate(self, growth: float, seconds: float) -> float:
        """Growth per second. As in Java, at least all windows but the last count, so young clients show no peak."""
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
