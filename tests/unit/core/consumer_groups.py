"""A member of a group of the next generation in its world: the test is the coordinator, and the user who polls."""
from __future__ import annotations

import datetime
import re
from collections.abc import Iterable, Mapping
from random import Random
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.consumer_member import ConsumerMember
from pyclient.core.group.coordinator import GroupOptions
from pyclient.core.group.subscription import Subscription
from pyclient.records import SubscriptionPattern, TopicPartition
from tests.unit.core.groups import HEARTBEAT, REBALANCE, SESSION, Rig
from tests.unit.core.world import DOUBLING, Sent, topic_id

INTERVAL: Final = 5.0
"""What the coordinator says; what the options say is `HEARTBEAT`."""
BEAT: Final = Api.CONSUMER_GROUP_HEARTBEAT


class Consumer(Rig):
    """One of a group ``g``."""

    group: ConsumerMember

    def __init__(self, *, instance: str | None = None, seed: int = 0, **options: Any) -> None:
        super().__init__()
        self.epoch = 0
        self.group = ConsumerMember(
            GroupOptions(group_id="g", instance_id=instance, session_timeout=SESSION, heartbeat_interval=HEARTBEAT,
                         rebalance_timeout=REBALANCE, request_timeout=30.0, **options),
            self.calls, self.metadata, random=Random(seed), backoff=DOUBLING, notify_user=self.told)

    # ---- the user -----------------------------------------------------------------------------------------------

    def matches(self, pattern: str) -> None:
        """It subscribes to what brokers match."""
        self.group.subscribe(Subscription(brokers_pattern=SubscriptionPattern(pattern)))

    def matches_itself(self, pattern: str) -> None:
        """It subscribes to what the client matches."""
        self.group.subscribe(Subscription(pattern=re.compile(pattern)))

    # ---- the coordinator ----------------------------------------------------------------------------------------

    def beats(self, after: float = 0.0) -> Sent:
        """The one heartbeat that goes out, so many seconds later."""
        self.world.after(after)
        return self.sends(BEAT)

    def told_to_have(self, sent: Sent, *partitions: TopicPartition, epoch: int | None = None, interval: float = INTERVAL) -> None:
        """A heartbeat is answered with an assignment."""
        self.heard(sent, assignment={"topic_partitions": by_topic(partitions)}, epoch=epoch, interval=interval)

    def heard(self, sent: Sent, *, epoch: int | None = None, assignment: Mapping[str, object] | None = None, interval: float = INTERVAL) -> None:
        """A heartbeat is answered."""
        told = self.epoch + 1 if epoch is None else epoch
        self.epoch = max(told, self.epoch)
        sent.reply(member_id=self.group.identity.member_id, member_epoch=told, heartbeat_interval=datetime.timedelta(seconds=interval),
                   assignment=assignment)

    def refused(self, sent: Sent, code: int, said: str | None = None) -> None:
        sent.reply(error_code=code, error_message=said, member_id=None, member_epoch=0, heartbeat_interval=datetime.timedelta(0), assignment=None)

    def lost(self, sent: Sent) -> None:
        """No answer comes; the group makes a pause."""
        sent.is_lost()
        self.sends_nothing()

    def joins(self) -> Sent:
        """It subscribes to ``t``, polls, and asks to be taken in."""
        self.subscribes()
        self.polls()
        return self.beats()

    def is_joining(self) -> Sent:
        """It asks to be taken in."""
        join = self.beats()
        assert (join.body.group_id, join.body.member_epoch) == ("g", 0)
        return join

    def is_leaving(self, why: str) -> Sent:
        """It tells that it goes, and nothing else: there is no place for the reason."""
        leave = self.beats()
        assert (leave.body.member_id, leave.body.member_epoch, said(leave)) == (self.group.identity.member_id, -1, set())
        return leave

    def has_left(self, leave: Sent) -> None:
        self.heard(leave, epoch=-1)

    def shows_life(self) -> None:
        """A heartbeat goes out now."""
        assert self.beats().body.member_epoch == self.epoch

    def is_given(self, *partitions: TopicPartition) -> None:
        """A member whose user has these to take over."""
        self.told_to_have(self.joins(), *partitions)
        self.turn()

    def stable(self, *partitions: TopicPartition) -> None:
        """A member that has taken these over, of which the coordinator has heard."""
        self.is_given(*partitions)
        self.takes(ChangeKind.ASSIGNED, *partitions)
        self.heard(self.beats(), epoch=self.epoch)
        self.sends_nothing()


def by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    names: dict[str, list[int]] = {}
    for name, number in partitions:
        names.setdefault(name, []).append(number)
    return [{"topic_id": topic_id(name), "partitions": numbers} for name, numbers in names.items()]


def owned(sent: Sent) -> set[tuple[Any, int]] | None:
    """What a heartbeat says that the member has."""
    said = sent.body.topic_partitions
    return None if said is None else {(each.topic_id, number) for each in said for number in each.partitions}


def places(*partitions: TopicPartition) -> set[tuple[Any, int]]:
    return {(topic_id(where.topic), where.partition) for where in partitions}


def said(sent: Sent) -> set[str]:
    """What a heartbeat says besides who it is of."""
    body = sent.body
    return {name for name in ("subscribed_topic_names", "subscribed_topic_regex", "topic_partitions", "rack_id", "server_assignor")
            if getattr(body, name) is not None} | ({"rebalance_timeout"} if body.rebalance_timeout.total_seconds() >= 0 else set())
