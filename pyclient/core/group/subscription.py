"""What a consumer subscribes to: names, a pattern that the client matches with every topic it knows, or one that brokers match."""
from __future__ import annotations

import re

import attrs

from pyclient.core.cluster import Cluster
from pyclient.records import SubscriptionPattern


@attrs.frozen
class Subscription:
    """Either *names*, a *pattern* that has to match a topic's whole name, or one for the brokers; false when it is none of them."""

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    internal: bool = False
    """Whether the pattern may match internal topics."""
    brokers_pattern: SubscriptionPattern | None = None
    """Only in a group of the next generation (N09)."""

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None or self.brokers_pattern is not None

    def topics(self, cluster: Cluster) -> frozenset[str]:
        """The topics it means now; which ones a pattern for the brokers means, only they know."""
        if self.pattern is None:
            return self.names
        return frozenset(name for name, topic in cluster.topics.items()
                         if (self.internal or not topic.internal) and self.pattern.fullmatch(name))
