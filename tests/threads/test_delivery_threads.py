"""One outcome, reported once, to threads that wait, read, count and run callbacks at the same time."""
from __future__ import annotations

import functools
import itertools
import threading
from collections import Counter
from random import Random
from typing import Final

from pyclient.buffers.delivery import BatchResult, Delivery, Observer
from pyclient.errors import KafkaError
from pyclient.producer.callbacks import ThreadObserver
from tests.threads.edges import Coin
from tests.threads.team import Team, assert_none_left, watched
from tests.unit.buffers.accumulators import Clock, accumulator
from tests.reactors import idle_portal

ROUNDS: Final = 20
RECORDS: Final = 5
LOST: Final = KafkaError("lost")


def batch(observer: Observer, count: int = RECORDS) -> tuple[list[Delivery], BatchResult]:
    """Pending records of one batch, and its result."""
    buffers = accumulator(Clock(), observer=observer)
    orders = buffers.topic("orders")
    assert orders is not None
    made = [buffers.append(orders, 0, -1, None, b"v", None) for _ in range(count)]
    (only,) = buffers.flush_open()
    return [each for each in made if each is not None], only.result


def test_P23_the_first_outcome_counts_and_every_waiter_and_callback_gets_it_once(seed: int, coin: Coin) -> None:
    for _ in range(ROUNDS):
        settle_twice(coin)


def settle_twice(coin: Coin) -> None:
    """Of five records two have waiters, two have callbacks, and one has neither."""
    observer = Observer()
    deliveries, result = batch(observer)
    won: list[str] = []
    seen: list[BaseException | None] = []
    called: Counter[tuple[int, int]] = Counter()

    def settle(number: int) -> None:
        coin()
        if result.complete(7) if number else result.fail(LOST):
            won.append("stored" if number else "lost")

    def wait(number: int) -> None:
        seen.extend(deliveries[number].exception(20) for _ in range(3))

    def call_back(number: int) -> None:
        for at in 3, 4:
            deliveries[at].add_done_callback(functools.partial(note, (number, at)))
            coin()

    def note(key: tuple[int, int], _: Delivery) -> None:
        called[key] += 1

    team = Team()
    for work in settle, wait, call_back:
        team.add_many(2, work)
    team.run()
    assert won in (["stored"], ["lost"])
    assert {error is None for error in seen} == {won == ["stored"]}
    assert called == Counter(itertools.product(range(2), (3, 4)))
    assert observer.take_failures()[0] == (1 if won == ["lost"] else 0)


def test_a_wait_that_times_out_leaves_no_waiter_and_affects_no_other(seed: int, coin: Coin) -> None:
    deliveries, result = batch(Observer())
    ended: list[bool] = []
    team = Team()

    def wait(number: int) -> None:
        chance = Random(f"{seed}:{number}")
        while not result.wait(chance.random() * 0.0005):
            coin()
        ended.append(deliveries[0].done())

    def settle() -> None:
        for _ in range(100):
            coin()
        result.complete(0)

    team.add_many(5, wait)
    team.add("settle", settle)
    team.run()
    assert ended == [True] * 5


def test_P23_callbacks_run_in_the_order_of_their_records_even_when_added_during_completion(seed: int, coin: Coin) -> None:
    observer = ThreadObserver("callbacks", idle_portal().reactor)
    observer.dispatch = coin.around(observer.dispatch)  # type: ignore[method-assign]
    orders = [called_while_added(observer, coin) for _ in range(ROUNDS)]
    observer.close(None)
    assert orders == [list(range(30))] * ROUNDS


def called_while_added(observer: ThreadObserver, coin: Coin) -> list[int]:
    deliveries, result = batch(observer, 30)
    order: list[int] = []
    half = threading.Event()

    def add() -> None:
        for at, delivery in enumerate(deliveries):
            delivery.add_done_callback(functools.partial(note, at))
            coin()
            if at == len(deliveries) // 2:
                half.set()

    def note(at: int, _: Delivery) -> None:
        order.append(at)

    def settle() -> None:
        watched(half, "half of the callbacks")
        result.complete(0)

    team = Team()
    team.add("add", add)
    team.add("settle", settle)
    team.run()
    return order


def test_every_callback_runs_once_and_in_the_order_of_its_thread_whenever_the_producer_closes(seed: int, coin: Coin) -> None:
    chance = Random(seed)
    for _ in range(ROUNDS):
        close_while_others_dispatch(coin, chance.randrange(40))


def close_while_others_dispatch(coin: Coin, turns: int) -> None:
    before = set(threading.enumerate())
    observer = ThreadObserver("callbacks", idle_portal().reactor)
    ran: list[tuple[int, int]] = []

    def dispatch(number: int) -> None:
        for at in range(10):
            observer.dispatch(functools.partial(ran.append, (number, at)))

    def close() -> None:
        for _ in range(turns):
            coin()
        observer.close(None)

    team = Team()
    team.add_many(4, dispatch)
    team.add("close", close)
    team.run()
    assert_none_left(before)
    assert sorted(ran) == list(itertools.product(range(4), range(10)))
