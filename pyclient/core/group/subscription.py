"""What a consumer subscribes to: names, or a pattern that the client matches with every topic it knows."""
from __future__ import annotations

import re

import attrs

from pyclient.core.cluster import Cluster


@attrs.frozen
class Subscription:
    """Either *names*, or a *pattern* that has to match a topic's whole name; false when it is neither."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    internal: bool = False
    """Whether the pattern may match internal topics."""

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None

    def topics(self, cluster: Cluster) -> frozenset[str]:
        """The topics it means now."""
        if self.pattern is None:
            return self.names
        return frozenset(name for name, topic in cluster.topics.items()
                         if (self.internal or not topic.internal) and self.pattern.fullmatch(name))
