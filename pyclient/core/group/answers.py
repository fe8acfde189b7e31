"""What a group's coordinator answers, as a call is to understand it."""
from __future__ import annotations

from typing import Final

from pyclient.core.calls import Again, Verdict
from pyclient.errors import CoordinatorNotAvailableError, NotCoordinatorError, RequestTimedOutError, error_for
from pyclient.records import TopicPartition

_ELSEWHERE: Final = (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)


def refused(code: int, group: str, where: TopicPartition | None = None) -> Verdict:
    """Again, perhaps at another broker, if waiting may help; else the error."""
    error = error_for(code, f"group {group!r}", topic_partition=where)
    return Again(error, elsewhere=isinstance(error, _ELSEWHERE)) if error.retriable else error
