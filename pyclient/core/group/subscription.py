"""What a consumer subscribes to, the topics this means in the newest view of the cluster, and the errors of those
topics.

Rule: a subscription is resolved again with every new view, because a pattern may match other topics.
"""
from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

import attrs

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.cluster import Cluster
from pyclient.core.metadata import Metadata
from pyclient.errors import KafkaError, TopicAuthorizationError
from pyclient.records import SubscriptionPattern

PIN: Final = "subscription"
FORBIDDEN: Final = TopicAuthorizationError.code


@attrs.frozen
class Subscription:
    """Topic *names*, a *pattern* for the client, or a pattern for the brokers; false when it is none of them.

    The client matches *pattern* with the whole name of every topic it knows.
    """

    names: frozenset[str] = frozenset()
    pattern: re.Pattern[str] | None = None
    internal: bool = False
    """Whether the pattern may match internal topics."""
    brokers_pattern: SubscriptionPattern | None = None
    """Only with the consumer protocol (KIP-848, N09)."""

    def __bool__(self) -> bool:
        return bool(self.names) or self.pattern is not None or self.brokers_pattern is not None

    def topics(self, cluster: Cluster) -> frozenset[str]:
        """The topics it means now; empty for a pattern for the brokers, as only they know which topics it matches."""
        if self.pattern is None:
            return self.names
        return frozenset(name for name in cluster.topics if self._matches(name, cluster))

    def may_include(self, topic: str, cluster: Cluster) -> bool:
        """Whether it includes *topic*, which need not exist; true of any topic if only brokers can decide."""
        if self.pattern is not None:
            return self._matches(topic, cluster)
        return topic in self.names or self.brokers_pattern is not None

    def _matches(self, name: str, cluster: Cluster) -> bool:
        topic = cluster.topics.get(name)
        return self.pattern is not None and (self.internal or topic is None or not topic.internal) and self.pattern.fullmatch(name) is not None


class TopicSubscription:
    """A member's subscription, resolved to topics that stay in the view of the cluster.

    False while it subscribes to nothing.
    """

    def __init__(self, metadata: Metadata) -> None:
        self.subscription = Subscription()
        self.topics: frozenset[str] = frozenset()
        """The topics as last resolved; empty for a pattern that brokers match."""
        self._metadata = metadata
        self._topic_errors = TopicErrors()
        self._view = 0

    def __bool__(self) -> bool:
        return bool(self.subscription)

    def may_include(self, topic: str) -> bool:
        """As `Subscription.may_include`, in the newest view."""
        return self.subscription.may_include(topic, self._metadata.cluster)

    @property
    def describable(self) -> frozenset[str]:
        """The topics that the client may describe, as far as it knows; all topics if there would be none.

        A coordinator refuses a whole subscription that names one topic without this right.
        """
        view = self._metadata.cluster.topics
        return frozenset(name for name in self.topics if name not in view or view[name].error != FORBIDDEN) or self.topics

    def resolve(self, also: Iterable[str] = ()) -> None:
        """Find the topics in the newest view; they and *also* stay in the view."""
        self.topics = self.subscription.topics(self._metadata.cluster)
        self._metadata.follow_all(self.subscription.pattern is not None)
        self.keep(also)

    def keep(self, also: Iterable[str]) -> None:
        """Keep the topics and *also* in the view."""
        self._metadata.pin(sorted(self.topics.union(also)), PIN)

    def view_changed(self) -> bool:
        """Whether the view of the cluster is another one than at the last call."""
        before, self._view = self._view, self._metadata.cluster.version
        return self._view != before

    def topic_error(self, topics: Iterable[str]) -> KafkaError | None:
        """An error of one of *topics* that ``poll`` has to raise (M03)."""
        return self._topic_errors.check(topics, self._metadata.cluster)


class TopicErrors:
    """Errors of subscribed topics; each is reported once, until the topic is readable again (M03)."""

    def __init__(self) -> None:
        self._reported: set[str] = set()

    def check(self, topics: Iterable[str], cluster: Cluster) -> KafkaError | None:
        """The next error that ``poll`` has to raise because waiting will not cure it.

        A topic that does not exist is only logged, by `pyclient.core.outages`: it may be created.
        """
        for name in sorted(topics):
            topic = cluster.topics.get(name)
            if topic is None or not topic.error:
                self._reported.discard(name)
            elif name not in self._reported:
                error = error_of(Api.METADATA, topic.error, f"topic {name!r}", topics=[name])
                if not error.retriable:
                    self._reported.add(name)
                    return error
        return None
