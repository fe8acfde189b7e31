"""A fetcher fills a FetchBuffer while the user's thread takes, returns, seeks and pauses; a third thread wakes it."""
from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from random import Random
from typing import ClassVar, Final

import pytest

from pyclient.buffers.fetch_buffer import Chunk, FetchBuffer
from pyclient.config import ConsumerConfig
from pyclient.consumer.core import ConsumerCore
from pyclient.records import TopicPartition
from tests.reactors import idle_portal
from tests.threads.edges import Coin
from tests.threads.team import Team, watched

AHEAD: Final = 2
TAKES: Final = 400
WAKES: Final = 60


class EdgyPartition(TopicPartition):
    """Lets other threads run whenever it is looked up, so that a missing lock shows."""

    __slots__ = ()
    coin: ClassVar[Coin]

    def __hash__(self) -> int:
        self.coin()
        return super().__hash__()


PARTITIONS: Final[list[TopicPartition]] = [EdgyPartition("orders", number) for number in range(3)]


class Filler:
    """The fetcher's side: keeps a few chunks ahead of the user, one record each, and runs its commands."""

    def __init__(self, buffer: FetchBuffer, coin: Coin) -> None:
        self.buffer = buffer
        self.coin = coin
        self.generations = dict.fromkeys(PARTITIONS, 0)
        self.positions = dict.fromkeys(PARTITIONS, 0)
        self.commands: queue.SimpleQueue[tuple[Callable[[], object], threading.Event]] = queue.SimpleQueue()
        self.wake = threading.Event()
        self.ended = False
        buffer.on_room = self.wake.set
        for tp in PARTITIONS:
            buffer.renew(tp, 0)

    def do(self, work: Callable[[], object]) -> None:
        """Run *work* in the fetcher's thread; called by the user's thread, which waits for it."""
        done = threading.Event()
        self.commands.put((work, done))
        self.wake.set()
        watched(done, "the end of a command")

    def seek(self, tp: TopicPartition, position: int) -> None:
        self.generations[tp] += 1
        self.positions[tp] = position
        self.buffer.renew(tp, self.generations[tp])

    def run(self) -> None:
        wanting = dict.fromkeys(PARTITIONS)
        while not self.ended:
            self.wake.clear()
            while not self.commands.empty():
                work, done = self.commands.get()
                work()
                wanting.update(dict.fromkeys(PARTITIONS))
                done.set()
            wanting.update(dict.fromkeys(self.buffer.take_drained()))
            for tp in list(wanting):
                self.fill(tp)
                del wanting[tp]
            watched(self.wake, "room in the buffer")

    def fill(self, tp: TopicPartition) -> None:
        generation = self.generations[tp]
        while not self.buffer.is_full(tp, AHEAD):
            position = self.positions[tp]
            self.positions[tp] = position + 1
            self.coin()
            self.buffer.put(Chunk(tp, generation - 1, position, (), position + 1, 10))  # the response to a fetch before the seek
            self.buffer.put(Chunk(tp, generation, position, (), position + 1, 10))


class Reader:
    """The user's side: knows the next expected offset of each partition."""

    def __init__(self, core: ConsumerCore, filler: Filler, seed: int) -> None:
        self.core = core
        self.buffer = core.buffer
        self.filler = filler
        self.chance = Random(seed)
        self.expected = dict.fromkeys(PARTITIONS, 0)
        self.taken = 0
        self.heard = 0
        self.woken = threading.Semaphore(0)

    def run(self) -> None:
        while self.taken < TAKES or self.heard < WAKES:
            self.core.data.wait(None)
            if self.buffer.take_wake():
                self.heard += 1
                self.woken.release()
            self.take()
            if self.chance.random() < 0.1:
                self.seek(self.chance.choice(PARTITIONS), self.chance.randrange(1000))
            if self.chance.random() < 0.1:
                self.pause(self.chance.sample(PARTITIONS, 1))
        self.filler.ended = True
        self.filler.wake.set()

    def take(self) -> None:
        entry = self.buffer.take()
        if entry is None:
            return
        assert isinstance(entry, Chunk)
        assert (entry.generation, entry.position) == (self.filler.generations[entry.tp], self.expected[entry.tp])
        if self.chance.random() < 0.2:
            self.buffer.give_back(entry)
        else:
            self.expected[entry.tp] += 1
            self.taken += 1
            self.buffer.use_up(entry)

    def seek(self, tp: TopicPartition, position: int) -> None:
        self.expected[tp] = position
        self.filler.do(lambda: self.filler.seek(tp, position))

    def pause(self, tps: list[TopicPartition]) -> None:
        self.filler.do(lambda: self.buffer.pause(tps))


def test_C03_data_comes_in_order_without_any_from_before_a_seek_and_every_wakeup_ends_a_wait(
        seed: int, coin: Coin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(EdgyPartition, "coin", coin, raising=False)
    core = ConsumerCore(ConsumerConfig.parse({"bootstrap_servers": "127.0.0.1:1"}), idle_portal())  # not opened: the filler is its fetcher
    buffer = core.buffer
    buffer.on_data = coin.around(core.data.notify)
    filler = Filler(buffer, coin)
    reader = Reader(core, filler, seed)
    team = Team()

    def wake() -> None:
        """Never two at once: they would end only one wait."""
        for _ in range(WAKES):
            buffer.wake()
            assert reader.woken.acquire(timeout=20), "a wakeup was lost"
            coin()

    team.add("wake", wake)
    team.add("read", reader.run)
    team.add("fill", filler.run)
    team.run()
    for tp in PARTITIONS:
        buffer.renew(tp, None)
    assert (len(buffer), buffer.bytes) == (0, 0)
    assert [buffer.count(tp) for tp in PARTITIONS] == [0, 0, 0]
