"""C06: Ctrl-C anywhere on the way of records to the user loses none and doubles none, however often it is pressed."""
from __future__ import annotations

import _thread
import asyncio
import gc
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any, Protocol

import pytest

from pyclient import AsyncConsumer, Consumer, Producer, TopicPartition
from pyclient.testing import FakeCluster
from tests.twins import PURE
from tests.waiting import eventually

TP = TopicPartition("t", 0)
RECORDS = 9
MOMENTS = 20 if PURE else 5
"""At least so many are tried: Python looks for signals in interpreted functions only, so that twins have more."""


class Reader(Protocol):
    """One of the ways to read."""

    consumer: Any
    got: Any
    """What the client's call returned. It is kept by a step of Python's that no signal divides from that return."""

    def take(self) -> None:
        """Make one call."""

    def offsets(self) -> list[int]:
        """Of what it returned."""

    def work(self, call: Callable[[], Any]) -> Any:
        """The result of another call."""


class Polls:
    """`Consumer.poll`."""

    def __init__(self, **options: Any) -> None:
        self.consumer = Consumer(**options)
        self.got: Any = ()

    def take(self) -> None:
        self.call()

    def call(self) -> Any:
        self.got = self.consumer.poll(10, max_records=2)

    def offsets(self) -> list[int]:
        return [record.offset for record in self.got]

    def work(self, call: Callable[[], Any]) -> Any:
        return call()


class Loops(Polls):
    """``for record in consumer``, which ends in the next call of the consumer."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.loop: Any = None

    def call(self) -> None:
        loops = self.loop, iter(self.consumer)
        self.loop = loops[1]
        for self.got in loops[1]:
            break

    def offsets(self) -> list[int]:
        return [self.got.offset] if self.got else []


class AsyncPolls(Polls):
    """`AsyncConsumer.poll`."""

    def __init__(self, **options: Any) -> None:
        self.loop = asyncio.new_event_loop()
        self.consumer: Any = AsyncConsumer(**options)
        self.got = ()
        self.loop.run_until_complete(self.consumer.start())

    def take(self) -> None:
        self.loop.run_until_complete(self.call())

    async def call(self) -> None:
        self.got = await self.consumer.poll(10, max_records=2)

    def work(self, call: Callable[[], Any]) -> Any:
        return self.loop.run_until_complete(self._work(call))

    async def _work(self, call: Callable[[], Any]) -> Any:
        await asyncio.sleep(0)
        result = call()
        return await result if asyncio.iscoroutine(result) else result


WAYS: list[type[Polls]] = [Polls, Loops, AsyncPolls]


@pytest.fixture
def full(fake_cluster: FakeCluster) -> Iterator[Callable[[Callable[..., Any]], Reader]]:
    """Makes readers of nine records, in three batches."""
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, linger_ms=60_000) as producer:
        for _ in range(3):
            producer.send_many("t", [b"x"] * 3, partition=0)
            producer.flush()
    made: list[Reader] = []

    def make(way: Callable[..., Any]) -> Reader:
        reader: Reader = way(bootstrap_servers=fake_cluster.bootstrap_servers, auto_offset_reset="earliest", fetch_max_wait_ms=1)
        made.append(reader)
        reader.work(lambda: reader.consumer.assign([TP]))
        return reader

    yield make
    for each in made:
        each.work(each.consumer.close)
        if isinstance(each, AsyncPolls):
            each.loop.close()


def read_all(reader: Reader, strike: Strike) -> int:
    """Read every record once, Ctrl-C in the second call; how many moments that call had."""
    rewind(reader)
    reader.take()
    read = reader.offsets()
    reader.got = ()
    strike.during(reader.take)
    read += reader.offsets()
    assert reader.work(lambda: reader.consumer.position(TP)) == len(read), strike.moments
    while len(read) < RECORDS:
        read += [record.offset for record in reader.work(lambda: reader.consumer.poll(10))]
    assert read == list(range(RECORDS)), strike.moments
    return strike.moments


def rewind(reader: Reader) -> None:
    """Go back to the first record, until all have been fetched."""
    core = reader.consumer._core

    def fetched() -> bool:
        return bool(core.fetcher.positions[TP].known and core.fetcher.positions[TP].offset == RECORDS and core.buffer.bytes)

    reader.work(lambda: reader.consumer.seek(TP, 0))
    eventually(lambda: reader.work(fetched), every_s=0.0002)


def is_moment(frame: FrameType, event: str) -> bool:
    """Whether Ctrl-C may be raised: at the beginning of the client's functions, and behind each of their calls.

    Where a function of the client returns to this module its result is the user's. Generators are left out: what is
    raised while Python closes one is lost.
    """
    code = frame.f_code
    if "/pyclient/" not in code.co_filename or "/testing/" in code.co_filename or code.co_flags & inspect.CO_GENERATOR:
        return False
    if event == "return":
        return frame.f_back is not None and frame.f_back.f_code.co_filename != __file__ and within_call(frame)
    return event in {"call", "c_return"} and within_call(frame)


def within_call(frame: FrameType) -> bool:
    """Whether a method `call` of this module waits for it, as for no callback of a loop."""
    outer: FrameType | None = frame
    while outer is not None:
        if outer.f_code.co_filename == __file__:
            return outer.f_code.co_name == "call"
        outer = outer.f_back
    return False


class Signals:
    """Real signals for this thread: Python raises KeyboardInterrupt where it looks for them next."""

    interrupt = staticmethod(_thread.interrupt_main)
    press = property(operator.methodcaller("interrupt"))
    """Not a call of interpreted code, behind which Python would look: still in the profiler."""


class Strike:
    """Ctrl-C at the moments of these numbers.

    *real*: as signals, where Python looks for them at once. Else the first is raised, also where a function returns;
    that ends the profiler.
    """

    def __init__(self, *points: int, real: bool) -> None:
        self.moments = 0
        self._points = points
        self._real = real
        self._signals = Signals()

    def during(self, take: Callable[[], None]) -> None:
        """Make the call until it is broken off."""
        before, collects = sys.getprofile(), gc.isenabled()
        gc.disable()  # a finalizer would swallow what is raised in it
        sys.setprofile(self._note)
        try:
            take()
        except KeyboardInterrupt:
            pass
        finally:
            sys.setprofile(before)
            if collects:
                gc.enable()

    def _note(self, frame: FrameType, event: str, _: object) -> None:
        if is_moment(frame, event) and not (self._real and event == "return"):
            self.moments += 1
            if self.moments in self._points:
                if not self._real:
                    raise KeyboardInterrupt
                self._signals.press  # noqa: B018  # a property


@pytest.mark.parametrize("way", WAYS)
def test_C06_ctrl_c_on_the_records_way_to_the_user_loses_none_and_doubles_none(full: Callable[..., Reader], way: Any) -> None:
    """By a poll or a loop that goes on within a batch."""
    reader = full(way)
    point, moments = 0, 1
    while point <= moments:
        point += 1
        moments = read_all(reader, Strike(point, real=False))
    assert point > MOMENTS


@pytest.mark.parametrize("way", [Polls, AsyncPolls])
@pytest.mark.parametrize("between", [1, 3])
def test_C06_ctrl_c_pressed_again_while_the_first_is_handled_loses_no_record(full: Callable[..., Reader], between: int, way: Any) -> None:
    """Both by signals of Python's."""
    reader = full(way)
    point, moments = 0, 1
    while point <= moments:
        point += 1
        moments = read_all(reader, Strike(point, point + between, real=True))
    assert point > MOMENTS
