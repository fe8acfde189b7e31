"""A member that gets its partitions and ends, sync and async: for tests on brokers and on the fake cluster."""
from __future__ import annotations

import asyncio
from typing import Any

from pyclient import AsyncConsumer, Consumer
from tests.waiting import eventually


def closed(leave: bool | None, **options: Any) -> None:
    """A member of a group gets both partitions of its topic, and is closed."""
    member = Consumer(**options)
    eventually(lambda: member.poll(0.05) is not None and len(member.assignment()) == 2)
    member.close(leave=leave)


def closed_async(leave: bool | None, **options: Any) -> None:
    """The same of an async one, by `stop`."""
    async def main() -> None:
        member = await AsyncConsumer(**options).start()
        while len(member.assignment()) < 2:
            await member.poll(0.05)
        await member.stop(leave=leave)

    asyncio.run(asyncio.wait_for(main(), 30))
