"""Group assignors: which member of a group reads which partitions, as pure functions over plain data.

The group's leader runs one for all members. Groups mix clients of several languages, and any member may lead. So each
assignor returns what Java's assignor of the same name returns.
"""
from __future__ import annotations

from pyclient.assignors.range import RangeAssignor
from pyclient.assignors.roundrobin import RoundRobinAssignor
from pyclient.assignors.sticky import CooperativeStickyAssignor, StickyAssignor

__all__ = ["CooperativeStickyAssignor", "RangeAssignor", "RoundRobinAssignor", "StickyAssignor"]
