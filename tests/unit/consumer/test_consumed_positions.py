"""C21: what counts as consumed, where positions move without records."""
from __future__ import annotations

import itertools
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType

import pytest

from pyclient import Consumer, Producer, TopicPartition
from pyclient.errors import WakeupError
from pyclient.testing import FakeCluster
from tests.waiting import eventually

TP = TopicPartition("t", 0)


def test_C21_a_position_that_moved_before_the_records_of_a_loop_does_not_take_theirs_back(fake_cluster: FakeCluster) -> None:
    """A position that was looked up reaches the user as an entry without records, in front of the first ones."""
    fake_cluster.create_topic("t")
    for _ in range(2):
        fake_cluster.produce("t", b"x")
    with Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, group_id="g", auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.assign([TP])
        loop = iter(consumer)
        assert [record.offset for record in itertools.islice(loop, 2)] == [0, 1]
        consumer.wakeup()
        with pytest.raises(WakeupError):
            next(loop)  # the next record is requested: the one before counts as consumed
        assert consumer.position(TP) == 2
        consumer.commit()
    assert fake_cluster.committed("g")[TP].offset == 2


ON_THE_WAY = {"facade.py", "facade_base.py", "consumed_positions.py", "steps.py", "records_view.py", "fetch_buffer.py"}
IN_HANDS = {"mark_returned", "begin_iteration"}
"""What makes records the user's."""


def broken_off(work: Callable[[], list[int]], point: int) -> tuple[bool, list[int]]:
    """Run *work* with Ctrl-C at the *point*-th call or return in these modules: whether it came, and the result."""
    points = itertools.count(1)

    def interrupt(frame: FrameType, event: str, _: object) -> None:
        if event == "return" and frame.f_code.co_name in IN_HANDS:
            sys.setprofile(before)
        elif event in {"call", "c_return"} and Path(frame.f_code.co_filename).name in ON_THE_WAY and next(points) == point:
            raise KeyboardInterrupt

    before = sys.getprofile()
    try:
        sys.setprofile(interrupt)
        return False, work()
    except KeyboardInterrupt:
        return True, []
    finally:
        sys.setprofile(before)


def polled(consumer: Consumer) -> list[int]:
    return [record.offset for record in consumer.poll(10, max_records=2)]


def iterated(consumer: Consumer) -> list[int]:
    return [next(iter(consumer)).offset]


@pytest.fixture
def full(fake_cluster: FakeCluster) -> Iterator[Callable[[], Consumer]]:
    """Makes consumers that have fetched all of nine records."""
    fake_cluster.create_topic("t")
    with Producer(bootstrap_servers=fake_cluster.bootstrap_servers, linger_ms=60_000) as producer:
        for _ in range(3):
            producer.send_many("t", [b"x"] * 3, partition=0)  # three batches
            producer.flush()
    made: list[Consumer] = []

    def make() -> Consumer:
        consumer = Consumer(bootstrap_servers=fake_cluster.bootstrap_servers, auto_offset_reset="earliest")
        made.append(consumer)
        consumer.assign([TP])
        eventually(lambda: consumer._core.fetcher.positions[TP].known and consumer._core.fetcher.positions[TP].offset == 9)
        return consumer

    yield make
    for each in made:
        each.close()


@pytest.mark.parametrize("take", [polled, iterated])
@pytest.mark.parametrize("before", [0, 1])
def test_C06_ctrl_c_on_the_records_way_to_the_user_loses_none_and_doubles_none(full: Callable[[], Consumer], before: int, take: Callable[[Consumer], list[int]]) -> None:
    """By a poll or a loop that begins; the first one, or one that goes on within a batch."""
    consumer, came, point, expected = full(), True, 0, list(range(9))
    while came:
        point += 1
        consumer.seek(TP, 0)
        eventually(lambda: consumer._core.buffer.bytes > 0)
        read = [offset for _ in range(before) for offset in take(consumer)]
        came, more = broken_off(lambda: take(consumer), point)
        read += more
        assert consumer.position(TP) == len(read)
        while len(read) < len(expected):
            read += polled(consumer)
        assert read == expected, point
    assert point > 20  # it was broken off often
