"""A consumer that several threads use in turn or at once, wake and close, on a broker."""
from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable
from random import Random
from typing import Any, Final

from pyclient import Consumer, Producer, TopicPartition
from pyclient.errors import ClientClosedError, ConcurrentUseError, WakeupError
from pyclient.testing import FakeCluster
from tests.threads.edges import Coin
from tests.threads.team import Team

RECORDS: Final = 600
THREADS: Final = 4
WAKES: Final = 60
STEPS: Final = 120


def stored(cluster: FakeCluster, topic: str) -> TopicPartition:
    """A partition whose values are their offsets."""
    cluster.create_topic(topic)
    with Producer(bootstrap_servers=cluster.bootstrap_servers, batch_size=500) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number)
    return TopicPartition(topic, 0)


def consumer(cluster: FakeCluster, **options: Any) -> Consumer:
    """A consumer that begins at the first record."""
    return Consumer(bootstrap_servers=cluster.bootstrap_servers, auto_offset_reset="earliest", **options)


def test_threads_in_turn_read_the_records_after_the_last_seek_and_commit_what_they_read(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    """The user's lock lets one thread in at a time; wake-ups from another change no position."""
    where = stored(cluster, topic)
    mine = threading.Lock()
    expected = [0]
    steps = [0]
    with consumer(cluster, group_id=topic, enable_auto_commit=False) as reader:
        reader.assign([where])

        def use(number: int) -> None:
            chance = Random(f"{seed}:{number}")
            while steps[0] < STEPS and not team.errors:
                with mine, contextlib.suppress(WakeupError):
                    steps[0] += 1
                    chance.choice(ways)(chance)

        def poll(chance: Random) -> None:
            reader.resume(where)  # a wake-up may have ended `hold` early
            for record in reader.poll(0.2, max_records=chance.randrange(1, 40)):
                assert record.value == b"%d" % expected[0] == b"%d" % record.offset
                expected[0] += 1

        def seek(chance: Random) -> None:
            expected[0] = chance.randrange(RECORDS)
            reader.seek(where, expected[0])

        def hold(_: Random) -> None:
            reader.pause(where)
            assert not reader.poll(0)
            reader.resume(where)

        def commit(_: Random) -> None:
            reader.commit()
            reader.commit_async()
            committed = reader.committed([where])[where]
            assert committed is not None
            assert committed.offset == expected[0]

        def rewind(_: Random) -> None:
            expected[0] = 0
            reader.assign([])
            reader.assign([where])
            reader.seek(where, 0)
            assert reader.position(where) == 0

        ways: list[Callable[[Random], None]] = [poll, poll, poll, poll, seek, hold, rewind, commit]
        seek(Random(seed))
        team = Team()

        def wake() -> None:
            while steps[0] < STEPS and not team.errors:
                reader.wakeup()
                for _ in range(50):
                    reader.metrics()
                    coin()

        team.add_many(THREADS, use)
        team.add("wake", wake)
        team.run()


def test_a_consumer_used_by_many_threads_at_once_serves_one_and_refuses_the_others(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    where = stored(cluster, topic)
    seen: list[bytes | None] = []
    refused: list[int] = []
    committed: list[BaseException | None] = []
    asked: list[int] = []
    team = Team()
    with consumer(cluster, group_id=topic, enable_auto_commit=False, max_poll_records=20) as reader:
        reader.assign([where])

        def fight(number: int) -> None:
            chance = Random(f"{seed}:{number}")
            while len(seen) < RECORDS and not team.errors:
                try:
                    seen.extend(record.value for record in reader.poll(0.05))
                    if chance.random() < 0.5:
                        reader.commit_async({where: len(seen)}, lambda _, error: committed.append(error))
                        asked.append(number)
                    if chance.random() < 0.1:
                        reader.wakeup()
                except ConcurrentUseError:
                    refused.append(number)
                except WakeupError:
                    pass

        team.add_many(THREADS, fight)
        team.run()
    assert sorted(int(value or b"") for value in seen) == list(range(RECORDS))
    assert refused
    assert committed == [None] * len(asked)


def test_every_wakeup_ends_a_poll_that_waits_or_the_next_one(cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    cluster.create_topic(topic)
    heard = threading.Semaphore(0)
    with consumer(cluster) as reader:
        reader.assign([TopicPartition(topic, 0)])

        def poll() -> None:
            for _ in range(WAKES):
                try:
                    reader.poll(None)
                except WakeupError:
                    heard.release()

        def wake() -> None:
            for _ in range(WAKES):
                reader.wakeup()
                assert heard.acquire(timeout=20), "a wakeup was lost"
                coin()

        team = Team()
        team.add("poll", poll)
        team.add("wake", wake)
        team.run()


def test_a_thread_that_wakes_a_poll_can_close_the_consumer_and_the_other_threads_get_an_error(
        cluster: FakeCluster, topic: str, seed: int, coin: Coin) -> None:
    where = stored(cluster, topic)
    reader = consumer(cluster)
    reader.assign([where])
    ended: list[int] = []

    def poll(number: int) -> None:
        try:
            while True:
                poll_once(reader)
        except ClientClosedError:
            ended.append(number)

    def close() -> None:
        for _ in range(Random(seed).randrange(200)):
            coin()
        while not closed(reader):
            reader.wakeup()

    team = Team()
    team.add_many(2, poll)
    team.add("close", close)
    team.run()
    assert sorted(ended) == [0, 1]


def poll_once(reader: Consumer) -> None:
    with contextlib.suppress(ConcurrentUseError, WakeupError):
        reader.poll(None)


def closed(reader: Consumer) -> bool:
    try:
        reader.close()
    except ConcurrentUseError:
        return False
    return True
