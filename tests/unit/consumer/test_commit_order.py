"""Commits take their turns in the order in which they were announced, whichever task runs first (C24)."""
from __future__ import annotations

import asyncio

from pyclient.consumer.commit_order import CommitOrder, Turn


async def commit(turn: Turn, name: str, seen: list[str]) -> None:
    try:
        await turn.begins()
        await asyncio.sleep(0)
        seen.append(name)
    finally:
        turn.end()


def test_C24_a_commit_announced_first_is_sent_first_even_if_its_task_runs_last() -> None:
    """Found by simulation: an automatic commit began after a rebalance had committed newer offsets."""
    async def main() -> list[str]:
        order, seen = CommitOrder(), list[str]()
        turns = {name: order.announce() for name in ("first", "second", "third")}
        await asyncio.gather(*[commit(turns[name], name, seen) for name in ("third", "second", "first")])
        return seen

    assert asyncio.run(main()) == ["first", "second", "third"]


def test_a_commit_that_is_cancelled_before_it_begins_or_never_runs_keeps_no_place() -> None:
    async def main() -> list[str]:
        order, seen = CommitOrder(), list[str]()
        first, waiting, never = order.announce(), order.announce(), order.announce()
        task = asyncio.create_task(commit(waiting, "cancelled", seen))
        await asyncio.sleep(0)
        task.cancel()
        await asyncio.wait([task])
        never.end()
        last = asyncio.create_task(commit(order.announce(), "last", seen))
        await commit(first, "first", seen)
        await asyncio.wait_for(last, 10)
        never.end()
        return seen

    assert asyncio.run(main()) == ["first", "last"]
