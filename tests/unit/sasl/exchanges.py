"""Mechanisms as they are used: options, and an exchange with somebody who answers."""
from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from typing import Any

from pyclient.config import ProducerConfig
from pyclient.plugins import Surroundings

HOST = "broker-1"


def options(**given: Any) -> ProducerConfig:
    """A client's config with these options."""
    return ProducerConfig.parse({"bootstrap_servers": "broker-1:9092"}, given)


class Wall:
    """A clock that stands still until a test moves it; in seconds since the epoch."""

    def __init__(self, now: float = 1_700_000_000.0) -> None:
        self.now = now

    def surroundings(self) -> Surroundings:
        return Surroundings(lambda: round(self.now * 1000), lambda size: bytes(range(size)), lambda: 0.5)


def exchanged(mechanism: Any, config: ProducerConfig, answer: Callable[[bytes], bytes]) -> list[bytes]:
    """The messages of a whole login; what the mechanism awaits is awaited."""
    steps = mechanism.exchange(config, HOST)
    said: list[bytes] = []
    sent: Any = None
    while True:
        try:
            made = steps.send(sent)
        except StopIteration:
            return said
        if inspect.isawaitable(made):
            sent = asyncio.run(_result(made))
        else:
            said.append(made)
            sent = answer(made)


async def _result(made: Any) -> Any:
    return await made
