"""The driver's turns: what wakes it, how long it sleeps, and that no defect stops or spins it."""
from __future__ import annotations

import asyncio

from pyclient.errors import ClientClosed
from pyclient.runtime.driver import Driver


def test_whoever_waits_when_the_driver_stops_gets_its_error() -> None:
    async def test() -> None:
        driver = Driver(asyncio.get_running_loop().time)
        waiting = asyncio.create_task(driver.until(lambda: None, None, ClientClosed))
        await asyncio.sleep(0)
        driver.stop(ClientClosed("the end"))
        assert isinstance((await asyncio.gather(waiting, return_exceptions=True))[0], ClientClosed)

    asyncio.run(test())
