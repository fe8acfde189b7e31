"""Many seeds on all cores: what broke, and whether the sweep was worth its name."""
from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any, Final

import attrs

from pyclient.core.transitions import TABLES
from pyclient.testing.simulation.families import FAMILIES, Family
from pyclient.testing.simulation.invariants import ALONE, INVARIANTS
from pyclient.testing.simulation.run import Outcome

RAREST_FAULT: Final = 0.02
"""Every kind of fault must hit something in at least this share of the seeds."""
LEAST_SECONDS: Final = 60.0
ROWS_FROM_SEEDS: Final = 100
"""A shorter sweep need not take every row of the state tables: some are taken in one seed of sixty."""
CHUNK: Final = 4

NOT_TAKEN: Final = {
    ("classic member", "ASSIGNING", "REJOIN"): "a leader's assignor must raise, and those of the simulation do not; the unit tests see it",
}
"""Rows of state tables that no seed can take yet, and why."""

RARE: Final = {
    ("classic member", "JOINING", "LOST"): "a coordinator must have put the member out, or refuse it as unknown, just when it joins again",
    ("classic member", "ASSIGNING", "LOST"): "a heartbeat must be refused while the leader's assignor works",
    **{(f"{kind} member", "OUT", "LEFT"): "a member must leave between having been put out and its next poll" for kind in ("classic", "consumer")},
    **{(f"{kind} member", state, "REFUSED"): "a coordinator must refuse the member permanently just then, which few faults do" for kind, state in (
        ("classic", "REVOKING"), ("classic", "JOINING"), ("classic", "ASSIGNING"), ("classic", "SYNCING"), ("classic", "TAKING_OVER"),
        ("consumer", "ACKNOWLEDGING"), ("consumer", "RECONCILING"))},
    **{("consumer member", state, "LEFT"): "a member must leave within the moment until its heartbeat is answered" for state in ("JOINING", "ACKNOWLEDGING")},
    **{("consumer member", "LISTENER_FAILED", event): "it must happen between the poll in which the listener raised and the next one"
       for event in ("LOST", "LEFT", "REFUSED")},
    ("sequence", "DRAINING", "STORED"): "a broker that checks sequences stores nothing behind a gap, unless it has forgotten the producer meanwhile",
    ("connection", "CONNECTING", "LOST"): "two addresses of a name must answer within the same instant",
    ("connection", "REAUTHENTICATING", "RETIRED"): "a connection must turn out not to be wanted just while its login is renewed, which counts as use",
    ("connection", "DRAINING", "LOST"): "a cut must fall between the last request of a connection that was given up and its answer",
}
"""Rows that a sweep may or may not take, and why."""


@attrs.define
class Summary:
    """Findings of a sweep."""

    family: Family = FAMILIES[ALONE]
    seeds: int = 0
    seconds: float = 0.0
    broken: list[Outcome] = attrs.field(factory=list)
    fired_in: Counter[str] = attrs.field(factory=Counter)
    """Fault kind → in how many seeds it hit something."""
    hits: Counter[str] = attrs.field(factory=Counter)
    evaluated: Counter[str] = attrs.field(factory=Counter)
    transitions: Counter[tuple[str, str, str]] = attrs.field(factory=Counter)
    in_flight: int = 0
    thin: list[int] = attrs.field(factory=list)
    """Seeds that were too short, or had too few records or faults."""
    per_seed: list[dict[str, Any]] = attrs.field(factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one seed in."""
        self.seeds += 1
        self.hits.update(outcome.hits)
        self.fired_in.update(dict.fromkeys(outcome.hits, 1))
        self.evaluated.update(outcome.evaluated)
        self.transitions.update(outcome.transitions)
        self.in_flight += outcome.hit_in_flight
        self.per_seed.append({
            "seed": outcome.seed, "digest": outcome.digest, "broken": outcome.invariant, "sent": outcome.sent, "acked": outcome.acked,
            "failed": outcome.failed, "consumed": outcome.consumed, "requests": outcome.requests, "virtual_s": round(outcome.virtual_s, 3),
            "hits": sum(outcome.hits.values())})
        if outcome.broken is not None:
            self.broken.append(outcome)
        elif outcome.sent + outcome.consumed < self.family.least_records or sum(outcome.hits.values()) < self.family.least_faults or outcome.virtual_s < LEAST_SECONDS:
            self.thin.append(outcome.seed)

    def dishonest(self) -> list[str]:
        """Why this sweep proves less than it should; empty when it was honest."""
        found = [f"{kind} hit something in {self.fired_in[kind]} of {self.seeds} seeds only"
                 for kind in self.family.kinds if self.fired_in[kind] < RAREST_FAULT * self.seeds]
        found += [f"{name} was never evaluated" for name, each in INVARIANTS.items() if each.family == self.family.name and not self.evaluated[name]]
        found += [f"{table}: {state} + {event} was never taken and is not listed with a reason"
                  for table, state, event in rows(self.family) if self.seeds >= ROWS_FROM_SEEDS and not self.transitions[table, state, event] and (table, state, event) not in {**NOT_TAKEN, **RARE}]
        found += [f"{' '.join(row)} is listed as never taken, and was" for row in NOT_TAKEN if self.transitions[row]]
        if self.in_flight < self.family.least_in_flight * self.seeds:
            found.append(f"a fault hit records in flight, or a group that rebalanced, in {self.in_flight} of {self.seeds} seeds only")
        if self.thin:
            found.append(f"seeds with under {self.family.least_records} records, {self.family.least_faults} hits or {LEAST_SECONDS:.0f} s: {self.thin[:10]}")
        return found

    def as_json(self) -> dict[str, Any]:
        """Everything, for programs."""
        return {
            "seeds": self.seeds, "seconds": round(self.seconds, 2), "seeds_per_minute": round(60 * self.seeds / max(self.seconds, 1e-9), 1),
            "broken": [{"seed": each.seed, "invariant": each.invariant, "text": each.broken} for each in self.broken],
            "faults": {kind: {"seeds": self.fired_in[kind], "hits": self.hits[kind]} for kind in self.family.kinds},
            "invariants": {name: {"rule": each.rule, "evaluated": self.evaluated[name]} for name, each in INVARIANTS.items() if each.family == self.family.name},
            "transitions": [{"table": table, "state": state, "event": event, "taken": self.transitions[table, state, event],
                             "reason": {**NOT_TAKEN, **RARE}.get((table, state, event))} for table, state, event in rows(self.family)],
            "in_flight": self.in_flight, "dishonest": self.dishonest(), "per_seed": self.per_seed,
        }


def rows(family: Family) -> Iterator[tuple[str, str, str]]:
    """Every row of every state table that this family exercises."""
    for table in [each for each in TABLES.values() if family.exercises(each.name)]:
        for state, event in table.rows:
            yield table.name, state.name, event.name


def sweep(seeds: Sequence[int], *, jobs: int | None = None, seen: Callable[[Outcome], object] = lambda _: None,
          stop_at: int | None = None, family: str = ALONE) -> Summary:
    """Run *seeds* of a *family*, on *jobs* processes (left out: one per core); stop after *stop_at* broken ones."""
    summary, began = Summary(FAMILIES[family]), time.perf_counter()
    for outcome in _outcomes(summary.family, seeds, jobs or os.cpu_count() or 1):
        summary.add(outcome)
        seen(outcome)
        if stop_at is not None and len(summary.broken) >= stop_at:
            break
    summary.seconds = time.perf_counter() - began
    summary.per_seed.sort(key=lambda each: each["seed"])
    return summary


def _outcomes(family: Family, seeds: Iterable[int], jobs: int) -> Iterator[Outcome]:
    if jobs == 1:
        yield from (family.run(seed, None) for seed in seeds)
        return
    # Ctrl-C reaches every process of a terminal: the one that sweeps ends the others.
    with multiprocessing.get_context("spawn").Pool(jobs, signal.signal, (signal.SIGINT, signal.SIG_IGN)) as pool:
        yield from pool.imap_unordered(functools.partial(family.run, faults=None), seeds, CHUNK)
