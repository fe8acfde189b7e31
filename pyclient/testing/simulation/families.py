"""The kinds of runs there are: each with the faults, rules and state tables that its sweeps must exercise."""
from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

import attrs

from pyclient.testing.simulation.chains import HAPPENS, Chain, run_chain_seed
from pyclient.testing.simulation.faults import HANGS, LOGIN_FAULTS, OF_THEIR_OWN
from pyclient.testing.simulation.group_run import GroupRun, run_group_seed
from pyclient.testing.simulation.invariants import ALONE, GROUPS, TRANSACTIONS
from pyclient.testing.simulation.run import Outcome, Run, run_seed

OF_GROUPS: Final = frozenset({"classic member", "consumer member"})
"""State tables of members of groups."""
OF_TRANSACTIONS: Final = frozenset({"transaction"})
"""State tables of transactional producers."""


@attrs.frozen(kw_only=True)
class Family:
    """One kind of runs."""

    name: str
    run: Callable[..., Outcome]
    """(seed, faults) → outcome; faults None: those it plans."""
    kinds: Sequence[str]
    """The faults its seeds draw from."""
    least_records: int
    """Sent and consumed, of a seed that is worth its name."""
    least_faults: int
    """Hits of faults, of such a seed."""
    least_in_flight: float
    """In at least this share of the seeds a fault must hit while records are in flight, or the group rebalances."""

    def exercises(self, table: str) -> bool:
        """Whether its sweeps must take the rows of this state table."""
        if self.name == TRANSACTIONS or table in OF_TRANSACTIONS:
            return self.name == TRANSACTIONS and table in OF_TRANSACTIONS
        return (table in OF_GROUPS) == (self.name == GROUPS)


FAMILIES: Final = {each.name: each for each in (
    Family(name=ALONE, run=run_seed, kinds=(*Run.KINDS, *sorted(OF_THEIR_OWN)), least_records=1000, least_faults=5, least_in_flight=0.95),
    Family(name=GROUPS, run=run_group_seed, kinds=(*GroupRun.KINDS, *sorted(HANGS | LOGIN_FAULTS)), least_records=500, least_faults=3, least_in_flight=0.75),
    Family(name=TRANSACTIONS, run=run_chain_seed, kinds=(*Chain.KINDS, *HAPPENS), least_records=200, least_faults=5, least_in_flight=0.75),
)}
