"""Group assignors: which member of a group reads which partitions, as pure functions over plain data.

The group's leader runs one for all. Groups mix clients of several languages, and any member may be the leader: so each of these gives
what Java's assignor of that name gives. docs/assignors.md lists them, and where they differ from Java's.
"""
from __future__ import annotations

from pyclient.assignors.range import RangeAssignor
from pyclient.assignors.roundrobin import RoundRobinAssignor
from pyclient.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = ["CooperativeStickyAssignor", "RangeAssignor", "RoundRobinAssignor", "StickyAssignor"]
