"""Which broker answers for which partition, over as many rounds as leaders need to settle."""
from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final, TypeVar

from pyclient.codec.apis import Api
from pyclient.core.acl_errors import error_of
from pyclient.core.cluster import Cluster
from pyclient.errors import BrokerNotAvailableError, KafkaError, LeaderNotAvailableError, UnknownTopicOrPartitionError
from pyclient.records import TopicPartition

Key = TypeVar("Key", bound=Hashable)
MOST_ROUNDS: Final = 5
"""Rounds in which a partition may be unknown: a broker learns of a new topic a little later than the controller."""


def missing(nodes: Mapping[int | None, Sequence[Key]], known: Collection[int]) -> dict[Key, KafkaError]:
    """The error of each item whose node is not among the *known* ones; None is any node."""
    return {item: _no_broker(node, known) for node, items in nodes.items() if node is not None and node not in known for item in items}


def _no_broker(node: int, known: Collection[int]) -> KafkaError:
    return BrokerNotAvailableError(f"broker {node} is not in the cluster, whose nodes are {', '.join(map(str, sorted(known)))}: check its id, and that it runs")


class LeaderRounds:
    """Partitions whose leaders are to be asked. Each round asks the leaders of those that have no answer yet.

    A partition that has no leader, or whose answer is a retriable error, waits for the next round.
    """

    def __init__(self, partitions: Iterable[TopicPartition]) -> None:
        self.answers: dict[TopicPartition, Any] = {}
        """The result of each partition, or the error that ended it."""
        self.rounds = 0
        self._open: dict[TopicPartition, KafkaError | None] = dict.fromkeys(partitions)

    @property
    def topics(self) -> list[str]:
        """The topics of the next round."""
        return list(dict.fromkeys(tp.topic for tp in self._open))

    @property
    def finished(self) -> bool:
        """Whether every partition has its answer."""
        return not self._open

    def by_leader(self, cluster: Cluster) -> dict[int, list[TopicPartition]]:
        """Begin a round: the open partitions by the node that leads each in *cluster*."""
        self.rounds += 1
        leaders: dict[int, list[TopicPartition]] = {}
        for tp in list(self._open):
            leader = cluster.leader(tp)
            if leader is None:
                self.take({tp: self._why_none(tp, cluster)})
            else:
                leaders.setdefault(leader, []).append(tp)
        return leaders

    def former_leaders(self, nodes: Mapping[int, Sequence[TopicPartition]], cluster: Cluster) -> list[int]:
        """Of the *nodes* that were asked, those that lead none of their partitions in a newer *cluster*.

        Their answers are not worth waiting for. The partitions stay open for the next round.
        """
        return [node for node, tps in nodes.items() if node not in map(cluster.leader, tps)]

    def take(self, answers: Mapping[TopicPartition, object]) -> None:
        """Answers of a round: a result or an error for each partition."""
        for tp, answer in answers.items():
            if isinstance(answer, KafkaError) and answer.retriable and not self._is_unknown(answer):
                self._open[tp] = answer
            else:
                self.answers[tp] = answer
                self._open.pop(tp, None)

    def give_up(self, late: KafkaError) -> None:
        """No time is left: partitions without an answer get their last error, or *late*."""
        for tp, error in self._open.items():
            self.answers[tp] = error or late
        self._open.clear()

    def _is_unknown(self, error: KafkaError) -> bool:
        return isinstance(error, UnknownTopicOrPartitionError) and self.rounds >= MOST_ROUNDS

    def _why_none(self, tp: TopicPartition, cluster: Cluster) -> KafkaError:
        topic = cluster.topics.get(tp.topic)
        if topic is not None and topic.error:
            return error_of(Api.METADATA, topic.error, f"topic {tp.topic!r}", topics=[tp.topic])
        if cluster.partition(tp) is None:
            return UnknownTopicOrPartitionError("this partition does not exist", topic_partition=tp)
        return LeaderNotAvailableError("this partition has no leader", topic_partition=tp)
