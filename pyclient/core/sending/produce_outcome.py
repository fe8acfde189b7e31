"""What one partition's part of a Produce answer means. Pure; its test is a table."""
from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Final, TypeAlias

import attrs

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaError, NotEnoughReplicasAfterAppendError, RecordTooLargeError, RequestTimedOutError, UnknownServerError
from pyclient.records import TopicPartition


OPEN_ENDED: Final = (RequestTimedOutError, NotEnoughReplicasAfterAppendError, UnknownServerError)
"""The leader may have written the batch before it answered this."""


@attrs.frozen
class Stored:
    """The batch is in the log from *base_offset* on; *append_time* (ms) is set where the broker stamps records, else -1."""

    base_offset: int
    append_time: int = -1
    in_doubt: ClassVar = False


@attrs.frozen
class TryAgain:
    """Not stored, or *in_doubt*: send it again after a pause; with *moved*, to the leader that metadata will tell."""

    error: KafkaError
    moved: bool = False
    in_doubt: bool = False


@attrs.frozen
class GiveUp:
    """Sending it again would not help."""

    error: KafkaError
    in_doubt: bool = False
    records: Mapping[int, str] = attrs.field(factory=dict)
    """What the broker has against single records of the batch, by their index (KIP-467)."""


@attrs.frozen
class Split:
    """Too large for the broker: smaller parts of it may be taken (P20)."""

    error: KafkaError
    in_doubt: ClassVar = False


Verdict: TypeAlias = Stored | TryAgain | GiveUp | Split


def judge(where: TopicPartition, answer: Any) -> Verdict:
    """Classify by the error's facts (errors.py), not by lists of codes."""
    if not answer.error_code:
        return Stored(answer.base_offset, append_time(answer))
    error = error_of(Api.PRODUCE, answer.error_code, getattr(answer, "error_message", None), tp=where)
    in_doubt = isinstance(error, OPEN_ENDED)
    if isinstance(error, RecordTooLargeError):
        return Split(error)
    if error.retriable:
        return TryAgain(error, moved=error.refresh, in_doubt=in_doubt)
    return GiveUp(error, in_doubt, _of_single_records(answer))


def _of_single_records(answer: Any) -> dict[int, str]:
    errors = getattr(answer, "record_errors", None) or ()  # since version 8
    return {each.batch_index: each.batch_index_error_message or "it says no more" for each in errors}


def append_time(answer: Any) -> int:
    """The broker's timestamp in ms, -1 when the producer's stand."""
    moment = answer.log_append_time
    return -1 if moment is None else round(moment.timestamp() * 1000)
