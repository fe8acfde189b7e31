"""Chains in a simulated world: workers read one topic, write another, and commit both in one transaction.

Workers stop, crash in the middle of a transaction, are cut off for a while, stand still while they transform a record,
or freeze and go on as zombies beside their successors, while faults strike brokers and connections. Then, in calm, more
inputs come. Whether each input has exactly one committed output is read from the cluster's logs.
"""
from __future__ import annotations

import asyncio
import contextlib
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from random import Random
from typing import Any, Final

import tenacity

from pyclient import AsyncConsumer, AsyncProducer, Record
from pyclient.codec.apis import Api
from pyclient.codec.batches import read_batches
from pyclient.errors import KafkaError, KafkaTimeoutError, WakeupError
from pyclient.processing import AsyncExactlyOnce, Output
from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.testing.fake.control import Fail
from pyclient.testing.fake.model.coordinator import Coordinator
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.fake.model.request import Request
from pyclient.testing.simulation.chain_invariants import RULES_OF_CHAINS, Books
from pyclient.testing.simulation.facts import Facts
from pyclient.testing.simulation.faults import FOR_SERVICES, KINDS, Fault, Strike
from pyclient.testing.simulation.invariants import InvariantError, Judge
from pyclient.testing.simulation.loop import BusyLoopError, SimulationStuckError
from pyclient.testing.simulation.network import Cut
from pyclient.testing.simulation.run import Outcome, collector_off, errors_to, observed
from pyclient.testing.simulation.world import World

FAULTS: Final = 10
INPUTS: Final = 90
LATE_INPUTS: Final = 30
"""Written when everything before is processed and the last fault is long over."""
PARTITIONS: Final = 6
"""More than workers: a poll has records of several."""
SLOTS: Final = 3
GROUP: Final = "workers"
ONCE: Final = tenacity.Retrying(stop=tenacity.stop_after_attempt(1))
ENDINGS: Final = ("stops", "crashes", "freezes", "naps")
HAPPENS: Final = (*ENDINGS, "stalls", "wakes up", "fails", "aborts", "is fenced")
"""What happens to workers; each counts as a fault that hit."""
FAULTS_END_S: Final = 20.0
ZOMBIES_END_S: Final = 40.0
CALM_S: Final = 60.0
"""When the late inputs come: sessions and transactions of the last zombies have ended."""
LONGEST_S: Final = 300.0
"""In virtual time: long after the last fault everything must be processed."""
TRANSACTION_S: Final = 18.0
"""transaction_timeout_ms of the workers."""
FAILING: Final = 0.01
STALLING: Final = 0.04
WAKING: Final = 0.03
"""Share of records whose function raises, whose worker stands still, and that end their transaction like `wakeup`."""
WAKING_IN_CALM: Final = 0.12
BURST: Final = 6
"""Late inputs that come at once: transactions of several records."""
STALL_S: Final = (6.5, 13.0)
"""Longer than a session, shorter than a transaction."""
BLOCK_MS: Final = (10_000, 1000, 400)
"""max_block_ms: calls of impatient workers run out of time, and go on."""
LONG_BLOCK_MS: Final = 10_000
"""Others abort in calm too: a coordinator that moved before is found only then and may load for 0.3 s, and a connection
that was asked for while the worker was cut off comes up to sixteen seconds later.
"""
LINGER_MS: Final = (0, 5, 60)
"""An aborted transaction has records that have not left."""
REFUSED: Final = 0.03
"""Share of offset commits that are refused, as of a member that the group does not know."""
UNKNOWN_MEMBER_ID: Final = 25
INVALID_RECORD: Final = 87
END_ERRORS: Final = (-1, 120)
"""UNKNOWN_SERVER_ERROR and TRANSACTION_ABORTABLE: what as large a share of the ends of transactions gets."""
MEMBERS: Final[Mapping[str, Mapping[str, Any]]] = {
    "classic": {"session_timeout_ms": 6000}, "cooperative": {"session_timeout_ms": 6000, "assignors": ["cooperative-sticky"]},
    "consumer": {"group_protocol": "consumer"},
}
"""The options of workers by the protocol of their group."""
SPLITS_SHARE: Final = 0.5
LARGEST_BATCH: Final = 76
"""max.message.bytes of the outputs in a share of the chains: a batch of two records is refused, and split."""
REPEATS_SHARE: Final = 0.5
"""In how many chains offsets are sent twice in each transaction."""
MOVES: Final = 4
"""How often the coordinator of a transactional id moves."""
CONFIG: Final = {
    "min.insync.replicas": 2, "group.consumer.session.timeout.ms": 6000, "group.consumer.heartbeat.interval.ms": 1500, "replica_lag_ms": 5,
}


class Chain:
    """One seed."""

    KINDS: Sequence[str] = FOR_SERVICES

    def __init__(self, seed: int, faults: Sequence[Fault] | None = None) -> None:
        random = Random(f"{seed}/chain")
        self._random = random
        settings = {**CONFIG, "coordinator_load_ms": random.choice((0, 300)), "transaction_marker_ms": random.choice((0, 0, 30, 300))}
        self._protocol = random.choice(("classic", "cooperative", "consumer"))
        self._block_ms, self._linger_ms = random.choice(BLOCK_MS), random.choice(LINGER_MS)
        self._splits, self._repeats_offsets = splits_batches(seed), sends_offsets_twice(seed)
        self.world = World(seed, config=settings, features={"transaction.version": transaction_version(seed)})
        self.faults = list(self.world.plan(FAULTS, end=FAULTS_END_S) if faults is None else faults)
        self.books = Books(expected=INPUTS + LATE_INPUTS)
        self.judge = Judge(self.world, Facts(), RULES_OF_CHAINS)
        self.hits: Counter[str] = Counter()
        self.hit_in_flight = False
        self.transitions: Counter[tuple[str, str, str]] = Counter()
        self._requests = 0
        self._aborted_before = 0
        self._loops: dict[str, AsyncExactlyOnce] = {}
        self._transformed: dict[str, list[int]] = {}  # by the present transaction of each worker
        self._zombies: dict[str, asyncio.Future[None]] = {}
        self._given_up: dict[bytes, float] = {}  # inputs that ended a transaction in calm, and when
        self._gave_up_at: dict[str, float] = {}  # when each worker did so last: other records may delay a repetition
        self._open = 0  # records that are being transformed, within a transaction

    def go(self) -> Outcome:
        """Process all inputs, or fail after `LONGEST_S`."""
        broken: InvariantError | None = None
        with collector_off(), errors_to(self.books.errors), observed(self.transitions):
            try:
                self._schedule()
                self.world.run(self._live())
                self._fill_books()
                self.judge.after("chain end", self.books)
            except InvariantError as found:
                broken = found
            except BusyLoopError as found:
                broken = InvariantError("S02 no_loop_is_busy", str(found))
            except (SimulationStuckError, TimeoutError) as found:
                broken = InvariantError("S09 no_call_waits_forever", str(found) or f"not everything was processed after {LONGEST_S} s")
            except Exception as found:  # noqa: BLE001 whatever ends a run is its finding
                broken = InvariantError("S10 users_see_no_other_error", "".join(traceback.format_exception(found)))
            with contextlib.suppress(BaseException):
                self.world.close()
        return self._outcome(broken)

    def _schedule(self) -> None:
        loop, end = self.world.loop, max((each.over for each in self.faults), default=0.0)
        for fault in self.faults:
            loop.call_at(fault.at, KINDS[fault.kind], Strike(self.world, fault, self._on_hit))
        loop.call_at(end, self.world.network.reset_half_open)
        self.world.kafka.listeners.append(self._on_event)
        if self.faults:
            for _ in range(MOVES):
                loop.call_at(self._random.uniform(1.0, FAULTS_END_S), self._move, self._random.randrange(SLOTS), self._random.choice((1, 2, 3)))
            for refuses, api in ((self._refuses_offsets, Api.TXN_OFFSET_COMMIT), (self._refuses_end, Api.END_TXN), (self._refuses_batches, Api.PRODUCE)):
                loop.call_at(FAULTS_END_S, self.world.control.intercept(refuses, api=api).remove)

    def _on_event(self, event: str, _facts: object) -> None:
        self._requests += event == "request"

    def _on_hit(self, fault: Fault, _what: str) -> None:
        self.hits[fault.kind] += 1
        self.hit_in_flight = self.hit_in_flight or bool(self._open)

    def _aborted(self) -> int:
        return sum(each.progress.aborted for each in self._loops.values())

    def _fill_books(self) -> None:
        books = self.books
        books.outputs = Counter(value for partition in self._partitions("out") for value in committed(partition))
        books.open = [each.name for each in self._partitions("out") if each.log.last_stable != each.log.high_watermark]
        self.hits["aborts"] = self._aborted()

    def _outcome(self, broken: InvariantError | None) -> Outcome:
        books, journal = self.books, self.world.journal
        return Outcome(
            seed=self.world.seed, digest=journal.digest, broken=str(broken) if broken else None, invariant=broken.invariant if broken else None,
            timeline=journal.timeline() if broken else "", faults=self.faults, hits=dict(self.hits), hit_in_flight=self.hit_in_flight,
            evaluated=dict(self.judge.evaluated), transitions=dict(self.transitions), sent=books.expected, acked=sum(books.outputs.values()), failed=0,
            consumed=sum(each.progress.records for each in self._loops.values()), requests=self._requests, turns=self.world.loop.turns,
            virtual_s=self.world.loop.time())

    def _refuses_offsets(self, _request: Request) -> Fail | None:
        return Fail(UNKNOWN_MEMBER_ID) if self._random.random() < REFUSED else None

    def _refuses_batches(self, request: Request) -> Fail | None:
        """Of workers only: the source must not lose inputs."""
        return Fail(INVALID_RECORD) if request.client_id != "source" and self._random.random() < REFUSED else None

    def _refuses_end(self, _request: Request) -> Fail | None:
        return Fail(self._random.choice(END_ERRORS)) if self._random.random() < REFUSED else None

    def _move(self, slot: int, to: int) -> None:
        kafka = self.world.kafka
        if to in kafka.alive:
            kafka.move_coordinator(f"slot-{slot}", to, 1)

    def _partitions(self, topic: str) -> list[Partition]:
        return self.world.kafka.topics[topic].partitions

    # ---- lives -------------------------------------------------------------------------------------------------------

    async def _live(self) -> None:
        self.world.cluster.create_topic("in", partitions=PARTITIONS)
        self.world.cluster.create_topic("out", partitions=2, config={"max.message.bytes": str(LARGEST_BATCH)} if self._splits else None)
        async with asyncio.timeout(LONGEST_S), asyncio.TaskGroup() as tasks:
            tasks.create_task(self._write_inputs())
            done = asyncio.Event()
            for slot in range(SLOTS):
                tasks.create_task(self._slot(slot, done))
            self.world.kafka.listeners.append(lambda event, _facts: done.set() if event == "committed" and self._all_is_committed() else None)
            tasks.create_task(self._end_zombies(ZOMBIES_END_S))
            await done.wait()
        patient = self._block_ms >= LONG_BLOCK_MS
        self.books.calm_aborted = self.books.calm_aborted + self._aborted() - self._aborted_before if patient else 0
        await asyncio.sleep(TRANSACTION_S + 2.0)  # what zombies left open is aborted by then

    async def _write_inputs(self) -> None:
        with self.world.inside("source"):
            producer = AsyncProducer(bootstrap_servers=self.world.bootstrap_servers, client_id="source", delivery_timeout_ms=200_000)
        async with producer:
            for number in range(INPUTS):
                await producer.send("in", b"%d" % number, partition=number % PARTITIONS)
                await asyncio.sleep(self._random.uniform(0.0, 0.4))
            await asyncio.sleep(max(0.0, CALM_S - self.world.loop.time()))
            self._aborted_before = self._aborted()
            for number in range(INPUTS, INPUTS + LATE_INPUTS):
                await producer.send("in", b"%d" % number, partition=number % PARTITIONS)
                if number % BURST == 0:
                    await asyncio.sleep(self._random.uniform(0.0, 2.0))

    def _all_is_committed(self) -> bool:
        group = self.world.kafka.part(Coordinator).groups.get(GROUP)
        offsets = group.offsets if group is not None else {}
        return sum(offsets["in", number].offset if ("in", number) in offsets else 0 for number in range(PARTITIONS)) == INPUTS + LATE_INPUTS

    async def _slot(self, slot: int, done: asyncio.Event) -> None:
        """One transactional id: workers one after the other, the last until all is done."""
        random, life = Random(f"{self.world.seed}/slot {slot}"), 0
        while not done.is_set():
            life += 1
            name = f"slot-{slot}-life-{life}"
            worker = asyncio.ensure_future(self._work(name, slot))
            ending = await self._ending(random, name, worker, done)
            if ending == "freezes":
                self._freeze(name)
                self._zombies[name] = worker
                self.world.loop.call_later(random.uniform(2.0, 20.0), self._thaw, name)
            else:
                await self._end(name, worker, crashes=ending == "crashes")

    async def _end_zombies(self, at: float) -> None:
        """Before calm: a zombie that left the group then would cost others a transaction by a rebalance."""
        await asyncio.sleep(max(0.0, at - self.world.loop.time()))
        for name, worker in self._zombies.items():
            self._thaw(name)
            await self._end(name, worker, crashes=False)

    async def _ending(self, random: Random, name: str, worker: asyncio.Future[None], done: asyncio.Event) -> str:
        """What ends a worker's life; before it may be cut off from all brokers for a while."""
        while True:
            await self._until(worker, done, random.uniform(1.0, 12.0) if self.world.loop.time() < FAULTS_END_S else LONGEST_S)
            ending = random.choice(ENDINGS) if not worker.done() and not done.is_set() else "ends"
            self.hits[ending] += ending != "ends"
            if ending != "naps":
                return ending
            await self._cut_off(name, random.uniform(4.0, 12.0))

    async def _until(self, worker: asyncio.Future[None], done: asyncio.Event, seconds: float) -> None:
        waiter: asyncio.Future[Any] = asyncio.ensure_future(done.wait())
        either: list[asyncio.Future[Any]] = [worker, waiter]
        await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
        waiter.cancel()

    async def _end(self, name: str, worker: asyncio.Future[None], *, crashes: bool) -> None:
        if crashes:
            worker.cancel()
        elif name in self._loops:
            self._loops[name].stop()
        else:
            worker.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await worker

    async def _work(self, name: str, slot: int) -> None:
        options: dict[str, Any] = {"bootstrap_servers": self.world.bootstrap_servers, "client_id": name, "request_timeout_ms": 2000}
        member = MEMBERS[self._protocol]
        with self.world.inside(name):
            consumer = AsyncConsumer(topics=["in"], group_id=GROUP, enable_auto_commit=False, isolation_level="read_committed", auto_offset_reset="earliest",
                                     max_poll_records=5, max_poll_interval_ms=10_000, fetch_max_wait_ms=1500, **member, **options)
            kind = Repeating if self._repeats_offsets else Reporting
            producer = kind(partial(self._begins, name), partial(self._committed, name), transactional_id=f"slot-{slot}", transaction_timeout_ms=round(1000 * TRANSACTION_S), delivery_timeout_ms=8000,
                                 max_block_ms=self._block_ms, linger_ms=self._linger_ms, **options)
        try:
            async with consumer, producer:
                self._loops[name] = AsyncExactlyOnce(consumer, producer, partial(self._transform, name), retry=ONCE)
                await self._loops[name].run()
        except FailedError:
            self.hits["fails"] += 1
        except KafkaError as error:
            self.hits["is fenced"] += error.fatal
            if not error.fatal and not isinstance(error, KafkaTimeoutError):
                self.books.surprises.append(f"{name}: {error!r}")
        except Exception as error:  # noqa: BLE001  # whatever else comes is a finding
            self.books.surprises.append(f"{name}: {error!r}")

    def _begins(self, name: str) -> None:
        self._transformed[name] = []

    def _committed(self, name: str) -> None:
        """It was reported to the worker."""
        self.books.claimed.update(self._transformed[name])

    async def _transform(self, name: str, record: Record) -> Output:
        """The input's number, to the partition that it chooses."""
        value = record.value or b""
        self._note_repeated(name, value)
        self._transformed[name].append(int(value))
        self._open += 1
        try:
            await asyncio.sleep(max(0.0, self._random.uniform(-0.05, 0.1)))
            if self.world.loop.time() < FAULTS_END_S:
                await self._disturb(name)
            elif self.world.loop.time() > CALM_S and self._random.random() < WAKING_IN_CALM:
                self._give_up(name, value)
        finally:
            self._open -= 1
        return Output("out", value, partition=int(value) % 2)

    def _give_up(self, name: str, value: bytes) -> None:
        self._given_up[value] = self._gave_up_at[name] = self.world.loop.time()
        self.books.calm_aborted -= 1
        raise WakeupError("on purpose")

    def _note_repeated(self, name: str, value: bytes) -> None:
        if value in self._given_up:
            since = max(self._given_up.pop(value), self._gave_up_at.get(name, 0.0))
            self.books.slowest_repeat = max(self.books.slowest_repeat, self.world.loop.time() - since)

    async def _disturb(self, name: str) -> None:
        """Within a transaction, which may have outputs already."""
        chance = self._random.random()
        if chance < FAILING:
            raise FailedError
        if chance < FAILING + WAKING:
            self.hits["wakes up"] += 1
            raise WakeupError("on purpose")
        if chance < FAILING + WAKING + STALLING:
            self.hits["stalls"] += 1
            await self._cut_off(name, self._random.uniform(*STALL_S))

    async def _cut_off(self, name: str, seconds: float) -> None:
        """No byte of this client arrives, nor any for it, and no connection opens."""
        self._freeze(name)
        self.world.network.cut_off.add(name)
        try:
            await asyncio.sleep(seconds)
        finally:
            self.world.network.cut_off.discard(name)
            self._thaw(name)

    def _freeze(self, name: str) -> None:
        for link in self.world.network.of_client(name):
            link.freeze()

    def _thaw(self, name: str) -> None:
        for link in list(self.world.network.of_client(name)):
            if link.frozen:
                link.cut(Cut.BEFORE_WRITE)


class Reporting(AsyncProducer):
    """Reports what was reported to its user."""

    def __init__(self, begins: Callable[[], object], committed: Callable[[], object], **options: Any) -> None:
        super().__init__(**options)
        self._begins = begins
        self._committed = committed

    async def begin_transaction(self) -> None:
        """As the original."""
        await super().begin_transaction()
        self._begins()

    async def commit_transaction(self, *timeout: Any, **named: Any) -> None:
        """As the original."""
        await super().commit_transaction(*timeout, **named)
        self._committed()


class Repeating(Reporting):
    """Sends the offsets of a transaction twice; both calls wait for their answers at the same time."""

    async def send_offsets(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], *member: Any, **named: Any) -> None:
        """First offsets that are too low: what was sent last counts (T04)."""
        send, low = super().send_offsets, {tp: each._replace(offset=max(0, each.offset - 1)) for tp, each in offsets.items()}
        for outcome in await asyncio.gather(send(low, *member, **named), send(offsets, *member, **named), return_exceptions=True):
            if outcome is not None:
                raise outcome


class FailedError(Exception):
    """The function of a worker raised on purpose."""


def committed(partition: Partition) -> Iterator[int]:
    """The values of committed transactions, as the log has them."""
    pending: dict[int, list[int]] = {}
    for batch in partition.log.batches:
        if batch.is_control:
            values = pending.pop(batch.producer_id, [])
            yield from values if batch.marker().commits else ()
        else:
            pending.setdefault(batch.producer_id, []).extend(int(record.value or b"") for each in read_batches(batch.data) for record in each.records("", 0))


def splits_batches(seed: int) -> bool:
    """Whether its brokers refuse batches of outputs as too large."""
    return Random(f"{seed}/max.message.bytes").random() < SPLITS_SHARE


def sends_offsets_twice(seed: int) -> bool:
    """Whether its workers are `Repeating`."""
    return Random(f"{seed}/offsets").random() < REPEATS_SHARE


def transaction_version(seed: int) -> int:
    """Which protocol of transactions its cluster has."""
    return Random(f"{seed}/transaction.version").choice((1, 2))


def run_chain_seed(seed: int, faults: Sequence[Fault] | None = None) -> Outcome:
    """Run a seed of a chain, as `run_seed` does."""
    return Chain(seed, faults).go()
