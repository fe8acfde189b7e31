"""What can go wrong in a simulated world: one function per kind. Each says what it hit, if it hit anything."""
from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from random import Random
from typing import TYPE_CHECKING, Any, Final, TypeVar

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.messages import response_schema
from pyclient.core.connection import State
from pyclient.testing.fake import view
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.control import Answer, Drop, Fail, Silence, Throttle, Verdict
from pyclient.testing.fake.model.coordinator import AnyGroup, Coordinator
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.simulation.follower_faults import follower_cut, follower_cut_back, follower_lag
from pyclient.testing.simulation.network import Cut, Link

if TYPE_CHECKING:
    from pyclient.testing.simulation.world import World

T = TypeVar("T")
LEAST_ARMED_S: Final = 1.0
"""How long at least a fault waits for something to hit."""
SLOWEST: Final = 3000
"""Times slower than usual."""
DAY_MS: Final = 86_400_000
THROTTLE_MS: Final = 1500
FENCED_AFTER: Final = 0.4
"""Part of its time after which the controller fences a hung broker."""
FEWEST_BROKERS: Final = 2
"""With one fewer, no broker could take over while another one restarts."""
REFUSALS: Final = (
    (Api.PRODUCE, 19), (Api.PRODUCE, 56), (Api.PRODUCE, 6), (Api.FETCH, 56), (Api.FETCH, 3), (Api.METADATA, 5), (Api.LIST_OFFSETS, 78),
    (Api.INIT_PRODUCER_ID, 14), (Api.FIND_COORDINATOR, 15), (Api.OFFSET_FETCH, 14), (Api.OFFSET_COMMIT, 16),
)
"""What brokers say when they cannot now, and a client may ask again: API and error code."""
LOADING: Final = 14
"""COORDINATOR_LOAD_IN_PROGRESS."""
COMMITS_BEFORE_S: Final = 0.5
"""How long before its end the commits of a member begin to fail: long enough for it to begin one."""
MEMBERSHIP_REFUSALS: Final = (
    (Api.JOIN_GROUP, 25), (Api.JOIN_GROUP, 14), (Api.JOIN_GROUP, 16), (Api.JOIN_GROUP, 81), (Api.JOIN_GROUP, 30), (Api.JOIN_GROUP, -1),
    (Api.SYNC_GROUP, 25), (Api.SYNC_GROUP, 22), (Api.SYNC_GROUP, 27), (Api.SYNC_GROUP, 16), (Api.SYNC_GROUP, 30),
    (Api.HEARTBEAT, 25), (Api.HEARTBEAT, 22), (Api.HEARTBEAT, 27), (Api.HEARTBEAT, 16), (Api.HEARTBEAT, 82), (Api.HEARTBEAT, 30),
    (Api.OFFSET_COMMIT, 25), (Api.OFFSET_COMMIT, 22), (Api.OFFSET_COMMIT, 27), (Api.OFFSET_COMMIT, 14), (Api.LEAVE_GROUP, 16), (Api.LEAVE_GROUP, 25),
)
"""What coordinators say to members of classic groups, right or wrong."""
NEXT_REFUSALS: Final = (
    *((Api.CONSUMER_GROUP_HEARTBEAT, code) for code in (25, 110, 14, 15, 16, 30, 29, 111, 81, -1)), (Api.CONSUMER_GROUP_HEARTBEAT, 110),
    (Api.OFFSET_COMMIT, 113), (Api.OFFSET_COMMIT, 113), (Api.OFFSET_COMMIT, 25), (Api.OFFSET_COMMIT, 14),
)
"""The same in groups of the next generation."""
POLICY_VIOLATION: Final = 44
LOGIN_REFUSED: Final = {"error_code": 58, "error_message": "no", "auth_bytes": b"", "session_lifetime": 0}
CLOCK_JUMPS_MS: Final = (-DAY_MS, -3_600_000, -2500, 2500, 3_600_000, DAY_MS)


@attrs.frozen
class Fault:
    """One planned fault. *pick* in [0, 1) chooses its target among what there is when it comes."""

    kind: str
    """A name in `KINDS`."""
    at: float
    """Virtual seconds."""
    pick: float
    lasts: float
    """Seconds until it is healed, for kinds that last."""

    @property
    def over(self) -> float:
        """From when on nothing of it is left, but what clients make of it."""
        return self.at + max(LEAST_ARMED_S, self.lasts)

    def __str__(self) -> str:
        return f"{self.at:7.3f} s  {self.kind} (pick {self.pick:.3f}, lasts {self.lasts:.2f} s)"


class Strike:
    """A fault whose time has come. ``on_hit(fault, what)`` is called for each effect on a client or broker."""

    def __init__(self, world: World, fault: Fault, on_hit: Callable[[Fault, str], None]) -> None:
        self.world = world
        self.fault = fault
        self._on_hit = on_hit

    def hit(self, what: str) -> None:
        """It had an effect."""
        self.world.journal.note("FAULT", f"{self.fault.kind}: {what}")
        self._on_hit(self.fault, what)

    def choose(self, among: Sequence[T]) -> T | None:
        """The target; None when there is nothing to choose from."""
        return among[int(self.fault.pick * len(among))] if among else None

    def digit(self, count: int) -> int:
        """Another choice, of so many, that does not follow from `choose`."""
        return int(self.fault.pick * 7919) % count

    def led(self) -> list[Partition]:
        """The partitions that have a leader."""
        topics = self.world.kafka.topics.values()
        return [each for topic in topics if not topic.internal for each in topic.partitions if each.leader != NO_LEADER]

    def later(self, heal: Callable[[], object]) -> None:
        """Heal it after its time."""
        self.world.loop.call_later(self.fault.lasts, heal)

    def on_next_write(self, strikes: Callable[[Link], str]) -> None:
        """Wait until some client writes, then strike that connection; *strikes* says what it did."""
        loop, network = self.world.loop, self.world.network
        victim = self.choose(self.world.clients)

        def written(link: Link) -> bool:
            if link.client != victim:
                return False
            self.hit(strikes(link))
            return True

        network.armed.append(written)
        loop.call_at(self.fault.over, lambda: network.disarm(written))


# --- connections ------------------------------------------------------------------------------------------------------


def cut_before_write(strike: Strike) -> None:
    """A connection breaks; the request written last never arrives."""
    strike.on_next_write(lambda link: _cut(strike.world, link, Cut.BEFORE_WRITE))


def cut_before_answer(strike: Strike) -> None:
    """A connection breaks after the request written last was applied and before its answer comes."""
    strike.on_next_write(lambda link: _cut(strike.world, link, Cut.BEFORE_ANSWER))


def cut_mid_frame(strike: Strike) -> None:
    """A connection breaks within a frame."""
    strike.on_next_write(lambda link: _cut(strike.world, link, Cut.MID_FRAME))


def half_closed(strike: Strike) -> None:
    """The broker's side of a connection ends what it writes, and still reads."""
    def close_half(link: Link) -> str:
        link.close_half()
        return f"{link!r} gives nothing more"
    strike.on_next_write(close_half)


def half_open(strike: Strike) -> None:
    """Nothing arrives on a connection any more, and neither side notices."""
    def freeze(link: Link) -> str:
        link.freeze()
        return f"{link!r} is silent from now on"
    strike.on_next_write(freeze)


def _cut(world: World, link: Link, at: Cut) -> str:
    world.loop.call_soon(link.cut, at)
    return f"{link!r}: {at.value}"


# --- brokers ----------------------------------------------------------------------------------------------------------


def slow_node(strike: Strike) -> None:
    """A broker and its network are far slower for a while."""
    broker = strike.choose(strike.world.kafka.alive)
    if broker is not None:
        _slow_down(strike, broker)


def _slow_down(strike: Strike, broker: int) -> None:
    network = strike.world.network
    if broker in network.slowness:
        return
    network.slowness[broker] = 50 + strike.digit(SLOWEST)
    strike.later(lambda: network.slowness.pop(broker, None))
    if network.of_broker(broker):
        strike.hit(f"broker {broker} is {network.slowness[broker]} times slower")


def dns_change(strike: Strike) -> None:
    """A broker moves to another address; its name follows, the old address is dead."""
    network, broker = strike.world.network, strike.choose(strike.world.kafka.alive)
    if broker is None:
        return
    links = network.of_broker(broker)
    network.set_addresses(broker, f"10.0.{1 + strike.digit(200)}.{broker}")
    for link in links:
        link.cut(Cut.BEFORE_WRITE)
    if links:
        strike.hit(f"broker {broker} has moved; {len(links)} connections broke")


def broker_restart(strike: Strike) -> None:
    """A broker is killed and comes back, perhaps without what it had not replicated."""
    kafka = strike.world.kafka
    if len(kafka.alive) <= 1:
        return
    broker = strike.choose(kafka.alive)
    assert broker is not None
    connected = len(strike.world.network.of_broker(broker))
    kafka.kill(broker, lose_tail=strike.digit(2) == 1)
    strike.later(lambda: kafka.restart(broker))
    if connected:
        strike.hit(f"broker {broker} was killed; {connected} connections broke")


def hung(strike: Strike) -> None:
    """A broker accepts connections and requests and answers nothing; the controller fences it; later it goes on."""
    kafka, front = strike.world.kafka, strike.world.front
    broker = strike.choose(kafka.alive)
    if broker is None or len(kafka.alive) < FEWEST_BROKERS or broker in front.paused:
        return
    connected = len(strike.world.network.of_broker(broker))
    front.pause(broker)
    strike.world.loop.call_later(FENCED_AFTER * strike.fault.lasts, _fence, strike.world, broker)
    strike.later(lambda: _go_on(strike.world, broker))
    if connected:
        strike.hit(f"broker {broker} hangs; {connected} connections are silent")


def _fence(world: World, broker: int) -> None:
    if len(world.kafka.alive) >= FEWEST_BROKERS and broker in world.kafka.alive and broker in world.front.paused:
        world.kafka.fence(broker)


def _go_on(world: World, broker: int) -> None:
    if world.kafka.brokers[broker].fenced:
        world.kafka.restart(broker)
    for link in world.network.of_broker(broker):
        link.late_until = world.loop.time()  # it reads now what was sent to it meanwhile
    world.front.resume(broker)


def broker_loss(strike: Strike) -> None:
    """A broker dies permanently; the others have all that it had."""
    kafka, broker = strike.world.kafka, strike.choose(strike.world.kafka.alive)
    dispensable = all(any(each != broker and each in kafka.alive for each in partition.isr) for partition in strike.led())
    if broker is None or len(kafka.alive) < len(kafka.brokers) or len(kafka.brokers) <= FEWEST_BROKERS or not dispensable:
        return
    connected = len(strike.world.network.of_broker(broker))
    kafka.kill(broker)
    if connected:
        strike.hit(f"broker {broker} died permanently; {connected} connections broke")


def throttling(strike: Strike) -> None:
    """A broker throttles the client: its responses request a pause."""
    broker = strike.choose(strike.world.kafka.alive)

    def throttle(asked: Request) -> Throttle | None:
        if "throttle_time" not in response_schema(asked.api, asked.version).names:
            return None  # such an answer cannot ask for anything
        strike.hit(f"broker {broker} throttles for {THROTTLE_MS} ms")
        strike.world.network.throttled[asked] = THROTTLE_MS / 1000
        return Throttle(THROTTLE_MS)

    rule = strike.world.control.intercept(throttle, broker=broker, times=3)
    strike.later(rule.remove)


def refusal(strike: Strike) -> None:
    """A broker answers one API with a retriable error: once, a few times, or as long as the fault lasts."""
    api, code = REFUSALS[strike.digit(len(REFUSALS))]
    _refuse(strike, api, code, times=(1, 1, 3, None)[strike.digit(4)], broker=strike.choose(strike.world.kafka.alive))


def membership_refusal(strike: Strike) -> None:
    """A coordinator refuses a member's request, perhaps wrongly: once, a few times, or as long as the fault lasts.

    Before it refuses members that join, it expires one, which has to.
    """
    refusals = NEXT_REFUSALS if strike.world.next_generation else MEMBERSHIP_REFUSALS
    api, code = refusals[strike.digit(len(refusals))]
    broker = strike.choose(strike.world.kafka.alive)
    _refuse(strike, api, code, times=(1, 1, 3, None)[strike.digit(4)], broker=None if strike.digit(2) else broker)
    if api is Api.JOIN_GROUP:
        _expire(strike)


def member_expiry(strike: Strike) -> None:
    """A coordinator expires a member that is alive, as if its session had timed out; the group goes on without it.

    Half of the time its commits are answered with a retriable error from a moment before on, so that one may outlive
    its assignment, while others commit.
    """
    group, member = _some_member(strike)
    if group is None or member is None:
        return
    if strike.digit(2):
        _refuse(strike, Api.OFFSET_COMMIT, LOADING, times=None, broker=None, client=group.members[member].client_id)
        strike.world.loop.call_later(COMMITS_BEFORE_S, _expire, strike)
    else:
        _expire(strike)


def _expire(strike: Strike) -> None:
    group, member = _some_member(strike)
    if group is not None and member is not None:
        view.expire(strike.world.kafka, group.id, member)
        strike.hit(f"member {member} of {group.id} is given up")


def _some_member(strike: Strike) -> tuple[AnyGroup | None, str | None]:
    group = strike.world.kafka.part(Coordinator).groups.get(strike.choose(strike.world.groups) or "")
    return group, None if group is None else strike.choose(sorted(group.members))


def rejection(strike: Strike) -> None:
    """A broker rejects a batch for a rule of its own (POLICY_VIOLATION): a retry would be rejected again."""
    _refuse(strike, Api.PRODUCE, POLICY_VIOLATION, times=1, broker=strike.choose(strike.world.kafka.alive))


def _refuse(strike: Strike, api: Api, code: int, times: int | None, broker: int | None, client: str | None = None) -> None:
    def refuse(asked: Request) -> Fail | None:
        if client not in (None, asked.client_id):
            return None
        strike.hit(f"broker {asked.broker} refuses {api.title} with error {code}")
        return Fail(code)

    rule = strike.world.control.intercept(refuse, api=api, broker=broker, times=times)
    strike.world.loop.call_at(strike.fault.over, rule.remove)


def stale_metadata(strike: Strike) -> None:
    """A leader moves, and one broker learns of new leaders late: meanwhile its metadata names the old ones."""
    world, broker = strike.world, strike.choose(strike.world.kafka.alive)
    believed = {(each.topic.name, each.index): (each.leader, each.leader_epoch) for each in strike.led()}

    def report(asked: Request) -> Answer | None:
        fields: Any = world.front.rows[Api.METADATA].handle(world.kafka, asked)
        known = [(topic, part) for topic in fields["topics"] for part in topic["partitions"] if (topic["name"], part["partition_index"]) in believed]
        late = [part for topic, part in known if (part["leader_id"], part["leader_epoch"]) != believed[topic["name"], part["partition_index"]]]
        if not late:
            return None
        strike.hit(f"broker {broker} names old leaders of {len(late)} partitions")
        for topic, part in known:
            part["leader_id"], part["leader_epoch"] = believed[topic["name"], part["partition_index"]]
            part["error_code"] = 0
        return Answer(fields)

    rule = world.control.intercept(report, api=Api.METADATA, broker=broker)
    strike.later(rule.remove)
    leader_move(strike)


# --- leadership -------------------------------------------------------------------------------------------------------


def leader_move(strike: Strike) -> None:
    """Another in-sync replica becomes the leader of a partition, perhaps because the one before is slow."""
    partition = strike.choose(strike.led())
    if partition is None:
        return
    others = [each for each in partition.isr if each in strike.world.kafka.alive and each != partition.leader]
    if others:
        to = others[strike.digit(len(others))]
        strike.hit(f"{partition!r} is to be led by {to}")
        if strike.digit(2):
            _slow_down(strike, partition.leader)
        partition.elections.move_leader(to)


def unclean_truncation(strike: Strike) -> None:
    """Followers leave the ISR, then one is elected: records only the leader had are lost, even acknowledged ones."""
    partition = strike.choose(strike.led())
    if partition is None:
        return
    partition.set_lag(math.inf)

    def elect() -> None:
        alive = strike.world.kafka.alive
        behind = [each for each in partition.replicas if each in alive and each not in partition.isr and each != partition.leader]
        if behind and partition.leader != NO_LEADER:
            to = behind[strike.digit(len(behind))]
            strike.hit(f"{partition!r} is to be led by {to}, which is not in sync")
            partition.elections.elect_unclean(to)
        partition.set_lag(strike.world.kafka.settings.replica_lag_ms)

    strike.later(elect)


def retention(strike: Strike) -> None:
    """The oldest records of a partition are deleted, even if consumers have not read them."""
    partition = strike.choose(strike.led())
    if partition is None:
        return
    held = partition.log.high_watermark - partition.log.start
    if held > 0:
        start = partition.log.start + 1 + strike.digit(held)
        strike.hit(f"{partition!r} begins at {start}")
        partition.begin_at(start)


def coordinator_move(strike: Strike) -> None:
    """Another broker becomes the coordinator of a group."""
    kafka = strike.world.kafka
    group = strike.choose(strike.world.groups or sorted(kafka.part(Coordinator).groups))
    others = [each for each in kafka.alive if group is not None and each != kafka.coordinator(0, group)]
    if group is not None and others:
        to = others[strike.digit(len(others))]
        kafka.move_coordinator(group, to)
        strike.hit(f"group {group} is coordinated by {to}")


# --- logins -----------------------------------------------------------------------------------------------------------


def login_unanswered(strike: Strike) -> None:
    """A broker never answers a login request."""
    _meddle(strike, "says nothing more", lambda asked: Silence(applied=strike.digit(2) == 1))


def login_cut(strike: Strike) -> None:
    """A broker closes the connection during a login, perhaps just after the login succeeded."""
    _meddle(strike, "hangs up", lambda asked: Drop(applied=strike.digit(2) == 1))


def login_refused(strike: Strike) -> None:
    """A broker refuses the token of a client that it has accepted before."""
    def refuse(asked: Request) -> Answer | None:
        return Answer(LOGIN_REFUSED) if asked.api is Api.SASL_AUTHENTICATE and _is_in(strike.world, asked.client_id) else None
    _meddle(strike, "refuses the token", refuse)


def token_outage(strike: Strike) -> None:
    """The token service cannot be reached for a while."""
    tokens = strike.world.tokens
    if tokens is not None:
        tokens.out_of_service(strike.fault.over - strike.fault.at, lambda: strike.hit("a token could not be fetched"))


def _meddle(strike: Strike, what: str, decide: Callable[[Request], Verdict | None]) -> None:
    """Do this to one or two messages of logins, while it lasts."""
    api = (Api.SASL_HANDSHAKE, Api.SASL_AUTHENTICATE, Api.SASL_AUTHENTICATE)[strike.digit(3)]

    def meddle(asked: Request) -> Verdict | None:
        verdict = decide(asked)
        if verdict is not None:
            strike.hit(f"broker {asked.broker} {what} at {asked.api.title} of {asked.client_id}")
        return verdict

    rule = strike.world.control.intercept(meddle, api=Api.SASL_AUTHENTICATE if strike.fault.kind in TOKEN_FAULTS else api, times=1 + strike.digit(2))
    strike.world.loop.call_at(strike.fault.over, rule.remove)


def _is_in(world: World, client: str | None) -> bool:
    """Whether a client has a connection on which it was accepted: it may not be one of a former life."""
    connections = [link.client_protocol for link in world.network.of_client(client or "") if not link.frozen]
    return any(each.state in (State.READY, State.REAUTHENTICATING) for each in connections if each is not None)


# --- the machine and its user -----------------------------------------------------------------------------------------


def clock_jump(strike: Strike) -> None:
    """The wall clock is set to another time; the monotonic clock is not touched."""
    jump = CLOCK_JUMPS_MS[strike.digit(len(CLOCK_JUMPS_MS))]
    strike.world.wall_skew_ms += jump
    strike.hit(f"the wall clock jumps by {jump} ms")


def callback_raises(strike: Strike) -> None:
    """Some of the next delivery callbacks raise."""
    strike.world.raising.append(lambda: strike.hit("a callback raises"))


Kind = Callable[[Strike], None]
KINDS: Final[Mapping[str, Kind]] = {each.__name__: each for each in (
    cut_before_write, cut_before_answer, cut_mid_frame, half_closed, half_open, slow_node, dns_change, broker_restart, hung, broker_loss, throttling,
    refusal, rejection, stale_metadata, leader_move, unclean_truncation, retention, coordinator_move, clock_jump, callback_raises, membership_refusal, member_expiry,
    login_unanswered, login_cut, login_refused, token_outage, follower_lag, follower_cut, follower_cut_back,
)}

MEMBER_FAULTS: Final = frozenset({"membership_refusal", "member_expiry"})
"""Those that only members of groups feel."""
TOKEN_FAULTS: Final = frozenset({"login_refused", "token_outage"})
"""Those that only clients feel whose credentials can change; others may give up when they are refused."""
LOGIN_FAULTS: Final = TOKEN_FAULTS | {"login_unanswered", "login_cut"}
"""Those that only clients feel who log in: planned for them, beside all others."""
HANGS: Final = frozenset({"hung"})
"""Planned beside all others, by a generator of their own."""
FOLLOWERS: Final = frozenset({"follower_lag", "follower_cut", "follower_cut_back"})
"""Those of followers that are read: planned beside all others, where a consumer has a rack."""
OF_THEIR_OWN: Final = LOGIN_FAULTS | HANGS | FOLLOWERS
"""Those with generators of their own, so that they change no other run."""
NOT_FOR_SERVICES: Final = MEMBER_FAULTS | OF_THEIR_OWN | frozenset({"broker_loss", "callback_raises", "rejection", "clock_jump", "retention", "unclean_truncation"})
FOR_SERVICES: Final = tuple(kind for kind in KINDS if kind not in NOT_FOR_SERVICES)
"""Faults that any service must survive: they lose no replicated record, falsify no timestamp, involve no user code."""


def planned(random: Random, *, fewest: int, most: int, begin: float, end: float, kinds: Sequence[str] = tuple(KINDS)) -> list[Fault]:
    """A plan: faults at random times, in their order."""
    faults = [
        Fault(random.choice(kinds), random.uniform(begin, end), random.random(), random.choice((0.2, 1.0, 3.0, 8.0)) * random.uniform(0.5, 1.5))
        for _ in range(random.randint(fewest, most))
    ]
    return sorted(faults, key=lambda each: each.at)
