"""The topics that one member subscribes to, whichever its protocol: in the newest view of the cluster, which keeps them, and told of if unreadable.

Rule: what a subscription means is found anew with every view, for a pattern matches other topics then.
"""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyclient.core.group.subscription import Subscription
from pyclient.core.group.topic_errors import TopicErrors
from pyclient.core.metadata import Metadata
from pyclient.errors import KafkaError, TopicAuthorizationError

PIN: Final = "subscription"
FORBIDDEN: Final = TopicAuthorizationError.code


class TopicSubscription:
    """What one member subscribes to; false when it is nothing."""

    def __init__(self, group_id: str, metadata: Metadata) -> None:
        self.subscription = Subscription()
        self.topics: frozenset[str] = frozenset()
        """Those it means, as last resolved. What a pattern means that brokers match is not among them."""
        self._metadata = metadata
        self._unreadable = TopicErrors(group_id)
        self._view = 0

    def __bool__(self) -> bool:
        return bool(self.subscription)

    @property
    def described(self) -> frozenset[str]:
        """Those that the client may describe, as far as is known: for one that it may not a coordinator refuses all. If there are no others, all."""
        view = self._metadata.cluster.topics
        return frozenset(name for name in self.topics if name not in view or view[name].error != FORBIDDEN) or self.topics

    def resolve(self, also: Iterable[str] = ()) -> None:
        """Find the topics; they and *also* stay in the view."""
        self.topics = self.subscription.topics(self._metadata.cluster)
        self._metadata.follow_all(self.subscription.pattern is not None)
        self.keep(also)

    def keep(self, also: Iterable[str]) -> None:
        """The topics that it means and *also* stay in the view."""
        self._metadata.pin(sorted(self.topics.union(also)), PIN)

    def looks_anew(self) -> bool:
        """Look at the newest view: whether it is another one than at the last look."""
        before, self._view = self._view, self._metadata.cluster.version
        return self._view != before

    def trouble(self, topics: Iterable[str]) -> KafkaError | None:
        """What the user has to be told of these topics, which cannot be read (M03)."""
        return self._unreadable.look(topics, self._metadata.cluster)
