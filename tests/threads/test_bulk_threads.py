"""Bulks and single records from many threads at once, with much or little memory: each once, in order."""
from __future__ import annotations

import threading
from random import Random
from typing import Any

from pyclient.buffers.accumulator import Accumulator
from pyclient.buffers.delivery import Observer
from pyclient.buffers.pool import Waiter
from tests.threads.edges import Coin
from tests.threads.team import Team, watched
from tests.threads.test_accumulator_threads import PARTITIONS, Drain, append, assert_order_of_threads, kind, restless
from tests.unit.buffers.bulks import send_many, wait_in_line

BULKS = 12
THREADS = 4


def test_bulks_of_many_threads_are_stored_once_in_their_order_and_deliveries_have_the_offsets(seed: int, coin: Coin) -> None:
    buffers = restless(coin, batch_size=2_000, linger=0.001, **kind(seed))
    drain, team, observer = Drain(buffers, seed), Team(), Observer()
    made: list[tuple[bytes, Any]] = []
    left = [THREADS + 1]

    def send(number: int) -> None:
        chance = Random(f"{seed}:{number}")
        count = 0
        for _ in range(BULKS):
            values = [f"{number}:{count + at}:".encode().ljust(chance.randint(10, 300), b"x") for at in range(chance.randint(1, 60))]
            count += len(values)
            deliveries = send_many(buffers, observer, values, partition=chance.choice([-1, 0, 1, 2]),
                                   starved=lambda rows: wait_for_memory(buffers, rows, chance))
            made.extend(zip(values, deliveries, strict=True))
        end()

    def single() -> None:
        made.extend((value, append(buffers, 1, value)) for value in (b"99:%d:" % at for at in range(100)))
        end()

    def end() -> None:
        left[0] -= 1
        if not left[0]:
            drain.end()

    team.add("drain", drain.run)
    team.add("single", single)
    team.add_many(THREADS, send)
    team.run()
    stored = [value for log in drain.log.values() for value in log]
    assert sorted(stored) == sorted(value for value, _ in made)
    for partition in range(PARTITIONS):
        assert_order_of_threads(drain.log[partition])
    for value, delivery in made:
        metadata = delivery.result(0)
        assert drain.log[metadata.partition][metadata.offset] == value
    assert buffers.pool.used == 0
    assert buffers.pool.waiting == 0


def wait_for_memory(buffers: Accumulator, rows: Any, chance: Random) -> None:
    """Wait as a producer does; some leave the waiters and join them again."""
    granted = threading.Event()

    def wait(_: Waiter) -> None:
        if chance.random() < 0.5 and not granted.wait(0.0005):
            return
        watched(granted, "memory")

    wait_in_line(buffers, rows, wait, granted.set)
