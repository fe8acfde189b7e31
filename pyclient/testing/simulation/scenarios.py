"""Named scenarios: logs are truncated, and followers lag or lose their log's end, while producers write and consumers
of every reset policy read (C09, C11, KIP-320, KIP-392).

A scenario is a run with fixed faults; the seed decides sizes, paces, options and what the network does. All invariants
hold as in any run, and in the end every reader's view must be the remaining log, from where the reader began.
"""
from __future__ import annotations

import asyncio
import math
from collections.abc import Awaitable, Callable, Mapping
from random import Random
from typing import Any, Final

from pyclient.records import OffsetAndMetadata, TopicPartition
from pyclient.records.record import Record
from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition
from pyclient.testing.simulation.facts import Cut, Facts
from pyclient.testing.simulation.invariants import InvariantError, Judge
from pyclient.testing.simulation.run import LONGEST_S, Outcome, Run
from pyclient.testing.simulation.workload import SEPARATOR, ConsumingService, Plan, ProducingService
from pyclient.testing.simulation.world import World

LOG: Final = TopicPartition("log", 0)
POLICIES: Final = ("earliest", "latest", "none")
TIMEOUT_S: Final = 60.0
"""How long anything that a scenario waits for may take."""
STEP_S: Final = 0.05
HISTORY: Final = 120
"""Where epoch 1 begins in the history of `epochs_0_from_0_and_1_from_120`."""


class Writer(ProducingService):
    """Writes as many records as it is asked for."""

    async def write(self, count: int) -> None:
        """Send them and wait until all are stored."""
        for _ in range(count):
            await self._send()
        await self._producer.flush(TIMEOUT_S)

    async def send(self, count: int) -> None:
        """Send them and wait for nothing."""
        for _ in range(count):
            await self._send()


class Reader(ConsumingService):
    """Reads on and on, and remembers what it holds for the log."""

    def __init__(self, world: World, facts: Facts, judge: Judge, plan: Plan, number: int) -> None:
        super().__init__(world, facts, judge, plan, number)
        self._seeks = self._restless = self._wanders = False
        self.view: dict[int, bytes] = {}
        self._goes_on = asyncio.Event()
        self._goes_on.set()
        self._target: int | None = None
        self.stands = False
        """It polls no more: what is fetched stays unread."""

    async def _step(self) -> None:
        self.stands = not self._goes_on.is_set()
        await self._goes_on.wait()
        self.stands = False
        if self._target is not None:
            self._seek_to(self._target)
            self._target = None
        await super()._step()

    def stand_still(self) -> None:
        """Poll no more from the next step on, until `go_on`."""
        self._goes_on.clear()

    def go_on(self) -> None:
        """Poll again."""
        self._goes_on.set()

    @property
    def source(self) -> int | None:
        """The follower that it reads from; None: it reads from the leader."""
        return self._consumer._core.fetcher._preferred.of(LOG)

    @property
    def fetched(self) -> int:
        """The offset that it fetches next."""
        return self._consumer._core.fetcher.positions[LOG].offset

    def seek(self, offset: int) -> None:
        """Let it seek to this offset before its next poll, perhaps with the epoch of the record before."""
        self._target = offset

    def _seek_to(self, offset: int) -> None:
        if self._followers.random() < 0.5:
            self._consumer.seek(LOG, offset)
            self._facts.sought(self.name, LOG, offset)
        else:
            epoch = self._facts.stored[LOG][offset - 1].epoch
            self._consumer.seek(LOG, OffsetAndMetadata(offset, leader_epoch=epoch))
            self._facts.resumed(self.name, LOG, offset, epoch)
        self._reading(LOG).handed = offset
        self.view.clear()

    def _on_record(self, record: Record) -> None:
        if self.policy == "none" and record.offset < self.next:
            raise InvariantError("C11 truncation_is_reported", f"{self.name} got no error, and reads {record.offset} behind {self.next}")
        super()._on_record(record)
        self.view[record.offset] = (record.value or b"").split(SEPARATOR)[0]

    @property
    def policy(self) -> str:
        """Its auto_offset_reset."""
        return str(self._options["auto_offset_reset"])

    @property
    def next(self) -> int:
        """The offset that it reads next; -1 while that is not known."""
        reading = self._reading(LOG)
        return reading.position if reading.next is None else reading.next


class Scene(Run):
    """One log on three brokers, one writer, a reader of each policy; *story* says what happens."""

    def __init__(self, seed: int, story: Callable[[Scene], Awaitable[None]], **settings: object) -> None:
        super().__init__(seed, [], config={"replica_lag_ms": 0, "replica_lag_time_max_ms": 500, "failure_detection_ms": 0, **settings})
        self.random = self.world.random("scenario")
        self.plan = Plan(topics={LOG.topic: 1}, largest_batch=1_048_588, producers=[_writes(self.random)], consumers=[_reads(self.random, each) for each in POLICIES],
                         records=0, working_s=0.0, closes_at=None)
        self.facts.calm_from = math.inf
        self.writer = Writer(self.world, self.facts, self.judge, self.plan, 0)
        self.readers = [Reader(self.world, self.facts, self.judge, self.plan, number) for number in range(len(POLICIES))]
        self._story = story

    @property
    def partition(self) -> Partition:
        """The log, as the model has it."""
        found = self.world.kafka.partition(*LOG)
        assert found is not None
        return found

    async def _simulate(self) -> None:
        self._watch()
        self.world.kafka.create_topic(LOG.topic, replicas=[[1, 2, 3]])
        done = asyncio.Event()
        async with asyncio.timeout(LONGEST_S), asyncio.TaskGroup() as everybody:
            for reader in self.readers:
                everybody.create_task(reader.run(done), name=reader.name)
            async with self.writer._producer:
                await self.until(lambda: all(each.next >= 0 for each in self.readers), "all have begun")
                await self._story(self)
            done.set()
        self.judge.after("end")
        self._check()
        await asyncio.sleep(1.0)

    # ---- what stories are made of ------------------------------------------------------------------------------------

    async def until(self, condition: Callable[[], bool], what: str) -> None:
        """Wait for it."""
        limit = self.world.loop.time() + TIMEOUT_S
        while not condition():
            if self.world.loop.time() > limit:
                self.require(False, f"in {TIMEOUT_S:.0f} s did not happen: {what}")
            await asyncio.sleep(STEP_S)

    async def stand_still(self, *readers: Reader) -> None:
        """Let these poll no more, and wait until they stand."""
        for each in readers:
            each.stand_still()
        await self.until(lambda: all(each.stands for each in readers), "they stand still")

    async def let_poll_once(self, reader: Reader) -> None:
        """Let one that stands still poll once."""
        reader.go_on()
        await self.until(lambda: not reader.stands, "it polls")
        await self.stand_still(reader)

    async def write_in_bursts(self, count: int) -> None:
        """Write so often, so that one who reads gets several responses."""
        for _ in range(count):
            await self.writer.write(self.random.randint(1, 30))
            await asyncio.sleep(self.random.uniform(0.0, 0.5))

    async def all_have_read(self) -> None:
        """Wait until every reader that polls has come to the end of what is committed."""
        await self.until(lambda: all(each.next >= self.partition.log.high_watermark for each in self.readers if not each.stands), "all have read everything")

    async def some_have_read(self) -> None:
        """Let the readers read: mostly all of it, else for some time."""
        if self.random.random() < 0.7:
            await self.all_have_read()
        else:
            await asyncio.sleep(self.random.uniform(0.0, 3.0))

    async def leader_alone(self) -> None:
        """Followers hang until only the leader is in sync."""
        self.partition.set_lag(math.inf)
        await self.writer.write(self.random.randint(1, 40))  # is acknowledged when the others have left the ISR
        await self.until(lambda: self.partition.isr == [self.partition.leader], "the leader is alone in sync")

    def elect(self, broker: int) -> Cut:
        """Let a replica lead that does not have everything; gives what that cut off."""
        before = len(self.facts.cuts[LOG])
        if self.partition.leader != broker:
            self.partition.elections.elect_unclean(broker)
        self.require(len(self.facts.cuts[LOG]) > before, f"the log of broker {broker} holds all that was there")
        return self.facts.cuts[LOG][-1]

    async def heal(self) -> None:
        """All brokers run and copy the log."""
        kafka = self.world.kafka
        for broker in kafka.brokers:
            if broker not in kafka.alive:
                kafka.restart(broker)
        self.partition.set_lag(0)
        await self.until(lambda: len(self.partition.isr) == 3, "all replicas are in sync")

    def require(self, condition: object, text: str) -> None:
        """Raise unless it happened as the scenario means it."""
        if not condition:
            self.judge.broken = self.judge.broken or InvariantError("S11 the_scenario_happens", text)
            raise self.judge.broken

    def _check(self) -> None:
        log = {offset: entry.name for offset, entry in self.facts.stored[LOG].items()}
        for reader in self.readers:
            begin = min(reader.view, default=0)
            seen = {offset: name for offset, name in reader.view.items() if offset < len(log)}
            if seen != {offset: name for offset, name in log.items() if offset >= begin}:
                raise InvariantError("C11 the_new_log_is_read", f"{reader.name} ({reader.policy}) holds {len(seen)} records for the log from {begin} "
                             f"to {len(log)}, of which {sum(log.get(offset) != name for offset, name in seen.items())} are others")


# ---- the stories -----------------------------------------------------------------------------------------------------


async def _acknowledged_and_lost(scene: Scene) -> None:
    random, partition = scene.random, scene.partition
    await scene.writer.write(random.randint(1, 80))
    await scene.all_have_read()
    await scene.leader_alone()
    await scene.writer.write(random.randint(1, 60))
    acknowledged = scene.facts.acked
    scene.require(acknowledged == len(scene.facts.sent), "not everything was acknowledged")
    await scene.some_have_read()
    scene.world.kafka.kill(partition.leader)
    scene.require(partition.leader == NO_LEADER, "a broker leads without an unclean election")
    cut = scene.elect(random.choice((2, 3)))
    scene.require(len(scene.facts.lost) >= 1 and cut.lost, "nothing that was acknowledged is lost")
    await scene.heal()
    await scene.writer.write(random.randint(1, 120))


async def _diverged_logs(scene: Scene) -> None:
    random, kafka = scene.random, scene.world.kafka
    await scene.writer.write(random.randint(1, 80))
    await scene.all_have_read()
    await scene.leader_alone()
    await scene.writer.write(random.randint(1, 60))
    await scene.some_have_read()
    kafka.kill(1)
    first = scene.elect(2)
    kafka.kill(3)
    await scene.writer.write(random.randint(1, 60))
    await scene.some_have_read()
    kafka.restart(1)
    kafka.kill(2)
    second = scene.elect(1)
    scene.require(second.at == first.at, f"the logs part at {first.at}, and at {second.at}")
    scene.require(all(scene.facts.stored[LOG].get(offset) == entry for offset, entry in first.lost.items()), "the first log is not back")
    await scene.some_have_read()
    await scene.heal()
    await scene.writer.write(random.randint(1, 60))


async def _epochs_0_and_1(scene: Scene) -> None:
    if scene.random.random() < 0.5:
        await _other_log_is_shorter(scene)
    else:
        await _other_log_goes_on_under_epoch_0(scene)
    await scene.some_have_read()
    await scene.heal()
    await scene.writer.write(scene.random.randint(1, 60))


async def _other_log_is_shorter(scene: Scene) -> None:
    """Broker 3 goes down when it has everything up to some offset of epoch 0 or 1, and leads in the end."""
    random, kafka, partition = scene.random, scene.world.kafka, scene.partition
    behind = random.choice((random.randint(1, HISTORY - 1), random.randint(HISTORY + 1, HISTORY + 20)))
    await scene.writer.write(min(behind, HISTORY))
    if behind < HISTORY:
        kafka.kill(3)
        await scene.writer.write(HISTORY - behind)
    partition.elections.move_leader(2)
    if behind > HISTORY:
        await scene.writer.write(behind - HISTORY)
        kafka.kill(3)
    await scene.writer.write(random.randint(1, 40))
    _require_history(scene)
    await scene.some_have_read()
    kafka.kill(1)
    kafka.kill(2)
    kafka.restart(3)
    cut = scene.elect(3)
    scene.require(cut.at == behind, f"the logs part at {cut.at}, not at {behind}")


async def _other_log_goes_on_under_epoch_0(scene: Scene) -> None:
    """Broker 1 has written on under epoch 0 what was never committed, and leads in the end."""
    random, kafka, partition = scene.random, scene.world.kafka, scene.partition
    await scene.writer.write(HISTORY)
    await scene.all_have_read()
    partition.set_lag(math.inf)
    await scene.writer.send(random.randint(1, 40))
    await scene.until(lambda: partition.log.end > HISTORY, "the leader has more than the others")
    kafka.kill(1)
    scene.require(partition.leader == 2, "no replica in sync leads")
    partition.set_lag(0)
    await scene.writer.write(random.randint(1, 40))
    _require_history(scene)
    await scene.some_have_read()
    partition.set_lag(math.inf)
    kafka.kill(3)
    kafka.kill(2)
    kafka.restart(1)
    cut = scene.elect(1)
    scene.require(cut.at == HISTORY, f"the logs part at {cut.at}, not at {HISTORY}")


def _require_history(scene: Scene) -> None:
    epochs = [(each.epoch, each.offset) for each in scene.partition.log.epochs.entries]
    scene.require(epochs == [(0, 0), (1, HISTORY)], f"the epochs are {epochs}")


async def _read_from_broker_2(scene: Scene) -> None:
    """Every reader reads from the follower in its rack."""
    await scene.writer.write(scene.random.randint(20, 80))
    await scene.until(lambda: all(each.source == 2 for each in scene.readers), "all read from broker 2")


async def _follower_lags(scene: Scene) -> None:
    """Readers go to what only the leader has yet, and the follower that they read from answers."""
    random, partition = scene.random, scene.partition
    await _read_from_broker_2(scene)
    await scene.all_have_read()
    partition.set_lag(math.inf, 2)
    held = partition.log_of(2).end
    await scene.writer.write(random.randint(2, 40))
    scene.require(partition.log_of(2).end == held and partition.log.high_watermark > held, "the follower does not lag")
    for each in scene.readers:
        each.seek(random.randint(held + 1, partition.log.high_watermark))
    await scene.some_have_read()
    await scene.heal()
    await scene.writer.write(random.randint(1, 60))


async def _follower_was_cut(scene: Scene) -> None:
    """A follower loses power while readers hold what they have fetched from it and not read."""
    random, kafka, partition = scene.random, scene.world.kafka, scene.partition
    await _read_from_broker_2(scene)
    await scene.stand_still(*scene.readers)
    await scene.write_in_bursts(random.randint(1, 4))
    await asyncio.sleep(random.uniform(0.0, 3.0))
    kafka.kill(2)
    partition.cut(2, random.randint(0, partition.log_of(2).end - 1))
    partition.set_lag(math.inf, 2)
    await asyncio.sleep(random.choice((0.0, 0.1, 1.0)))
    kafka.restart(2)
    for each in scene.readers:
        each.go_on()
    await scene.some_have_read()
    await scene.heal()
    await scene.writer.write(random.randint(1, 60))


async def _follower_is_cut_back(scene: Scene) -> None:
    """A follower is cut back to where its log and the new leader's part, while readers hold unread what it has lost."""
    random, kafka, partition = scene.random, scene.world.kafka, scene.partition
    await _read_from_broker_2(scene)
    standing = random.sample(scene.readers, 2)
    await scene.stand_still(*standing)
    await scene.write_in_bursts(random.randint(1, 4))
    partition.set_lag(math.inf, 3)
    await scene.write_in_bursts(random.randint(1, 2))  # is acknowledged when broker 3 has left the ISR
    await scene.some_have_read()
    for each in standing:
        if random.random() < 0.7:
            await scene.let_poll_once(each)  # what it fetches then may be on both sides of the cut
    await asyncio.sleep(random.uniform(0.0, 3.0))
    kafka.kill(1)
    kafka.kill(2)
    scene.require(partition.leader == NO_LEADER, "a broker leads without an unclean election")
    cut = scene.elect(3)
    kafka.restart(2)
    await scene.until(lambda: partition.isr == [2, 3], "the follower is in sync")
    scene.require(partition.log_of(2).end == cut.at and cut.lost, "the follower has lost nothing")
    await scene.writer.write(random.choice((0, 1, 60, 150)))
    for each in scene.readers:
        each.go_on()
    await scene.all_have_read()
    await scene.heal()
    await scene.writer.write(random.randint(1, 60))


NEAR: Final = {"min.insync.replicas": 1, "replica_selector_class": "rack-aware"}
SCENARIOS: Final[Mapping[str, tuple[Callable[[Scene], Awaitable[None]], Mapping[str, object]]]] = {
    "acknowledged-and-lost": (_acknowledged_and_lost, {"min.insync.replicas": 1}),
    "diverged-logs": (_diverged_logs, {"min.insync.replicas": 1}),
    "epochs-0-and-1-from-120": (_epochs_0_and_1, {"min.insync.replicas": 1}),
    "a-follower-lags": (_follower_lags, NEAR),
    "a-follower-was-cut": (_follower_was_cut, NEAR),
    "a-follower-is-cut-back": (_follower_is_cut_back, NEAR),
}
"""Name → what happens, and the brokers' settings."""


def run_scenario(name: str, seed: int) -> Outcome:
    """Run a scenario with a seed; the same arguments give the same outcome, always."""
    story, settings = SCENARIOS[name]
    return Scene(seed, story, **settings).go()


def _writes(random: Random) -> dict[str, Any]:
    return {
        "acks": "all", "enable_idempotence": random.random() < 0.5, "linger_ms": random.choice((0, 5, 50)),
        "batch_size": random.choice((500, 4096)), "buffer_memory": 1 << 20,
        "request_timeout_ms": 2000, "delivery_timeout_ms": 60_000, "retry_backoff_ms": random.choice((20, 100)),
        "retry_backoff_max_ms": 1000, "reconnect_backoff_ms": 50, "reconnect_backoff_max_ms": 500,
    }


def _reads(random: Random, policy: str) -> dict[str, Any]:
    return {
        "auto_offset_reset": policy, "enable_auto_commit": random.random() < 0.5, "auto_commit_interval_ms": 1000,
        "max_poll_records": random.choice((7, 50, 500)), "max_partition_fetch_bytes": random.choice((400, 4096, 1 << 20)),
        "fetch_max_wait_ms": random.choice((100, 1000)), "request_timeout_ms": 4000, "retry_backoff_ms": 50, "reconnect_backoff_ms": 50,
        "reconnect_backoff_max_ms": 500, "default_api_timeout_ms": 15_000, "metadata_max_age_ms": random.choice((3000, 30_000)),
        "client_rack": "rack-2",
    }
