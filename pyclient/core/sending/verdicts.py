"""What one partition's part of a Produce answer means. Pure; its test is a table."""
from __future__ import annotations

from typing import Any, ClassVar, Final, TypeAlias

import attrs

from pyclient.errors import KafkaError, NotEnoughReplicasAfterAppendError, RequestTimedOutError, UnknownServerError, error_for
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


Verdict: TypeAlias = Stored | TryAgain | GiveUp


def judge(where: TopicPartition, answer: Any) -> Verdict:
    """Classify by the error's facts (errors.py), not by lists of codes."""
    if not answer.error_code:
        return Stored(answer.base_offset, append_time(answer))
    error = error_for(answer.error_code, getattr(answer, "error_message", None), topic_partition=where)
    in_doubt = isinstance(error, OPEN_ENDED)
    return TryAgain(error, moved=error.refresh, in_doubt=in_doubt) if error.retriable else GiveUp(error, in_doubt=in_doubt)


def append_time(answer: Any) -> int:
    """The broker's timestamp in ms, -1 when the producer's stand."""
    moment = answer.log_append_time
    return -1 if moment is None else round(moment.timestamp() * 1000)
