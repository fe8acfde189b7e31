"""Which seeds can find a mutant: those that log in, that have a token service, or whose group speaks one protocol."""
from __future__ import annotations

import functools
import itertools
from collections.abc import Iterator, Mapping
from typing import Any, Final

from pyclient.testing.simulation import protection
from pyclient.testing.simulation.faults import FOLLOWERS
from pyclient.testing.simulation.group_run import GroupRun
from pyclient.testing.simulation.run import Run
from tests.simulation.mutation import Mutant, Situation, any_seed


def logs_in(seed: int) -> bool:
    """Its clients log in."""
    return protection.drawn(seed).mechanism is not None


def speaks_tls(seed: int) -> bool:
    """Its brokers speak TLS."""
    return protection.drawn(seed).tls


def has_tokens(seed: int) -> bool:
    """Its clients log in with tokens."""
    return protection.drawn(seed).mechanism == protection.BEARER


def reads_near(seed: int) -> bool:
    """Something goes wrong with followers that its consumers may read."""
    run = Run(seed)
    run.world.close()
    return any(each.kind in FOLLOWERS for each in run.faults)


def classic(seed: int) -> bool:
    """Its group uses the classic protocol."""
    return "assignors" in _options(seed)


def cooperative(seed: int) -> bool:
    """Its group rebalances cooperatively."""
    return "cooperative-sticky" in _options(seed).get("assignors", ())


def next_generation(seed: int) -> bool:
    """Its group uses the consumer protocol (KIP-848)."""
    return "group_protocol" in _options(seed)


@functools.cache
def _options(seed: int) -> Mapping[str, Any]:
    """Those of the first member; all have the same protocol."""
    run = GroupRun(seed, ())
    run.world.close()
    return run.plan.consumers[0]


def seeds_for(mutant: Mutant, count: int, first: int = 1) -> Iterator[int]:
    """The first *count* seeds that can find it."""
    return itertools.islice(filter(mutant.situation, itertools.count(first)), count)


AREAS: Final = {"logins": logs_in, "followers": reads_near, "classic": classic, "KIP-848": next_generation}
"""What the bugs of an area need."""
_OF_TABLES: Final[Mapping[str, Situation]] = {"classic member": classic, "consumer member": next_generation}
_OF_CONNECTIONS: Final[Mapping[str, Situation]] = {"TLS": speaks_tls, "AUTHENTICATING": logs_in, "REAUTHENTICATING": logs_in}
_OF_EVENTS: Final[Mapping[str, Situation]] = {"OPENED_FOR_TLS": speaks_tls, "SECURED": speaks_tls, "AGREED_FOR_SASL": logs_in, "AUTHENTICATED": logs_in, "SESSION_ENDING": logs_in}


def needs(table: str, state: str, event: str) -> Situation:
    """What a row of a state table needs to be taken."""
    if table == "connection":
        return _OF_CONNECTIONS.get(state, _OF_EVENTS.get(event, any_seed))
    return _OF_TABLES.get(table, any_seed)
