"""Calls into a client's reactor from many threads, while another thread stops it."""
from __future__ import annotations

import threading
from random import Random
from typing import Final

from pyclient.errors import ClientClosedError
from pyclient.reactor.tasks import Event, sleep
from pyclient.runtime.environment import thread_reactor
from pyclient.runtime.portals import ThreadPortal
from tests.threads.edges import Coin
from tests.threads.team import Team, assert_none_left

ROUNDS: Final = 15
CALLS: Final = 20


def test_a_call_returns_its_result_or_raises_ClientClosedError_whenever_the_portal_stops(seed: int, coin: Coin) -> None:
    before = set(threading.enumerate())
    chance = Random(seed)
    for _ in range(ROUNDS):
        stop_while_others_call(coin, chance.randrange(60))
        assert_none_left(before)


def stop_while_others_call(coin: Coin, tosses: int) -> None:
    reactor = thread_reactor()
    portal = ThreadPortal("portal", reactor)
    portal.start()
    outcomes: list[str] = []

    async def short() -> str:
        await sleep(reactor, 0)
        return "ended"

    async def endless() -> str:
        await Event(reactor).wait()
        return "never"

    def call(_: int) -> None:
        for work in [*[short] * CALLS, endless]:
            try:
                outcomes.append(portal.call(coin.around(work)))  # between its admission and its first step
            except ClientClosedError:
                outcomes.append("refused")

    def stop(_: int) -> None:
        for _toss in range(tosses):
            coin()
        portal.stop()

    team = Team()
    team.add_many(4, call)
    team.add_many(2, stop)
    team.run()
    assert len(outcomes) == 4 * (CALLS + 1)
    assert set(outcomes) <= {"ended", "refused"}
