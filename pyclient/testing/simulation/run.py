"""One seed: a world, its services and its faults; the invariants are evaluated throughout."""
from __future__ import annotations

import asyncio
import contextlib
import enum
import gc
import logging
import traceback
from collections import Counter
from collections.abc import Coroutine, Iterator, Mapping, Sequence
from random import Random
from typing import Any, Final

import attrs

from pyclient.codec.apis import Api
from pyclient.codec.batches import read_batches
from pyclient.core.transitions import TABLES
from pyclient.errors import IllegalTransitionError
from pyclient.reactor.reactor import Reactor
from pyclient.testing.fake.model.request import Request
from pyclient.testing.fake.model.batch import Batch
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.simulation import protection
from pyclient.testing.simulation.facts import Entry, Facts, Key, Second
from pyclient.testing.simulation.faults import FOLLOWERS, HANGS, MEMBER_FAULTS, OF_THEIR_OWN, KINDS, Fault, Strike, planned
from pyclient.testing.simulation.invariants import RULES_OF_ALL, InvariantError, Invariant, Judge
from pyclient.testing.simulation.login_invariants import LOGIN, RULES_OF_LOGINS
from pyclient.testing.simulation.loop import BusyLoopError, SimulationStuckError
from pyclient.testing.simulation.network import Link
from pyclient.testing.simulation.progress_invariants import RULES_OF_PROGRESS
from pyclient.testing.simulation.reactor_invariants import RULES_OF_REACTORS, TRIAL_S, Trial
from pyclient.testing.simulation.workload import SEPARATOR, ConsumingService, Plan, ProducingService, drawn, rack_of
from pyclient.testing.simulation.world import World

FEWEST_FAULTS: Final = 12
MOST_FAULTS: Final = 18
TWO_ADDRESSES: Final = 0.3
"""How many brokers can be reached at two addresses."""
SEALED_INLINE_BYTES: Final = (200, 65_536)
"""In half of the runs small batches too are compressed by workers, while the loop goes on."""
WITH_HANGS: Final = 0.4
"""In how many runs brokers hang too."""
WITH_FOLLOWERS: Final = 0.7
"""In how many runs whose consumers may read from followers something goes wrong with these too."""
FAULTS_BEGIN_S: Final = 0.0
FAULTS_END_S: Final = 25.0
SHORTEST_S: Final = 60.0
"""The shortest run, in virtual time."""
LONGEST_S: Final = 600.0
CONTROL_APIS: Final = frozenset({Api.METADATA, Api.API_VERSIONS, Api.FIND_COORDINATOR})
ON_PURPOSE: Final = "a delivery callback raised"
"""The begin of the client's log message when a user's callback raises; the fault `callback_raises` causes it."""


@attrs.frozen(kw_only=True)
class Outcome:
    """Outcome of one seed."""

    seed: int
    digest: str
    broken: str | None
    """The violated invariant's message, or None."""
    invariant: str | None
    timeline: str
    faults: Sequence[Fault]
    hits: Mapping[str, int]
    """Fault kind → how often it had an effect."""
    hit_in_flight: bool
    """Whether a fault hit while records were in flight, or a group was rebalancing."""
    evaluated: Mapping[str, int]
    transitions: Mapping[tuple[str, str, str], int]
    sent: int
    acked: int
    failed: int
    consumed: int
    requests: int
    turns: int
    virtual_s: float


class Run:
    """The state of one run."""

    KINDS: Sequence[str] = tuple(kind for kind in KINDS if kind not in MEMBER_FAULTS | OF_THEIR_OWN)
    """The kinds it draws from."""

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None, *, config: Mapping[str, object] | None = None) -> None:
        self.protection = protection.drawn(seed, logs_in=config is None)
        settings = self._settings(Random(f"{seed}/settings")) if config is None else config
        self.world = World(seed, config={**settings, **self.protection.settings}, tls=self.protection.context(), sasl=self.protection.users)
        self.protection.equip(self.world)
        self.world.seal_inline_bytes = self.world.random("sealing").choice(SEALED_INLINE_BYTES)
        self.facts = self._new_facts()
        self.plan = self._plan(self.world.random("plan"))
        self.faults = self._planned() if faults is None else list(faults)
        self.judge = Judge(self.world, self.facts, self._rules())
        for broker in self.world.kafka.brokers:
            if self.world.random(f"address {broker}").random() < TWO_ADDRESSES:
                self.world.network.set_addresses(broker, f"10.0.0.{broker}", f"10.9.0.{broker}")
        self.facts.troubled_from = min((each.at for each in self.faults), default=0.0)
        self.facts.calm_from = max((each.over for each in self.faults), default=0.0)
        self.hits: Counter[str] = Counter()
        self.hit_in_flight = False
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        self.world.kafka.listeners.append(self._on_event)
        self._names: dict[Batch, list[bytes]] = {}
        self._connects = 0
        self._requests = 0
        self._turns = 0

    # ---- from the first callback to the last -------------------------------------------------------------------------

    def go(self) -> Outcome:
        """Run the seed."""
        broken: InvariantError | None = None
        with collector_off(), errors_to(self.facts.errors), observed(self.transitions):
            try:
                self.world.run(self._simulate())
                self._check_leftovers()
            except InvariantError as found:
                broken = found
            except BusyLoopError as found:
                broken = InvariantError("S02 no_loop_is_busy", str(found))
            except (SimulationStuckError, TimeoutError) as found:
                broken = InvariantError("S09 no_call_waits_forever", str(found) or f"not all are done after {LONGEST_S} s")
            except KeyboardInterrupt:
                self._abandon()
                raise
            except Exception as found:  # noqa: BLE001 whatever ends a run is its finding
                broken = InvariantError("S10 users_see_no_other_error", "".join(traceback.format_exception(found)))
            broken = self.judge.broken or broken
            self._abandon()
        return self._outcome(broken)

    async def _simulate(self) -> None:
        world, loop = self.world, self.world.loop
        self._watch()
        for name, partitions in self.plan.topics.items():
            world.kafka.create_topic(name, partitions, config={"max.message.bytes": str(self.plan.largest_batch)})
        for fault in self.faults:
            loop.call_at(fault.at, self._strike, fault)
        loop.call_at(self.facts.calm_from, world.network.reset_half_open)
        producers = [ProducingService(world, self.facts, self.judge, self.plan, number) for number in range(len(self.plan.producers))]
        done = asyncio.Event()
        async with asyncio.timeout(LONGEST_S), asyncio.TaskGroup() as services:
            for name, life in self._consumers(done).items():
                services.create_task(life, name=name)
            async with asyncio.TaskGroup() as producing:
                for producer in producers:
                    producing.create_task(producer.run(), name=producer.name)
            await asyncio.sleep(max(0.0, self.facts.calm_from - loop.time()))
            await self._finish(done)
        self.judge.after("end")
        await asyncio.sleep(max(2.0, SHORTEST_S - loop.time()))

    # ---- what kinds of runs differ in --------------------------------------------------------------------------------

    def _settings(self, random: Random) -> dict[str, object]:
        return {
            "replica_lag_ms": random.choice((0, 5, 30)), "failure_detection_ms": random.choice((0, 300, 2000)),
            "coordinator_load_ms": random.choice((0, 100, 1000)), "min.insync.replicas": random.choice((1, 2)),
            "replica_lag_time_max_ms": 500, "replica_selector_class": "rack-aware", "log_message_timestamp_type": random.choice(("CreateTime", "CreateTime", "LogAppendTime")),
        }

    def _new_facts(self) -> Facts:
        return Facts()

    def _rules(self) -> Sequence[Invariant]:
        """The invariants to evaluate."""
        of_progress = RULES_OF_PROGRESS if {each.kind for each in self.faults} == HANGS else ()
        return (*RULES_OF_ALL, *RULES_OF_REACTORS, *of_progress, *(RULES_OF_LOGINS if self.protection.mechanism is not None else ()))

    def _plan(self, random: Random) -> Plan:
        return drawn(random)

    def _planned(self) -> list[Fault]:
        """The planned faults, those of logins included."""
        kinds = [kind for kind in self.KINDS if kind not in self.protection.spares]
        faults = planned(self.world.random("faults"), fewest=FEWEST_FAULTS, most=MOST_FAULTS, begin=FAULTS_BEGIN_S, end=FAULTS_END_S, kinds=kinds)
        if self.protection.login_faults:
            faults += planned(self.world.random("faults of logins"), fewest=protection.FEWEST_FAULTS, most=protection.MOST_FAULTS, begin=FAULTS_BEGIN_S,
                              end=FAULTS_END_S, kinds=self.protection.login_faults)
        hangs = self.world.random("hangs")
        if hangs.random() < WITH_HANGS:
            faults += planned(hangs, fewest=1, most=2, begin=FAULTS_BEGIN_S, end=FAULTS_END_S, kinds=sorted(HANGS))
        followers = self.world.random("followers")
        if self._reads_near() and followers.random() < WITH_FOLLOWERS:
            faults += planned(followers, fewest=3, most=6, begin=FAULTS_BEGIN_S, end=FAULTS_END_S, kinds=sorted(FOLLOWERS))
        return sorted(faults, key=lambda each: each.at)

    def _reads_near(self) -> bool:
        """Whether a consumer has a rack, so that it may read from followers."""
        return any(rack_of(self.world, number) for number in range(len(self.plan.consumers)))

    def _consumers(self, done: asyncio.Event) -> Mapping[str, Coroutine[Any, Any, None]]:
        """The coroutines of the consumers, by name; they end after *done*."""
        services = [ConsumingService(self.world, self.facts, self.judge, self.plan, number) for number in range(len(self.plan.consumers))]
        return {each.name: each.run(done) for each in services}

    def _in_flight(self) -> bool:
        """Whether a fault would hit work in progress."""
        return bool(self.facts.unsettled)

    async def _finish(self, done: asyncio.Event) -> None:
        """Everything was produced, and the last fault is over."""
        done.set()

    # ---- on the way --------------------------------------------------------------------------------------------------

    def _watch(self) -> None:
        self.world.loop.after_turn = self._after_turn
        self.world.network.armed.append(self._on_written)
        if self.protection.mechanism is not None:
            self.world.network.on_ended = self._on_ended
        self.world.loop.call_later(1.0, self._each_second)

    def _strike(self, fault: Fault) -> None:
        KINDS[fault.kind](Strike(self.world, fault, self._on_hit))

    def _on_hit(self, fault: Fault, _what: str) -> None:
        self.hits[fault.kind] += 1
        self.hit_in_flight = self.hit_in_flight or self._in_flight()

    def _check_leftovers(self) -> None:
        loop = self.world.loop
        self.judge.after("closed", {
            "tasks": [repr(each) for each in asyncio.all_tasks(loop) if not _belongs_to_a_broker(each)],
            "connections": [repr(each) for each in self.world.network.links if not each.frozen],
            "timers": [repr(each) for each in loop.timers() if _belongs_to_a_client(each)],
            "tasks and timers of reactors": [f"{each.tasks} and {each.timers}" for each in self.world.network.reactors if each.tasks or each.timers],
        })

    def _abandon(self) -> None:
        """Cancel all tasks: nothing is left for the next run."""
        loop = self.world.loop
        loop.after_turn = None
        for task in asyncio.all_tasks(loop):
            task.cancel()
        with contextlib.suppress(BaseException):
            loop.run_until(loop.time() + 1.0)
        loop.close()

    def _outcome(self, broken: InvariantError | None) -> Outcome:
        facts, journal = self.facts, self.world.journal
        return Outcome(
            seed=self.world.seed, digest=journal.digest, broken=str(broken) if broken else None,
            invariant=broken.invariant if broken else None, timeline=journal.timeline() if broken else "", faults=self.faults,
            hits=dict(self.hits), hit_in_flight=self.hit_in_flight, evaluated=dict(self.judge.evaluated),
            transitions=dict(self.transitions), sent=len(facts.sent), acked=facts.acked, failed=facts.failed, consumed=facts.consumed,
            requests=self._requests, turns=self.world.loop.turns, virtual_s=self.world.loop.time())

    # ---- what is seen on the way -------------------------------------------------------------------------------------

    def _after_turn(self) -> None:
        if self.facts.errors or self.world.loop.defects:
            self.judge.after("turn")

    def _on_written(self, link: Link) -> bool:
        if link.client_protocol is not None and not link.continued:
            self.judge.after("written", link)
        return False

    def _on_ended(self, link: Link) -> None:
        if link.client_protocol is not None:
            self.judge.after("ended", link)

    def _each_second(self) -> None:
        loop, second = self.world.loop, self.facts.second
        second.turns, self._turns = loop.turns - self._turns, loop.turns
        second.connects, self._connects = self.world.network.connects - self._connects, self.world.network.connects
        self.judge.after("second")
        self.judge.after("turn")
        self.facts.second = Second()
        self._try_reactors()
        loop.call_later(1.0, self._each_second)

    def _try_reactors(self) -> None:
        for reactor in self._reactors():
            self.world.loop.call_later(TRIAL_S, self._tried, Trial(reactor))

    def _tried(self, trial: Trial) -> None:
        trial.end()
        if trial.reactor in self._reactors() and not trial.reactor.closed:
            self.judge.after("tried", trial.seen)

    def _reactors(self) -> Mapping[Reactor, None]:
        """Those of clients that are connected: who is being closed sets no timers any more."""
        return {link.reactor: None for link in self.world.network.links if link.reactor is not None and not link.frozen}

    def _on_event(self, event: str, facts: Mapping[str, Any]) -> None:
        if event == "request":
            self._on_request(facts["request"])
        elif event == "appended":
            self._on_appended((facts["topic"], facts["partition"]), facts["batch"])
        elif event == "response":
            self._on_response(facts["request"], facts["fields"])
        elif event == "not admitted":
            self.judge.after("reached", None, self.world.network.served_by(facts["connection"]))
        elif event == "leader" and facts["broker"] != NO_LEADER:
            self._on_leader((facts["topic"], facts["partition"]), clean=facts["clean"])
        elif event == "committed":
            self.facts.committed[facts["group"], (facts["topic"], facts["partition"])] = facts["offset"], facts["epoch"]
        elif event == "retention":
            self.facts.begin((facts["topic"], facts["partition"]), facts["start"])
        elif event == "high watermark":
            tp = facts["topic"], facts["partition"]
            marks = self.facts.watermarks[tp]
            marks[facts["epoch"]] = max(marks.get(facts["epoch"], 0), facts["offset"])
        elif event == "defect":
            self.facts.errors.append(f"the fake cluster: {facts['error']!r}")

    def _on_request(self, asked: Request) -> None:
        self._requests += 1
        second, name = self.facts.second, asked.client_id or "?"
        second.requests += 1
        second.by_client[name] += 1
        if asked.api in CONTROL_APIS and not (asked.api is Api.API_VERSIONS and self._lacks_tokens()):
            second.control[name] += 1
        self.judge.after("reached", asked, None)
        if asked.api is Api.SASL_HANDSHAKE:
            second.logins[name] += 1
            self.judge.after("login begins", asked)

    def _lacks_tokens(self) -> bool:
        """Whether a missing token makes connecting fail after ApiVersions: then `connects_are_bounded` bounds them."""
        tokens = self.world.tokens
        return tokens is not None and tokens.failed_at > self.world.loop.time() - 1.0

    def _on_response(self, asked: Request, fields: Mapping[str, Any]) -> None:
        if asked.api in LOGIN:
            self.judge.after("login answered", asked, fields)
        elif self.protection.mechanism is not None:
            self.facts.answered[asked.connection] = self.world.loop.time()

    def _on_appended(self, tp: Key, batch: Batch) -> None:
        names = self._names_of(batch)
        self.judge.after("stored", tp, names)
        self.facts.append(tp, batch.base_offset, names, batch.epoch)
        for name in names:
            sent = self.facts.sent.get(name)
            if sent is not None and name not in self.facts.ever_stored:
                self.facts.ever_stored.add(name)
                self.facts.first_stored[sent.producer, tp] = sent.order

    def _on_leader(self, tp: Key, *, clean: bool) -> None:
        partition = self.world.kafka.partition(*tp)
        assert partition is not None
        log = {each.base_offset + at: Entry(name, each.epoch) for each in partition.log.batches for at, name in enumerate(self._names_of(each))}
        self.facts.lead(tp, log, start=partition.log.start, clean=clean)

    def _names_of(self, batch: Batch) -> list[bytes]:
        found = self._names.get(batch)
        if found is None:
            records = [record for each in read_batches(batch.data) for record in each.records("", 0)]
            found = self._names[batch] = [(record.value or b"").split(SEPARATOR)[0] for record in records]
        return found


def run_seed(seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run a seed, with its planned faults or *faults* instead. The same arguments always give the same outcome."""
    return Run(seed, faults).go()


def _belongs_to_a_client(handle: asyncio.Handle) -> bool:
    callback: Any = handle._callback  # type: ignore[attr-defined] # nothing else names its owner
    owner = getattr(callback, "__self__", callback)
    module = getattr(type(owner) if owner is not callback else callback, "__module__", "") or ""
    return module.startswith("pyclient.") and not module.startswith("pyclient.testing.")


def _belongs_to_a_broker(task: asyncio.Task[Any]) -> bool:
    return "fake" in getattr(task.get_coro(), "__qualname__", "") or "BrokerConnection" in repr(task.get_coro()) or "_forever" in repr(task.get_coro())


@contextlib.contextmanager
def collector_off() -> Iterator[None]:
    """Garbage collection must not depend on what the process did before."""
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


@contextlib.contextmanager
def observed(taken: Counter[tuple[str, str, str]]) -> Iterator[None]:
    """Count the rows of the state tables that are taken."""
    def watch(name: str) -> Any:
        def count(state: enum.Enum, event: enum.Enum) -> None:
            taken[name, state._name_, event._name_] += 1
        return count
    for table in TABLES.values():
        table.observer = watch(table.name)
    try:
        yield
    finally:
        for table in TABLES.values():
            table.observer = None


class _Errors(logging.Handler):
    """Collects what the client logs as an error, except what faults provoke on purpose, and every sign of a defect."""

    def __init__(self, into: list[str]) -> None:
        super().__init__(logging.WARNING)
        self._into = into

    def emit(self, record: logging.LogRecord) -> None:
        if _shows_a_defect(record) or (record.levelno >= logging.ERROR and not record.getMessage().startswith(ON_PURPOSE)):
            cause = f": {record.exc_info[1]!r}" if record.exc_info else ""
            self._into.append(f"{record.name}: {record.getMessage()}{cause}")


def _shows_a_defect(record: logging.LogRecord) -> bool:
    return isinstance(record.args, tuple) and any(isinstance(each, IllegalTransitionError) for each in record.args)


@contextlib.contextmanager
def errors_to(errors: list[str]) -> Iterator[None]:
    logger, handler = logging.getLogger("pyclient"), _Errors(errors)
    propagate, level = logger.propagate, logger.level
    logger.addHandler(handler)
    logger.propagate = False
    logger.setLevel(logging.WARNING)  # not the attribute: other loggers remember what it allowed
    try:
        yield
    finally:
        logger.propagate = propagate
        logger.setLevel(level)
        logger.removeHandler(handler)


