"""What can go wrong with the followers of a partition, which consumers in their rack read (KIP-392)."""
from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from pyclient.testing.fake.model.elections import NO_LEADER
from pyclient.testing.fake.model.partition import Partition

if TYPE_CHECKING:
    from pyclient.testing.simulation.faults import Strike

LAGS_MS: Final = (250.0, 450.0, math.inf)
"""With the last one a follower leaves the ISR."""
DOWN_SHARE: Final = (0.0, 0.1, 0.4)
"""For which part of its time a follower that loses power is down; for the rest of it, it copies nothing."""
FALLS_BACK_SHARE: Final = 0.8
"""After which part of its time a follower is elected that has lagged since the begin."""


def follower_lag(strike: Strike) -> None:
    """A follower of a partition falls behind, and has less than its readers may ask for."""
    partition, follower = _chosen(strike)
    if partition is not None:
        _lag(strike, partition, follower, LAGS_MS[strike.digit(len(LAGS_MS))])
        strike.hit(f"broker {follower} falls behind as a follower of {partition!r}")


def follower_cut(strike: Strike) -> None:
    """A follower loses power, and the end of its log of a partition, which it copies again later."""
    kafka = strike.world.kafka
    partition, follower = _chosen(strike)
    if partition is None:
        return
    kafka.kill(follower)
    _lag(strike, partition, follower, math.inf)
    strike.world.loop.call_later(DOWN_SHARE[strike.digit(len(DOWN_SHARE))] * strike.fault.lasts, _comes_back, strike, partition, follower)


def _comes_back(strike: Strike, partition: Partition, follower: int) -> None:
    kafka, log = strike.world.kafka, partition.log_of(follower)
    others = [each for each in partition.isr if each != follower and each in kafka.alive]
    if partition.leader in others and log.end > log.start:
        end = log.start + strike.digit(log.end - log.start)
        strike.hit(f"broker {follower} has lost what it had of {partition!r} from {end} on")
        partition.cut(follower, end)
    kafka.restart(follower)


def follower_cut_back(strike: Strike) -> None:
    """One follower lags until it has left the ISR, and is elected: the others are cut back to what it had."""
    partition, straggler = _chosen(strike)
    if partition is None:
        return
    _lag(strike, partition, straggler, math.inf)

    def elect() -> None:
        if straggler in strike.world.kafka.alive and straggler not in partition.isr and partition.leader not in (straggler, NO_LEADER):
            strike.hit(f"{partition!r} is to be led by {straggler}, which is not in sync")
            partition.elections.elect_unclean(straggler)

    strike.world.loop.call_later(FALLS_BACK_SHARE * strike.fault.lasts, elect)


def _chosen(strike: Strike) -> tuple[Partition | None, int]:
    """A partition, and one of its followers in sync that run."""
    partition = strike.choose(strike.led())
    alive = strike.world.kafka.alive
    followers = [] if partition is None else [each for each in partition.isr if each in alive and each != partition.leader]
    return (partition, followers[strike.digit(len(followers))]) if followers else (None, NO_LEADER)


def _lag(strike: Strike, partition: Partition, follower: int, ms: float) -> None:
    partition.set_lag(ms, follower)
    strike.later(lambda: partition.set_lag(strike.world.kafka.settings.replica_lag_ms, follower))
