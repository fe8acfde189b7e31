"""What may come between a lone record and its answer."""
from __future__ import annotations

from typing import Final

from hypothesis import strategies as st

from pyclient.testing.fake.control import Cut, Delay, Drop, Fail, Throttle, Verdict

LIMIT_S: Final = 60
PARTITIONS: Final = 3
FAULTS: Final[dict[str, Verdict]] = {
    "not the leader": Fail(6), "timed out": Fail(7), "lost before": Drop(), "lost after": Drop(applied=True), "cut": Cut(7), "throttled": Throttle(5),
    "late": Delay(0.15),
}
Step = tuple[str, int]
"""What to do, and on which partition."""


def steps(*others: str) -> st.SearchStrategy[list[Step]]:
    """Records, faults and *others*, most of them records."""
    return st.lists(st.tuples(st.sampled_from(["send", "send", "send", "send and go on", "callback", "large", "flush", "metrics", *others, *FAULTS]),
                              st.integers(0, PARTITIONS - 1)), min_size=5, max_size=25)
