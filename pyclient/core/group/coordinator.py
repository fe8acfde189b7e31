"""What every request to a group's coordinator needs: the member's identity, the group's options, and the meaning of
error codes.
"""
from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import attrs

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.calls import Again, CallOutcome
from pyclient.errors import CoordinatorNotAvailableError, NotCoordinatorError, RequestTimedOutError
from pyclient.records import NO_GENERATION, TopicPartition

NO_MEMBER: Final = ""
_COORDINATOR_MOVED: Final = (NotCoordinatorError, CoordinatorNotAvailableError, RequestTimedOutError)


@attrs.frozen
class Identity:
    """What a member's requests carry: its generation (KIP-848: its member epoch; -1 outside of a group) and its member
    id.
    """

    generation: int = NO_GENERATION
    member_id: str = NO_MEMBER

    @property
    def joined(self) -> bool:
        """Whether this is a member of a generation."""
        return self.generation > NO_GENERATION

    def without_generation(self) -> Identity:
        """The same member, outside of any generation."""
        return Identity(member_id=self.member_id)


@attrs.frozen(kw_only=True)
class GroupOptions:
    """The options that govern membership; times are in seconds."""

    group_id: str
    instance_id: str | None
    session_timeout: float
    """How long a coordinator may be silent before it is looked up again; in a classic group also the member's session
    timeout.
    """
    heartbeat_interval: float
    """KIP-848: only until the broker sets another one."""
    rebalance_timeout: float
    """max.poll.interval.ms: also the longest time between two polls."""
    request_timeout: float
    rack: str | None = None
    """KIP-848 only; in a classic group the assignors' subscriptions carry the rack."""
    remote_assignor: str | None = None
    """KIP-848 only: the broker's assignor; None leaves the choice to the broker."""


def refusal(api: Api, code: int, group: str, tp: TopicPartition | None = None, message: str | None = None,
            topics: Sequence[str] = ()) -> CallOutcome:
    """What a non-zero error code means: retry, perhaps at another broker, or fail.

    *message* is the broker's error message; *topics* are those the request named.
    """
    detail = f"group {group!r}: {message}" if message else f"group {group!r}"
    error = error_of(api, code, detail, group=group, tp=tp, topics=topics)
    return Again(error, elsewhere=isinstance(error, _COORDINATOR_MOVED)) if error.retriable else error
