"""Simulated sockets: as hard as the system's, under the client's own channels and poller."""
from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from pyclient.reactor.channels import NOTHING, PlainChannel
from pyclient.reactor.pollers import READABLE, WRITABLE
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Future
from pyclient.runtime.environment import loop_reactor, using
from pyclient.runtime.network import SocketOptions
from pyclient.runtime.portals import LoopPortal
from pyclient.testing import World
from pyclient.testing.simulation.loop import BUSY, FIRST_DESCRIPTOR, BusyLoopError
from pyclient.testing.simulation.network import Cut, Link
from pyclient.testing.simulation.sockets import NEAR_AN_END, part

SENT = bytes(range(256)) * 40


class Peer(asyncio.Protocol):
    """The broker's end."""

    def __init__(self) -> None:
        self.got = bytearray()
        self.ended = False

    def data_received(self, data: bytes) -> None:
        self.got += data

    def eof_received(self) -> None:
        self.ended = True


class Here:
    """A channel of a client, its link and its peer."""

    def __init__(self, reactor: Reactor, world: World) -> None:
        self.reactor, self.world = reactor, world
        self.peer = Peer()
        self.channel: Any = None
        self.got = bytearray()
        self.error: OSError | None = None
        self.calls: Counter[int | str] = Counter()
        self.left: list[Any] = []
        self._changed: Future[None] | None = None

    async def open(self) -> None:
        network: Any = self.world.network
        network.front.connection = lambda _: self.peer
        endpoint, *_ = await network.of("client").resolve(self.reactor, "broker-1", 9092)
        self.channel = await network.of("client").open(self.reactor, endpoint, SocketOptions())
        assert isinstance(self.channel, PlainChannel)
        self.channel.attach(self.on_events)

    @property
    def link(self) -> Link:
        return next(iter(self.world.network.links))

    def on_events(self, events: int) -> None:
        if events & WRITABLE and self.left:
            self.channel.write(self.left)
        if events & READABLE:
            self.read()
        if self._changed is not None and not self._changed.done():
            self._changed.set_result(None)

    def read(self) -> None:
        buffer = bytearray(4096)
        try:
            while (size := self.channel.read_into(buffer, 0)) > 0:
                self.calls[size] += 1
                self.got += buffer[:size]
        except OSError as error:
            self.error = error
        else:
            self.calls["nothing" if size == NOTHING else "end"] += 1

    async def until(self, condition: Callable[[], object]) -> None:
        while not condition():
            self._changed = Future(self.reactor)
            await self._changed


def simulated(seed: int, test: Callable[[Here], Coroutine[Any, Any, None]]) -> None:
    with World(seed, brokers=1) as world, using(world.environment("client")):
        portal = LoopPortal("client", loop_reactor())

        async def steps() -> None:
            portal.start()
            here = Here(portal.reactor, world)
            await portal.call(here.open)
            await portal.call(lambda: test(here))
            portal.run(here.channel.close)

        world.run(asyncio.wait_for(steps(), 60))
        assert not world.loop.defects


@pytest.mark.parametrize("seed", range(10))
def test_bytes_arrive_in_order_in_both_directions_whatever_is_refused_and_split(seed: int) -> None:
    async def test(here: Here) -> None:
        here.left.extend([memoryview(SENT)[at:at + 1000] for at in range(0, len(SENT), 1000)] * 10)
        here.channel.write(here.left)
        for _ in range(10):
            here.link.far.write(SENT)
        await here.until(lambda: len(here.got) == 10 * len(SENT) and not here.left)
        assert here.got == SENT * 10

    def checked(here: Here) -> Coroutine[Any, Any, None]:
        peers.append(here.peer)
        return test(here)

    peers: list[Peer] = []
    simulated(seed, checked)
    assert [bytes(each.got) for each in peers] == [SENT * 10]


def test_calls_are_cut_at_every_place_near_an_end_and_elsewhere_and_bytes_come_one_by_one() -> None:
    random, size = Random(1), 1000
    cuts = {part(random, size) for _ in range(20_000)}
    assert {*range(1, NEAR_AN_END + 1), *range(size - NEAR_AN_END, size + 1)} <= cuts
    assert len(cuts) > size / 2
    assert {part(random, 1) for _ in range(100)} == {1}


def test_writing_is_refused_and_goes_on_and_no_event_comes_while_there_is_no_room() -> None:
    refused: Counter[bool] = Counter()

    async def test(here: Here) -> None:
        sock = here.channel.socket
        for _ in range(300):
            here.left.append(b"x" * 3000)
            here.channel.write(here.left)
            refused[bool(here.left)] += 1
            if here.left:
                assert not sock.is_writable() or sock._left
            await here.until(lambda: not here.left)

    simulated(1, test)
    assert refused[True] > 5
    assert refused[False] > 100


def test_what_came_before_a_reset_in_the_middle_of_a_frame_is_read_or_lost() -> None:
    seen = set()
    for seed in range(12):
        async def test(here: Here) -> None:
            here.link.far.write(SENT)
            here.link.cut(Cut.MID_FRAME)
            await here.until(lambda: here.error)
            assert isinstance(here.error, ConnectionResetError)
            seen.add(len(here.got))
            with pytest.raises(BrokenPipeError):
                here.channel.write([b"x"])
        simulated(seed, test)
    assert seen == {0, len(SENT) // 2}


def test_a_peer_that_closes_half_still_gets_what_is_written() -> None:
    async def test(here: Here) -> None:
        here.link.far.write(b"last")
        link = here.link
        link.close_half()
        link.far.write(b"lost")
        await here.until(lambda: here.calls["end"])
        assert here.got == b"last"
        here.channel.write([b"heard"])
        link.near.deliver_now()
        assert here.peer.got == b"heard"

    simulated(3, test)


def test_who_closes_and_has_not_read_everything_resets_the_connection() -> None:
    async def test(here: Here) -> None:
        here.channel.socket.data_received(b"not read")
        here.channel.write([b"lost"])
        link = here.link
        here.channel.close()
        assert link.near.is_closing()
        assert not here.peer.got
        assert not here.peer.ended

    simulated(2, test)


def test_low_water_holds_events_back_but_not_the_end() -> None:
    held = 0
    for seed in range(8):
        async def test(here: Here) -> None:
            nonlocal held
            sock = here.channel.socket
            here.channel.set_low_water(1000)
            sock.data_received(b"x" * 999)
            held += not sock.is_readable()
            sock.data_received(b"x")
            assert sock.is_readable()
            here.channel.set_low_water(5000)
            sock.eof_received()
            assert sock.is_readable()
        simulated(seed, test)
    assert 0 < held < 8, "some systems do not know it"


def test_a_number_is_used_again_and_a_descriptor_that_is_watched_cannot_be_closed() -> None:
    with World(1) as world:
        loop = world.loop
        first, second = (loop.open_descriptor(lambda: False, lambda: False) for _ in range(2))
        loop.close_descriptor(first)
        assert [first, second, loop.open_descriptor(lambda: True, lambda: True)] == [FIRST_DESCRIPTOR, FIRST_DESCRIPTOR + 1, FIRST_DESCRIPTOR]
        loop.add_reader(second, int)
        with pytest.raises(RuntimeError, match="still watched"):
            loop.close_descriptor(second)


def test_who_watches_is_called_as_long_as_there_is_something_and_not_after_that() -> None:
    with World(1) as world:
        left = [1, 2, 3]
        calls: list[int] = []
        descriptor = world.loop.open_descriptor(lambda: bool(left), lambda: True)
        world.loop.add_reader(descriptor, lambda: calls.append(left.pop()))
        world.run(asyncio.sleep(1))
        assert calls == [3, 2, 1]
        assert world.loop.remove_reader(descriptor)
        left.append(4)
        world.loop.look_at(descriptor)
        world.run(asyncio.sleep(1))
        assert left == [4]


def test_a_client_that_does_not_read_spins() -> None:
    with World(1) as world:
        world.loop.add_reader(world.loop.open_descriptor(lambda: True, lambda: True), int)
        with pytest.raises(BusyLoopError, match=str(BUSY)):
            world.run(asyncio.sleep(1))


def test_callbacks_of_a_reactor_at_one_instant_are_a_busy_loop_too() -> None:
    with World(1) as world, using(world.environment("client")):
        portal = LoopPortal("client", loop_reactor())
        world.network.reactors[portal.reactor] = None

        def again() -> None:
            portal.reactor.call_soon(again)

        async def steps() -> None:
            portal.start()
            portal.reactor.call_soon(again)
            await asyncio.sleep(1)

        before = world.loop.turns
        with pytest.raises(BusyLoopError):
            world.run(steps())
        assert world.loop.turns - before < 3 * BUSY
