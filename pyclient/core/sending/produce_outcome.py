# cython: language_level=3, annotation_typing=False, freethreading_compatible=True
"""What the answer to Produce means for one partition's batch.

Pure functions; the test is a table of all error codes.
"""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaError, NotEnoughReplicasAfterAppendError, RecordTooLargeError, RequestTimedOutError, UnknownServerError
from pyclient.records import TopicPartition


MAYBE_WRITTEN: Final = (RequestTimedOutError, NotEnoughReplicasAfterAppendError, UnknownServerError)
"""Errors that a leader may answer after it has written the batch."""
UNKNOWN: Final = -1
PAST_OFFSETS: Final = 2**63 - 2**31
"""From here on the last record of a batch may have no offset of 64 bits."""
_UNKNOWN, _PAST_OFFSETS = UNKNOWN, PAST_OFFSETS


class Stored:
    """The batch is in the log from *base_offset* on (`UNKNOWN`: the broker does not say, or says what is no offset).

    *append_time* in ms is set if the broker timestamps records, else -1.
    """

    in_doubt = False
    __match_args__ = ("base_offset", "append_time")

    def __init__(self, base_offset: int, append_time: int = -1) -> None:
        self.base_offset = base_offset if 0 <= base_offset < _PAST_OFFSETS else _UNKNOWN
        self.append_time = append_time

    __hash__ = None  # type: ignore[assignment]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Stored) and (self.base_offset, self.append_time) == (other.base_offset, other.append_time)

    def __repr__(self) -> str:
        return f"Stored(base_offset={self.base_offset}, append_time={self.append_time})"


def stored_outcome(base_offset: int, append_time: int) -> Stored:
    """As `Stored`, which each batch gets."""
    made: Stored = Stored.__new__(Stored)
    made.base_offset = base_offset if 0 <= base_offset < _PAST_OFFSETS else _UNKNOWN
    made.append_time = append_time
    return made


@attrs.frozen
class TryAgain:
    """Not stored, or *in_doubt*: send it again after a pause; with *moved*, after a metadata update, since the leader
    may be another.
    """

    error: KafkaError
    moved: bool = False
    in_doubt: bool = False


@attrs.frozen
class GiveUp:
    """It would fail again: do not send it again."""

    error: KafkaError
    in_doubt: bool = False
    records: Mapping[int, str] = attrs.field(factory=dict)
    """The broker's reasons against single records of the batch, by their index (KIP-467)."""


@attrs.frozen
class Split:
    """Too large for the broker, which may accept smaller batches (P20)."""

    error: KafkaError
    in_doubt: ClassVar = False


ProduceOutcome: TypeAlias = Stored | TryAgain | GiveUp | Split


def produce_outcome(tp: TopicPartition, answer: Any) -> ProduceOutcome:
    """Classify a partition's answer by the properties of its error (`pyclient.errors`), not by lists of codes."""
    if not answer.error_code:
        return Stored(answer.base_offset, append_time(answer))
    error = error_of(Api.PRODUCE, answer.error_code, getattr(answer, "error_message", None), tp=tp)
    in_doubt = isinstance(error, MAYBE_WRITTEN)
    if isinstance(error, RecordTooLargeError):
        return Split(error)
    if error.retriable:
        return TryAgain(error, moved=error.refresh, in_doubt=in_doubt)
    return GiveUp(error, in_doubt, _record_errors(answer))


def _record_errors(answer: Any) -> dict[int, str]:
    errors = getattr(answer, "record_errors", None) or ()  # since version 8
    return {each.batch_index: each.batch_index_error_message or "no reason given" for each in errors}


def append_time(answer: Any) -> int:
    """The broker's timestamp in ms; -1 when the records keep the producer's."""
    moment = answer.log_append_time
    return -1 if moment is None else round(moment.timestamp() * 1000)
