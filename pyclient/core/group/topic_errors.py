"""Topics that are subscribed to and cannot be read: each is told of once, until it can (M03)."""
from __future__ import annotations

import logging
from collections.abc import Iterable

from pyclient.codec.apis import Api
from pyclient.core.cluster import Cluster
from pyclient.core.acl_errors import error_of
from pyclient.errors import KafkaError, UnknownTopicOrPartitionError

_log = logging.getLogger(__name__)


class TopicErrors:
    """What one member has been told of already."""

    def __init__(self, group_id: str) -> None:
        self._group_id = group_id
        self._told: set[str] = set()

    def look(self, topics: Iterable[str], cluster: Cluster) -> KafkaError | None:
        """What poll has to raise, as waiting hardly cures it; of a topic that is not there the log has a line, for it may come."""
        for name in sorted(topics):
            topic = cluster.topics.get(name)
            if topic is None or not topic.error:
                self._told.discard(name)
            elif name not in self._told:
                error = error_of(Api.METADATA, topic.error, f"topic {name!r}", topics=[name])
                if isinstance(error, UnknownTopicOrPartitionError):
                    self._told.add(name)
                    _log.warning("group %r: topic %r does not exist (yet): create it, or check its name; it is read as soon as it is there",
                                 self._group_id, name)
                elif not error.retriable:
                    self._told.add(name)
                    return error
        return None
