"""Harnesses for members of groups: the test plays the coordinator and the polling user.

The base class, and the one of the classic protocol.
"""
from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from pyclient.codec.apis import Api
from pyclient.codec.consumer_protocol import decode_subscription, encode_assignment, encode_subscription
from pyclient.core.calls import Calls
from pyclient.core.group.assignors import GroupAssignors
from pyclient.core.group.changes import ChangeKind
from pyclient.core.group.classic_member import ClassicMember
from pyclient.core.group.coordinator import GroupOptions
from pyclient.core.group.leader import GroupLeader
from pyclient.core.group.membership import Membership
from pyclient.core.group.subscription import Subscription
from pyclient.plugins import Assignment, Assignor, ClusterView, MemberView
from pyclient.records import TopicPartition
from tests.unit.core.world import DOUBLING, Sent, World, answer, make_metadata, topic, view

MEMBER: Final = "member-1"
HEARTBEAT: Final = 3.0
SESSION: Final = 45.0
REBALANCE: Final = 300.0
UNKNOWN_MEMBER, ILLEGAL_GENERATION, REBALANCING, MEMBER_ID_REQUIRED, FENCED_INSTANCE = 25, 22, 27, 79, 82


def tps(*numbers: int, name: str = "t") -> tuple[TopicPartition, ...]:
    return tuple(TopicPartition(name, number) for number in numbers)


class OneByOne:
    """An assignor that gives the partitions to the members in turn; raises `error` if it is set."""

    def __init__(self, name: str = "turns", protocols: Sequence[str] = ("eager",)) -> None:
        self.name = name
        self.protocols = protocols
        self.error: Exception | None = None

    def assign(self, cluster: ClusterView, members: Mapping[str, MemberView], /) -> Mapping[str, Assignment]:
        if self.error is not None:
            raise self.error
        shares: dict[str, list[TopicPartition]] = {member: [] for member in members}
        for name, known in cluster.topics.items():
            subscribers = sorted(member for member, view in members.items() if name in view.topics)
            for number in range(len(known)):
                shares[subscribers[number % len(subscribers)]].append(TopicPartition(name, number))
        return {member: Assignment(tuple(share)) for member, share in shares.items()}


class MemberHarness:
    """A member with its calls, a topic ``t`` of four partitions, and a coordinator on node 1."""

    group: Membership

    def __init__(self) -> None:
        self.world = World()
        self.metadata = make_metadata()
        self.calls = Calls(self.metadata, request_timeout=30.0, backoff=DOUBLING)
        self.notifications = 0
        self.metadata_shows(t=4)

    def notified(self) -> None:
        self.notifications += 1

    # ---- the cluster --------------------------------------------------------------------------------------------

    def metadata_shows(self, **counts: int) -> None:
        """A metadata response has these topics, with so many partitions, and no others."""
        response = answer(Api.METADATA, 13, **view(*(topic(name, *[1] * count) for name, count in counts.items())))
        self.metadata.hint(self.metadata.cluster.updated(response, everything=True))

    def metadata_shows_error(self, code: int, name: str = "t") -> None:
        """A metadata response has an error for one topic."""
        response = answer(Api.METADATA, 13, **view(topic(name, error=code)))
        self.metadata.hint(self.metadata.cluster.updated(response, everything=False))

    def turn(self) -> list[Sent]:
        """What the member sends now. Look-ups of the coordinator are answered; no metadata requests are sent."""
        sent = self.world.turn(self.group, self.calls)
        for each in list(sent):
            if each.api is Api.FIND_COORDINATOR:
                sent.remove(each)
                self.reply_coordinator(each, 1)
                sent += self.turn()
        return sent

    def reply_coordinator(self, look_up: Sent, node: int) -> None:
        """This node is the coordinator."""
        look_up.reply(coordinators=[{"key": "g", "node_id": node, "host": f"broker-{node}", "port": 9092, "error_code": 0, "error_message": None}])

    def sends(self, api: Api) -> Sent:
        """The one request that goes out now."""
        (sent,) = self.turn()
        assert sent.api is api, f"{sent.api.title} instead of {api.title}"
        return sent

    def sends_nothing(self) -> None:
        assert self.turn() == []

    # ---- the user -----------------------------------------------------------------------------------------------

    def subscribes(self, *topics: str) -> None:
        self.group.subscribe(Subscription(frozenset(topics or ("t",))))

    def polls(self) -> None:
        self.group.polled_at = self.world.now
        self.group.polled()

    def carries_out(self, kind: ChangeKind, *expected: TopicPartition, error: BaseException | None = None) -> None:
        """The user's thread carries out the change that is due, which must be this one; its listener raises *error*."""
        change = self.group.change
        assert change is not None, "there is nothing to carry out"
        assert (change.kind, set(change.partitions)) == (kind, set(expected))
        assert self.group.begin(change)
        self.group.complete(change, error)

    # ---- the view of the cluster --------------------------------------------------------------------------------

    def requested_topics(self) -> list[str] | None:
        """The topics of the metadata request that is sent now; None: all."""
        (sent,) = self.world.turn(self.metadata)
        topics = sent.body.topics
        sent.is_lost()
        return None if topics is None else [each.name for each in topics]


class ClassicHarness(MemberHarness):
    """A member of a classic group ``g``."""

    group: ClassicMember

    def __init__(self, *assignors: Assignor, instance: str | None = None, offload_now: bool = True) -> None:
        super().__init__()
        self.offloaded: list[tuple[Callable[[], Any], Callable[[Any, BaseException | None], None]]] = []
        self.offload_now = offload_now
        group_assignors = GroupAssignors(assignors or (OneByOne(),), None)
        options = GroupOptions(
            group_id="g", instance_id=instance, session_timeout=SESSION, heartbeat_interval=HEARTBEAT, rebalance_timeout=REBALANCE,
            request_timeout=30.0)
        leader = GroupLeader(options, group_assignors, self.calls, self.metadata, self._offload)
        self.group = ClassicMember(
            options, group_assignors, self.calls, self.metadata, leader, backoff=DOUBLING, notify_user=self.notified)

    def _offload(self, work: Callable[[], Any], done: Callable[[Any, BaseException | None], None]) -> None:
        self.offloaded.append((work, done))
        if self.offload_now:
            self.finish_offloaded()

    def finish_offloaded(self) -> None:
        for work, done in self.offloaded:
            try:
                result = work()
            except Exception as error:  # noqa: BLE001 as an executor does
                done(None, error)
            else:
                done(result, None)
        self.offloaded = []

    # ---- the coordinator ----------------------------------------------------------------------------------------

    def reply_joined(self, join: Sent, *, generation: int = 1, leader: str = "other", members: Mapping[str, bytes] | None = None, assignor: str = "turns",
               skips: bool = False, **more: object) -> None:
        join.reply(
            generation_id=generation, protocol_type="consumer", protocol_name=assignor, leader=leader, member_id=MEMBER, skip_assignment=skips,
            members=[{"member_id": member, "group_instance_id": None, "metadata": data} for member, data in (members or {}).items()], **more)

    def reply_error(self, sent: Sent, code: int) -> None:
        """Answer JoinGroup or SyncGroup with an error."""
        if sent.api is Api.JOIN_GROUP:
            sent.reply(error_code=code, generation_id=-1, protocol_name="", leader="", member_id="", members=[])
        else:
            sent.reply(error_code=code, protocol_name="", assignment=b"")

    def reply_assignment(self, sync: Sent, *partitions: TopicPartition) -> None:
        sync.reply(protocol_type="consumer", protocol_name="turns", assignment=encode_assignment(Assignment(partitions)))

    def receives_assignment(self, *partitions: TopicPartition, generation: int = 1, assignor: str = "turns") -> None:
        """Subscribe, join, and receive this assignment, which the user's thread has not carried out yet."""
        self.subscribes()
        self.polls()
        self.reply_joined(self.sends(Api.JOIN_GROUP), generation=generation, assignor=assignor)
        self.reply_assignment(self.sends(Api.SYNC_GROUP), *partitions)

    def becomes_stable(self, *partitions: TopicPartition, generation: int = 1, assignor: str = "turns") -> None:
        """Subscribe, join, and carry this assignment out."""
        self.receives_assignment(*partitions, generation=generation, assignor=assignor)
        self.carries_out(ChangeKind.ASSIGNED, *partitions)

    def expect_join(self) -> Sent:
        """The JoinGroup request that is sent now."""
        join = self.sends(Api.JOIN_GROUP)
        assert join.body.group_id == "g"
        return join

    def expect_leave(self, why: str) -> Sent:
        """The LeaveGroup request that is sent now, with this reason."""
        leave = self.sends(Api.LEAVE_GROUP)
        assert [(each.member_id, each.reason) for each in leave.body.members] == [(MEMBER, why)]
        return leave

    def reply_left(self, leave: Sent) -> None:
        leave.reply(members=[{"member_id": MEMBER, "group_instance_id": None, "error_code": 0}])

    def expect_heartbeat(self) -> None:
        """A heartbeat is sent now."""
        self.sends(Api.HEARTBEAT)

    def heartbeat(self) -> Sent:
        """The next heartbeat, one interval later; the user polls meanwhile."""
        self.world.after(HEARTBEAT)
        self.group.polled_at = self.world.now
        return self.sends(Api.HEARTBEAT)

    def rebalances(self) -> None:
        """The next heartbeat's response says that the group rebalances."""
        self.heartbeat().reply(error_code=REBALANCING)


def subscription_of(*topics: str, owned: Sequence[TopicPartition] = (), generation: int = -1) -> bytes:
    """An encoded subscription."""
    return encode_subscription(MemberView(topics or ("t",), tuple(owned), generation))


def subscriptions_in(join: Sent) -> dict[str, MemberView]:
    """The subscriptions in a JoinGroup request, by assignor."""
    return {each.name: decode_subscription(bytes(each.metadata)) for each in join.body.protocols}
