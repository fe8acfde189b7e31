"""The harness for a member under the consumer protocol (KIP-848): the test plays the coordinator and the polling user.
"""
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
from tests.unit.core.groups import HEARTBEAT, REBALANCE, SESSION, MemberHarness
from tests.unit.core.world import DOUBLING, Sent, topic_id

INTERVAL: Final = 5.0
"""The heartbeat interval that the coordinator sets; that of the options is `HEARTBEAT`."""
HEARTBEAT_API: Final = Api.CONSUMER_GROUP_HEARTBEAT


class ConsumerHarness(MemberHarness):
    """A member of a group ``g``."""

    group: ConsumerMember

    def __init__(self, *, instance: str | None = None, seed: int = 0, **options: Any) -> None:
        super().__init__()
        self.epoch = 0
        self.group = ConsumerMember(
            GroupOptions(group_id="g", instance_id=instance, session_timeout=SESSION, heartbeat_interval=HEARTBEAT,
                         rebalance_timeout=REBALANCE, request_timeout=30.0, **options),
            self.calls, self.metadata, random=Random(seed), backoff=DOUBLING, notify_user=self.notified)

    # ---- the user -----------------------------------------------------------------------------------------------

    def subscribes_broker_pattern(self, pattern: str) -> None:
        """Subscribe to a pattern that brokers match."""
        self.group.subscribe(Subscription(brokers_pattern=SubscriptionPattern(pattern)))

    def subscribes_client_pattern(self, pattern: str) -> None:
        """Subscribe to a pattern that the client matches."""
        self.group.subscribe(Subscription(pattern=re.compile(pattern)))

    # ---- the coordinator ----------------------------------------------------------------------------------------

    def heartbeat(self, after: float = 0.0) -> Sent:
        """The one heartbeat that is sent *after* so many seconds."""
        self.world.after(after)
        return self.sends(HEARTBEAT_API)

    def reply_assignment(self, sent: Sent, *partitions: TopicPartition, epoch: int | None = None, interval: float = INTERVAL) -> None:
        """Answer a heartbeat with an assignment."""
        self.reply_heartbeat(sent, assignment={"topic_partitions": by_topic(partitions)}, epoch=epoch, interval=interval)

    def reply_heartbeat(self, sent: Sent, *, epoch: int | None = None, assignment: Mapping[str, object] | None = None, interval: float = INTERVAL) -> None:
        """Answer a heartbeat."""
        epoch = self.epoch + 1 if epoch is None else epoch
        self.epoch = max(epoch, self.epoch)
        sent.reply(member_id=self.group.identity.member_id, member_epoch=epoch, heartbeat_interval=datetime.timedelta(seconds=interval),
                   assignment=assignment)

    def reply_error(self, sent: Sent, code: int, message: str | None = None) -> None:
        sent.reply(error_code=code, error_message=message, member_id=None, member_epoch=0, heartbeat_interval=datetime.timedelta(0), assignment=None)

    def no_reply(self, sent: Sent) -> None:
        """No response comes; a pause begins."""
        sent.is_lost()
        self.sends_nothing()

    def sends_join(self) -> Sent:
        """Subscribe to ``t`` and poll; the heartbeat that joins."""
        self.subscribes()
        self.polls()
        return self.heartbeat()

    def expect_join(self) -> Sent:
        """The heartbeat that joins is sent now."""
        join = self.heartbeat()
        assert (join.body.group_id, join.body.member_epoch) == ("g", 0)
        return join

    def expect_leave(self, why: str) -> Sent:
        """The heartbeat that leaves is sent now. It states nothing else: the protocol carries no reason."""
        leave = self.heartbeat()
        assert (leave.body.member_id, leave.body.member_epoch, changed_fields(leave)) == (self.group.identity.member_id, -1, set())
        return leave

    def reply_left(self, leave: Sent) -> None:
        self.reply_heartbeat(leave, epoch=-1)

    def expect_heartbeat(self) -> None:
        """A heartbeat is sent now."""
        assert self.heartbeat().body.member_epoch == self.epoch

    def receives_assignment(self, *partitions: TopicPartition) -> None:
        """Join, and receive this assignment, which the user's thread has not carried out yet."""
        self.reply_assignment(self.sends_join(), *partitions)
        self.turn()

    def becomes_stable(self, *partitions: TopicPartition) -> None:
        """Join, carry this assignment out, and acknowledge it."""
        self.receives_assignment(*partitions)
        self.carries_out(ChangeKind.ASSIGNED, *partitions)
        self.reply_heartbeat(self.heartbeat(), epoch=self.epoch)
        self.sends_nothing()


def by_topic(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    names: dict[str, list[int]] = {}
    for name, number in partitions:
        names.setdefault(name, []).append(number)
    return [{"topic_id": topic_id(name), "partitions": numbers} for name, numbers in names.items()]


def owned(sent: Sent) -> set[tuple[Any, int]] | None:
    """The partitions in a heartbeat; None if it states none."""
    stated = sent.body.topic_partitions
    return None if stated is None else {(each.topic_id, number) for each in stated for number in each.partitions}


def with_ids(*partitions: TopicPartition) -> set[tuple[Any, int]]:
    return {(topic_id(tp.topic), tp.partition) for tp in partitions}


def changed_fields(sent: Sent) -> set[str]:
    """The fields that a heartbeat states besides the member's identity."""
    body = sent.body
    return {name for name in ("subscribed_topic_names", "subscribed_topic_regex", "topic_partitions", "rack_id", "server_assignor")
            if getattr(body, name) is not None} | ({"rebalance_timeout"} if body.rebalance_timeout.total_seconds() >= 0 else set())
