"""Which broker or worker gets which fault, and for how long: drawn from a seed. Pure."""
from __future__ import annotations

import itertools
import random
from collections.abc import Iterator
from typing import Final, NamedTuple

KINDS: Final = ("kill", "pause", "restart")


class Fault(NamedTuple):
    """*kind* hits the leader of *partition* after *calm_s* and is undone *hold_s* after leadership moved."""

    kind: str
    partition: int
    calm_s: float
    hold_s: float


def plan(seed: int, partitions: int) -> Iterator[Fault]:
    """Faults without end; any three in a row that begin at a multiple of three are of different kinds."""
    chance = random.Random(seed)
    for _ in itertools.count():
        for kind in chance.sample(KINDS, len(KINDS)):
            yield Fault(kind, chance.randrange(partitions), chance.uniform(0.3, 1.5), chance.uniform(0.0, 1.5))


class Round(NamedTuple):
    """Faults of the workers in three slots; *fault* hits a broker while *frozen* is frozen."""

    killed: int
    replaced: int
    frozen: int
    calm_s: float
    fault: Fault


def rounds(seed: int, slots: int, partitions: int) -> Iterator[Round]:
    """Rounds without end; each fault hits another slot."""
    chance = random.Random(f"rounds of {seed}")
    for fault in plan(seed, partitions):
        killed, replaced, frozen = chance.sample(range(slots), 3)
        yield Round(killed, replaced, frozen, chance.uniform(0.3, 1.5), fault)
