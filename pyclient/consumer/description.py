"""A consumer in one sentence, for its ``repr``: group, subscription and assignment, with counts. Any thread may ask."""
from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from pyclient.consumer.core import ConsumerCore
from pyclient.errors import counted

SHOWN: Final = 3
"""Topics named before the others are only counted."""


def description(core: ConsumerCore) -> str:
    """Such as: of group 'billing': subscribed to orders; 3 partitions assigned, 1 paused; 512 bytes fetched ahead."""
    group = f"of group {core.config.group_id!r}" if core.config.group_id else "without a group"
    return f"{group}: {_state(core)}"


def _state(core: ConsumerCore) -> str:
    if core.closed is not None:
        return "closed"
    if not core.started:
        return "not opened yet"
    if not (core.subscribed or core.fetcher.positions):
        return "nothing subscribed or assigned"
    return "; ".join((*_subscription(core), _assignment(core), f"{counted(core.buffer.bytes, 'byte')} fetched ahead"))


def _subscription(core: ConsumerCore) -> Iterable[str]:
    if core.subscribed:
        topics = sorted(core.member().topics)
        more = [f"{len(topics) - SHOWN} more"] if len(topics) > SHOWN else []
        yield f"subscribed to {', '.join([*topics[:SHOWN], *more]) or 'a pattern that matches no topic yet'}"


def _assignment(core: ConsumerCore) -> str:
    paused = len(core.fetcher.paused)
    return f"{counted(len(core.fetcher.positions), 'partition')} assigned" + (f", {paused} paused" if paused else "")
