"""The states of a member of a group of the next generation (KIP-848), as a table (N02)."""
from __future__ import annotations

import enum
from typing import Final

from pyclient.core.transitions import Transitions


class State(enum.Enum):
    """Where a member stands. What it has to give up before it leaves, the consumer gives up first: there is no state for that."""

    OUT = "no member, or it has left, perhaps for want of a poll; joins with the next poll, if there is a subscription"
    LOSING = "the user's thread learns that its partitions are lost, before it joins"
    JOINING = "waits for the answer to a heartbeat in epoch 0"
    RECONCILING = "the user's thread gives up and takes over what the coordinator said"
    ACKNOWLEDGING = "has done that, and the coordinator has not heard of it yet"
    STABLE = "reads what it was given"
    FAILED = "cannot be a member as it is configured"


class Event(enum.Enum):
    """What can happen to a member."""

    JOIN = "the user polls: it joins, or joins again after it was away"
    LOST = "the group went on without it: its partitions are gone"
    GONE = "the user knows of everything that was lost"
    JOINED = "the coordinator has taken it in"
    TOLD = "there is something to give up or to take over"
    RECONCILED = "it has what it is to have, as far as names of topics are known"
    ACKNOWLEDGED = "the coordinator knows what it has"
    LEFT = "it leaves, or has not polled for too long"
    REFUSED = "the group does not take it"


MEMBERS: Final = frozenset({State.RECONCILING, State.ACKNOWLEDGING, State.STABLE})
"""Where it has an epoch."""
BEATING: Final = MEMBERS | {State.JOINING}

CONSUMER: Final = Transitions("consumer member", {
    (State.OUT, Event.JOIN): State.LOSING,
    (State.LOSING, Event.GONE): State.JOINING,
    (State.JOINING, Event.JOINED): State.STABLE,
    (State.STABLE, Event.TOLD): State.RECONCILING,
    (State.RECONCILING, Event.RECONCILED): State.ACKNOWLEDGING,
    (State.ACKNOWLEDGING, Event.ACKNOWLEDGED): State.STABLE,
    **{(state, Event.LOST): State.LOSING for state in State if state in MEMBERS},
    **{(state, Event.LEFT): State.OUT for state in State},
    **{(state, Event.REFUSED): State.FAILED for state in State if state in BEATING},
})
