"""What a group's coordinator answers, as a call is to understand it."""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pyclient.codec.apis import Api
from pyclient.core.calls import Again, CallOutcome
from pyclient.core.acl_errors import error_of
from pyclient.errors import CoordinatorNotAvailableError, NotCoordinatorError, RequestTimedOutError
from pyclient.records import TopicPartition

_ELSEWHERE: Final = (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)


def refused(api: Api, code: int, group: str, where: TopicPartition | None = None, said: str | None = None,
            topics: Sequence[str] = ()) -> CallOutcome:
    """Again, perhaps at another broker, if waiting may help; else the error. *said* are the broker's own words,
    *topics* those it was asked about."""
    error = error_of(api, code, f"group {group!r}: {said}" if said else f"group {group!r}", group=group, where=where,
                     topics=topics)
    return Again(error, elsewhere=isinstance(error, _ELSEWHERE)) if error.retriable else error
