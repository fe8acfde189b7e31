"""The states of a member of a classic group, as a table (G01)."""
from __future__ import annotations

import enum
from typing import Final

from pyclient.core.transitions import Transitions


class State(enum.Enum):
    """Where a member stands."""

    OUT = "no member; joins with the next poll, if there is a subscription"
    GIVING_UP = "the user's thread gives partitions up before it joins"
    JOINING = "waits for the others to join"
    ASSIGNING = "as the leader, shares the partitions out"
    SYNCING = "waits for its assignment"
    TAKING_OVER = "the user's thread carries the assignment out"
    STABLE = "reads what it was given"
    FAILED = "cannot be a member as it is configured"


class Event(enum.Enum):
    """What can happen to a member."""

    REJOIN = "it has to join again: partitions may have to be given up first"
    LOST = "the group goes on without it: its partitions are gone"
    GIVEN_UP = "nothing stands in the way of joining any more"
    LEADS = "all have joined, and it is the leader"
    FOLLOWS = "all have joined, and somebody else is the leader, or nothing is to be shared out"
    SHARED_OUT = "every member's part is known"
    ASSIGNED = "its part has come"
    TAKEN_OVER = "the user's thread has carried the assignment out"
    LEFT = "it leaves, or has not polled for too long"
    REFUSED = "the group does not take it"


BEATING: Final = frozenset({State.GIVING_UP, State.ASSIGNING, State.SYNCING, State.TAKING_OVER, State.STABLE})
"""Where heartbeats tell that the member lives; while it is joining, the request that waits does."""
UNSETTLED: Final = frozenset({State.ASSIGNING, State.SYNCING})
"""Where the coordinator takes no commits, until all have their assignment."""

CLASSIC: Final = Transitions("classic member", {
    (State.OUT, Event.REJOIN): State.GIVING_UP,
    (State.GIVING_UP, Event.GIVEN_UP): State.JOINING,
    (State.JOINING, Event.LEADS): State.ASSIGNING,
    (State.JOINING, Event.FOLLOWS): State.SYNCING,
    (State.ASSIGNING, Event.SHARED_OUT): State.SYNCING,
    (State.SYNCING, Event.ASSIGNED): State.TAKING_OVER,
    (State.TAKING_OVER, Event.TAKEN_OVER): State.STABLE,
    **{(state, Event.REJOIN): State.GIVING_UP for state in (State.JOINING, State.ASSIGNING, State.SYNCING, State.STABLE)},
    **{(state, Event.LOST): State.GIVING_UP for state in (State.GIVING_UP, State.JOINING, State.ASSIGNING, State.SYNCING,
                                                         State.TAKING_OVER, State.STABLE)},
    **{(state, Event.LEFT): State.OUT for state in State},
    **{(state, Event.REFUSED): State.FAILED for state in State if state not in (State.OUT, State.FAILED)},
})
