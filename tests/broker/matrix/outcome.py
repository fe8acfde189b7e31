"""What a run of the scenario gives, as plain values that are equal in all cells of the matrix.

Texts lose what a run draws or measures: the suffix of its names, addresses, times, and how many requests are in flight
when a client is closed. The tables below say which values of metrics are compared, and with what.
"""
from __future__ import annotations

import contextlib
import difflib
import logging
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final, Self

import attrs

from pyclient import Record
from pyclient.metrics import (
    BATCH_SIZE, BYTES_IN, BYTES_OUT, COMPRESSION, DECLARED, FETCHES, Metric, MetricKind, RECORD_BYTES, REQUESTS, REQUESTS_IN_FLIGHT,
)
from tests.broker.matrix.scenario import Names, Seen

TIMES: Final = ("ms", "s", "ns", "ns, 1")
"""Units of time: these values, and all rates, are never compared."""
BY_CODEC: Final = frozenset({RECORD_BYTES, BATCH_SIZE, COMPRESSION})
"""What compression may change: the size of batches, and the ratio to their records."""
NOT_COMPARED: Final[Mapping[Metric, str]] = {
    BYTES_IN: "a real broker's answers name more APIs than the fake one's, and addresses of another length",
    BYTES_OUT: "the first request for metadata names the topics that calls have named before it is written",
    REQUESTS: "if it was written before a call has named its topic, it is followed by another",
}
RACING: Final[Mapping[str, frozenset[Metric]]] = {"consumer": frozenset({REQUESTS_IN_FLIGHT, FETCHES})}
"""What depends on which comes first, the broker's answer or the next call, by what `Seen.metrics` calls the client: a
fetch waits for a while, then comes the next one."""


@attrs.frozen
class Outcome:
    """What `differences` compares, and `sizes`, which depend on the codec."""

    delivered: Mapping[str, list[str]]
    read: Mapping[str, list[str]]
    committed: str
    errors: Mapping[str, str]
    lines: list[str]
    metrics: Mapping[str, list[str]]
    """The names of each client's metrics."""
    values: Mapping[str, Mapping[str, float]]
    """The values of those that depend on nothing but the scenario."""
    sizes: Mapping[str, Mapping[str, float]] = attrs.field(eq=False)
    """The values of `BY_CODEC`."""

    @classmethod
    def of(cls, seen: Seen, lines: list[str], names: Names) -> Self:
        def plain(value: object) -> str:
            return normal(str(value), names)

        def chosen(which: Callable[[str, str], bool]) -> Mapping[str, Mapping[str, float]]:
            return {client: {name: value for name, value in found.items() if which(client, name)} for client, found in metrics.items()}

        metrics = {client: {plain(name): value for name, value in found.items()} for client, found in seen.metrics.items()}
        return cls(
            delivered={what: [plain(tuple(each)) for each in those] for what, those in seen.delivered.items()},
            read={what: [plain(fields(each)) for each in those] for what, those in seen.read.items()},
            committed=plain(seen.committed),
            errors={what: plain(error) for what, error in seen.errors.items()},
            lines=sorted((plain(line) for line in lines if not one_state_more(line)), key=subject),
            metrics={client: sorted(found) for client, found in metrics.items()},
            values=chosen(is_steady_value),
            sizes=chosen(is_size),
        )


def differences(found: Outcome, expected: Outcome) -> list[str]:
    """A line with ``-`` for each value that is missing, and one with ``+`` for each that is there instead."""
    one, other = ([*leaves(attrs.asdict(each, filter=lambda field, _: bool(field.eq)))] for each in (expected, found))
    return [line for line in [*difflib.unified_diff(one, other, lineterm="", n=0)][2:] if not line.startswith("@@")]


def leaves(value: object, place: str = "") -> Iterator[str]:
    """A line for each value in *value*."""
    if isinstance(value, Mapping):
        for key in sorted(value):
            yield from leaves(value[key], f"{place} {key}")
    elif isinstance(value, list):
        for each in value:
            yield from leaves(each, place)
    else:
        yield f"{place}: {value}"


def fields(record: Record) -> tuple[Any, ...]:
    """All that a record has."""
    return tuple(getattr(record, name) for name in Record.__match_args__)


# ---- metrics --------------------------------------------------------------------------------------------------------

_DECLARED: Final = {name: metric for metric in DECLARED for labelled in (False, True) for name in metric.names(labelled)}


def is_steady_value(client: str, name: str) -> bool:
    """Whether the value depends on the scenario alone."""
    return is_steady(client, name) and declared(name) not in BY_CODEC


def is_size(client: str, name: str) -> bool:
    """Whether the value depends on the scenario and the codec."""
    return is_steady(client, name) and declared(name) in BY_CODEC


def is_steady(client: str, name: str) -> bool:
    """Whether the value is the same whenever and wherever the scenario runs."""
    return not (is_timed(name) or declared(name) in NOT_COMPARED or declared(name) in RACING.get(client, ()))


def is_timed(name: str) -> bool:
    metric = declared(name)
    return metric.unit in TIMES or (metric.kind is MetricKind.METER and name.partition("{")[0].endswith("-rate"))


def declared(name: str) -> Metric:
    """The metric that has this value."""
    return _DECLARED[name.partition("{")[0]]


# ---- texts ----------------------------------------------------------------------------------------------------------

_RULES: Final = {
    r" at [\w.-]+:\d+\b": "",  # only where it is not the host's name that is written before
    r"[\w.-]+:\d{4,5}\b": "ADDRESS",
    r"\d+(\.\d+)? (s|ms)\b": "TIME",
    r"\d+ requests? in flight": "REQUESTS in flight",
    r"TLS handshake done": "socket connected",  # see `one_state_more`
}


def normal(text: str, names: Names) -> str:
    """*text* without what a run draws or measures."""
    text = text.replace(names.suffix, "SUFFIX")
    for pattern, replacement in _RULES.items():
        text = re.sub(pattern, replacement, text)
    return text


def one_state_more(line: str) -> bool:
    """With TLS a connection has a state more (`pyclient.core.connection`), whose line is the only one left out."""
    return line.endswith("socket connected, TLS handshake next, now tls")


def subject(line: str) -> list[str]:
    """What the line is about, a connection for instance. Lines about one thing keep their order; there is no other."""
    return line.split(": ")[:2]


@contextlib.contextmanager
def listening() -> Iterator[list[str]]:
    """All that clients log, at every level."""
    handler, logger = _Lines(), logging.getLogger("pyclient")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield handler.lines
    finally:
        logger.setLevel(before)
        logger.removeHandler(handler)


class _Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        if not record.name.startswith("pyclient.testing"):
            raised = f" {record.exc_info[1]!r}" if record.exc_info else ""
            self.lines.append(f"{record.levelname} {record.name}: {record.getMessage()}{raised}")
