"""Commits take their turns in the order in which they were announced, whichever task runs first (C24)."""
from __future__ import annotations

from pyclient.consumer.commit_order import CommitOrder, Turn
from pyclient.reactor.reactor import Reactor
from pyclient.reactor.tasks import Task, all_done, gather, sleep
from tests.reactors import run_in_task


async def commit(reactor: Reactor, turn: Turn, name: str, seen: list[str]) -> None:
    try:
        await turn.begins()
        await sleep(reactor, 0)
        seen.append(name)
    finally:
        turn.end()


def test_C24_a_commit_announced_first_is_sent_first_even_if_its_task_runs_last() -> None:
    """Found by simulation: an automatic commit began after a rebalance had committed newer offsets."""
    async def main(reactor: Reactor) -> list[str]:
        order, seen = CommitOrder(reactor), list[str]()
        turns = {name: order.announce() for name in ("first", "second", "third")}
        await gather(reactor, [commit(reactor, turns[name], name, seen) for name in ("third", "second", "first")])
        return seen

    assert run_in_task(main) == ["first", "second", "third"]


def test_a_commit_that_is_cancelled_before_it_begins_or_never_runs_keeps_no_place() -> None:
    async def main(reactor: Reactor) -> list[str]:
        order, seen = CommitOrder(reactor), list[str]()
        first, waiting, never = order.announce(), order.announce(), order.announce()
        task = Task(reactor, commit(reactor, waiting, "cancelled", seen))
        await sleep(reactor, 0)
        task.cancel()
        await all_done(reactor, [task])
        never.end()
        last = Task(reactor, commit(reactor, order.announce(), "last", seen))
        await commit(reactor, first, "first", seen)
        await last
        never.end()
        return seen

    assert run_in_task(main) == ["first", "last"]
