"""What is measured, declared once, and the small registry that holds the numbers.

Names are Kafka's own. Updates cost well under a microsecond and happen per request or per batch, never per record.
Knows no clock: the time of a sample is passed in, as seconds that only grow.
"""
from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from enum import Enum
from threading import Lock
from typing import Final, NamedTuple

Labels = tuple[str, ...]


class MetricKind(Enum):
    """How samples become numbers."""

    COUNTER = "total since the start"
    GAUGE = "the value now"
    SAMPLE = "average and maximum over the last windows"


class Metric(NamedTuple):
    """A metric as declared; the value of each of its ``labels`` is given with every update."""

    name: str
    kind: MetricKind
    unit: str
    doc: str
    labels: Labels = ()


COUNTER, GAUGE, SAMPLE = MetricKind.COUNTER, MetricKind.GAUGE, MetricKind.SAMPLE

REQUESTS = Metric("request-total", COUNTER, "requests", "Requests sent, by node.", ("node",))
REQUEST_LATENCY = Metric("request-latency", SAMPLE, "ms", "From a request's sending to its answer, by node.", ("node",))
BYTES_OUT = Metric("outgoing-byte-total", COUNTER, "B", "Bytes sent.")
BYTES_IN = Metric("incoming-byte-total", COUNTER, "B", "Bytes received.")
CONNECTIONS = Metric("connection-count", GAUGE, "connections", "Open connections.")
CONNECTIONS_OPENED = Metric("connection-creation-total", COUNTER, "connections", "Connections opened.")
CONNECTIONS_CLOSED = Metric("connection-close-total", COUNTER, "connections", "Connections closed.")

RECORDS_SENT = Metric("record-send-total", COUNTER, "records", "Records acknowledged, or written with acks=0.")
RECORDS_FAILED = Metric("record-error-total", COUNTER, "records", "Records whose delivery failed.")
RECORDS_RETRIED = Metric("record-retry-total", COUNTER, "records", "Records sent again.")
BATCHES = Metric("batch-total", COUNTER, "batches", "Batches sent, repetitions included.")
BATCH_SIZE = Metric("batch-size", SAMPLE, "B", "Size of a sent batch, compressed.")
RECORDS_PER_BATCH = Metric("records-per-batch", SAMPLE, "records", "Records in a sent batch.")
BUFFER_TOTAL = Metric("buffer-total-bytes", GAUGE, "B", "Size of the producer's buffer, buffer_memory.")
BUFFER_AVAILABLE = Metric("buffer-available-bytes", GAUGE, "B", "What of it is free.")

RECORDS_CONSUMED = Metric("records-consumed-total", COUNTER, "records", "Records returned to the user.")
FETCHES = Metric("fetch-total", COUNTER, "requests", "Fetch requests answered.")
FETCH_LATENCY = Metric("fetch-latency", SAMPLE, "ms", "From a fetch's sending to its answer, the broker's wait included.")
FETCH_BUFFERED = Metric("fetch-buffer-bytes", GAUGE, "B", "Bytes fetched ahead of poll.")

DECLARED: Final[tuple[Metric, ...]] = tuple(value for value in list(globals().values()) if isinstance(value, Metric))


class _Window:
    __slots__ = ("count", "highest", "since", "total")

    def __init__(self, since: float) -> None:
        self.since = since
        self.count = 0
        self.total = 0.0
        self.highest = float("-inf")


class Metrics:
    """The numbers of one client. Any thread may update and read.

    ``samples`` windows of ``window_s`` seconds are what averages and maxima look back on (``metrics_num_samples``,
    ``metrics_sample_window_ms``).
    """

    def __init__(self, *, samples: int = 2, window_s: float = 30.0) -> None:
        self._samples = samples
        self._window_s = window_s
        self._lock = Lock()
        self._totals: dict[tuple[Metric, Labels], float] = {}
        self._windows: dict[tuple[Metric, Labels], deque[_Window]] = {}
        self._watched: dict[Metric, Callable[[], float]] = {}

    def add(self, metric: Metric, amount: float = 1, *labels: str) -> None:
        """Count *amount* more."""
        key = (metric, labels)
        with self._lock:
            self._totals[key] = self._totals.get(key, 0) + amount

    def put(self, metric: Metric, value: float, *labels: str) -> None:
        """The gauge stands at *value* now."""
        with self._lock:
            self._totals[metric, labels] = value

    def watch(self, metric: Metric, read: Callable[[], float]) -> None:
        """*read* gives the gauge's value whenever somebody looks: it costs nothing in between."""
        with self._lock:
            self._watched[metric] = read

    def sample(self, metric: Metric, value: float, now: float, *labels: str) -> None:
        """One measured *value*, taken at *now* (seconds)."""
        with self._lock:
            windows = self._windows.setdefault((metric, labels), deque(maxlen=self._samples))
            if not windows or now - windows[-1].since >= self._window_s:
                windows.append(_Window(now))
            window = windows[-1]
            window.count += 1
            window.total += value
            window.highest = max(window.highest, value)

    def snapshot(self, now: float) -> Mapping[str, float]:
        """Every number by its name, such as ``request-latency-avg{node=1}``; samples out of their windows are left out."""
        with self._lock:
            found = {_text(metric.name, metric, labels): value for (metric, labels), value in self._totals.items()}
            for (metric, labels), windows in self._windows.items():
                found |= self._averages(metric, labels, windows, now)
            watched = list(self._watched.items())
        return found | {metric.name: read() for metric, read in watched}

    def _averages(self, metric: Metric, labels: Labels, windows: deque[_Window], now: float) -> dict[str, float]:
        recent = [window for window in windows if now - window.since < self._samples * self._window_s]
        if not recent:
            return {}
        average = sum(window.total for window in recent) / sum(window.count for window in recent)
        return {
            _text(f"{metric.name}-avg", metric, labels): average,
            _text(f"{metric.name}-max", metric, labels): max(window.highest for window in recent),
        }


def _text(name: str, metric: Metric, labels: Labels) -> str:
    if not labels:
        return name
    return f"{name}{{{','.join(f'{label}={value}' for label, value in zip(metric.labels, labels, strict=True))}}}"
