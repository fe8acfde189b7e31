"""What an all-seeing observer of a run knows: every record accepted, settled, stored and consumed. Judges nothing."""
from __future__ import annotations

from collections import Counter, defaultdict

import attrs

from pyclient.buffers.delivery import Delivery

Key = tuple[str, int]
"""Topic and partition."""


@attrs.define(eq=False)
class Sent:
    """One record that a producer accepted."""

    name: bytes
    """Its value begins with this; no two records of a run have the same."""
    producer: str
    order: int
    """How many records this producer had accepted before."""
    at: float
    due: float
    """When it must be settled at the latest."""
    value: bytes
    delivery: Delivery
    settled: int = 0
    settled_at: float = -1.0
    offset: int | None = None
    """Where it was acknowledged to be stored."""
    error: BaseException | None = None

    @property
    def where(self) -> Key:
        """Its partition."""
        return self.delivery.topic, self.delivery.partition


@attrs.define(eq=False)
class Reading:
    """What one consumer does with one partition."""

    next: int | None = None
    """The offset it must return next; None after an assignment, a seek or a reset."""
    position: int = -1
    handed: int = 0
    """The offset after the last one that was ever handed out, or stood at."""


@attrs.define(eq=False)
class Second:
    """What was done in the current virtual second."""

    turns: int = 0
    requests: int = 0
    records: int = 0
    connects: int = 0
    by_client: Counter[str] = attrs.field(factory=Counter)
    control: Counter[str] = attrs.field(factory=Counter)
    """Requests about the cluster itself, by client."""


class Facts:
    """Filled by workloads and by the fake cluster's events."""

    def __init__(self) -> None:
        self.sent: dict[bytes, Sent] = {}
        self.unsettled: dict[bytes, Sent] = {}
        self.stored: dict[Key, dict[int, bytes]] = defaultdict(dict)
        """What the leader's log holds now: offset → name."""
        self.first_stored: dict[tuple[str, Key], int] = {}
        """Producer and partition → the latest order of a record that was stored for the first time."""
        self.ever_stored: set[bytes] = set()
        self.lost: set[bytes] = set()
        """Stored once, then cut off by an unclean election: no client can prevent that."""
        self.log_start: dict[Key, int] = defaultdict(int)
        self.readings: dict[tuple[str, Key], Reading] = defaultdict(Reading)
        self.watermark: dict[Key, int] = defaultdict(int)
        """The highest high watermark so far."""
        self.second = Second()
        self.errors: list[str] = []
        """What the client logged as an error."""
        self.committed: dict[tuple[str, Key], int] = {}
        """Group and partition → what its coordinator stored last."""
        self.calm_from = 0.0
        """From when on nothing is wrong any more."""
        self.consumed = 0
        self.acked = 0
        self.failed = 0
        self.upset: set[Key] = set()
        """Partitions whose log was cut back: consumers may be anywhere until they were reset."""

    def accept(self, sent: Sent) -> None:
        """A producer took a record."""
        self.sent[sent.name] = self.unsettled[sent.name] = sent

    def append(self, where: Key, base_offset: int, names: list[bytes]) -> None:
        """A leader stored records."""
        log = self.stored[where]
        for position, name in enumerate(names):
            log[base_offset + position] = name

    def lead(self, where: Key, log: dict[int, bytes], *, clean: bool) -> None:
        """A new leader's log counts from now on: what it does not hold is gone."""
        before, self.stored[where] = self.stored[where], log
        if clean:
            return
        present = set(log.values())
        gone = [name for name in before.values() if name not in present]
        self.lost.update(gone)
        if gone:
            self.upset.add(where)
