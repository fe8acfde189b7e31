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
from pyclient.core.silence import LONGEST_SILENCE_S
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
    """In a classic group the member's session timeout; with KIP-848 the broker has its own, and does not say it."""
    heartbeat_interval: float
    """KIP-848: only until the broker sets another one."""
    rebalance_timeout: float
    """max.poll.interval.ms: also the longest time between two polls."""
    request_timeout: float
    rack: str | None = None
    """KIP-848 only; in a classic group the assignors' subscriptions carry the rack."""
    remote_assignor: str | None = None
    """KIP-848 only: the broker's assignor; None leaves the choice to the broker."""


HEARTBEATS_IN_A_SESSION: Final = 3
"""At least so many intervals fit into any sensible session (Kafka's defaults: 15 in classic groups, 9 with KIP-848)."""


def silence_of_a_coordinator(request_timeout: float, third_of_session: float) -> float:
    """Seconds for the response to a heartbeat; after that its connection is closed, and a new one tried.

    The rest of the session must suffice for the next heartbeat to arrive. Heartbeats are answered at once, so this is
    no reason to wait for request_timeout_ms.
    """
    return min(request_timeout, max(LONGEST_SILENCE_S, third_of_session))


def refusal(api: Api, code: int, group: str, tp: TopicPartition | None = None, message: str | None = None,
            topics: Sequence[str] = ()) -> CallOutcome:
    """What a non-zero error code means: retry, perhaps at another broker, or fail.

    *message* is the broker's error message; *topics* are those the request named.
    """
    detail = f"group {group!r}: {message}" if message else f"group {group!r}"
    error = error_of(api, code, detail, group=group, tp=tp, topics=topics)
    return Again(error, elsewhere=isinstance(error, _COORDINATOR_MOVED)) if error.retriable else error
